"""Notebooks as a reader runs them: README's first line installs what they import, and papermill's parameters count."""

import ast
import json
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
BOOKS = sorted((ROOT / "nbs").rglob("*.ipynb"))

# --- imports

# import name -> name to install, where they differ, or what cannot be installed without it
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
COMES_WITH = {"IPython": "ipykernel", "nbformat": "nbconvert"}
# other libraries that are compared where they are installed
OPTIONAL = {"privacy/38_audit.ipynb": {"pure_ldp", "opendp", "diffprivlib", "multi_freq_ldpy"}}


def settings():
    parser = ConfigParser(delimiters=["="])
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    return parser["DEFAULT"]


def installed(*extras):
    "Names that `pip install -e '.[study]'` asks for."
    fields = ["requirements", *(f"{extra}_requirements" for extra in extras)]
    words = " ".join(settings()[field] for field in fields).split()
    return {re.match(r"[\w.-]+", word)[0].lower().replace("_", "-") for word in words}


def python_of(cell):
    "A cell's Python: IPython's own lines left out."
    source = "".join(cell["source"])
    if source.startswith("%%"):
        return ""
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)


def imported(source):
    "Top-level names of all modules that a piece of code imports, also inside functions and in programs kept as text."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]
        called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if called in ("import_module", "__import__"):
            yield from (a.value.partition(".")[0] for a in node.args if isinstance(a, ast.Constant))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            try:
                yield from imported(node.value)
            except SyntaxError:
                continue


def missing(names, extras):
    known = installed(*extras) | {"blockrr"}
    return {
        n
        for n in set(names) - set(sys.stdlib_module_names)
        if DISTRIBUTIONS.get(n, COMES_WITH.get(n, n)).lower().replace("_", "-") not in known
    }


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_the_first_line_installs_what_a_notebook_imports(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names = [n for c in cells if c["cell_type"] == "code" for n in imported(python_of(c))]
    optional = OPTIONAL.get(path.relative_to(ROOT / "nbs").as_posix(), set())
    assert not missing(names, ["learn", "study"]) - optional


@pytest.mark.parametrize("room, extras", [("learning", ["learn"]), ("study", ["learn", "study"])])
def test_a_room_imports_what_its_extra_installs(room, extras):
    optional = {"matplotlib"} if room == "learning" else set()  # plot() alone
    for path in (ROOT / "blockrr" / room).glob("*.py"):
        assert missing(imported(path.read_text(encoding="utf-8")), extras) <= optional, path.name


def test_missing_imports_are_found():
    script = "import polars, nowhere"
    code = f"def f():\n    import hypothesis.strategies\n    from pytest import raises\nscript = {script!r}"
    assert missing(imported(code), ["learn", "study"]) == {"hypothesis", "pytest", "nowhere"}
    assert missing(["sklearn", "PIL", "yaml", "json", "numpy"], ["learn", "study"]) == set()
    assert missing(imported(python_of({"source": ["%pip install x\n", "import_module('attrs')"]})), []) == {"attrs"}


# --- parameters


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def parametrised():
    "Notebook -> its parameters cell and the code cell after it."
    found = {}
    for path in BOOKS:
        cells = [c for c in cells_of(path) if c["cell_type"] == "code"]
        at = [i for i, c in enumerate(cells) if "parameters" in c["metadata"].get("tags", [])]
        if at:
            found[path] = ["".join(c["source"]) for c in cells[at[0] : at[0] + 2]]
    return found


class Run(NamedTuple):
    "What papermill did."

    ok: bool
    said: str  # on the standard streams
    shown: str  # the executed notebook, as text
    records: list  # of the file of records; empty if there is none


def papermill(folder, book, *options):
    "Run a notebook from the repository's root, as the README does."
    pytest.importorskip("papermill")
    command = [sys.executable, "-m", "papermill", book, str(folder / "out.ipynb"), "--no-progress-bar"]
    command += map(str, options)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    shown = (folder / "out.ipynb").read_text(encoding="utf-8")
    records = [r for p in folder.glob("records/*.json") for r in json.loads(p.read_text())["records"]]
    return Run(not done.returncode, done.stdout + done.stderr, shown, records)


def accuracy(folder, *options):
    return papermill(folder, "nbs/experiments/accuracy.ipynb", *options, "-p", "output", folder / "records")


def test_the_command_of_the_readme(tmp_path):
    "It gives the first seeds of a slice of the smoke profile."
    from blockrr.study.experiment import run_all
    from blockrr.study.paper import MECHANISMS
    from blockrr.study.spec import slice_cells

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [options] = re.findall(r"^\S*papermill nbs/experiments/accuracy.ipynb out.ipynb (.*)$", readme, re.M)
    assert options == "-p epsilon 1.0 -p dataset digits -p seeds 3"
    done = accuracy(tmp_path, *options.split())
    assert done.ok, done.said
    assert {r["spec"]["epsilon"] for r in done.records} == {1.0} and len(done.records) == 9
    alone = run_all(slice_cells("digits", MECHANISMS, [1.0], 3, prior_fraction=0.1))
    assert done.records == json.loads(json.dumps([r.to_dict() for r in alone]))


@pytest.mark.parametrize(
    "options, epsilons, seeds",
    [
        (("-p", "epsilons", "1.0", "-p", "seeds", "1"), [1.0], [0]),
        (("-p", "epsilons", "[2.0]", "-p", "seeds", "[3]"), [2.0], [3]),
        (("-p", "epsilon", "0.5, inf", "-p", "seeds", "0, 2"), [0.5, "inf"], [0, 2]),
        (("-y", "{epsilon: ['0.5', .inf, 2], seeds: 1}"), [0.5, "inf", 2.0], [0]),
    ],
)
def test_one_value_or_several(tmp_path, options, epsilons, seeds):
    done = accuracy(tmp_path, *options, "-p", "mechanisms", "rr")
    assert done.ok, done.said
    found = [(r["spec"]["epsilon"], r["spec"]["seed"]) for r in done.records]
    assert found == [(e, s) for e in epsilons for s in seeds]


def test_a_budget_that_the_paper_does_not_print(tmp_path):
    done = accuracy(tmp_path, "-p", "epsilon", "1.7", "-p", "seeds", "1", "-p", "mechanisms", "block_rr")
    assert done.ok, done.said
    [record] = done.records
    assert (record["spec"]["epsilon"], record["spec"]["sigma"], record["spec"]["l"]) == (1.7, 0.8, 2)
    assert record["details"]["settings"] == "default_settings" and "the paper prints no settings" in done.shown


def test_settings_by_rule_are_those_of_a_release():
    "At a small budget the rule says: as many dominant outputs as there are."
    import blockrr as br
    from blockrr.learning.data import dataset
    from blockrr.study.experiment import block_settings, grid, release_labels
    from blockrr.study.paper import DATASET_TITLES, EPSILONS

    labels = dataset("digits").train_labels
    [spec] = grid("digits", "block_rr", 0.5, 1)
    ours = release_labels(spec, labels, 10)
    prior = br.estimate_prior(labels[ours.held], 10, 0.5, spec.seeds()[1])
    plain = br.release(labels, 0.5, 10, "block_rr", prior=prior, seed=0)
    assert (ours.transition == plain.mechanism.transition).all() and ours.details["l_used"] == plain.statement.l
    printed = {block_settings(d, e).source for d in (*DATASET_TITLES, "digits") for e in EPSILONS[:-1]}
    others = {block_settings(d, e).source for d, e in (("cifar10", 1.0), ("digits", 5.0), ("cifar10_1", 0.0))}
    assert printed == {"paper"} and others == {"default_settings"}


@pytest.mark.parametrize(
    "book, option, hint",
    [
        ("experiments/accuracy", "epsilonn", "did you mean epsilon?"),
        ("experiments/tables", "dataset", "did you mean datasets?"),
        ("experiments/regression", "learner", "did you mean learners?"),
        ("experiments/resnet", "epsilom", "did you mean epsilon?"),
        ("paper/advice_validated", "record", "did you mean records?"),
    ],
)
def test_an_unknown_parameter_is_an_error(tmp_path, book, option, hint):
    done = papermill(tmp_path, f"nbs/{book}.ipynb", "-p", option, "1.0")
    assert not done.ok and "parameters: needs names among" in done.said and f"got {option} ({hint})" in done.said


@pytest.mark.parametrize("options", ["-p epsilon 1 -p epsilons 2", "-p learner probe -p learners forward"])
def test_a_parameter_that_another_overrides_is_an_error(tmp_path, options):
    done = papermill(tmp_path, "nbs/experiments/accuracy.ipynb", *options.split())
    one, many = options.split()[1::3]
    assert not done.ok and f"{one}: needs to be given without {many}, got both" in done.said


def test_a_folder_that_is_no_text_is_an_error(tmp_path):
    "Papermill takes None, 0 and 007 for no text; the records went to a temporary folder, or to another one."
    done = papermill(tmp_path, "nbs/experiments/accuracy.ipynb", "-p", "output", "None")
    assert not done.ok and "output: needs a text, got None" in done.said and "-r output keeps it" in done.said
    done = accuracy(tmp_path, "-p", "mechanisms", "rr", "-p", "epsilon", 1, "-p", "seeds", 1, "-r", "name", "007")
    assert done.ok and (tmp_path / "records" / "007.json").exists(), done.said


def test_what_papermill_adds_itself_is_no_unknown_parameter(tmp_path):
    done = accuracy(tmp_path, "-p", "mechanisms", "rr", "-p", "epsilon", 1, "-p", "seeds", 1, "--inject-paths")
    assert done.ok, done.said


def test_a_slice_of_numbers(tmp_path):
    options = "-p epsilon 2 -p seeds 1 -p mechanisms rr_on_bins -p learners linear".split()
    done = papermill(tmp_path, "nbs/experiments/regression.ipynb", *options, "-p", "output", tmp_path / "records")
    assert done.ok, done.said
    assert {(r["spec"]["epsilon"], r["spec"]["mechanism"]) for r in done.records} == {(2.0, "rr_on_bins")}


@pytest.mark.parametrize("book", ["accuracy", "regression"])
def test_a_slice_without_cells_is_an_error(tmp_path, book):
    "Not an empty file of records."
    done = papermill(
        tmp_path, f"nbs/experiments/{book}.ipynb", "-r", "mechanisms", "", "-p", "output", tmp_path / "records"
    )
    assert not done.ok and "mechanisms, epsilons: needs at least one each, got none" in done.said
    assert not (tmp_path / "records").exists()


def test_records_are_found_from_anywhere(tmp_path):
    "Papermill runs a notebook in the folder where it is called."
    done = papermill(tmp_path, "nbs/experiments/ablation_l.ipynb")
    assert done.ok and "No records" not in done.shown, done.said


def test_every_notebook_with_parameters_checks_them():
    books = parametrised()
    assert len(books) >= 13
    assert not [p.stem for p, cells in books.items() if not cells[1].startswith("check_parameters()\n")]


def test_every_notebook_with_budgets_takes_one():
    budgeted = {p.stem: p for p, (names, _) in parametrised().items() if re.search("^epsilons", names, re.M)}
    assert set(budgeted) == {"accuracy", "resnet", "regression", "advice", "leftover", "sets_table"}
    for path in budgeted.values():
        code = ["".join(c["source"]) for c in cells_of(path) if c["cell_type"] == "code"]
        assert "\nepsilon = None" in parametrised()[path][0]
        assert sum(source.count("budgets(epsilon, epsilons)") for source in code) == 1, path.name


def test_notebooks_are_small_enough_to_be_shown():
    large = {book.name: size for book in BOOKS if (size := book.stat().st_size) > 200_000}
    assert not large, f"run tools/shrink_pictures.py, or draw fewer points: {large}"

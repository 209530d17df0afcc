"""What a reviewer ticks off: the appendix, the citation, the changes, the locked packages, the examples."""

import json
import re
import shlex
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

import blockrr as br
from blockrr.study.cli import main as command_line
from blockrr.study.reproduce import profiles

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import artifact  # noqa: E402
import digests  # noqa: E402


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def commands(page):
    "Command lines of a page: in its fences, and alone between backticks in a table."
    page = re.sub(r"^```python\n.*?^```$", "", page, flags=re.M | re.S)
    fenced = [line for block in re.findall(r"^```\n(.*?)^```$", page, re.M | re.S) for line in block.splitlines()]
    quoted = re.findall(r"`((?:blockrr|python|nbdev_test|papermill|docker) [^`]+)`", page)
    return [part.strip() for line in (*fenced, *quoted) for part in re.split(r"&&", line) if part.strip()]


# --- the appendix


def test_the_appendix_is_what_the_records_give():
    assert text("ARTIFACT.md") == artifact.text(), "run python tools/artifact.py"


PAGES = ["ARTIFACT.md", "CONTRIBUTING.md", "SECURITY.md"]
CASES = [(page, command) for page in PAGES for command in commands(text(page))]
PROGRAMS = {"blockrr", "python", "python3.11", "pip", "papermill", "nbdev_test", "nbdev_export", "nbdev_clean"}
PROGRAMS |= {"docker", ".", "ruff", "basedpyright", "uv", "echo", "bash"}


@pytest.mark.parametrize("page, command", CASES, ids=[f"{p[:4]}-{c[:40]}" for p, c in CASES])
def test_commands_are_there(page, command, capsys):
    words = shlex.split(command)
    assert words[0] in PROGRAMS
    if words[0] == "blockrr" and words[1:2] != ["--version"]:
        if "--profile" in words:
            assert words[words.index("--profile") + 1] in profiles()
        with pytest.raises(SystemExit) as ended:  # every option is one that the command has
            command_line([*words[1:], "--help"])
        said = capsys.readouterr().out
        assert ended.value.code == 0 and not [w for w in words if w.startswith("--") and w not in said]
    made = (".venv", "runs/", "_docs", "out.ipynb", "setuptools.tmp")
    paths = [w for w in words[1:] if re.fullmatch(r"[\w.-]+(/[\w.-]+)*", w) and re.search(r"/|\.(txt|py|ipynb)$", w)]
    assert not [p for p in paths if not p.startswith(made) and not (ROOT / p).exists()]


def test_commands_are_found():
    assert {"blockrr reproduce --profile laptop", "python tools/digests.py runs/smoke"} <= {c for _, c in CASES}
    assert len(CASES) > 20 and commands("`blockrr data pack` and\n```\na && b\n```\n") == [
        "a",
        "b",
        "blockrr data pack",
    ]


def test_there_are_no_gpu_records():
    "The appendix says so; where this fails, say what they show."
    devices = {
        json.loads(p.read_text(encoding="utf-8"))["provenance"].get("device", "")
        for p in (ROOT / "results").glob("*/records/*.json")
    }
    assert devices and not [d for d in devices if re.search("NVIDIA|H100|H200|A100|cuda", d)]
    assert not (ROOT / "results" / "gpu").exists()


# --- digests


def test_digests_are_of_what_was_computed(tmp_path):
    (tmp_path / "records").mkdir()
    path = tmp_path / "records" / "a.json"
    path.write_text('{"provenance": {"commit": "x"}, "records": [{"b": 1.5, "a": [1]}]}')
    first = digests.digests(tmp_path)
    path.write_text('{"records":[{"a":[1],"b":1.5}], "provenance": {"commit": "y"}}')
    assert digests.digests(tmp_path) == first
    path.write_text('{"records":[{"a":[1],"b":1.6}]}')
    found = digests.digests(tmp_path)
    assert digests.compare(found, first) == ["a.json has other records"] and digests.compare(first, first) == []
    assert digests.compare({}, first) == ["a.json is missing"]
    assert digests.compare(first, {}) == ["a.json has no committed digest"]


def test_the_smoke_profile_has_a_digest_for_each_slice():
    from blockrr.study.reproduce import slices

    smoke = yaml.safe_load(text("workflow/profiles/smoke.yaml"))
    assert {f"{name}.json" for name in slices(smoke, "runs/smoke")} == set(
        json.loads(text("results/smoke.json"))["sha256"]
    )


def test_a_slice_of_the_smoke_profile_has_the_committed_digest(tmp_path):
    "Exact on the processor and with the versions of the record; the whole profile is compared in the Dockerfile."
    from blockrr.study.experiment import grid, run_all
    from blockrr.study.paper import MECHANISMS
    from blockrr.study.records import processor_name, provenance, save

    committed = json.loads(text("results/smoke.json"))
    here = provenance(0.0, {})
    same = [committed["versions"][name] == here["versions"][name] for name in ("python", "numpy", "scipy")]
    if not all(same) or processor_name() not in committed["device"]:
        pytest.skip("another processor or other versions")
    specs = grid("digits", MECHANISMS, [1.0], 5, prior_fraction=0.1)
    path = save(run_all(specs), tmp_path / "digits-eps1.0.json")
    assert digests.digest(path) == committed["sha256"][path.name]


# --- citation, changes, packages


def settings():
    parser = ConfigParser(delimiters=["="])
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    return parser["DEFAULT"]


def test_one_version_everywhere():
    cited = yaml.safe_load(text("CITATION.cff"))
    newest, date = re.search(r"^## (\S+), (\S+)$", text("CHANGELOG.md"), re.M).groups()
    assert br.__version__ == settings()["version"] == cited["version"] == newest
    assert str(cited["date-released"]) == date


def test_the_citation_has_what_the_format_asks_for():
    cited = yaml.safe_load(text("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["repository-code"] == settings()["git_url"] and cited["license"] == "Apache-2.0"
    [paper] = cited["references"]
    [number] = paper["identifiers"]
    assert {"type", "title", "authors"} <= paper.keys() and number["type"] == "other"
    where = "https://arxiv.org/abs/" + number["value"].removeprefix("arXiv:")
    assert paper["url"] == where and f"]({where})" in text("README.md") and paper["title"] in text("README.md")


def pins(name):
    "Package -> version, of the lines for Python 3.11."
    lines = [line for line in text(name).splitlines() if not re.search(r'python_version < "3\.11"', line)]
    found = [re.match(r"([\w.-]+)==([^\s;]+)", line) for line in lines]
    return {m[1].lower().replace("_", "-"): m[2] for m in found if m}


def test_locked_packages_are_those_of_the_constraints():
    locked, wanted = pins("requirements-3.11.txt"), pins("constraints.txt")
    site = {"sphinx", "myst-nb", "furo", "math-core"}
    assert len(locked) > 100 and {k: v for k, v in wanted.items() if k not in site} == {
        k: locked.get(k) for k in wanted.keys() - site
    }
    extras = " ".join(settings()[f"{e}requirements"] for e in ("", "learn_", "study_", "dev_")).split()
    assert {re.match(r"[\w.-]+", e)[0].lower().replace("_", "-") for e in extras} <= locked.keys()


def test_every_locked_package_has_a_hash_and_no_address():
    blocks = re.split(r"\n(?=\w)", text("requirements-3.11.txt"))
    blocks = [b for b in blocks if "==" in b.splitlines()[0]]
    assert len(blocks) == len(pins("requirements-3.11.txt"))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", b) for b in blocks)
    assert "://" not in text("requirements-3.11.txt") and "index-url" not in text("requirements-3.11.txt")


def test_the_image_copies_what_is_there():
    copied = re.findall(r"^COPY (\S+) \S+$", text("Dockerfile"), re.M)
    assert copied == ["requirements-3.11.txt", "."]
    assert "--require-hashes" in text("Dockerfile") and "tools/digests.py runs/smoke" in text("Dockerfile")


def test_packaging_names_versions_and_addresses():
    code = "import setuptools, json; setuptools.setup = lambda **k: print(json.dumps(k)); exec(open('setup.py').read())"
    code = "__file__ = 'setup.py'; " + code
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["version"] == br.__version__ and len(facts["project_urls"]) >= 4
    assert "Programming Language :: Python :: 3.11" in facts["classifiers"] and "site" in facts["extras_require"]
    assert [c for c in facts["classifiers"] if c.startswith("Development Status :: 3 - Alpha")]


# --- examples


EXAMPLES = re.findall(r"^```python\n(.*?)^```$", text("CONTRIBUTING.md"), re.M | re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=["mechanism", "learner"])
def test_examples_of_contributing(example):
    from blockrr.privacy.methods import METHODS
    from blockrr.study.learners import LEARNERS

    kept = dict(METHODS), dict(LEARNERS)
    try:
        exec(compile(example, "CONTRIBUTING.md", "exec"), {})
        assert (dict(METHODS), dict(LEARNERS)) != kept
    finally:
        for table, before in zip((METHODS, LEARNERS), kept):
            table.clear()
            table.update(before)

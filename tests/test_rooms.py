"""The three packages and their one direction, no circle, no borrowed private name; what importing blockrr loads."""

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "blockrr"
ALLOWED = {"privacy": {"privacy"}, "learning": {"privacy", "learning"}, "study": {"privacy", "learning", "study"}}
BARE = {"numpy", "scipy", "cryptography", "narwhals"} | set(sys.stdlib_module_names)


def imports(path):
    "The full name of every module that a file imports, at any depth of the code."
    package = ["blockrr", path.parent.name]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ".".join(package[: len(package) + 1 - node.level] * bool(node.level) + [node.module or ""])


def names_taken(path):
    "(module, name) for everything that a file imports from a module of blockrr."
    package = ["blockrr", path.parent.name]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            whole = ".".join(package[: len(package) + 1 - node.level] * bool(node.level) + [node.module or ""])
            if whole.startswith("blockrr."):
                yield from ((whole, alias.name) for alias in node.names)


def modules_taken(path):
    "The modules of blockrr that a file imports, also by `from . import paper`."
    return (set(imports(path)) | {f"{module}.{name}" for module, name in names_taken(path)}) & set(MODULES)


MODULES = {f"blockrr.{p.parent.name}.{p.stem}": p for p in PACKAGE.glob("*/*.py") if p.stem != "__init__"}


@pytest.mark.parametrize("module", MODULES)
def test_no_private_name_of_another_module(module):
    borrowed = [(m, name) for m, name in names_taken(MODULES[module]) if name.startswith("_")]
    assert not borrowed


def test_no_circle():
    graph = {module: modules_taken(path) for module, path in MODULES.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as circle:
        pytest.fail(f"a circle of imports: {' -> '.join(circle.args[1])}")


def defined(path):
    "Public names that a module defines itself."
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name))


def test_no_public_name_twice():
    where = {}
    for module, path in MODULES.items():
        for name in {n for n in defined(path) if not n.startswith("_")}:
            where.setdefault(name, []).append(module)
    assert not {name: modules for name, modules in where.items() if len(modules) > 1}


def notebook_of(path):
    "The name of the notebook that a module is made from, such as `15_optimal.ipynb`."
    return re.search(r"File to edit: (?:\S*/)?(\S+\.ipynb)", path.read_text(encoding="utf-8"))[1]


@pytest.mark.parametrize("module", MODULES)
def test_a_notebook_imports_what_comes_before_it(module):
    path = MODULES[module]
    if not re.match(r"\d\d", notebook_of(path)):
        pytest.skip("not numbered")
    room = [MODULES[m] for m in modules_taken(path) if MODULES[m].parent == path.parent]
    assert not [other.stem for other in room if notebook_of(other) >= notebook_of(path)]


@pytest.mark.parametrize("room", ALLOWED)
def test_direction(room):
    for path in (PACKAGE / room).glob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts == ["blockrr"]:
                parts.append("privacy")  # the package itself has the privacy package's names
            if parts[0] == "blockrr":
                assert parts[1] in ALLOWED[room] and (name != "blockrr" or room != "privacy"), (
                    f"{path.name} imports {name}"
                )


def test_privacy_needs_only_the_bare_install():
    optional = {"matplotlib", "pyarrow"}  # plot() alone, and Parquet files; imported inside functions
    for path in (PACKAGE / "privacy").glob("*.py"):
        assert {n.split(".")[0] for n in imports(path)} - BARE - {"blockrr"} <= optional, path.name


def test_import_is_light():
    code = "import sys, blockrr; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {
        "torch",
        "torchvision",
        "pandas",
        "polars",
        "matplotlib",
        "sklearn",
        "papermill",
        "snakemake",
        "IPython",
        "fastcore",
        "scipy",
        "sqlite3",
    }
    assert not {m.split(".")[0] for m in loaded} & heavy
    assert not [m for m in loaded if m.startswith(("blockrr.learning", "blockrr.study"))]
    assert "blockrr.privacy.release" in loaded  # the names above are full ones


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_short(module):
    lines = MODULES[module].read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 430
    assert not [line for line in lines if len(line) > 120 and not line.startswith("__all__ = [")]

"""The three rooms and their one direction; what importing blockrr loads."""

import ast
import subprocess
import sys
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


@pytest.mark.parametrize("room", ALLOWED)
def test_direction(room):
    for path in (PACKAGE / room).glob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts == ["blockrr"]:
                parts.append("privacy")  # the package itself is the privacy room's names
            if parts[0] == "blockrr":
                assert parts[1] in ALLOWED[room] and (name != "blockrr" or room != "privacy"), (
                    f"{path.name} imports {name}"
                )


def test_privacy_needs_only_the_bare_install():
    optional = {"matplotlib"}  # plot() alone, imported inside it
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

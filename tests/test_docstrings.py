"""The examples in docstrings are true."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

PRIVACY = Path(__file__).resolve().parent.parent / "blockrr" / "privacy"
MODULES = sorted(path.stem for path in PRIVACY.glob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(import_module(f"blockrr.privacy.{name}"))
    assert found.attempted and not found.failed

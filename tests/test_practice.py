"""The practitioner's lessons: short steps, every public name, and what a newcomer stumbled over."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import blockrr as br

FOLDER = Path(__file__).resolve().parent.parent / "nbs" / "practice"
LESSONS = sorted(FOLDER.glob("0*.ipynb"))


def cells(path, kind="code"):
    "Sources of a notebook's cells of a kind."
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in found if c["cell_type"] == kind]


def test_the_six_lessons():
    titles = ["choose_epsilon", "release", "hand_over", "learn", "evaluate", "report"]
    assert [path.stem for path in LESSONS] == [f"{i:02}_{title}" for i, title in enumerate(titles, 1)]


def test_every_public_name_is_in_a_lesson():
    code = "\n".join(source for path in FOLDER.glob("*.ipynb") for source in cells(path))
    assert set(br.__all__) - set(re.findall(r"\bbr\.(\w+)", code)) == set()


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_steps_are_short(path):
    "Three lines, or a block of four for an error or a warning that is meant to be seen; no line is too wide."
    for source in cells(path):
        lines = [line for line in source.splitlines() if line]
        assert max(map(len, lines)) <= 112
        if source.startswith(("#| hide", "import ", "from ")):
            continue
        several = 4 if lines[0].startswith(("try:", "with ")) else 3
        assert len(lines) <= several, source


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_few_assertions_in_a_row_and_a_box_at_the_end(path):
    for source in cells(path):
        assert len(re.findall("^assert ", source, re.M)) <= 3
    last = cells(path, "markdown")[-1]
    assert last.startswith("## Where you are\n\n| What you have now | What it does not protect |")


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_no_seed_without_a_word(path):
    "The first lesson that gives a seed says what it does; no lesson saves a page for a board from a seeded release."
    code = "\n".join(cells(path))
    if path.stem == "02_release":
        assert "Leave it out for your own labels" in "\n".join(cells(path, "markdown"))
    if path.stem == "06_report":
        assert "seed=" not in code


def test_learners_for_tables_need_no_torch():
    code = "import sys; from blockrr.learning import LabelDPClassifier, NoiseAwareClassifier, NoiseAwareRegressor; "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_learners_by_name():
    import blockrr.learning as learning

    for name in learning.__all__:
        assert getattr(learning, name).__name__ == name and name in dir(learning)
    assert not hasattr(learning, "Learner")

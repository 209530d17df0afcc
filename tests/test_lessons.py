"""Eight lessons, one path: short cells, few assertions, pictures; and the explorer, with and without its sliders."""

import ast
import json
import re
import sys
from math import log
from pathlib import Path

import numpy as np
import pytest

NBS = Path(__file__).resolve().parent.parent / "nbs"
EXPLORER = NBS / "explore.ipynb"


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def path_of_lessons():
    "The notebooks that the index numbers 1, 2, ..., in this order."
    [listed] = [source(c) for c in cells(NBS / "index.ipynb") if source(c).startswith("## Eight lessons")]
    return [NBS / target for target in re.findall(r"^\d\. \[[^\]]+\]\(([^)]+)\)", listed, re.M)]


LESSONS = path_of_lessons()


def test_the_index_lists_eight_lessons():
    assert len(LESSONS) == 8 and all(p.exists() for p in LESSONS)
    assert sorted((NBS / "lessons").glob("*.ipynb")) == LESSONS[:7]


def test_each_lesson_leads_to_the_next():
    for here, there in zip(LESSONS, LESSONS[1:]):
        last = source(cells(here)[-1])
        assert re.search(rf"\*\*Next: .*\]\((\.\./)?[\w/]*{there.name}\)", last), here.name


@pytest.mark.parametrize("path", [*LESSONS, EXPLORER], ids=lambda p: p.stem)
def test_a_lesson_fits_a_laptop(path):
    code = [source(c) for c in cells(path) if c["cell_type"] == "code"]
    assert not [line for text in code for line in text.splitlines() if len(line) > 100]
    assert max(sum(isinstance(n, ast.Assert) for n in ast.walk(ast.parse(text))) for text in code) <= 3
    shown = [o.get("data", {}) for c in cells(path) for o in c.get("outputs", [])]
    assert any("image/png" in data for data in shown), "no picture"
    texts = [
        "".join(o.get("text", o.get("data", {}).get("text/plain", "")))
        for c in cells(path)
        for o in c.get("outputs", [])
    ]
    assert not [t for t in texts if re.search(r"np\.\w+\(|\d\.\d{7,}", t)], "outputs need rounding"


def test_two_hours_are_enough():
    "200 words a minute, and a line of code takes as long as eight words."
    words = sum(len(source(c).split()) for p in LESSONS for c in cells(p) if c["cell_type"] == "markdown")
    lines = sum(len(source(c).splitlines()) for p in LESSONS for c in cells(p) if c["cell_type"] == "code")
    assert (words + 8 * lines) / 200 < 90  # half an hour is left for the exercises


# --- the explorer


def explorer(monkeypatch, without=()):
    "What the explorer's cells define; nobody is there to move sliders."
    for name in ("JPY_SESSION_NAME", "VOILA_BASE_URL", "VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG"):
        monkeypatch.delenv(name, raising=False)
    for name in without:
        monkeypatch.setitem(sys.modules, name, None)
    names = {}
    for cell in cells(EXPLORER):
        if cell["cell_type"] == "code":
            exec(source(cell), names)
    return names


def test_the_explorer_starts_with_the_table_of_lesson_5(monkeypatch):
    names = explorer(monkeypatch, without=["ipywidgets"])
    assert names["widgets"] is None and not names["live"]
    mechanism, words = names["build"](**{**names["START"], "epsilon": log(3)})
    hand = [[15, 5, 4, 4], [5, 15, 4, 4], [7, 5, 12, 4], [7, 5, 4, 12]]
    np.testing.assert_allclose(28 * mechanism.transition, hand)
    assert "minority: depression, addiction" in words and "dominant: healthy" in words


def test_sliders_redraw_the_picture(monkeypatch):
    widgets = pytest.importorskip("ipywidgets")
    names = explorer(monkeypatch)
    seen = []
    monkeypatch.setitem(names, "picture", lambda **settings: seen.append(settings) or b"")
    box = names["explorer"]()
    sliders = {c.description: c for side in box.children[0].children for c in side.children}
    assert seen[-1] == names["START"]
    for name, value in {"addiction": 30, "epsilon": 2.0, "sigma": 0.5, "l": 2}.items():
        sliders[name].value = value
    [buttons] = [c for c in sliders.values() if isinstance(c, widgets.ToggleButtons)]
    buttons.value = "RRWithPrior"
    wanted = {"prior": (50, 30, 10, 30), "epsilon": 2.0, "sigma": 0.5, "l": 2, "mechanism": "RRWithPrior"}
    assert seen[-1] == wanted


@pytest.mark.parametrize("mechanism", ["RR", "RRWithPrior", "BlockRR"])
@pytest.mark.parametrize("epsilon, sigma, l", [(0, 4.0, 4), (5, 0.2, 0), (1.1, 1.0, 2)])
def test_every_corner_of_the_sliders_is_drawn(monkeypatch, mechanism, epsilon, sigma, l):
    names = explorer(monkeypatch, without=["ipywidgets"])
    drawn = names["picture"](prior=(100, 1, 1, 1), epsilon=epsilon, sigma=sigma, l=l, mechanism=mechanism)
    assert drawn.startswith(b"\x89PNG")
    m, words = names["build"]((100, 1, 1, 1), epsilon, sigma, l, mechanism)
    text = names["figures"](m, words, np.array([100, 1, 1, 1.0]))
    assert f"holds for {epsilon:g}" in text and not re.search(r"\bnan\b", text)

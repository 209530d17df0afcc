"""How notebooks become pages, and how a built site is checked; `python tools/site` itself runs in .ci/run."""

import json
import re
import sys
from pathlib import Path

import pytest

import blockrr as br

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "site"))
import linkcheck  # noqa: E402
import stage  # noqa: E402

REPOSITORY = "https://github.com/blockrr/blockrr"
PAGES = stage.pages_of(REPOSITORY)


def code(source, **more):
    return {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], **more}


@pytest.mark.parametrize(
    "source", ["#| hide\nx = 1", "#| default_exp a.b", "#|hide\nimport nbdev", "#| export\nimport os", ""]
)
def test_cells_that_leave_the_page(source):
    assert stage.page_cell(code(source)) is None


@pytest.mark.parametrize(
    "source, tags, left",
    [
        ("x = 1", [], "x = 1"),
        ("#| echo: false\nx", ["remove-input"], "x"),
        ("#| slow\nx", [], "x"),
        ("#| export\ndef f():\n    pass", ["hide-input"], "def f():\n    pass"),
        ("# a comment | of its own\nx", [], "# a comment | of its own\nx"),
    ],
)
def test_directives_become_tags(source, tags, left):
    cell = stage.page_cell(code(source))
    assert (cell["metadata"]["tags"], cell["source"]) == (tags, left)


def test_folded_code_names_what_it_defines():
    cell = stage.page_cell(code("#| export\nONE = 1\n\n\nclass A:\n    x = 2\n\n\ndef f():\n    y = 3"))
    assert cell["metadata"]["mystnb"]["code_prompt_show"] == "Code: ONE, A, f"


def test_no_directive_is_left_and_no_notebook_is_lost():
    books = {name: json.loads(text) for name, text in PAGES.items() if name.endswith(".ipynb")}
    found = {p.relative_to(ROOT / "nbs").as_posix() for p in (ROOT / "nbs").rglob("*.ipynb")}
    assert books.keys() == {name for name in found if ".ipynb_checkpoints" not in name}
    sources = [cell["source"] for book in books.values() for cell in book["cells"]]
    assert len(sources) > 1000 and not [s for s in sources if re.match(r"#\|", s)]


@pytest.mark.parametrize(
    "link, folder, found",
    [
        ("11_classification.ipynb", "nbs/privacy", "11_classification.ipynb"),
        ("../paper/theorems.ipynb#A-Title", "nbs/privacy", "../paper/theorems.ipynb#a-title"),
        ("#A-Title", "nbs", "#a-title"),
        ("nbs/privacy/30_release.ipynb", "", "privacy/30_release.ipynb"),
        ("results/promises.json", "", f"{REPOSITORY}/blob/main/results/promises.json"),
        ("privacy", "nbs", f"{REPOSITORY}/tree/main/nbs/privacy"),
    ],
)
def test_links_lead_to_pages_or_to_the_repository(link, folder, found):
    known = {p.relative_to(ROOT).as_posix() for p in (ROOT / "nbs").rglob("*.ipynb")}
    assert stage.moved(link, folder, known, REPOSITORY) == found


def test_code_keeps_its_brackets():
    text = "`[a](b.ipynb)` [c](d.ipynb)\n\n```\nx[0](e.ipynb)\n```\n"
    moved = stage.relink(text, "nbs", set(), REPOSITORY)
    assert moved == text.replace("[c](d.ipynb)", f"[c]({REPOSITORY}/blob/main/nbs/d.ipynb)")


def test_every_public_name_has_a_page():
    names = [full for found in stage.documented().values() for _, full, _ in found]
    assert {f"blockrr.{name}" for name in br.__all__} <= set(names) and len(names) == len(set(names))
    text = "\n".join(text for name, text in PAGES.items() if name.startswith("api/"))
    assert not [name for name in names if f":: {name}\n" not in text]


def test_pages_that_did_not_change_are_not_written_again(tmp_path):
    stage.stage(tmp_path, REPOSITORY)
    first = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")}
    (tmp_path / "old.md").write_text("gone")
    stage.stage(tmp_path, REPOSITORY)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")} == first
    assert len(first) == len(PAGES) + len(stage.files_in_notebooks(*stage.ASSETS))


@pytest.fixture
def site(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.html").write_text('<h1 id="top-of-b">b</h1><a href="../index.html#here">up</a>')
    (tmp_path / "index.html").write_text('<p id="here"><a href="a/b.html#top-of-b">b</a><a href="#here">x</a></p>')
    linkcheck.page.cache_clear()
    return tmp_path


def test_a_good_site_has_no_faults(site):
    assert linkcheck.check(site) == []


@pytest.mark.parametrize(
    "html, fault",
    [
        ('<a href="c.html">', "c.html is not on the site"),
        ('<a href="a/b.html#nowhere">', "a/b.html#nowhere has no such anchor"),
        ('<a href="../outside.html">', "../outside.html is not on the site"),
        ('<img src="a/b.png">', "a/b.png is not on the site"),
        ('<a href="http:/one-slash">', "http:/one-slash is no address"),
        ('<a href="javascript:go()">', "javascript:go() is no address"),
        ('<script src="https://example.org/x.js"></script>', "loads https://example.org/x.js from another server"),
        ("x" * 500_001, "weighs"),
    ],
)
def test_faults_of_a_site_are_found(site, html, fault):
    (site / "index.html").write_text('<p id="here">' + html)
    [found] = linkcheck.check(site)
    assert fault in found


def test_an_empty_folder_is_no_site(tmp_path):
    assert linkcheck.check(tmp_path)

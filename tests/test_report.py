"""Tables as readers see them, provenance in a sentence, one page of several notebooks, old names."""

import math
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from blockrr.study import claims, figures, frames, paper, report, statistics
from blockrr.study.report import html_report, html_table, markdown_table, provenance_line

v4 = nbformat.v4
ROOT = Path(__file__).resolve().parent.parent


def write(path, *markdown):
    "An executed notebook."
    cells = [v4.new_markdown_cell(text) for text in markdown]
    output = v4.new_output("display_data", data={"text/html": "<b>measured</b>"})
    cells.append(v4.new_code_cell("#| hide\nsecret = 1", outputs=[output]))
    cells.append(v4.new_code_cell("secret = 2", outputs=[output]))
    nbformat.write(v4.new_notebook(cells=cells), path)
    return path


def test_headings_of_several_notebooks(tmp_path):
    "Same headings, deep ones, signs that HTML knows, and comments in code that are none."
    text = "# What & why?\n\nWords with # inside.\n\n```\n# no heading\n```\n\n#### too deep\n\n#hashtag"
    books = [write(tmp_path / f"{name}.ipynb", text, "## Tables") for name in ("one", "two")]
    page = html_report(books, tmp_path / "out" / "page.html", "A <title>", provenance="1 < 2").read_text()
    contents = re.findall(r'<li style="([^"]*)"><a href="#([^"]*)">(.*?)</a></li>', page)
    wanted = [("0.0em", "What-&amp;-why?", "What &amp; why?"), ("1.5em", "Tables", "Tables")]
    assert contents == [(f"margin-left: {em}", f"{n}-{a}", t) for n in ("one", "two") for em, a, t in wanted]
    for _, anchor, _ in contents:
        assert page.count(f'<a id="{anchor}"></a>') == 1
    assert "A &lt;title&gt;" in page and "1 &lt; 2" in page
    assert page.count("<b>measured</b>") == 2 and "secret" not in page
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_nothing_is_fetched_from_elsewhere(tmp_path):
    page = html_report([write(tmp_path / "a.ipynb", "# A")], tmp_path / "page.html").read_text()
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_a_page_needs_executed_notebooks(tmp_path):
    with pytest.raises(ValueError, match="notebooks: needs at least one"):
        html_report([], tmp_path / "page.html")
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell("1")]), tmp_path / "fresh.ipynb")
    with pytest.raises(ValueError, match="fresh.ipynb: needs a notebook with outputs"):
        html_report([tmp_path / "fresh.ipynb"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_tables_of_words():
    frame = pd.DataFrame({"epsilon": [1.0, math.inf], "gain": ["<b>+1.0</b>", "002.50"]})
    assert "<td><b>+1.0</b></td>" in html_table(frame, "1 < 2") and "<p>1 &lt; 2</p>" in html_table(frame, "1 < 2")
    lines = markdown_table(frame.set_index("epsilon")).data.splitlines()
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["epsilon", "gain"] and rows[2:] == [["1", "<b>+1.0</b>"], ["inf", "002.50"]]


def test_provenance_of_old_and_bare_files():
    frame = pd.DataFrame({"learner": ["probe", "probe"]})
    frame.attrs = {"provenance": {"a.json": {}, "b.json": {"commit": None, "versions": None}}}
    assert provenance_line(frame) == "2 records from 2 files; learner probe."
    frame.attrs = {
        "provenance": {"a.json": {"versions": {"blockrr": "0.1.0", "scikit-learn": "1.9"}, "device": "a CPU"}}
    }
    assert provenance_line(frame).endswith("; processor a CPU; blockrr 0.1.0; scikit-learn 1.9.")


def test_old_names_answer_with_a_warning():
    moved = {
        "load": frames.read_records,
        "paired": frames.paired,
        "plot_accuracy": figures.plot_accuracy,
    }
    for name, new in moved.items():
        with pytest.warns(DeprecationWarning, match=f"blockrr.study.report.{name} is"):
            assert getattr(report, name) is new
    assert report.contrast is statistics.contrast
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        report.nothing  # noqa: B018


def test_a_note_is_about_what_is_there():
    assert report.note(True, "here").data == "here" and report.note(False, "here", "there").data == "there"
    assert report.note(False, "here") is None


def test_the_first_screen(tmp_path):
    "Before the notebooks, which then hide their contents; without one these are open."
    books = [write(tmp_path / "a.ipynb", "# A")]
    page = html_report(books, tmp_path / "page.html", opening="<p>first</p>").read_text()
    assert page.index("<p>first</p>") < page.index("<nav><details>") < page.index("measured")
    assert "<nav><details open>" in html_report(books, tmp_path / "page.html").read_text()
    assert 'name="viewport"' in page and "prefers-color-scheme: dark" in page


@pytest.mark.parametrize("name, next_one", [("laptop", "learners"), ("learners", "gpu"), ("optimal", "learners")])
def test_the_opening_of_the_records_on_disk(name, next_one):
    frame = frames.read_records(ROOT / "results" / name / "records")
    opening = claims.report_opening(frame)
    assert f"blockrr reproduce --profile {next_one}" in opening and opening.count("<img") == 1
    lines = re.findall(r"<li><b>(.*?):</b> (.*?) \((.*?)\)</li>", opening)
    assert len(lines) > 10 and len(set(lines)) == len(lines)
    judged = claims.judge_claims(frame[(frame.learner == "probe") & frame.mechanism.isin(list(paper.MECHANISMS))])
    decided = judged[judged.evidence != "no records"]
    assert sum(len(data.split(", ")) for *_, data in lines) == len(decided)


def test_the_opening_without_claims():
    "One line a budget; nothing at all for numbers, or where the paper's mechanisms are missing."
    rows = {
        "dataset": "digits",
        "learner": "probe",
        "epsilon": [1.0, 1.0, math.inf],
        "mechanism": ["rr", "block_rr", "rr"],
    }
    rows |= {
        "seed": 0,
        "sigma": [None, 1.2, None],
        "l": [None, 5, None],
        "accuracy": [70.0, 75.0, 99.0],
        "average": 50.0,
    }
    frame = pd.DataFrame(rows)
    opening = claims.report_opening(frame)
    assert re.findall("<li>(.*?)</li>", opening) == [
        "<b>digits, ε = 1:</b> BlockRR 75.0, RR 70.0 %",
        "<b>digits, ε = ∞:</b> RR 99.0 %",
    ]
    assert "RR, BlockRR on digits, learner probe, ε = 1, ∞, n = 1 seeds a cell." in opening
    assert "--profile laptop" in opening
    assert claims.report_opening(frame.drop(columns="average")) == ""
    assert claims.report_opening(frame.assign(mechanism="subset")) == ""

"""Reading records: what is refused and how; parts of a grid; pairs, tables and cells with known answers."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from blockrr.study import paper
from blockrr.study.frames import (
    beside_paper,
    count_sides,
    incomplete,
    interval_table,
    mean_table,
    measured_cells,
    paired,
    paired_each,
    read_records,
    seeds_text,
    select,
    summary,
)
from blockrr.study.records import save
from blockrr.study.regression import RegressionRecord, RegressionSpec
from blockrr.study.statistics import printed_cells

CHOSEN = {"sigma": 1.2, "l": 5}  # the paper's settings of BlockRR at epsilon 1 on the first set


def write(path, rows, per_class=None):
    "A record file of rows (mechanism, epsilon, seed, accuracy, more of the spec)."
    records = []
    for mechanism, epsilon, seed, accuracy, more in rows:
        spec = {
            "dataset": "cifar10_1",
            "mechanism": mechanism,
            "epsilon": epsilon,
            "sigma": None,
            "l": None,
        }
        spec |= {"seed": seed, "learner": "made up", "prior_fraction": 0.01} | more
        classes = [accuracy + 5] * 5 + [accuracy - 15] * 5 if per_class is None else per_class
        records.append({"spec": spec, "accuracy": accuracy, "per_class": classes})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "provenance": {"commit": "0123abc"}, "records": records}))


@pytest.fixture
def folder(tmp_path):
    rows = []
    for mechanism, base in (("rr", 50), ("rr_with_prior", 54), ("block_rr", 56)):
        more = CHOSEN if mechanism == "block_rr" else {}
        rows += [(mechanism, 1.0, seed, base + seed - 1, more) for seed in range(3)]
    write(tmp_path / "main.json", rows)
    ladder = [("block_rr", 1.0, s, 55 + s + l / 10, {"sigma": 1.2, "l": l}) for l in (0, 3, 6) for s in range(3)]
    write(tmp_path / "slices" / "l.json", ladder + rows[-1:])
    return tmp_path


def test_a_spec_in_two_files_is_read_once(folder):
    frame = read_records(folder)
    assert len(frame) == 18 and set(frame.attrs["provenance"]) == {"main.json", "slices/l.json"}
    assert frame.file.value_counts().to_dict() == {"main.json": 9, "slices/l.json": 9}


@pytest.mark.parametrize(
    "text, word",
    [
        ("{", "bad.json: needs a record file, got no readable JSON"),
        ('{"cells": []}', "bad.json: needs a record file, got JSON without a list 'records'"),
        ('{"schema": 2, "records": []}', "bad.json: needs a record file of schema 1, got schema 2"),
        (
            '{"schema": 1, "study": "weather", "records": []}',
            "bad.json: needs records of accuracy or regression",
        ),
        ('{"schema": 1, "records": [{"spec": {}}]}', "bad.json: record 0 has no"),
        ('{"schema": 1, "records": [3]}', "bad.json: record 0 is malformed"),
    ],
)
def test_a_bad_file_is_named(folder, text, word):
    (folder / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=word):
        read_records(folder)


def test_contradictions_and_impossible_numbers_are_named(folder):
    write(folder / "x.json", [("rr", 1.0, 0, 49.5, {})])
    with pytest.raises(ValueError, match="main.json and x.json in .* disagree about the spec"):
        read_records(folder)
    for bad in ({"per_class": []}, {"per_class": [101.0]}, {"per_class": ["x"]}):
        write(folder / "x.json", [("rr", 1.0, 9, 50.0, {})], **bad)
        with pytest.raises(ValueError, match="x.json: record 0 is malformed"):
            read_records(folder)
    write(folder / "x.json", [("rr", 1.0, 9, 149.5, {})], [50.0])
    with pytest.raises(ValueError, match=r"an accuracy outside \[0, 100\]"):
        read_records(folder)


def test_studies_are_not_mixed(folder):
    run = RegressionRecord(RegressionSpec("diabetes", "rr", 1, labels="debiased"), 1.0, None, 2.0, {"n": 3})
    save([run, run], folder / "alone" / "r.json")
    frame = read_records(folder / "alone")
    assert len(frame) == 1 and frame.name[0] == "RR, debiased" and math.isnan(frame.deviance[0])
    with pytest.raises(ValueError, match="folder: needs records of one study, got accuracy and regression"):
        read_records(folder)
    content = (folder / "alone" / "r.json").read_text()
    for wrong in ('"mse": -1.0', '"mse": 1e999', '"mse": "x"'):
        (folder / "alone" / "r.json").write_text(content.replace('"mse": 1.0', wrong))
        with pytest.raises(ValueError, match="r.json: record 0 is malformed"):
            read_records(folder / "alone")


def test_nothing_to_read(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        assert len(read_records(place, empty=True)) == 0
        with pytest.raises(FileNotFoundError, match="folder: needs record files, got none below"):
            read_records(place)
    assert len(beside_paper(read_records(tmp_path, empty=True), "average")) == 54  # the printed side alone


def test_other_mechanisms_belong_to_no_part(folder):
    frame = read_records(folder)
    more = pd.concat([frame, frame[:3].assign(mechanism="optimal_rr", floor=0.5)], ignore_index=True)
    for part in ("main", "l", "sigma"):
        assert len(select(more, part)) == len(select(frame, part))


def test_a_hole_in_a_ladder_is_found(folder):
    frame = read_records(folder)
    block = frame[frame.mechanism == "block_rr"]  # the ladder at three budgets, without l = 3 at one
    others = [block.assign(epsilon=0.6, sigma=1.4), block[block.l != 3].assign(epsilon=0.8)]
    missing = incomplete(pd.concat([block, *others], ignore_index=True)).query("part == 'l'")
    assert (list(missing.epsilon), list(missing.l), list(missing.n)) == ([0.8], [3.0], [0])


def test_differences_beside_the_paper(folder):
    table = beside_paper(read_records(folder))
    cell = table.query("epsilon == 1 and mechanism == 'block_rr'").iloc[0]
    sample_a, sample_b = (
        1.0,
        2.69**2 * 10 / 9,
    )  # sample variances by hand: ours is that of (-1, 0, 1)
    error = math.sqrt(sample_a / 3 + sample_b / 10)
    freedom = error**4 / ((sample_a / 3) ** 2 / 2 + (sample_b / 10) ** 2 / 9)
    from scipy.stats import t

    assert cell.high - cell.difference == pytest.approx(t.ppf(0.975, freedom) * error)
    with pytest.raises(ValueError, match='kind: needs "overall" or "average", got "x"'.replace('"x"', "'x'")):
        beside_paper(read_records(folder), "x")


def test_pairs_of_nothing(folder):
    frame = read_records(folder)
    rr = frame[frame.mechanism == "rr"]
    assert len(paired(rr.assign(epsilon=2.0), rr)) == 0
    empty = paired_each({("a",): (rr[:0], rr)}, ["rule"])
    assert list(empty.columns) == [
        "dataset",
        "epsilon",
        "n",
        "difference",
        "low",
        "high",
        "rule",
    ] and not len(empty)
    assert interval_table(empty, index=["dataset"], columns="rule").empty
    assert count_sides(empty, ["rule"]).empty
    assert seeds_text(summary(rr)) == "n = 3 seeds" and seeds_text(summary(rr[:0])) == "no records yet"


def test_mean_table_keeps_the_order_of_the_records():
    frame = pd.DataFrame({"name": ["b", "b", "a"], "column": ["y", "x", "y"], "mse": [1234.5, 2.0, 3.0]})
    table = mean_table(frame, "mse", index=["name"], columns="column", digits=1, sort=False)
    assert table.index.tolist() == ["b", "a"] and table.columns.tolist() == ["y", "x"]
    assert table.values.tolist() == [["1,234.5 ± 0.0", "2.0 ± 0.0"], ["3.0 ± 0.0", ""]]


def test_measured_cells_look_like_printed_ones(folder):
    ours, theirs = measured_cells(read_records(folder), "cifar10_1"), printed_cells("cifar10_1")
    assert {place.what for place in ours.cells} == {place.what for place in theirs.cells}
    assert all(np.isfinite(cell.mean) and cell.n == 3 for cell in ours.cells.values())
    assert set(paper.MECHANISMS) == {place.mechanism for place in ours.cells}

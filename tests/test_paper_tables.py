"""The comparisons of the paper's tables, tried on tables in which one number was changed on purpose."""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest

from blockrr.study import paper
from blockrr.study.paper_tables import (
    compare_tables,
    findings,
    from_classes,
    hundredths,
    repairs,
    tally,
)


@pytest.fixture
def text(monkeypatch):
    "A copy of the printed words that a test may change."
    words = copy.deepcopy(paper._TEXT)
    monkeypatch.setattr(paper, "_TEXT", words)
    return words


def found(before=()):
    "The findings as (kind, dataset, epsilon, method), those of `before` left out."
    rows = findings(compare_tables())
    return {(r.kind, r.dataset, r.epsilon, r.method) for r in rows.itertuples()} - set(before)


def test_unchanged_copy_gives_the_same_findings(text):
    assert len(found()) == 26


@pytest.mark.parametrize(
    "label, row, column, value, expected",
    [
        ("tab:cifar10_1", 0, 1, "39.65", {("overall from classes", "cifar10_1", 0.6, "rr")}),
        ("tab:cifar10_1", 0, 1, "39.74", set()),  # within rounding
        (
            "tab:cifar10_1(avg.acc)",
            5,
            3,
            "89.50",
            {("average from classes", "cifar10_1", 4.0, "block_rr")},
        ),
        (
            "tab:cifar10_2(avg.acc)",
            3,
            2,
            "50.08",
            {
                ("average from classes", "cifar10_2", 2.0, "rr_with_prior"),
                ("copied average", "cifar10_2", 2.0, "rr_with_prior"),
            },
        ),
        ("tab:delta-ablation", 0, 5, "43.47", {("ablation, mean", "cifar10_2", 0.6, "block_rr")}),
        (
            "tab:delta-ablation",
            0,
            6,
            "1.97",
            {("ablation, deviation", "cifar10_2", 0.6, "block_rr")},
        ),
        ("tab:delta-ablation", 2, 13, "58.27", {("chosen l", "cifar10_2", 1.0, "block_rr")}),
        (
            "tab:cifar10_1(cls)",
            0,
            2,
            "168.26",
            {
                ("overall from classes", "cifar10_1", 0.6, "rr"),
                ("average from classes", "cifar10_1", 0.6, "rr"),
                ("impossible entry", "cifar10_1", 0.6, "rr"),
            },
        ),
        ("tab:dp_params1", 1, 7, "2.00", {("empty minority", "cifar10_1", 6.0, "block_rr")}),
    ],
)
def test_a_changed_number_is_found(text, label, row, column, value, expected):
    before = found()
    text[label][row][column] = value
    assert found(before) == expected


def test_a_copied_row_is_found(text):
    before = found()
    text["tab:cifar10_2(cls)"][3][2:] = text["tab:cifar10_1(cls)"][3][2:]  # RR at 0.8
    assert ("copy of the other data set", "cifar10_2", 0.8, "rr") in found(before)


def test_two_marks_swapped_are_found(text):
    before = found()
    row = text["tab:cifar10_1(avg.acc)"][0]
    row[1], row[3] = row[3], row[1]
    assert {
        ("best mark", "cifar10_1", 0.6, "rr"),
        ("second mark", "cifar10_1", 0.6, "block_rr"),
    } <= found(before)


def test_a_repaired_number_is_no_finding_any_more(text):
    text["tab:cifar10_1(avg.acc)"][3][2] = "53.08"
    assert ("average from classes", "cifar10_1", 2.0, "rr_with_prior") not in found()
    assert len(found()) == 25


def test_means_by_hand():
    row = [6826, 7861, 2154, 2936, 2994, 4231, 156, 1305, 85, 595]
    n = (500, 490, 470, 460, 450, 480, 100, 150, 100, 150)
    assert from_classes(row, "cifar10_1") == Fraction(sum(a * k for a, k in zip(row, n)), 3350)
    assert from_classes(row) == Fraction(sum(row), 10)


@pytest.mark.parametrize("row", [None, "12", 3, [1.5], [None], [True], {}, np.eye(2)])
def test_rows_that_are_none(row):
    with pytest.raises(TypeError, match="row: needs a list"):
        from_classes(row)


def test_rows_of_another_length():
    with pytest.raises(ValueError, match="row: needs one or more accuracies, got 0"):
        from_classes([])
    with pytest.raises(ValueError, match="row: needs 10 accuracies, got 2"):
        from_classes([1, 2], "cifar10_2")
    for bad in ("cifar100", "", 1, [], True, math.nan):
        with pytest.raises(ValueError, match="dataset: needs one of cifar10_1, cifar10_2"):
            from_classes([1] * 10, bad)


@pytest.mark.parametrize("f", [findings, tally])
def test_frames_from_elsewhere(f):
    checks = compare_tables()
    for bad in (None, "x", [], {}, 1.5, np.eye(2)):
        with pytest.raises(TypeError, match="frame: needs a DataFrame"):
            f(bad)
    for column in ("kind", "difference"):
        with pytest.raises(ValueError, match=f"frame: needs the columns of .*, lacks {column}"):
            f(checks.drop(columns=column))


def test_equal_entries_by_chance():
    "Of the 351 pairs of rows of a table about two share two entries by accident, and one in twenty tables has three."
    chance = 0.01 / (0.25 * math.sqrt(4 * math.pi))
    shares = [math.comb(10, k) * chance**k * (1 - chance) ** (10 - k) for k in range(11)]
    expected = [math.comb(27, 2) * sum(shares[n:]) for n in (2, 3)]
    assert expected == pytest.approx([1.86, 0.055], abs=0.05)
    rows = hundredths("per_class")
    gaps = sorted(abs(a - b) for a, b in zip(rows["cifar10_2", 4.0, "rr"], rows["cifar10_2", 8.0, "rr"]))
    assert gaps == [0, 0, 0, 2, 5, 5, 5, 32, 36, 150]


def test_repairs_without_an_answer():
    for epsilon, method in ((1.0, "rr"), (1.0, "rr_with_prior"), (4.0, "rr")):
        assert not len(repairs("overall", "cifar10_2", epsilon, method=method))

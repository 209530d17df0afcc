"""The audit of the paper's tables, tried on tables in which one number was changed on purpose."""

import copy

import pytest

from blockrr.study import audit, paper


@pytest.fixture
def text(monkeypatch):
    "A copy of the printed words that a test may change."
    words = copy.deepcopy(paper._TEXT)
    monkeypatch.setattr(paper, "_TEXT", words)
    return words


def found(before=()):
    "The findings as (kind, dataset, epsilon, method), those of `before` left out."
    rows = audit.findings(audit.audit())
    return {(r.kind, r.dataset, r.epsilon, r.method) for r in rows.itertuples()} - set(before)


def test_unchanged_copy_gives_the_same_findings(text):
    assert len(found()) == 26


@pytest.mark.parametrize(
    "label, row, column, value, expected",
    [
        ("tab:cifar10_1", 0, 1, "39.65", {("overall from classes", "cifar10_1", 0.6, "rr")}),
        ("tab:cifar10_1", 0, 1, "39.74", set()),  # within rounding
        ("tab:cifar10_1(avg.acc)", 5, 3, "89.50", {("average from classes", "cifar10_1", 4.0, "block_rr")}),
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
        ("tab:delta-ablation", 0, 6, "1.97", {("ablation, deviation", "cifar10_2", 0.6, "block_rr")}),
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
    assert {("best mark", "cifar10_1", 0.6, "rr"), ("second mark", "cifar10_1", 0.6, "block_rr")} <= found(before)


def test_a_repaired_number_is_no_finding_any_more(text):
    text["tab:cifar10_1(avg.acc)"][3][2] = "53.08"
    assert ("average from classes", "cifar10_1", 2.0, "rr_with_prior") not in found()
    assert len(found()) == 25

"""Intervals and questions at their edges; what the criteria of the claims say on cells with known answers."""

import math

import numpy as np
import pytest
from scipy import stats

from blockrr.study.statistics import (
    Cell,
    CellTable,
    Interval,
    Place,
    ask_alike,
    ask_best_within,
    ask_collapse,
    ask_contrast,
    ask_low_start,
    ask_stable,
    ask_steadier,
    contrast,
    decide,
    mean_interval,
    printed_cells,
)

EXACT = Cell(50, 0.1, 10)


def ladder(means, std=0.2):
    "An ablation over sigma at epsilon 1."
    return CellTable({Place("sigma", "accuracy", "block_rr", 1.0, x): Cell(y, std, 10) for x, y in means.items()})


def test_contrast_is_welch_for_a_difference():
    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 10), (10, 7)):
        a, b = rng.normal(50, 4, n), rng.normal(49, 1, m)
        cells = [Cell(v.mean(), v.std(), len(v)) for v in (a, b)]
        for level in (0.5, 0.95, 0.999):
            oracle = stats.ttest_ind(a, b, equal_var=False).confidence_interval(level)
            assert contrast(cells, [1, -1], level)[1:] == pytest.approx((oracle.low, oracle.high))


def test_contrast_at_its_edges():
    assert contrast([Cell(3, 0, 10), Cell(1, 0, 10)], [1, -1]) == (2, 2, 2)
    assert contrast([Cell(3, 1, 10), Cell(1, 1, 1)], [1, 0])[1] > 2  # a cell without weight may have one run
    assert contrast([EXACT], [2]).value == 100
    for level in (0, 1, 95, -0.5, math.nan):
        with pytest.raises(ValueError, match="level: needs 0 < level < 1"):
            contrast([EXACT], [1], level)


def test_mean_interval_is_a_t_test():
    rng = np.random.default_rng(1)
    for n in (2, 3, 50):
        values = rng.normal(1, 3, n)
        oracle = stats.ttest_1samp(values, 0).confidence_interval(0.9)
        found = mean_interval(values, 0.9)
        assert found == pytest.approx((values.mean(), oracle.low, oracle.high))


def test_texts():
    assert Cell(math.nan, math.nan, 0).text() == "–"
    assert Cell(1.005, math.nan, 3).text(("**", "**")) == f"**{1.005:.2f}**"
    assert Interval(math.nan, 0, 0).text() == "–"
    assert Interval(1, -math.inf, math.inf).text("<br>") == "+1.00<br>(one run, no interval)"
    assert Interval(-1, -1, -1).text() == "−1.00 (no spread)"


@pytest.mark.parametrize(
    "states, verdict",
    [
        ([True, True], "yes"),
        ([True, None], "undecided"),
        ([None, False], "no"),
        ([True, False], "no"),
        ([None], "undecided"),
    ],
)
def test_decide(states, verdict):
    assert decide(states) == verdict


def test_a_fixed_point_at_the_bound_is_open():
    assert ask_contrast([Cell(1, math.nan, 10)], [1], 1.0, comparisons=1)[1] is None
    assert ask_contrast([Cell(2, math.nan, 10)], [1], 1.0, comparisons=1)[1] is True
    assert ask_contrast([Cell(0, math.nan, 10)], [1], 1.0, comparisons=1)[1] is False


def test_alike_needs_both_sides():
    assert ask_alike([[EXACT, Cell(50.5, 0.1, 10)]], [1]) == [True]
    assert ask_alike([[EXACT, Cell(53, 0.1, 10)]], [1]) == [False]
    assert ask_alike([[EXACT, Cell(53, 0.1, 10)]], [3]) == [None]
    assert len(ask_alike([[EXACT] * 3, [EXACT] * 2], [1, 1])) == 4


def test_the_best_step():
    table = ladder({0.2: 48, 0.8: 50, 1.2: 52, 1.6: 50})
    assert ask_best_within(table, "sigma", [1.0], low=1.0, high=1.4).states == [True]
    assert ask_best_within(table, "sigma", [1.0], high=0.9).states == [False]
    assert ask_best_within(table, "sigma", [1.0], inner=True).states == [True]
    with pytest.raises(KeyError):
        ask_best_within(table, "sigma", [1.0], low=3.0)  # no step inside
    with pytest.raises(KeyError):
        ask_best_within(table, "l", [1.0], inner=True)


def test_stable_and_low_start():
    table = ladder({0.2: 48, 0.8: 50, 1.2: 52, 1.6: 50})
    assert decide(ask_stable(table, "sigma", [1.0], margin=2.0).states) == "no"
    assert decide(ask_stable(table, "sigma", [1.0], margin=5.0).states) == "yes"
    assert decide(ask_stable(ladder({0.2: 50, 1.0: 50.1}), "sigma", [1.0], margin=None).states) == "yes"
    assert ask_low_start(table, [1.0]).states == [True]
    with pytest.raises(KeyError):
        ask_low_start(ladder({0.2: 48, 0.4: 50}), [1.0])


def test_steadier():
    cells = {
        Place("main", "accuracy", m, e): Cell(50, s, 10) for e in (1.0, 2.0) for m, s in (("block_rr", 1), ("rr", 4))
    }
    assert ask_steadier(CellTable(cells), (1.0, 2.0), ("rr",)).states == [True]
    swapped = {p._replace(mechanism="rr" if p.mechanism == "block_rr" else "block_rr"): c for p, c in cells.items()}
    assert ask_steadier(CellTable(swapped), (1.0, 2.0), ("rr",)).states == [False]


def test_collapse_names_what_is_open():
    cells = {Place("main", "accuracy", m, 1.0): EXACT for m in ("rr_with_prior", "block_rr")}
    cells |= {Place("main", f"class_{i}", "rr_with_prior", 1.0): Cell(0, 0, 10) for i in range(2)}
    cells |= {Place("main", f"class_{i}", "block_rr", 1.0): Cell(1, 5, 10) for i in range(2)}
    answer = ask_collapse(CellTable(cells), (1.0,))
    assert answer.states == [True, None]
    assert answer.words == "ε = 1: 2 classes of RRWithPrior below 1%, 0 of BlockRR (2 undecided)"
    with pytest.raises(KeyError):
        ask_collapse(CellTable(cells), (2.0,))


def test_printed_cells_leave_misprints_out():
    table = printed_cells("cifar10_2")
    assert len(table.classes("block_rr", 3.0)) == 9
    with pytest.raises(KeyError):
        table.at("class_1", "block_rr", 3.0)

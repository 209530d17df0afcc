"""Additive noise in cells: sizes that are refused, tails at the ends, tables raised to privacy."""

import math

import numpy as np
import pytest

from blockrr.privacy import cells as module
from blockrr.privacy.cells import cell_chances, cell_edges, noise_in_cells, positive_epsilon, raised_to_privacy
from blockrr.privacy.comparators import laplace, staircase


@pytest.mark.parametrize("epsilon", [0.25, 0.5, 0.6, 1, 2, 3, 4, 6, 8])
def test_ordinary_tables_are_left_as_they_were(epsilon, monkeypatch):
    "Raising entries to privacy touches no table of the regression study, so its records stay what they are."
    watched = []

    def watch(T, e):
        made = raised_to_privacy(T, e)
        assert (made == T).all()
        watched.append(e)
        return made

    monkeypatch.setattr(module, "raised_to_privacy", watch)
    for y in (np.arange(25), np.arange(0, 401, 20), np.arange(51) / 10, np.arange(0, 401, 10), [0, 1, 2, 4, 8]):
        laplace(y, epsilon)
        staircase(y, epsilon, "absolute")
        staircase(y, epsilon, "squared")
    assert len(watched) == 15


def test_raised():
    T = np.array([[0.5, 0.5], [0.9, 0.1]])
    assert raised_to_privacy(T, 1.0)[1, 1] == 0.5 * math.exp(-1)
    assert (raised_to_privacy(T, 2.0) == T).all()


def test_outer_cells_take_all_that_is_beyond():
    chances = cell_chances(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.5, 1.5, 9.0]), lambda x: np.exp(-x) / 2)
    assert chances.sum(1) == pytest.approx([1, 1, 1], abs=1e-15)
    assert chances[2] == pytest.approx([math.exp(-8) / 2, (math.exp(-7) - math.exp(-8)) / 2, 1 - math.exp(-7) / 2])


def test_far_cells_keep_their_precision():
    T, points = noise_in_cells(np.array([0.0, 1.0]), lambda x: np.exp(-x) / 2, 300.0, cells=600, epsilon=1.0)
    ratio = T[0, points > 250] / T[1, points > 250]
    assert len(ratio) > 40 and np.allclose(ratio, math.exp(-1), rtol=1e-9)


@pytest.mark.parametrize("cells", [0, 1, -3, 2.5, "8", None, True, 10**7])
def test_bad_cells(cells):
    with pytest.raises((TypeError, ValueError), match="^cells: "):
        cell_edges(np.array([0.0, 1.0]), 1.0, cells)


@pytest.mark.parametrize("epsilon", [0, 1e-320, 1e-17, -1, math.nan])
def test_epsilons_that_noise_cannot_have(epsilon):
    with pytest.raises(ValueError, match="^epsilon: "):
        positive_epsilon(epsilon)

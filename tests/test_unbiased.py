"""The best unbiased mechanism: against randomized response, at limits of epsilon, on grids that are too narrow."""

import math

import numpy as np
import pytest

from blockrr.privacy import comparators
from blockrr.privacy.comparators import laplace, randomized_response, staircase
from blockrr.privacy.unbiased import optimal_unbiased, unbiased_reach
from blockrr.privacy.values import risk

VALUES = [0, 1, 2, 4, 8]
PRIOR = [0.4, 0.3, 0.15, 0.1, 0.05]


@pytest.mark.parametrize("epsilon", [0.3, 0.5, 1, 2, 4, 8, 15])
def test_best_of_the_unbiased(epsilon):
    m = optimal_unbiased(VALUES, PRIOR, epsilon)
    assert m.certify().holds and m.certify().epsilon > epsilon * (1 - 1e-4)
    assert np.abs(m.mean() - VALUES).max() < 1e-6 * np.ptp(m.points)
    noises = (staircase(VALUES, epsilon), laplace(VALUES, epsilon))
    assert risk(m, PRIOR) <= min(risk(noise, PRIOR) for noise in noises) + 1e-6


@pytest.mark.parametrize("epsilon", [0.3, 0.5, 1, 2, 4, 8, 15])
def test_two_values_have_one_unbiased_mechanism(epsilon):
    "With two outputs it is randomized response at the ends of the reach."
    r = (
        unbiased_reach([0, 1], epsilon) * 1.0001
    )  # a little more, as the program is solved for a little less than epsilon
    two = optimal_unbiased([0, 1], [0.5, 0.5], epsilon, grid=[-r, 1 + r])
    assert np.abs(two.transition - randomized_response([0, 1], epsilon).transition).max() < 1e-4
    assert risk(two, [1, 1]) == pytest.approx(r * (1 + r), rel=1e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.01])
def test_small_epsilons(epsilon):
    assert np.abs(optimal_unbiased(VALUES, PRIOR, epsilon).mean() - VALUES).max() < 1e-4


@pytest.mark.parametrize("epsilon", [20, 50, 700, 1e4, math.inf])
def test_large_epsilons(epsilon):
    m = optimal_unbiased(VALUES, PRIOR, epsilon)
    assert m.certify().holds and np.abs(m.mean() - VALUES).max() < 1e-12


def test_where_randomized_response_takes_over():
    before, after = (risk(optimal_unbiased(VALUES, PRIOR, e), PRIOR) for e in (16, 16.01))
    assert 0.3 < before / after < 1.1
    for p in ([0, 0, 1, 0, 0], [0.5, 0, 0, 0, 0.5]):
        assert optimal_unbiased(VALUES, p, 1).certify().holds


@pytest.mark.parametrize(
    "epsilon, grid, word",
    [
        (0, None, "epsilon"),
        (1e-12, None, "solved from 1e-6"),
        (1, VALUES, "must reach"),
        (1, np.linspace(0, 13, 20), "4.65582 beyond both ends"),
        (20, np.linspace(-9, 19, 40), "up to 16"),
    ],
)
def test_refused(epsilon, grid, word):
    with pytest.raises(ValueError, match=word):
        optimal_unbiased(VALUES, PRIOR, epsilon, grid=grid)


def test_the_old_place_warns():
    with pytest.warns(DeprecationWarning, match="use blockrr.privacy.unbiased.optimal_unbiased"):
        assert comparators.optimal_unbiased is optimal_unbiased

"""The guide over random public values, priors and epsilons: finite, certified, and RRonBins first by its own loss."""

import warnings

import numpy as np
import pytest

from blockrr.privacy.comparators import laplace, optimal_unbiased, staircase
from blockrr.privacy.regression import guide, rr_on_bins

RNG = np.random.default_rng(0)
CASES = [
    (np.arange(64), np.ones(64), 2.0),
    (np.array([0, 1e6]), [1, 1], 0.5),
    (np.array([-5, 0, 1]), [0, 0, 1], 3.0),
    (np.array([0, 1e-9]), [1, 3], 1.0),
]
for k, e in zip((2, 3, 5, 9, 20, 3, 5, 9), (0.01, 0.1, 1, 3, 7, 12, 18, 50)):
    CASES.append(
        (
            np.sort(RNG.normal(0, 10 ** RNG.uniform(-3, 5), k)) + RNG.choice([0, 100.0]),
            RNG.dirichlet(np.full(k, RNG.choice([0.05, 1.0]))),
            e,
        )
    )


@pytest.mark.parametrize("values, prior, epsilon", CASES)
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_guide(values, prior, epsilon, loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        g = guide(values, prior, epsilon, loss)
    assert all(np.isfinite([c.loss, c.bias, c.variance]).all() and c.loss >= 0 for c in g.choices)
    scale = (values[-1] - values[0]) ** (2 if loss == "squared" else 1)
    assert g["RRonBins"].loss <= min(c.loss for c in g.choices if c.privacy == "epsilon") * (1 + 1e-9) + 1e-12 * scale


@pytest.mark.parametrize("values, prior, epsilon", CASES)
def test_certified(values, prior, epsilon):
    for m in (
        laplace(values, epsilon),
        staircase(values, epsilon),
        optimal_unbiased(values, prior, epsilon),
        rr_on_bins(values, prior, epsilon),
    ):
        assert m.certify().holds and abs(m.transition.sum(1) - 1).max() < 1e-9
    unbiased = optimal_unbiased(values, prior, epsilon)
    assert np.abs(unbiased.mean() - values).max() <= 1e-6 * np.ptp(unbiased.points)

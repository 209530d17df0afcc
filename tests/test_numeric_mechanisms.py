"""Mechanisms for numbers: bad grids, budgets, priors and labels are refused; limits of epsilon; mass at a point."""

import math

import numpy as np
import pytest

from blockrr.privacy import regression as numeric
from blockrr.privacy.bins import risk

VALUES = [0, 1, 2, 4, 8]
PRIOR = [0.4, 0.3, 0.15, 0.1, 0.05]
MAKERS = {
    "rr_on_bins": lambda v, p, e: numeric.rr_on_bins(v, p, e),
    "unbiased": lambda v, p, e: numeric.optimal_unbiased(v, p, e),
    "laplace": lambda v, p, e: numeric.laplace(v, e),
    "discrete_laplace": lambda v, p, e: numeric.discrete_laplace(v, e),
    "gaussian": lambda v, p, e: numeric.gaussian(v, e, 1e-5),
    "staircase": lambda v, p, e: numeric.staircase(v, e),
    "exponential": lambda v, p, e: numeric.exponential(v, e),
    "square_wave": lambda v, p, e: numeric.square_wave(v, e),
    "rp": lambda v, p, e: numeric.rp_with_prior(v, p[1:], e),
}
quiet = pytest.mark.filterwarnings("ignore:.*carries no information")


@quiet
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "values, word",
    [
        ([0, 2, 1, 4, 8], "strictly"),
        ([0, 1, 1, 4, 8], "strictly"),
        ([0, 1, math.nan, 4, 8], "finite"),
        ([0, 1, 2, 4, math.inf], "finite"),
        ([3], "at least 2"),
        ([], "at least 2"),
    ],
)
def test_bad_grid(name, values, word):
    with pytest.raises(ValueError, match=f"values: .*{word}"):
        MAKERS[name](values, PRIOR, 1.0)


@quiet
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("epsilon", [-1, math.nan, -math.inf, "1", None, True])
def test_bad_epsilon(name, epsilon):
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        MAKERS[name](VALUES, PRIOR, epsilon)


@quiet
@pytest.mark.parametrize("name", MAKERS)
def test_limits_of_epsilon(name):
    if name in (
        "laplace",
        "discrete_laplace",
        "staircase",
        "unbiased",
    ):  # no scale, or no unbiased mechanism, at 0
        with pytest.raises(ValueError, match="epsilon"):
            MAKERS[name](VALUES, PRIOR, 0)
    else:
        m = MAKERS[name](VALUES, PRIOR, 0)
        c = m.certify()
        assert c.holds and (name == "gaussian" or c.epsilon == 0)
        if name in ("rr_on_bins", "exponential"):
            assert np.ptp(m.transition, axis=0).max() < 1e-15
    for e in (700.0, 1e6, math.inf):
        m = MAKERS[name](VALUES, PRIOR, e)
        assert m.certify().holds
        width = 4 if name == "gaussian" else 8 / e  # integers do not resolve a Gaussian beyond epsilon 25
        noise = 5 * width * math.isfinite(e)
        assert abs(np.asarray(m.privatize(VALUES, seed=1)) - VALUES).max() < 0.02 + noise


@quiet
@pytest.mark.parametrize("prior", [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0.5, 0, 0, 0, 0.5], [0, 0.2, 0.3, 0.5, 0]])
@pytest.mark.parametrize("name", ["rr_on_bins", "unbiased", "rp"])
@pytest.mark.parametrize("epsilon", [0.01, 1, 8, 50])
def test_zero_mass_and_point_mass(name, prior, epsilon):
    if name == "rp":
        prior = [0, *prior[:4]] if any(prior[:4]) else PRIOR
    m = MAKERS[name](VALUES, prior, epsilon)
    assert m.certify().holds
    out = m.privatize([*VALUES, -7, 99], seed=1)
    assert np.isfinite(out).all()
    if name == "rr_on_bins" and max(prior) == 1:
        assert risk(m, prior) < 1e-20  # the point itself, at any epsilon
    if name == "unbiased":
        assert abs(m.mean() - VALUES).max() < 1e-5 * np.ptp(m.points)


@pytest.mark.parametrize("prior", [[0] * 5, [-1, 1, 1, 1, 1], [math.nan, 1, 1, 1, 1], [1, 1], "abcde"])
def test_bad_prior(prior):
    for name in ("rr_on_bins", "unbiased"):
        with pytest.raises((ValueError, TypeError), match="prior"):
            MAKERS[name](VALUES, prior, 1.0)


def test_poisson_and_narrow_grids():
    with pytest.raises(ValueError, match="Poisson loss needs labels >= 0, got -1"):
        numeric.rr_on_bins([-1, 0, 2], [1, 1, 1], 1, "poisson")
    with pytest.raises(ValueError, match="Poisson loss"):
        numeric.guide([-1, 0, 2], [1, 1, 1], 1, "poisson")
    for grid in (VALUES, np.linspace(-4, 12, 30)):
        with pytest.raises(ValueError, match=r"grid: must reach range / \(e\*\*epsilon - 1\) = 4.65"):
            numeric.optimal_unbiased(VALUES, PRIOR, 1, grid)
    assert numeric.optimal_unbiased(VALUES, PRIOR, 1, np.linspace(-9, 17, 60)).certify().holds
    with pytest.raises(ValueError, match="strictly"):
        numeric.optimal_unbiased(VALUES, PRIOR, 1, [20, 0, -20])


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("column", [[math.nan], [None], ["3"], [math.inf], [1j]])
def test_bad_labels_release_nothing(name, column):
    with pytest.raises((ValueError, TypeError), match="row 2") as error:
        MAKERS[name](VALUES, PRIOR, 2.0).privatize([1, 2, *column])
    assert "nothing was released" in str(error.value)

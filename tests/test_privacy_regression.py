"""The table of numeric mechanisms and the guide: what is refused, limits of epsilon, RRonBins first by its own loss."""

import math
import warnings

import numpy as np
import pytest

from blockrr.privacy import regression as numeric
from blockrr.privacy.comparators import laplace, staircase
from blockrr.privacy.regression import NUMERIC_MECHANISMS, Listing, NumericMechanism, guide, rr_on_bins
from blockrr.privacy.unbiased import optimal_unbiased
from blockrr.privacy.values import LOSSES, risk

VALUES = [0, 1, 2, 4, 8]
PRIOR = [0.4, 0.3, 0.15, 0.1, 0.05]
WITH_PRIOR = [row.name for row in NUMERIC_MECHANISMS.values() if row.needs_prior]
quiet = pytest.mark.filterwarnings("ignore:.*carries no information")


@quiet
@pytest.mark.parametrize("name", NUMERIC_MECHANISMS)
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
        NUMERIC_MECHANISMS[name].make(values, 1.0, PRIOR)


@quiet
@pytest.mark.parametrize("name", NUMERIC_MECHANISMS)
@pytest.mark.parametrize("epsilon", [-1, math.nan, -math.inf, "1", None, True])
def test_bad_epsilon(name, epsilon):
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        NUMERIC_MECHANISMS[name].make(VALUES, epsilon, PRIOR)


@quiet
@pytest.mark.parametrize("name", NUMERIC_MECHANISMS)
def test_limits_of_epsilon(name):
    if NUMERIC_MECHANISMS[name].unbiased and name != "gaussian":  # no scale, or no unbiased mechanism, at 0
        with pytest.raises(ValueError, match="epsilon"):
            NUMERIC_MECHANISMS[name].make(VALUES, 0, PRIOR)
    else:
        m = NUMERIC_MECHANISMS[name].make(VALUES, 0, PRIOR)
        c = m.certify()
        assert c.holds and (name == "gaussian" or c.epsilon == 0)
        if name in ("rr", "rr_on_bins", "exponential"):
            assert np.ptp(m.transition, axis=0).max() < 1e-15
    for e in (700.0, 1e6, math.inf):
        m = NUMERIC_MECHANISMS[name].make(VALUES, e, PRIOR)
        assert m.certify().holds
        width = 4 if name == "gaussian" else 8 / e  # integers do not resolve a Gaussian beyond epsilon 25
        noise = 5 * width * math.isfinite(e)
        assert abs(np.asarray(m.privatize(VALUES, seed=1)) - VALUES).max() < 0.02 + noise


@quiet
@pytest.mark.parametrize("prior", [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0.5, 0, 0, 0, 0.5], [0, 0.2, 0.3, 0.5, 0]])
@pytest.mark.parametrize("name", WITH_PRIOR)
@pytest.mark.parametrize("epsilon", [0.01, 1, 8, 50])
def test_zero_mass_and_point_mass(name, prior, epsilon):
    m = NUMERIC_MECHANISMS[name].make(VALUES, epsilon, prior)
    assert m.certify().holds
    out = m.privatize([*VALUES, -7, 99], seed=1)
    assert np.isfinite(out).all()
    if name == "rr_on_bins" and max(prior) == 1:
        assert risk(m, prior) < 1e-20  # the point itself, at any epsilon
    if name == "unbiased":
        assert abs(m.mean() - VALUES).max() < 1e-5 * np.ptp(m.points)


@pytest.mark.parametrize("prior", [[0] * 5, [-1, 1, 1, 1, 1], [math.nan, 1, 1, 1, 1], [1, 1], "abcde"])
def test_bad_prior(prior):
    for name in WITH_PRIOR:
        with pytest.raises((ValueError, TypeError), match="prior"):
            NUMERIC_MECHANISMS[name].make(VALUES, 1.0, prior)


def test_poisson_and_narrow_grids():
    with pytest.raises(ValueError, match="Poisson loss needs labels >= 0, got -1"):
        rr_on_bins([-1, 0, 2], [1, 1, 1], 1, "poisson")
    with pytest.raises(ValueError, match="Poisson loss"):
        guide([-1, 0, 2], [1, 1, 1], 1, "poisson")
    for grid in (VALUES, np.linspace(-4, 12, 30)):
        with pytest.raises(ValueError, match=r"grid: must reach range / \(e\*\*epsilon - 1\) = 4.65"):
            optimal_unbiased(VALUES, PRIOR, 1, grid=grid)
    assert optimal_unbiased(VALUES, PRIOR, 1, grid=np.linspace(-9, 17, 60)).certify().holds
    with pytest.raises(ValueError, match="strictly"):
        optimal_unbiased(VALUES, PRIOR, 1, grid=[20, 0, -20])


@pytest.mark.parametrize("name", NUMERIC_MECHANISMS)
@pytest.mark.parametrize("column", [[math.nan], [None], ["3"], [math.inf], [1j]])
def test_bad_labels_release_nothing(name, column):
    with pytest.raises((ValueError, TypeError), match="row 2") as error:
        NUMERIC_MECHANISMS[name].make(VALUES, 2.0, PRIOR).privatize([1, 2, *column])
    assert "nothing was released" in str(error.value)


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


def test_a_row_is_all_that_a_mechanism_needs(monkeypatch):
    "The guide and its picture find a mechanism that was added to the table."
    toy = NumericMechanism("toy", "Toy", numeric.exponential, colour="red", listing=Listing(clips=True))
    monkeypatch.setitem(NUMERIC_MECHANISMS, "toy", toy)
    g = guide(VALUES, PRIOR, 1)
    assert g["Toy"].loss == g["exponential"].loss == g["Toy, clipped"].loss
    assert (g["Toy, clipped"].mechanism, g["Toy, clipped"].labels) == ("toy", "clipped")
    left, _ = numeric.plot_guide(VALUES, PRIOR, 1.0, epsilons=[1, 2], names=["Toy", "RR"])
    assert [(line.get_label(), line.get_color()) for line in left.lines] == [("Toy", "red"), ("RR", "C0")]


def test_rows():
    names = list(NUMERIC_MECHANISMS)
    assert len(names) == 12 and len({row.title for row in NUMERIC_MECHANISMS.values()}) == 12
    assert len({(row.colour, row.marker) for row in NUMERIC_MECHANISMS.values()}) == 12
    for row in NUMERIC_MECHANISMS.values():
        m = row.make(VALUES, 2.0, PRIOR)
        middle = np.array([1.0, 2, 4])
        right = np.abs(m.mean(middle) - middle).max() < 1e-2
        assert right == row.unbiased, row.name


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("epsilon", [0.1, 1, 5, 20, 100])
def test_rr_on_bins_is_first_by_its_own_loss(epsilon, loss):
    g = guide(VALUES, PRIOR, epsilon, loss)
    assert g["RRonBins"].loss <= min(choice.loss for choice in g.choices) + 1e-9


def test_what_the_guide_leaves_out():
    assert "best unbiased" not in [c.name for c in guide(np.arange(70), np.ones(70), 2).choices]
    assert "best unbiased" not in [c.name for c in guide(VALUES, PRIOR, 1e-9).choices]
    assert "RPWithPrior (project)" not in [c.name for c in guide(VALUES, PRIOR, 1).choices]
    with pytest.raises(KeyError):
        guide(VALUES, PRIOR, 1)["RPWithPrior (project)"]


def test_the_best_for_a_model():
    g = guide(VALUES, PRIOR, 1)
    assert g.best(10**6).bias < 0.01 and g["Gaussian"].privacy == "(epsilon, delta = 1e-05)"
    for bad in (0, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="n: needs"):
            g.best(bad)
    assert guide(VALUES, [0, 0, 1, 0, 0], 1)["RRonBins"].loss == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "bad, word",
    [
        ((VALUES, PRIOR, 1, "huber"), "loss"),
        ((VALUES, PRIOR, 1, "squared", 2.0), "delta"),
        (([-1, 1], [1, 1], 1, "poisson"), "Poisson"),
    ],
)
def test_guide_refuses(bad, word):
    with pytest.raises(ValueError, match=word):
        guide(*bad)

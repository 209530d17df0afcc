"""The two rules that make shares of noisy counts."""

import math
from fractions import Fraction

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.prior import _clip, _project, n_prior_rows, split
from blockrr.privacy.sampling import RandomBits, draw_discrete_laplace

ONE = np.zeros(200, int)  # 200 equal labels


def nearest(c):
    "The projection onto the simplex by bisection of its threshold."
    low, high = min(c) - 1.0, max(c) + 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(c - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(c - low, 0)


@pytest.mark.parametrize("K", [2, 3, 17, 200])
def test_projection_is_the_nearest_point(K):
    rng = np.random.default_rng(K)
    for n in (1, 3, 50, 10_000):
        counts = (rng.multinomial(n, rng.dirichlet(np.ones(K))) + rng.integers(-9, 10, K)).tolist()
        shares = _project(counts, n)
        assert sum(shares) == 1 and min(shares) >= 0  # Fractions: exactly
        assert np.array(shares, float) == pytest.approx(nearest(np.array(counts) / n), abs=1e-12)
        if min(counts) >= 0 and sum(counts) == n:
            assert shares == [Fraction(c, n) for c in counts]


def test_projection_never_moves_away_from_a_histogram():
    rng = np.random.default_rng(0)
    for _ in range(200):
        truth = rng.multinomial(40, rng.dirichlet(np.full(12, 0.3)))
        noisy = truth + rng.integers(-20, 21, 12)
        after = np.array(_project(noisy.tolist(), 40), float)
        assert np.linalg.norm(after - truth / 40) <= np.linalg.norm((noisy - truth) / 40) + 1e-12


def test_the_default_is_the_papers_rule():
    for seed in range(5):
        bits = RandomBits(seed, "prior", 100, (1.0).hex(), ONE.astype(np.uint8))
        noisy = [200 * (i == 0) + draw_discrete_laplace(Fraction(2), bits) for i in range(100)]
        positive = [max(c, 0) for c in noisy]
        wanted = [c / sum(positive) for c in positive]
        assert (
            br.estimate_prior(ONE, 100, 1.0, seed=seed).tolist()
            == wanted
            == br.estimate_prior(ONE, 100, 1.0, seed=seed, rule="clip").tolist()
        )
        assert br.estimate_prior(ONE, 100, 1.0, seed=seed, rule="project").tolist() == [
            float(s) for s in _project(noisy, 200)
        ]


@pytest.mark.parametrize("K, clipped, projected", [(10, 0.96, 0.99), (100, 0.67, 0.97), (1_000, 0.17, 0.95)])
def test_what_is_left_of_a_certain_label(K, clipped, projected):
    "Means of twelve estimates; the standard error of one is below .03."
    mean = {
        rule: np.mean([br.estimate_prior(ONE, K, 1.0, seed=s, rule=rule, quiet=True)[0] for s in range(12)])
        for rule in ("clip", "project")
    }
    assert mean["clip"] == pytest.approx(clipped, abs=0.04) and mean["project"] == pytest.approx(projected, abs=0.04)


def test_limits():
    for rule in ("clip", "project"):
        assert br.estimate_prior([0, 0, 1], 3, math.inf, rule=rule, quiet=True) == pytest.approx(
            [2 / 3, 1 / 3, 0], abs=1e-16
        )
        for y in ([], [0, 1]):
            assert br.estimate_prior(y, 4, 0, rule=rule, quiet=True).tolist() == [0.25] * 4
        p = br.estimate_prior([0, 0, 1], 3, 5e-324, seed=1, rule=rule, quiet=True)  # counts beyond all floats
        assert p.sum() == pytest.approx(1) and (p >= 0).all()
    assert _clip([-1, -2], 3) == [Fraction(1, 2)] * 2


@pytest.mark.parametrize("bad", ["best", "", None, 1, ["clip"]])
def test_an_unknown_rule_is_refused_by_name(bad):
    with pytest.raises(ValueError, match="^rule: needs one of clip, project"):
        br.estimate_prior(ONE, 3, 1.0, rule=bad)


def test_the_number_of_rows_set_aside_is_the_splits():
    for n, fraction in ((2, 0.01), (2, 0.99), (100, 0.5), (1_000, 0.001), (33_500, 0.01)):
        assert n_prior_rows(n, fraction) == len(split(n, fraction, 0)[0])


@pytest.mark.parametrize("counts, n", [([3, -1, 1], 3), ([-5, -2, -9], 4), ([0, 0], 1), ([10**400, 1, -(10**400)], 7)])
def test_the_conditions_that_make_shares_the_nearest(counts, n):
    "One threshold, which is the gap wherever the share is positive and not below it elsewhere."
    shares = _project(counts, n)
    gaps = [c - n * s for c, s in zip(counts, shares)]
    assert sum(shares) == 1 and min(shares) >= 0
    assert all(gap == max(gaps) for gap, share in zip(gaps, shares) if share)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-12, 5e-324, 0.5, 700, 1e6])
def test_no_epsilon_makes_an_estimate_fail(epsilon):
    p = br.estimate_prior(np.repeat([0, 1, 2], [60, 30, 10]), 4, epsilon, seed=0, quiet=True)
    assert p.sum() == pytest.approx(1, abs=1e-12) and (p >= 0).all() and np.isfinite(p).all()


def test_an_estimate_of_nothing():
    assert br.estimate_prior([], 3, 1e9, quiet=True).tolist() == [1 / 3] * 3


@pytest.mark.parametrize("bad", [0, 1, -0.1, math.nan, "0.5", True])
def test_what_is_no_share_of_rows(bad):
    with pytest.raises((TypeError, ValueError), match="^prior_fraction: needs"):
        split(10, bad)


@pytest.mark.parametrize("bad", ["best", None, 1, ["clip"]])
def test_what_is_no_rule(bad):
    with pytest.raises(ValueError, match="^rule: needs one of clip, project"):
        br.estimate_prior([0, 1], 2, 1, rule=bad)

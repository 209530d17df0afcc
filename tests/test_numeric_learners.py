"""Models of numbers, learnt from released labels: their minimum, what debiasing keeps, and edges."""

import math

import numpy as np
import pytest

from blockrr.learning.tabular import PublicRange
from blockrr.study.numeric_learners import REGRESSION_LEARNERS, learn_numbers, poisson_fit
from blockrr.study.regression import RegressionSpec, release_numbers


@pytest.mark.parametrize("noise", [0, 3, 30, 1000])
def test_poisson_fit_is_the_minimum(noise):
    r = np.random.default_rng(noise)
    x = r.normal(size=(500, 4))
    y = r.poisson(2, 500) + r.laplace(0, noise, 500) + noise / 4
    for penalty in (1e-3, 1.0, 1e3):
        w = poisson_fit(x, y, penalty)
        if y.mean() <= 0.1:
            continue
        X = np.column_stack([np.ones(500), x])
        slope = X.T @ (np.exp(X @ w) - y) / 500 + np.r_[0, w[1:] * penalty]
        assert np.isfinite(w).all() and abs(slope).max() < 1e-4 * (1 + abs(y).mean())


def test_strong_noise_leaves_small_coefficients():
    r = np.random.default_rng(0)
    x = r.normal(size=(2000, 3))
    y = r.poisson(np.exp(0.5 + x @ [0.4, -0.2, 0])) + r.laplace(0, 300, 2000)
    assert abs(poisson_fit(x, y, 1e3)[1:]).max() < 0.1


@pytest.mark.parametrize(
    "mechanism, labels",
    [
        ("rr", "debiased"),
        ("exponential", "debiased"),
        ("square_wave", "debiased"),
        ("laplace", "raw"),
        ("unbiased", "raw"),
    ],
)
def test_unbiased_labels_keep_the_regression_function(mechanism, labels):
    "Poisson regression on debiased numbers finds the coefficients that true labels have; on raw numbers it does not."
    r = np.random.default_rng(5)
    x = r.normal(size=(60_000, 2))
    y = np.minimum(r.poisson(np.exp(0.3 + x @ [0.5, -0.3])), 8.0)
    true = poisson_fit(x, y, 1e-6)
    out = release_numbers(RegressionSpec("randhie", mechanism, 3.0), y, PublicRange(0, 8, 1, "", ""))
    numbers = out.postprocessed(labels)
    noise = math.sqrt(np.var(numbers - y[out.rows]) / len(out.rows) / np.exp(0.3))  # of a coefficient, roughly
    assert abs(poisson_fit(x[out.rows], numbers, 1e-6) - true).max() < 6 * noise + 0.02
    if mechanism == "rr":
        assert abs(poisson_fit(x, out.values, 1e-6) - true).max() > 0.1


@pytest.mark.parametrize("learner", REGRESSION_LEARNERS)
@pytest.mark.parametrize("counts", [True, False])
def test_predictions_stay_in_the_public_range(learner, counts):
    r = np.random.default_rng(1)
    x = r.normal(size=(300, 2))
    x[:, 1] = 5  # a column that says nothing
    public = PublicRange(0, 8, 1, "", "")
    facts = {"x_test": 100 * x, "public": public, "counts": counts, "lowest": -math.inf, "seed": 3}
    values, chosen = learn_numbers(learner, x, 4 + 3 * x[:, 0] + r.laplace(0, 5, 300), **facts)
    assert values.min() >= (0.1 if counts else 0) and values.max() <= 8
    assert set(chosen) == {"linear": {"penalty"}, "boosting": {"trees", "loss"}, "mean": set()}[learner]

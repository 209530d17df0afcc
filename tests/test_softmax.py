"""Calibrated scores, and the old places of what fits them."""

import numpy as np
import pytest

import blockrr as br
from blockrr.learning import likelihood
from blockrr.learning import softmax as S
from blockrr.learning.softmax import calibrate, log_likelihood, softmax


def test_calibration_finds_the_logits():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(30_000, 3))
    y = (softmax(2 * z + [0.5, 0, -0.5]).cumsum(1) < rng.random((30_000, 1))).sum(1)
    T = br.rr(3, 2.0)
    likelihood = T.transition.T[T.privatize(y, seed=1)]
    c = calibrate(z, likelihood)
    assert c.slope == pytest.approx(2, abs=0.25) and np.allclose(c.offsets, [0.5, 0, -0.5], atol=0.12)
    assert c.log_likelihood == pytest.approx(log_likelihood(c(z), likelihood), abs=1e-4)
    kept = calibrate(z, likelihood, slope=1.5)
    assert kept.slope == pytest.approx(1.5) and kept.log_likelihood < c.log_likelihood


@pytest.mark.parametrize(
    "scores, likelihood, word",
    [
        ([[np.nan, 1.0]], [[0.5, 0.5]], "scores: needs finite"),
        ([[np.inf, 1.0]], [[0.5, 0.5]], "scores: needs finite"),
        ([[0.0, 1.0]], [[np.nan, 0.5]], "without NaN"),
        ([[0.0, 1.0]], [[0.5, 0.5, 0.5]], "got shapes"),
    ],
)
def test_bad_calibrations(scores, likelihood, word):
    with pytest.raises(ValueError, match=word):
        calibrate(scores, likelihood)


@pytest.mark.parametrize("name", ["softmax", "calibrate", "minimise", "SoftmaxObjective"])
def test_names_that_were_in_likelihood(name):
    with pytest.warns(DeprecationWarning, match=f"use blockrr.learning.softmax.{name}"):
        assert getattr(likelihood, name) is getattr(S, name)

"""What released labels say: every way in says the same, and sets, groups and gaps are read right."""

import numpy as np
import pytest

import blockrr as br
from blockrr.learning.evidence import calibrate_table, check_weights, label_evidence
from blockrr.learning.softmax import softmax


def test_a_release_and_its_column_say_the_same():
    truth = np.random.default_rng(0).integers(3, size=400)
    out = br.release(truth, 1.0, 3, method="rr", seed=5)
    whole = label_evidence(out)
    column = label_evidence(out.labels, out.mechanism)
    assert whole.classes.tolist() == column.classes.tolist() == [0, 1, 2] and whole.released
    np.testing.assert_allclose(whole.likelihood, column.likelihood, atol=1e-6)


def test_rows_of_the_prior_say_nothing():
    truth = np.random.default_rng(1).integers(3, size=400)
    out = br.release(truth, 1.0, 3, method="block_rr", prior_fraction=0.2, seed=5)
    silent = np.ptp(label_evidence(out).likelihood, axis=1) == 0
    assert silent.sum() >= 80 and not silent[out.index].all() and silent[np.setdiff1d(np.arange(400), out.index)].all()


def test_sets_are_read_by_their_mechanism():
    mechanism = br.subset_response(6, 1.0, size=2)
    released = mechanism.privatize(np.arange(6).repeat(20), seed=3)
    evidence = label_evidence(released, mechanism)
    np.testing.assert_allclose(evidence.likelihood, mechanism.likelihood(released))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(y=[0, 9], mechanism=br.rr(3, 1.0)), "row 1"),
        (dict(y=None, likelihood=[[0.5, np.nan]]), "likelihood"),
        (dict(y=None, likelihood=np.ones((2, 3)), classes=["a", "b"]), "classes: needs 3 labels"),
        (dict(y=[0.5, 1.7, 2.2]), "continuous"),
    ],
)
def test_bad_evidence(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        label_evidence(**arguments)


def test_calibration_finds_the_scale_that_scores_were_made_with():
    rng = np.random.default_rng(2)
    logits = 2 * rng.normal(size=(40_000, 3))
    p = softmax(logits.copy())
    truth = (p.cumsum(1) < rng.random((len(p), 1))).sum(1).clip(0, 2)
    mechanism = br.rr(3, 2.0)
    L = label_evidence(mechanism.privatize(truth, seed=1), mechanism).likelihood
    found = calibrate_table(logits / 4, L, np.ones(len(L)))
    assert abs(found.slope - 4) < 0.3 and np.abs(found.offsets).max() < 0.15


@pytest.mark.parametrize("bad", [[1, 2], [1, -1, 1], [1, np.nan, 1], np.ones((3, 1))])
def test_bad_weights(bad):
    with pytest.raises(ValueError, match="sample_weight: needs 3"):
        check_weights(bad, 3)

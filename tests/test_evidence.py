"""What released labels say: every way in says the same, and sets, groups and gaps are read right."""

import numpy as np
import pytest

import blockrr as br
from blockrr.learning.evidence import (
    POWER,
    SLOPES,
    average_slopes,
    calibrate_table,
    check_weights,
    class_shares,
    label_evidence,
    nats_to_win,
)
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


def made(n, seed, epsilon, shares=(0.6, 0.3, 0.1)):
    "Log-probabilities that are calibrated, and what was released for their rows."
    rng = np.random.default_rng(seed)
    scores = np.log(softmax(1.5 * rng.normal(size=(n, 3)) + np.log(shares)))
    truth = (rng.random((n, 1)) > np.exp(scores).cumsum(1)[:, :-1]).sum(1)
    mechanism = br.rr(3, epsilon)
    return scores, label_evidence(mechanism.privatize(truth, seed=seed), mechanism).likelihood


def test_slopes_are_weighed_as_the_labels_say():
    "Scores four times too bold: the average is nearer the truth than any that a single slope of those would give."
    scores, L = made(3000, 0, 2.0)
    bold = 4 * scores
    logs = [np.log((softmax(slope * bold) * L).sum(1)).sum() for slope in SLOPES]
    weights = softmax(POWER * np.array(logs))
    p = average_slopes(bold, weights)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p.argmax(1) == scores.argmax(1)).all() and weights @ SLOPES == pytest.approx(1 / 4, abs=0.02)
    assert np.abs(p - np.exp(scores)).mean() < 0.5 * np.abs(softmax(bold.copy()) - np.exp(scores)).mean()


@pytest.mark.parametrize("epsilon, far", [(0.01, 0.02), (0.3, 0.15), (4.0, 0.03)])
def test_shares_are_equal_until_the_labels_say_otherwise(epsilon, far):
    "Mean distance from the truth where it is equal shares, and from shares that are not."
    even, uneven = [], []
    for seed in range(20):
        for found, shares in ((even, [1 / 3] * 3), (uneven, [0.7, 0.2, 0.1])):
            truth = np.random.default_rng(seed).choice(3, 1000, p=shares)
            mechanism = br.rr(3, epsilon)
            L = label_evidence(mechanism.privatize(truth, seed=seed), mechanism).likelihood
            estimate = class_shares(L, np.ones(1000))
            assert estimate.sum() == pytest.approx(1) and estimate.min() > 0
            found.append(np.abs(estimate - shares).max())
    assert np.mean(even) < far
    assert (np.mean(uneven) < 0.06) == (epsilon > 1)


def test_nats_to_win_is_the_mutual_information():
    "Of a label and what is released for it, on average over what is released."
    shares = np.array([0.6, 0.3, 0.1])
    T = br.rr(3, 1.5).transition
    exact = (shares[:, None] * T * np.log(T / (shares @ T))).sum()
    outputs = shares @ T
    found = nats_to_win(T.T, shares, 1000 * outputs)  # every output as often as it comes
    assert found == pytest.approx(1000 * exact, rel=1e-9)
    assert nats_to_win(np.ones((9, 3)), shares, np.ones(9)) == pytest.approx(0, abs=1e-12)

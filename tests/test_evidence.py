"""What released labels say: every way in says the same, and sets, groups and gaps are read right."""

import numpy as np
import pytest

import blockrr as br
from blockrr.learning.evidence import (
    MARGIN,
    RowSplit,
    calibrate_halves,
    calibrate_sparingly,
    calibrate_table,
    check_weights,
    clearly_better,
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


def test_offsets_are_taken_where_they_are_true_and_left_where_they_are_noise():
    scores, L = made(6000, 0, 2.0)
    moved = calibrate_sparingly(scores + [1.5, 0, 0], L, np.ones(6000))
    assert np.ptp(moved.offsets) > 1 and moved.slope == pytest.approx(1, abs=0.15)
    taken = [np.ptp(calibrate_sparingly(*made(800, seed, 0.3), np.ones(800)).offsets) > 0 for seed in range(30)]
    assert np.mean(taken) < 0.35  # Akaike's rule: two offsets by chance in exp(-2) = 14 %, with 30 draws below 35 %


def test_the_slope_goes_where_it_is_pulled_when_labels_say_nothing():
    scores, L = made(500, 1, 0.001)
    for towards in (0.0, 1.0):
        assert calibrate_sparingly(scores, L, np.ones(500), towards).slope == pytest.approx(towards, abs=0.02)


def test_a_slope_alone_is_the_best_slope():
    "Against a search."
    scores, L = made(2000, 2, 1.0)
    found = calibrate_table(scores, L, np.ones(2000), 1.0, offsets=False)
    grid = np.linspace(0.2, 2, 181)
    values = [np.log((softmax(s * scores) * L).sum(1)).sum() for s in grid]
    assert found.slope == pytest.approx(grid[np.argmax(values)], abs=0.02) and (found.offsets == 0).all()


def test_no_row_is_judged_by_a_calibration_that_saw_its_label():
    scores, L = made(400, 3, 1.0)
    half = RowSplit(400, 3, np.random.RandomState(0)).half
    assert half.sum() == 200
    before = calibrate_halves(scores, L, np.ones(400), half).left_out(scores, half)
    for own in (0, 1):
        changed = np.where((half == own)[:, None], L[::-1], L)
        after = calibrate_halves(scores, changed, np.ones(400), half).left_out(scores, half)
        assert (after[half == own] == before[half == own]).all() and (after[half != own] != before[half != own]).any()


def test_judges_are_in_both_halves():
    for n in (8, 9, 17, 100):
        split = RowSplit(n, 2, np.random.RandomState(n))
        assert set(split.half[split.judges]) == set(split.half[split.others]) == {0, 1}


def test_clearly_better_is_a_paired_test():
    d = np.random.default_rng(0).normal(size=400)
    shift = MARGIN * d.std() / 20 - d.mean()
    assert clearly_better(d + shift + 1e-3) and not clearly_better(d + shift - 1e-3)
    assert not clearly_better(np.zeros(5))


def test_nats_to_win_is_the_mutual_information():
    "Of a label and what is released for it, on average over what is released."
    shares = np.array([0.6, 0.3, 0.1])
    T = br.rr(3, 1.5).transition
    exact = (shares[:, None] * T * np.log(T / (shares @ T))).sum()
    outputs = shares @ T
    found = nats_to_win(T.T, shares, 1000 * outputs)  # every output as often as it comes
    assert found == pytest.approx(1000 * exact, rel=1e-9)
    assert nats_to_win(np.ones((9, 3)), shares, np.ones(9)) == pytest.approx(0, abs=1e-12)

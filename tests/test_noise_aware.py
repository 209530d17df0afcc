"""Learners that know the mechanism: deterministic, alone as in company, for every mechanism; against refits."""

import math

import numpy as np
import pytest

import blockrr as br
from blockrr.learning import noise_aware as N
from blockrr.learning import softmax as S
from blockrr.learning.coordinates import Projection, coordinates
from blockrr.learning.features import features
from blockrr.learning.images import digits
from blockrr.learning.likelihood import label_likelihood
from blockrr.learning.softmax import Linear, SoftmaxObjective, minimise

LEARNERS = {
    "posterior": N.fit_posterior,
    "consensus": N.fit_consensus,
    "forward": N.fit_forward,
}
every_learner = pytest.mark.parametrize("name", LEARNERS)


@pytest.fixture(scope="module")
def data():
    return digits()


@pytest.fixture(scope="module")
def Z(data):
    return coordinates(features(data, cache=False), directions=40, cache=False)


def released(data, mechanism, seed):
    y = mechanism.privatize(data.train_labels, seed=seed)
    return label_likelihood(y, mechanism, level=None)


def tiled(Z, times=6):
    "The same images again and again: more than 4,096 rows."
    return Projection(np.tile(Z.train, (times, 1)), Z.test, times * Z.eigenvalues)


@every_learner
def test_runs_are_deterministic_and_alone(name, data, Z):
    L = np.stack([released(data, br.rr(10, 2.0), s) for s in range(3)])
    a, b = LEARNERS[name](Z, L), LEARNERS[name](Z, L)
    assert (a.probabilities == b.probabilities).all() and a.details == b.details
    one = LEARNERS[name](Z, L[1])
    assert (one.probabilities[0] == a.probabilities[1]).all() and one.details[0] == a.details[1]
    np.testing.assert_allclose(a.probabilities.sum(2), 1, atol=1e-4)


@pytest.mark.parametrize("name, apart", [("posterior", 0.01), ("forward", 0.02)])
def test_many_rows_are_equal_but_for_rounding(name, apart, data, Z):
    L = np.stack([released(data, br.rr(10, 2.0), s) for s in range(3)])
    L = np.tile(L, (1, 6, 1))
    together = LEARNERS[name](tiled(Z), L)
    alone = LEARNERS[name](tiled(Z), L, batch_size=1)
    assert (together.predictions != alone.predictions).mean() < apart
    if name == "posterior":  # the other searches until a likelihood falls, and may stop elsewhere
        assert np.abs(together.probabilities - alone.probabilities).mean() < 1e-3
        assert [d["rounds"] for d in together.details] == [d["rounds"] for d in alone.details]


@every_learner
def test_any_mechanism(name, data, Z):
    prior = data.train_counts
    part = br.partition_by_weight(prior, 1.0, 2)
    several = [br.rr(10, 0.0), br.rr(10, math.inf), br.block_rr(part, 2.0)]
    several += [br.rr_with_prior(prior, epsilon, k=k) for epsilon, k in ((2.0, 3), (0.6, 1))]
    for mechanism in several:
        fit = LEARNERS[name](Z, released(data, mechanism, 0))
        assert np.isfinite(fit.probabilities).all(), mechanism
        if mechanism.epsilon == math.inf:
            assert (fit.predictions[0] == data.test_labels).mean() > 0.9


@every_learner
def test_no_label_at_all(name, Z):
    "An answer, if a useless one; and a run without labels leaves its neighbours alone."
    silent = LEARNERS[name](Z, np.full((len(Z.train), 10), 0.1))
    assert np.isfinite(silent.probabilities).all()


def test_a_class_never_released(data, Z):
    keep = np.flatnonzero(data.train_labels != 3)
    L = np.full((len(Z.train), 10), 0.1)
    L[keep] = np.eye(10)[data.train_labels[keep]]
    for learn in LEARNERS.values():
        assert (learn(Z, L).predictions[0] != 3).all()


@every_learner
def test_a_class_that_is_never_released_is_not_predicted(data, Z, name):
    mechanism = br.rr(10, 2.0)
    y = mechanism.privatize(data.train_labels, seed=1).astype(int)
    usual = LEARNERS[name](Z, label_likelihood(y, mechanism))
    assert (data.test_labels == 3).mean() > 0.1 and (usual.predictions == 3).mean() > 0.1
    with pytest.warns(UserWarning, match="do not fit"):
        L = label_likelihood(np.where(y == 3, -1, y), mechanism)
    found = LEARNERS[name](Z, L)
    assert np.isfinite(found.probabilities).all() and (found.predictions == 3).mean() < 0.01
    others = data.test_labels != 3
    assert (found.predictions == data.test_labels)[:, others].mean() > 0.9


@every_learner
def test_bad_likelihoods(name, data, Z):
    learn, L = LEARNERS[name], released(data, br.rr(10, 2.0), 0)
    impossible, missing = L.copy(), L.copy()
    impossible[5] = 0
    missing[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"row \[0, 5\]|row \[5\]"):
        learn(Z, impossible)
    with pytest.raises(ValueError, match="NaN"):
        learn(Z, missing)
    with pytest.raises(ValueError, match="a row for each"):
        learn(Z, L[1:])
    with pytest.raises(ValueError, match="at least one run"):
        learn(Z, L[None][:0])
    with pytest.raises(TypeError, match="Z: needs a Projection"):
        learn(Z.train, L)


@pytest.mark.parametrize(
    "options, word",
    [
        (dict(rounds=-1), "rounds"),
        (dict(rounds=1.5), "rounds"),
        (dict(factor=0.0), "factor"),
        (dict(factor="a"), "factor"),
        (dict(factor=True), "factor"),
        (dict(batch_size=0), "batch_size"),
    ],
)
def test_bad_rounds(Z, options, word):
    with pytest.raises(ValueError, match=f"^{word}: needs"):
        N.fit_posterior(Z, np.full((1, len(Z.train), 2), 0.5), **options)


@pytest.mark.parametrize("learn", [N.fit_forward, N.fit_consensus])
@pytest.mark.parametrize(
    "options, word",
    [
        (dict(factors=()), "factors: needs a sequence"),
        (dict(factors=4.0), "factors: needs a sequence"),
        (dict(factors="8"), "factors: needs a sequence"),
        (dict(factors=(-1.0,)), "factors: needs a number > 0"),
        (dict(factors=(True,)), "factors: needs a number > 0"),
        (dict(factors=(2.0, 4.0)), "factors: needs to fall"),
        (dict(evaluations=0), "evaluations"),
        (dict(batch_size=0), "batch_size"),
    ],
)
def test_bad_searches(Z, learn, options, word):
    with pytest.raises(ValueError, match=word):
        learn(Z, np.full((1, len(Z.train), 2), 0.5), **options)


class Leaving:
    "One softmax fit, and refits without the labels of some rows."

    def __init__(self, Z, L):
        self.Z = Z
        self.start = N._first_fits(Z, L[None])[0]
        kappa = N._information([self.start], L[None])
        self.scale = S.Scale(kappa, 4 * kappa * self.start.first_penalty)
        self.linear = self.fit(L, N._linear([self.start]), 400)

    def objective(self, L):
        return SoftmaxObjective(self.Z, L[:, None], penalty=self.scale.penalty, kappa=self.scale.kappa)

    def fit(self, L, start, evaluations):
        objective = self.objective(L)
        return objective.unpack(minimise(objective, objective.pack(start), evaluations)[0])

    def logits(self, L, linear):
        return self.objective(L).logits(self.Z.train, Linear(*linear))


def test_first_order_leave_one_out(data, Z):
    "The effect of a row's label on its own logits, in direction and size, against refits of twenty rows."
    L = released(data, br.rr(10, 1.0), 0)
    leaving = Leaving(Z, L)
    full, rows = leaving.logits(L, leaving.linear), np.arange(0, 600, 30)
    approximate = S._held_out_logits(Z, full, L[:, None], leaving.scale)[rows, 0]
    exact = []
    for i in rows:
        masked = L.copy()
        masked[i] = 0.1
        exact.append(leaving.logits(masked, leaving.fit(masked, leaving.linear, 60))[i, 0])

    def effect(logits):
        moved = logits - full[rows, 0]
        return (moved - moved.mean(1, keepdims=True)).ravel()

    assert np.corrcoef(effect(approximate), effect(np.array(exact)))[0, 1] > 0.6


def test_backward_is_unbiased(data, Z):
    T = br.rr(10, 1.0)
    np.testing.assert_allclose(T.transition @ np.linalg.pinv(T.transition), np.eye(10), atol=1e-9)
    y = T.privatize(data.train_labels, seed=0).astype(int)[None]
    fit = N.fit_backward(Z, y, T.transition)
    assert fit.details[0]["rank"] == 10
    assert (fit.predictions == N.fit_backward(Z, y, T.transition[None]).predictions).all()


def test_backward_with_a_singular_table(data, Z):
    mechanism = br.rr_with_prior(data.train_counts, 2.0, k=4)
    square = np.zeros((10, 10))
    square[:, [mechanism.labels.index(o) for o in mechanism.outputs]] = mechanism.transition
    y = mechanism.privatize(data.train_labels, seed=3).astype(int)[None]
    assert N.fit_backward(Z, y, square).details[0]["rank"] == np.linalg.matrix_rank(square)
    with pytest.raises(ValueError, match="never does"):
        N.fit_backward(Z, br.rr(10, 2.0).privatize(data.train_labels, seed=0).astype(int), square)


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda y: y[:, 1:], "integers"),
        (lambda y: y - 9, "or -1"),
        (lambda y: y / 2, "integers"),
    ],
)
def test_bad_labels(data, Z, change, word):
    T = br.rr(10, 2.0)
    y = T.privatize(data.train_labels, seed=0).astype(int)[None]
    with pytest.raises(ValueError, match=f"labels: needs .*{word}"):
        N.fit_backward(Z, change(y), T.transition)


def test_old_names_warn():
    from blockrr.learning import denoise

    with pytest.warns(DeprecationWarning, match="noise_aware.fit_forward"):
        assert denoise.forward is N.fit_forward

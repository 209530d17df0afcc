"""Learners that know the mechanism, against brute force, enumeration and refits; releases in stages, by exhaustive tables."""
import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import blockrr as br
from blockrr.learning.coordinates import Coordinates, coordinates, view_noise, views
from blockrr.learning.data import digits
from blockrr.learning.denoise import (backward, calibrate, check_likelihood, consensus, forward, goodness_of_fit, label_likelihood, log_likelihood, loo_scores,
                                      posterior_ridge, posterior_targets, softmax, warn_unless_fits)
from blockrr.learning.features import features
from blockrr.privacy.comparators import gaussian, laplace, randomized_response
from blockrr.privacy.stages import cluster_priors, prior_by_em, release_in_groups, row_priors, two_stage


@pytest.fixture(scope="module")
def data(): return digits()


@pytest.fixture(scope="module")
def Z(data): return coordinates(features(data, cache=False), directions=40, cache=False)


def released(data, mechanism, seed):
    y = mechanism.privatize(data.train_labels, seed=seed)
    return mechanism.transition.T[np.searchsorted([mechanism.labels.index(o) for o in mechanism.outputs], y)]


LEARNERS = {"posterior": posterior_ridge, "consensus": consensus, "forward": forward}


def toy(n, r, rng):
    "Coordinates of random images, diagonal as they must be."
    x = rng.normal(size=(n, r))*np.linspace(3, .5, r)
    x -= x.mean(0)
    w, v = np.linalg.eigh(x.T@x)
    return Coordinates((x@v).astype(np.float32), rng.normal(size=(5, r)).astype(np.float32), w)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [.01, 1., 100.])
def test_leave_one_out_is_exact(seed, penalty):
    rng = np.random.default_rng(seed)
    Z, Q = toy(25, 6, rng), rng.dirichlet([1.]*3, 25)
    found = loo_scores(Z, [Q], penalty)[0][0]
    for i in range(25):
        rest = np.arange(25) != i
        x = Z.train[rest].astype(float)
        c = np.linalg.solve((x - x.mean(0)).T@(x - x.mean(0)) + penalty*np.eye(6), (x - x.mean(0)).T@(Q[rest] - Q[rest].mean(0)))
        np.testing.assert_allclose(found[i], (Z.train[i] - x.mean(0))@c + Q[rest].mean(0), atol=2e-4)


@pytest.mark.parametrize("mechanism", [br.rr(4, .6), br.rr_with_prior([.5, .3, .1, .1], 1., k=2), br.block_rr(br.Partition((0, 1), (2, 3), (0,)), 1.)])
def test_posterior_by_enumeration(mechanism):
    rng = np.random.default_rng(0)
    for j in range(len(mechanism.outputs)):
        p, t = rng.dirichlet([1.]*4), mechanism.transition[:, j]
        joint = [p[y]*t[y] for y in range(4)]
        np.testing.assert_allclose(posterior_targets(p, t), np.array(joint)/sum(joint))


def test_posterior_of_contradictions_is_the_likelihood():
    np.testing.assert_allclose(posterior_targets(np.array([[1., 0], [.5, .5]]), np.array([[0, .3], [.3, .3]])), [[0, 1], [.5, .5]])


@pytest.mark.parametrize("epsilon", [.5, 1., 3.])
def test_em_against_inversion(epsilon):
    "Where the unbiased estimate lies inside, it is the maximum of the likelihood, and its delta-method error is EM's."
    T, p, n = br.rr(5, epsilon).transition, np.array([.3, .25, .2, .15, .1]), 10_000
    fit = prior_by_em(n*p@T, T)
    np.testing.assert_allclose(fit.prior, p, atol=1e-5)
    q = p@T
    cov = np.linalg.inv(T.T)@((np.diag(q) - np.outer(q, q))/n)@np.linalg.inv(T)
    np.testing.assert_allclose(fit.error, np.sqrt(np.diag(cov)), rtol=1e-3)


def test_em_is_a_maximum():
    rng = np.random.default_rng(1)
    T = br.rr(4, .6).transition
    for _ in range(20):
        c = rng.multinomial(500, rng.dirichlet([.3]*4)@T)
        best = prior_by_em(c, T)
        for q in [*rng.dirichlet([.5]*4, 50), *(best.prior*.99 + .01*np.eye(4))]: assert c@np.log(q@T) <= best.log_likelihood + 1e-6


def test_em_error_covers():
    rng, T, p = np.random.default_rng(2), br.rr(3, 1.).transition, np.array([.5, .3, .2])
    hits = []
    for _ in range(500):
        f = prior_by_em(rng.multinomial(2000, p@T), T)
        hits.append(np.abs(f.prior - p) < 1.96*f.error)
    assert abs(np.mean(hits) - .95) < 4*math.sqrt(.95*.05/500)  # classes of one draw depend on each other: 500 draws, four standard errors


def test_em_says_what_it_cannot_know():
    T = br.rr_with_prior([.4, .3, .2, .1], 1., k=2).transition
    f = prior_by_em([600, 400], T)
    assert np.isinf(f.error[2:]).all() and f.prior[2] == pytest.approx(f.prior[3])


def test_goodness_of_fit_finds_another_mechanism():
    y = np.repeat(np.arange(5), [5000, 3000, 1000, 500, 500])
    count = lambda e: np.bincount(br.rr(5, e).privatize(y, seed=0), minlength=5)
    with pytest.warns(UserWarning, match="do not fit the stated mechanism"): warn_unless_fits(count(3.), br.rr(5, .6).transition)
    assert goodness_of_fit(count(.6), br.rr(5, .6).transition)[1] > .05
    with pytest.raises(ValueError, match="never does"): goodness_of_fit([1, 1], [[1., 0], [1., 0]])


@pytest.mark.parametrize("name", LEARNERS)
def test_runs_are_deterministic_and_alone(name, data, Z):
    L = np.stack([released(data, br.rr(10, 2.), s) for s in range(3)])
    a, b = LEARNERS[name](Z, L), LEARNERS[name](Z, L)
    assert (a.probabilities == b.probabilities).all() and a.details == b.details
    one = LEARNERS[name](Z, L[1])
    assert (one.probabilities[0] == a.probabilities[1]).all() and one.details[0] == a.details[1]
    np.testing.assert_allclose(a.probabilities.sum(2), 1, atol=1e-4)


@pytest.mark.parametrize("name", LEARNERS)
def test_any_mechanism(name, data, Z):
    prior = data.train_counts
    part = br.partition_by_weight(prior, 1., 2)
    for m in (br.rr(10, 0.), br.rr(10, math.inf), br.rr_with_prior(prior, 2., k=3), br.rr_with_prior(prior, .6, k=1), br.block_rr(part, 2.)):
        fit = LEARNERS[name](Z, released(data, m, 0))
        assert np.isfinite(fit.probabilities).all(), m
        if m.epsilon == math.inf: assert (fit.predictions[0] == data.test_labels).mean() > .9


def test_a_class_never_released(data, Z):
    keep = np.flatnonzero(data.train_labels != 3)
    T = br.rr(10, math.inf).transition
    L = np.full((len(Z.train), 10), .1)
    L[keep] = T.T[data.train_labels[keep]]
    for learn in LEARNERS.values(): assert (learn(Z, L).predictions[0] != 3).all()


def test_bad_input(data, Z):
    L = released(data, br.rr(10, 2.), 0)
    for learn in LEARNERS.values():
        bad = L.copy(); bad[5] = 0
        with pytest.raises(ValueError, match=r"row \[0, 5\]|row \[5\]"): learn(Z, bad)
        bad = L.copy(); bad[5, 1] = np.nan
        with pytest.raises(ValueError, match="NaN"): learn(Z, bad)
        with pytest.raises(ValueError, match="a row for each"): learn(Z, L[1:])
    train = Z.train.copy(); train[11, 2] = np.nan
    with pytest.raises(ValueError, match="row 11"): replace(Z, train=train)
    with pytest.raises(ValueError, match="finite"): calibrate(np.full((3, 2), np.inf), np.ones((3, 2)))
    with pytest.raises(TypeError, match="numbers"): check_likelihood([["a", "b"]])


def test_forward_gains_likelihood_and_backward_is_unbiased(data, Z):
    T = br.rr(10, 1.)
    np.testing.assert_allclose(T.transition@np.linalg.pinv(T.transition), np.eye(10), atol=1e-9)
    y = T.privatize(data.train_labels, seed=0).astype(int)[None]
    assert backward(Z, y, T.transition).details[0]["rank"] == 10
    plain = backward(Z, y, T.transition).predictions
    assert (plain == backward(Z, y, T.transition[None]).predictions).all()


def test_calibration_finds_the_logits():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(30_000, 3))
    y = (softmax(2*z + [.5, 0, -.5]).cumsum(1) < rng.random((30_000, 1))).sum(1)
    T = br.rr(3, 2.)
    c = calibrate(z, T.transition.T[T.privatize(y, seed=1)])
    assert c.slope == pytest.approx(2, abs=.25) and np.allclose(c.offsets, [.5, 0, -.5], atol=.12)
    assert c.log_likelihood == pytest.approx(log_likelihood(c(z), T.transition.T[T.privatize(y, seed=1)]), abs=1e-4)


def test_views_and_metric(data):
    assert (views(data.train_images[:9], np.random.default_rng(0)) == views(data.train_images[:9], np.random.default_rng(0))).all()
    F = features(data, cache=False)
    Z = coordinates(F, view_noise(data, images=300, cache=False), directions=30, cache=False)
    gram = Z.train.T.astype(float)@Z.train
    assert np.abs(gram - np.diag(Z.w)).max() < 1e-3*Z.w[0] and (np.diff(Z.w) <= 0).all()


@pytest.mark.parametrize("epsilon", [.3, 1., 2.])
def test_stages_exhaustively(epsilon):
    "Three rows: the first by RR, the second by what the first says, the third by a prior from both; all outputs, all neighbours, exact integers."
    one = br.rr(3, epsilon)
    def table(*seen):
        counts = np.bincount(seen, minlength=3)
        return row_priors([prior_by_em(counts, one.transition).prior + 1e-3], epsilon)[1][0]
    tables = {seen: table(*seen) for k in (1, 2) for seen in product(range(3), repeat=k)}
    def weight(m, y, o): return int(m.weights[y, m.outputs.index(o)]) if o in m.outputs else 0
    every = list(product(range(3), repeat=3))
    P = {y: [weight(one, y[0], o[0])*weight(tables[o[:1]], y[1], o[1])*weight(tables[o[:2]], y[2], o[2]) for o in every] for y in every}
    assert {sum(row) for row in P.values()} == {2**186}
    for y, z in product(every, repeat=2):
        if sum(a != b for a, b in zip(y, z)) == 1:
            for a, b in zip(P[y], P[z]):
                assert (a == 0) == (b == 0) and (not b or a <= b*math.exp(epsilon)*(1 + 1e-12))
    assert all(m.certify(epsilon).holds for m in tables.values())


@pytest.mark.parametrize("name", LEARNERS)
def test_a_class_that_is_never_released_is_not_predicted(data, Z, name):
    mechanism = br.rr(10, 2.)
    y = mechanism.privatize(data.train_labels, seed=1).astype(int)
    assert (data.test_labels == 3).mean() > .1 and (LEARNERS[name](Z, label_likelihood(y, mechanism)).predictions == 3).mean() > .1
    with pytest.warns(UserWarning, match="do not fit"): L = label_likelihood(np.where(y == 3, -1, y), mechanism)
    found = LEARNERS[name](Z, L)
    assert np.isfinite(found.probabilities).all() and (found.predictions == 3).mean() < .01
    assert (found.predictions == data.test_labels)[:, data.test_labels != 3].mean() > .9


@pytest.mark.parametrize("mechanism", [br.rr(6, 1.), br.rr_with_prior([.4, .3, .1, .1, .05, .05], 1., k=3), br.block_rr(br.Partition((0, 1), (2, 3, 4, 5), (0,)), 1.)])
def test_the_goodness_of_fit_keeps_its_level(mechanism):
    "Honest labels alarm as rarely as they should, dropped classes and empty ones included; five standard errors of slack."
    rng, p = np.random.default_rng(0), []
    for i in range(60):
        counts = rng.multinomial(3000, np.array([.6, .3, .1, 0, 0, 0])@mechanism.transition)
        p.append(goodness_of_fit(counts, mechanism.transition, draws=60, seed=i)[1])
    assert np.mean(np.array(p) < .1) < .1 + 5*np.sqrt(.1*.9/60)


def test_two_stage_uses_every_row_once():
    y = np.repeat(np.arange(4), [400, 300, 200, 100])
    for method in ("rr_with_prior", "block_rr"):
        out, fit = two_stage(y, 1., 4, method, seed=0)
        assert out.certificate.holds and (out.index == np.arange(1000)).all() and (out.group == 0).sum() == 100
        assert "parallel composition" in json.loads(out.to_json())["composition"] and fit.prior.sum() == pytest.approx(1)
        for i in (0, 500, 999):
            m = out.mechanisms[out.group[i]]
            assert (out.likelihood[i] == m.transition[:, m.outputs.index(int(out.labels[i]))]).all()


def test_cluster_priors_cost_epsilon_once():
    "Changing one label changes one cluster's histogram; with a seed the others stay as they were."
    y, c = np.array([0, 1, 2, 0, 1, 2]*50), np.arange(300) % 5
    a = cluster_priors(y, c, 5, 3, 1., seed=0)
    other = y.copy(); other[7] = 0
    b = cluster_priors(other, c, 5, 3, 1., seed=0)
    assert (np.delete(a, c[7], 0) == np.delete(b, c[7], 0)).all()
    group, tables = row_priors(a[c], 1.)
    with pytest.raises(ValueError, match="asked for"): release_in_groups(y, group, tables, .9)


def test_numbers_have_no_likelihood_as_labels():
    "Released numbers that happen to be labels (clipped ones, a mean of a bin) were read as numbers of columns."
    values = [0, 1, 2, 4, 8]
    for m in (br.rr_on_bins(values, [.4, .3, .15, .1, .05], 3.), laplace(values, 1., 32), gaussian(values, 1., 1e-2, 5)):
        for labels in (m.privatize(values * 9, seed=1), values * 9, [-1] * 9):
            with pytest.raises(ValueError, match="transition: needs a mechanism that releases labels"): label_likelihood(labels, m)
        columns = np.searchsorted(m.points, m.privatize(values * 9, seed=1))  # the way out: a table, and its columns
        assert (label_likelihood(columns, m.transition, level=None) == m.transition.T[columns].astype("f4")).all()
    m = randomized_response(values, 1.)
    out = m.privatize(values * 9, seed=1)
    assert (label_likelihood(out, m, level=None) == m.transition.T[[values.index(v) for v in out]].astype("f4")).all()
    one = br.rr_on_bins(values, [0, 0, 1, 0, 0], 2.)  # a single output, the third value
    assert (label_likelihood([2, 2], one, level=None) == 1).all()
    with pytest.raises(ValueError, match="row 0"): label_likelihood([0, 2], one, level=None)

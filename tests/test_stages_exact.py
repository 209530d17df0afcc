"""The prior by EM against oracles; releases in stages, by exhaustive tables."""

import json
import math
from itertools import product

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.stages import (
    cluster_priors,
    prior_by_em,
    release_in_groups,
    row_priors,
    two_stage,
)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_em_against_inversion(epsilon):
    "Where the unbiased estimate lies inside, it is the maximum, and its delta-method error is EM's."
    T, p, n = (
        br.rr(5, epsilon).transition,
        np.array([0.3, 0.25, 0.2, 0.15, 0.1]),
        10_000,
    )
    fit = prior_by_em(n * p @ T, T)
    np.testing.assert_allclose(fit.prior, p, atol=1e-5)
    q = p @ T
    cov = np.linalg.inv(T.T) @ ((np.diag(q) - np.outer(q, q)) / n) @ np.linalg.inv(T)
    np.testing.assert_allclose(fit.error, np.sqrt(np.diag(cov)), rtol=1e-3)


def test_em_is_a_maximum():
    rng = np.random.default_rng(1)
    T = br.rr(4, 0.6).transition
    for _ in range(20):
        c = rng.multinomial(500, rng.dirichlet([0.3] * 4) @ T)
        best = prior_by_em(c, T)
        for q in [
            *rng.dirichlet([0.5] * 4, 50),
            *(best.prior * 0.99 + 0.01 * np.eye(4)),
        ]:
            assert c @ np.log(q @ T) <= best.log_likelihood + 1e-6


def test_em_error_covers():
    rng, T, p = (
        np.random.default_rng(2),
        br.rr(3, 1.0).transition,
        np.array([0.5, 0.3, 0.2]),
    )
    hits = []
    for _ in range(500):
        f = prior_by_em(rng.multinomial(2000, p @ T), T)
        hits.append(np.abs(f.prior - p) < 1.96 * f.error)
    # classes of one draw depend on each other: 500 draws, four standard errors
    assert abs(np.mean(hits) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 500)


def test_em_says_what_it_cannot_know():
    T = br.rr_with_prior([0.4, 0.3, 0.2, 0.1], 1.0, k=2).transition
    f = prior_by_em([600, 400], T)
    assert np.isinf(f.error[2:]).all() and f.prior[2] == pytest.approx(f.prior[3])


class Staged:
    """Three rows: the first by RR, the second by what the first says, the third by a prior from both."""

    def __init__(self, epsilon):
        self.first = br.rr(3, epsilon)
        seen = [s for k in (1, 2) for s in product(range(3), repeat=k)]
        self.tables = {s: self.table(s, epsilon) for s in seen}

    def table(self, seen, epsilon):
        counts = np.bincount(seen, minlength=3)
        prior = prior_by_em(counts, self.first.transition).prior + 1e-3
        return row_priors([prior], epsilon)[1][0]

    def weight(self, labels, outputs):
        "The probability of all outputs, times 2^186."
        mechanisms = self.first, self.tables[outputs[:1]], self.tables[outputs[:2]]
        parts = []
        for m, y, o in zip(mechanisms, labels, outputs):
            parts.append(int(m.weights[y, m.outputs.index(o)]) if o in m.outputs else 0)
        return math.prod(parts)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_stages_exhaustively(epsilon):
    "All outputs, all neighbours, exact integers."
    staged = Staged(epsilon)
    every = list(product(range(3), repeat=3))
    P = {y: [staged.weight(y, o) for o in every] for y in every}
    assert {sum(row) for row in P.values()} == {2**186}
    for y, z in product(every, repeat=2):
        if sum(a != b for a, b in zip(y, z)) == 1:
            for a, b in zip(P[y], P[z]):
                assert (a == 0) == (b == 0) and (not b or a <= b * math.exp(epsilon) * (1 + 1e-12))
    assert all(m.certify(epsilon).holds for m in staged.tables.values())


@pytest.mark.parametrize("method", ["rr_with_prior", "block_rr"])
def test_two_stage_uses_every_row_once(method):
    y = np.repeat(np.arange(4), [400, 300, 200, 100])
    out, fit = two_stage(y, 1.0, 4, method, seed=0)
    assert out.certificate.holds and (out.index == np.arange(1000)).all() and (out.group == 0).sum() == 100
    assert "parallel composition" in json.loads(out.to_json())["composition"]
    assert fit.prior.sum() == pytest.approx(1)
    for i in (0, 500, 999):
        m = out.mechanisms[out.group[i]]
        assert (out.likelihood[i] == m.transition[:, m.outputs.index(int(out.labels[i]))]).all()


def test_cluster_priors_cost_epsilon_once():
    "Changing one label changes one cluster's histogram; with a seed the others stay as they were."
    y, c = np.array([0, 1, 2, 0, 1, 2] * 50), np.arange(300) % 5
    a = cluster_priors(y, c, 5, 3, 1.0, seed=0)
    other = y.copy()
    other[7] = 0
    b = cluster_priors(other, c, 5, 3, 1.0, seed=0)
    assert (np.delete(a, c[7], 0) == np.delete(b, c[7], 0)).all()
    group, tables = row_priors(a[c], 1.0)
    with pytest.raises(ValueError, match="asked for"):
        release_in_groups(y, group, tables, 0.9)

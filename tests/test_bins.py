"""Optimal bins against the O(k^2 d) table for sizes beyond brute force, and what must hold for any prior."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockrr as br
from blockrr.privacy.bins import LOSSES, _at_most, _Costs, risk


@pytest.mark.parametrize("loss", LOSSES)
def test_iteration_equals_table(loss):
    rng = np.random.default_rng(LOSSES.index(loss))
    for k, e in zip(rng.integers(9, 70, 40), rng.uniform(0.05, 9, 40)):
        y, p = np.sort(rng.gamma(0.6, 3, k)), rng.dirichlet(np.full(k, 0.4))
        m = br.rr_on_bins(y, p, e, loss)
        costs = _Costs(y / (y[-1] - y[0]), p, math.exp(-e), loss)
        starts = _at_most(costs, k, k)

        def cost(starts):
            within = sum(costs.row(end - 1)[r] for r, end in zip(starts, [*starts[1:], k]))
            return within / (1 + (len(starts) - 1) * math.exp(-e))

        assert abs(cost(m.starts.tolist()) - cost(starts)) <= 1e-11 * float(costs.row(k - 1)[0])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_prior(data):
    k = data.draw(st.integers(2, 12))
    gaps = data.draw(st.lists(st.floats(1e-3, 1e3), min_size=k - 1, max_size=k - 1))
    prior = data.draw(st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1)), min_size=k, max_size=k).filter(any))
    epsilon = data.draw(st.one_of(st.sampled_from([0.0, 700.0, 1e6, math.inf]), st.floats(1e-6, 60)))
    loss = data.draw(st.sampled_from(LOSSES))
    values = np.concatenate([[0.0], np.cumsum(gaps)])
    m = br.rr_on_bins(values, prior, epsilon, loss)
    assert (
        m.certify().holds and (np.diff(m.points) > 0).all() and values[0] <= m.points[0] and m.points[-1] <= values[-1]
    )
    assert sum(m.bins, ()) == m.labels and abs(m.transition.sum(1) - 1).max() < 1e-12
    p = np.array(prior) / sum(prior)
    constant = br.rr_on_bins(values, prior, 0, loss)
    assert risk(m, p, loss) <= risk(constant, p, loss) + 1e-9 * (
        1 + abs(risk(constant, p, loss))
    )  # more epsilon never hurts
    out = m.privatize(np.append(values, [-1.0, 1e9]))
    assert set(out) <= set(m.outputs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_interval(data):
    k = data.draw(st.integers(1, 8))
    edges = np.concatenate([[0.0], np.cumsum(data.draw(st.lists(st.floats(1e-3, 1e3), min_size=k, max_size=k)))])
    prior = data.draw(st.lists(st.floats(0, 1), min_size=k, max_size=k).filter(any))
    epsilon = data.draw(st.one_of(st.sampled_from([700.0, 1e6, math.inf]), st.floats(0.01, 60)))
    delta = data.draw(st.one_of(st.none(), st.floats(1e-6, 1e4)))
    m = br.rp_with_prior(edges, prior, epsilon, delta, data.draw(st.sampled_from(["uniform", "project"])))
    assert m.certify().holds and m.low in edges and m.high in edges
    out = m.privatize(np.linspace(-1, edges[-1] + 1, 50))
    slack = 2 * m.step
    assert (out >= m.support[0]).all() and (out <= m.support[1] + slack).all()


def test_bits_are_fresh():
    m, y = br.rp_with_prior([0, 1, 2], [1, 1], 1), np.full(50, 0.5)
    assert (m.privatize(y) != m.privatize(y)).any() and (m.privatize(y, seed=1) == m.privatize(y, seed=1)).all()

"""Optimal bins against every partition and the O(k^2 d) table, and what must hold for any prior."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockrr as br
from blockrr.privacy.bins import _COSTS, _at_most
from blockrr.privacy.values import LOSSES, loss_table, risk

VALUES = [0, 1, 2, 4, 8]
PRIOR = [0.4, 0.3, 0.15, 0.1, 0.05]


def loss_of(y, p, a, loss, starts):
    "Expected loss of given bins, from the definition."
    total = 0.0
    for r, end in zip(starts, [*starts[1:], len(y)]):
        inside = (np.arange(len(y)) >= r) & (np.arange(len(y)) < end)
        w = p * np.where(inside, 1, a)
        best = y[np.argmin([w @ np.abs(y - c) for c in y])] if loss == "absolute" else w @ y / w.sum()
        total += (w @ loss_table(y, [best], loss)).item()
    return total / (1 + (len(starts) - 1) * a)


def least_of_all(y, p, epsilon, loss, most=99):
    "The least expected loss of all partitions into at most so many bins."
    inner = (c for d in range(min(len(y), most)) for c in combinations(range(1, len(y)), d))
    return min(loss_of(y, p, math.exp(-epsilon), loss, [0, *c]) for c in inner)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1, 2.5, 5, 8, 12, 30])
def test_against_every_partition(epsilon, loss):
    rng = np.random.default_rng([LOSSES.index(loss), int(100 * epsilon)])
    for k in (2, 4, 5, 6, 7, 8, 3, 6, 7, 8):
        y, p = np.sort(rng.gamma(0.7, 4, k)), rng.dirichlet(np.full(k, 0.6))
        most = int(rng.choice([2, 3, 99]))
        best = least_of_all(y, p, epsilon, loss, most)
        found = risk(br.rr_on_bins(y, p, epsilon, loss, None if most > k else most), p, loss)
        assert abs(found - best) <= 1e-11 * max(abs(best), (p @ loss_table(y, [p @ y], loss)).item(), 1)


@pytest.mark.parametrize("loss", LOSSES)
def test_iteration_equals_table(loss):
    rng = np.random.default_rng(LOSSES.index(loss))
    for k, e in zip(rng.integers(9, 70, 40), rng.uniform(0.05, 9, 40)):
        y, p = np.sort(rng.gamma(0.6, 3, k)), rng.dirichlet(np.full(k, 0.4))
        m = br.rr_on_bins(y, p, e, loss)
        costs = _COSTS[loss](y / (y[-1] - y[0]), p, math.exp(-e))

        def objective(starts):
            total = sum(costs.row(end - 1)[r] for r, end in zip(starts, [*starts[1:], k]))
            return total / (1 + (len(starts) - 1) * math.exp(-e))

        difference = objective(m.starts.tolist()) - objective(_at_most(costs, k, k))
        assert abs(difference) <= 1e-11 * float(costs.row(k - 1)[0])


@pytest.mark.parametrize(
    "loss, epsilon, groups, points, expected",
    [
        ("squared", 2, "01/234", [0.60608757, 2.88953718], 2.5574379271),
        ("poisson", 1, "01/234", [0.86956915, 2.17099542], 0.7860757699),
    ],
)
def test_known_bins(loss, epsilon, groups, points, expected):
    m = br.rr_on_bins(VALUES, PRIOR, epsilon, loss)
    assert "/".join("".join(str(VALUES.index(y)) for y in b) for b in m.bins) == groups
    assert m.points == pytest.approx(points, abs=6e-9) and m.certify().holds
    assert risk(m, PRIOR, loss) == pytest.approx(expected, abs=6e-11)


def test_limits_of_epsilon():
    mean = np.dot(VALUES, PRIOR)
    variance = np.dot(np.square(VALUES), PRIOR) - mean**2
    assert risk(br.rr_on_bins(VALUES, PRIOR, 0), PRIOR) == pytest.approx(variance)
    assert br.rr_on_bins(VALUES, PRIOR, math.inf).points.tolist() == VALUES
    assert br.rr_on_bins(VALUES, [0, 0, 1, 0, 0], math.inf, "poisson").outputs == (2.0,)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("epsilon", [0, 1e-12, 1, 50, 700, 1e6, math.inf])
def test_hard_priors(loss, epsilon):
    for p in (PRIOR, [0.5, 0, 0, 0, 0.5], [1, 0, 0, 0, 0], [1e-300, 1, 1, 1, 0], [1e-17, 0.5, 0.5, 1e-17, 0]):
        m = br.rr_on_bins(VALUES, p, epsilon, loss)
        assert m.certify().holds and np.isfinite(m.points).all() and (np.diff(m.points) > 0).all()
        assert abs(m.transition.sum(1) - 1).max() < 1e-12


@pytest.mark.parametrize("trial", range(300))
def test_labels_go_where_their_loss_is_least(trial):
    rng = np.random.default_rng(trial)
    k, loss = int(rng.integers(2, 30)), LOSSES[trial % 3]
    y, p = np.sort(rng.gamma(0.7, 4, k)), rng.dirichlet(np.full(k, 0.6))
    m = br.rr_on_bins(y, p, rng.uniform(0.1, 6), loss)
    assert (loss_table(y, m.points, loss).argmin(1) == m.bin_of).all()
    u = rng.uniform(y[0], y[-1], 50)
    u = u[~np.isin(u, y)]
    assert (m.bin_of[m.encode(u)] == loss_table(u, m.points, loss).argmin(1)).all()


@pytest.mark.parametrize("trial", range(150))
def test_labels_without_mass_too(trial):
    "Half of the labels have no mass: they go where their loss is least, and nobody goes down where labels go up."
    rng = np.random.default_rng([1, trial])
    y, loss = np.sort(rng.choice(60, 12, replace=False)) + 0.0, LOSSES[trial % 3]
    p = rng.dirichlet(np.full(12, 0.6)) * (rng.random(12) < 0.5) + np.eye(12)[trial % 12] * 1e-3
    most = None if trial % 4 else 3
    m = br.rr_on_bins(y, p, rng.uniform(0.1, 9), loss, most)
    each = loss_table(y, m.points, loss)
    assert each[range(12), m.bin_of] == pytest.approx(each.min(1), abs=1e-9)
    if trial < 12:
        best = least_of_all(y, p / p.sum(), m.epsilon, loss, most or 99)
        assert risk(m, p, loss) == pytest.approx(best, abs=1e-10)
    line = np.union1d(y, np.linspace(-1, 61, 125))
    assert (np.diff(m.bin_of[m.encode(line)]) >= 0).all()


def test_bounds_and_units():
    assert br.rr_on_bins(VALUES, PRIOR, 4, max_bins=5).outputs == br.rr_on_bins(VALUES, PRIOR, 4).outputs
    for scale in (1e-9, 1e9):
        scaled = br.rr_on_bins(np.array(VALUES) * scale, PRIOR, 4).points / scale
        assert scaled == pytest.approx(br.rr_on_bins(VALUES, PRIOR, 4).points, abs=1e-9)
    moved = br.rr_on_bins(np.array(VALUES) + 1e6, PRIOR, 1).points - 1e6
    assert moved == pytest.approx(br.rr_on_bins(VALUES, PRIOR, 1).points, abs=1e-6)


@pytest.mark.parametrize(
    "bad, word",
    [
        (([0, 2, 1], [1, 1, 1], 1), "strictly"),
        (([0, 1], [1, 1, 1], 1), "needs 2 weights"),
        (([0, 1], [1, 1], -1), "epsilon"),
        (([0, 1], [0, 0], 1), "all weights are zero"),
        (([0, 1], [1, 1], 1, "huber"), "loss"),
        (([0, 1], [1, 1], 1, "squared", 0), "max_bins: needs an integer >= 1, got 0"),
        (([0, 1], [1, 1], 1, "squared", 1.5), "max_bins: needs an integer >= 1, got float"),
        (([0, 1], [1, 1], 1, "squared", True), "max_bins: needs an integer >= 1, got bool"),
    ],
)
def test_refused(bad, word):
    with pytest.raises((TypeError, ValueError), match=word):
        br.rr_on_bins(*bad)


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
    most = risk(constant, p, loss)
    assert risk(m, p, loss) <= most + 1e-9 * (1 + abs(most))  # more epsilon never hurts
    out = m.privatize(np.append(values, [-1.0, 1e9]))
    assert set(out) <= set(m.outputs)

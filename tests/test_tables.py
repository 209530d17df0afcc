"""Property tests of the integer tables, the mechanisms and the containers."""
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import blockrr as br
from blockrr.privacy.sampling import DENOMINATOR, certify_table, integer_table

epsilons = st.one_of(st.just(0.0), st.floats(1e-300, 1e-3), st.floats(1e-9, 50), st.floats(50, 700), st.just(1e6), st.just(math.inf))


@st.composite
def priors(draw, top=40):
    K = draw(st.integers(2, top))
    return np.array(draw(st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1)), min_size=K, max_size=K))) + np.eye(K)[draw(st.integers(0, K - 1))] * 1e-3


@st.composite
def mechanisms(draw):
    prior, epsilon = draw(priors()), draw(epsilons)
    kind = draw(st.sampled_from(("rr", "rr_with_prior", "block_rr")))
    if kind == "rr": return br.rr(len(prior), epsilon)
    if kind == "rr_with_prior": return br.rr_with_prior(prior, epsilon)
    partition = br.partition_by_weight(prior, draw(st.floats(.05, 20)))
    order = sorted(partition.majority, key=lambda i: -prior[i])
    l = draw(st.integers(0, len(order)))
    return br.block_rr(br.Partition(partition.majority, partition.minority, order[:l]), epsilon)


@settings(max_examples=300, deadline=None)
@given(mechanisms())
def test_every_mechanism_is_private_in_integers(m):
    W = m.weights.tolist()
    assert all(sum(row) == DENOMINATOR for row in W)
    certificate = m.certify()
    assert certificate.holds and certificate.epsilon <= m.epsilon
    if math.isfinite(m.epsilon): assert (m.weights > 0).all()
    T, w = m.transition, m.weights / m.denominator
    big = T > 1e-6
    assert (np.abs(w - T)[big] <= 1e-12 * T[big]).all()
    assert (np.abs(w - T)[~big] <= 2.0**-58).all()


@pytest.mark.parametrize("epsilon", [0, 1e-300, 1e-12, 1e-9, .1, 1, 20, 43.5, 44.5, 700, math.inf])
@pytest.mark.parametrize("K", [2, 257, 1000])
def test_large_domains(K, epsilon):
    m = br.rr(K, epsilon)
    assert m.certify().holds and all(sum(row) == DENOMINATOR for row in m.weights.tolist())
    big = m.transition > 1e-6
    assert (np.abs(m.weights / DENOMINATOR - m.transition)[big] <= 1e-12 * m.transition[big]).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 12), st.floats(0, 5), st.integers(0, 2**32))
def test_any_private_matrix_becomes_a_private_table(K, epsilon, seed):
    rng = np.random.default_rng(seed)
    z = rng.dirichlet(np.ones(K)) * math.exp(-epsilon / 2)
    T = z * np.exp(rng.uniform(0, epsilon, (K, K)))
    lo, hi = z, z * math.exp(epsilon)
    for i in range(K):  # scale within the column bounds until the row sums to one
        t = (1 - lo.sum()) / (hi.sum() - lo.sum()) if hi.sum() > lo.sum() else 0
        T[i] = lo + (hi - lo) * t if not lo.sum() <= 1 <= hi.sum() else np.clip(T[i], lo, hi)
        for _ in range(200):
            gap = 1 - T[i].sum()
            room = (hi - T[i]) if gap > 0 else (T[i] - lo)
            if abs(gap) < 1e-15 or room.sum() == 0: break
            T[i] += np.sign(gap) * room * min(1, abs(gap) / room.sum())
    if np.abs(T.sum(1) - 1).max() > 1e-12: return
    W = integer_table(T, epsilon)
    assert certify_table(W, epsilon).holds
    assert np.abs(W / DENOMINATOR - T).max() < 1e-9


def test_a_matrix_that_is_not_private_is_refused():
    with pytest.raises(ValueError, match="not 1.0-private"): integer_table(np.array([[.8, .2], [.2, .8]]), 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=50), st.integers(0, 2**63))
def test_same_seed_same_labels_in_every_container(codes, seed):
    torch = pytest.importorskip("torch")
    m = br.rr(5, 1.0)
    want = m.privatize(codes, seed=seed)
    for column in (tuple(codes), np.array(codes, np.int8), pd.Series(codes, dtype="int64"), pl.Series(codes, dtype=pl.Int32),
                   torch.tensor(codes, dtype=torch.int64)):
        out = m.privatize(column, seed=seed)
        assert type(out) is type(column) and list(map(int, out)) == want
        if hasattr(column, "dtype"): assert out.dtype == column.dtype


def test_container_details():
    m = br.rr(["a", "b", "c"], 1.0)
    frame = pd.DataFrame({"y": ["a", "b", "c", "a"]}, index=[7, 5, 3, 1])
    frame["z"] = m.privatize(frame["y"], seed=1)
    assert frame["z"].notna().all()
    ordered = pd.Categorical(["a", "b"], categories=["b", "a"], ordered=True)
    out = m.privatize(pd.Series(ordered), seed=3)
    assert out.cat.ordered and list(out.cat.categories) == ["b", "a", "c"] and out.notna().all()
    assert m.privatize(pl.Series("y", ["a", "b"], dtype=pl.Categorical), seed=1).dtype == pl.Categorical
    torch = pytest.importorskip("torch")
    assert br.rr([0, 300], 0).privatize(torch.zeros(50, dtype=torch.uint8), seed=0).max() == 300


@pytest.mark.parametrize("bad", [[0, None], [0, float("nan")], [0, 9], np.array([0, np.nan]), pd.Series([0, None]), pl.Series([0, None]), [[0], [1]],
                                 "01", 3, None, {0, 1}])
def test_bad_labels_release_nothing(bad):
    with pytest.raises((ValueError, TypeError), match="labels"): br.rr(3, 1).privatize(bad)

"""Tables of cells give every label the share of its integers, to the last bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blockrr.privacy.integers import DENOMINATOR
from blockrr.privacy.lookup import _Alias, _Lookup


@st.composite
def tables(draw):
    "Any table of integers with the right row sums, private or not, with zeros and with ones."
    n, m, seed = draw(st.integers(1, 6)), draw(st.integers(1, 300)), draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, DENOMINATOR, (n, m - 1), endpoint=True), axis=1)
    grid = 1 << draw(st.sampled_from((0, 1, 45, 46, 47, 53, 61)))
    return np.diff(cuts // grid * grid, prepend=0, append=DENOMINATOR, axis=1)


@settings(max_examples=80, deadline=None)
@given(tables())
def test_lookup_cells_add_up_to_the_integers(W):
    if W.shape[1] > 255:
        W = np.concatenate([W[:, :254], W[:, 254:].sum(1, keepdims=True)], axis=1)
    sampler, m = _Lookup(W, np.arange(W.shape[1])), W.shape[1]
    for row, weights, edges in zip(sampler.table.reshape(-1, 1 << 16), W, np.cumsum(W, 1)):
        marked = np.flatnonzero(row == 255)
        mass = np.bincount(row[row < 255], minlength=m) << 46
        low = marked[:, None] << 46  # what a marked cell gives: its overlap with every interval
        ends = np.minimum(edges, low + (1 << 46)) - np.maximum(edges - weights, low)
        assert len(marked) < m and (mass + np.maximum(ends, 0).sum(0) == weights).all()


@settings(max_examples=80, deadline=None)
@given(tables())
def test_alias_cells_add_up_to_the_integers(W):
    sampler = _Alias(W, np.arange(W.shape[1]))
    size, full = 1 << sampler.k, DENOMINATOR >> sampler.k
    assert (sampler.cut >= 0).all() and (sampler.cut <= full).all()
    mass = sampler.cut.copy()
    np.add.at(
        mass,
        (np.arange(len(W))[:, None], sampler.table.reshape(len(W), size) & np.uint32(size - 1)),
        full - sampler.cut,
    )
    assert (mass[:, : W.shape[1]] == W).all() and not mass[:, W.shape[1] :].any()
    assert (sampler.table >> np.uint32(sampler.k) == np.where(sampler.cut == full, 0, sampler.cut >> 30).ravel()).all()


class Script:
    "Words that are given, to reach cells that chance would not."

    def __init__(self, *words):
        self.left = list(words)

    def __call__(self, n):
        return np.array([self.left.pop(0) for _ in range(n)], np.uint64)


@settings(max_examples=100, deadline=None)
@given(tables(), st.data())
def test_an_edge_decides_to_the_last_bit(W, data):
    W = W[:1, :255] + 0
    W[0, -1] += DENOMINATOR - W.sum()
    edges = np.cumsum(W[0]).tolist()
    inner = [e for e in edges[:-1] if 0 < e < DENOMINATOR]
    if not inner:
        return
    u = data.draw(st.sampled_from(inner)) - data.draw(st.integers(0, 1))
    want, out = next(j for j, e in enumerate(edges) if u < e), np.empty(1, np.uint8)
    lookup, noise = _Lookup(W, np.arange(W.shape[1])), data.draw(st.integers(0, 2**18 - 1))
    lookup.fill(
        np.zeros(1, np.uint8),
        np.array([u >> 46], np.uint16),
        Script((u & 2**46 - 1) << 18 | noise),
        lookup.scratch(),
        out,
    )
    assert out[0] == want
    alias = _Alias(W, np.arange(W.shape[1]))
    cell = data.draw(st.integers(0, (1 << alias.k) - 1))
    cut, full = int(alias.cut[0, cell]), DENOMINATOR >> alias.k
    if cut in (0, full):
        return
    for u, own in ((cut - 1, True), (cut, False)):
        prefix = cell << 32 - alias.k | u >> 30
        alias.fill(
            np.zeros(1, np.uint8),
            np.array([prefix], np.uint32),
            Script((u & 2**30 - 1) << 34),
            alias.scratch(),
            out := np.empty(1, alias.dtype),
        )
        assert out[0] == (cell if own else int(alias.table[cell]) & (1 << alias.k) - 1)

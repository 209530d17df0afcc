"""Property tests of the integer tables, the sampler, and the mechanisms."""

import math
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import blockrr as br
from blockrr import certify
from blockrr.privacy.integers import DENOMINATOR, certify_table, check_size, integer_table
from blockrr.privacy.lookup import _Alias, _Lookup
from blockrr.privacy.sampling import RandomBits

epsilons = st.one_of(
    st.just(0.0), st.floats(1e-300, 1e-3), st.floats(1e-9, 50), st.floats(50, 700), st.just(1e6), st.just(math.inf)
)


@st.composite
def priors(draw, top=40):
    K = draw(st.integers(2, top))
    return (
        np.array(draw(st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1)), min_size=K, max_size=K)))
        + np.eye(K)[draw(st.integers(0, K - 1))] * 1e-3
    )


@st.composite
def mechanisms(draw):
    prior, epsilon = draw(priors()), draw(epsilons)
    kind = draw(st.sampled_from(("rr", "rr_with_prior", "block_rr")))
    if kind == "rr":
        return br.rr(len(prior), epsilon)
    if kind == "rr_with_prior":
        return br.rr_with_prior(prior, epsilon)
    partition = br.partition_by_weight(prior, draw(st.floats(0.05, 20)))
    order = sorted(partition.majority, key=lambda i: -prior[i])
    l = draw(st.integers(0, len(order)))
    return br.block_rr(br.Partition(partition.majority, partition.minority, order[:l]), epsilon)


@st.composite
def large_mechanisms(draw):
    K, epsilon, seed = draw(st.integers(41, 1000)), draw(epsilons), draw(st.integers(0, 2**32))
    prior = np.random.default_rng(seed).dirichlet(np.full(K, draw(st.sampled_from((0.01, 0.3, 10.0)))))
    kind = draw(st.sampled_from(("rr", "rr_with_prior", "block_rr")))
    if kind == "rr":
        return br.rr(K, epsilon)
    if kind == "rr_with_prior":
        return br.rr_with_prior(prior, epsilon, k=draw(st.integers(1, K)))
    partition = br.partition_by_weight(prior, draw(st.floats(0.05, 20)))
    order = sorted(partition.majority, key=lambda i: -prior[i])
    return br.block_rr(
        br.Partition(partition.majority, partition.minority, order[: draw(st.integers(0, len(order)))]), epsilon
    )


def check_promises(m):
    "Issue by issue: row sums, privacy judged by an independent library, zeros, precision."
    W = m.weights
    assert W.dtype == np.int64 and (W >= 0).all() and all(sum(row.tolist()) == DENOMINATOR for row in W)
    certificate = m.certify()
    assert certificate.holds and certificate.epsilon <= m.epsilon
    if math.isfinite(m.epsilon):
        assert (W > 0).all()
        pairs = set(zip(W.max(0).tolist(), W.min(0).tolist()))
        with mpmath.workdps(60):
            bound = mpmath.exp(mpmath.mpf(m.epsilon)) if m.epsilon < 100 else mpmath.mpf(2) ** 144
            assert all(high <= low or high <= bound * low for high, low in pairs)
            worst = max(mpmath.log(mpmath.mpf(high) / low) for high, low in pairs)
            assert (
                worst <= certificate.epsilon <= worst * (1 + 4.5e-16)
            )  # a float up, and one more where its decimal lies below
    else:
        assert ((W == 0) == (m.transition == 0)).all()
    j, high, low = (x.index(v) for x, v in zip((m.outputs, m.labels, m.labels), certificate.worst))
    assert W[low, j] == 0 or math.isclose(
        math.log(W[high, j] / W[low, j]), certificate.epsilon, rel_tol=1e-9, abs_tol=3e-16
    )
    T, w = m.transition, W / DENOMINATOR
    big = T > 1e-6
    assert (np.abs(w - T)[big] <= 1e-12 * T[big]).all()
    assert (np.abs(w - T)[~big] <= 2.0**-58).all()


@settings(max_examples=60, deadline=None)
@given(large_mechanisms())
def test_large_mechanisms_are_private_in_integers(m):
    check_promises(m)


@settings(max_examples=300, deadline=None)
@given(mechanisms())
def test_every_mechanism_is_private_in_integers(m):
    check_promises(m)


@pytest.mark.parametrize("epsilon", [0, 5e-324, 1e-300, 1e-12, 1e-9, 0.1, 1, 20, 43.5, 44.5, 700, math.inf])
@pytest.mark.parametrize("K", [2, 257, 1000])
def test_large_domains(K, epsilon):
    check_promises(br.rr(K, epsilon))


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
            if abs(gap) < 1e-15 or room.sum() == 0:
                break
            T[i] += np.sign(gap) * room * min(1, abs(gap) / room.sum())
    if np.abs(T.sum(1) - 1).max() > 1e-12:
        return
    W = integer_table(T, epsilon)
    assert certify_table(W, epsilon).holds
    assert np.abs(W / DENOMINATOR - T).max() < 1e-9


def as_ideal(m, kept, other):
    "Whether every entry is as near as promised to one of its two ideals, given in 60 digits."
    w = {int(v): mpmath.mpf(int(v)) / DENOMINATOR for v in np.unique(m.weights)}
    return all(
        min(abs(p - t) / (1e-12 * t if t > 1e-6 else mpmath.mpf(2) ** -58) for t in (kept, other)) <= 1
        for p in w.values()
    )


@settings(max_examples=400, deadline=None)
@given(st.integers(2, 12), st.floats(7, 22))
@example(2, 11.377398423729575)  # smallest probabilities that are whole numbers of units, rounded down as floats
@example(2, 11.415306221561341)
@example(5, 13.096232540315865)
@example(10, 10.931868532107442)
def test_tables_are_near_the_formula_and_not_only_near_its_floats(K, epsilon):
    with mpmath.workdps(60):
        a = mpmath.exp(-mpmath.mpf(epsilon))
        assert as_ideal(br.rr(K, epsilon), 1 / (1 + (K - 1) * a), a / (1 + (K - 1) * a))


def test_a_large_probability_that_was_rounded_up():
    m = br.optimal_rr([5] + [1] * 19, 1.6796536949144575e-08, 5.0000000797835505e-08)
    check_promises(m)
    assert math.isclose(m.weights[1, 1] / DENOMINATOR, 5.0000000797835505e-08, rel_tol=1e-11)


def test_a_matrix_that_is_not_private_is_refused():
    with pytest.raises(ValueError, match="not 1.0-private"):
        integer_table(np.array([[0.8, 0.2], [0.2, 0.8]]), 1)


# ---- the sampler


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


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from((2, 10, 300)),
    st.lists(st.integers(0, 250_000), max_size=6),
    st.integers(1, 4),
    st.integers(0, 2**64),
)
def test_pieces_and_threads_do_not_change_what_a_seed_gives(K, cuts, threads, seed):
    m = br.rr(K, 2.0)
    column = np.arange(250_000) % K
    whole = m.privatize(column, seed=seed)
    cuts = [0, *sorted(cuts), len(column)]
    pieces = list(m.privatize_chunks((column[a:b] for a, b in zip(cuts, cuts[1:])), seed=seed, threads=threads))
    assert (np.concatenate(pieces) == whole).all() and (m.privatize(column, seed=seed, threads=threads) == whole).all()
    assert (m.privatize(column[:70_000], seed=seed) == whole[:70_000]).all()


@pytest.mark.parametrize("K", [10, 1000])
def test_memory_does_not_grow_with_the_column(K):
    m, column = br.rr(K, 1.0), np.zeros(8_000_000, np.uint8 if K <= 256 else np.uint16)
    for threads in (1, 2):
        m = pickle.loads(pickle.dumps(m))  # without its look-up table
        tracemalloc.start()
        out = m.privatize(column, threads=threads)
        extra = tracemalloc.get_traced_memory()[1] - out.nbytes
        tracemalloc.stop()
        assert out.dtype == column.dtype and extra < 64 * 2**20, extra


def test_streaming_is_lazy():
    seen = []

    def chunks():
        for i in range(10**9):
            seen.append(i)
            yield np.zeros(1000, np.uint8)

    released = br.rr(3, 1.0).privatize_chunks(chunks())
    assert seen == [] and len(next(released)) == 1000 and seen == [0]


# ---- randomness: threads, forks, pickles, and a machine without cryptography


def test_two_threads_on_one_mechanism():
    m, column = br.rr(50, 1.0), np.arange(200_000) % 50
    want, fresh = m.privatize(column, seed=4), pickle.loads(pickle.dumps(m))
    start = threading.Barrier(8)

    def work(seed):
        start.wait()
        return fresh.privatize(column, seed=seed)

    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(work, [4, None] * 4))
    assert all((out == want).all() for out in outs[::2])
    secret = outs[1::2]
    assert all((a != b).any() for i, a in enumerate(secret) for b in secret[:i])


@pytest.mark.parametrize("seed", [None, 3])
def test_threads_sharing_bits_never_get_the_same_ones(seed):
    bits = RandomBits(seed)
    with ThreadPoolExecutor(8) as pool:
        words = np.concatenate(list(pool.map(lambda _: bits.words(5_000), range(40))))
    assert len(np.unique(words)) == len(words)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("block", ["", "sys.modules['cryptography'] = None; "])
def test_a_fork_repeats_nothing(block):
    code = (
        block
        + """
import os, numpy as np, blockrr as br
from blockrr.privacy.sampling import RandomBits
m, y, bits = br.rr(10, 1.0), np.zeros(500, np.uint8), RandomBits()
m.privatize(y); bits.words(3); chunks = m.privatize_chunks([y] * 9); next(chunks)
read, write = os.pipe()
if (child := os.fork()) == 0:
    drawn = [m.privatize(y), next(chunks), bits.words(4), m.privatize(y, seed=1)]
    os.write(write, b"".join(d.tobytes() for d in drawn))
    os._exit(0)
os.waitpid(child, 0)
theirs, ours = os.read(read, 4096), (m.privatize(y), next(chunks), bits.words(4), m.privatize(y, seed=1))
cut = [0, 500, 1000, 1032, 1532]
print([theirs[a:b] == o.tobytes() for a, b, o in zip(cut, cut[1:], ours)])
"""
    )
    done = subprocess.run([sys.executable, "-c", "import sys; " + code.strip()], capture_output=True, text=True)
    assert done.stdout.strip() == "[False, False, False, True]", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_with_its_parents_number_repeats_nothing(monkeypatch):
    "In a new namespace of process numbers a child can have the number that its parent has in the old one."
    bits, number, (read, write) = RandomBits(), os.getpid(), os.pipe()
    bits.words(1)
    monkeypatch.setattr(os, "getpid", lambda: number)
    if (child := os.fork()) == 0:
        os.write(write, bits.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 99) != bits.words(4).tobytes()


def test_without_cryptography_the_system_gives_the_bits():
    m = br.rr(10, 1.0)
    code = """import sys; sys.modules["cryptography"] = None
import numpy as np, blockrr as br
from blockrr.privacy import sampling
assert sampling._secure_source() is sampling._from_system
m, y = br.rr(10, 1.0), np.zeros(300_000, np.uint8)
a, b = m.privatize(y), m.privatize(y, threads=2)
print(int((a == b).all()), *np.bincount(a, minlength=10), *m.privatize(y[:20], seed=5))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same, *rest = map(int, done.stdout.split())
    expected = 300_000 * m.transition[0]
    assert not same and (np.abs(rest[:10] - expected) < 6 * np.sqrt(expected)).all()
    assert rest[10:] == m.privatize(np.zeros(20, np.uint8), seed=5).tolist()


def test_a_pickled_mechanism_repeats_nothing():
    m, column = br.rr(10, 1.0), np.zeros(500, np.uint8)
    before = m.privatize(column)
    again = [pickle.loads(data).privatize(column) for data in [pickle.dumps(m)] * 2]
    assert (again[0] != again[1]).any() and (again[0] != before).any()
    assert (
        len(pickle.dumps(m)) < 10_000
        and (pickle.loads(pickle.dumps(m)).privatize(column, seed=1) == m.privatize(column, seed=1)).all()
    )


def test_one_label_is_no_domain():
    for make in (
        lambda: br.rr(1, 1),
        lambda: br.rr(["only"], 1),
        lambda: br.rr_with_prior([1], 1),
        lambda: br.rr(0, 1),
    ):
        with pytest.raises(ValueError, match="at least 2"):
            make()


def test_too_large_a_domain_is_refused_before_memory_is_taken():
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"1,000,000 labels by 1,000,000 outputs would need about 93,132.3 GiB"):
        check_size(10**6, 10**6)
    with pytest.raises(ValueError, match=r"93,132,257,461,547,856.* GiB"):
        br.rr(10**24, 1.0)
    with pytest.raises(ValueError, match="entries"):
        br.rr_with_prior(np.ones(50_000), 0.0)
    with pytest.raises(ValueError, match="entries"):
        br.block_rr(br.Partition(range(4_097), ()), 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 * 2**20, peak
    m = br.rr_with_prior(np.arange(50_000)[::-1] + 1, 1.0, k=3)  # many labels, few outputs: fits
    assert set(m.privatize([0, 49_999] * 100)) <= {0, 1, 2}


def test_negative_zeros_and_subnormal_numbers():
    for prior in ([-0.0, 1.0, 2.0], [-0.0, 5e-324, 1.0], [5e-324, 1e-310, 5e-324]):
        for epsilon in (5e-324, 1e-310, 1.0):
            for m in (br.rr_with_prior(prior, epsilon), br.block_rr(br.partition_by_weight(prior, 1.0, 1), epsilon)):
                check_promises(m)
                assert not np.signbit(m.transition).any()
    released = br.release([0, 1, 2] * 50, 5e-324, 3, "block_rr", sigma=1.0, l=1, seed=1)
    assert released.certificate.holds and released.certificate.epsilon <= 5e-324


# ---- certificates of other tables


def test_certify_is_exact_for_floats():
    rng = np.random.default_rng(0)
    for K in (2, 5, 30):
        T = rng.dirichlet(np.ones(K), K)
        c = certify(T)
        ratios = {
            (j, a, b): Fraction(T[a, j]) / Fraction(T[b, j]) for j in range(K) for a in range(K) for b in range(K)
        }
        worst = max(ratios.values())
        assert ratios[c.worst] == worst and c.holds and c.claimed == c.epsilon
        with mpmath.workdps(60):
            exact = mpmath.log(mpmath.mpf(worst.numerator) / worst.denominator)
        assert exact <= c.epsilon <= exact * (1 + 4.5e-16)  # as above
        assert not certify(T, math.nextafter(c.epsilon, 0)).holds and certify(T, c.epsilon).holds


def test_certify_catches_broken_tables():
    for epsilon in (0.5, 1.0, 3.0):
        m = br.rr(1000, epsilon)
        assert certify(m).holds and certify(m.weights, epsilon).holds
        W = m.weights.copy()
        W[7, 7] += 1000
        W[7, 8] -= 1000  # a part in 10**15 of a row
        found = certify(W, epsilon)
        assert not found.holds and found.worst[0] in (7, 8) and 7 in found.worst[1:]
        T = m.transition.copy()
        T[3, 4] = 0
        T[3] /= T[3].sum()
        assert certify(T).epsilon == math.inf and certify(T).worst[::2] == (4, 3)
    assert certify(np.eye(3), math.inf).holds and not certify(np.eye(3), 1e300).holds
    for bad in ([[0.5, 0.6]], [[math.nan, 1]], [[3, 1], [1, 2]], [[-1, 3], [1, 1]], [1, 2], [], "ab", None, [["a"]]):
        with pytest.raises((TypeError, ValueError)):
            certify(bad)
    for bad in (-1, math.nan, "1"):
        with pytest.raises((TypeError, ValueError), match="epsilon"):
            certify(br.rr(2, 1.0), bad)

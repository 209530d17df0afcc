"""Where labels are meant, a mechanism that releases anything else is refused, whichever function it meets."""

import copy
import math
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dask.base import tokenize
from hypothesis import given, settings
from hypothesis import strategies as st

import blockrr as br
from blockrr import certify
from blockrr.privacy import comparators as C
from blockrr.privacy.advise import predict
from blockrr.privacy.integers import DENOMINATOR
from blockrr.privacy.mechanism import label_columns
from blockrr.privacy.optimal import retention, tradeoff
from blockrr.privacy.stages import release_in_groups
from blockrr.privacy.unbiased import optimal_unbiased
from blockrr.privacy.values import ValueMechanism, clipped, risk

V, P = [0, 1, 2, 4, 8], [0.4, 0.3, 0.15, 0.1, 0.05]
NUMBERS = {
    "gaussian": C.gaussian(V, 1.0, 1e-2, cells=5),
    "staircase": C.staircase(V, 1.0, cells=7),
    "laplace": C.laplace(V, 1.0, 32),
    "discrete": C.discrete_laplace(V, 4.0),
    "bins": br.rr_on_bins(V, P, 3.0),
    "two cells": C.laplace(V, 1.0, 2),
    "unbiased": optimal_unbiased(V, P, 1.0),
    "interval": br.rp_with_prior(V, P[1:], 1.0),
}
LABELS = {
    "rr": br.rr(5, 1.0),
    "dropped": br.rr_with_prior(P, 1.0, k=2),
    "strings": br.rr(list("abcde"), 1.0),
    "values": C.randomized_response(V, 1.0),
    "exponential": C.exponential(V, 1.0),
    "one value": br.rr_on_bins(V, [0, 0, 1, 0, 0], 2.0),
    "turned": ValueMechanism(br.rr(5, 1.0).transition[:, ::-1], 1.0, V, outputs=V[::-1]),
}
MEANT = {
    "retention": retention,
    "tradeoff": lambda m: tradeoff(m, P),
    "gap": lambda m: br.frontier(P, 9.0).gap(m),
    "predict": lambda m: predict(m, P),
    "label_columns": label_columns,
    "release_in_groups": lambda m: release_in_groups(V, np.zeros(5, int), [m], 9.0),
}


@pytest.mark.parametrize("function", MEANT)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_no_labels(function, name):
    with pytest.raises((TypeError, ValueError), match="mechanisms?: (needs a|epsilon alone)"):
        MEANT[function](NUMBERS[name])


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_found_by_their_value(name):
    m = LABELS[name]
    assert [m.labels[c] for c in label_columns(m)] == list(m.outputs)
    own = [m.transition[i, m.outputs.index(v)] if v in m.outputs else 0 for i, v in enumerate(m.labels)]
    assert retention(m).tolist() == own
    out = release_in_groups(list(m.labels) * 50, np.zeros(250, int), [m], 9.0, seed=3)
    assert set(out.labels) <= set(m.outputs)
    likely = np.array([m.transition[:, m.outputs.index(v)] for v in out.labels])
    assert (out.likelihood == likely).all()


def test_a_turned_table_predicts_what_it_is():
    "The same table with its columns in another order is the same mechanism."
    assert predict(LABELS["turned"], P) == pytest.approx(predict(LABELS["values"], P), abs=0.02)
    assert tradeoff(LABELS["turned"], P) == tradeoff(LABELS["values"], P)


def test_delta_is_not_compared_with_a_frontier_of_epsilon():
    T = C.gaussian(V, 1.0, 1e-2, cells=5).transition
    m = C.ApproximateMechanism(T, 1.0, 1e-2, V)  # its outputs are the labels
    assert retention(m).tolist() == np.diag(T).tolist()
    with pytest.raises(ValueError, match="the frontier is of epsilon alone, got ApproximateMechanism.*delta=0.01"):
        MEANT["gap"](m)
    with pytest.raises(ValueError, match="epsilon alone is certified"):
        MEANT["release_in_groups"](m)


@pytest.mark.parametrize("bad", [None, br.rr(5, 1.0), NUMBERS["interval"], np.eye(5)])
def test_numeric_functions_name_what_they_need(bad):
    for f in (lambda: risk(bad, P), lambda: clipped(bad)):
        with pytest.raises(TypeError, match="mechanism: needs a ValueMechanism, got"):
            f()


def test_a_statement_matches_tables_only():
    statement = br.release([0, 1] * 9, 1.0, 2, "rr").statement
    assert statement.matches(br.rr(2, 1.0)) and not statement.matches(br.rr(2, 2.0))
    for other in (NUMBERS["interval"], NUMBERS["gaussian"], None):
        assert not statement.matches(other)


def test_infinite_epsilon_is_the_label_itself():
    for make in (C.laplace, C.staircase, C.exponential):
        assert release_in_groups(V, np.zeros(5, int), [make(V, math.inf)], math.inf).labels == V


# ---- one mechanism: release, certificate, counts

T3 = br.rr(3, 1.0).transition
M3 = br.Mechanism(T3, 1.0, ("red", "green", "blue"), name="RR")
COUNTING = br.Mechanism(T3, 1.0)
COLUMN = np.arange(200_000) % 3


def test_what_is_no_mechanism():
    half = np.full((2, 2), 0.5)
    for call, text in (
        (lambda: br.Mechanism(np.full((2, 3), 1 / 3), 1), "^transition: needs shape"),
        (lambda: br.Mechanism(half, 1, outputs=[1, 1]), "^outputs: needs distinct labels"),
        (lambda: br.Mechanism(half, -1), "^epsilon: needs"),
        (lambda: br.Mechanism(half, 1, [0, 1, 2]), "^transition: needs shape"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_columns_and_square_say_which_label_an_output_is():
    turned = br.Mechanism([[0.7, 0.3], [0.3, 0.7]], 1, ("no", "yes"), outputs=("yes", "no"))
    assert turned.columns.tolist() == [1, 0]
    assert turned.square().tolist() == [[0.3, 0.7], [0.7, 0.3]]
    large = br.rr(5000, 1.0)
    assert large.columns.tolist() == list(range(5000))
    with pytest.raises(ValueError, match="^square: needs at most 4,096 labels"):
        large.square()
    with pytest.raises(ValueError, match="no labels"):
        NUMBERS["laplace"].square()


def test_the_container_is_kept_and_nothing_is_remembered():
    many = ["red"] * 100
    assert isinstance(M3.privatize(("red",)), tuple) and M3.privatize([], seed=1) == []
    assert set(M3.privatize(many * 10)) == set(M3.outputs)
    M3.privatize(many)
    assert len(pickle.dumps(M3)) < 2_000  # the look-up table is made again where it is needed
    assert copy.deepcopy(M3).privatize(many) != M3.privatize(many)


def test_a_plan_has_one_name_on_every_machine():
    tokens = {tokenize(m.privatize) for m in (COUNTING, pickle.loads(pickle.dumps(COUNTING)))}
    assert len(tokens) == 1


def test_threads_and_chunks_change_nothing():
    whole = COUNTING.privatize(COLUMN, seed=7)
    assert (COUNTING.privatize(COLUMN, seed=7, threads=2) == whole).all()
    chunks = COUNTING.privatize_chunks([COLUMN[:5], COLUMN[5:5], COLUMN[5:]], seed=7, threads=2)
    assert (np.concatenate(list(chunks)) == whole).all()
    one, other = (list(COUNTING.privatize_chunks([COLUMN[:500], COLUMN[500:999]])) for _ in range(2))
    assert not np.array_equal(np.concatenate(one), np.concatenate(other))


def test_bad_chunks_threads_and_seeds():
    with pytest.raises(ValueError, match=r"row 1 \(of type"):
        next(COUNTING.privatize_chunks([[0, 9]]))
    with pytest.raises(TypeError, match="^chunks: needs"):
        COUNTING.privatize_chunks(3)
    for bad in (0, "2", 1.5):
        with pytest.raises((TypeError, ValueError), match="^threads: needs"):
            COUNTING.privatize([0], threads=bad)
    for bad in (-1, "7"):  # at once, not at the first chunk
        with pytest.raises((TypeError, ValueError), match="^seed: needs"):
            COUNTING.privatize_chunks([], seed=bad)


def test_a_long_column_is_released_in_pieces():
    "1.2 million labels: in pieces unless they are uint8, to the same labels."
    wide = np.tile(COLUMN, 6)
    for kind in (np.int64, np.float32):
        made = COUNTING.privatize(wide.astype(kind), seed=7)
        assert made.dtype == np.dtype(kind)
        assert (made.astype(np.uint8) == COUNTING.privatize(wide.astype(np.uint8), seed=7)).all()
    spoilt = wide.astype(np.int64)
    spoilt[1_100_000] = 99
    with pytest.raises(ValueError, match="row 1100000"):
        COUNTING.privatize(spoilt)


def test_certify_takes_mechanisms_integers_and_matrices():
    bins = NUMBERS["bins"]
    assert br.certify(bins) == bins.certify() and not br.certify(M3, 0.5).holds
    assert br.certify(M3.weights).epsilon == M3.certify().epsilon
    assert br.certify([[1, 0], [0, 1]]).epsilon == math.inf
    assert br.certify([[3, 1], [1, 3]]).claimed == br.certify([[3, 1], [1, 3]]).epsilon
    tenths = np.round(br.rr(2, 2.0).transition, 3)
    assert not br.certify(tenths, 2).holds  # tenths of a percent
    for bad in ([[3, 1], [1, 2]], [[-1, 2], [1, 0]], [1, 2], [[]], "ab", None):
        with pytest.raises((TypeError, ValueError)):
            br.certify(bad)


def test_counts_of_other_outputs_are_refused():
    for bad, text in (
        ([1, 2], "3 finite numbers"),
        (["a", "b", "c"], "sequence"),
        ({"red": 1}, "each of the 3 labels"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^counts: needs .*{text}"):
            M3.debias(bad)


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


def test_a_pickled_mechanism_repeats_nothing():
    m, column = br.rr(10, 1.0), np.zeros(500, np.uint8)
    before = m.privatize(column)
    again = [pickle.loads(data).privatize(column) for data in [pickle.dumps(m)] * 2]
    assert (again[0] != again[1]).any() and (again[0] != before).any()
    assert (
        len(pickle.dumps(m)) < 10_000
        and (pickle.loads(pickle.dumps(m)).privatize(column, seed=1) == m.privatize(column, seed=1)).all()
    )


def test_negative_zeros_and_subnormal_numbers():
    for prior in ([-0.0, 1.0, 2.0], [-0.0, 5e-324, 1.0], [5e-324, 1e-310, 5e-324]):
        for epsilon in (5e-324, 1e-310, 1.0):
            for m in (br.rr_with_prior(prior, epsilon), br.block_rr(br.partition_by_weight(prior, 1.0, 1), epsilon)):
                check_promises(m)
                assert not np.signbit(m.transition).any()
    released = br.release([0, 1, 2] * 50, 5e-324, 3, "block_rr", sigma=1.0, l=1, seed=1)
    assert released.certificate.holds and released.certificate.epsilon <= 5e-324


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


def test_a_large_probability_that_was_rounded_up():
    m = br.optimal_rr([5] + [1] * 19, 1.6796536949144575e-08, 5.0000000797835505e-08)
    check_promises(m)
    assert math.isclose(m.weights[1, 1] / DENOMINATOR, 5.0000000797835505e-08, rel_tol=1e-11)


@pytest.mark.parametrize("epsilon", [0, 0.5, 3, math.inf])
def test_likelihood_is_the_column_of_what_was_released(epsilon):
    labels = ["a", "b", "c", "d"]
    for m in (br.rr(labels, epsilon), br.rr_with_prior([4, 3, 2, 1], epsilon, k=3, labels=labels)):
        released = [m.outputs[0], m.outputs[2]]
        np.testing.assert_allclose(m.likelihood(released), m.square().T[[0, 2]], atol=1e-15)
        assert m.likelihood(released).shape == (2, 4)


def test_likelihood_refuses_what_is_never_released():
    m = br.rr_with_prior([4, 3, 2, 1], 1, k=3, labels=["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="released: row 1 holds a label that .* never releases"):
        m.likelihood(["a", "d"])
    with pytest.raises(ValueError, match="released|labels"):
        m.likelihood(["a", "e"])

"""Where labels are meant, a mechanism that releases anything else is refused, whichever function it meets."""

import copy
import math
import pickle

import numpy as np
import pytest
from dask.base import tokenize

import blockrr as br
from blockrr.privacy import comparators as C
from blockrr.privacy.advise import predict
from blockrr.privacy.mechanism import label_columns
from blockrr.privacy.optimal import evaluate, retention
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
    "evaluate": lambda m: evaluate(m, P),
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
    assert evaluate(LABELS["turned"], P) == evaluate(LABELS["values"], P)


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

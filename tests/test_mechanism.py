"""Where labels are meant, a mechanism that releases anything else is refused, whichever function it meets."""

import math

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy import comparators as C
from blockrr.privacy.advise import predict
from blockrr.privacy.mechanism import label_columns
from blockrr.privacy.optimal import place, retention
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
    "place": lambda m: place(m, P),
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
    assert place(LABELS["turned"], P) == place(LABELS["values"], P)


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

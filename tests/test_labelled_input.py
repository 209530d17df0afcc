"""Labelled weights and counts go by their labels or are refused; what numbers must be."""

from collections import Counter

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import blockrr as br
from blockrr.learning import images
from blockrr.privacy import (
    advise,
    audit,
    checks,
    comparators,
    optimal,
    partition,
    program,
    regression,
    stages,
    unbiased,
    values,
)

DOMAIN = ["never", "once", "often"]


ANSWERS = pd.Series(["often"] * 70 + ["never"] * 25 + ["once"] * 5)


SHARES = [0.25, 0.05, 0.7]  # in the domain's order


COUNTED = ANSWERS.value_counts(normalize=True)  # in the order of frequency: often, never, once


VALUES = [0, 1, 2, 4, 8]


WEIGHTS = [0.4, 0.3, 0.15, 0.1, 0.05]


def same(a, b):
    "Equality of numbers, arrays, mechanisms and nested tuples of these."
    if isinstance(a, br.Mechanism):
        return a.labels == b.labels and a.outputs == b.outputs and np.array_equal(a.weights, b.weights)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b)


def with_values(f):
    "A taker whose domain is VALUES."
    f.values = True
    return f


TAKERS = {
    "check_prior": lambda p: checks.check_prior(p, DOMAIN),
    "check_prior, Domain": lambda p: checks.check_prior(p, br.Domain(DOMAIN)),
    "rr_with_prior": lambda p: br.rr_with_prior(p, 1.0, labels=DOMAIN),
    "rr_with_prior, k": lambda p: br.rr_with_prior(p, 1.0, k=1, labels=DOMAIN),
    "optimal_rr": lambda p: br.optimal_rr(p, 1.0, 0.1, labels=DOMAIN),
    "posterior": lambda p: br.rr(DOMAIN, 1.0).posterior(p),
    "posterior, many labels": lambda p: br.RandomizedResponse(DOMAIN, 1.0).posterior(p, "often"),
    "debias": lambda p: br.rr(DOMAIN, 1.0).debias(p),
    "debias, outputs in another order": lambda p: br.Mechanism(
        np.eye(3)[::-1] * 0.5 + 1 / 6, 3.0, DOMAIN[::-1], outputs=DOMAIN
    ).debias(p),
    "debias, many labels": lambda p: br.RandomizedResponse(DOMAIN, 1.0).debias(p),
    "tradeoff": lambda p: optimal.tradeoff(br.rr_with_prior(SHARES, 1.0, k=2, labels=DOMAIN), p),
    "predict": lambda p: advise.predict(br.rr(DOMAIN, 1.0), p),
    "advise": lambda p: [o.quality for o in br.advise(p, 1.0, labels=DOMAIN).ranking],
    "release": lambda p: br.release(ANSWERS, 1.0, DOMAIN, "rr_with_prior", prior=p, seed=1).prior,
    "release, optimal_rr": lambda p: (
        br.release(ANSWERS, 1.0, DOMAIN, "optimal_rr", prior=p, seed=1, floor=0.5).mechanism
    ),
    "prior_by_em": lambda p: br.prior_by_em(p, pd.DataFrame(br.rr(DOMAIN, 1.0).transition, DOMAIN, DOMAIN)).prior,
    "rr_on_bins": with_values(lambda p: br.rr_on_bins(VALUES, p, 1.0)),
    "risk": with_values(lambda p: values.risk(comparators.randomized_response(VALUES, 1.0), p)),
    "guide": with_values(lambda p: [c.loss for c in regression.guide(VALUES, p, 2.0).choices]),
    "optimal_unbiased": with_values(lambda p: unbiased.optimal_unbiased(VALUES, p, 2.0)),
}


WITHOUT_DOMAIN = {
    "check_prior": checks.check_prior,
    "best_k": lambda p: br.best_k(p, 1.0),
    "frontier": lambda p: br.frontier(p, 1.0).prior,
    "best_sigma": lambda p: optimal.best_sigma(p, 1.0),
    "weight_matrix": lambda p: br.weight_matrix(p, 1.0),
    "partition_by_weight": lambda p: br.partition_by_weight(p, 1.0).majority,
    "rr_with_prior": lambda p: br.rr_with_prior(p, 1.0),
    "optimal_rr": lambda p: br.optimal_rr(p, 1.0, 0.1),
    "advise": lambda p: [o.quality for o in br.advise(p, 1.0).ranking],
    "prior_by_em": lambda p: br.prior_by_em(p, br.rr(3, 1.0).transition).prior,
    "rp_with_prior": lambda p: br.rp_with_prior([0, 1, 2, 3], p, 1.0).support,
}


@pytest.mark.parametrize("name", TAKERS)
def test_a_labelled_vector_goes_by_its_labels(name):
    taker = TAKERS[name]
    labels, numbers = (VALUES, WEIGHTS) if hasattr(taker, "values") else (DOMAIN, SHARES)
    wanted = taker(numbers)
    series = pd.Series(numbers, index=labels)
    for order in (labels[::-1], labels[1:] + labels[:1], sorted(labels, key=lambda v: -series[v])):
        assert same(taker(series[order]), wanted)
        assert same(taker(series[order].to_dict()), wanted)
    for bad in (
        series[:-1],
        series.rename({labels[0]: "zz"}),
        pd.concat([series, series[:1]]),
        pd.concat([series, pd.Series({"zz": 0.1})]),
    ):
        with pytest.raises(ValueError, match="^(prior|counts): needs each of the"):
            taker(bad)
        if len(set(bad.index)) == len(bad):
            with pytest.raises(ValueError, match="^(prior|counts): needs each of the"):
                taker(bad.to_dict())


@pytest.mark.parametrize("name", WITHOUT_DOMAIN)
def test_without_a_domain_labels_are_the_indices(name):
    taker = WITHOUT_DOMAIN[name]
    wanted = taker([25, 5, 70])
    assert same(taker(pd.Series([70, 25, 5], index=[2, 0, 1])), wanted)
    assert same(taker({2: 70, 0: 25, 1: 5}), wanted)
    assert same(taker(pd.Series([25, 5, 70])), wanted)
    for bad in (ANSWERS.value_counts(), ANSWERS.value_counts().to_dict(), pd.Series([25, 5, 70], index=[1, 2, 3])):
        with pytest.raises(ValueError, match="^(prior|counts): needs each of the labels 0 .. 2 once"):
            taker(bad)


def test_the_trap_of_value_counts():
    assert br.rr_with_prior(COUNTED, 1.0, k=1, labels=DOMAIN).outputs == ("often",)
    m = br.rr(DOMAIN, 3.0)
    assert m.debias(pd.Series(m.privatize(ANSWERS.tolist() * 100, seed=1)).value_counts()) == pytest.approx(
        [2500, 500, 7000], abs=300
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.value_counts(normalize=True),
        lambda s: s.value_counts(),
        lambda s: Counter(s),
        lambda s: s.astype("category").value_counts(),
        lambda s: s.astype("string").value_counts(),
        lambda s: s.astype(pd.ArrowDtype(pa.string())).value_counts(),
        lambda s: s.value_counts().astype("Int64"),
        lambda s: dd.from_pandas(s.value_counts(), npartitions=2),
    ],
)
def test_kinds_of_labelled_vectors(make):
    assert checks.check_prior(make(ANSWERS), DOMAIN) == pytest.approx(SHARES, abs=1e-15)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.to_frame("y").value_counts(),
        lambda s: s.value_counts().reset_index(),
        lambda s: pl.Series(s.tolist()).value_counts(),
        lambda s: pa.array(s.tolist()).value_counts(),
        lambda s: pa.table({"y": DOMAIN, "n": SHARES}),
        lambda s: s.value_counts().values.view("M8[s]"),
        lambda s: np.ma.array(SHARES, mask=[0, 0, 1]),
        lambda s: np.array([1 + 1j, 2, 3]),
        lambda s: [[1], [1, 2]],
    ],
)
def test_what_cannot_be_read_is_refused_by_name(make):
    with pytest.raises((TypeError, ValueError), match="^prior: needs"):
        checks.check_prior(make(ANSWERS), DOMAIN)


def test_row_numbers_are_labels_only_where_the_domain_has_them():
    weights = pd.Series([1, 2, 5])
    for labels in (DOMAIN, [0.5, 1.5, 2.5], [10, 20, 30]):
        assert same(checks.in_label_order(weights, labels, "prior"), [1, 2, 5])
    assert same(checks.in_label_order(weights, [2, 0, 1], "prior"), [5, 1, 2])
    assert same(checks.in_label_order(weights, [0.0, 1.0, 2.0], "prior"), [1, 2, 5])
    for labels in ([1, 2, 3], [0, 1, 4], ["a", "b", 0], ["a", "b"], list("abcd")):
        with pytest.raises(ValueError, match="prior: needs each"):
            checks.in_label_order(weights, labels, "prior")
    for odd in (
        weights[::-1],
        weights.iloc[[2, 0, 1]],
        pd.Series([1, 2, 5], index=[0, 1, 2]),
        pd.Series([1, 2, 5], index=range(1, 4)),
        {0: 1, 1: 2, 2: 5},
    ):
        with pytest.raises(ValueError, match="prior: needs each"):
            checks.in_label_order(odd, DOMAIN, "prior")


def test_bins_of_a_histogram_are_no_labels():
    seen = pd.cut(pd.Series([0.5, 1.5, 1.6, 2.5, 2.6, 2.7]), [0, 1, 2, 3]).value_counts()
    with pytest.raises(ValueError, match="prior: needs each"):
        br.rp_with_prior([0, 1, 2, 3], seen, 1.0)


def test_tables_go_by_their_labels():
    T = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.25, 0.25, 0.5]])
    frame = pd.DataFrame(T, DOMAIN, DOMAIN)
    mixed = frame.loc[["often", "never", "once"], ["once", "often", "never"]]
    assert same(br.Mechanism(mixed, 2.0, DOMAIN).weights, br.Mechanism(T, 2.0, DOMAIN).weights)
    kept = br.Mechanism(
        pd.DataFrame([[0.4, 0.6], [0.6, 0.4], [0.5, 0.5]], DOMAIN, ["once", "never"]),
        2.0,
        DOMAIN,
        outputs=["never", "once"],
    )
    assert kept.transition.tolist() == [[0.6, 0.4], [0.4, 0.6], [0.5, 0.5]]
    with pytest.raises(ValueError, match="transition: needs each"):
        br.Mechanism(mixed, 2.0)
    with pytest.raises(ValueError, match="transition: needs each"):
        br.Mechanism(pl.DataFrame(T, schema=["a", "b", "c"]), 2.0, DOMAIN)
    assert same(br.Mechanism(pd.DataFrame(T), 2.0, DOMAIN).weights, br.Mechanism(T, 2.0, DOMAIN).weights)  # row numbers
    priors = pd.DataFrame([[0.9, 0.1], [0.1, 0.9]], index=["later", "earlier"], columns=["b", "a"])
    group, tables = stages.row_priors(priors, 1.0, ["a", "b"])
    assert [tables[g].outputs for g in group] == [("b",), ("a",)]
    W = pd.DataFrame([[0, 1.0], [0, 0]], index=[1, 0], columns=[0, 1])
    assert program.solve_program(W, 1.0)[0] == pytest.approx(program.solve_program([[0, 0], [0, 1.0]], 1.0)[0])
    with pytest.raises(ValueError, match="weights: needs each"):
        program.solve_program(frame, 1.0)


def test_rows_with_labels_of_their_own():
    "They were laid upon each other by position."
    T = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.25, 0.25, 0.5]])
    wanted = br.Mechanism(T, 2.0, DOMAIN)
    rows = [pd.Series(row, DOMAIN) for row in T]
    mixed = [rows[0][["often", "never", "once"]], rows[1].to_dict(), T[2]]
    assert same(br.Mechanism(mixed, 2.0, DOMAIN), wanted)
    assert br.certify([*mixed[:2], rows[2]]).epsilon == br.certify(T).epsilon
    with pytest.raises(ValueError, match="^table: needs labels at all rows or at none"):
        br.certify(mixed)
    group, tables = stages.row_priors([COUNTED, COUNTED.to_dict(), SHARES], 0.1, DOMAIN)
    assert [tables[g].outputs for g in group] == [("often",)] * 3
    for bad in ([rows[0], rows[1].rename({"once": "zz"})], [rows[0], rows[1][:2]]):
        with pytest.raises(ValueError, match="^transition: needs each of the"):
            br.Mechanism(bad, 2.0, DOMAIN)
        with pytest.raises(ValueError, match="^priors: needs each of the"):
            stages.row_priors(bad, 1.0, DOMAIN)
        with pytest.raises(ValueError, match="^table: needs"):
            br.certify(bad)
    with pytest.raises(ValueError, match="^transition: needs each of the labels 0 .. 2"):
        br.Mechanism(rows, 2.0)
    with pytest.raises(ValueError, match="^weights: needs each of the labels 0 .. 2"):
        program.solve_program(rows, 1.0)


def test_a_named_tuple_goes_by_its_names():
    for row in pd.DataFrame([[0.7, 0.25, 0.05]], columns=["often", "never", "once"]).itertuples(index=False):
        assert same(checks.check_prior(row, DOMAIN), SHARES)
        with pytest.raises(ValueError, match="prior: needs each"):
            checks.check_prior(row)
        with pytest.raises(ValueError, match="prior: needs each"):
            checks.check_prior(row, ["a", "b", "c"])


def test_counts_of_images_go_by_their_classes():
    labels = np.repeat([0, 1, 2], 5)
    wanted = images.first_rows(labels, [2, 3, 1])
    assert same(images.first_rows(labels, pd.Series([1, 2, 3], index=[2, 0, 1])), wanted)
    assert same(images.first_rows(labels, {2: 1, 0: 2, 1: 3}), wanted)
    with pytest.raises(ValueError, match="counts: needs each of the labels 0 .. 2 once"):
        images.first_rows(labels, pd.Series([1, 2, 3], index=["a", "b", "c"]))
    digits = images.digits()
    few = pd.Series(range(10, 20), index=range(9, -1, -1))
    chosen = images.imbalanced(digits, few, few // 10)
    assert np.bincount(chosen.train_labels).tolist() == list(range(19, 9, -1))
    assert np.bincount(chosen.test_labels).tolist() == [1] * 10


def test_pairs_of_counts_are_not_the_keys_of_a_dict():
    wanted = audit.epsilon_lower_bound((30, 2), (100, 100))
    assert audit.epsilon_lower_bound({1: 2, 0: 30}, (100, 100)) == wanted
    with pytest.raises(ValueError, match="hits: needs"):
        audit.epsilon_lower_bound({30: "a", 2: "b"}, (100, 100))
    with pytest.raises(ValueError, match="hits: needs"):
        audit.epsilon_lower_bound((ANSWERS.value_counts(), ANSWERS.value_counts()[::-1]), (100, 100))


def test_groups_and_clusters_have_the_rows_of_the_labels():
    y, m = (
        pd.Series(["a", "b", "b", "a"], index=[3, 1, 2, 0]),
        [br.rr(["a", "b"], 50.0), br.rr_with_prior([1, 0], 50.0, k=1, labels=["a", "b"])],
    )
    group = pd.Series([0, 0, 1, 1], index=y.index)
    assert stages.release_in_groups(y, group, m, 50.0).labels.tolist() == ["a", "b", "a", "a"]
    assert stages.release_in_groups(y, group.to_numpy(), m, 50.0).labels.tolist() == ["a", "b", "a", "a"]
    assert stages.release_in_groups(y.tolist(), group, m, 50.0).labels == ["a", "b", "a", "a"]
    with pytest.raises(ValueError, match="^group: needs the index of the labels"):
        stages.release_in_groups(y, group.sort_index(), m, 50.0)
    with pytest.raises(ValueError, match="^cluster: needs the index of the labels"):
        stages.cluster_priors(y, group.sort_index(), 2, ["a", "b"], 1.0)


def test_neighbours_go_by_their_labels():
    near = pd.Series([(2,), (0,), (1,)], index=[2, 0, 1])
    assert partition.Partition((0, 1, 2), (), neighbours=near).neighbours == ((0,), (1,), (2,))


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda bad: br.rr(2, 1.0).debias(bad), "counts"),
        (lambda bad: br.RandomizedResponse(2, 1.0).debias(bad), "counts"),
        (lambda bad: br.prior_by_em(bad, np.eye(2)), "counts"),
        (lambda bad: stages.row_priors([bad], 1.0), "priors"),
        (lambda bad: values.loss_table(bad, [1.0]), "labels"),
        (lambda bad: values.loss_table([1.0], bad), "outputs"),
        (lambda bad: values.ValueMechanism(np.eye(2) / 4 + 0.375, 1.0, [0, 1], outputs=bad), "outputs"),
        (lambda bad: checks.check_prior(bad), "prior"),
        (lambda bad: br.rp_with_prior([0, 1, 2], [1, 1], 1.0).density(bad, 0.5), "released"),
        (lambda bad: program.solve_program([bad, bad], 1.0), "weights"),
    ],
)
@pytest.mark.parametrize(
    "bad", [["secret", "b"], [None, "secret"], [b"secret", 1], [1, 2j], ["2026-01-01", object()], [[1], [1, 2]]]
)
def test_junk_numbers_are_refused_by_name_and_not_shown(call, name, bad):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: needs") as refused:
        call(bad)
    assert "secret" not in str(refused.value)


def test_ragged_tables():
    with pytest.raises(ValueError, match="^transition: needs a matrix"):
        br.Mechanism([[0.6, 0.4], [0.3]], 1.0)
    with pytest.raises(ValueError, match="^table: needs a matrix"):
        br.certify([[0.6, 0.4], [0.3]])

"""A release in groups certifies epsilon alone, of labels alone, on a condition that it states."""

import json
import math
import warnings
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy import comparators as C
from blockrr.privacy import stages
from blockrr.privacy.integers import Certificate
from blockrr.privacy.ledger import Ledger
from blockrr.privacy.stages import (
    COMPOSITION,
    PROMISED,
    certify_groups,
    cluster_priors,
    prior_by_em,
    release_in_groups,
    row_priors,
    two_stage,
)
from blockrr.privacy.unbiased import optimal_unbiased

VALUES, PRIOR = [0, 1, 2, 4, 8], [0.4, 0.3, 0.15, 0.1, 0.05]


GAUSSIANS = {
    "coarse": C.gaussian(range(5), 1.0, 1e-2, cells=5),
    "fine": C.gaussian(range(5), 1.0, 1e-5),
    "the label itself": C.gaussian(range(5), math.inf, 1e-5),
}


@pytest.mark.parametrize("epsilon", [1.0, 3.06, 50.0, math.inf])
@pytest.mark.parametrize("name", GAUSSIANS)
def test_a_gaussian_is_refused(name, epsilon):
    why = "epsilon alone is certified here, got ApproximateMechanism.*delta=.*release its rows with its own privatize"
    for mechanisms in ([GAUSSIANS[name]], [br.rr(range(5), 1.0), GAUSSIANS[name]]):
        with pytest.raises(ValueError, match=why):
            release_in_groups([0, 4] * 50, np.zeros(100, int), mechanisms, epsilon)
        with pytest.raises(ValueError, match=why):
            certify_groups(mechanisms, epsilon)


NUMERIC = {
    "bins": br.rr_on_bins(VALUES, PRIOR, 3.0),
    "laplace": C.laplace(VALUES, 3.0),
    "staircase": C.staircase(VALUES, 3.0, cells=5),
    "unbiased": optimal_unbiased(VALUES, PRIOR, 3.0),
    "discrete": C.discrete_laplace(VALUES, 3.0),
    "gaussian": C.gaussian(VALUES, 3.0, 0.1, cells=3),
    "interval": br.rp_with_prior(VALUES, PRIOR[1:], 3.0),
}


@pytest.mark.parametrize("name", NUMERIC)
def test_numbers_are_refused_before_the_debit(tmp_path, name):
    "Indices of bins were released as labels, and with more outputs than labels the release failed after the debit."
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.spend("d", 0.5, 9)
    with pytest.raises((TypeError, ValueError), match="mechanisms: "):
        release_in_groups([8.0] * 6, np.zeros(6, int), [NUMERIC[name]], 3.0, ledger=ledger, dataset_id="d")
    assert ledger.account("d").spent == 0.5


def test_bins_release_their_values_through_their_own_door():
    released = np.array(NUMERIC["bins"].privatize([8.0] * 600, seed=1))
    assert np.mean(np.abs(released - 4.315) < 0.001) > 0.85  # e^3 / (e^3 + 2) = .909, five standard errors less


def test_bad_mechanisms_and_payments():
    for bad in ([], [3], ["rr"], [np.eye(3)]):
        with pytest.raises(TypeError, match="mechanisms: needs"):
            certify_groups(bad, 1.0)
        with pytest.raises(TypeError, match="mechanisms: needs"):
            release_in_groups([0, 1], np.zeros(2, int), bad, 1.0)
    for bad in (-1, math.nan, "x", None, True):
        with pytest.raises((TypeError, ValueError), match="paid: needs"):
            certify_groups([br.rr(3, 1.0)], 1.0, bad)
    found = br.rr(3, 1.0).certify(1.0)
    assert certify_groups([br.rr(3, 1.0), br.rr(3, 0.5)], 1.0, 0.7) == Certificate(
        found.epsilon, 1.0, True, found.worst
    )
    assert (
        not certify_groups([br.rr(3, 0.5)], 1.0, 1.5).holds and certify_groups([br.rr(3, 0.5)], 2.0, 1.5).epsilon == 1.5
    )


def test_the_statement_gives_the_promise_as_a_condition():
    "Where groups and priors came from only the caller knows; in two stages the library chose them itself."
    labels = np.arange(300) % 3
    group, tables = row_priors(np.random.default_rng(0).dirichlet([1, 1, 1], 300), 1.0)
    said = json.loads(release_in_groups(labels, group, tables, 1.0).to_json())["composition"]
    assert said == PROMISED and "on one condition, the caller's promise, which was not checked" in said
    assert "If they were made from these labels, that has to be counted separately" in said
    assert "chosen without looking" not in said  # a fact that it cannot know
    whole, _ = two_stage(labels, 1.0, 3)
    assert json.loads(whole.to_json())["composition"] == COMPOSITION != PROMISED


def test_values_that_are_labels_are_released_as_such():
    "One bin whose value is the third public value: its only output has index 0 among outputs and 2 among labels."
    m = br.rr_on_bins([5, 6, 9], [0, 0, 1], 2.0)
    itself = C.randomized_response([5, 6, 9], math.inf)
    out = release_in_groups([5, 6, 9, 5], np.array([0, 0, 0, 1]), [m, itself], math.inf)
    assert out.labels == [9, 9, 9, 5] and out.likelihood.tolist() == [[1, 1, 1]] * 3 + [[1, 0, 0]]


def in_groups(epsilon, **account):
    return release_in_groups(Y, G, [br.rr(4, 0.1)], epsilon, **account)


def in_two_stages(epsilon, **account):
    return two_stage(Y, epsilon, 4, "block_rr", **account)


Y, G = np.arange(4_000) % 4, np.zeros(4_000, int)


@pytest.mark.filterwarnings("ignore::blockrr.ReleaseWarning")
@pytest.mark.parametrize("release", [in_groups, in_two_stages])
def test_amounts_are_taken_as_they_are_written(tmp_path, release):
    account = dict(ledger=tmp_path / "l.db", dataset_id="d", budget="1")
    for epsilon in ("0.1", Decimal("0.1"), Fraction(1, 10), 0.1, "1/10", ".1", "0.1", "0.1", "0.1", "0.1"):
        release(epsilon, **account)
    assert Ledger(tmp_path / "l.db").account("d").left == 0
    release("1/3", **dict(account, dataset_id="thirds", budget="1/3"))
    assert Ledger(tmp_path / "l.db").account("thirds").left == 0
    for bad in ("x", Decimal("nan"), -1, None, True):
        with pytest.raises((TypeError, ValueError), match="^epsilon: needs"):
            release(bad, **account)


def test_what_was_paid_is_an_amount_too():
    with pytest.raises(ValueError, match="epsilon 0.1 was asked for"):
        release_in_groups(Y, G, [br.rr(4, 0.1)], "0.1", paid=Decimal("0.11"))
    assert release_in_groups(Y, G, [br.rr(4, 0.1)], "0.1", paid="0.1").certificate.holds


def test_labels_that_no_group_releases_are_told_before_the_debit(tmp_path):
    one, other = (br.rr_with_prior(np.eye(4)[k], 1.0, k=1) for k in (0, 1))
    account = dict(ledger=tmp_path / "l.db", dataset_id="d", budget=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(br.ReleaseWarning, match="THE RELEASED COLUMN IS CONSTANT"):
            release_in_groups(Y, G, [one, br.rr(4, 1.0)], 1.0, **account)  # the second mechanism has no rows
        with pytest.raises(br.ReleaseWarning, match="never releases 2 of 4 labels"):
            release_in_groups(Y, Y % 2, [one, other], 1.0, **account)
        with pytest.raises(br.ReleaseWarning, match="fewer than one of 4,000 labels is expected to change"):
            release_in_groups(Y, G, [br.rr(4, 64.0)], 64.0, **account)
        release_in_groups(Y, Y % 2, [one, br.rr(4, 1.0)], 1.0)  # together they keep every label
        release_in_groups(Y, G - 1, [one], 1.0)  # nothing is released
    with pytest.raises(ValueError, match="new to the ledger"):
        Ledger(tmp_path / "l.db").account("d")


MANY = np.repeat(np.arange(4), [4000, 3000, 2000, 1000])
PAIR = (br.rr(4, 0.25), br.rr_with_prior([4, 3, 2, 1], 0.25))


def in_two(**change):
    return two_stage(**{**dict(labels=MANY, epsilon=0.25, domain=4), **change})


def in_groups(**change):
    return release_in_groups(**{**dict(labels=MANY, group=MANY % 2, mechanisms=PAIR, epsilon=0.25), **change})


BAD_FOR_BOTH = (
    dict(epsilon=-1),
    dict(epsilon="x"),
    dict(seed=-1),
    dict(labels=["violet"] * 10_000),
    dict(labels=MANY[:1]),
    dict(budget=2),
    dict(dataset_id=None),
    dict(ledger=None),
)
BAD_FOR_TWO = (
    dict(method="rr"),
    dict(first=0),
    dict(first="x"),
    dict(sigma=0),
    dict(l=-1),
    dict(floor=0.5),
    dict(domain=5000),
    dict(domain=5000, method="rr_with_prior"),
)
BAD_FOR_GROUPS = (
    dict(epsilon=0.2),
    dict(group=MANY),
    dict(mechanisms=()),
    dict(paid=1.0),
    dict(paid=0.1),
    dict(mechanisms=[br.rr(4, 0.25), br.rr(list("abcd"), 0.25)]),
)


def test_bad_input_is_noticed_before_the_debit_and_the_first_bit(tmp_path, monkeypatch):
    account = dict(ledger=Ledger(tmp_path / "l.db"), dataset_id="d")
    in_two(budget=1, **account)
    monkeypatch.setattr(stages, "RandomBits", lambda *_: pytest.fail("a bit was asked for"))
    for run, cases in ((in_two, BAD_FOR_BOTH + BAD_FOR_TWO), (in_groups, BAD_FOR_BOTH + BAD_FOR_GROUPS)):
        for bad in cases:
            with pytest.raises((TypeError, ValueError)):  # a BudgetExceeded is neither
                run(**{**account, **bad})
    assert account["ledger"].account("d").debits == 1
    with pytest.raises(ValueError, match="ledger: 0.1 was debited for other rows already"):
        in_groups(paid=0.1, **account)


@pytest.mark.parametrize("run", (in_two, in_groups))
def test_an_end_after_the_debit_leaves_the_debit(run, tmp_path, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "RandomBits", dies)
    account = dict(ledger=Ledger(tmp_path / "l.db"), dataset_id="d", budget=1)
    with pytest.raises(KeyboardInterrupt):
        run(**account)
    assert account["ledger"].account("d").debits == 1


@pytest.mark.parametrize(
    "bad, said",
    (
        (dict(group=MANY[:5]), "for each of 10000 rows"),
        (dict(group=MANY % 2 + 1), "from -1 to 1, got 1 to 2"),
        (dict(mechanisms=[]), "at least one"),
        (dict(epsilon=0.2), "but the tables and what was paid have 0.25"),
        (dict(mechanisms=[br.rr(4, 0.25), br.rr(list("abcd"), 0.25)]), "same labels"),
        (dict(paid=2.0), "paid have 2"),
        (dict(paid=-1.0), "paid: needs"),
        (dict(paid=math.nan), "paid: needs"),
    ),
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_bad_groups_are_named(bad, said):
    with pytest.raises((TypeError, ValueError), match=said):
        in_groups(**bad)


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

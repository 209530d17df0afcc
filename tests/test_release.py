"A release: its input is checked before anything is spent, its statement is public, its likelihood is the table's."

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

import blockrr as br
from blockrr.privacy import release as release_module
from blockrr.privacy.methods import METHODS
from blockrr.privacy.stages import release_in_groups
from blockrr.privacy.statement import GIVEN_PRIOR, ONE_USE, TWO_PARTS, Statement, make_statement, table_digest

Y = np.arange(1000) % 3
DOMAIN = ["never", "once", "often", "no answer"]
ANSWERS = pd.Series(np.random.default_rng(0).choice(DOMAIN[:3], 10_000, p=[0.7, 0.25, 0.05]), name="answer")
SETTINGS = {"optimal_rr": {"floor": 0.5}}


@pytest.fixture(autouse=True)
def quiet():
    "The tests go where releases are warned of: few rows, epsilon 0 and beyond 40."
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", br.ReleaseWarning)
        yield


def call(**change):
    return br.release(**{**dict(labels=Y, epsilon=1, domain=3), **change})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", (0, 1e-12, 0.6, 3, 700, 1e6, math.inf))
def test_every_method_at_every_epsilon(method, epsilon):
    r = call(epsilon=epsilon, method=method, seed=1, **SETTINGS.get(method, {}))
    assert r.certificate.holds and r.certificate.epsilon <= epsilon
    if math.isinf(epsilon) and method != "block_rr":  # sets are single labels there
        assert (r.labels == Y[r.index]).all()
    assert Statement.from_json(r.to_json()) == r.statement and r.statement.matches(r.mechanism)


BAD = (
    dict(epsilon=-1),
    dict(epsilon=math.nan),
    dict(domain=1),
    dict(method="best"),
    dict(sigma=0),
    dict(l=-1),
    dict(l=1.5),
    dict(prior_fraction=0),
    dict(prior_fraction=1),
    dict(prior=[1, -1, 1]),
    dict(prior=[1, 1]),
    dict(seed=-1),
    dict(seed="x"),
    dict(floor=0.5),
    dict(floor=2, method="optimal_rr"),
    dict(floor=None, method="optimal_rr"),
    dict(floor=True, method="optimal_rr"),
    dict(sigma=1.0, method="rr"),
    dict(l=2, method="rr"),
    dict(tau=1),
)


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_input_is_named_and_costs_nothing(bad, tmp_path):
    name = next(iter(bad))
    with pytest.raises((TypeError, ValueError), match=name):
        call(**bad)
    with pytest.raises((TypeError, ValueError), match=name):
        call(**bad, ledger=tmp_path / "l.db", dataset_id="d", budget=1)
    with pytest.raises(ValueError, match="new to the ledger"):
        br.Ledger(tmp_path / "l.db").account("d")


def test_settings_are_keywords():
    with pytest.raises(TypeError, match="positional"):
        br.release(Y, 1, 3, "block_rr", 1.2, 0)
    with pytest.raises(ValueError, match="floor: only the method 'optimal_rr' has one, got 0.5 for 'block_rr'"):
        call(floor=0.5)
    with pytest.raises(TypeError, match="tau: needs a setting of the method 'block_rr', which has sigma and l, got"):
        call(tau=1)
    with pytest.warns(UserWarning, match="l = 3 is more than"):
        assert len(call(prior=[6, 3, 0.1], sigma=1, l=np.int64(3)).mechanism.outputs) == 3


def test_bad_labels():
    with pytest.raises(ValueError, match="row 2"):
        call(labels=[0, 1, 7])
    with pytest.raises(ValueError, match="at least 2 rows"):
        call(labels=[0])


@pytest.mark.parametrize("bad", (dict(labels=["violet"] * 3), dict(labels=["never"]), dict(budget=2)), ids=str)
def test_a_ledger_is_not_debited_for_bad_input(bad, tmp_path):
    account = dict(ledger=tmp_path / "l.db", dataset_id="d")
    br.release(ANSWERS, 0.25, DOMAIN, "rr", budget=1, **account)
    with pytest.raises((TypeError, ValueError)):
        br.release(**{**dict(labels=ANSWERS, epsilon=0.25, domain=DOMAIN), **account, **bad})
    with pytest.raises(ValueError, match="prior_fraction"):
        br.release(ANSWERS, 0.25, DOMAIN, "rr", prior_fraction=7, **account)
    for method in ("block_rr", "optimal_rr"):
        with pytest.raises(ValueError, match="would need about"):
            br.release(np.zeros(100, int), 0.25, 5000, method, **SETTINGS.get(method, {}), **account)
    assert br.Ledger(account["ledger"]).account("d").debits == 1


@pytest.mark.parametrize(
    "given, said",
    (
        (dict(budget=1), "budget: needs ledger="),
        (dict(dataset_id="x"), "dataset_id: needs ledger="),
        (dict(part="x"), "part: needs ledger="),
        (dict(ledger="l.db"), "dataset_id: needs a name"),
    ),
    ids=str,
)
def test_what_belongs_to_a_ledger(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call(**given)


def test_the_statement_says_what_was_done():
    estimated, plain = br.release(ANSWERS, 1, DOMAIN, seed=0), br.release(ANSWERS, 1, DOMAIN, "rr")
    given = br.release(ANSWERS, 1, DOMAIN, prior=[6, 3, 1, 0])
    facts = estimated.statement
    assert (facts.rows, facts.rows_prior, facts.rows_released) == (10_000, 100, 9_900)
    assert (facts.epsilon, facts.epsilon_prior, facts.reproducible) == (estimated.certificate.epsilon, 1.0, True)
    assert (facts.sigma, facts.l, facts.floor, facts.settings) == (1.2, 2, None, {"sigma": 1.2, "l": 2})
    assert (facts.groups, facts.denominator, len(facts.table_sha256)) == (1, str(2**62), 64)
    assert [r.statement.composition for r in (estimated, plain, given)] == [TWO_PARTS, ONE_USE, GIVEN_PRIOR]
    assert (plain.statement.epsilon_prior, plain.statement.settings) == (0, {})
    assert facts.matches(estimated.mechanism) and not facts.matches(plain.mechanism)
    assert table_digest(estimated.mechanism.integers) == facts.table_sha256
    for word in ("never", "often", "no answer", '"prior"', "7000"):
        assert word not in estimated.to_json()  # no label of the domain, no prior, no count


OLD_FIELDS = (
    "mechanism epsilon epsilon_asked holds epsilon_prior epsilon_response composition neighbouring rows rows_prior "
    "rows_released n_labels n_outputs sigma l table_sha256 denominator reproducible dataset_id version"
).split()


def test_a_statement_keeps_its_fields_and_an_old_one_is_read():
    out = br.release(Y, math.inf, 3, seed=0)
    facts = json.loads(out.to_json())
    assert set(OLD_FIELDS) <= set(facts) and set(facts) - set(OLD_FIELDS) == {"groups", "tables_sha256"}
    assert facts["epsilon"] == "inf" and facts["tables_sha256"] == [facts["table_sha256"]]
    old = {name: facts[name] for name in OLD_FIELDS}
    assert Statement.from_json(json.dumps(old)) == out.statement
    half = call(method="optimal_rr", floor=0.5).statement
    assert json.loads(half.to_json())["floor"] == 0.5 and Statement.from_json(half.to_json()) == half
    wide = call(prior=[6, 3, 1], sigma=math.inf, l=0).statement
    assert wide.sigma == math.inf and Statement.from_json(wide.to_json()) == wide
    for text in ("{}", "[1]", json.dumps({**old, "count": 7}), json.dumps({k: old[k] for k in OLD_FIELDS[1:]})):
        with pytest.raises(ValueError, match="exactly the fields"):
            Statement.from_json(text)


def test_a_statement_of_groups():
    tables = [br.rr(3, 1.0), br.rr_with_prior([6, 3, 1], 1.0, k=2), br.rr(3, 1.0)]
    out = release_in_groups(Y, Y - 1, tables, 1.0, paid=0.5)
    facts = out.statement
    assert (facts.mechanism, facts.groups, len(facts.tables_sha256)) == ("RR, RRWithPrior", 3, 2)
    assert (facts.table_sha256, facts.n_outputs, facts.epsilon_prior, facts.rows_prior) == (None, 3, 0.5, 334)
    assert all(facts.matches(m) for m in tables) and Statement.from_json(out.to_json()) == facts
    with pytest.raises(ValueError, match="mechanism: this release has 3, see `mechanisms` and `group`"):
        out.mechanism  # noqa: B018
    for name in ("rows", "epsilon_prior", "composition", "dataset_id"):
        with pytest.warns(DeprecationWarning, match=f"use Release.statement.{name}"):
            assert getattr(out, name) == getattr(facts, name)
    assert not hasattr(out, "label")


@pytest.mark.parametrize("method", METHODS)
def test_likelihood_is_the_column_of_what_was_released(method):
    words = [DOMAIN[y] for y in Y]
    out = br.release(words, 1.0, DOMAIN, method, seed=3, **SETTINGS.get(method, {}))
    assert out.likelihood.shape == (1000, 4) and out.likelihood.dtype == float and not out.likelihood.flags.writeable
    T, outputs = out.mechanism.transition, out.mechanism.outputs
    numbers = out.labels if out.mechanism.releases_sets else list(map(outputs.index, out.labels))
    for row, number in list(zip(out.index, numbers))[:50]:
        assert (out.likelihood[row] == T[:, number]).all()
    left_out = np.setdiff1d(np.arange(1000), out.index)
    assert (out.likelihood[left_out] == 0.25).all() and len(left_out) == out.statement.rows_prior
    assert out.likelihood is out.likelihood  # made once


def test_likelihood_in_groups_and_without_a_table(monkeypatch):
    tables = [br.rr(3, 1.0), br.rr_with_prior([6, 3, 1], 1.0, k=2)]
    out = release_in_groups(Y, Y - 1, tables, 1.0, seed=1)
    for i in range(100):
        column = tables[out.group[i]].square()[:, out.labels[i]]
        assert (out.likelihood[out.index[i]] == column).all()
    assert (out.likelihood[Y == 0] == 1 / 3).all()
    big = br.release(np.arange(300) % 5000, 6.0, 5000, "rr", seed=1)
    keep, other = big.mechanism.keep, big.mechanism.other / big.mechanism.denominator
    assert (big.likelihood[np.arange(300), big.labels] == keep).all()
    assert big.likelihood[0].sum() == pytest.approx(keep + 4999 * other)
    monkeypatch.setattr(release_module, "MAX_LIKELIHOODS", 2999)
    with pytest.raises(ValueError, match="likelihood: needs at most 2,999 entries, got 1,000 rows x 3 labels"):
        br.release(Y, 1.0, 3, "rr").likelihood  # noqa: B018


def test_make_statement_digests_each_table_once():
    m = br.rr(2, 1.0)
    facts = make_statement([m] * 5, m.certify(), epsilon_response=1.0, rows=9, rows_released=9, reproducible=False)
    assert facts.groups == 5 and facts.tables_sha256 == (table_digest(m.integers),)
    assert facts.dataset_id is None and not facts.reproducible and hash(facts) == hash(facts)


def test_the_dtype_of_a_wider_domain_does_not_depend_on_what_was_drawn():
    column, wide = pd.Series([0, 1] * 20, dtype="Int64"), [0, 1, "no answer"]
    one = br.release(column, 0.001, wide, "rr", seed=0).labels
    assert one.dtype == br.release(pd.Series([0] * 40, dtype="Int64"), 0.001, wide, "rr", seed=5).labels.dtype


def test_the_certificate_covers_the_estimated_prior():
    out = br.release(ANSWERS, 1, DOMAIN, seed=0)
    assert out.certificate.epsilon == 1.0 and out.mechanism.labels == tuple(DOMAIN)
    assert out.labels.name == "answer" and np.abs(out.prior - [0.7, 0.25, 0.05, 0]).max() < 0.15

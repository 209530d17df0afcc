"The default of `release`: chosen from public facts or a private prior, said in the statement, and never a surprise."

import math
import warnings

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.methods import choose_by_prior, choose_by_rows, labels_holding
from blockrr.privacy.statement import GIVEN_PRIOR, ONE_USE, TWO_PARTS, Statement

RNG = np.random.default_rng(0)
FEW = RNG.choice(100, 200_000, p=np.r_[np.full(8, 0.996 / 8), np.full(92, 0.004 / 92)])  # of 100 labels, 8 occur
EVEN = np.arange(100_000) % 20


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", br.ReleaseWarning)
        yield


@pytest.mark.parametrize(
    "labels, K, epsilon", ((EVEN[:400] % 2, 2, 1), (EVEN[:6000], 20, 1), (EVEN, 20, 4), (FEW, 100, 6))
)
def test_where_it_is_rr_by_public_facts_it_releases_what_rr_does(labels, K, epsilon):
    out, plain = br.release(labels, epsilon, K, seed=3), br.release(labels, epsilon, K, "rr", seed=3)
    assert (out.labels == plain.labels).all() and len(out.index) == len(labels)
    assert out.statement.choice.startswith("RR: ") and plain.statement.choice is None
    assert out.prior is None and out.statement.composition == ONE_USE and out.statement.epsilon_prior == 0


def test_a_code_book_of_which_few_labels_occur():
    out = br.release(FEW, 1, 100, seed=1)
    facts = out.statement
    assert out.mechanism.name == "RRWithPrior" and 8 <= len(out.mechanism.outputs) <= 16
    assert set(range(8)) <= set(out.mechanism.outputs) and facts.settings == {"share": 0.99}
    assert (facts.composition, facts.epsilon_prior, facts.rows_prior) == (TWO_PARTS, 1.0, 2_000)
    assert out.certificate.holds and "chosen automatically: FrequentRR: by the prior" in repr(out)
    assert Statement.from_json(out.to_json()) == facts and "of 100 labels hold 99%" in facts.choice
    with pytest.warns(br.ReleaseWarning, match="never releases"):
        br.release(FEW, 1, 100, seed=1)


def test_the_private_prior_may_say_rr():
    out = br.release(EVEN, 0.5, 20, seed=1)
    assert out.mechanism.name == "RR" and len(out.prior) == 20 and out.statement.rows_prior == 1_000
    assert out.statement.epsilon_prior == 0.5 and "more than half" in out.statement.choice
    given = br.release(EVEN, 0.5, 20, prior=np.ones(20), seed=1)
    assert given.statement.rows_prior == 0 and given.statement.composition == GIVEN_PRIOR


def test_before_the_prior_nothing_depends_on_labels():
    "Columns that differ in every label get the same choice, where public facts decide."
    for n, K, epsilon in ((1, 5, 1), (500, 10, 0.5), (5_000, 3, 1), (5_000, 30, 0)):
        said = {br.release(y, epsilon, K).statement.choice for y in (np.zeros(n, int), np.arange(n) % K)}
        assert len(said) == 1


@pytest.mark.parametrize("K", (2, 3, 20, 1_000))
@pytest.mark.parametrize("epsilon", (0.0, 1e-9, 0.5, 700.0, math.inf))
def test_any_epsilon(K, epsilon):
    assert choose_by_rows(10**6, K, epsilon, 0.01).method in ("rr", "frequent_rr")
    assert choose_by_prior(np.full(K, 1 / K), epsilon).method == "rr"
    assert br.release(np.arange(3_000) % K, epsilon, K).certificate.holds


def test_labels_holding_a_share():
    assert [labels_holding(np.array([0.5, 0.3, 0.2]), s) for s in (0.1, 0.5, 0.51, 0.8, 0.99, 1.0)] == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    with pytest.raises(ValueError, match="share: needs 0 < share <= 1, got 0"):
        br.release(EVEN, 1, 20, "frequent_rr", share=0)


def test_a_learner_gives_up_at_most_one_percent():
    "Every label that is released is kept more often than by RR, and those that never are hold 1 % of the rows."
    out = br.release(FEW, 0.5, 100, seed=2)
    kept = out.mechanism.transition.max()
    assert kept > br.rr(100, 0.5).transition.max()
    assert np.isin(FEW, out.mechanism.outputs).mean() > 0.98  # the prior comes from 2,000 rows: one percent, and noise


def test_a_table_too_large_is_not_chosen(monkeypatch):
    from blockrr.privacy import methods

    prior = np.r_[np.full(8, 0.125), np.zeros(92)]
    assert choose_by_prior(prior, 1.0).method == "frequent_rr"
    monkeypatch.setattr(methods, "MAX_ENTRIES", 700)  # seven labels of a hundred
    assert choose_by_prior(prior, 1.0) == ("rr", "a table of 8 of 100 labels would be too large")
    assert br.release(FEW, 1, 100, prior=prior, seed=0).mechanism.name == "RR"

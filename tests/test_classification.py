"""Randomized response without a table: exact integers, exact draws, and everything else as with a table."""

import json
import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chi2

import blockrr as br
from blockrr.privacy import optimal, stages
from blockrr.privacy.classification import _TwoWeights, two_weights
from blockrr.privacy.sampling import DENOMINATOR, RandomBits
from blockrr.privacy.statement import Statement, table_digest

SIZES = (2, 3, 10, 997, 4_096, 4_097, 9_140, 65_536, 65_537, 1_000_003, 1 << 20)
EPSILONS = (
    0,
    5e-324,
    1e-300,
    1e-17,
    1e-12,
    1e-6,
    0.1,
    0.6,
    1,
    2.5,
    8,
    20,
    30,
    35,
    40,
    42,
    42.97,
    43,
    43.9,
    44,
    44.1,
    63,
    700,
    1e6,
    math.inf,
)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_certificate_is_exact(epsilon):
    for K in SIZES:
        own, other = two_weights(K, epsilon)
        D = own + (K - 1) * other
        assert own >= other >= 0 and DENOMINATOR * Fraction(1, 2) < D <= DENOMINATOR
        assert (Fraction(own, D) + (K - 1) * Fraction(other, D)) == 1
        if math.isinf(epsilon):
            assert (own, other) == (DENOMINATOR, 0)
            continue
        with mpmath.workdps(400):
            assert other >= 1 and mpmath.mpf(own) <= mpmath.exp(mpmath.mpf(epsilon)) * other  # 400 digits decide
            ratio = mpmath.log(mpmath.mpf(own) / other)
            if K <= 9_140:
                m = br.RandomizedResponse(K, epsilon)
                c = m.certify()
                assert (m.own, m.other, m.denominator) == (own, other, D)
                assert c.holds and ratio <= c.epsilon <= epsilon and c.epsilon - ratio <= 1e-15 * ratio
                if c.epsilon:
                    assert not m.certify(c.epsilon * (1 - 1e-15)).holds
            if epsilon <= 40:  # as close to the formula as integers allow
                wanted = 1 / (1 + (K - 1) * mpmath.exp(-mpmath.mpf(epsilon)))
                assert abs(mpmath.mpf(own) / D - wanted) <= mpmath.mpf(2) / other * wanted + mpmath.mpf(10) ** -15


def test_epsilon_zero_is_zero():
    for K in SIZES:
        own, other = two_weights(K, 0)
        assert own == other
    assert br.RandomizedResponse(997, 0).certify().epsilon == 0


@pytest.mark.parametrize("K, own, other", [(4, 5, 2), (3, 1, 1), (2, 7, 0), (5, 9, 3), (300, 11, 1)])
def test_every_integer_draws_what_its_weight_says(K, own, other):
    "All integers below the denominator, once each, in place of random ones: the outputs are the weights."
    D, sampler = own + (K - 1) * other, _TwoWeights(K, own, other)
    for y in {0, 1, K - 1}:
        random, out = np.arange(D, dtype="<u8") << np.uint64(2), np.empty(D, sampler.dtype)
        sampler.fill(np.full(D, y), random, None, np.empty(D, np.int64), out)
        assert np.bincount(out, minlength=K).tolist() == [own if o == y else other for o in range(K)]


def test_integers_that_are_too_large_are_drawn_again():
    sampler = _TwoWeights(4, 5, 2)
    words = iter(
        [
            np.uint64(15 << 2),
            np.uint64(1 << 2),
            np.uint64(12 << 2),
            np.uint64(11 << 2),
            np.uint64(10 << 2),
            np.uint64(0),
        ]
    )

    def more(n):
        return np.array([next(words) for _ in range(n)])

    out = np.empty(4, np.uint8)
    sampler.fill(
        np.full(4, 3), np.array([11, 0, 2**62 - 1, 14], "<u8") << np.uint64(2), more, np.empty(4, np.int64), out
    )
    # three are too large; the words below 11 are 1, 10 and 0, in this order: kept, (10 - 3) // 2 = 3, kept
    assert out.tolist() == [3, 3, 3, 3] and next(words, None) is None


@pytest.mark.parametrize("K, epsilon", [(5_000, 0), (5_000, 6.0), (5_000, 9.0), (9_140, 1.0), (70_000, 11.0)])
def test_drawn_distribution(K, epsilon):
    n, y = 3_000_000, 17
    m = br.rr(K, epsilon)
    counts = np.bincount(m.privatize(np.full(n, y), seed=2026), minlength=K)
    assert 1e-4 < binom.cdf(counts[y], n, m.keep) < 1 - 1e-4
    rest = np.delete(counts, y)
    expected = rest.sum() / (K - 1)
    statistic = ((rest - expected) ** 2 / expected).sum()
    assert 1e-4 < chi2.sf(statistic, K - 2) < 1 - 1e-4  # uniform among all others; fixed seed


def test_secure_bits_draw_the_same_distribution():
    m = br.rr(5_000, 8.0)
    kept = int((m.privatize(np.zeros(1_000_000, int)) == 0).sum())
    assert 1e-9 < binom.cdf(kept, 1_000_000, m.keep) < 1 - 1e-9


@pytest.mark.parametrize(
    "K, epsilon, again", [(5_000, 3.0, False), (5_000, 3.0, True), (70_000, 8.0, False), (300_000, 12.0, False)]
)
def test_chunks_and_threads_give_what_one_call_gives(K, epsilon, again):
    m, rng = br.rr(K, epsilon), np.random.default_rng(0)
    if again:
        m.own = m.other = 2**61 // K  # half of all integers are drawn again
    y = rng.integers(0, K, 300_000)
    whole = m.privatize(y, seed=[1, 2])
    for _ in range(3):
        cuts = np.sort(rng.integers(0, len(y), 5))
        assert np.array_equal(np.concatenate(list(m.privatize_chunks(np.split(y, cuts), seed=[1, 2]))), whole)
    assert np.array_equal(m.privatize(y, seed=[1, 2], threads=3), whole)
    assert not np.array_equal(m.privatize(y, seed=[1, 3]), whole)


@pytest.mark.parametrize("epsilon", [0, 1e-9, 1.0, 8.0, 40.0, math.inf])
def test_as_with_a_table(epsilon):
    labels, prior, rng = list("abcdefghij"), np.arange(1, 11), np.random.default_rng(0)
    plain, few = br.rr(labels, epsilon), br.RandomizedResponse(labels, epsilon)
    assert type(plain) is br.Mechanism and isinstance(few, br.Mechanism)
    assert (few.labels, few.outputs, few.epsilon, few.name) == (plain.labels, plain.outputs, plain.epsilon, plain.name)
    assert few.keep == pytest.approx(plain.transition[0, 0], abs=1e-15)
    assert optimal.retention(few) == pytest.approx(optimal.retention(plain), abs=1e-15)
    assert optimal.tradeoff(few, prior) == pytest.approx(optimal.tradeoff(plain, prior), abs=1e-14)
    for j, label in enumerate(labels):
        assert few.posterior(prior, label) == pytest.approx(plain.posterior(prior)[j], abs=1e-14)
    if epsilon:
        counts = rng.integers(0, 100, 10)
        exact = [
            (few.denominator * int(c) - few.other * int(counts.sum())) / Fraction(few.own - few.other) for c in counts
        ]
        assert few.debias(counts) == pytest.approx([float(v) for v in exact], rel=1e-9)
        if epsilon >= 1:
            assert few.debias(counts) == pytest.approx(plain.debias(counts), abs=1e-9)
    else:
        with pytest.raises(ValueError, match="^debias: "):
            few.debias([1] * 10)
    if 1 <= epsilon <= 8:
        assert few.certify().epsilon == pytest.approx(plain.certify().epsilon, abs=1e-12)
    again = pickle.loads(pickle.dumps(few))
    assert (
        again.certify() == few.certify()
        and again.__dask_tokenize__() == few.__dask_tokenize__()
        and repr(again) == repr(few)
    )


def test_an_impossible_release_keeps_the_prior():
    assert br.RandomizedResponse(3, math.inf).posterior([1, 1, 0], 2).tolist() == [0.5, 0.5, 0]


def test_small_domains_have_their_tables():
    assert type(br.rr(1_000, 3)) is br.Mechanism
    assert br.rr(1_000, 3).weights.sum(1).tolist() == [DENOMINATOR] * 1_000
    for K in (4_097, 1 << 20):
        assert type(br.rr(K, 3)) is br.RandomizedResponse


def test_what_needs_a_table_is_refused_with_a_reason():
    m = br.rr(9_140, 8)
    for what in ("transition", "weights"):
        with pytest.raises(ValueError, match=f"^{what}: needs at most 4,096 labels, got 9,140"):
            getattr(m, what)
        assert not hasattr(m, what)
    with pytest.raises(ValueError, match="^transition: needs"):
        m.plot()
    with pytest.raises(ValueError, match="^posterior without `released`: needs"):
        m.posterior(np.ones(9_140))
    with pytest.raises(ValueError, match="^released: needs one label of the domain"):
        m.posterior(np.ones(9_140), 9_140)
    with pytest.raises(ValueError, match="1,048,577"):
        br.rr((1 << 20) + 1, 1)


def test_refused_before_anything_is_spent(tmp_path):
    account = {"ledger": br.Ledger(tmp_path / "ledger.db"), "dataset_id": "d", "budget": 1}
    y = np.zeros(100, int)
    for method in ("rr_with_prior", "block_rr"):
        with pytest.raises(ValueError, match="^(mechanisms|domain): "):
            br.two_stage(y, 1.0, 5_000, method, **account)
    with pytest.raises(ValueError, match="^mechanisms: needs tables"):
        stages.release_in_groups(y, y, [br.rr(5_000, 1.0)], 1.0, **account)
    assert not (tmp_path / "ledger.db").exists()


def test_release_of_many_classes():
    domain = [f"class {i}" for i in range(9_140)]
    y = pd.Series(np.random.default_rng(0).choice(domain, 20_000), name="class")
    out = br.release(y, 8, domain, "rr", seed=11)
    m = out.mechanism
    assert (
        out.labels.name == "class"
        and set(out.labels) <= set(domain)
        and out.certificate.holds
        and 8 - 1e-12 < out.certificate.epsilon <= 8
    )
    assert abs((out.labels == y).mean() - m.keep) < 5 * math.sqrt(0.25 / len(y))
    assert out.labels.equals(br.release(y, 8, domain, "rr", seed=11).labels)
    facts = out.statement
    assert (
        Statement.from_json(out.to_json()) == facts
        and facts.matches(br.rr(domain, 8))
        and not facts.matches(br.rr(domain, 7))
    )
    assert facts.table_sha256 == table_digest([[9_140, m.own, m.other]]) and facts.denominator == str(
        m.own + 9_139 * m.other
    )
    assert json.loads(out.to_json())["n_outputs"] == 9_140


def test_the_largest_domain():
    K = 1 << 20
    y = np.random.default_rng(0).integers(0, K, 10_000)
    out = br.release(y, 20.0, K, "rr")
    assert out.labels.dtype == y.dtype and (out.labels == y).mean() > 0.99 and out.certificate.holds
    assert br.rr(K, 20.0).drawer(RandomBits(1))(y).dtype == np.uint32
    counts = np.bincount(br.rr(K, 0).privatize(np.zeros(2_000_000, int), seed=5), minlength=K)
    statistic = ((counts - 2e6 / K) ** 2).sum() / (2e6 / K)
    assert abs(statistic - K) < 4 * math.sqrt(2 * K)


# ---- randomized response on the most frequent labels

CIFAR10_1 = [5000, 4900, 4700, 4600, 4500, 4800, 1000, 1500, 1000, 1500]


def test_how_many_labels_are_kept():
    assert [br.best_k(CIFAR10_1, e) for e in (0.6, 1, 2, math.inf)] == [6, 6, 6, 10]
    assert br.best_k([1, 1, 0], math.inf) == 3  # ties: the larger k
    assert (br.rr_with_prior([1, 1], 1).transition == br.rr(2, 1).transition).all()


@pytest.mark.parametrize("bad", [0, 4, -1, 1.5, True, "2"])
def test_what_is_no_number_of_labels(bad):
    with pytest.raises((TypeError, ValueError), match="^k: needs an integer from 1 to 3, got"):
        br.rr_with_prior([1, 1, 1], 1, k=bad)


def test_a_prior_of_another_domain():
    with pytest.raises(ValueError, match="^prior: needs 2 weights"):
        br.rr_with_prior([1, 1, 1], 1, labels=["a", "b"])


@pytest.mark.parametrize("e", [0, 1e-12, 1, 700, 1e6, math.inf])
def test_dropping_labels_keeps_the_promise(e):
    assert br.rr_with_prior(CIFAR10_1, e).certify().holds

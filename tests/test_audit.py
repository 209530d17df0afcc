"""The audit's honesty and power, measured; odd black boxes."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import blockrr as br
from blockrr.privacy import audit as module
from blockrr.privacy.audit import epsilon_lower_bound, samples_needed


def too_many(misses, trials, alpha):
    "Whether so many misses refute a miss rate of at most alpha: exact binomial tail below one in a million."
    return stats.binom.sf(misses - 1, trials, alpha) < 1e-6


def test_tolerance_is_a_test():
    assert too_many(1300, 20_000, 0.05) and not too_many(1050, 20_000, 0.05)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(
    "p, q, n",
    [(0.5, 0.5, 500), (0.24, 0.0884, 500), (0.01, 0.01, 2000), (0.999, 0.001, 100), (1e-4, 1e-4, 10_000), (1, 1, 50)],
)
def test_bound_is_wrong_no_more_often_than_it_may(p, q, n, confidence):
    rng, audits = np.random.default_rng(0), 20_000
    x, y = rng.binomial(n, p, audits), rng.binomial(n, q, audits)
    bounds = epsilon_lower_bound((x, y), (np.full_like(x, n), np.full_like(y, n)), confidence)
    assert not too_many(int((bounds > math.log(p / q)).sum()), audits, 1 - confidence)


@pytest.mark.parametrize("p, q", [(0.5, 0.5), (0.3, 0.1), (0.05, 0.01)])
def test_each_half_of_the_bound_is_tight(p, q):
    "The two Clopper-Pearson bounds alone miss nearly as often as they may, so the audit wastes little."
    n = 100_000
    x = np.random.default_rng(1).binomial(n, p, 50_000)
    low, high = module._log_bounds(x, n, 0.1)
    for misses in ((low > math.log(p)).mean(), (high < math.log(p)).mean()):
        assert 0.045 < misses < 0.05 + 5 * math.sqrt(0.05 * 0.95 / 50_000)


class Multinomial:
    "A mechanism that shows the audit only counts: every label's outputs are one multinomial draw."

    def __init__(self, T, rng):
        self.T, self.rng, self.labels = np.asarray(T), rng, tuple(range(len(T)))

    def outputs(self, randomise, domain, n, stream):
        return [
            module.Counter({j: int(c) for j, c in enumerate(self.rng.multinomial(n, self.T[i])) if c})
            for i in domain.values
        ]

    def privatize(self, column, seed=None):
        raise AssertionError("replaced by counts")


CASES = {
    "nothing leaks": np.full((4, 4), 0.25),
    "rr": br.rr(4, 1).transition,
    "rr, large": br.rr(10, 3).transition,
    "block_rr": br.block_rr(br.partition_by_weight([5, 4, 3, 1, 1], 1.2, 2), 1).transition,
    "rare": [[1e-3, 0.999], [5e-4, 0.9995], [7e-4, 0.9993]],
}


@pytest.mark.parametrize("tests", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_whole_audit_with_its_choices_is_wrong_no_more_often_than_it_may(monkeypatch, case, tests):
    "Choosing pair and event on one half must not spoil the confidence of the other."
    T, audits = np.asarray(CASES[case]), 600
    box = Multinomial(T, np.random.default_rng(2))
    monkeypatch.setattr(module, "_outputs", box.outputs)
    true = np.log(T.max(0) / T.min(0)).max()
    misses = sum(
        br.audit(box, samples=2000, confidence=0.8, tests=tests).epsilon_lower > true + 1e-12 for _ in range(audits)
    )
    assert not too_many(misses, audits, 0.2)


def test_choosing_and_testing_on_the_same_samples_would_be_dishonest(monkeypatch):
    "The check above has teeth: without fresh samples, and with many outputs, the bound is wrong too often."
    T, rng, misses = np.full((2, 200), 1 / 200), np.random.default_rng(3), 0
    for _ in range(300):
        counts = np.array([rng.multinomial(2000, row) for row in T])
        e = module._choose_events(counts[0], counts[1], 2000, 0.2, 1)[0]
        misses += epsilon_lower_bound((counts[0, e].sum(), counts[1, e].sum()), (2000, 2000), 0.8) > 0
    assert too_many(misses, 300, 0.2)


@pytest.mark.parametrize("claim, K", [(0.3, 2), (0.6, 10), (1, 10), (2, 10), (4, 10), (8, 10)])
def test_five_percent_are_caught_within_ten_million(claim, K):
    n = samples_needed(1.05 * claim, 0.05 * claim, K)
    assert n <= 10_000_000
    if n > 1_500_000:
        return
    assert br.audit(br.rr(K, 1.05 * claim), samples=n, seed=1).refutes(claim)
    assert not br.audit(br.rr(K, claim), samples=n, seed=1).refutes(claim)


@pytest.mark.parametrize(
    "epsilon, gap, K, confidence, power",
    [(1, 0.1, 2, 0.95, 0.9), (1, 0.1, 10, 0.95, 0.5), (4, 0.3, 3, 0.99, 0.8), (0.5, 0.25, 50, 0.9, 0.9)],
)
def test_samples_needed_gives_the_power_it_promises(epsilon, gap, K, confidence, power):
    total = samples_needed(epsilon, gap, K, confidence=confidence, power=power)
    rng, audits = np.random.default_rng(4), 5000
    p = 1 / (1 + (K - 1) * math.exp(-epsilon))

    def reached(n):
        x, y = rng.binomial(n, p, audits), rng.binomial(n, p * math.exp(-epsilon), audits)
        return int(
            (epsilon_lower_bound((x, y), (np.full_like(x, n), np.full_like(y, n)), confidence) >= epsilon - gap).sum()
        )

    assert stats.binom.cdf(reached(total // 4), audits, power) > 1e-6
    assert reached(total // 4 // 3) / audits < power  # and does not ask for three times too much


@pytest.mark.parametrize("wrap", [list, tuple, np.asarray, pd.Series, lambda y: np.asarray(y, object)])
def test_any_container_may_come_back(wrap):
    rng = np.random.default_rng(5)

    def box(y):
        return wrap(np.where(rng.random(len(y)) < 0.8, y, np.roll(y, 1)))

    report = br.audit(box, ["a", "b"], samples=20_000)
    assert 1.2 < report.epsilon_lower < math.log(4) and report.event[0] in "ab" and isinstance(report.event[0], str)


def test_mixed_outputs_and_a_drop():
    rng = np.random.default_rng(6)
    report = br.audit(
        lambda y: [None if u < 0.1 else v for u, v in zip(rng.random(len(y)), y.tolist())], [1, "one"], samples=4000
    )
    assert report.epsilon_lower > 4 and report.event[0] in (1, "one")


def test_bonferroni_costs_something():
    one, five = (br.audit(br.rr(5, 1), samples=100_000, tests=t, seed=7) for t in (1, 5))
    assert five.epsilon_lower < one.epsilon_lower < 1 and five.pair == one.pair


def test_exceptions_of_the_black_box_come_through():
    with pytest.raises(ZeroDivisionError):
        br.audit(lambda y: 1 / 0, 2, samples=100)


def test_the_report_is_a_sentence_and_frozen():
    report = br.audit(br.rr(["yes", "no"], 1), samples=10_000, seed=0)
    assert (
        repr(report).startswith("With confidence 0.95, epsilon is at least 0.")
        and "'yes'" in repr(report)
        and "10,000 samples" in repr(report)
    )
    with pytest.raises(AttributeError):
        report.epsilon_lower = 0


@pytest.mark.parametrize("delta", [1e-4, 0.01, 0.2])
@pytest.mark.parametrize("p, q, n", [(0.3, 0.1, 500), (0.5, 0.5, 500), (0.02, 0.005, 3000), (1, 1, 50)])
def test_bound_with_delta_is_wrong_no_more_often_than_it_may(p, q, n, delta):
    rng, audits = np.random.default_rng(8), 20_000
    x, y = rng.binomial(n, p, audits), rng.binomial(n, q, audits)
    bounds = epsilon_lower_bound((x, y), (np.full_like(x, n), np.full_like(y, n)), 0.9, delta=delta)
    true = math.log(max(p - delta, 1e-300) / q)
    assert not too_many(int((bounds > max(true, 0)).sum()), audits, 0.1)
    assert (bounds <= epsilon_lower_bound((x, y), (np.full_like(x, n), np.full_like(y, n)), 0.9)).all()


def test_an_honest_gaussian_is_not_refuted_and_a_bold_one_is():
    from blockrr.privacy.comparators import gaussian

    g = gaussian(range(3), 1.0, 0.05, cells=9)
    for seed in range(5):
        report = br.audit(g, samples=100_000, seed=seed)
        assert not report.refutes(g.epsilon) and report.delta == g.delta and "for delta = 0.05" in repr(report)
    assert br.audit(g, samples=400_000, seed=0, delta=0).refutes(1)
    assert br.audit(lambda y: g.privatize(y), 3, samples=4000).delta == 0  # a function says nothing of delta

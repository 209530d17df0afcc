"""The frontier and its mechanism against the linear program, BlockRR's gap to it, and what the solver may not hide."""

import math
import subprocess
import sys
import time

import mpmath
import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.optimal import LEFTOVERS, best_sigma, retention, tradeoff
from blockrr.privacy.program import solve_program

EPSILONS = (0, 1e-9, 0.1, 0.6, 1, 2, 4, 8, 40, 800, math.inf)


def priors(seed, n, K):
    rng = np.random.default_rng(seed)
    for i in range(n):
        k = int(rng.integers(2, K + 1))
        yield (
            rng.integers(0, 5, k) + (np.arange(k) == 0)
            if i % 3 == 0
            else rng.dirichlet(np.full(k, (0.1, 1, 10)[i % 3]))
        )


def all_pairs_program(p, epsilon, floor=0, average=None):
    """The program as the paper writes it, over all pairs and with e**epsilon: an oracle that shares no code with ours.

    `average`: what the mean of the diagonal must reach.
    """
    from scipy.optimize import linprog

    K, rows = len(p), []
    for j in range(K):
        for i in range(K):
            for other in range(K):
                if i != other:
                    row = np.zeros((K, K))
                    row[i, j], row[other, j] = 1, -math.exp(epsilon)
                    rows.append(row.ravel())
    limits = np.zeros(len(rows))
    if average is not None:
        rows, limits = [*rows, -np.eye(K).ravel() / K], np.append(limits, -average)
    equal = np.kron(np.eye(K), np.ones(K))
    bounds = [(floor if i == j else 0, 1) for i in range(K) for j in range(K)]
    out = linprog(-np.diag(p).ravel(), np.array(rows), limits, equal, np.ones(K), bounds, method="highs")
    assert out.status == 0
    return -out.fun


@pytest.mark.parametrize("epsilon", (0.1, 0.6, 1, 2, 4))
def test_against_the_papers_form(epsilon):
    for p in priors(1, 8, 6):
        f = br.frontier(p, epsilon)
        for t in (0, 0.4, 0.95):
            floor = t * f.largest_floor
            assert f.point(floor).accuracy == pytest.approx(all_pairs_program(f.prior, epsilon, floor), abs=1e-6)
            assert solve_program(np.diag(f.prior), epsilon, floor)[0] == pytest.approx(
                f.point(floor).accuracy, abs=1e-6
            )


@pytest.mark.parametrize("K, epsilon", [(2, 0), (12, 0), (12, math.inf), (25, 1), (40, 3), (60, 2)])
def test_against_the_program_up_to_sixty_labels(K, epsilon):
    p = np.random.default_rng(K).dirichlet(np.full(K, 0.5))
    f = br.frontier(p, epsilon)
    value, T = solve_program(np.diag(p), epsilon, f.largest_floor / 2)
    assert value == pytest.approx(f.point(f.largest_floor / 2).accuracy, abs=1e-6)
    assert T.sum(1) == pytest.approx(np.ones(K), abs=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_straight_line_and_best_of_all_k(epsilon):
    for p in priors(2, 60, 12):
        f, a = br.frontier(p, epsilon), math.exp(-epsilon)
        K, ordered = len(f.prior), np.sort(f.prior)[::-1]
        floors = np.linspace(0, f.largest_floor, 9)
        for tau in floors:  # the scan over k that the theorem makes unnecessary
            u = [(1 - a * (K - k) * tau) / (1 + (k - 1) * a) for k in range(1, K + 1)]
            scan = max(ordered[:k].sum() * u[k - 1] + ordered[k:].sum() * tau for k in range(1, K + 1))
            assert f.point(tau).accuracy == pytest.approx(scan, abs=1e-13)
        values = [f.point(t).accuracy for t in floors]
        assert np.diff(values, 2) == pytest.approx(0, abs=1e-13)
        ends = tradeoff(br.rr_with_prior(p, epsilon), p), tradeoff(br.rr(K, epsilon), p)
        assert values[0] == pytest.approx(ends[0].accuracy, abs=1e-13) and values[-1] == pytest.approx(
            ends[1].accuracy, abs=1e-13
        )
        assert (
            all(np.diff(values) < 0)
            if f.top > f.largest_floor * (1 + 1e-9)
            else values == pytest.approx([f.top] * 9, abs=1e-8)
        )


def test_no_mechanism_is_beyond_the_frontier():
    rng = np.random.default_rng(3)
    for _ in range(400):  # random private tables: ceilings, then rows within them
        K, epsilon = int(rng.integers(2, 7)), float(rng.exponential(1.5))
        p, a = rng.dirichlet(np.ones(K)), math.exp(-epsilon)
        base = rng.uniform(a, 1, (K, K)) + 3 * np.eye(K) * rng.random()
        T = base / base.sum(1, keepdims=True)
        epsilon = float(np.log(T.max(0) / T.min(0)).max()) * (1 + 1e-12)
        f, d = br.frontier(p, epsilon), np.diag(T)
        assert d.min() <= f.largest_floor * (1 + 1e-9)
        assert p @ d <= f.point(min(d.min(), f.largest_floor)).accuracy + 1e-12


def test_block_rr_is_on_the_frontier_exactly_where_its_majority_is_best():
    on = off = 0
    rng = np.random.default_rng(4)
    for p in priors(5, 150, 12):
        epsilon = float(rng.uniform(0.05, 5))
        f, a, K = br.frontier(p, epsilon), math.exp(-epsilon), len(p)
        order = np.argsort(-f.prior, kind="stable").tolist()
        for s in range(1, K):
            W = f.prior[order[:s]].sum() / (1 + (s - 1) * a)
            for l in {1, (s + 1) // 2, s}:
                m = br.block_rr(br.Partition(order[:s], order[s:], order[:l]), epsilon)
                worst = tradeoff(m, p).worst
                assert worst < f.largest_floor
                assert f.gap(m) == pytest.approx((1 - worst / f.largest_floor) * (f.top - W), abs=1e-13)
                best = f.top - W < 1e-10
                if best or f.top - W > 1e-7:
                    assert (f.gap(m) < 1e-11) == best
                    on, off = on + best, off + (not best)
        assert f.gap(br.block_rr(br.Partition(order[:1], order[1:]), epsilon)) == pytest.approx(
            0, abs=1e-13
        )  # l = 0 is RR
    assert on > 100 and off > 500


def test_papers_settings():
    first = [5000, 4900, 4700, 4600, 4500, 4800, 1000, 1500, 1000, 1500]
    gaps = {}
    for epsilon, sigma, l in [(0.6, 1.4, 6), (0.8, 1.2, 5), (1, 1.2, 5), (2, 0.8, 2)]:  # tab:dp_params1
        gaps[epsilon] = br.frontier(first, epsilon).gap(br.block_rr(br.partition_by_weight(first, sigma, l), epsilon))
    assert [gaps[e] for e in (0.6, 0.8, 1)] == pytest.approx([0, 0, 0], abs=1e-14)
    assert gaps[2] == pytest.approx(0.46041705 - 0.45626670, abs=1e-8)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_optimal_rr(epsilon):
    for p in priors(6, 12, 10):
        f = br.frontier(p, epsilon)
        for t in (0, 1e-300, 1e-15, 0.3, 1 - 1e-12, 1):
            for rest in LEFTOVERS:
                m = br.optimal_rr(p, epsilon, t * f.largest_floor, leftover=rest)
                assert m.certify().holds and abs(m.transition.sum(1) - 1).max() < 1e-13
                assert tradeoff(m, p) == pytest.approx(f.point(t * f.largest_floor), abs=1e-13)
                assert (retention(m) >= t * f.largest_floor * (1 - 1e-13)).all()


def test_best_sigma():
    for p in priors(7, 200, 15):
        for epsilon in EPSILONS:
            part = br.partition_by_weight(p, best_sigma(p, epsilon))
            assert sorted(np.argsort(-np.asarray(p, float), kind="stable")[: br.best_k(p, epsilon)].tolist()) == sorted(
                part.majority
            )


def test_ten_thousand_labels_within_a_second():
    p = np.random.default_rng(8).dirichlet(np.ones(10_000))
    start = time.process_time()
    f = br.frontier(p, 5)
    [f.point(t * f.largest_floor) for t in np.linspace(0, 1, 100)]
    assert time.process_time() - start < 1
    assert len(br.frontier(np.ones(1000), 1).averages()) == 1


def test_bad_input():
    with pytest.raises(
        ValueError,
        match=r"floor: needs 0 <= floor <= 0.231969\d*, the largest reachable with 10 labels at epsilon = 1, got 0.5",
    ):
        br.optimal_rr(np.ones(10), 1, 0.5)
    with pytest.raises(ValueError, match="at least 2 labels"):
        br.frontier([1], 1)
    with pytest.raises(ValueError, match="epsilon"):
        br.frontier([1, 1], -1)
    with pytest.raises(TypeError, match="floor"):
        br.optimal_rr([1, 1], 1, "0")
    with pytest.raises(ValueError, match="all weights are zero"):
        br.frontier([0, 0], 1)
    one = br.optimal_rr([1, 0, 0], 1, 0.1)  # all mass on one label
    assert one.certify().holds and one.transition[0, 0] == max(one.transition[0])


def test_solver_failure_is_an_error(monkeypatch):
    import scipy.optimize

    with pytest.raises(RuntimeError, match="status 2"):
        solve_program(np.eye(3), 1, floor=0.9)
    real = scipy.optimize.linprog

    def stopped(*args, **options):
        return real(*args, **options, options={"time_limit": 0.0})

    monkeypatch.setattr(scipy.optimize, "linprog", stopped)
    with pytest.raises(RuntimeError, match="status 1"):
        solve_program(np.random.default_rng(0).random((30, 30)), 1)


def test_import_does_not_load_scipy():
    code = "import sys, blockrr; print('scipy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


@pytest.mark.parametrize("epsilon", (0.1, 0.6, 1, 2, 4))
def test_average_frontier_against_the_papers_form(epsilon):
    for p in priors(11, 9, 6):
        f = br.frontier(p, epsilon)
        for t in (0, 0.6, 0.9, 0.99):
            assert f.accuracy_at(t * f.largest_floor) == pytest.approx(
                all_pairs_program(f.prior, epsilon, average=t * f.largest_floor), abs=1e-6
            )


@pytest.mark.parametrize("epsilon", (0.6, 1, 2, 4))
@pytest.mark.parametrize("name", ("cifar10_1", "cifar10_2"))
def test_both_frontiers_of_the_papers_data(name, epsilon):
    from blockrr.study.paper import TRAIN_COUNTS

    f = br.frontier(TRAIN_COUNTS[name], epsilon)
    for t in np.linspace(0, 1, 9) * (1 - 1e-6):
        at = t * f.largest_floor
        assert f.accuracy_at(at) == pytest.approx(solve_program(np.diag(f.prior), epsilon, average=at)[0], abs=1e-6)
        assert f.point(at).accuracy == pytest.approx(solve_program(np.diag(f.prior), epsilon, floor=at)[0], abs=1e-6)
    order = np.argsort(-f.prior, kind="stable").tolist()
    for s in range(1, 11):
        for l in range(s + 1):
            at = tradeoff(br.block_rr(br.Partition(order[:s], order[s:], order[:l]), epsilon), f.prior)
            assert at.accuracy <= f.accuracy_at(min(at.average, f.largest_floor)) + 1e-12
    kept = [tradeoff(br.rr_with_prior(f.prior, epsilon, k=k), f.prior) for k in range(f.k, 11)]
    assert all(f.accuracy_at(min(at.average, f.largest_floor)) >= at.accuracy - 1e-12 for at in kept)
    assert f.accuracy_at(min(kept[0].average, f.largest_floor)) == pytest.approx(kept[0].accuracy, abs=1e-12)


def test_no_mechanism_is_beyond_the_average_frontier():
    rng = np.random.default_rng(12)
    for _ in range(400):
        K = int(rng.integers(2, 7))
        base = rng.uniform(0.2, 1, (K, K)) + 3 * np.eye(K) * rng.random(K)
        T, p = base / base.sum(1, keepdims=True), rng.dirichlet(np.full(K, 0.4))
        f = br.frontier(p, float(np.log(T.max(0) / T.min(0)).max()) * (1 + 1e-12))
        d = np.diag(T)
        assert (
            d.mean() <= f.largest_floor * (1 + 1e-9) and p @ d <= f.accuracy_at(min(d.mean(), f.largest_floor)) + 1e-12
        )


def test_picture_of_both_frontiers_for_any_number_of_labels():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for K in (2, 10, 60, 61, 1000):
        for epsilon in (0, 0.5, 5, math.inf):
            f = br.frontier(1 / np.arange(1.0, K + 1), epsilon)
            worst, average = f.plot()
            for ax, name in ((worst, "worst"), (average, "average")):
                legend = " / ".join(ax.get_legend_handles_labels()[1])
                assert "BlockRR" in legend and "RRWithPrior" in legend and ("some σ and l" in legend) == (K > 60)
                for line in ax.lines:
                    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
                    for at, accuracy in zip(np.atleast_1d(x), np.atleast_1d(y)):
                        best = (
                            f.point(min(at, f.largest_floor)).accuracy
                            if name == "worst"
                            else f.accuracy_at(min(at, f.largest_floor))
                        )
                        assert accuracy <= best + 1e-9
            plt.close("all")


@pytest.mark.parametrize("epsilon", [8.0, 12.5, 16.0, 20.0, 24.0])
@pytest.mark.parametrize("below", [1e-3, 1e-5, 1e-8])
def test_a_floor_close_to_rr_keeps_its_small_probabilities(epsilon, below):
    "Within 1e-12 of the ideal in 60 digits above 1e-6, within 16 units of 2**-62 below; 1 - t must not cancel."
    p = np.array([0.6, 0.4, 1e-20, 1e-20, 1e-20])
    f = br.frontier(p, epsilon)
    floor = f.largest_floor * (1 - below)
    m = br.optimal_rr(p, epsilon, floor)
    assert m.certify().holds and m.name == "OptimalRR" and f.k == 2
    with mpmath.workdps(60):
        a, tau, n, k = mpmath.exp(-mpmath.mpf(epsilon)), mpmath.mpf(floor), len(p), f.k
        step = (1 - tau - tau * (n - 1) * a) / (1 + (k - 1) * a)
        u = tau + step
        for i in range(n):
            for j in range(n):
                level = u if j < k else tau
                ideal = level if i == j else a * level
                if i >= k and j < k:
                    ideal += (1 - a) * step / k
                error = abs(mpmath.mpf(int(m.weights[i, j])) / 2**62 - ideal)
                assert error <= (1e-12 * ideal if ideal > 1e-6 else mpmath.mpf(2) ** -58), (i, j, error)


def test_old_names_warn():
    from blockrr.privacy import optimal

    for old, new in (("place", "tradeoff"), ("Point", "Tradeoff"), ("RESTS", "LEFTOVERS")):
        with pytest.warns(DeprecationWarning, match=f"use blockrr.privacy.optimal.{new}"):
            assert getattr(optimal, old) is getattr(optimal, new)
    with pytest.warns(DeprecationWarning, match="use leftover"):
        old_name = br.optimal_rr([6, 3, 1], 1.0, 0.3, rest="first")
    assert (old_name.weights == br.optimal_rr([6, 3, 1], 1.0, 0.3, leftover="first").weights).all()

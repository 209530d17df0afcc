"""The best sets for a prior: against all columns in one program, against subset selection, in the limits."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

import blockrr as br
from blockrr.privacy.codebook import all_sets
from blockrr.privacy.optimal_subsets import best_columns, gap_to_best, two_valued_columns
from blockrr.privacy.subsets import best_size, information_over_rr, respond_with_sets

CIFAR10_1 = np.array([5000, 4900, 4700, 4600, 4500, 4800, 1000, 1500, 1000, 1500])
PRIORS = {
    "CIFAR-10_1": CIFAR10_1,
    "steep": 0.5 ** np.arange(8),
    "one rare": np.array([1, 1, 1, 1, 1e-6]),
    "a zero": np.array([3, 2, 1, 0, 2, 2.0]),
    "four": np.array([1, 2, 3, 4.0]),
}


def matrix_by_definition(transition, p):
    "The sum over outputs of c c' / p'c, one output at a time."
    J = np.zeros((len(p), len(p)))
    for c in transition.T:
        J += np.outer(c, c) / (p @ c)
    return J


@pytest.mark.parametrize("K", [2, 3, 5, 9])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 5.0])
def test_the_program_is_solved_with_all_columns(K, epsilon):
    columns = two_valued_columns(np.random.default_rng(K).dirichlet(np.ones(K)), epsilon)
    assert len(columns.members) == len({row.tobytes() for row in columns.members}) == 2**K - 2
    for seed in range(5):
        worth = np.random.default_rng(seed).normal(size=len(columns.values)) * 10.0 ** (seed - 2)
        value, theta = best_columns(worth, columns)
        whole = linprog(-worth, A_eq=columns.values.T, b_eq=np.ones(K), method="highs")
        assert value == pytest.approx(-whole.fun, rel=1e-6) and worth @ theta == pytest.approx(value, rel=1e-6)
        assert np.allclose(theta @ columns.values, 1, atol=1e-6) and theta.min() >= 0


def test_mutual_information_leaves_labels_alike():
    "Why it is not what is maximised: three groups at epsilon 1, and within a group all rows are the same."
    p = CIFAR10_1 / CIFAR10_1.sum()
    columns = two_valued_columns(p, 1.0)
    worth = (p * columns.values * np.log(columns.values / (columns.values @ p)[:, None])).sum(1)
    nats, theta = best_columns(worth, columns)
    groups = columns.members[theta > 1e-9]
    assert sorted(groups.sum(1).tolist()) == [3, 3, 4] and nats == pytest.approx(0.12328, abs=1e-5)
    best = br.optimal_subsets(10, 1.0, CIFAR10_1)
    assert br.information(best, CIFAR10_1).nats < nats
    assert len(np.unique(best.transition.round(12), axis=0)) == 10


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.6, 1.0, 1.7, 2.5, 6.0])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_no_mechanism_is_better(prior, epsilon):
    K = len(prior)
    m = br.optimal_subsets(K, epsilon, prior)
    found, own = m.certify(), br.information(m, prior)
    assert found.holds and found.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert len(m.outputs) <= K * (K + 1) // 2 + 1
    assert np.allclose(m.transition.sum(1), 1, atol=1e-12)
    assert {sum(row) for row in m.weights.tolist()} == {2**62}
    J = matrix_by_definition(m.transition, prior / prior.sum())
    assert own.log_det == pytest.approx(np.linalg.slogdet(J)[1], abs=1e-6)
    assert gap_to_best(m, prior) < 3e-4
    others = [br.rr(K, epsilon), br.rr_with_prior(prior, epsilon)]
    others += [respond_with_sets(br.Domain(K), epsilon, all_sets(K, w)) for w in range(2, K)]
    for other in others:
        assert br.information(other, prior).log_det <= own.log_det + 3e-4
    rng = np.random.default_rng(9)
    columns = two_valued_columns(prior / prior.sum(), epsilon)
    for _ in range(20):
        theta = best_columns(rng.normal(size=len(columns.values)), columns)[1]
        V, mass = columns.values[theta > 0], columns.values[theta > 0] @ (prior / prior.sum())
        J = (V * (theta[theta > 0] / mass)[:, None]).T @ V
        assert np.linalg.slogdet(J)[1] <= own.log_det + 3e-4


@pytest.mark.parametrize("K", [4, 7, 10])
@pytest.mark.parametrize("epsilon", [0.1, 0.6, 1.0])
def test_a_uniform_prior_gives_subset_selection(K, epsilon):
    m = br.optimal_subsets(K, epsilon)
    w = best_size(K, epsilon)
    if w == 1:
        assert (m.weights == br.rr(K, epsilon).weights).all()
        return
    assert (m.members.sum(1) == w).all()
    ours, all_of_them = (br.information(one, np.ones(K)) for one in (m, br.subset_response(K, epsilon)))
    assert ours == pytest.approx(all_of_them, rel=1e-7)
    gain = ours.log_det - br.information(br.rr(K, epsilon), np.ones(K)).log_det
    assert math.exp(gain / (K - 1)) == pytest.approx(information_over_rr(K, w, epsilon), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0, 4.0, 36.5, 700, math.inf])
def test_rr_where_it_is_as_good(epsilon):
    with pytest.warns(br.ReleaseWarning, match="no set says more"):
        m = br.optimal_subsets(["a", "b", "c", "d"], epsilon)
    assert not isinstance(m, br.SetMechanism)
    assert (m.weights == br.rr(4, epsilon).weights).all() and m.labels == ("a", "b", "c", "d")


@pytest.mark.parametrize("epsilon", [1e-300, 1e-9, 1e-6, 1e-3, 20.0, 35.0])
def test_extreme_epsilons(epsilon):
    m = br.optimal_subsets(5, epsilon, [5, 4, 3, 2, 1])
    assert m.certify().holds and (epsilon < 1e-9 or m.certify().epsilon == pytest.approx(epsilon, rel=1e-4))
    if epsilon >= 1e-6:
        assert gap_to_best(m, [5, 4, 3, 2, 1]) < 3e-4


def test_fourteen_labels():
    m = br.optimal_subsets(14, 0.7, np.arange(1, 15))
    assert m.certify().holds and m.n_outputs <= 106 and gap_to_best(m, np.arange(1, 15)) < 3e-4


def test_sets_of_unequal_sizes_are_read():
    m = br.optimal_subsets(list("abcdefgh"), 1.5, PRIORS["steep"])
    sizes = m.members.sum(1)
    assert sizes.min() < sizes.max() and f"{sizes.min()} to {sizes.max()}" in repr(m)
    y = list("abcdefgh") * 2000
    released = m.privatize(y, seed=2**127 + 14)
    assert [len(s) for s in m.sets(released)] == sizes[m.numbers(released)].tolist()
    assert np.allclose(m.likelihood(released[:9]), m.transition.T[released[:9]])
    truth = np.array([5, 0, 3, 2, 1, 9, 9, 100.0])
    assert np.allclose(m.debias(truth @ m.transition), truth)


def test_information_by_definition():
    for m in (br.rr(5, 0.7), br.subset_response(5, 0.5), br.rr_with_prior([3, 2, 1, 1, 1], 1.0), br.rr(5, math.inf)):
        for p in (np.full(5, 0.2), np.array([0.5, 0.25, 0.25, 0, 0])):
            joint = p[:, None] * m.transition
            independent = p[:, None] * joint.sum(0)
            on = joint > 0
            nats = (joint[on] * np.log(joint[on] / independent[on])).sum()
            assert br.information(m, p).nats == pytest.approx(nats, abs=1e-12)
    assert br.information(br.rr_with_prior([3, 2, 1], 0.1), np.ones(3)).log_det == -math.inf
    assert gap_to_best(br.rr_with_prior([3, 2, 1], 0.1), np.ones(3)) == math.inf


def test_bad_input():
    with pytest.raises(ValueError, match="labels: needs at most 14"):
        br.optimal_subsets(15, 1.0)
    with pytest.raises(ValueError, match="prior: needs 4 weights"):
        br.optimal_subsets(4, 1.0, [1, 2, 3])
    with pytest.raises(ValueError, match="prior: needs weights >= 0"):
        br.optimal_subsets(3, 1.0, [1, -1, 3])
    with pytest.raises(ValueError, match="epsilon"):
        br.optimal_subsets(3, math.nan)
    with pytest.raises(ValueError, match="at most 14"):
        gap_to_best(br.rr(20, 1.0), np.ones(20))
    by_name = {"b": 1, "a": 9, "c": 1}
    assert (
        br.optimal_subsets(list("abc"), 0.5, by_name).weights == br.optimal_subsets(3, 0.5, [9, 1, 1]).weights
    ).all()

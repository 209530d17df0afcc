"""Every comparator on odd grids and at extreme epsilons is certified, or refused with a way out; delta is stated."""

import math

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy import comparators as C
from blockrr.privacy.bins import clipped
from blockrr.privacy.comparators import ApproximateCertificate, ApproximateMechanism
from blockrr.privacy.sampling import Certificate

ODD = [4, 13, 15, 25, 27, 31, 39, 43, 55, 57, 59, 63]
MAKERS = {
    "laplace": lambda y, e, cells, d: C.laplace(y, e, cells),
    "discrete": lambda y, e, cells, d: C.discrete_laplace(y, e),
    "staircase_l1": lambda y, e, cells, d: C.staircase(y, e, "absolute", cells),
    "staircase_l2": lambda y, e, cells, d: C.staircase(y, e, "squared", cells),
    "gaussian": lambda y, e, cells, d: C.gaussian(y, e, d, cells),
    "gaussian, clipped": lambda y, e, cells, d: clipped(C.gaussian(y, e, d, cells)),
    "exponential": lambda y, e, cells, d: C.exponential(y, e),
    "rr": lambda y, e, cells, d: C.randomized_response(y, e),
    "square_wave": lambda y, e, cells, d: C.square_wave(y, e),
    "unbiased": lambda y, e, cells, d: C.optimal_unbiased(y, np.ones(len(y)), e),
}
EPSILONS = (1e-12, 1e-9, 1e-4, 0.3, 2, 8, 25, 36.8, 43, 44.5, 65, 300, 700, 744.4, 745, 745.2, 1e6, math.inf)


def grid(rng):
    k, kind = int(rng.integers(2, 41)), int(rng.integers(7))
    if kind == 0:
        y = rng.choice(100, k, replace=False)
    elif kind == 1:
        y = rng.normal(0, 10 ** rng.uniform(-6, 6), k)
    elif kind == 2:
        y = np.cumsum(10 ** rng.uniform(-8, 2, k))
    elif kind == 3:
        y = np.arange(k) * 10.0 ** rng.integers(-290, 300)
    elif kind == 4:
        y = rng.random(k) + rng.choice([0, 1e6, -1e9, 1e16])
    elif kind == 5:
        y = rng.choice([-1e30, 0, 1e-300, 1e-30, 1, 1e15, 1e30, 1e300], 4, replace=False)
    else:
        y = rng.integers(0, 64, k)
    y = np.unique(np.asarray(y, float))
    return y if len(y) > 1 else np.array([0.0, 1.0])


def certified(name, y, epsilon, cells, delta):
    "True if the mechanism certifies; False if it was refused with a sentence that goes on after saying what is wrong."
    try:
        m = MAKERS[name](y, epsilon, cells, delta)
    except ValueError as e:
        named = str(e).split(":")[0] in ("values", "epsilon", "delta", "cells", "grid")
        assert named and "; " in str(e), (name, y, epsilon, cells, e)
        return False
    c = m.certify()
    assert c.holds and c.epsilon <= epsilon, (name, y, epsilon, cells, c)
    if name.startswith("gaussian"):
        assert type(c) is ApproximateCertificate and c.delta <= delta == c.claimed
    else:
        assert type(c) is Certificate
    if hasattr(m, "transition"):
        assert abs(m.transition.sum(1) - 1).max() < 1e-9
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MAKERS)
def test_certified_or_refused_with_a_way_out(name):
    rng, found = np.random.default_rng(list(MAKERS).index(name)), []
    for _ in range(40 if name == "unbiased" else 150):
        epsilon = float(rng.choice(EPSILONS)) if rng.random() < 0.5 else float(10 ** rng.uniform(-9, 6))
        found.append(certified(name, grid(rng), epsilon, int(rng.integers(1, 65)), float(10 ** rng.uniform(-14, -0.1))))
    assert sum(found) > len(found) * (0.05 if name == "discrete" else 0.5)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", MAKERS)
def test_small_grids_at_every_limit(name, epsilon):
    for y in ([0, 1, 2], ODD, [0, 0.1, 0.25]):
        may_refuse = {"discrete": epsilon < 0.1 or y[1] == 0.1, "unbiased": epsilon < 1e-6}
        assert certified(name, y, epsilon, 17, 1e-5) or may_refuse.get(name), (y, epsilon)


@pytest.mark.parametrize("loss", ["absolute", "squared"])
def test_staircase_keeps_its_step_at_every_scale(loss):
    "745 was a division by zero; at 65 the edge of a cell fell beside a step 1e-10 wide, and the table was refused."
    assert C.staircase([0, 1, 2], 745.0, loss).certify().holds
    m = C.staircase(ODD, 65.0, loss, cells=17)
    assert m.certify().holds and (m.transition * math.exp(65.0) >= m.transition.max(0) * (1 - 1e-9)).all()
    b = [C.staircase_gamma(e, loss) for e in (1, 10, 59.9, 60.1, 100, 700, 744, 745, 2000, math.inf)]
    assert b == sorted(b, reverse=True) and b[-1] == 0 <= b[-2] and b[-3] > 0


@pytest.mark.parametrize("epsilon", [0.25, 0.5, 0.6, 1, 2, 3, 4, 6, 8])
def test_ordinary_tables_are_left_as_they_were(epsilon, monkeypatch):
    "Raising entries to privacy touches no table of the regression study, so its records stay what they are."
    raised = C._raised

    def watched(T, e):
        made = raised(T, e)
        assert (made == T).all()
        return made

    monkeypatch.setattr(C, "_raised", watched)
    for y in (np.arange(25), np.arange(0, 401, 20), np.arange(51) / 10, np.arange(0, 401, 10), [0, 1, 2, 4, 8]):
        C.laplace(y, epsilon)
        C.staircase(y, epsilon, "absolute")
        C.staircase(y, epsilon, "squared")


@pytest.mark.parametrize("cells", [0, 1, -3, 2.5, "8", None, True, 10**6])
def test_bad_cells(cells):
    for name in ("laplace", "staircase_l2", "gaussian"):
        with pytest.raises((TypeError, ValueError), match="^cells: "):
            MAKERS[name]([0, 1], 1.0, cells, 0.1)


def test_epsilon_alone_is_never_said_of_a_gaussian():
    g = C.gaussian(range(5), 1.0, 1e-2, cells=5)
    alone = br.certify(g.weights)
    assert abs(alone.epsilon - 3.0511148) < 1e-7 and not br.certify(g.weights, 1.0).holds
    for c in (g.certify(), br.certify(g), br.certify(g, 1.0)):
        assert not isinstance(c, Certificate) and "delta=0.0099" in repr(c)
        assert (c.epsilon, c.claimed, c.holds) == (1.0, 0.01, True)
    assert not br.certify(g, 0.5).holds and br.certify(g, 3.06).delta == 0
    assert "delta=0.01" in repr(g)
    inside = clipped(g)
    assert isinstance(inside, ApproximateMechanism) and inside.delta == 0.01
    assert not isinstance(inside.certify(), Certificate)
    weak = ApproximateMechanism(g.transition, 0.5, 0.01, range(5), g.points, "too little noise")
    assert not weak.certify().holds
    with pytest.raises(ValueError, match="rounded again, its table needs a delta above 0.01"):
        clipped(weak)
    for bad in (0, 1, -1, math.nan, True, "x"):
        with pytest.raises((TypeError, ValueError), match="delta: needs"):
            ApproximateMechanism(g.transition, 1.0, bad, range(5), g.points)


@pytest.mark.parametrize("epsilon, cells", [(0, 3), (0.5, 9), (1, 33), (4, 17), (30, 40)])
def test_delta_against_all_events(epsilon, cells):
    "The certified delta is the largest P(S | a) - e^epsilon P(S | b) over all pairs and events, by exact fractions."
    from fractions import Fraction

    g = C.gaussian([0, 1, 3], epsilon, 1e-3, cells)
    grown = Fraction(math.exp(epsilon))
    W = [[Fraction(w, g.denominator) for w in row] for row in g.weights.tolist()]
    worst = max(sum(max(0, a - grown * b) for a, b in zip(r, s)) for r in W for s in W)
    assert abs(g.certify().delta - float(worst)) <= 1e-15 + 1e-9 * float(worst)


def test_debias_sums_to_the_counts_where_outputs_outnumber_values():
    truth = np.array([50.0, 30, 20, 10, 90])
    values = [0, 1, 2, 4, 8]
    for m in (C.laplace(values, 1.0), C.staircase(values, 2.0), C.optimal_unbiased(values, np.ones(5), 3.0)):
        assert abs(m.debias(truth @ m.transition) - truth).max() < 1e-6
        counts = np.random.default_rng(0).multinomial(200, truth / 200 @ m.transition)
        assert abs(m.debias(counts).sum() - 200) < 1e-6

"""Every comparator on odd grids and at extreme epsilons is certified, or refused with a way out; delta is stated."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import blockrr as br
from blockrr.privacy import comparators as C
from blockrr.privacy.comparators import ApproximateCertificate, ApproximateMechanism
from blockrr.privacy.integers import Certificate
from blockrr.privacy.unbiased import optimal_unbiased
from blockrr.privacy.values import clipped, risk

VALUES = [0, 1, 2, 4, 8]
PRIOR = [0.4, 0.3, 0.15, 0.1, 0.05]
ODD = [4, 13, 15, 25, 27, 31, 39, 43, 55, 57, 59, 63]
MAKERS = {  # (values, epsilon, cells, delta) -> mechanism
    "laplace": lambda y, e, cells, d: C.laplace(y, e, cells),
    "discrete": lambda y, e, cells, d: C.discrete_laplace(y, e),
    "staircase_l1": lambda y, e, cells, d: C.staircase(y, e, "absolute", cells=cells),
    "staircase_l2": lambda y, e, cells, d: C.staircase(y, e, "squared", cells=cells),
    "gaussian": lambda y, e, cells, d: C.gaussian(y, e, d, cells=cells),
    "gaussian, clipped": lambda y, e, cells, d: clipped(C.gaussian(y, e, d, cells=cells)),
    "exponential": lambda y, e, cells, d: C.exponential(y, e),
    "rr": lambda y, e, cells, d: C.randomized_response(y, e),
    "square_wave": lambda y, e, cells, d: C.square_wave(y, e),
    "unbiased": lambda y, e, cells, d: optimal_unbiased(y, np.ones(len(y)), e),
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
    weak = ApproximateMechanism(g.transition, 0.5, 0.01, range(5), outputs=g.points, name="too little noise")
    assert not weak.certify().holds
    with pytest.raises(ValueError, match="rounded again, its table needs a delta above 0.01"):
        clipped(weak)
    for bad in (0, 1, -1, math.nan, True, "x"):
        with pytest.raises((TypeError, ValueError), match="delta: needs"):
            ApproximateMechanism(g.transition, 1.0, bad, range(5), outputs=g.points)


@pytest.mark.parametrize("epsilon, cells", [(0, 3), (0.5, 9), (1, 33), (4, 17), (30, 40)])
def test_delta_against_all_events(epsilon, cells):
    "The certified delta is the largest P(S | a) - e^epsilon P(S | b) over all pairs and events, by exact fractions."
    from fractions import Fraction

    g = C.gaussian([0, 1, 3], epsilon, 1e-3, cells=cells)
    grown = Fraction(math.exp(epsilon))
    W = [[Fraction(w, g.denominator) for w in row] for row in g.weights.tolist()]
    worst = max(sum(max(0, a - grown * b) for a, b in zip(r, s)) for r in W for s in W)
    assert abs(g.certify().delta - float(worst)) <= 1e-15 + 1e-9 * float(worst)


def test_debias_sums_to_the_counts_where_outputs_outnumber_values():
    truth = np.array([50.0, 30, 20, 10, 90])
    values = [0, 1, 2, 4, 8]
    for m in (C.laplace(values, 1.0), C.staircase(values, 2.0), optimal_unbiased(values, np.ones(5), 3.0)):
        assert abs(m.debias(truth @ m.transition) - truth).max() < 1e-6
        counts = np.random.default_rng(0).multinomial(200, truth / 200 @ m.transition)
        assert abs(m.debias(counts).sum() - 200) < 1e-6


@pytest.mark.parametrize("epsilon", [0.01, 1, 8, 30, 200, 1e4, math.inf])
def test_laplace(epsilon):
    m = C.laplace(VALUES, epsilon)
    c = m.certify()
    assert c.holds and c.epsilon <= epsilon and abs(m.transition.sum(1) - 1).max() < 1e-12
    if epsilon <= 8:
        assert c.epsilon > 0.999 * epsilon  # nothing is given away by rounding
    assert clipped(C.laplace(VALUES, 1)).certify().holds
    assert risk(clipped(C.laplace(VALUES, 1)), PRIOR) == pytest.approx(15.0144, abs=6e-3)


@pytest.mark.parametrize("epsilon", [0.5, 1, 4, 20, 1000, math.inf])
def test_discrete_laplace(epsilon):
    m, a = C.discrete_laplace(VALUES, epsilon), math.exp(-epsilon / 8)
    centre = m.outputs.index(2.0)
    near = (1 - a) / (1 + a) * a ** np.abs(np.arange(-3, 4))
    assert m.certify().holds and m.transition[2, centre - 3 : centre + 4] == pytest.approx(near, abs=1e-12)
    variance = 2 * a / (1 - a) ** 2
    assert m.mean() == pytest.approx(VALUES, abs=1e-7) and m.mse() == pytest.approx(variance, abs=1e-7 * (1 + variance))


def test_discrete_laplace_in_steps():
    m, whole = C.discrete_laplace([1, 3.5, 6], 2.0, in_steps=True), C.discrete_laplace(range(3), 2.0)
    assert (m.weights == whole.weights).all() and (m.points == 1 + 2.5 * whole.points).all()
    with pytest.raises(ValueError, match="^values: .*evenly spaced"):
        C.discrete_laplace(VALUES, 2.0, in_steps=True)


@pytest.mark.parametrize("values, epsilon, word", [([0, 0.5], 1, "whole numbers"), ([0, 10**7], 1, "outputs")])
def test_discrete_laplace_refuses(values, epsilon, word):
    with pytest.raises(ValueError, match=word):
        C.discrete_laplace(values, epsilon)


def test_gaussian_delta_against_the_integral():
    def excess(x):
        return max(0, stats.norm.pdf(x, 1, 2) - math.e**0.3 * stats.norm.pdf(x, 0, 2))

    integral = integrate.quad(excess, -40, 40, points=[0.5 + 0.3 * 4], limit=500)[0]
    assert C.gaussian_delta(2, 0.3) == pytest.approx(integral, abs=1e-9)
    for bad in (0, 1, -0.1, math.nan):
        with pytest.raises(ValueError, match="delta"):
            C.gaussian_sigma(1, bad)


@pytest.mark.parametrize("epsilon, delta", [(4, 1e-12), (20, 1e-9), (30, 1e-5), (60, 1e-5), (700, 0.3), (1e6, 1e-9)])
def test_gaussian_where_integers_are_coarse(epsilon, delta):
    m = C.gaussian(VALUES, epsilon, delta)
    assert m.certify().holds and m.epsilon == epsilon
    assert risk(m, PRIOR) < 1.05 * (8 * C.gaussian_sigma(min(epsilon, 16), delta / 2)) ** 2


@pytest.mark.parametrize(
    "epsilon, delta", [(0.2, 1e-5), (1, 1e-5), (1, 1e-9), (4, 0.01), (0, 0.3), (20, 1e-5), (math.inf, 1e-5)]
)
def test_gaussian(epsilon, delta):
    m = C.gaussian(VALUES, epsilon, delta, cells=256)
    c = m.certify()
    assert c.holds and c.delta <= delta and m.mean() == pytest.approx(VALUES, abs=1e-3)
    if epsilon <= 4:
        assert c.delta > 0.9 * delta and set(c.worst) == {0, 8}
    if 0 < epsilon <= 4:
        assert not C.gaussian(VALUES, epsilon, delta).certify(0.5 * epsilon).holds
    ideal = (8 * C.gaussian_sigma(1, 1e-5)) ** 2
    assert risk(C.gaussian(VALUES, 1, 1e-5), PRIOR) == pytest.approx(ideal, rel=1e-4)


def test_staircase_tail_against_the_density():
    b, gamma = math.exp(-1.0), 0.3

    def density(t):
        return (1 - b) / (2 * (gamma + (1 - gamma) * b)) * b ** math.floor(t) * (1 if t % 1 < gamma else b)

    for x in (0.1, 0.5, 0.9, 1.2, 3.7):
        steps = sorted(
            {x, *(float(i) for i in range(1, 41) if i > x), *(i + gamma for i in range(40) if i + gamma > x)}
        )
        integral = sum(density((u + v) / 2) * (v - u) for u, v in zip(steps, steps[1:]))
        assert C._staircase_tail(np.array(x), b, gamma) == pytest.approx(integral, abs=1e-12)


def test_staircase():
    for e in (0.02, 0.3, 1, 2, 4, 8):
        m = C.staircase(VALUES, e)
        step = m.points[1] - m.points[0]
        assert m.certify().holds and m.certify().epsilon > (1 - 1e-6) * min(e, 30)
        assert risk(m, PRIOR) < risk(C.laplace(VALUES, e), PRIOR) + step**2
    assert C.staircase_gamma(0.01 - 1e-9) == pytest.approx(C.staircase_gamma(0.01 + 1e-9), abs=1e-5)
    for loss in ("squared", "absolute"):  # where the limit takes over
        assert C.staircase_gamma(60, loss) == pytest.approx(C.staircase_gamma(60 + 1e-9, loss), rel=1e-8)
    for e in (30, 50, 700, 745.0, 1e4, math.inf):
        assert C.staircase(VALUES, e).certify().holds


@pytest.mark.parametrize(
    "build, word",
    [
        (lambda: C.laplace([0, 0], 1), "strictly"),
        (lambda: C.laplace([1e16, 1e16 + 2], 1), "subtract a public constant"),
        (lambda: C.staircase([0, 1e300], 1e-10), "do not fit a float"),
        (lambda: C.staircase(VALUES, 1e-17), "epsilon: additive noise needs at least 1e-12"),
        (lambda: C.staircase(VALUES, 0), "epsilon"),
    ],
)
def test_refused(build, word):
    with pytest.raises(ValueError, match=word):
        build()


@pytest.mark.parametrize("epsilon", [0, 1e-9, 1, 8, 50, 700, 1e6, math.inf])
def test_exponential_and_response(epsilon):
    for make in (C.exponential, C.randomized_response):
        assert make(VALUES, epsilon).certify().holds
    assert C.exponential(VALUES, 0).transition == pytest.approx(np.full((5, 5), 0.2))
    assert C.exponential(VALUES, 1).certify().epsilon < 1
    assert risk(C.randomized_response(VALUES, 1), PRIOR) == pytest.approx(10.6426, abs=6e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1, 4, 8, 50, math.inf])
def test_square_wave(epsilon):
    m = C.square_wave(VALUES, epsilon)
    assert m.certify().holds and m.debias_values(m.mean(VALUES)) == pytest.approx(VALUES, abs=1e-9)
    unit = C.square_wave([0, 1], 1)  # Li et al. have density e^eps / (2 b e^eps + 1) on the window
    scale = 2 * unit.delta * math.e + 1
    assert unit.density(0.5, 0.5) == pytest.approx(math.e / scale) and unit.density(1.2, 0.2) == pytest.approx(
        1 / scale
    )
    with pytest.warns(br.ReleaseWarning, match="no information"):
        C.square_wave(VALUES, 0)

"""The interval mechanism: its table written out, draws against the density, columns in pieces, what is refused."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import blockrr as br
from blockrr.privacy.interval import IntervalMechanism, _integers, best_interval, square_wave_bandwidth

EDGES = [0, 1, 2, 3, 4, 5]
MASSES = [0.1, 0.35, 0.3, 0.15, 0.1]


@pytest.mark.parametrize("outside", ["uniform", "project"])
@pytest.mark.parametrize("epsilon", [0.3, 1.5, 6])
def test_moments_against_integrals(epsilon, outside):
    m = IntervalMechanism(-1, 4, 0.7, epsilon, outside=outside)
    for y in (-1, 0.3, 4, 9, -2):
        breaks = sorted({*m.support, *np.clip([y - 0.7, y + 0.7, 3.3, -0.3], *m.support)})

        def moment(f):
            pieces = zip(breaks, breaks[1:])
            return sum(integrate.quad(lambda v: f(v) * m.density(v, y), a + 1e-12, b - 1e-12)[0] for a, b in pieces)

        assert moment(lambda v: 1) == pytest.approx(1, abs=1e-8)
        assert moment(lambda v: v) == pytest.approx(m.mean([y])[0], abs=1e-8)
        assert moment(lambda v: (v - y) ** 2) == pytest.approx(m.mse([y])[0], abs=1e-8)
        assert m.variance([y]) == pytest.approx(m.mse([y]) - (m.mean([y]) - y) ** 2)


def rows(m):
    "Every row of the table that is drawn from: labels with a window, then one outside."
    (c1, c0), w, M = m.weights, m.window, m.cells
    W = np.full((M - 2 * w + 1, M), c0, object)
    for i in range(len(W)):
        W[i, i : i + 2 * w] = c1
    return W if m.outside == "project" else np.vstack([W * M, np.full((1, M), m.denominator, object)])


@pytest.mark.filterwarnings("ignore:.*carries no information")
@pytest.mark.parametrize("outside, ratio", [("uniform", 0.3), ("project", 0.3), ("uniform", 2), ("project", 1e-3)])
@pytest.mark.parametrize("epsilon", [0, 1e-12, 0.5, 3, 43, 50, 700, math.inf])
def test_certificate_against_the_table(epsilon, outside, ratio):
    m = IntervalMechanism(0, 1, ratio, epsilon, outside=outside)
    m.window, m.cells = (1, 13) if ratio < 1 else (4, 11)  # so few that the table can be written out
    m.weights = _integers(m.window, m.cells, epsilon)
    m.denominator = 2 * m.window * m.weights[0] + (m.cells - 2 * m.window) * m.weights[1]
    W, c = rows(m), m.certify()
    assert (W.sum(1) == W.sum(1)[0]).all() and c.holds and c.epsilon <= epsilon
    exact = br.certify(np.array([[Fraction(int(v), int(row.sum())) for v in row] for row in W], object))
    assert c.epsilon == exact.epsilon
    if 0.5 <= epsilon <= 3:
        assert c.epsilon == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize(
    "m, y",
    [
        (IntervalMechanism(0, 5, 0.7, 1.5), 1.2),
        (IntervalMechanism(0, 5, 0.7, 1.5), 7.0),
        (IntervalMechanism(0, 5, 3.0, 2, outside="project"), 7.0),
        (IntervalMechanism(0, 5, 0.7, math.inf), 5.0),
    ],
)
def test_draws_against_the_density(m, y):
    "A chi-squared test at the level 1e-6, with a fixed seed."
    out = m.privatize(np.full(40_000, y), seed=5)
    window = np.clip([min(y, 5) - m.delta, min(y, 5) + m.delta], *m.support)
    edges = np.union1d(np.linspace(*m.support, 40), window)
    wide = np.diff(edges) > 1e-9
    chances = m.density((edges[1:] + edges[:-1]) / 2, y) * np.diff(edges)
    expected, seen = chances[wide] * len(out), np.histogram(out, edges)[0][wide]
    live = expected > 1e-9
    scaled = expected[live] * seen.sum() / expected[live].sum()
    assert stats.chisquare(seen[live], scaled).pvalue > 1e-6 and not seen[~live].any()
    assert abs(out.mean() - m.mean([y])[0]) < 5 * math.sqrt(m.variance([y])[0] / len(out))


def test_releases():
    m = IntervalMechanism(0, 5, 0.7, 1.5)
    assert pickle.loads(pickle.dumps(m)).privatize([1, 2], seed=1) == m.privatize([1, 2], seed=1)
    assert m.privatize([1.0] * 9) != m.privatize([1.0] * 9)
    assert m.privatize([]) == [] and list(m.privatize_chunks([])) == []
    assert br.certify(m) == m.certify() and not m.certify(0.1).holds
    for bad in ([math.nan], [None], ["1"], [math.inf]):
        with pytest.raises((TypeError, ValueError), match="row 0"):
            m.privatize(bad)
    with pytest.raises(ValueError, match="threads"):
        m.privatize([1], threads=0)
    chunks = m.privatize_chunks([[1.0], ["x"]])
    next(chunks)
    with pytest.raises(TypeError, match="row 1 of the whole column, row 0 of this chunk"):
        next(chunks)


def test_releases_of_unlike_mechanisms_have_unlike_streams_and_plans():
    one, other = IntervalMechanism(0, 5, 0.7, 1.5), IntervalMechanism(0, 5, 0.7, 1.5, outside="project")
    assert one.__dask_tokenize__() != other.__dask_tokenize__()
    assert one.privatize([2.0] * 9, seed=1) != other.privatize([2.0] * 9, seed=1)


@pytest.mark.parametrize("outside", ["uniform", "project"])
def test_columns_with_labels_outside_in_pieces(outside):
    column = np.random.default_rng(0).uniform(-1, 6, 700_000)  # long enough to go in pieces by itself
    m = IntervalMechanism(0, 5, 0.7, 1.5, outside=outside)
    whole = m.privatize(column, seed=7)
    assert (m.privatize(column, seed=7, threads=3) == whole).all()
    chunks = np.split(column, [1, 70_000, 70_000, 299_999])
    assert (np.concatenate(list(m.privatize_chunks(chunks, seed=7, threads=2))) == whole).all()
    assert next(m.privatize_chunks([column[:9]], seed=7)).tolist() == whole[:9].tolist()
    assert m.privatize(column.tolist(), seed=7) == whole.tolist()


@pytest.mark.parametrize(
    "bad, word",
    [
        ((0, 5, 0, 1), "delta: needs 0 < delta"),
        ((0, 5, math.nan, 1), "delta"),
        ((0, 5, 10**400, 1), "delta: needs 0 < delta"),
        ((0, 1, 1e-25, 1), r"delta: needs at least 2\*\*-40"),
        ((0, 1e308, 1e308, 1), "does not fit a float"),
        ((-1e308, 1e308, 1, 1), "does not fit a float"),
        ((5, 0, 1, 1), "interval"),
        ((0, math.inf, 1, 1), "interval"),
        ((0, 5, 1, -1), "epsilon"),
    ],
)
def test_refused(bad, word):
    with pytest.raises((TypeError, ValueError), match=word):
        IntervalMechanism(*bad)
    with pytest.raises(ValueError, match="outside"):
        IntervalMechanism(0, 5, 1, 1, outside="clip")


def test_no_information():
    for mechanism in ((0, 5, 0.7, 0), (2, 2, 0.7, 1)):
        with pytest.warns(br.ReleaseWarning, match="carries no information"):
            IntervalMechanism(*mechanism)
    with pytest.warns(br.ReleaseWarning), pytest.raises(ValueError, match="epsilon"):
        IntervalMechanism(0, 5, 0.7, 0).debias_values([1])


def test_the_only_bin_with_mass():
    assert best_interval([0, 1, 2, 3], [0, 1, 0], math.inf, 0.1)[:2] == (1, 2)
    m = br.rp_with_prior([0, 5], [1], 1.5, 0.7)
    assert (m.low, m.high) == (0, 5)
    tiny = br.rp_with_prior([0, 1e-6, 9e3], [0.9999, 0.0001], 40)  # a bin far narrower than a cell of the whole range
    assert 2 * tiny.delta <= tiny.high - tiny.low and tiny.certify().holds


def test_the_best_interval_ends_at_edges():
    rng = np.random.default_rng(5)
    for _ in range(40):
        x, p = np.sort(rng.uniform(0, 10, 7)), rng.dirichlet(np.full(6, 0.5))
        e, d = rng.uniform(0.05, 5), rng.uniform(0.02, 3)
        total = np.concatenate([[0], np.cumsum(p)])
        pairs = [(i, j) for i in range(7) for j in range(i + 1, 7)]
        best = max((total[j] - total[i]) / (2 * d + math.exp(-e) * (x[j] - x[i])) for i, j in pairs)
        assert best_interval(x, p, e, d).score == pytest.approx(best, rel=1e-12)


def test_the_bandwidth_falls():
    assert square_wave_bandwidth(0.02 - 1e-9) == pytest.approx(square_wave_bandwidth(0.02 + 1e-9), abs=1e-6)
    assert (np.diff([square_wave_bandwidth(e) for e in np.linspace(0, 40, 900)]) < 0).all()


@pytest.mark.filterwarnings("ignore:.*carries no information")
@pytest.mark.parametrize("prior", [MASSES, [0, 0, 1, 0, 0], [1, 0, 0, 0, 1]])
@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4, 8, 30, 700, 1e6, math.inf])
def test_projection_is_no_worse(epsilon, prior):
    fine, weight = np.arange(0.005, 5, 0.01), np.repeat(MASSES, 100) / 100
    uniform, project = (br.rp_with_prior(EDGES, prior, epsilon, outside=rule) for rule in ("uniform", "project"))
    for m in (uniform, project):
        assert m.certify().holds and 2 * m.delta <= m.high - m.low + 1e-12
    assert project.mse(fine) @ weight <= uniform.mse(fine) @ weight + 1e-9
    exact = br.rp_with_prior(EDGES, MASSES, math.inf)
    assert (exact.low, exact.high) == (0, 5)


@pytest.mark.parametrize(
    "bad, word",
    [
        (([0, 2, 1], [1, 1], 1), "strictly"),
        (([0, math.nan], [1], 1), "finite"),
        ((EDGES, [1, 1], 1), "needs 5 weights"),
        ((EDGES, [0] * 5, 1), "all weights"),
        ((EDGES, MASSES, -1), "epsilon"),
        ((EDGES, MASSES, 1, 0), "delta"),
        ((EDGES, MASSES, 1, "1"), "delta"),
        ((EDGES, MASSES, 1, 1, "clip"), "outside"),
    ],
)
def test_rp_with_prior_refuses(bad, word):
    with pytest.raises((TypeError, ValueError), match=word):
        br.rp_with_prior(*bad)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_interval(data):
    k = data.draw(st.integers(1, 8))
    edges = np.concatenate([[0.0], np.cumsum(data.draw(st.lists(st.floats(1e-3, 1e3), min_size=k, max_size=k)))])
    prior = data.draw(st.lists(st.floats(0, 1), min_size=k, max_size=k).filter(any))
    epsilon = data.draw(st.one_of(st.sampled_from([700.0, 1e6, math.inf]), st.floats(0.01, 60)))
    delta = data.draw(st.one_of(st.none(), st.floats(1e-6, 1e4)))
    m = br.rp_with_prior(edges, prior, epsilon, delta, data.draw(st.sampled_from(["uniform", "project"])))
    assert m.certify().holds and m.low in edges and m.high in edges
    out = m.privatize(np.linspace(-1, edges[-1] + 1, 50))
    slack = 2 * m.step
    assert (out >= m.support[0]).all() and (out <= m.support[1] + slack).all()


def test_bits_are_fresh():
    m, y = br.rp_with_prior([0, 1, 2], [1, 1], 1), np.full(50, 0.5)
    assert (m.privatize(y) != m.privatize(y)).any() and (m.privatize(y, seed=1) == m.privatize(y, seed=1)).all()


def test_interval_in_pieces():
    m = br.rp_with_prior([0, 1, 2, 5], [1, 5, 1], 1.0)
    y = np.random.default_rng(0).uniform(-1, 7, 200_000)
    whole = m.privatize(y, seed=4)
    pieces = np.split(y, np.sort(np.random.default_rng(1).integers(0, len(y), 20)))
    assert (np.concatenate(list(m.privatize_chunks(pieces, seed=4, threads=2))) == whole).all()
    assert (m.privatize(y, seed=4, threads=5) == whole).all()
    assert (m.privatize(y[:50]) != m.privatize(y[:50])).any()
    secure = np.concatenate(list(m.privatize_chunks(pieces, threads=2)))
    assert abs(secure.mean() - m.mean(y).mean()) < 6 * math.sqrt(m.variance(y).mean() / len(y))

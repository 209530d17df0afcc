"""The lesson on mechanisms from public code: its tables against formulas of another kind, and its exact findings."""

import json
import math
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

import blockrr as br

BOOK = Path(__file__).resolve().parent.parent / "nbs" / "paper" / "wild.ipynb"
E = math.e


@pytest.fixture(scope="module")
def lesson():
    "What the lesson's cells define, its audits with few samples; assertions and pictures are left to the lesson."
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    matplotlib.use("agg")
    space = {}
    for cell in json.loads(BOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).replace("SAMPLES = 1_000_000", "SAMPLES = 4_000")
        if cell["cell_type"] == "code" and not any(
            w in source for w in ("test_eq(", "test_close(", "plt.show", "#| hide")
        ):
            exec(source, space)
    return space


def largest_ratio(table):
    "By floating-point numbers alone."
    rows = np.array(table, float)
    with np.errstate(divide="ignore"):
        return float(np.log(rows.max(0) / rows.min(0)).max())


def test_the_exact_findings(lesson):
    found = {name: (f.claimed, round(f.exact, 4)) for name, f in lesson["FINDINGS"].items()}
    assert found == {
        "RRWithPrior, k off by one": (0.5, 0.0),
        "prior times e^epsilon": (1, 1.9766),
        "a new draw in each of 20 epochs": (1, 20.0),
        "largest noisy score, 10 labels": (1, 1.1374),
        "one bit a label at epsilon/2": (1, 1.0),
        "one bit a label at epsilon": (1, 2.0),
        "Algorithm 1 as printed": (1, 1.2624),
        "staircase, coin of -1 and 1": (1, math.inf),
    }
    assert all(f.by_samples <= f.exact for f in lesson["FINDINGS"].values())


def test_rounding_is_down(lesson):
    assert all(lesson["power"](e) < Fraction(math.exp(e)) for e in (0.25, 0.5, 1, 2))
    assert br.certify(lesson["top_k"](np.array([0.5, 0.3, 0.2]), 1.0, 2), 1.0).holds


@pytest.mark.parametrize("prior", [[0.1] * 10, [0.5, 0.3, 0.2], [0.6, 0.4], [0.4, 0.3, 0.2, 0.1]])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_the_search_for_k(lesson, prior, epsilon):
    "A right search is the library's; one that is off by one never keeps more labels, and never gives more away."
    prior = np.array(prior)
    right, wrong = (lesson["kept_labels"](prior, epsilon, shift)[0] for shift in (1, 2))
    objective = [sum(sorted(prior)[::-1][:k]) / (1 + (k - 1) * math.exp(-epsilon)) for k in range(1, len(prior) + 1)]
    assert objective[right - 1] == pytest.approx(max(objective), rel=1e-12)
    assert objective[right - 1] == pytest.approx(objective[br.best_k(prior, epsilon) - 1], rel=1e-12)
    assert wrong <= right and br.certify(lesson["top_k"](prior, epsilon, wrong), epsilon).holds
    ours = br.rr_with_prior(prior, epsilon, k=right)
    order = [ours.outputs.index(i) for i in np.argsort(-prior, kind="stable")[:right]]
    assert np.allclose(lesson["top_k"](prior, epsilon, right).astype(float), ours.transition[:, order], atol=1e-12)


@pytest.mark.parametrize("prior", [[0.99, 0.01], [0.5, 0.5], [0.7, 0.2, 0.1], [0.25] * 4])
def test_prior_times_power(lesson, prior):
    table = lesson["prior_times_power"](prior, 1)
    normal = [sum(p * (E if i == y else 1) for i, p in enumerate(prior)) for y in range(len(prior))]
    ratios = [E * normal[b] / normal[a] for a, b in permutations(range(len(prior)), 2)]
    assert br.certify(table).epsilon == pytest.approx(math.log(max(ratios)), rel=1e-9)
    assert 1 - 1e-9 < br.certify(table).epsilon < 2


def test_draws_add_up(lesson):
    "Five draws, all 32 outcomes one by one."
    p = E / (1 + E)
    rows = [[math.prod(p if bit == y else 1 - p for bit in word) for word in product([0, 1], repeat=5)] for y in (0, 1)]
    by_count = np.zeros((2, 6))
    for j, word in enumerate(product([0, 1], repeat=5)):
        by_count[:, sum(word)] += [row[j] for row in rows]
    assert np.allclose(lesson["counts_of_ones"](5, 1).astype(float), by_count, atol=1e-12)
    assert largest_ratio(rows) == pytest.approx(br.certify(lesson["counts_of_ones"](5, 1)).epsilon, rel=1e-9)


def test_votes(lesson):
    p = E / (1 + E)
    for epochs in (1, 2, 5, 20):
        terms = [math.comb(epochs, n) * p**n * (1 - p) ** (epochs - n) for n in range(epochs + 1)]
        share = sum(t * (1 if 2 * n > epochs else 0.5 if 2 * n == epochs else 0) for n, t in enumerate(terms))
        assert lesson["vote_of_two"](epochs, p) == pytest.approx(share, abs=1e-12)
    exact = lesson["vote_of_two"](20, p)
    spread = math.sqrt(exact * (1 - exact) / 20_000)
    assert abs(lesson["vote_is_right"](20, 2) - exact) < 4 * spread


@pytest.mark.parametrize("K", [2, 3, 10, 30])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_largest_noisy_score(lesson, K, epsilon):
    "The integral term by term, with u = e**-x where x is above 0."
    a, n = math.exp(-epsilon), K - 1
    below = a / 2**K / K
    terms = [
        math.comb(n, k) * (-0.5) ** k * (-math.log(a) if k == 1 else (1 - a ** (k - 1)) / (k - 1)) for k in range(n + 1)
    ]
    above = (1 - (1 - a / 2) ** K) / K / a
    own = below + a / 2 * math.fsum(terms) + above
    expected = math.log(n * own / (1 - own))
    assert br.certify(lesson["noisy_maximum"](K, epsilon)).epsilon == pytest.approx(expected, rel=1e-7)
    assert expected < 2 * epsilon


@pytest.mark.parametrize("K", [2, 3, 6])
def test_bits(lesson, K):
    for of_a_bit in (0.25, 1.0):
        found = br.certify(lesson["bits"](K, of_a_bit), 2 * of_a_bit)
        assert found.holds and found.epsilon == pytest.approx(2 * of_a_bit, rel=1e-12)


@pytest.mark.parametrize("sizes", [(2, 1, 1), (5, 5, 2), (9, 1, 8), (4, 3, 0), (3, 3, 3)])
def test_algorithm_1(lesson, sizes):
    n1, n2, d = sizes
    ours = br.block_rr(br.Partition(tuple(range(n1)), tuple(range(n1, n1 + n2)), tuple(range(d))), 1)
    meant, printed = (lesson["algorithm_1"](*sizes, 1, rest) for rest in ("beta", "gamma"))
    assert np.allclose(np.array(meant, float), ours.transition, atol=1e-12)
    assert (printed == meant) == (d in (0, n1))  # without a dominant label beta is gamma
    table = lesson["normalised"](printed)
    assert largest_ratio(table) == pytest.approx(br.certify(table).epsilon, rel=1e-9)


@pytest.mark.parametrize("wrong_coin", [True, False])
def test_the_staircases_cells_are_what_is_drawn(lesson, wrong_coin):
    "Every cell within five standard errors, and none drawn that has no probability."
    table, edges = lesson["staircase"](1.0, wrong_coin)
    assert all(sum(row) == 1 for row in table)
    if not wrong_coin:
        assert br.certify(table, 1 + 1e-9).holds
        return
    n = 200_000
    for label in (0, 1):
        cells = lesson["noisy_label"](edges, 1)(np.full(n, label))
        inside = cells[(cells > 0) & (cells < len(edges))] - 1
        counts = np.bincount(inside, minlength=len(edges) - 1)
        share = table[label][:-1].astype(float)
        assert not counts[share == 0].any()
        assert (abs(counts / n - share) <= 5 * np.sqrt(share * (1 - share) / n) + 2 / n).all()


def test_the_right_staircase_has_the_known_density(lesson):
    "It falls by e**-epsilon within a step and is level from there to the next: the definition of Geng et al."
    pieces = [p for p in lesson["pieces_of_noise"](1.0, False) if p[0] >= 0]
    heights = [mass / (y - x) for x, y, mass in sorted(pieces)]
    a = 1 / lesson["power"](1.0)
    assert all(high == a * low for low, high in zip(heights[::2], heights[1::2]))
    assert heights[1:-1:2] == heights[2::2]
    assert all(x == y for (_, x, _), (y, _, _) in zip(sorted(pieces), sorted(pieces)[1:]))  # no gaps

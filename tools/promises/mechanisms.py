"""Random mechanisms from every constructor, judged with Python's integers alone."""

import math
import warnings
from collections import Counter
from fractions import Fraction
from functools import lru_cache

import numpy as np
from faults import Faults

import blockrr as br
from blockrr.privacy import comparators

EDGES = (
    1e-9,
    math.log(2),
    1.0,
    16.0,
    math.log(2**62),
    44.0,
    math.nextafter(44.0, 45),
    64.0,
    708.0,
    709.8,
    745.0,
    746.0,
    1e3,
)


# the judge: nothing of blockrr is used in it


def promised(x: float) -> Fraction:
    "What a finite epsilon promises: no more than the float, and no more than the decimal that is printed."
    return min(Fraction(x), Fraction(repr(float(x))))


@lru_cache(4096)
def exp_bounds(x: Fraction, bits: int) -> tuple:
    "Integers a and b with a <= 2**bits e**x <= b, for a rational x >= 0."
    numerator, denominator = x.as_integer_ratio()
    halvings = max(0, math.frexp(x)[1] + 8)  # so that the series is for less than 1 / 256; then as many squarings
    p = bits + 2 * halvings + 64
    denominator <<= halvings
    low = _series((numerator << p) // denominator, p, 0)
    high = _series(-((-numerator << p) // denominator), p, 1)
    for _ in range(halvings):
        low, high = low * low >> p, (high * high >> p) + 1
    return low >> p - bits, (high >> p - bits) + 1


def _series(t, p, up) -> int:
    "The exponential series of t / 2**p in units of 2**-p; up: every term one unit too large, not rounded down."
    total, term, k = 1 << p, 1 << p, 1
    while term > up:
        term = (term * t >> p) // k + up
        total, k = total + term, k + 1
    return total + up  # what is left out is together below the last term


def within(high: int, low: int, x: float) -> bool:
    "Whether high <= e**x low, exactly, for what x promises: e to a rational is irrational, so enough digits decide it."
    if high <= low or math.isinf(x):
        return True
    if low == 0 or x == 0:
        return False
    x, bits = promised(x), 256
    while True:
        a, b = exp_bounds(x, bits)
        if high << bits <= low * a:
            return True
        if high << bits > low * b:
            return False
        bits *= 2


def largest(pairs) -> tuple:
    "The pair (high, low) with the largest ratio."
    best = (1, 1)
    for high, low in pairs:
        if high * best[1] > best[0] * low:
            best = (high, low)
    return best


def judge_table(rows, denominator, epsilon) -> tuple:
    "What is wrong with a table of integers, and the pair (high, low) of its largest ratio."
    columns = list(zip(*rows))
    pairs = [(max(c), min(c)) for c in columns]
    wrong = []
    if any(low < 0 for _, low in pairs):
        wrong.append("a negative entry")
    if any(sum(r) != denominator for r in rows):
        wrong.append("a row does not sum to the denominator")
    worst = largest(pairs)
    if not within(*worst, epsilon):
        wrong.append("a ratio above e**epsilon")
    return wrong, worst


def judge_interval(c1, c0, window, cells, denominator, uniform, epsilon) -> tuple:
    """The same for RPWithPrior: c1 in the 2 w cells of a window, c0 in all others.

    uniform: labels outside the interval go to each cell alike.
    """
    wrong, moves = [], cells > 2 * window
    if c0 < 0 or c1 < c0 or window < 1 or cells < 2 * window:
        wrong.append("weights that are no density")
    total = 2 * window * c1 + (cells - 2 * window) * c0
    if total != denominator or total > 2**62:
        wrong.append("a row does not sum to the denominator")
    pairs = [(c1, c0)] if moves else []
    if moves and uniform:
        pairs += [(c1 * cells, denominator), (denominator, c0 * cells)]
    worst = largest(pairs)
    if not within(*worst, epsilon):
        wrong.append("a ratio above e**epsilon")
    return wrong, worst


def judge_certificate(mechanism, certificate, epsilon, worst, claims=True) -> list:
    "What is wrong with a mechanism's certificate, given the pair of its largest ratio; claims: try others as well."
    stated, wrong = certificate.epsilon, []
    below = math.nextafter(stated, 0)
    if {mechanism.epsilon, certificate.claimed} != {epsilon}:
        wrong.append("another epsilon than was asked for")
    if certificate.holds != within(*worst, epsilon):
        wrong.append("the certificate's verdict is wrong")
    if not within(*worst, stated):
        wrong.append("the certified epsilon is too small")
    if stated > 0 and within(*worst, below):
        wrong.append("the certified epsilon is not the smallest float")
    if not claims:
        return wrong
    if not mechanism.certify(stated).holds:
        wrong.append("the certified epsilon does not hold as a claim")
    if stated > 0 and mechanism.certify(below).holds:
        wrong.append("a claim below the certified epsilon holds")
    return wrong


def judge_worst(mechanism, certificate, rows) -> list:
    "Whether the place that a certificate names has the ratio that it states."
    stated, (output, likelier, other) = certificate.epsilon, certificate.worst
    j = mechanism.outputs.index(output)
    high, low = (rows[mechanism.labels.index(label)][j] for label in (likelier, other))
    attained = high == low if stated == 0 else not within(high, low, math.nextafter(stated, 0))
    return [] if attained else ["the worst place does not attain the certified epsilon"]


def judge_entries(mechanism) -> list:
    "Whether the integers are as near to the probabilities as is promised: 1e-12 of them above 1e-6, 2**-58 below."
    P, W = mechanism.transition, mechanism.weights
    away = np.abs(W.astype(np.longdouble) - P.astype(np.longdouble) * 2**62)
    room = np.where(P > 1e-6, 1e-12 * P * 2.0**62, 16)
    return [] if (away <= room).all() else ["an entry strays from its probability"]


def judge_limits(mechanism, kind, rows, epsilon) -> list:
    "Epsilon 0 says nothing about a label; plain randomised response has its formula, and at infinity is the label."
    wrong = []
    if epsilon == 0 and any(len(set(c)) > 1 for c in zip(*rows)):
        wrong.append("epsilon 0 and rows that differ")
    if kind not in ("rr", "randomized_response"):
        return wrong
    same, other = _randomised_response(len(rows), epsilon, mechanism.denominator)

    def room(integer):
        return 0 if math.isinf(epsilon) else max(32, 2 * integer // 10**12)

    near = np.where(np.eye(len(rows)) > 0, room(same), room(other))
    wanted = np.where(np.eye(len(rows)) > 0, same, other)
    if np.shape(rows) != wanted.shape or (np.abs(np.array(rows) - wanted) > near).any():
        wrong.append("randomised response does not follow its formula")
    return wrong


def _randomised_response(K, epsilon, denominator) -> tuple:
    "The integers nearest to e**epsilon / (e**epsilon + K - 1) and 1 / (e**epsilon + K - 1) of the denominator."
    if math.isinf(epsilon):
        return denominator, 0
    e = Fraction(exp_bounds(epsilon, 192)[0], 2**192)
    return round(denominator * e / (e + K - 1)), round(denominator / (e + K - 1))


# what is judged


def random_epsilon(rng, least=0.0, zero=True) -> float:
    "Log-uniform from 1e-9 (or `least`) to 1000; sometimes 0, infinity, or a place where the code changes its ways."
    u = rng.random()
    if u < 0.03 and zero:
        return 0.0
    if u > 0.97:
        return math.inf
    if u > 0.9:
        return max(least, float(rng.choice(EDGES)))
    return float(np.exp(rng.uniform(math.log(max(least, 1e-9)), math.log(1e3))))


def random_prior(rng, K) -> np.ndarray:
    "Weights of many shapes, degenerate ones among them."
    shape = rng.integers(9)
    if shape == 0:
        return np.ones(K)
    if shape == 1:
        return np.eye(K)[rng.integers(K)]
    if shape == 2:
        return rng.dirichlet(np.full(K, 10 ** rng.uniform(-2, 1))) + (rng.random(K) < 0.1)
    if shape == 3:
        return np.where(rng.random(K) < 0.5, rng.random(K), 0) + np.eye(K)[0]
    if shape == 4:
        return 10.0 ** rng.uniform(-300, 0, K)
    if shape == 5:
        return rng.integers(1, 4, K).astype(float)
    if shape == 6:
        return 0.5 ** np.arange(K)
    if shape == 7:
        return rng.permutation(1 / np.arange(1, K + 1) ** 2)
    return rng.random(K) * 10.0 ** rng.uniform(-200, 200)


def random_partition(rng, K) -> br.Partition:
    "Blocks by the identity, blocks with dropped labels, or blocks with random neighbours."
    order, kind = rng.permutation(K).tolist(), rng.integers(4)
    s = int(rng.integers(1, K + 1))
    majority, minority = order[:s], order[s:]
    if kind == 0:
        return br.partition_by_weight(random_prior(rng, K), 10 ** rng.uniform(-2, 3), int(rng.integers(0, 2)))
    if kind == 1:
        return br.Partition(majority, minority, majority[: rng.integers(s + 1)])
    if kind == 2:
        return br.Partition(majority, minority, majority, outputs=majority)
    outputs = rng.permutation(K)[: rng.integers(2, K + 1)].tolist()
    half = int(rng.integers(1, len(outputs)))
    b = int(rng.integers(1, min(half, len(outputs) - half) + 1))

    def pick(pool):
        return tuple(rng.choice(pool, b, replace=False).tolist())

    near = tuple(pick(outputs[:half] if y in majority else outputs[half:]) for y in range(K))
    seen = sorted({o for y in majority for o in near[y]})
    return br.Partition(majority, minority, seen[: rng.integers(len(seen) + 1)], outputs, near)


def random_values(rng, K, low=-1e3) -> np.ndarray:
    "Public numbers in order."
    if rng.random() < 0.3:
        return np.arange(K) + float(rng.integers(0, 50))
    return np.unique(rng.uniform(low, 1e3, 2 * K) * 10.0 ** rng.uniform(-6, 6))[:K]


# constructors: each returns a mechanism and the epsilon that it was asked for


def _rr(rng, K, epsilon):
    return br.rr(K, epsilon), epsilon


def _rr_with_prior(rng, K, epsilon):
    k = None if rng.random() < 0.5 else int(rng.integers(1, K + 1))
    return br.rr_with_prior(random_prior(rng, K), epsilon, k=k), epsilon


def _block_rr(rng, K, epsilon):
    return br.block_rr(random_partition(rng, K), epsilon), epsilon


def _optimal_rr(rng, K, epsilon):
    prior, rest = random_prior(rng, K), str(rng.choice(["kept", "prior", "first", "even"]))
    share = rng.choice([0.0, 1.0, rng.random(), 10.0 ** rng.uniform(-12, 0)])
    return br.optimal_rr(prior, epsilon, share * br.frontier(prior, epsilon).largest_floor, leftover=rest), epsilon


def _rr_on_bins(rng, K, epsilon):
    loss = str(rng.choice(["squared", "absolute", "poisson"]))
    values = random_values(rng, K, 0.0 if loss == "poisson" else -1e3)
    most = None if rng.random() < 0.7 else int(rng.integers(1, K))
    return br.rr_on_bins(values, random_prior(rng, len(values)), epsilon, loss, max_bins=most), epsilon


def _rp_with_prior(rng, K, epsilon):
    edges, outside = random_values(rng, K + 1), str(rng.choice(["uniform", "project"]))
    delta = None if rng.random() < 0.5 else (edges[-1] - edges[0]) * 10.0 ** rng.uniform(-6, 1)
    prior = random_prior(rng, len(edges) - 1)
    return br.rp_with_prior(edges, prior, epsilon, delta=delta, outside=outside), epsilon


def _on_values(build):
    "A constructor that takes public values and epsilon."

    def make(rng, K, epsilon):
        return build(random_values(rng, K), epsilon), epsilon

    return make


def _noise(build):
    "A constructor of additive noise, which has no epsilon 0."

    def make(rng, K, epsilon):
        epsilon, cells = epsilon or random_epsilon(rng, zero=False), int(rng.integers(2, 129))
        return build(random_values(rng, K), epsilon, cells=cells), epsilon

    return make


def _discrete_laplace(rng, K, epsilon):
    values = np.sort(rng.choice(2 * K, K, replace=False)) - K
    least = 60 * (values[-1] - values[0]) / 1000  # below, the table would have more than some 1,000 columns
    epsilon = epsilon if epsilon >= least else random_epsilon(rng, least, zero=False)
    return comparators.discrete_laplace(values, epsilon), epsilon


KINDS = {
    "rr": _rr,
    "rr_with_prior": _rr_with_prior,
    "block_rr": _block_rr,
    "optimal_rr": _optimal_rr,
    "rr_on_bins": _rr_on_bins,
    "rp_with_prior": _rp_with_prior,
    "exponential": _on_values(comparators.exponential),
    "randomized_response": _on_values(comparators.randomized_response),
    "square_wave": _on_values(comparators.square_wave),
    "laplace": _noise(comparators.laplace),
    "discrete_laplace": _discrete_laplace,
    "staircase": _noise(comparators.staircase),
}
SHARES = {"block_rr": 4, "rr_with_prior": 3, "optimal_rr": 3, "rr": 2, "rr_on_bins": 2, "rp_with_prior": 2}
NAMES = [name for name in KINDS for _ in range(SHARES.get(name, 1))]


def judge(mechanism, epsilon, kind="", claims=True) -> list:
    "Everything that is wrong with a mechanism that was asked for this epsilon."
    certificate = mechanism.certify()
    if hasattr(mechanism, "window"):
        c1, c0 = map(int, mechanism.weights)
        sizes = mechanism.window, mechanism.cells, mechanism.denominator
        wrong, worst = judge_interval(c1, c0, *sizes, mechanism.outside == "uniform", epsilon)
        return wrong + judge_certificate(mechanism, certificate, epsilon, worst, claims)
    rows = mechanism.weights.tolist()
    wrong, worst = judge_table(rows, mechanism.denominator, epsilon)
    wrong += judge_certificate(mechanism, certificate, epsilon, worst, claims)
    wrong += judge_worst(mechanism, certificate, rows)
    return wrong + judge_entries(mechanism) + judge_limits(mechanism, kind, rows, epsilon)


def make(seed, i):
    "The i-th mechanism and the epsilon it was asked for; both depend on seed and i alone, so that one can look again."
    rng = np.random.default_rng([seed, i])
    return KINDS[NAMES[i % len(NAMES)]](rng, int(rng.integers(2, 61)), random_epsilon(rng))


def run(count, seed, say=print) -> dict:
    "Make and judge `count` mechanisms."
    kinds, faults, integers = Counter(), Faults(), 0
    for i in range(count):
        kind = NAMES[i % len(NAMES)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a mechanism carries no information, for example
                mechanism, epsilon = make(seed, i)
                wrong, n = judge(mechanism, epsilon, kind, claims=i % 9 == 0), np.size(mechanism.weights)
        except Exception as e:
            wrong, n = [f"{type(e).__name__}: {e}"], 0
        kinds[kind], integers = kinds[kind] + 1, integers + n
        faults.add(f"mechanism {i}, {kind}", wrong)
        if (i + 1) % 10_000 == 0:
            say(f"mechanisms: {i + 1:,} judged, {faults.trials} with faults")
    return {"mechanisms": count, "by_constructor": dict(kinds), "integers": integers, **faults.figures()}

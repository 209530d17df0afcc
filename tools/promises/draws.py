"""Labels drawn through every container, against the integers that they are drawn from."""

import math
import warnings
from collections import Counter
from typing import Callable, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch
from faults import Faults
from scipy.stats import chi2

import blockrr as br
from blockrr.privacy import comparators

FAMILY = 1e-6  # the chance that any of all tests fails although every label is drawn as it should be
LEAST = 100  # expected counts below this are pooled, so that the chi-square distribution fits far into its tail


class Container(NamedTuple):
    "A way to hand over labels."

    domain: Callable  # K -> labels of the domain
    make: Callable  # array of labels -> column
    share: int  # of all draws, relative to the others
    most: int = 10**9  # labels


def _counting(K):
    return list(range(K))


def _spread(K):
    return [7 * i - 300 for i in range(K)]


def _names(K):
    return [f"label {i:04d}" for i in range(K)]


def _series(dtype):
    return lambda labels: pd.Series(labels, dtype=dtype)


def _chunked(labels):
    return pa.chunked_array([labels[: len(labels) // 3], labels[len(labels) // 3 :]])


CONTAINERS = {
    "numpy int64": Container(_counting, lambda y: y.astype(np.int64), 100),
    "numpy int32, spread": Container(_spread, lambda y: y.astype(np.int32), 40),
    "numpy uint8": Container(_counting, lambda y: y.astype(np.uint8), 100, 256),
    "numpy uint16": Container(_counting, lambda y: y.astype(np.uint16), 100),
    "numpy float64": Container(_counting, lambda y: y.astype(float), 10),
    "numpy str": Container(_names, lambda y: y, 10),
    "numpy object": Container(_names, lambda y: y.astype(object), 10),
    "list of int": Container(_counting, lambda y: y.tolist(), 10),
    "tuple of str": Container(_names, lambda y: tuple(y.tolist()), 5),
    "pandas int64": Container(_counting, _series("int64"), 50),
    "pandas Int16": Container(_counting, _series("Int16"), 10),
    "pandas str": Container(_names, _series("str"), 5),
    "pandas category": Container(_names, _series("category"), 5),
    "polars Int32": Container(_counting, lambda y: pl.Series(y.astype(np.int32)), 50),
    "polars String": Container(_names, lambda y: pl.Series(y.tolist(), dtype=pl.String), 5),
    "arrow int64": Container(_counting, lambda y: pa.chunked_array([y]), 30),
    "arrow string": Container(_names, _chunked, 5),
    "torch int64": Container(_counting, lambda y: torch.from_numpy(y.astype(np.int64)), 50),
    "torch uint8": Container(_counting, lambda y: torch.from_numpy(y.astype(np.uint8)), 50, 256),
}


# the test


def statistic(counts, probabilities) -> tuple:
    "Pearson's chi-square of one row, its degrees of freedom, and whether an impossible output came."
    n, impossible = int(counts.sum()), bool(counts[probabilities == 0].any())
    expected = n * probabilities
    rare = expected < LEAST
    counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    if expected[-1] < LEAST and len(expected) > 1:  # what is pooled is still rare: it joins the least of the others
        i = expected[:-1].argmin()
        for x in (counts, expected):
            x[i] += x[-1]
        counts, expected = counts[:-1], expected[:-1]
    value = ((counts - expected) ** 2 / np.maximum(expected, 1e-300)).sum()
    return float(value), len(expected) - 1, impossible


class Tally:
    "Test after test, and what they say together."

    def __init__(self, tests):
        self.threshold, self.p = FAMILY / (tests + 1), []  # Bonferroni; one more test is for all together
        self.total, self.freedom = 0.0, 0

    def add(self, counts, probabilities) -> list:
        "Test one mechanism: counts and probabilities, [rows, outputs]. What is wrong with it."
        values, freedoms, impossible = zip(*(statistic(c, p) for c, p in zip(counts, probabilities) if c.sum()))
        value, freedom = sum(values), sum(freedoms)
        self.p.append(float(chi2.sf(value, freedom)) if freedom else 1.0)
        self.total += value
        self.freedom += freedom
        wrong = ["an output that has no chance came"] if any(impossible) else []
        return [*wrong, "draws do not fit the table"] if self.p[-1] < self.threshold else wrong

    def together(self) -> float:
        "The p value of all trials as one."
        return float(chi2.sf(self.total, self.freedom)) if self.freedom else 1.0


# mechanisms and their draws


def random_mechanism(rng, domain):
    "Any mechanism for labels, at an epsilon at which something is drawn."
    K, kind = len(domain), rng.integers(5)
    epsilon, prior = float(np.exp(rng.uniform(-3, 2.5))), rng.dirichlet(np.full(K, 2.0))
    if kind == 0:
        return br.rr(domain, epsilon)
    if kind == 1:
        return br.rr_with_prior(prior, epsilon, labels=domain)
    if kind == 2:
        return br.rr_with_prior(prior, epsilon, k=int(rng.integers(1, K + 1)), labels=domain)
    floor = rng.random() * br.frontier(prior, epsilon).largest_floor
    if kind == 3:
        return br.optimal_rr(prior, epsilon, floor, labels=domain)
    return br.block_rr(br.partition_by_weight(prior, 1.2, 1), epsilon, labels=domain)


def indices(labels, domain) -> np.ndarray:
    "Places of labels in the domain; -1 where there is none."
    known = np.asarray(domain)
    array = np.asarray(labels)
    if array.dtype == object or known.dtype.kind == "U":
        array = np.asarray(array, known.dtype)
    order = known.argsort()
    at = order[np.searchsorted(known[order], array).clip(max=len(known) - 1)]
    return np.where(known[at] == array, at, -1)


def seed_for(rng):
    "Secure bits for half of the trials, a seed of 128 bits for the others."
    return int.from_bytes(rng.bytes(16), "little") if rng.integers(2) else None


def released(rng, mechanism, column, domain) -> tuple:
    "Released labels, and the mechanism that they went through: in one go, in pieces, or by `release`."
    way, seed, threads = rng.integers(5), seed_for(rng), int(rng.integers(1, 4))
    if way == 0 and isinstance(column, np.ndarray):
        cuts = np.sort(rng.integers(0, len(column) + 1, 3))
        pieces = mechanism.privatize_chunks(np.split(column, cuts), seed=seed, threads=threads)
        return np.concatenate(list(pieces)), mechanism
    if way == 1:
        prior = rng.dirichlet(np.ones(len(domain)))
        out = br.release(column, mechanism.epsilon, domain, method="rr_with_prior", prior=prior, seed=seed)
        return out.labels, out.mechanism
    return mechanism.privatize(column, seed=seed, threads=threads), mechanism


def crossed(rows, outputs, shape) -> np.ndarray:
    "How often each output came for each row."
    return np.bincount(rows * shape[1] + outputs, minlength=shape[0] * shape[1]).reshape(shape)


def through_container(rng, n, name) -> tuple:
    "Counts and probabilities of n labels through one container, and what is wrong with what came back."
    box, large = CONTAINERS[name], rng.integers(3) == 0  # large tables have a sampler of their own
    K = min(box.most, int(rng.integers(129, 190) if large else rng.integers(2, 40)))
    domain, codes = box.domain(K), rng.integers(0, K, n)
    column = box.make(np.asarray(domain)[codes])
    labels, mechanism = released(rng, random_mechanism(rng, domain), column, domain)
    same = type(labels) is type(column) and len(labels) == n
    drawn = indices(labels, domain)
    if not same or drawn.min() < 0:
        return None, None, ["not the container and the labels that came in"]
    probabilities = np.zeros((K, K))
    at = [mechanism.labels.index(o) for o in mechanism.outputs]
    probabilities[:, at] = mechanism.weights / mechanism.denominator
    return crossed(codes, drawn, (K, K)), probabilities, []


def through_values(rng, n) -> tuple:
    "The same for mechanisms whose outputs are numbers, in tables of few and of many columns."
    values = np.unique(rng.uniform(0, 9, int(rng.integers(3, 20))))
    epsilon, prior = float(np.exp(rng.uniform(-1, 2))), rng.dirichlet(np.ones(len(values)))
    build = [
        lambda: br.rr_on_bins(values, prior, epsilon),
        lambda: comparators.laplace(values, epsilon, cells=1024),
        lambda: comparators.staircase(values, epsilon, cells=200),
        lambda: comparators.exponential(values, epsilon),
    ]
    mechanism, codes = build[rng.integers(4)](), rng.integers(0, len(values), n)
    numbers = mechanism.privatize(values[codes], seed=seed_for(rng), threads=int(rng.integers(1, 4)))
    drawn = indices(numbers, mechanism.outputs)
    if drawn.min() < 0:
        return None, None, ["something that is no output"]
    return crossed(codes, drawn, mechanism.weights.shape), mechanism.weights / mechanism.denominator, []


def through_interval(rng, n) -> tuple:
    "The same for RPWithPrior: labels at both ends of the interval and outside it, outputs in 64 parts of the support."
    outside, epsilon = ["uniform", "project"][rng.integers(2)], float(np.exp(rng.uniform(-1, 2)))
    prior, delta = rng.dirichlet(np.ones(10)), rng.uniform(0.01, 0.3)
    m = br.rp_with_prior(np.linspace(0, 1, 11), prior, epsilon, delta=delta, outside=outside)
    codes = rng.integers(0, 3, n)
    labels = np.array([m.low, m.high, 2 * m.high - m.low])[codes]
    numbers = m.privatize(labels, seed=seed_for(rng), threads=int(rng.integers(1, 4)))
    cell = np.rint((numbers - m.support[0]) / m.step - 0.5).astype(np.int64)
    if cell.min() < 0 or cell.max() >= m.cells:
        return None, None, ["a number outside the support"]
    edges = np.arange(65) * m.cells // 64
    return crossed(codes, np.searchsorted(edges, cell, "right") - 1, (3, 64)), _shares(m, edges), []


def _shares(m, edges) -> np.ndarray:
    "The chance of every part of the support for a label at the low end, at the high end, and outside."
    (c1, c0), window, M = map(int, m.weights), 2 * m.window, m.cells
    heavy = [np.diff(edges.clip(*ends)) for ends in ((0, window), (M - window, M))]
    low, high = ((h * (c1 - c0) + np.diff(edges) * c0) / m.denominator for h in heavy)
    return np.array([low, high, high if m.outside == "project" else np.diff(edges) / M])


def through_many_classes(rng, n) -> tuple:
    "The same for plain randomised response on too many classes for a table: how far labels move on their circle."
    K, epsilon = int(rng.choice([5_000, 70_000, 2**20])), float(rng.uniform(3, 12))
    y = rng.integers(0, K, n)
    moved = (np.asarray(br.rr(K, epsilon).privatize(y, seed=seed_for(rng)), np.int64) - y) % K
    edges = np.append(0, 1 + np.arange(101) * (K - 1) // 100)  # not at all, or somewhere in a hundredth of the circle
    probabilities = np.diff(edges) / (math.exp(epsilon) + K - 1)
    probabilities[0] *= math.exp(epsilon)
    return crossed(0, np.searchsorted(edges, moved, "right") - 1, (1, 101)), probabilities[None], []


SPECIAL = {"values": through_values, "interval": through_interval, "many classes": through_many_classes}
SHARES = {**{name: box.share for name, box in CONTAINERS.items()}, "values": 30, "interval": 20, "many classes": 20}
PIECE = 1 << 22  # labels at a time


def plan(count) -> list:
    "(name, draws) of every trial: containers in turn, ten rounds at full size."
    rounds = min(10, max(1, count // 10**7))
    whole = [(name, -(-count * share // (sum(SHARES.values()) * rounds))) for name, share in SHARES.items()] * rounds
    return [(name, min(PIECE, n - a)) for name, n in whole for a in range(0, n, PIECE)]


def trial(rng, name, n) -> tuple:
    "Draw n labels for one trial: counts, probabilities and what is wrong."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some labels are never released, for example
        return SPECIAL[name](rng, n) if name in SPECIAL else through_container(rng, n, name)


def run(count, seed, say=print) -> dict:
    "Draw at least `count` labels and test each mechanism's draws against its table."
    trials = plan(count)
    tally, drawn, faults = Tally(len(trials)), Counter(), Faults()
    for i, (name, n) in enumerate(trials):
        try:
            counts, probabilities, wrong = trial(np.random.default_rng([seed, i]), name, n)
            if counts is not None:
                wrong = wrong + tally.add(counts, probabilities)
        except Exception as e:
            wrong = [f"{type(e).__name__}: {e}"]
        else:
            drawn[name] += n
        faults.add(f"trial {i}, {name}", wrong)
        if (i + 1) % 100 == 0:
            say(f"draws: {i + 1} of {len(trials)} trials, {sum(drawn.values()):,} labels, {faults.trials} with faults")
    p = tally.together()
    faults.add("all trials together", ["draws do not fit the tables"] if p < tally.threshold else [])
    tests = {"tests": len(trials) + 1, "degrees_of_freedom": tally.freedom, "family_level": FAMILY}
    found = {"threshold": tally.threshold, "smallest_p": min(tally.p, default=1.0), "p_of_all_together": p}
    return {"draws": sum(drawn.values()), **tests, **found, "by_container": dict(drawn), **faults.figures()}

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
from scipy.stats import chi2

import blockrr as br
from blockrr.privacy import comparators

from faults import Faults

FAMILY = 1e-6  # the chance that any of all tests fails although every label is drawn as it should be
LEAST = 100    # expected counts below this are pooled, so that the chi-square distribution fits far into its tail


class Container(NamedTuple):
    "A way to hand over labels."
    domain: Callable  # K -> labels of the domain
    make: Callable    # array of labels -> column
    share: int        # of all draws, relative to the others
    most: int = 10**9 # labels


def _counting(K): return list(range(K))
def _spread(K): return [7 * i - 300 for i in range(K)]
def _names(K): return [f"label {i:04d}" for i in range(K)]
def _series(dtype): return lambda labels: pd.Series(labels, dtype=dtype)
def _chunked(labels): return pa.chunked_array([labels[:len(labels) // 3], labels[len(labels) // 3:]])


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
        for x in (counts, expected): x[i] += x[-1]
        counts, expected = counts[:-1], expected[:-1]
    return float(((counts - expected)**2 / np.maximum(expected, 1e-300)).sum()), len(expected) - 1, impossible


class Tally:
    "Test after test, and what they say together."
    def __init__(self, tests): self.threshold, self.p, self.total, self.freedom = FAMILY / (tests + 1), [], 0., 0

    def add(self, counts, probabilities) -> list:
        "Test one mechanism: counts and probabilities, [rows, outputs]. What is wrong with it."
        rows = [statistic(c, p) for c, p in zip(counts, probabilities) if c.sum()]
        value, freedom = sum(r[0] for r in rows), sum(r[1] for r in rows)
        self.p.append(float(chi2.sf(value, freedom)) if freedom else 1.)
        self.total, self.freedom = self.total + value, self.freedom + freedom
        wrong = ["an output that has no chance came"] if any(r[2] for r in rows) else []
        return [*wrong, f"p = {self.p[-1]:.2g}"] if self.p[-1] < self.threshold else wrong

    def together(self) -> float: return float(chi2.sf(self.total, self.freedom)) if self.freedom else 1.


# mechanisms and their draws

def random_mechanism(rng, domain):
    "Any mechanism for labels, at an epsilon at which something is drawn."
    K, kind = len(domain), rng.integers(5)
    epsilon, prior = float(np.exp(rng.uniform(-3, 2.5))), rng.dirichlet(np.full(K, 2.))
    if kind == 0: return br.rr(domain, epsilon)
    if kind == 1: return br.rr_with_prior(prior, epsilon, labels=domain)
    if kind == 2: return br.rr_with_prior(prior, epsilon, k=int(rng.integers(1, K + 1)), labels=domain)
    if kind == 3: return br.optimal_rr(prior, epsilon, rng.random() * br.frontier(prior, epsilon).largest_floor, labels=domain)
    return br.block_rr(br.partition_by_weight(prior, 1.2, 1), epsilon, labels=domain)


def indices(labels, domain) -> np.ndarray:
    "Places of labels in the domain; -1 where there is none."
    known = np.asarray(domain)
    array = np.asarray(labels)
    if array.dtype == object or known.dtype.kind == "U": array = np.asarray(array, known.dtype)
    order = known.argsort()
    at = order[np.searchsorted(known[order], array).clip(max=len(known) - 1)]
    return np.where(known[at] == array, at, -1)


def seed_for(rng, i):
    "Secure bits for every second trial, a seed of 128 bits for the others."
    return int.from_bytes(rng.bytes(16), "little") if i % 2 else None


def through_container(rng, i, n, name) -> tuple:
    "Counts and probabilities of n labels through one container, and what is wrong with what came back."
    box, large = CONTAINERS[name], i % 3 == 2
    K = min(box.most, int(rng.integers(129, 190) if large else rng.integers(2, 40)))
    domain = box.domain(K)
    mechanism, codes = random_mechanism(rng, domain), rng.integers(0, K, n)
    column, threads, seed = box.make(np.asarray(domain)[codes]), int(rng.integers(1, 4)), seed_for(rng, i)
    if i % 5 == 4 and isinstance(column, np.ndarray):
        cut = sorted(rng.integers(0, n + 1, 3).tolist())
        released = np.concatenate(list(mechanism.privatize_chunks(np.split(column, cut), seed=seed, threads=threads)))
    elif i % 5 == 3:
        out = br.release(column, mechanism.epsilon, domain, method="rr_with_prior", prior=rng.dirichlet(np.ones(K)), seed=seed)
        released, mechanism = out.labels, out.mechanism
    else: released = mechanism.privatize(column, seed=seed, threads=threads)
    wrong = [] if type(released) is type(column) and len(released) == n else ["not the container that came in"]
    drawn = indices(released, domain)
    if drawn.min() < 0: return None, None, [*wrong, "something that is no label"]
    probabilities = np.zeros((K, K))
    probabilities[:, [mechanism.labels.index(o) for o in mechanism.outputs]] = mechanism.weights / mechanism.denominator
    return np.bincount(codes * K + drawn, minlength=K * K).reshape(K, K), probabilities, wrong


def through_values(rng, i, n) -> tuple:
    "The same for mechanisms whose outputs are numbers, in tables of few and of many columns."
    values, epsilon = np.unique(rng.uniform(0, 9, int(rng.integers(3, 20)))), float(np.exp(rng.uniform(-1, 2)))
    build = [lambda: br.rr_on_bins(values, rng.dirichlet(np.ones(len(values))), epsilon), lambda: comparators.laplace(values, epsilon, cells=1024),
             lambda: comparators.staircase(values, epsilon, cells=200), lambda: comparators.exponential(values, epsilon)][i % 4]
    mechanism, codes = build(), rng.integers(0, len(values), n)
    released = mechanism.privatize(values[codes], seed=seed_for(rng, i), threads=int(rng.integers(1, 4)))
    drawn, J = indices(released, mechanism.outputs), len(mechanism.outputs)
    if drawn.min() < 0: return None, None, ["something that is no output"]
    return np.bincount(codes * J + drawn, minlength=len(values) * J).reshape(-1, J), mechanism.weights / mechanism.denominator, []


def through_interval(rng, i, n) -> tuple:
    "The same for RPWithPrior: labels at both ends of the interval and outside it, outputs in 64 parts of the support."
    outside = ["uniform", "project"][i % 2]
    m = br.rp_with_prior(np.linspace(0, 1, 11), rng.dirichlet(np.ones(10)), float(np.exp(rng.uniform(-1, 2))), delta=rng.uniform(.01, .3), outside=outside)
    (c1, c0), w, M = map(int, m.weights), m.window, m.cells
    span, codes = m.high - m.low, rng.integers(0, 3, n)
    labels = np.array([m.low, m.high, m.high + span])[codes]
    cell = np.rint((m.privatize(labels, seed=seed_for(rng, i)) - m.support[0]) / m.step - .5).astype(np.int64)
    if cell.min() < 0 or cell.max() >= M: return None, None, ["a number outside the support"]
    edges = np.arange(65) * M // 64
    inside = lambda a, b: np.diff(edges.clip(a, b)) * (c1 - c0) + np.diff(edges) * c0
    low, high, flat = inside(0, 2 * w), inside(M - 2 * w, M), np.diff(edges) * (m.denominator / M)
    probabilities = np.array([low, high, high if outside == "project" else flat]) / m.denominator
    return np.bincount(codes * 64 + np.searchsorted(edges, cell, "right") - 1, minlength=192).reshape(3, 64), probabilities, []


def through_many_classes(rng, i, n) -> tuple:
    "The same for plain randomised response on more classes than a table can have: how far a label moves around the circle of classes."
    K, epsilon = int(rng.choice([5_000, 70_000, 2**20])), float(rng.uniform(3, 12))
    y = rng.integers(0, K, n)
    moved = (np.asarray(br.rr(K, epsilon).privatize(y, seed=seed_for(rng, i)), np.int64) - y) % K
    other = 1 / (math.exp(epsilon) + K - 1)
    edges = np.append(0, 1 + np.arange(101) * (K - 1) // 100)
    counts = np.bincount(np.searchsorted(edges, moved, "right") - 1, minlength=101)
    probabilities = np.diff(edges) * other
    probabilities[0] = math.exp(epsilon) * other
    return counts[None], probabilities[None], []


SPECIAL = {"values": (through_values, 30), "interval": (through_interval, 20), "many classes": (through_many_classes, 20)}
PIECE = 1 << 22  # labels at a time


def plan(count) -> list:
    "(name, draws) of every trial: containers in turn, ten rounds at full size."
    shares = {name: c.share for name, c in CONTAINERS.items()} | {name: share for name, (_, share) in SPECIAL.items()}
    rounds = min(10, max(1, count // 10**7))
    return [(name, -(-count * share // (sum(shares.values()) * rounds))) for _ in range(rounds) for name, share in shares.items()]


def trial(rng, i, n, name) -> tuple:
    "Draw n labels for one trial."
    return SPECIAL[name][0](rng, i, n) if name in SPECIAL else through_container(rng, i, n, name)


def run(count, seed, say=print) -> dict:
    "Draw at least `count` labels and test each mechanism's draws against its table."
    trials = [(name, min(PIECE, n - a)) for name, n in plan(count) for a in range(0, n, PIECE)]
    tally, by_name, faults = Tally(len(trials)), Counter(), Faults()
    for i, (name, n) in enumerate(trials):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that labels are never released, and the like: not the matter here
                counts, probabilities, wrong = trial(np.random.default_rng([seed, i]), i, n, name)
            if counts is not None: wrong = wrong + tally.add(counts, probabilities)
        except Exception as e: wrong = [f"{type(e).__name__}: {e}"]
        else: by_name[name] += n
        faults.add(f"trial {i}, {name}", wrong)
        if (i + 1) % 100 == 0: say(f"draws: {i + 1} of {len(trials)} trials, {sum(by_name.values()):,} labels, {faults.trials} with faults")
    p = tally.together()
    faults.add("all trials together", [f"p = {p:.2g}"] if p < tally.threshold else [])
    return {"draws": sum(by_name.values()), "tests": len(trials) + 1, "family_level": FAMILY, "threshold": tally.threshold, "smallest_p": min(tally.p, default=1.),
            "p_of_all_together": p, "degrees_of_freedom": tally.freedom, "by_container": dict(by_name), **faults.figures()}

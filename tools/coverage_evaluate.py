"""Count how often the intervals of `br.evaluate` hold the truth, over simulated releases; writes results/evaluate.json.

Each run draws rows from a population whose accuracy, recalls, log loss and area are known, releases their labels,
and judges fixed predictions. Usage: python tools/coverage_evaluate.py [--runs 1000] [--output results/evaluate.json]
"""

import argparse
import json
from pathlib import Path

import numpy as np

import blockrr as br
from blockrr.privacy.conformal import conformal_sets
from blockrr.privacy.evaluate import evaluate


def population(n_labels: int, rng: np.random.Generator, n: int = 400_000) -> tuple:
    "Draw labels [n] and the probabilities [n, K] of a model that is good but not calibrated."
    shares = np.arange(n_labels, 0, -1.0)
    truth = rng.choice(n_labels, n, p=shares / shares.sum())
    logits = 1.5 * rng.normal(size=(n, n_labels)) + 2.5 * np.eye(n_labels)[truth]
    p = np.exp(logits)
    return truth, p / p.sum(1, keepdims=True)


def truths(truth, p) -> dict:
    n_labels = p.shape[1]
    predicted = p.argmax(1)
    recalls = [(predicted[truth == k] == k).mean() for k in range(n_labels)]
    found = {
        "accuracy": (predicted == truth).mean(),
        "balanced_accuracy": np.mean(recalls),
        "log_loss": -np.log(p[np.arange(len(p)), truth]).mean(),
    }
    if n_labels == 2:
        ranks = np.empty(len(p))
        ranks[np.argsort(p[:, 1])] = np.arange(len(p))
        positive = truth == 1
        m = positive.sum()
        found["auc"] = (ranks[positive].sum() - m * (m - 1) / 2) / (m * (len(p) - m))
    return found


def coverage(n_labels: int, epsilon: float, n: int, runs: int, *, seed: int = 0, size: int = 400_000) -> dict:
    "Percent of intervals that hold the truth, and the mean true coverage of 90 % sets."
    rng = np.random.default_rng([seed, n_labels, n, int(100 * epsilon)])
    truth, p = population(n_labels, rng, size)
    known = truths(truth, p)
    mechanism = br.rr(n_labels, epsilon)
    held = dict.fromkeys(known, 0)
    covered = []
    for _ in range(runs):
        rows = rng.integers(len(truth), size=n)
        released = mechanism.privatize(truth[rows], seed=rng.integers(1 << 62))
        found = evaluate(p[rows], released, mechanism)
        for name, value in known.items():
            interval = getattr(found, name)
            held[name] += bool(interval.low <= value <= interval.high)
        sets = conformal_sets(p[rows], released, mechanism, coverage=0.9)
        fresh = rng.integers(len(truth), size=4000)
        covered.append(sets(p[fresh])[np.arange(4000), truth[fresh]].mean())
    percent = {name: round(100 * count / runs, 1) for name, count in held.items()}
    return {"labels": n_labels, "epsilon": epsilon, "rows": n, "runs": runs, "intervals_hold_percent": percent,
            "sets_cover_percent_of_90": round(100 * float(np.mean(covered)), 2)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("results/evaluate.json"))
    options = parser.parse_args()
    found = []
    for n_labels, epsilon, n in ((2, 1.0, 2000), (2, 4.0, 1000), (4, 1.0, 10_000), (4, 2.0, 2000), (4, 4.0, 1000)):
        found.append(coverage(n_labels, epsilon, n, options.runs))
        print(found[-1], flush=True)
    record = {"schema": 1, "what": __doc__.splitlines()[0], "version": br.__version__, "numpy": np.__version__}
    options.output.write_text(json.dumps({**record, "results": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

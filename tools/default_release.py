"""Does the default of `release` harm? A learner that knows nothing, on tables of 2 to 20 classes.

    python tools/default_release.py [--seeds 20] [--output results/default/default.json]

Needs scikit-learn and statsmodels; no network. A logistic regression is trained on released labels as if they were
true, and judged with true test labels, which nothing else ever sees. One split of rows and one release a seed.
"""

import argparse
import json
import os
import platform
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy
import sklearn
import statsmodels
import statsmodels.api as sm
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import blockrr as br

EPSILONS = (0.5, 1.0, 2.0)
METHODS = ("auto", "rr", "rr_with_prior", "block_rr")


def survey():
    "Extramarital affairs: none, some, many."
    data = sm.datasets.fair.load_pandas().data
    return data.drop(columns="affairs"), np.digitize(data.affairs, [1e-9, 1.0]), 3


def occupation():
    "The same people's occupation."
    data = sm.datasets.fair.load_pandas().data
    return data.drop(columns="occupation"), data.occupation.to_numpy(int) - 1, 6


def party():
    "Party identification in the American National Election Study of 1996."
    data = sm.datasets.anes96.load_pandas().data
    return data.drop(columns=["PID", "popul"]), data.PID.to_numpy(int), 7


def visits():
    "Visits to a doctor in the RAND health insurance experiment."
    data = sm.datasets.randhie.load_pandas().data
    return data.drop(columns="mdvis"), np.digitize(data.mdvis, [1, 2, 3, 5, 9, 15]), 7


def breast_cancer():
    return *datasets.load_breast_cancer(return_X_y=True), 2


def diabetes():
    "Progression of the disease in four steps."
    X, y = datasets.load_diabetes(return_X_y=True)
    return X, np.digitize(y, [90, 140, 210]), 4


def digits():
    return *datasets.load_digits(return_X_y=True), 10


def made(rows, features, weights, seed, **how):
    "Return a table of `make_classification` with one cluster a class."
    how = {"n_redundant": 0, "flip_y": 0.01, "class_sep": 1.5, **how}
    weights = list(np.asarray(weights, float) / np.sum(weights))
    how |= {"n_classes": len(weights), "weights": weights, "n_clusters_per_class": 1, "random_state": seed}
    return datasets.make_classification(rows, features, **how)


def in_steps(X, n_steps):
    "Return every feature in steps that hold equally many rows."
    return np.stack([np.digitize(x, np.quantile(x, np.arange(1, n_steps) / n_steps)) for x in X.T], 1)


def clinic():
    "Four classes, the rarest of 5 %."
    return *made(20_000, 24, [0.6, 0.25, 0.1, 0.05], 0, n_informative=12, n_redundant=4), 4


def jobs():
    "Twenty classes, the k-th as frequent as 1 / k."
    return *made(8_000, 20, 1 / np.arange(1, 21), 1, n_informative=12), 20


def census():
    "The same with half a million rows."
    X, y = made(500_000, 6, 1 / np.arange(1, 21), 2, n_informative=6, flip_y=0.05)
    return in_steps(X, 4), y, 20


def rarely(y, n_labels, seed):
    "Spread 0.4 % of the rows over labels that hardly occur, and give the labels a random order."
    rng = np.random.default_rng(seed)
    strayed = np.flatnonzero(rng.random(len(y)) < 0.004)
    y = y.copy()
    y[strayed] = rng.integers(y.max() + 1, n_labels, len(strayed))
    return rng.permutation(n_labels)[y]


def region():
    "Twenty labels, six of which hold 99.6 % of the rows."
    X, y = made(100_000, 8, np.arange(6, 0, -1), 3, n_informative=7)
    return in_steps(X, 3), rarely(y, 20, 0), 20


TABLES = {
    f.__name__: f
    for f in (
        breast_cancer,
        survey,
        clinic,
        diabetes,
        party,
        digits,
        occupation,
        jobs,
        visits,
        census,
        region,
    )
}


class Table:
    "Features, labels, and a learner's accuracy on them."

    def __init__(self, make):
        X, self.y, self.n_labels = make()
        cells, where = np.unique(StandardScaler().fit_transform(np.asarray(X, float)), axis=0, return_inverse=True)
        self.cells, self.where = cells, where.ravel()  # equal rows are fitted once, with their number as weight
        self.n_features = cells.shape[1]

    def split(self, seed):  # a quarter of the rows for the test
        order = np.random.default_rng(seed).permutation(len(self.y))
        return np.split(order, [len(order) - len(order) // 4])

    def accuracy(self, rows, labels, test) -> float:
        "Train on labels as if they were true; the share of test rows whose true label is found."
        if len(np.unique(labels)) == 1:
            return float((self.y[test] == labels[0]).mean())
        pairs, weight = np.unique(self.where[rows] * self.n_labels + labels, return_counts=True)
        learner = LogisticRegression(max_iter=200, tol=1e-3)
        learner.fit(self.cells[pairs // self.n_labels], pairs % self.n_labels, weight)
        return float((learner.predict(self.cells)[self.where[test]] == self.y[test]).mean())


def measure(table, epsilon, seeds) -> dict:
    "Accuracy of every method for every seed, and what the default chose."
    found = {method: [] for method in METHODS}
    chosen = []
    for seed in range(seeds):
        train, test = table.split(seed)
        known = {}
        for method in reversed(METHODS):  # the default last: where it is RR, the fit is not made twice
            out = br.release(table.y[train], epsilon, table.n_labels, method, seed=seed)
            key = out.labels.tobytes()
            if key not in known:
                known[key] = table.accuracy(train[out.index], out.labels, test)
            found[method].append(known[key])
        chosen.append(out.statement.choice)
    return {"accuracy": found, "choices": sorted(set(chosen))}


def summary(found) -> dict:
    "Means, standard deviations, and the default against RR, row by row with a 95 % interval."
    accuracy = {method: np.array(values) for method, values in found["accuracy"].items()}
    difference = accuracy["auto"] - accuracy["rr"]
    half = float(scipy.stats.t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / len(difference) ** 0.5)
    best = max((m for m in METHODS if m != "auto"), key=lambda m: accuracy[m].mean())
    return {
        "mean": {m: float(a.mean()) for m, a in accuracy.items()},
        "std": {m: float(a.std(ddof=1)) for m, a in accuracy.items()},
        "default_minus_rr": float(difference.mean()),
        "interval": [float(difference.mean()) - half, float(difference.mean()) + half],
        "best_single": best,
        "default_minus_best": float((accuracy["auto"] - accuracy[best]).mean()),
    }


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path("results/default/default.json"))
    given = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # few rows for a prior, labels that are never released: the point of the table
    start, rows = time.process_time(), []
    for name, make in TABLES.items():
        table = Table(make)
        facts = {"table": name, "rows": len(table.y), "features": table.n_features, "classes": table.n_labels}
        clean = [table.accuracy(train, table.y[train], test) for train, test in map(table.split, range(3))]
        for epsilon in EPSILONS:
            found = measure(table, epsilon, given.seeds)
            row = {**facts, "clean": float(np.mean(clean)), "epsilon": epsilon, **summary(found), **found}
            rows.append(row)
            print(name, epsilon, {m: round(100 * a, 1) for m, a in row["mean"].items()}, row["choices"], flush=True)
    worst = min(row["default_minus_rr"] for row in rows)
    versions = {"python": platform.python_version(), "scikit-learn": sklearn.__version__, "numpy": np.__version__}
    record = {
        "schema": 1,
        "learner": "LogisticRegression on standardised features, released labels taken for true",
        "seeds": given.seeds,
        "worst_default_minus_rr": worst,
        "mean_default_minus_best": float(np.mean([row["default_minus_best"] for row in rows])),
        "cpu_seconds": round(time.process_time() - start, 1),
        "device": platform.machine(),
        "versions": {**versions, "statsmodels": statsmodels.__version__, "blockrr": br.__version__},
        "tables": rows,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    draft = given.output.with_suffix(".tmp")
    draft.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(draft, given.output)
    print(f"worst difference to RR {100 * worst:.2f} points; wrote {given.output}")
    return int(worst < -0.01)


if __name__ == "__main__":
    sys.exit(main())

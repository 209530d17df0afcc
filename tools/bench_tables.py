"""How long a classifier of a table of released labels takes to fit, next to the plain one on the same labels.

    python tools/bench_tables.py [--rows 100000] [--columns 100] [--repeats 3] [--json FILE]

A synthetic table of four classes, randomized response at epsilon 1. "seconds" is wall time of the fastest
of three fits, "accuracy" is judged with the true labels of as many further rows.
"""

import argparse
import json
import os
import time

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import blockrr as br
from blockrr.learning.table_classifier import LabelDPClassifier


def table(rows, columns):
    "Return features and true labels of `rows` rows to learn from, and of as many to judge by."
    X, y = make_classification(
        2 * rows, columns, n_informative=12, n_classes=4, weights=[0.6, 0.25, 0.1, 0.05], random_state=7
    )
    return X[:rows], y[:rows], X[rows:], y[rows:]


def timed(model, X, labels):
    "Return the seconds of wall and processor time of one fit."
    begin, used = time.perf_counter(), time.process_time()
    model.fit(X, labels)
    return time.perf_counter() - begin, time.process_time() - used


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="write the figures here as well")
    args, start = parser.parse_args(), time.perf_counter()
    X, y, X_test, y_test = table(args.rows, args.columns)
    out = br.release(y, 1, 4, "rr")
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    ways = [
        ("LabelDPClassifier", LabelDPClassifier(), out),
        ("logistic regression on the released labels", plain, out.labels),
    ]
    found = []
    for name, model, labels in ways:
        seconds, used = min(timed(model, X, labels) for _ in range(args.repeats))
        right = float(np.mean(model.predict(X_test) == y_test))
        found.append({"name": name, "seconds": round(seconds, 2), "cpu": round(used, 2), "accuracy": round(right, 4)})
        print(found[-1], flush=True)
    if args.json:
        from blockrr.study.records import provenance

        facts = {"rows": args.rows, "columns": args.columns, "load": os.getloadavg()[0], "ways": found}
        with open(args.json, "w") as f:
            json.dump({"provenance": provenance(time.perf_counter() - start, {}), **facts}, f, indent=1)


if __name__ == "__main__":
    main()

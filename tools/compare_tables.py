"""Compare learners on released labels of tables: plain, aware, linear; prints accuracy, mean per class and log loss.

A small study to judge the learners' own settings; true labels of test rows are used to judge, and for nothing else.
Usage: python tools/compare_tables.py [--epsilons 0.5,1,2,4] [--seeds 2] [--tables all] [--models boosted,forest]
"""

import argparse
import time

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import blockrr as br
from blockrr.learning.any_model import NoiseAwareClassifier
from blockrr.learning.table_classifier import LabelDPClassifier


def made(n, p, shares, seed=0, **settings):
    return make_classification(n, p, n_classes=len(shares), weights=shares, random_state=seed, **settings)


def fair():
    import statsmodels.api as sm

    data = sm.datasets.fair.load_pandas().data
    y = np.digitize(data["affairs"], [1e-9, 1.0])
    return data.drop(columns="affairs").to_numpy(float), y


TABLES = {
    "clinic": lambda: made(8000, 24, [0.6, 0.25, 0.1, 0.05], n_informative=12, n_redundant=4, class_sep=1.5),
    "six": lambda: made(8000, 40, [0.4, 0.25, 0.15, 0.1, 0.06, 0.04], n_informative=14, n_redundant=6, class_sep=1.5),
    "survey": fair,
    "cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
}
MODELS = {
    "boosted": HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=0),
    "forest": RandomForestClassifier(60, min_samples_leaf=3, random_state=0),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
}


def judged(model, X, y, n_classes) -> tuple:
    p = np.zeros((len(y), n_classes))
    p[:, model.classes_.astype(int)] = model.predict_proba(X)
    predicted = p.argmax(1)
    per_class = [(predicted[y == k] == k).mean() for k in range(n_classes) if (y == k).any()]
    return 100 * (predicted == y).mean(), 100 * np.mean(per_class), log_loss(y, p, labels=range(n_classes))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", default="0.5,1,2,4")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tables", default="all")
    parser.add_argument("--models", default="boosted,forest,logistic")
    options = parser.parse_args()
    tables = TABLES if options.tables == "all" else options.tables.split(",")
    for table in tables:
        X, y = TABLES[table]()
        n_classes = int(y.max()) + 1
        for epsilon in map(float, options.epsilons.split(",")):
            mechanism = br.rr(n_classes, epsilon)
            found = {}
            seconds = {}
            for seed in range(options.seeds):
                order = np.random.default_rng(seed).permutation(len(y))
                train, test = order[: 3 * len(y) // 4], order[3 * len(y) // 4 :]
                z = mechanism.privatize(y[train], seed=seed)
                models = {"linear": LabelDPClassifier()}
                for name in options.models.split(","):
                    models[name] = clone(MODELS[name])
                    models[f"{name}, aware"] = NoiseAwareClassifier(MODELS[name], random_state=0)
                for name, model in models.items():
                    known = {} if name in MODELS else {"mechanism": mechanism}
                    start = time.process_time()
                    model.fit(X[train], z, **known)
                    seconds[name] = time.process_time() - start
                    found.setdefault(name, []).append(judged(model, X[test], y[test], n_classes))
            for name, numbers in found.items():
                a, b, loss = np.mean(numbers, 0)
                print(
                    f"{table:8s} eps {epsilon:<4g} {name:16s} {a:5.1f} / {b:5.1f}  {loss:.3f}  {seconds[name]:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()

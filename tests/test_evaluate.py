"""Evaluation from released labels: weights against brute force, intervals over simulated releases, conformal sets."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import blockrr as br
from blockrr.privacy.conformal import conformal_sets
from blockrr.privacy.evaluate import evaluate
from blockrr.privacy.scorers import released_scorer

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("coverage_evaluate", ROOT / "tools" / "coverage_evaluate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("n_labels, epsilon, n", [(2, 1.0, 1000), (4, 2.0, 1500)])
def test_intervals_hold_the_truth(study, n_labels, epsilon, n):
    "Of 200 intervals of 95 %, at least 182 hold: fewer has probability below .01 where the coverage is 94 %."
    found = study.coverage(n_labels, epsilon, n, 200, seed=1, size=100_000)
    assert min(found["intervals_hold_percent"].values()) >= 91
    assert abs(found["sets_cover_percent_of_90"] - 90) < 1.5


def test_the_record_keeps_its_promise():
    record = json.loads((ROOT / "results" / "evaluate.json").read_text(encoding="utf-8"))
    for found in record["results"]:
        assert found["runs"] == 1000
        assert all(93.5 <= percent <= 96.5 for percent in found["intervals_hold_percent"].values())
        assert abs(found["sets_cover_percent_of_90"] - 90) <= 1.5


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    truth = rng.choice(3, 30_000, p=[0.6, 0.3, 0.1])
    logits = rng.normal(size=(30_000, 3)) + 2 * np.eye(3)[truth]
    p = np.exp(logits)
    return truth, p / p.sum(1, keepdims=True)


def near(estimate, value, errors=4):
    return np.all(np.abs(np.asarray(estimate.value) - value) <= errors * np.asarray(estimate.error) + 1e-9)


MECHANISMS = {
    "rr": br.rr(3, 1.0),
    "sets": br.subset_response(3, 1.0, size=2),
    "uneven": br.Mechanism(np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.3, 0.3, 0.4]]), 1.2),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_estimates_of_the_truth(judged, name):
    truth, p = judged
    mechanism = MECHANISMS[name]
    found = evaluate(p, mechanism.privatize(truth, seed=7), mechanism)
    predicted = p.argmax(1)
    confusion = np.array([[((truth == k) & (predicted == j)).mean() for j in range(3)] for k in range(3)])
    recall = confusion.diagonal() / confusion.sum(1)
    assert near(found.accuracy, (predicted == truth).mean())
    assert near(found.confusion, confusion) and near(found.recall, recall)
    assert near(found.balanced_accuracy, recall.mean())
    assert near(found.log_loss, -np.log(p[np.arange(len(p)), truth]).mean())
    hit = (predicted == truth)[np.argsort(p.max(1), kind="stable")]
    assert near(found.calibration.accuracy, np.array([part.mean() for part in np.array_split(hit, 10)]))


def test_without_privacy_it_is_the_score(judged):
    truth, p = judged
    found = evaluate(p, truth, br.rr(3, np.inf))
    np.testing.assert_allclose(found.accuracy.value, (p.argmax(1) == truth).mean(), atol=1e-9)


def test_area_against_all_pairs():
    rng = np.random.default_rng(3)
    truth = rng.integers(2, size=400)
    score = np.round(rng.normal(size=400) + truth, 1)  # ties
    p = 1 / (1 + np.exp(-score))
    found = evaluate(np.column_stack([1 - p, p]), truth, br.rr(2, np.inf))
    one, zero = score[truth == 1][:, None], score[truth == 0]
    np.testing.assert_allclose(found.auc.value, ((one > zero) + (one == zero) / 2).mean(), atol=1e-9)


def test_rows_and_gaps(judged):
    truth, p = judged
    out = br.release(truth, 2.0, 3, method="rr", seed=1)
    rows = np.arange(0, 30_000, 3)
    part = evaluate(p[rows], out, rows=rows)
    mask = evaluate(p[rows], out, rows=np.isin(np.arange(30_000), rows))
    assert part.rows == 10_000 and part.accuracy == mask.accuracy and near(part.accuracy, (p.argmax(1) == truth).mean())
    gaps = br.release(truth, 2.0, 3, method="optimal_rr", floor=0.9, prior_fraction=0.3, seed=1)
    assert evaluate(p, gaps).rows == len(gaps.index) < 30_000


def test_words_as_labels(judged):
    truth, p = judged
    names = np.array(["no", "yes", "maybe"])
    mechanism = br.rr(names.tolist(), 2.0)
    found = evaluate(names[p.argmax(1)], mechanism.privatize(names[truth], seed=1), mechanism)
    assert near(found.accuracy, (p.argmax(1) == truth).mean()) and found.log_loss is None


def test_columns_in_another_order(judged):
    "Classifiers of words sort their classes; the domain has an order of its own."
    truth, p = judged
    names = ["no", "yes", "maybe"]
    mechanism = br.rr(names, 2.0)
    released = mechanism.privatize(np.array(names)[truth], seed=1)
    expected = evaluate(p, released, mechanism)
    order = [2, 0, 1]
    classes = [names[k] for k in order]
    for found in (
        evaluate(p[:, order], released, mechanism, classes=classes),
        evaluate(pd.DataFrame(p[:, order], columns=classes), released, mechanism),
        evaluate(pd.DataFrame(p), released, mechanism),
    ):
        assert found.accuracy == expected.accuracy and found.log_loss == expected.log_loss
    sets = conformal_sets(p[:, order], released, mechanism, classes=classes)
    assert sets.threshold == conformal_sets(p, released, mechanism).threshold
    for bad in (["no", "yes"], ["no", "no", "maybe"], ["no", "yes", "never"]):
        with pytest.raises(ValueError, match="classes: needs a different label of the domain for each of 3 columns"):
            evaluate(p, released, mechanism, classes=bad)


def test_a_release_says_what_released_a_part_of_it(judged):
    truth, p = judged
    out = br.release(truth, 2.0, 3, seed=1)
    part = slice(0, 10_000)
    expected = evaluate(p[part], out.labels[part], out.mechanism)
    assert evaluate(p[part], out.labels[part], out).accuracy == expected.accuracy
    sets = conformal_sets(p[part], out.labels[part], out)
    assert sets.threshold == conformal_sets(p[part], out.labels[part], out.mechanism).threshold


def test_a_picture_needs_probabilities(judged):
    truth, p = judged
    mechanism = MECHANISMS["rr"]
    released = mechanism.privatize(truth, seed=1)
    ax = evaluate(p, released, mechanism).plot()
    assert len(ax.lines[1].get_xdata()) == 10
    with pytest.raises(ValueError, match="plot: needs an evaluation of probabilities"):
        evaluate(p.argmax(1), released, mechanism).plot()


def test_old_names_warn():
    from blockrr.privacy import evaluate as module

    with pytest.warns(DeprecationWarning, match="use blockrr.privacy.scorers.released_scorer"):
        assert module.released_scorer is br.released_scorer
    with pytest.warns(DeprecationWarning, match="use blockrr.privacy.conformal.conformal_sets"):
        assert module.conformal_sets is br.conformal_sets


def test_labels_that_cannot_be_told_apart(judged):
    truth, p = judged
    mechanism = br.rr_with_prior([0.6, 0.3, 0.1], 1.0, k=2)
    with pytest.raises(ValueError, match="cannot tell all 3 labels apart"):
        evaluate(p, mechanism.privatize(truth, seed=1), mechanism)


def test_a_class_that_may_be_empty_has_no_recall():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=300)
    found = evaluate(truth, br.rr(3, 0.5).privatize(truth, seed=2), br.rr(3, 0.5))
    assert np.isnan(found.balanced_accuracy.value) and (found.balanced_accuracy.low, found.balanced_accuracy.high) == (
        0,
        1,
    )


def test_choosing_by_an_honest_score():
    X, y = make_classification(4000, 10, n_informative=5, class_sep=1.5, random_state=0)
    mechanism = br.rr(2, 1.0)
    z = mechanism.privatize(y, seed=1)
    settings = {"C": [1e-6, 1.0]}
    grid = GridSearchCV(LogisticRegression(), settings, scoring=released_scorer(mechanism, "accuracy"), cv=3).fit(X, z)
    truth = (grid.predict(X) == y).mean()
    assert abs(grid.best_score_ - truth) < 0.06 < abs(grid.score(X, z) - (grid.predict(X) == z).mean())
    for score in ("likelihood", "log_loss", "auc", "balanced_accuracy"):
        assert np.isfinite(released_scorer(mechanism, score)(grid.best_estimator_, X, z))


@pytest.mark.parametrize("asked", [0.8, 0.9, 0.97])
def test_sets_cover(judged, asked):
    truth, p = judged
    mechanism = MECHANISMS["rr"]
    released = mechanism.privatize(truth[:15_000], seed=2)
    fresh = np.arange(15_000, 30_000)
    sets = conformal_sets(p[:15_000], released, mechanism, coverage=asked)
    covered = sets(p[fresh])[np.arange(15_000), truth[fresh]].mean()
    assert abs(covered - asked) < 0.04  # three standard errors of the threshold's own estimate
    safe = conformal_sets(p[:15_000], released, mechanism, coverage=asked, confidence=0.99)
    assert safe.threshold <= sets.threshold and safe(p[fresh])[np.arange(15_000), truth[fresh]].mean() > asked - 0.01


@pytest.mark.parametrize("arguments, words", [
    (dict(predictions=np.zeros(4, int)), "predictions: needs 3 rows"),
    (dict(predictions=np.full((3, 2), 0.5)), "predictions: needs a probability for each of 3"),
    (dict(predictions=np.ones((3, 3))), "sum to 1"),
    (dict(predictions=np.zeros(3, int), level=1.0), "level: needs"),
    (dict(predictions=np.zeros(3, int), rows=[0, 1, 3]), "rows: needs row numbers from 0 to 2"),
    (dict(predictions=np.zeros(1, int), rows=[0]), "at least 2 rows"),
])  # fmt: skip
def test_bad_input(arguments, words):
    with pytest.raises(ValueError, match=words):
        evaluate(released=[0, 1, 2], mechanism=br.rr(3, 1.0), **arguments)

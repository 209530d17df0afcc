"""NoiseAwareClassifier around trees, forests, pipelines and models without weights; what it may and may not do."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import blockrr as br
from blockrr.learning.any_model import NoiseAwareClassifier
from blockrr.learning.rounds import Stage, fit_soft, undo_table, weigh_stages
from blockrr.learning.wrapped import split_rows, weight_name

MECHANISM = br.rr(3, 1.5)
BOOSTED = HistGradientBoostingClassifier(max_iter=30, early_stopping=False, random_state=0)


@parametrize_with_checks(
    [
        NoiseAwareClassifier(DecisionTreeClassifier(max_depth=3, random_state=0)),
        NoiseAwareClassifier(LogisticRegression(), rounds=1, cv=2),
    ]
)
def test_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(3000, 8, n_informative=6, n_classes=3, weights=[0.6, 0.3], class_sep=1.5, random_state=0)
    return X[:2000], X[2000:], y[:2000], y[2000:], MECHANISM.privatize(y[:2000], seed=1)


def loss(p, y):
    return -np.log(np.maximum(p[np.arange(len(y)), y], 1e-15)).mean()


@pytest.mark.parametrize(
    "model",
    [
        BOOSTED,
        RandomForestClassifier(30, min_samples_leaf=3, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
        KNeighborsClassifier(15),
    ],
    ids=lambda m: type(m).__name__,
)
def test_log_loss_falls_and_accuracy_does_not(table, model):
    X, X_test, _, y_test, z = table
    aware = NoiseAwareClassifier(model, random_state=0).fit(X, z, mechanism=MECHANISM)
    plain = model.fit(X, z)
    assert loss(aware.predict_proba(X_test), y_test) < 0.85 * loss(plain.predict_proba(X_test), y_test)
    assert aware.score(X_test, y_test) > plain.score(X_test, y_test) - 0.01


class Counting(ClassifierMixin, BaseEstimator):
    "A logistic regression that counts its fits."

    fits = 0

    def fit(self, X, y, sample_weight=None):
        type(self).fits += 1
        self.inner_ = LogisticRegression().fit(X, y, sample_weight)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)


@pytest.mark.parametrize("rounds, cv", [(0, 3), (2, 3), (3, 2)])
def test_number_of_fits(table, rounds, cv):
    X, _, _, _, z = table
    Counting.fits = 0
    model = NoiseAwareClassifier(Counting(), rounds, cv, random_state=0).fit(X, z, mechanism=MECHANISM)
    assert Counting.fits == model.details_["fits"] <= (rounds + 1) * cv + 1


@pytest.mark.parametrize("seed", [0, 1])
def test_rounds_do_not_harm_where_labels_say_little(seed):
    "Ten classes at epsilon 1: rounds judged by the rows that calibrated them cost a forest much of its accuracy."
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[450:], order[:450]
    mechanism = br.rr(10, 1.0)
    z = mechanism.privatize(y[train], seed=seed)
    forest = RandomForestClassifier(40, min_samples_leaf=5, random_state=0)
    aware = NoiseAwareClassifier(forest, random_state=seed).fit(X[train], z, mechanism=mechanism)
    assert aware.score(X[test], y[test]) > forest.fit(X[train], z).score(X[test], y[test])


def test_weights_of_the_average_by_hand():
    "Prior times square root of the likelihood; a round counts by what it wins over its start among the judges."

    def stage(everywhere, judged):
        nothing = dict.fromkeys(("scores", "targets", "models", "slopes", "held_out"))
        return Stage(**nothing, everywhere=everywhere, judged=judged)

    stages = {
        "estimator": stage(-10.0, -2.0),
        "linear": stage(-9.0, -2.5),
        1: stage(-50.0, -1.0),
        2: stage(-60.0, -2.2),
    }
    share = 0.2 / 3
    logs = {"shares": -22 / 2, "estimator": -10, "linear": -9, 1: -9 - 1 + 2.5, 2: -9 - 2.2 + 2.5}
    priors = {"shares": 0.2, "estimator": 0.6, "linear": share, 1: share, 2: share}
    odds = {name: priors[name] * np.exp(logs[name]) for name in logs}
    expected = {name: value / sum(odds.values()) for name, value in odds.items()}
    assert weigh_stages(stages, "linear", -22.0) == pytest.approx(expected)


def test_the_prediction_is_the_average(table):
    "Of class shares and of every stage, each its models together; the last model of the heaviest counts two thirds."
    X, X_test, _, _, z = table
    model = NoiseAwareClassifier(LogisticRegression(), random_state=0).fit(X, z, mechanism=MECHANISM)
    weights = model.details_["weights"]
    assert set(weights) == {"shares", "estimator", "linear", 1, 2} and sum(weights.values()) == pytest.approx(
        1, abs=1e-3
    )
    parts = model._model.stages
    assert sorted(weight for weight, _ in parts) == pytest.approx(
        sorted(w for w in weights.values() if w >= 0.005), abs=0.02
    )
    by_hand = model._model.shares + sum(weight * stage(X_test[:9]) for weight, stage in parts)
    np.testing.assert_allclose(model.predict_proba(X_test[:9]), by_hand)
    assert [stage.weights[-1] for _, stage in parts if len(stage.weights) == 4] == [pytest.approx(2 / 3)]


def test_the_estimators_start_keeps_the_order_of_classes_of_the_plain_model():
    X, y = load_digits(return_X_y=True)
    mechanism = br.rr(10, 0.7)
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    kept = []
    for seed in range(4):
        z = mechanism.privatize(y, seed=seed)
        aware = NoiseAwareClassifier(plain, 0, start="estimator", random_state=0).fit(X, z, mechanism=mechanism)
        [(_, stage)] = aware._model.stages
        last = stage._replace(models=stage.models[-1:], weights=(1.0,))
        kept.append((last(X).argmax(1) == plain.fit(X, z).predict(X)).mean())
    assert min(kept) > 0.99


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_seven_classes_at_half_an_epsilon(seed):
    "A rule that chose one model gave class shares, or was sure of what is wrong, where the plain model did well."
    X, y = make_classification(
        3000, 12, n_informative=8, n_redundant=0, n_classes=7, n_clusters_per_class=1, class_sep=1.5, random_state=seed
    )
    mechanism = br.rr(7, 0.5)
    z = mechanism.privatize(y[:1500], seed=1000 + seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    aware = NoiseAwareClassifier(model, random_state=seed).fit(X[:1500], z, mechanism=mechanism)
    plain = model.fit(X[:1500], z)
    assert aware.informative_
    assert aware.score(X[1500:], y[1500:]) > plain.score(X[1500:], y[1500:]) - 0.03
    assert loss(aware.predict_proba(X[1500:]), y[1500:]) < np.log(7) - 0.05


@pytest.mark.parametrize("epsilon, worse", [(0.5, 0.04), (4.0, 0.003)])
@pytest.mark.parametrize("shares", [(0.5, 0.3, 0.2), (1 / 7,) * 7], ids=["three", "seven"])
def test_features_that_say_nothing_cost_next_to_nothing(epsilon, worse, shares):
    "Log loss against the true shares, which nobody knows; with labels that say enough, the learner says so."
    n_classes = len(shares)
    mechanism = br.rr(n_classes, epsilon)
    few = RandomForestClassifier(10, min_samples_leaf=5, random_state=0)
    extra = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(3000, 6)), rng.choice(n_classes, 3000, p=shares)
        z = mechanism.privatize(y[:1500], seed=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            aware = NoiseAwareClassifier(few, random_state=seed).fit(X[:1500], z, mechanism=mechanism)
        said = [str(w.message) for w in caught if "little more than the class shares" in str(w.message)]
        assert len(said) == (not aware.informative_)
        if epsilon > 1:
            assert not aware.informative_
        extra.append(loss(aware.predict_proba(X[1500:]), y[1500:]) - loss(np.tile(shares, (1500, 1)), y[1500:]))
    assert np.mean(extra) < worse


def test_same_seed_same_model_and_the_estimator_is_untouched(table):
    X, X_test, _, _, z = table
    estimator = LogisticRegression()
    a, b = (
        NoiseAwareClassifier(estimator, random_state=3).fit(X, z, mechanism=MECHANISM).predict_proba(X_test)
        for _ in range(2)
    )
    assert (a == b).all() and not hasattr(estimator, "coef_")


def test_data_frames_with_words(table):
    X, X_test, y, y_test, z = table
    frame, frame_test = (pd.DataFrame(a).assign(site=np.where(a[:, 0] > 0, "north", "south")) for a in (X, X_test))
    frame.columns = frame_test.columns = [str(c) for c in frame.columns]
    encode = make_column_transformer((OneHotEncoder(), ["site"]), remainder="passthrough")
    model = NoiseAwareClassifier(make_pipeline(encode, BOOSTED), random_state=0, rounds=1)
    model.fit(frame, z, mechanism=MECHANISM)
    assert model.score(frame_test, y_test) > 0.75


def test_names_and_numbers_of_features(table):
    X, X_test, _, _, z = table
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(8)])
    model = NoiseAwareClassifier(LogisticRegression(), 0, random_state=0).fit(frame, z, mechanism=MECHANISM)
    assert model.n_features_in_ == 8 and list(model.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"x3": "y"}))
    model.fit(X, z, mechanism=MECHANISM)
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match="X has 7 features, but NoiseAwareClassifier is expecting 8"):
        model.predict(X_test[:, :7])


class Brightness(ClassifierMixin, BaseEstimator):
    "A logistic regression of the mean of each colour of an image."

    def fit(self, X, y, sample_weight=None):
        self.inner_ = LogisticRegression().fit(X.mean((1, 2)), y, sample_weight)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X.mean((1, 2)))


def test_images(table):
    X, X_test, _, y_test, z = table
    images, images_test = (np.tile(a[:, None, None], (1, 4, 4, 1)) for a in (X, X_test))
    model = NoiseAwareClassifier(Brightness(), random_state=0, rounds=1).fit(images, z, mechanism=MECHANISM)
    assert model.details_["start"] == "estimator" and not hasattr(model, "n_features_in_")
    assert model.score(images_test, y_test) > 0.7


def test_texts(table):
    _, _, y, y_test, z = table
    words = np.array(["red apple", "green pear", "blue plum"])
    model = NoiseAwareClassifier(make_pipeline(CountVectorizer(), LogisticRegression()), random_state=0, rounds=1)
    model.fit(words[y].tolist(), z, mechanism=MECHANISM)
    assert model.score(words[y_test], y_test) == 1


@pytest.mark.parametrize("start", ["estimator", "linear"])
def test_numbers_that_are_missing(table, start):
    X, X_test, _, y_test, z = table
    holes = np.where(np.random.default_rng(0).random(X_test.shape) < 0.05, np.nan, X_test)
    for inner in (BOOSTED, make_pipeline(SimpleImputer(), LogisticRegression())):
        model = NoiseAwareClassifier(inner, 0, random_state=0, start=start).fit(X, z, mechanism=MECHANISM)
        assert get_tags(model).input_tags.allow_nan and model.score(holes, y_test) > model.score(X_test, y_test) - 0.1
    model = NoiseAwareClassifier(LogisticRegression(), 0, random_state=0, start=start).fit(X, z, mechanism=MECHANISM)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(holes)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.vstack([holes[:1], X[1:]]), z, mechanism=MECHANISM)


@pytest.mark.parametrize(
    "inner, sparse, nan",
    [
        (LogisticRegression(), True, False),
        (HistGradientBoostingClassifier(), False, True),
        (make_pipeline(StandardScaler(), LogisticRegression()), False, False),
        (make_pipeline(SimpleImputer(), LogisticRegression()), True, True),
        (make_pipeline(make_column_transformer((OneHotEncoder(), [0])), LogisticRegression()), False, True),
        (GridSearchCV(HistGradientBoostingClassifier(), {}), False, True),
    ],
)
def test_tags_are_those_of_the_estimator_inside(inner, sparse, nan):
    tags = get_tags(NoiseAwareClassifier(inner)).input_tags
    assert (tags.sparse, tags.allow_nan, tags.pairwise) == (sparse, nan, False)


def test_given_splits_keep_groups_together(table):
    X, X_test, _, y_test, z = table
    groups = np.arange(len(X)) // 4
    splits = list(GroupKFold(4).split(X, groups=groups))
    model = NoiseAwareClassifier(LogisticRegression(), cv=splits, random_state=0).fit(X, z, mechanism=MECHANISM)
    assert model.score(X_test, y_test) > 0.6 and model.details_["fits"] <= 3 * 3 + 1
    made = split_rows(splits, np.arange(len(X)), rng=np.random.RandomState(0))
    parts = [groups[made.judges], *(groups[rows] for rows in made.test)]
    assert all(set(a).isdisjoint(b) for i, a in enumerate(parts) for b in parts[:i])
    assert all(set(groups[a]).isdisjoint(groups[b]) for a, b in zip(made.train, made.test))
    assert all(set(a).isdisjoint(made.judges) for a in made.train)


def test_weights_are_counts(table):
    "A weight of two is a row twice, where the splits say so too."
    X, X_test, _, _, z = table
    w = np.random.default_rng(0).integers(0, 3, len(X))
    twice = np.arange(len(X)).repeat(w)
    exact = LogisticRegression(tol=1e-8, max_iter=1000)

    def probabilities(rows, weights):
        splits = [(np.flatnonzero(rows % 3 != k), np.flatnonzero(rows % 3 == k)) for k in range(3)]
        model = NoiseAwareClassifier(exact, 1, splits, random_state=0)
        return model.fit(X[rows], z[rows], weights, mechanism=MECHANISM).predict_proba(X_test)

    p = probabilities(np.arange(len(X)), w)
    assert np.ptp(p) > 0.5
    np.testing.assert_allclose(p, probabilities(twice, None), atol=1e-4)


def test_sets_and_releases(table):
    X, X_test, y, y_test, _ = table
    mechanism = br.subset_response(3, 1.5, size=2)
    model = NoiseAwareClassifier(LogisticRegression(), random_state=0)
    model.fit(X, mechanism.privatize(y, seed=1), mechanism=mechanism)
    assert model.score(X_test, y_test) > 0.6
    out = br.release(y, 2.0, 3, method="rr", seed=1)
    assert NoiseAwareClassifier(LogisticRegression(), random_state=0).fit(X, out).score(X_test, y_test) > 0.6


def test_nothing_to_learn(table):
    X, X_test, y, _, _ = table
    nothing = br.rr(3, 0.01)
    with pytest.warns(UserWarning, match="say nothing about the features"):
        model = NoiseAwareClassifier(LogisticRegression(), random_state=0)
        model.fit(X, nothing.privatize(y, seed=1), mechanism=nothing)
    np.testing.assert_allclose(model.predict_proba(X_test[:3]), np.tile(model.shares_, (3, 1)))


def test_a_class_that_is_hardly_there():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.where(np.arange(400) < 2, 2, X[:, 0] > 0).astype(int)
    model = NoiseAwareClassifier(LogisticRegression(), random_state=0).fit(X, br.rr(3, 4.0).privatize(y, seed=0),
                                                                           mechanism=br.rr(3, 4.0))  # fmt: skip
    assert model.predict_proba(X).shape == (400, 3) and np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("start", ["estimator", "linear"])
def test_pickles(table, start):
    X, X_test, _, _, z = table
    model = NoiseAwareClassifier(LogisticRegression(), 0, start=start, random_state=0).fit(X, z, mechanism=MECHANISM)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(X_test) == model.predict_proba(X_test)).all()


def test_weights_reach_the_last_step():
    assert weight_name(make_pipeline(StandardScaler(), LogisticRegression())) == "logisticregression__sample_weight"
    assert weight_name(KNeighborsClassifier()) is None


@pytest.mark.parametrize("model", [LogisticRegression(C=100), KNeighborsClassifier(200)])
def test_soft_targets_are_learnt(model):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 1))
    q = 1 / (1 + np.exp(-2 * X))
    fitted = fit_soft(model, X, np.hstack([1 - q, q]), weights=np.ones(3000), rng=np.random.RandomState(0))
    # labels that are drawn have a standard deviation of .03 among 200 neighbours
    assert abs(fitted.predict_proba([[0.5]])[0, 1] - 1 / (1 + np.exp(-1))) < 0.1


@pytest.mark.parametrize(
    "name, place",
    [
        ("check_options", "wrapped.check_rounds"),
        ("class_probabilities", "rounds.class_probabilities"),
        ("fit_soft", "rounds.fit_soft"),
        ("undo_table", "rounds.undo_table"),
        ("weight_name", "wrapped.weight_name"),
    ],
)
def test_old_places_say_where_the_new_ones_are(name, place):
    from blockrr.learning import any_model, rounds, wrapped

    with pytest.warns(DeprecationWarning, match=f"any_model.{name} is deprecated.*: use blockrr.learning.{place}"):
        old = getattr(any_model, name)
    module, new = place.split(".")
    assert old is getattr({"rounds": rounds, "wrapped": wrapped}[module], new)


def test_undone_tables_are_most_likely():
    "Against a search over the simplex, where the released distribution is none that the table can make."
    T = MECHANISM.transition
    grid = np.array([(a, b, 100 - a - b) for a in range(101) for b in range(101 - a)]) / 100
    for P in ([0.9, 0.05, 0.05], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]):
        best = grid[(np.log(grid @ T) @ P).argmax()]
        np.testing.assert_allclose(undo_table(np.array([P]), T, 2000)[0], best, atol=0.02)


@pytest.mark.parametrize(
    "settings, words",
    [
        (dict(rounds=-1), "rounds"),
        (dict(cv=1), "cv: needs an integer >= 2"),
        (dict(cv=[(0, 1)]), "cv: needs an integer or at least 3 splits"),
        (dict(cv=[([0, 1], [2, 3])] * 3), "cv: needs splits whose test rows are every row once"),
        (dict(start="x"), "start: needs one of"),
    ],
)
def test_bad_options(table, settings, words):
    X, _, _, _, z = table
    with pytest.raises(ValueError, match=words):
        NoiseAwareClassifier(LogisticRegression(), **settings).fit(X, z, mechanism=MECHANISM)


def test_bad_input(table):
    X, _, _, _, z = table
    with pytest.raises(ValueError, match="X: needs a row for each of 1999"):
        NoiseAwareClassifier().fit(X, z[:-1], mechanism=MECHANISM)
    with pytest.raises(ValueError, match="requires y to be passed"):
        NoiseAwareClassifier().fit(X)


def test_digits_that_are_text_are_no_numbers():
    "A linear start would predict by them, and fail on words that the estimator copes with."
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=240)
    X = pd.DataFrame({"code": np.array(["10", "20", "30"], object)[codes]})
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    model = NoiseAwareClassifier(pipeline, rounds=0, random_state=0)
    model.fit(X, br.release(codes, 2.0, 3, "rr", seed=1))
    assert np.isfinite(model.predict_proba(pd.DataFrame({"code": ["2A", "10"]}))).all()


def test_numbers_that_are_missing_or_huge_when_predicting():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(240, 2)), columns=["a", "b"])
    y = (X.a > 0).to_numpy().astype(int)
    trees = HistGradientBoostingClassifier(max_iter=5, early_stopping=False)
    model = NoiseAwareClassifier(trees, rounds=0, random_state=0).fit(X, br.release(y, 2.0, 2, "rr", seed=1))
    new = pd.DataFrame({"a": [pd.NA, 1.0], "b": [0.5, pd.NA]}, dtype="Float64")
    assert np.isfinite(model.predict_proba(new)).all()
    far = pd.DataFrame({"a": [1e308, -1e308], "b": [0.0, 0.0]})
    assert np.isfinite(model.predict_proba(far)).all()


def test_an_estimator_whose_probabilities_are_no_numbers_is_named():
    class Broken(LogisticRegression):
        def predict_proba(self, X):
            return super().predict_proba(X) * np.nan

    X = np.random.default_rng(0).normal(size=(200, 2))
    out = br.release((X[:, 0] > 0).astype(int), 2.0, 2, "rr", seed=1)
    with pytest.raises(ValueError, match="estimator: needs finite probabilities, got NaN or infinity from Broken"):
        NoiseAwareClassifier(Broken(), random_state=0).fit(X, out)

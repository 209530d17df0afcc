"""NoiseAwareRegressor: nearer to the truth than belief, for tables and intervals; what it refuses."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import blockrr as br
from blockrr.learning.any_regressor import NoiseAwareRegressor, numeric_evidence
from blockrr.privacy.comparators import discrete_laplace, exponential, randomized_response, square_wave

VALUES = np.arange(11.0)


class OnAnInterval(NoiseAwareRegressor):
    "Takes the checks' numbers for released by a square wave, for these name no mechanism."

    def fit(self, X, y=None, sample_weight=None):
        large = y is not None and np.abs(np.nan_to_num(np.asarray(y, float))).max(initial=0) > 60
        ends = [-1000.0, 1000.0] if large else [-10.0, 60.0]
        return super().fit(X, y, sample_weight, mechanism=square_wave(ends, 8.0))


@parametrize_with_checks(
    [
        OnAnInterval(KernelRidge(alpha=0.01, kernel="rbf", gamma=0.001)),
        OnAnInterval(LinearRegression()),
    ]
)
def test_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    y = np.clip(np.round(5 + 2 * X[:, 0] + X[:, 1] * np.abs(X[:, 1]) + 0.5 * rng.normal(size=4000)), 0, 10)
    return X[:3000], X[3000:], y[:3000], y[3000:]


@pytest.mark.parametrize("mechanism", [
    randomized_response(VALUES, 2.0), discrete_laplace(VALUES, 2.0), exponential(VALUES, 2.0), square_wave([0, 10], 2.0)
], ids=lambda m: m.name)  # fmt: skip
@pytest.mark.parametrize("model", [LinearRegression(), HistGradientBoostingRegressor(max_iter=50)])
def test_nearer_than_belief(table, mechanism, model):
    X, X_test, y, y_test = table
    z = mechanism.privatize(y, seed=3)
    aware = NoiseAwareRegressor(model, random_state=0).fit(X, z, mechanism=mechanism)
    error = np.square(aware.predict(X_test) - y_test).mean()
    believed = np.square(model.fit(X, z).predict(X_test) - y_test).mean()
    unbiased = mechanism.name == "discrete Laplace" and isinstance(model, LinearRegression)  # nothing to undo there
    assert error < (1.05 if unbiased else 1) * believed
    assert aware.predict(X_test).min() >= 0 and aware.predict(X_test).max() <= 10
    assert aware.details_["fits"] <= 3 * 3 + 1


def test_nothing_to_learn(table):
    X, X_test, y, _ = table
    mechanism = randomized_response(VALUES, 0.01)
    with pytest.warns(UserWarning, match="say nothing.*every row gets the estimated mean"):
        model = NoiseAwareRegressor(LinearRegression(), random_state=0)
        model.fit(X, mechanism.privatize(y, seed=1), mechanism=mechanism)
    assert np.ptp(model.predict(X_test)) == 0


def test_the_prediction_is_the_average(table):
    "Of the estimated mean and every round, each its models together."
    X, X_test, y, _ = table
    mechanism = randomized_response(VALUES, 1.0)
    model = NoiseAwareRegressor(LinearRegression(), random_state=0)
    model.fit(X[:600], mechanism.privatize(y[:600], seed=1), mechanism=mechanism)
    weights = model.details_["weights"]
    assert sum(weights.values()) == pytest.approx(1, abs=1e-3) and set(weights) == {"mean", 0, 1, 2}
    nats = {
        name: 150 * (value - model.details_["held_out_constant"]) for name, value in model.details_["held_out"].items()
    }
    odds = {"mean": 0.5} | {name: 0.5 / 3 * np.exp((value - 1) / 2) for name, value in nats.items()}
    assert weights == pytest.approx({name: value / sum(odds.values()) for name, value in odds.items()}, abs=2e-3)
    parts = model._model.parts
    by_hand = model._model.mean + sum(w * law.mean(inner.predict(X_test[:9])) for w, law, inner in parts)
    np.testing.assert_allclose(model.predict(X_test[:9]), by_hand)
    assert model._model.mean / model.mean_ + sum(w for w, _, _ in parts) == pytest.approx(1)


def test_features_that_say_nothing_cost_next_to_nothing():
    mechanism = randomized_response(VALUES, 3.0)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 4)), np.clip(np.round(5 + 2 * rng.normal(size=3000)), 0, 10)
    with pytest.warns(UserWarning, match="say nothing.*every row gets little more than the estimated mean"):
        model = NoiseAwareRegressor(HistGradientBoostingRegressor(max_iter=20), random_state=0)
        model.fit(X[:1500], mechanism.privatize(y[:1500], seed=1), mechanism=mechanism)
    assert not model.informative_
    assert np.square(model.predict(X[1500:]) - y[1500:]).mean() < 1.02 * y[1500:].var()


def test_evidence_of_a_table():
    mechanism = discrete_laplace(VALUES, 1.0)
    z = mechanism.privatize(np.arange(11.0).repeat(5), seed=1)
    found = numeric_evidence(z, mechanism)
    by_hand = mechanism.transition.T[[mechanism.outputs.index(v) for v in z]]
    ratio = found.table[found.column] / by_hand
    np.testing.assert_allclose(ratio, ratio[:, :1].repeat(11, 1))


@pytest.mark.parametrize("bad, words", [([0.0, 55.0], "row 1"), ([0.0, np.nan], "finite"), ([[1.0]], "shape")])
@pytest.mark.parametrize("mechanism", [randomized_response(VALUES, 1.0), square_wave([0, 10], 1.0)])
def test_numbers_that_were_never_released(bad, words, mechanism):
    with pytest.raises(ValueError, match=words):
        numeric_evidence(bad, mechanism)


def test_sizes(table):
    X, _, y, _ = table
    with pytest.raises(ValueError, match="X: needs 2999 rows"):
        NoiseAwareRegressor().fit(X, y[:-1], mechanism=randomized_response(VALUES, 1.0))


def test_data_frames_with_words(table):
    X, X_test, y, y_test = table
    mechanism = randomized_response(VALUES, 3.0)
    frame, frame_test = (
        pd.DataFrame({"site": np.where(a[:, 0] > 0, "north", "south"), "b": a[:, 1]}) for a in (X, X_test)
    )
    encode = make_column_transformer((OneHotEncoder(), ["site"]), remainder="passthrough")
    model = NoiseAwareRegressor(make_pipeline(encode, LinearRegression()), random_state=0)
    model.fit(frame, mechanism.privatize(y, seed=1), mechanism=mechanism)
    assert list(model.feature_names_in_) == ["site", "b"] and model.score(frame_test, y_test) > 0.5


def test_given_splits(table):
    X, X_test, y, y_test = table
    mechanism = randomized_response(VALUES, 3.0)
    splits = list(GroupKFold(4).split(X, groups=np.arange(len(X)) // 5))
    model = NoiseAwareRegressor(LinearRegression(), cv=splits, random_state=0)
    model.fit(X, mechanism.privatize(y, seed=1), mechanism=mechanism)
    assert model.score(X_test, y_test) > 0.6 and model.details_["fits"] <= 3 * 3 + 1


def test_few_rows_get_the_estimated_mean():
    mechanism = randomized_response(VALUES, 8.0)
    with pytest.warns(UserWarning, match="every row gets the estimated mean"):
        model = NoiseAwareRegressor(LinearRegression()).fit(VALUES[:, None], VALUES, mechanism=mechanism)
    np.testing.assert_allclose(model.predict([[0.0], [9.0]]), 5.0)


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_two_outputs_do_not_run_off(epsilon, seed):
    "Where two bins are released, the slope cannot be told from the spread; predictions keep the values' variance."
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2500, 3))
    values = np.clip(np.round(5 + 2 * X[:, 0]), 0, 10)
    mechanism = br.rr_on_bins(range(11), np.ones(11) / 11, epsilon)
    assert len(mechanism.outputs) == 2 if epsilon == 2 else len(mechanism.outputs) <= 2
    released = mechanism.privatize(values[:1500].astype(int), seed=seed + 100)
    model = NoiseAwareRegressor(LinearRegression(), random_state=0).fit(X[:1500], released, mechanism=mechanism)
    error = np.mean((model.predict(X[1500:]) - values[1500:]) ** 2)
    assert error < 0.6 * values[1500:].var()

"""What the probe refuses, and runs against scikit-learn on random integers."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from blockrr.learning.features import Features
from blockrr.learning.probe import Moments, Probe, gcv, rescaled_share

RNG = np.random.default_rng(0)
N, D, M = 400, 12, 30


@pytest.fixture(scope="module")
def probe():
    train, test = (RNG.integers(-127, 128, (n, D)).astype(np.int8) for n in (N, M))
    return Probe(Features(train, test, {"toy": 1}), (0.01, 0.3, 10.0), cache=False)


@pytest.fixture(scope="module")
def runs():
    y = RNG.integers(0, 4, (6, N))
    y[1, RNG.choice(N, 5, False)] = -1
    y[2] = np.where(y[1] < 0, -1, y[2])  # the same rows set aside
    y[3, RNG.choice(N, 150, False)] = -1
    y[4, y[4] == 2] = 0  # an output that does not occur
    return y


@pytest.mark.parametrize("criterion", ["rescaled", "gcv"])
def test_against_scikit_learn(probe, runs, criterion):
    fit = probe.fit(runs, 4, criterion)
    for y, penalty, scores in zip(runs, fit.penalty, fit.scores):
        on = y >= 0
        seen = np.isin(np.arange(4), y)
        solver = Ridge(alpha=penalty * float(probe.scale), solver="cholesky")
        x = probe.features.train[on].astype(float)
        theirs = solver.fit(x, np.eye(4)[y[on]]).predict(probe.features.test.astype(float))
        np.testing.assert_allclose(scores[:, seen], theirs[:, seen], atol=1e-9)
        assert np.isneginf(scores[:, ~seen]).all()


@pytest.mark.parametrize("criterion", ["rescaled", "gcv"])
def test_a_run_does_not_depend_on_its_neighbours(probe, runs, criterion):
    whole = probe.fit(runs, 4, criterion)
    for i in range(len(runs)):
        np.testing.assert_allclose(
            probe.fit(runs[i : i + 1], 4, criterion).scores[0],
            whole.scores[i],
            atol=1e-10,
        )
    assert (probe.fit(runs, 4, criterion, batch_size=2).predictions == whole.predictions).all()


def test_criteria_by_their_definition():
    "With no leverage, GCV is the squared error and the rescaled share is the squared correlation."
    y, f = RNG.normal(size=(2, 50, 3))
    y -= y.mean(0)
    f -= f.mean(0)
    moments = Moments(*((a * b).sum(0) for a, b in ((y, y), (y, f), (f, f))))
    assert gcv(moments, 0.0) == pytest.approx(-np.square(y - f).sum())
    explained = [max(np.corrcoef(y[:, k], f[:, k])[0, 1], 0) ** 2 * (y[:, k] @ y[:, k]) for k in range(3)]
    assert rescaled_share(moments, 0.0) == pytest.approx(sum(explained) / np.square(y).sum())


@pytest.mark.parametrize(
    "change, options, error, message",
    [
        (lambda y: y[:, :-1], {}, ValueError, "a label for each training image"),
        (lambda y: y.astype(float), {}, TypeError, "released: needs integers"),
        (
            lambda y: y,
            {"n_outputs": 3},
            ValueError,
            "released: needs integers from 0 to 2",
        ),
        (lambda y: y - 2, {}, ValueError, "or -1 where nothing was released"),
        (lambda y: np.full_like(y, -1), {}, ValueError, "at least two labels"),
        (
            lambda y: y,
            {"criterion": "test accuracy"},
            ValueError,
            "criterion: needs one of rescaled, gcv",
        ),
        (
            lambda y: y,
            {"batch_size": 0},
            ValueError,
            "batch_size: needs an integer >= 1",
        ),
    ],
)
def test_bad_runs(probe, runs, change, options, error, message):
    with pytest.raises(error, match=message):
        probe.fit(change(runs), **options)


@pytest.mark.parametrize("ratios", [(0.0, 1.0), (), (np.nan,), ((1.0,),)])
def test_bad_ratios(probe, ratios):
    with pytest.raises(ValueError, match="ratios: needs a list of positive numbers"):
        Probe(probe.features, ratios, cache=False)


@pytest.mark.parametrize(
    "rows, message",
    [([0, N], "rows: needs integers from 0 to"), (np.arange(N - 1), "at least two")],
)
def test_bad_rows(probe, rows, message):
    with pytest.raises(ValueError, match=message):
        probe.split(rows)


def test_bad_features():
    test = np.ones((2, 4), np.int8)
    with pytest.raises(ValueError, match="all are equal"):
        Probe(Features(np.ones((9, 4), np.int8), test, {}), cache=False)
    with pytest.raises(ValueError, match="at least 3 training images"):
        Probe(Features(np.eye(2, 4, dtype=np.int8), test, {}), cache=False)

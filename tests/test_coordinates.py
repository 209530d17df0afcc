"""Projections: orthogonal directions, what is refused, and leave-one-out scores against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from blockrr.learning.coordinates import (
    Projection,
    as_columns,
    as_runs,
    concatenate,
    coordinates,
    first_penalty,
    loo_scores,
    random_views,
    within_view_covariance,
)
from blockrr.learning.features import Features, features
from blockrr.learning.images import digits


def toy(n, r, rng):
    "Coordinates of random images, diagonal as they must be."
    x = rng.normal(size=(n, r)) * np.linspace(3, 0.5, r)
    x -= x.mean(0)
    w, v = np.linalg.eigh(x.T @ x)
    return Projection((x @ v).astype(np.float32), rng.normal(size=(5, r)).astype(np.float32), w)


@pytest.fixture(scope="module")
def data():
    return digits()


@pytest.fixture(scope="module")
def F(data):
    return features(data, cache=False)


@pytest.fixture(scope="module")
def Z(F):
    return coordinates(F, directions=40, cache=False)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.01, 1.0, 100.0])
def test_leave_one_out_is_exact(seed, penalty):
    rng = np.random.default_rng(seed)
    Z, Q = toy(25, 6, rng), rng.dirichlet([1.0] * 3, 25)
    found = loo_scores(Z, [Q], penalty).scores[0]
    for i in range(25):
        rest = np.arange(25) != i
        x = Z.train[rest].astype(float)
        mean = x.mean(0)
        x -= mean
        c = np.linalg.solve(x.T @ x + penalty * np.eye(6), x.T @ (Q[rest] - Q[rest].mean(0)))
        np.testing.assert_allclose(found[i], (Z.train[i] - mean) @ c + Q[rest].mean(0), atol=2e-4)


def test_first_penalty_by_leaving_out():
    "The criterion, from its definition, with the mean leverage in place of each row's."
    rng = np.random.default_rng(1)
    Z = toy(60, 5, rng)
    q = np.eye(3)[(Z.train[:, -1] > 0).astype(int) + (Z.train[:, -2] > 1)]
    q -= q.mean(0)
    x = Z.train.astype(float)
    explained = {}
    for ratio in 2.0 ** np.arange(-8, 9):
        penalty = ratio * Z.eigenvalues.mean()
        hat = x @ np.linalg.solve(np.diag(Z.eigenvalues) + penalty * np.eye(5), x.T) + 1 / 60
        h = np.trace(hat) / 60
        out = (hat @ q - h * q) / (1 - h)
        explained[penalty] = (np.maximum((q * out).sum(0), 0) ** 2 / (out**2).sum(0)).sum()
    found = first_penalty(Z, x.T @ q, np.square(q).sum(0))
    assert found == pytest.approx(max(explained, key=explained.get))


def test_runs_as_columns_and_back():
    runs = np.random.default_rng(0).normal(size=(3, 7, 4)).astype(np.float32)
    assert as_columns(runs).shape == (7, 12) and (as_runs(as_columns(runs), 3) == runs).all()


def test_views_and_metric(data, F):
    a, b = (random_views(data.train_images[:9], np.random.default_rng(0)) for _ in range(2))
    assert (a == b).all()
    noise = within_view_covariance(data, images=300, cache=False)
    Z = coordinates(F, noise, directions=30, cache=False)
    gram = Z.train.T.astype(float) @ Z.train
    assert np.abs(gram - np.diag(Z.eigenvalues)).max() < 1e-3 * Z.eigenvalues[0]
    assert (np.diff(Z.eigenvalues) <= 0).all()


@pytest.mark.parametrize(
    "options, word",
    [
        (dict(directions=0), "directions"),
        (dict(directions=True), "directions"),
        (dict(span=-1), "span"),
        (dict(span=1.5), "span"),
        (dict(noise=np.eye(3)), "noise"),
    ],
)
def test_bad_settings(F, options, word):
    with pytest.raises(ValueError, match=f"^{word}: needs"):
        coordinates(F, **options)


def test_bad_projections(Z):
    for name in ("train", "test"):
        a = getattr(Z, name).copy()
        a[11, 2] = np.nan
        with pytest.raises(ValueError, match=f"{name}: needs finite numbers, row 11"):
            replace(Z, **{name: a})
        with pytest.raises(TypeError, match=f"{name}: needs float32"):
            replace(Z, **{name: getattr(Z, name).astype(float)})
    with pytest.raises(ValueError, match="equally many directions"):
        replace(Z, eigenvalues=Z.eigenvalues[1:])


def test_bad_additions(Z, F):
    with pytest.raises(ValueError, match=r"got 2 \+ 1 rows"):
        concatenate(Z, F.take([0, 1], [0]))
    for weight in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="weight: needs a number > 0"):
            concatenate(Z, F, weight)
    constant = Features(np.zeros((Z.sizes[0], 2), np.int8), np.zeros((Z.sizes[1], 2), np.int8), {})
    with pytest.raises(ValueError, match="differ between images"):
        concatenate(Z, constant)


def test_the_cache_tells_projections_apart(Z, F, tmp_path):
    "As long, as large, and yet another: turned round."
    turned = Projection(-Z.train, -Z.test, Z.eigenvalues)
    a, b = (concatenate(z, F, cache=tmp_path) for z in (Z, turned))
    assert not (a.train == b.train).all()


@pytest.mark.parametrize(
    "change",
    [lambda q: q[0], lambda q: q[:, 1:], lambda q: q[:0], lambda q: q * np.nan],
)
def test_bad_targets(change):
    Z = toy(25, 6, np.random.default_rng(0))
    with pytest.raises(ValueError, match="targets: needs finite"):
        loo_scores(Z, change(np.full((1, 25, 3), 0.3)), 1.0)


@pytest.mark.parametrize("penalty", [0.0, -1.0, np.nan, [1.0, 2.0], [[1.0]]])
def test_bad_penalties(penalty):
    Z = toy(25, 6, np.random.default_rng(0))
    with pytest.raises(ValueError, match="penalty: needs one number > 0"):
        loo_scores(Z, np.full((1, 25, 3), 0.3), penalty)


def test_old_names_warn():
    from blockrr.learning import coordinates as C

    with pytest.warns(DeprecationWarning, match="within_view_covariance"):
        assert C.view_noise is within_view_covariance
    with pytest.warns(DeprecationWarning, match="coordinates.concatenate"):
        assert C.beside is concatenate
    with pytest.raises(ImportError, match="nothing"):
        from blockrr.learning.coordinates import nothing  # noqa: F401

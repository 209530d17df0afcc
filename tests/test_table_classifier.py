"""LabelDPClassifier: scikit-learn's own checks, order and weights, sparse and wide tables, bad input, no torch."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import blockrr as br
from blockrr.learning.table_classifier import LabelDPClassifier, content_folds, find_directions


@parametrize_with_checks([LabelDPClassifier()])
def test_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(
        3000,
        12,
        n_informative=8,
        n_classes=3,
        n_clusters_per_class=1,
        weights=[0.6, 0.3],
        class_sep=1.5,
        random_state=1,
    )
    return X, y, br.rr(3, 1.0).privatize(y, seed=2)


def test_better_than_believing(table):
    X, y, z = table
    fitted = LabelDPClassifier().fit(X[:2000], z[:2000], mechanism=br.rr(3, 1.0))
    believes = LogisticRegression(max_iter=300).fit(X[:2000], z[:2000])

    def loss(model):
        return -np.log(model.predict_proba(X[2000:])[np.arange(1000), y[2000:]]).mean()

    assert fitted.score(X[2000:], y[2000:]) >= believes.score(X[2000:], y[2000:])
    assert loss(fitted) < 0.7 * loss(believes)


def test_order_of_rows_does_not_matter(table):
    X, _, z = table
    order = np.random.default_rng(0).permutation(len(X))
    a = LabelDPClassifier().fit(X, z, mechanism=br.rr(3, 1.0))
    b = LabelDPClassifier().fit(X[order], z[order], mechanism=br.rr(3, 1.0))
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-8)


def test_sparse_is_dense(table):
    X, _, z = table
    X = np.where(X > 0.5, X, 0)
    a = LabelDPClassifier().fit(X, z, mechanism=br.rr(3, 1.0))
    b = LabelDPClassifier().fit(sparse.csr_array(X), z, mechanism=br.rr(3, 1.0))
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(sparse.csr_array(X)), atol=1e-5)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_more_features_than_rows(make):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2500)) * (rng.random((300, 2500)) < 0.2)
    y = (X[:, :40].sum(1) > 0).astype(int)
    X[:, :40] *= 6
    directions = find_directions(make(X), np.ones(300))
    Z = directions(make(X))
    np.testing.assert_allclose(Z.T @ Z, np.diag(directions.eigenvalues), atol=1e-5 * directions.eigenvalues[0])
    model = LabelDPClassifier().fit(make(X), y)
    assert model.score(make(X), y) > 0.8


def test_a_release_with_gaps(table):
    X, y, _ = table
    out = br.release(y, 2.0, 3, method="block_rr", prior_fraction=0.1, seed=4)
    whole = LabelDPClassifier().fit(X, out)
    likelihood = out.likelihood[out.index]
    part = LabelDPClassifier().fit(X[out.index], likelihood=likelihood)
    assert whole.details_["rows"] <= len(out.index)
    np.testing.assert_allclose(whole.predict_proba(X), part.predict_proba(X), atol=1e-9)


def test_a_release_names_the_mechanism_of_a_part(table):
    X, y, *_ = table
    out = br.release(y, 2.0, int(y.max()) + 1, seed=1)
    named = LabelDPClassifier().fit(X[:500], out.labels[:500], mechanism=out.mechanism)
    short = LabelDPClassifier().fit(X[:500], out.labels[:500], mechanism=out)
    np.testing.assert_array_equal(named.predict_proba(X[:9]), short.predict_proba(X[:9]))
    with pytest.raises(TypeError, match="sample_weight: needs numbers, got a mechanism; pass it by name"):
        LabelDPClassifier().fit(X[:500], out.labels[:500], out.mechanism)


def test_nothing_to_learn(table):
    X, y, _ = table
    nothing = br.rr(3, 0.01)
    with pytest.warns(UserWarning, match="say nothing about the features"):
        model = LabelDPClassifier().fit(X, nothing.privatize(y, seed=1), mechanism=nothing)
    assert not model.informative_
    np.testing.assert_allclose(model.predict_proba(X[:4]), np.tile(model.shares_, (4, 1)))


def test_no_label_at_all_and_constant_features():
    with pytest.warns(UserWarning, match="say nothing"):
        model = LabelDPClassifier().fit(np.ones((6, 2)), [-1] * 6, mechanism=br.rr(3, 1.0))
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 2))), 1 / 3)


def test_labels_are_the_domain():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    names = np.array(["no", "yes", "maybe"])
    y = names[np.digitize(X[:, 0], [-0.5, 0.5])]
    mechanism = br.rr(["maybe", "no", "yes"], 2.0)
    model = LabelDPClassifier().fit(X, mechanism.privatize(y, seed=1), mechanism=mechanism)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert set(model.predict(X)) <= set(names) and (model.predict(X) == y).mean() > 0.6


def test_bad_input(table):
    X, _, z = table
    with pytest.raises(ValueError, match="row 3"):
        LabelDPClassifier().fit(X[:5], [0, 1, 2, 7, 0], mechanism=br.rr(3, 1.0))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        LabelDPClassifier().fit(X[:5], z[:4], mechanism=br.rr(3, 1.0))
    with pytest.raises(ValueError, match="NaN"):
        LabelDPClassifier().fit(np.full((4, 1), np.nan), z[:4], mechanism=br.rr(3, 1.0))
    with pytest.raises(ValueError, match="random_features: needs a dense X"):
        LabelDPClassifier(random_features=3).fit(sparse.csr_array(X), z, mechanism=br.rr(3, 1.0))


def test_another_mechanism_warns(table):
    X, _, z = table
    with pytest.warns(UserWarning, match="do not fit the stated mechanism"):
        LabelDPClassifier().fit(X, np.where(z == 2, 0, z), mechanism=br.rr(3, 0.5))


def test_folds_follow_contents():
    X = np.random.default_rng(0).normal(size=(500, 4))
    folds = content_folds(X, 5)
    assert (content_folds(X[::-1], 5) == folds[::-1]).all() and np.bincount(folds).min() > 60
    assert (content_folds(sparse.csr_array(X), 5) == folds).all()
    assert np.bincount(content_folds(np.ones((2000, 2)), 5)).tolist() == [400] * 5


def test_no_torch():
    code = "import sys, blockrr.learning.any_model, blockrr.learning.any_regressor; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

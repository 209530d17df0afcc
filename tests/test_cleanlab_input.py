"""A release in the form that cleanlab takes: its convention, what is refused, and cleanlab itself where it is there."""

import subprocess
import sys

import numpy as np
import pytest

import blockrr as br

TRUTH = np.random.default_rng(0).integers(4, size=600)


def test_labels_are_numbers_in_the_domain_s_order():
    domain = ["never", "once", "often", "daily"]
    out = br.release([domain[k] for k in TRUTH], 1.0, domain, "rr", seed=1)
    given = out.to_cleanlab()
    assert [domain[k] for k in given.labels] == out.labels
    assert given.labels.dtype.kind == "i" and given.index.tolist() == list(range(600))


def test_rows_are_given_and_columns_true():
    prior = [0.7, 0.2, 0.06, 0.04]
    out = br.release(TRUTH, 1.5, 4, "block_rr", prior=prior, seed=1, sigma=0.5, l=1)
    matrix = out.to_cleanlab().noise_matrix
    np.testing.assert_allclose(matrix.sum(0), 1)
    assert not np.allclose(matrix, matrix.T)  # so that the convention shows
    for given in range(4):
        for true in range(4):
            outputs = list(out.mechanism.outputs)
            expected = out.mechanism.transition[true, outputs.index(given)] if given in outputs else 0
            assert matrix[given, true] == pytest.approx(expected, abs=1e-12)


def test_rows_of_a_prior_are_left_out():
    out = br.release(TRUTH, 1.0, 4, "rr_with_prior", prior_fraction=0.2, seed=2)
    given = out.to_cleanlab()
    assert len(given.labels) == len(given.index) == 480 and (given.index == out.index).all()


def test_sets_and_several_mechanisms_are_refused():
    sets = br.release(TRUTH, 1.0, 4, "subset", seed=1, size=2)
    with pytest.raises(ValueError, match='to_cleanlab: needs a release of labels, got sets of labels; release by "rr"'):
        sets.to_cleanlab()
    groups, _ = br.two_stage(TRUTH, 1.0, 4, seed=1)
    with pytest.raises(ValueError, match="to_cleanlab: needs one mechanism for all rows, got 2"):
        groups.to_cleanlab()


def test_nothing_of_cleanlab_is_imported():
    code = (
        "import sys, numpy as np, blockrr as br; br.release(np.zeros(9, int), 1.0, 2, 'rr', seed=1).to_cleanlab(); "
        "assert not [m for m in sys.modules if m.startswith('cleanlab')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_cleanlab_takes_it():
    classification = pytest.importorskip("cleanlab.classification")
    from cleanlab.benchmarking.noise_generation import generate_noisy_labels
    from sklearn.linear_model import LogisticRegression

    X = np.eye(4)[TRUTH] + np.random.default_rng(1).normal(size=(600, 4)) / 4
    out = br.release(TRUTH, 2.0, 4, "rr", seed=1)
    given = out.to_cleanlab()
    learner = classification.CleanLearning(LogisticRegression(), seed=0, find_label_issues_kwargs={"n_jobs": 1})
    learner.fit(X[given.index], given.labels, noise_matrix=given.noise_matrix)
    assert (learner.noise_matrix == given.noise_matrix).all()
    assert (learner.predict(X) == TRUTH).mean() > 0.9
    prior = np.bincount(TRUTH) / 600
    assert prior @ np.diag(given.noise_matrix) == pytest.approx((given.labels == TRUTH).mean(), abs=0.08)
    np.random.seed(0)
    # by cleanlab's own reading of the matrix, label by label: columns are true labels
    skewed = br.rr_with_prior([0.6, 0.3, 0.1], 1.0)
    matrix = br.release(TRUTH % 3, 1.0, 3, "rr_with_prior", prior=[0.6, 0.3, 0.1], seed=1).to_cleanlab().noise_matrix
    noisy = generate_noisy_labels(np.repeat(2, 400), matrix)
    assert matrix[2, 2] == 0 and set(noisy) <= set(skewed.outputs)

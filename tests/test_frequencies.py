"Class frequencies from released labels, against answers that are known."

import math

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.frequencies import check_probabilities, check_released, prior_by_em

TRUTH = np.array([0.4, 0.3, 0.2, 0.1])
TABLE = br.rr(4, 1.0).transition


def test_exact_counts_give_the_prior_back():
    assert prior_by_em(TRUTH @ TABLE * 1e4, TABLE).prior == pytest.approx(TRUTH, abs=1e-6)


def test_the_error_covers_the_truth_as_often_as_it_should():
    rng, inside = np.random.default_rng(0), []
    for _ in range(400):
        fit = prior_by_em(rng.multinomial(3000, TRUTH @ TABLE), TABLE)
        inside.append(np.abs(fit.prior - TRUTH) < 1.96 * fit.error)
    cover = np.mean(inside)
    assert abs(cover - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 1600)  # 1,600 intervals, four standard errors


def test_classes_that_are_not_told_apart_say_so():
    kept = br.rr_with_prior([0.4, 0.3, 0.15, 0.15], 1.0, k=2)
    fit = prior_by_em([500, 480], kept.transition)
    assert np.isinf(fit.error[2:]).all() and fit.prior[2] == pytest.approx(fit.prior[3])


@pytest.mark.parametrize(
    "counts, said",
    (
        ([1, 2], "counts: needs 4 numbers >= 0, one for each output"),
        ([0] * 4, "counts: needs at least one label"),
        ([-1, 1, 1, 1], ">= 0"),
        ([np.nan] * 4, ">= 0"),
    ),
    ids=str,
)
def test_bad_counts(counts, said):
    for function in (prior_by_em, check_released):
        with pytest.raises(ValueError, match=said):
            function(counts, TABLE)


def test_an_output_that_is_never_released():
    with pytest.raises(ValueError, match="output 1 was released, which"):
        prior_by_em([1, 1], [[1.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    "bad", ([[1.0]], [[0.5, 0.6], [0.5, 0.5]], [["a", "b"]] * 2, [[math.nan, 1], [0, 1]], [0.5, 0.5]), ids=str
)
def test_what_is_no_table(bad):
    with pytest.raises(ValueError, match="transition: needs a matrix"):
        prior_by_em([1, 1], bad)
    with pytest.raises(ValueError, match="transition: needs a matrix"):
        check_probabilities(bad)


def test_a_mechanism_names_its_outputs():
    mechanism = br.rr(["no", "yes"], 1.0)
    expected = prior_by_em([400, 600], mechanism.transition).prior
    for counts in ([400, 600], {"yes": 600, "no": 400}):
        np.testing.assert_array_equal(prior_by_em(counts, mechanism).prior, expected)
    sets = br.subset_response(5, 1.0, size=2)
    np.testing.assert_allclose(prior_by_em(np.ones(10), sets).prior, 0.2, atol=1e-9)

"""Likelihoods of everything that can be released, against enumeration; the test of the mechanism, and its level."""

import warnings

import numpy as np
import pytest

import blockrr as br
from blockrr.learning import likelihood as L
from blockrr.learning.likelihood import label_likelihood
from blockrr.privacy.comparators import gaussian, laplace, randomized_response
from blockrr.privacy.stages import prior_by_em

NAMES = ["no", "rarely", "often"]
DROPPING = br.rr_with_prior([1, 5, 4, 0], 1.0, k=2)  # its columns are labels 1 and 2
PAIR = br.Partition((0, 1), (2, 3), (0,))
SEVERAL = [
    br.rr(4, 0.6),
    br.rr_with_prior([0.5, 0.3, 0.1, 0.1], 1.0, k=2),
    br.block_rr(PAIR, 1.0),
]


@pytest.mark.parametrize("mechanism", SEVERAL)
def test_posterior_by_enumeration(mechanism):
    rng = np.random.default_rng(0)
    for j in range(len(mechanism.outputs)):
        p, t = rng.dirichlet([1.0] * 4), mechanism.transition[:, j]
        joint = [p[y] * t[y] for y in range(4)]
        np.testing.assert_allclose(L.posterior_targets(p, t), np.array(joint) / sum(joint))


def test_posterior_of_contradictions_is_the_likelihood():
    model = np.array([[1.0, 0], [0.5, 0.5]])
    likelihood = np.array([[0, 0.3], [0.3, 0.3]])
    np.testing.assert_allclose(L.posterior_targets(model, likelihood), [[0, 1], [0.5, 0.5]])


@pytest.mark.parametrize(
    "bad, word",
    [
        ([[0, 0]], r"row \[0\] is zero"),
        (
            [[1e-50, 1e-60]],
            r"row \[0\] is zero",
        ),  # in float32, in which all is computed
        ([[[0.5, 0.5], [0, 0]]], r"row \[0, 1\] is zero"),
        ([[np.nan, 1]], "NaN"),
        ([[-1.0, 1]], "outside"),
        ([[2.0, 1]], "outside"),
        ([1.0, 2], "shape"),
        ([[1.0], [1.0]], "shape"),
    ],
)
def test_impossible_likelihoods(bad, word):
    with pytest.raises(ValueError, match=word):
        L.check_likelihood(bad)


def test_likelihoods_are_numbers():
    with pytest.raises(TypeError, match="numbers"):
        L.check_likelihood([["a", "b"]])


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return L.label_likelihood(*args, **options)


@pytest.fixture(scope="module")
def heard():
    answers = np.repeat(NAMES, [500, 300, 100])
    return br.rr(NAMES, 1.0).privatize(answers, seed=0)


def test_labels_in_every_form(heard):
    stated = br.rr(NAMES, 1.0)
    y = np.array([NAMES.index(a) for a in heard])
    expected = stated.transition.T[y].astype(np.float32)
    for labels, table in (
        (heard, stated),
        (heard.tolist(), stated),
        (y, stated.transition),
        (y, br.rr(3, 1.0)),
    ):
        found = quiet(labels, table)
        assert found.dtype == np.float32 and (found == expected).all()
    L.check_likelihood(expected)


@pytest.mark.parametrize("table", [br.rr(3, 1.0), br.rr(3, 1.0).transition])
def test_rows_without_a_label(table):
    y = br.rr(3, 1.0).privatize(np.repeat(np.arange(3), [500, 300, 100]), seed=0)
    marked = quiet(np.where(np.arange(900) % 2, y, -1), table)
    assert (marked[1::2] == quiet(y, table)[1::2]).all()
    assert (marked[::2] == np.float32(1 / 3)).all()
    assert (quiet(np.full(5, -1), table) == np.float32(1 / 3)).all()
    assert quiet(y[:0], table).shape == (0, 3)


def test_a_mechanism_that_drops_labels():
    by_label = quiet([1, 2, -1], DROPPING, level=None)
    assert (by_label == np.float32([*DROPPING.transition.T, [0.25] * 4])).all()
    by_column = quiet([0, 1], DROPPING.transition, level=None)
    assert (by_column == np.float32(DROPPING.transition.T)).all()


@pytest.mark.parametrize(
    "labels, table, word",
    [
        ([1, 3], DROPPING, "row 1 holds 3"),
        ([0, 2], DROPPING.transition, "row 1 holds 2"),
        ([0, -2], DROPPING.transition, "row 1 holds -2"),
        ([0, 1], [[1.0, 0], [1, 0]], "row 1 holds 1"),
        (["no", "never"], br.rr(NAMES, 1.0), "row 1"),
        ([0, np.nan], br.rr(2, 1.0), "row 1"),
        ([0, 1], [[0.5, 0.6], [0.5, 0.5]], "rows"),
        ([0, 1], [[np.nan, 1], [0.5, 0.5]], "rows"),
        ([0, 1], [["a", "b"]] * 2, "transition"),
        ([0], [[1.0]], "transition"),
        ([0], np.zeros((0, 3)), "transition"),
    ],
)
def test_labels_that_cannot_have_been_released(labels, table, word):
    with pytest.raises(ValueError, match=word):
        L.label_likelihood(labels, table)


@pytest.mark.parametrize(
    "labels, table, word",
    [
        ([0, 1.0], br.rr(2, 1.0).transition, "integers"),
        ([[0, 1]], br.rr(2, 1.0).transition, "integers"),
        ([0, np.nan], br.rr(2, 1.0).transition, "integers"),
        ([0, 1], None, "transition: needs"),
    ],
)
def test_labels_of_the_wrong_type(labels, table, word):
    with pytest.raises(TypeError, match=word):
        L.label_likelihood(labels, table)


LABELS = np.repeat(np.arange(4), [4000, 3000, 2000, 1000])


def test_releases_hold_their_own_tables():
    part = br.release(LABELS, 1.0, 4, "rr_with_prior", seed=0)  # 1 % of the rows went into the prior
    found = L.label_likelihood(part)
    assert (found[part.index] == L.label_likelihood(part.labels, part.mechanism, level=None)).all()
    silent = np.flatnonzero((found == 0.25).all(1))
    assert (silent == np.setdiff1d(np.arange(len(LABELS)), part.index)).all()
    staged = br.two_stage(LABELS, 1.0, 4, seed=0)[0]
    assert (L.label_likelihood(staged) == staged.likelihood.astype(np.float32)).all()
    with pytest.raises(TypeError, match="leave it out"):
        L.label_likelihood(part, part.mechanism)


@pytest.mark.parametrize("table", [DROPPING, "square"])
def test_what_is_never_released_is_no_alarm(table):
    if table == "square":
        table = np.zeros((4, 4))
        table[:, [1, 2]] = DROPPING.transition
    quiet(DROPPING.privatize(LABELS, seed=0), table)


def test_the_prior_sharpens_the_test():
    weak = br.rr(4, 0.6).privatize(LABELS, seed=2)  # less signal than stated
    known = [0.4, 0.3, 0.2, 0.1]
    quiet(weak, br.rr(4, 1.0))
    quiet(weak, br.rr(4, 0.6), known)
    with pytest.warns(UserWarning, match="do not fit") as caught:
        L.label_likelihood(weak, br.rr(4, 1.0), known)
    assert caught[0].filename == __file__  # the warning names the caller's line


def test_goodness_of_fit_finds_another_mechanism():
    y = np.repeat(np.arange(5), [5000, 3000, 1000, 500, 500])

    def count(epsilon):
        return np.bincount(br.rr(5, epsilon).privatize(y, seed=0), minlength=5)

    with pytest.warns(UserWarning, match="do not fit the stated mechanism"):
        L.warn_unless_fits(count(3.0), br.rr(5, 0.6).transition)
    assert L.goodness_of_fit(count(0.6), br.rr(5, 0.6).transition).p_value > 0.05
    with pytest.raises(ValueError, match="never does"):
        L.goodness_of_fit([1, 1], [[1.0, 0], [1.0, 0]])


def test_histograms_together_as_alone():
    T = br.rr(4, 0.8).transition
    several = np.array(
        [
            [2000, 1500, 800, 300],
            [3000, 2800, 2300, 1900],
            [9, 1, 1, 5000],
            [1, 2, 3, 4],
        ]
    )
    exact = L._fitted_frequencies(several, T, 10_000)
    np.testing.assert_allclose(exact, [prior_by_em(c, T).prior @ T for c in several], atol=1e-6)
    # and the rounds that are used come near enough for a p-value
    np.testing.assert_allclose(L._fitted_frequencies(several, T), exact, atol=1e-3)


MANY = [
    br.rr(6, 1.0),
    br.rr_with_prior([0.4, 0.3, 0.1, 0.1, 0.05, 0.05], 1.0, k=3),
    br.block_rr(br.Partition((0, 1), (2, 3, 4, 5), (0,)), 1.0),
]


@pytest.mark.parametrize("mechanism", MANY)
def test_the_goodness_of_fit_keeps_its_level(mechanism):
    "Honest labels alarm as rarely as they should, dropped classes included; five standard errors of slack."
    rng, p = np.random.default_rng(0), []
    for i in range(60):
        counts = rng.multinomial(3000, np.array([0.6, 0.3, 0.1, 0, 0, 0]) @ mechanism.transition)
        p.append(L.goodness_of_fit(counts, mechanism.transition, draws=60, seed=i).p_value)
    assert np.mean(np.array(p) < 0.1) < 0.1 + 5 * np.sqrt(0.1 * 0.9 / 60)


def test_small_p_values_are_rare_at_the_border():
    "Shares of zero, which change the limit distribution; four standard errors of slack."
    rng, T = np.random.default_rng(3), br.rr(4, 1.0).transition
    counts = [rng.multinomial(2000, [0.7, 0.3, 0, 0] @ T) for _ in range(30)]
    p = [L.goodness_of_fit(c, T, draws=40, seed=i).p_value for i, c in enumerate(counts)]
    assert np.mean(np.array(p) < 0.1) < 0.1 + 4 * np.sqrt(0.1 * 0.9 / 30)


def test_priors_are_checked_and_scaled():
    T, counts = br.rr(4, 1.0).transition, [40, 30, 20, 10]
    assert L.goodness_of_fit(counts, T, [5, 3, 2, 0]) == pytest.approx(L.goodness_of_fit(counts, T, [0.5, 0.3, 0.2, 0]))
    for bad in ([np.nan, 0.5, 0.5, 0], [0.5, 0.5]):
        with pytest.raises(ValueError, match="prior"):
            L.goodness_of_fit(counts, T, bad)
    with pytest.raises(ValueError, match="counts: needs whole numbers"):
        L.goodness_of_fit([40, 30, 20, 0.5], T)
    with pytest.raises(ValueError, match="level: needs a number from .005 to 1"):
        L.warn_unless_fits(counts, T, level=0.001)


def test_old_names_warn():
    import blockrr.learning.denoise as old

    with pytest.warns(DeprecationWarning, match="likelihood.label_likelihood"):
        assert old.label_likelihood is L.label_likelihood
    with pytest.raises(ImportError, match="posterior_ridge"):
        from blockrr.learning.denoise import posterior_ridge  # noqa: F401


def test_numbers_have_no_likelihood_as_labels():
    "Released numbers that happen to be labels (clipped ones, a mean of a bin) were read as numbers of columns."
    values = [0, 1, 2, 4, 8]
    mechanisms = [
        br.rr_on_bins(values, [0.4, 0.3, 0.15, 0.1, 0.05], 3.0),
        laplace(values, 1.0, 32),
        gaussian(values, 1.0, 1e-2, cells=5),
    ]
    why = "transition: needs a mechanism that releases labels"
    for m in mechanisms:
        for labels in (m.privatize(values * 9, seed=1), values * 9, [-1] * 9):
            with pytest.raises(ValueError, match=why):
                label_likelihood(labels, m)
        # the way out: a table, and its columns
        columns = np.searchsorted(m.points, m.privatize(values * 9, seed=1))
        found = label_likelihood(columns, m.transition, level=None)
        assert (found == m.transition.T[columns].astype("f4")).all()
    m = randomized_response(values, 1.0)
    out = m.privatize(values * 9, seed=1)
    expected = m.transition.T[[values.index(v) for v in out]].astype("f4")
    assert (label_likelihood(out, m, level=None) == expected).all()
    # a single output, the third value
    one = br.rr_on_bins(values, [0, 0, 1, 0, 0], 2.0)
    assert (label_likelihood([2, 2], one, level=None) == 1).all()
    with pytest.raises(ValueError, match="row 0"):
        label_likelihood([0, 2], one, level=None)

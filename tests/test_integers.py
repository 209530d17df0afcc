"""Tables of integers and their certificates, at the limits."""

import math
import tracemalloc
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import blockrr as br
from blockrr.privacy.integers import DENOMINATOR, certify_matrix, certify_table, check_size, integer_table

THIRD = Fraction(1, 3)


def rr_table(K, epsilon):
    a = math.exp(-epsilon)
    return integer_table(np.where(np.eye(K) > 0, 1.0, a) / (1 + (K - 1) * a), epsilon)


def test_at_epsilon_zero_rows_are_equal_and_whole():
    zero = rr_table(10, 0)
    assert zero.sum(1).tolist() == [DENOMINATOR] * 10
    assert zero[0] / DENOMINATOR == pytest.approx(0.1, abs=1e-15)


@pytest.mark.parametrize("K, e", [(2, 11.377398423729575), (5, 13.096232540315865), (10, 10.931868532107442)])
def test_where_a_second_attempt_is_needed(K, e):
    "Judged by the ideal in 60 digits."
    with localcontext() as ctx:
        ctx.prec = 60
        a = (-Decimal(e)).exp()
        ideals = 1 / (1 + (K - 1) * a), a / (1 + (K - 1) * a)
        for w, ideal in zip(rr_table(K, e)[0, :2].tolist(), ideals):
            assert abs(w / ideal / DENOMINATOR - 1) < Decimal("1e-12")


@pytest.mark.parametrize("bad, text", [([[1, -1, 1]], "not negative"), ([1, 0], "matrix"), ([["a"]], "real numbers")])
def test_what_is_no_transition(bad, text):
    with pytest.raises((TypeError, ValueError), match=f"^transition: needs .*{text}"):
        integer_table(bad, 1)


@pytest.mark.parametrize("e", [0, 1e-300, 1e-12, 1e-9, 0.6, 1, 8, 43, 44, 45, 700, 1e6, math.inf])
@pytest.mark.parametrize("K", [2, 3, 10, 97])
def test_a_certificate_holds_and_is_no_larger_than_claimed(K, e):
    c = certify_table(rr_table(K, e), e)
    assert c.holds and c.epsilon <= e


def test_certificates_of_given_integers():
    assert certify_table([[731, 269], [269, 731]], 1).epsilon == pytest.approx(math.log(731 / 269), abs=1e-15)
    assert certify_table(np.array([[2**63, 2**63 - 1]] * 2, np.uint64), 0).holds  # a sum that 64 bits cannot hold
    for bad, text in (([[1, 2], [1, 1]], "same positive sum"), ([[0.5, 0.5]], "matrix of integers")):
        with pytest.raises(ValueError, match=f"^weights: needs .*{text}"):
            certify_table(bad, 1)


def test_certificates_of_given_matrices():
    thirds = [[2 * THIRD, THIRD], [THIRD, 2 * THIRD]]
    assert certify_matrix(thirds, math.nextafter(math.log(2), 1)).holds
    assert certify_matrix([[0.5, 0.5], [0.5, 0.5]]).epsilon == 0
    assert certify_matrix([[1.0, 0.0], [1.0, 0.0]]).epsilon == 0
    assert certify_matrix(np.eye(3), math.inf).holds
    tiny = Fraction(1, 2) + Fraction(1, 10**300)
    assert certify_matrix([[tiny, 1 - tiny], [1 - tiny, tiny]]).epsilon * 1e300 == pytest.approx(4, abs=1e-12)
    steep = certify_matrix([[1 - 5e-324, 5e-324], [0.5, 0.5]]).epsilon
    assert steep == pytest.approx(1073 * math.log(2), abs=1e-9)


BAD = [[[0.5, 0.6]], [[math.nan, 1]], [[-1, 2]], [0.5, 0.5], [[THIRD, THIRD]], [["a", THIRD]]]


@pytest.mark.parametrize("bad", [*BAD, np.full((2, 2), 0.5 + 1j), [["0.5", "0.5"]]])
def test_what_is_no_matrix_of_probabilities(bad):
    with pytest.raises((TypeError, ValueError), match="^transition: needs"):
        certify_matrix(bad)


def test_more_digits_than_a_float_has_are_refused():
    "float64 would make it .5 and epsilon 0."
    if np.finfo(np.longdouble).eps >= 2.0**-53:
        pytest.skip("long double is a float64 here")
    off = np.finfo(np.longdouble).eps * np.array([[1, -1], [-1, 1]])
    with pytest.raises(TypeError, match="at most 64 bits"):
        certify_matrix(np.full((2, 2), 0.5, np.longdouble) + off)


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 12), st.floats(0, 5), st.integers(0, 2**32))
def test_any_private_matrix_becomes_a_private_table(K, epsilon, seed):
    rng = np.random.default_rng(seed)
    z = rng.dirichlet(np.ones(K)) * math.exp(-epsilon / 2)
    T = z * np.exp(rng.uniform(0, epsilon, (K, K)))
    lo, hi = z, z * math.exp(epsilon)
    for i in range(K):  # scale within the column bounds until the row sums to one
        t = (1 - lo.sum()) / (hi.sum() - lo.sum()) if hi.sum() > lo.sum() else 0
        T[i] = lo + (hi - lo) * t if not lo.sum() <= 1 <= hi.sum() else np.clip(T[i], lo, hi)
        for _ in range(200):
            gap = 1 - T[i].sum()
            room = (hi - T[i]) if gap > 0 else (T[i] - lo)
            if abs(gap) < 1e-15 or room.sum() == 0:
                break
            T[i] += np.sign(gap) * room * min(1, abs(gap) / room.sum())
    if np.abs(T.sum(1) - 1).max() > 1e-12:
        return
    W = integer_table(T, epsilon)
    assert certify_table(W, epsilon).holds
    assert np.abs(W / DENOMINATOR - T).max() < 1e-9


def as_ideal(m, kept, other):
    "Whether every entry is as near as promised to one of its two ideals, given in 60 digits."
    w = {int(v): mpmath.mpf(int(v)) / DENOMINATOR for v in np.unique(m.weights)}
    return all(
        min(abs(p - t) / (1e-12 * t if t > 1e-6 else mpmath.mpf(2) ** -58) for t in (kept, other)) <= 1
        for p in w.values()
    )


@settings(max_examples=400, deadline=None)
@given(st.integers(2, 12), st.floats(7, 22))
@example(2, 11.377398423729575)  # smallest probabilities that are whole numbers of units, rounded down as floats
@example(2, 11.415306221561341)
@example(5, 13.096232540315865)
@example(10, 10.931868532107442)
def test_tables_are_near_the_formula_and_not_only_near_its_floats(K, epsilon):
    with mpmath.workdps(60):
        a = mpmath.exp(-mpmath.mpf(epsilon))
        assert as_ideal(br.rr(K, epsilon), 1 / (1 + (K - 1) * a), a / (1 + (K - 1) * a))


def test_a_matrix_that_is_not_private_is_refused():
    with pytest.raises(ValueError, match=r"at most e\*\*1 in each column, got e\*\*1.386"):
        integer_table(np.array([[0.8, 0.2], [0.2, 0.8]]), 1)


def test_too_large_a_domain_is_refused_before_memory_is_taken():
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"1,000,000 labels by 1,000,000 outputs would need about 93,132.3 GiB"):
        check_size(10**6, 10**6)
    with pytest.raises(ValueError, match=r"93,132,257,461,547,856.* GiB"):
        br.rr(10**24, 1.0)
    with pytest.raises(ValueError, match="entries"):
        br.rr_with_prior(np.ones(50_000), 0.0)
    with pytest.raises(ValueError, match="entries"):
        br.block_rr(br.Partition(range(4_097), ()), 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 * 2**20, peak
    m = br.rr_with_prior(np.arange(50_000)[::-1] + 1, 1.0, k=3)  # many labels, few outputs: fits
    assert set(m.privatize([0, 49_999] * 100)) <= {0, 1, 2}


@pytest.mark.parametrize("table, got", [([[0.8, 0.2], [0.1, 0.9]], "2.079441542"), ([[1, 0], [0, 1]], "inf")])
def test_a_table_that_is_less_private_than_claimed(table, got):
    with pytest.raises(ValueError, match=rf"needs ratios of at most e\*\*1 in each column, got e\*\*{got}"):
        integer_table(table, 1.0)

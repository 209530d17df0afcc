"Amounts are exact: tenths add up, and what is shown is rounded outwards."

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from blockrr.privacy.amounts import amount_text, exact_amount, to_float, total

TENTH = Fraction(1, 10)


@pytest.mark.parametrize(
    "same", (0.1, "0.1", " 1/10 ", "1e-1", ".10", Decimal("0.1"), TENTH, np.float64(0.1)), ids=repr
)
def test_a_tenth_in_any_spelling(same):
    assert exact_amount(same) == TENTH and amount_text(exact_amount(same)) == "0.1"


def test_what_is_printed_is_what_counts():
    assert exact_amount(0.1 + 0.2) == Fraction("0.30000000000000004")
    assert amount_text(Fraction(1, 3)) == "1/3" and exact_amount("1/3") == Fraction(1, 3)


@pytest.mark.parametrize("limit", (math.inf, "inf", " Infinity", Decimal("Infinity")), ids=repr)
def test_infinity(limit):
    assert exact_amount(limit) == math.inf and amount_text(math.inf) == "inf"
    assert to_float(math.inf, up=True) == to_float(math.inf, up=False) == math.inf


BAD = (-1, "-1", "nan", math.nan, Decimal("nan"), "", "1/0", "0x1p-3", "1_0", "١", Decimal("-0.1"), 10**400)
TOO_FINE = ("1e-999", Decimal("1e-99999"), Decimal("1e99999"), Fraction(1, 10**500))


@pytest.mark.parametrize("bad", (*BAD, *TOO_FINE), ids=lambda v: repr(v)[:20])
def test_what_is_no_amount(bad):
    with pytest.raises(ValueError, match="^budget: "):
        exact_amount(bad, "budget")


@pytest.mark.parametrize("bad", (None, True, 1j, [1]), ids=repr)
def test_what_is_no_number(bad):
    with pytest.raises(TypeError, match="epsilon: needs a real number"):
        exact_amount(bad)


def test_a_small_amount_is_not_lost():
    tiny = total([Fraction(1), exact_amount(5e-324)])  # a float sum would lose the smaller one altogether
    assert tiny > 1
    assert (to_float(tiny, up=True), to_float(tiny, up=False)) == (math.nextafter(1, 2), 1.0)
    assert (total([1, math.inf]), total([])) == (math.inf, 0)


def test_a_sum_beyond_floats():
    huge = total([exact_amount(1.7e308)] * 2)
    assert to_float(huge, up=True) == math.inf and math.isfinite(to_float(huge, up=False))

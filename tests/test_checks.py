"""Parameters are refused by name, and names that moved are found in their new place."""

import math
import sys
import warnings
from types import ModuleType

import numpy as np
import pytest

from blockrr.privacy.checks import check_epsilon, check_integer, check_prior, check_real, check_threads, moved

OLD_NAMES = {
    "sampling": ["Certificate", "check_epsilon", "check_size", "certify_table", "integer_table", "MAX_ENTRIES"],
    "mechanism": ["in_label_order", "as_numbers", "prior_domain", "release_chunks"],
    "labels": ["floats_like"],
}


@pytest.mark.parametrize("weights", [[1e308, 1e308], [1e-320, 1e-320], [3, 3]])
def test_a_prior_neither_overflows_nor_underflows(weights):
    assert check_prior(weights).tolist() == [0.5, 0.5]


def test_a_prior_has_no_negative_zero():
    assert not np.signbit(check_prior([-0.0, 1])).any()


@pytest.mark.parametrize("bad", [[1, math.nan], [math.inf, 1], [0, 0], [1], [[0.5, 0.5]], "ab", None, ["x", "y"]])
def test_what_is_no_prior(bad):
    with pytest.raises((TypeError, ValueError), match="^prior: needs"):
        check_prior(bad)


@pytest.mark.parametrize("value", [0, 0.0, 1, np.float32(0.5), np.int8(1)])
def test_numbers_within_closed_bounds(value):
    found = check_real("share", value, 0, 1)
    assert type(found) is float and found == value


@pytest.mark.parametrize("bad", [-1e-300, 1.0000001, math.inf, -math.inf, math.nan, 10**400])
def test_numbers_out_of_bounds(bad):
    with pytest.raises(ValueError, match="^share: needs 0 <= share <= 1, got"):
        check_real("share", bad, 0, 1)


@pytest.mark.parametrize("bad", [True, np.True_, "1", None, 1j, [1], np.ones(2)])
def test_what_is_no_number(bad):
    for check in (lambda: check_real("x", bad), lambda: check_integer("x", bad, 0), lambda: check_epsilon(bad, "x")):
        with pytest.raises(TypeError, match=f"^x: needs .*, got {type(bad).__name__}$"):
            check()


def test_open_bounds_and_infinity():
    assert check_real("x", math.inf, 0, open_low=True) == math.inf
    assert check_real("x", 10**300) == 1e300
    for bad, options in ((0, {"open_low": True}), (math.inf, {"open_high": True}), (-1, {})):
        with pytest.raises(ValueError, match="^x: needs 0 <=? x <=? infinity"):
            check_real("x", bad, 0, **options)
    with pytest.raises(ValueError, match="^x: too large for a float"):
        check_real("x", 10**400)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2", None])
def test_threads(bad):
    with pytest.raises((TypeError, ValueError), match="^threads: needs an integer >= 1, got"):
        check_threads(bad)


@pytest.mark.parametrize("module, name", [(module, name) for module, names in OLD_NAMES.items() for name in names])
def test_a_moved_name_is_found_and_warns(module, name):
    package = f"blockrr.privacy.{module}"
    __import__(package)
    with pytest.warns(DeprecationWarning, match=f"^{package}.{name} is deprecated") as seen:
        found = getattr(sys.modules[package], name)
    new_place, new_name = str(seen[0].message).rpartition("use ")[2].rsplit(".", 1)
    assert found is getattr(sys.modules[new_place], new_name) and seen[0].filename == __file__


def test_other_names_are_missing_without_a_warning():
    old = ModuleType("old")
    old.__getattr__ = moved("old", {"gone": "math:e"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not hasattr(old, "never") and not hasattr(old, "__path__")

"""Partitions of the labels: what is refused, and the definition entry by entry."""

import math
from fractions import Fraction

import numpy as np
import pytest

from blockrr.privacy.partition import Partition, check_settings, partition_by_weight, weight_matrix

CIFAR10_1 = [5000, 4900, 4700, 4600, 4500, 4800, 1000, 1500, 1000, 1500]
BROKEN = [
    ("lies in outputs_1", ((0, 1), (2, 3)), {"neighbours": ((0,), (1,), (1,), (3,))}),
    ("all of 0 .. 2", ((0, 1), (3,)), {}),
    ("distinct", ((0, 0), (1,)), {}),
    ("same for all labels", ((0, 1), (2,)), {"neighbours": ((0, 1), (0,), (2,))}),
    ("no neighbour", ((0, 1), (2,)), {"dominant": (0,), "outputs": (0, 1)}),
    ("no neighbour", ((0, 1), (2,)), {"dominant": (0,), "outputs": (0, 2)}),
    ("outputs only", ((0, 1), (2,)), {"outputs": (0, 2), "neighbours": ((0,), (1,), (2,))}),
    ("needs labels", ((0, 1), (2,)), {"outputs": (0, 7)}),
    ("at least one", ((0, 1), ()), {"outputs": ()}),
    ("at least 2 labels", ((0,), ()), {}),
    ("integers", ((0.0, 1), ()), {}),
    (">= 0", ((0, -1), ()), {}),
    ("one tuple for each", ((0, 1), ()), {"neighbours": ((0,),)}),
]


@pytest.mark.parametrize("text, blocks, options", BROKEN)
def test_each_broken_condition_has_its_own_message(text, blocks, options):
    with pytest.raises((TypeError, ValueError), match=text):
        Partition(*blocks, **options)


@pytest.mark.parametrize("bad", [3, "01", b"01", {0: 1}, math.nan, 1j, True])
def test_what_is_no_tuple_of_indices(bad):
    calls = {
        "majority": lambda: Partition(bad, (1,)),
        "minority": lambda: Partition((0,), bad),
        "dominant": lambda: Partition((0,), (1,), bad),
        "outputs": lambda: Partition((0,), (1,), (), bad),
        "neighbours": lambda: Partition((0,), (1,), neighbours=bad),
    }
    for name, call in (*calls.items(), ("neighbours", lambda: Partition((0,), (1,), neighbours=(bad, bad)))):
        with pytest.raises((TypeError, ValueError), match=f"{name}: needs"):
            call()


@pytest.mark.parametrize("bad", [None, "x", math.nan, True, 4, -1, [0]])
def test_near_needs_a_label_index(bad):
    with pytest.raises((TypeError, ValueError), match="^y: needs an integer from 0 to 3"):
        Partition((0, 1), (2, 3)).near(bad)


def test_thresholds():
    assert partition_by_weight(CIFAR10_1, 0.8, 2).minority == (6, 8)  # exp(-1/.8) * 5000 = 1432 < 1500
    assert partition_by_weight([1, 1, 1], 1.0).majority == (0, 1, 2)
    assert partition_by_weight([1, 0], 0.001).majority == (0, 1)  # exp(-1000) underflows to 0: all are majority
    assert partition_by_weight([1, 0.9], math.inf).majority == (0,)
    assert partition_by_weight([3, 1], Fraction(1, 2)) == partition_by_weight([3, 1], 0.5)
    assert len(partition_by_weight(np.ones(10_000), 1.0).majority) == 10_000  # a large domain is no problem


@pytest.mark.parametrize("prior, sigma", [([0.5, 0.3, 0.2], 0.7), ([0.1, 0.1, 0.8], 1.3), ([5, 4, 3, 2, 1], 2.0)])
def test_the_definition_entry_by_entry(prior, sigma):
    W = weight_matrix(prior, sigma)
    wanted = tuple(i for i in range(len(prior)) if (W[i, i] >= W[i]).all())
    assert partition_by_weight(prior, sigma).majority == wanted


@pytest.mark.parametrize("bad", [0, -1, math.nan, "1", None, True, 1j, [1.0]])
def test_what_is_no_sigma(bad):
    for call in (partition_by_weight, weight_matrix):
        with pytest.raises((TypeError, ValueError), match="^sigma: needs"):
            call([1, 1], bad)
    with pytest.raises((TypeError, ValueError), match="^sigma: needs"):
        check_settings(bad, 0)


@pytest.mark.parametrize("bad", [-1, 1.5, None, True, "1", math.inf])
def test_what_is_no_l(bad):
    for call in (lambda: partition_by_weight([1, 1], 1, bad), lambda: check_settings(1.0, bad)):
        with pytest.raises((TypeError, ValueError), match="^l: needs"):
            call()


def test_other_bad_input():
    with pytest.raises(ValueError, match="^sigma: too large"):
        partition_by_weight([1, 1], 10**400)
    with pytest.raises(ValueError, match="^prior: needs"):
        partition_by_weight([0, 0], 1)
    assert partition_by_weight({1: 0.1, 0: 0.9}, 1).majority == (0,)
    with pytest.raises(ValueError, match="labels 0 .. 1"):
        partition_by_weight({"a": 0.1, "b": 0.9}, 1)

"""Printed numbers from every corner of the paper's tables, and old names that still answer."""

import math

import pytest

from blockrr.study import paper
from blockrr.study.paper import printed, settings, table_label


@pytest.mark.parametrize(
    "kind, place, value, std",
    [
        ("overall", {"dataset": "cifar10_1", "epsilon": 0.6, "mechanism": "rr"}, 39.75, 1.44),
        ("overall", {"dataset": "cifar10_1", "epsilon": 1.0, "mechanism": "block_rr"}, 55.12, 2.69),
        (
            "overall",
            {"dataset": "cifar10_2", "epsilon": 1.0, "mechanism": "rr_with_prior"},
            59.48,
            5.94,
        ),
        (
            "overall",
            {"dataset": "cifar10_2", "epsilon": math.inf, "mechanism": "block_rr"},
            92.58,
            0.23,
        ),
        (
            "average",
            {"dataset": "cifar10_2", "epsilon": 4.0, "mechanism": "rr_with_prior"},
            74.01,
            None,
        ),
        (
            "per_class",
            {"dataset": "cifar10_1", "epsilon": 0.6, "mechanism": "block_rr", "class": 1},
            84.94,
            None,
        ),
        (
            "per_class",
            {"dataset": "cifar10_1", "epsilon": 2.0, "mechanism": "rr_with_prior", "class": 9},
            8.13,
            None,
        ),
        (
            "per_class",
            {"dataset": "cifar10_2", "epsilon": math.inf, "mechanism": "block_rr", "class": 9},
            83.02,
            None,
        ),
        ("ablation_l", {"dataset": "cifar10_2", "epsilon": 4.0, "l": 6}, 88.78, 0.53),
        ("ablation_l", {"dataset": "cifar10_2", "epsilon": 0.8, "l": 3}, 49.90, 2.93),
    ],
)
def test_spot_values(kind, place, value, std):
    frame = printed(kind)
    for name, wanted in place.items():
        frame = frame[frame[name] == wanted]
    assert frame["value"].item() == value
    assert math.isnan(frame["std"].item()) if std is None else frame["std"].item() == std


def test_only_the_impossible_is_a_misprint():
    flagged = {kind: int(printed(kind).misprint.sum()) for kind in paper.KINDS[:4]}
    assert flagged == {"overall": 0, "average": 0, "per_class": 1, "ablation_l": 0}


def test_labels():
    assert table_label("settings", "cifar10_2") == "tab:dp_params2"
    with pytest.raises(ValueError, match="needs a pair in LABELS, got 'ablation_l', 'cifar10_1'"):
        table_label("ablation_l", "cifar10_1")
    assert settings("cifar10_1", 8.0) == (0.5, None) and settings("cifar10_1", 8.0).l is None


def test_an_old_name_answers_with_a_warning():
    with pytest.warns(DeprecationWarning, match="DATASET_TITLES"):
        assert paper.DATASETS is paper.DATASET_TITLES
    with pytest.raises(AttributeError, match="no attribute 'audit'"):
        paper.audit  # noqa: B018

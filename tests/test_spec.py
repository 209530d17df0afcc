"""A cell of the grid: what it refuses, its key, its seeds; the grid of a slice."""

import math
from dataclasses import replace

import numpy as np
import pytest

from blockrr.privacy.methods import METHODS
from blockrr.privacy.sampling import RandomBits
from blockrr.study.learners import LEARNERS
from blockrr.study.paper import MECHANISMS
from blockrr.study.spec import Spec, block_settings, grid

CELL = Spec("digits", "block_rr", 1, 0, 1.2, 5)
TUNED = replace(CELL, learner="resnet18", options={"epochs": 2, "rate": 0.5})


def words(spec):
    "The first bits of the streams of the split, of the prior and of the release."
    return [int(RandomBits(seed).words(1)[0]) for seed in spec.seeds()]


def test_the_papers_settings():
    cells = grid("cifar10_2", ["block_rr"], [0.6, 4, 6, "inf"], 1)
    assert [(s.sigma, s.l) for s in cells] == [(1.2, 2), (0.5, 0), (0.2, 0), (None, None)]
    assert [(s.sigma, s.l) for s in grid("cifar10_1", "block_rr", "1.7", 1)] == [(0.8, 2)]
    assert block_settings("digits", 1.0) == block_settings("cifar10_1", 1.0)


def test_the_grid_in_its_order():
    assert [s.mechanism for s in grid("cifar10_1", METHODS, [1], 1)] == list(METHODS)
    assert list(METHODS)[:3] == list(MECHANISMS)
    assert len(grid("cifar10_2", ["block_rr"], [0.6, 1], 10, l=list(range(7)))) == 140
    assert len(grid("digits", MECHANISMS, [1, "inf"], [3, 5])) == 12
    assert grid("digits", "rr, block_rr", 1, "2") == grid("digits", ["rr", "block_rr"], [1], 2)
    floors = grid("digits", ["optimal_rr"], [1, "inf"], 1, floor=[0, 0.5, 1])
    assert [s.floor for s in floors] == [0, 0.5, 1, None]
    [tuned] = grid("digits", ["rr"], [1], 1, learner="resnet18", options={"epochs": 2})
    assert tuned.options == (("epochs", 2),)
    with pytest.raises(ValueError, match="settings: needs those of rr, got alpha"):
        grid("digits", ["rr"], [1], 1, settings={"alpha": 1})
    with pytest.raises(ValueError, match="mechanism: needs one of"):
        grid("digits", ["x"], [1], 1)


def test_keys():
    assert Spec(**TUNED.to_dict()) == TUNED and TUNED.to_dict()["options"] == {"epochs": 2, "rate": 0.5}
    assert "options" not in CELL.key and "settings" not in CELL.key
    twin = Spec("digits", "block_rr", np.float64(1), np.int64(0), np.float32(1).item() + 0.2, np.int8(5))
    assert (twin.key, hash(twin)) == (CELL.key, hash(CELL))
    assert Spec("digits", "rr", -0.0).key == Spec("digits", "rr", 0).key
    assert Spec(**Spec("digits", "rr", "inf").to_dict()).epsilon == math.inf
    key = '{"dataset": "cifar10_1", "epsilon": 1.0, "l": null, "learner": "probe", "mechanism": "rr", '
    assert Spec("cifar10_1", "rr", 1.0).key == key + '"prior_fraction": 0.01, "seed": 0, "sigma": null}'
    half = Spec("digits", "optimal_rr", 1.0, floor=0.5)
    assert Spec(**half.to_dict()) == half and half.to_dict()["floor"] == 0.5


def test_seeds():
    other = replace(CELL, epsilon=2.0)
    assert words(TUNED) == words(CELL)  # the same labels for every learner
    assert words(CELL)[0] == words(other)[0] and words(CELL)[1] != words(other)[1]
    assert words(CELL)[1] != words(CELL)[2]


@pytest.mark.parametrize("options", [[1], 3, {"a": [1]}, {"a": math.nan}, {1: 2}])
def test_options_that_json_could_not_keep(options):
    with pytest.raises(TypeError, match="options: needs"):
        replace(CELL, options=options)


@pytest.mark.parametrize("learner", [name for name, row in LEARNERS.items() if row.options is not None])
def test_options_that_a_learner_does_not_have(learner):
    with pytest.raises(ValueError, match=f"options: {learner} has features"):
        replace(CELL, learner=learner, options={"epochs": 2})
    with pytest.raises(ValueError, match="options: features needs patches, pretrained or both, got 'pixels'"):
        replace(CELL, learner=learner, options={"features": "pixels"})


@pytest.mark.parametrize(
    "change, word",
    [
        (dict(dataset="nope"), "dataset"),
        (dict(seed=[1]), "seed"),
        (dict(seed=1.5), "seed"),
        (dict(seed=-1), "seed"),
        (dict(mechanism="x"), "mechanism"),
        (dict(epsilon=-1), "epsilon"),
        (dict(sigma=0), "sigma"),
        (dict(l=-1), "l: needs"),
        (dict(l=None), "l: needs"),
        (dict(sigma=None), "sigma"),
        (dict(learner="x"), "learner"),
        (dict(mechanism="rr"), "sigma: needs a mechanism with settings"),
        (dict(mechanism="lp_2st"), "sigma: needs a mechanism with settings"),
        (dict(epsilon="inf"), "and a finite epsilon, got block_rr"),
        (dict(floor=0.5), "floor: only the method .optimal_rr. has one"),
        (dict(mechanism="optimal_rr", sigma=None, l=None), "floor: needs"),
        (dict(prior_fraction=0), "prior_fraction: needs 0 < prior_fraction < 1, got 0"),
        (dict(prior_fraction="1%"), "prior_fraction: needs a real number, got str"),
        (dict(settings={"alpha": 1}), "alpha: needs a setting of the method .block_rr."),
    ],
)
def test_a_cell_that_cannot_be_run_is_refused_when_it_is_made(change, word):
    with pytest.raises((TypeError, ValueError), match=word):
        replace(CELL, **change)

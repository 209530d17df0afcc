"""Learners of classes: one row of a table is all that a new one needs."""

import json

import numpy as np
import pytest

from blockrr.learning.workspace import WORKSPACES
from blockrr.study import batch, learners, network_learners
from blockrr.study.batch import priority_order, run_cells
from blockrr.study.cli import main
from blockrr.study.experiment import overview, run_all
from blockrr.study.figures import plot_learners
from blockrr.study.frames import learner_table, learners_in, name_learners, read_records
from blockrr.study.learner import Learner, LearnerOption, Outcome, Pace, Released, fit_together
from blockrr.study.learners import LEARNERS
from blockrr.study.records import load, save
from blockrr.study.spec import Spec, grid


def fit_majority(workspace, released, shift=0):
    "Predict the most frequent released label."
    n = len(workspace.images.test_labels)
    found = [(np.bincount(r.labels, minlength=10).argmax() + shift) % 10 for r in released]
    return [Outcome(np.full(n, label), {"label": int(label)}) for label in found]


@pytest.fixture
def toy(monkeypatch):
    shift = LearnerOption("an integer", lambda value: isinstance(value, int))
    monkeypatch.setitem(LEARNERS, "toy", Learner("toy", "Majority", fit_together(fit_majority), {"shift": shift}))


def test_a_row_is_all_that_a_learner_needs(toy, tmp_path):
    "Found in the spec, the grid, the run, the overview, record files, tables and figures."
    specs = grid("digits", ["rr", "block_rr"], [2.0], 2, learner="toy", options={"shift": 1})
    records = run_all(specs)
    assert [r.spec for r in records] == specs and len(overview(records).splitlines()) == 4
    truth = WORKSPACES["digits"].images.test_labels
    assert [r.accuracy for r in records] == pytest.approx([100 * np.mean(truth == r.details["label"]) for r in records])
    plain = run_all(grid("digits", ["rr"], [2.0], 2, learner="toy") + grid("digits", ["rr"], [2.0], 2))
    assert [(r.details["label"] + 1) % 10 for r in plain[:2]] == [r.details["label"] for r in records[:2]]
    assert load(save(plain, tmp_path / "records" / "a.json")) == plain
    frame = name_learners(read_records(tmp_path / "records"))
    assert learners_in(frame) == ["probe", "toy"] and list(learner_table(frame).columns) == ["paper", "probe", "toy"]
    cifar = frame.assign(dataset="cifar10_1")
    figure = plot_learners(cifar, learners=learners_in(frame))
    assert "toy" in [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"rate": 1}, "options: toy has shift .an integer., got rate"),
        ({"shift": "x"}, "options: shift needs an integer"),
    ],
)
def test_options_are_checked_against_the_row(toy, options, words):
    with pytest.raises(ValueError, match=words):
        Spec("digits", "rr", 2.0, learner="toy", options=options)


def test_the_command_line_finds_a_new_learner(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(batch, "_load_pack", lambda pack: ("digits",))
    monkeypatch.setattr(batch, "show_batch", lambda folder, root: None)
    common = ["gpu-batch", "--minutes", "1", "--output", str(tmp_path), "--device", "cpu", "--seeds", "1"]
    assert main([*common, "--learner", "toy"]) == 0
    assert "27 trainings done, 0 left" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="learner: needs one of .*toy, got 'tiy'"):
        main([*common, "--learner", "tiy"])


def test_a_learner_that_trains_states_its_pace(toy, tmp_path, monkeypatch):
    pace = Pace(lambda spec: 2, lambda workspace, spec: 1000.0)
    monkeypatch.setitem(LEARNERS, "slow", Learner("slow", "Slow", LEARNERS["toy"].fit, pace=pace))
    specs = priority_order(["digits"], 1, [1.0], learner="slow", prior_fraction=0.1)
    assert run_cells(specs, tmp_path, 0.02).done == 0  # two passes over 869 images at 1,000 a second are 1.8 seconds
    assert run_cells(specs, tmp_path).done == len(specs) == 3


def test_a_learner_without_options_says_so():
    row = Learner("toy", "Majority", fit_together(fit_majority))
    row.check({})
    with pytest.raises(ValueError, match="options: toy has none, got a"):
        row.check({"a": 1})


def test_runs_with_equal_options_are_fitted_together():
    seen = []

    def fit(workspace, released, **options):
        seen.append((len(released), options))
        return [Outcome(np.array([i]), {}) for i in range(len(released))]

    specs = [
        Spec("digits", "rr", 1.0, seed, learner="forward", options=o) for seed in (0, 1) for o in ({}, {"factor": 2})
    ]
    found = fit_together(fit)(WORKSPACES["digits"], specs, [None] * 4)
    assert seen == [(2, {}), (2, {"factor": 2})] and [int(o.predictions[0]) for o in found] == [0, 0, 1, 1]


def test_likelihood_of_a_release():
    T = np.array([[0.7, 0.3], [0.2, 0.8]])
    rows, held = np.arange(3), np.empty(0, int)
    assert (Released(np.array([0, 1, 1]), rows, held, T, {}).likelihood == T.T[[0, 1, 1]]).all()
    own = np.full((3, 2), 0.5)
    assert Released(np.array([0, 1, 1]), rows, held, None, {}, own).likelihood is own
    with pytest.raises(ValueError, match="likelihood: needs"):
        _ = Released(np.array([0, 1, 1]), rows, held, None, {}).likelihood


def test_the_papers_recipe():
    recipes = [network_learners.resnet_recipe(Spec("cifar10_1", "rr", e, learner="resnet18")) for e in (0.6, 1, "inf")]
    assert [r.epochs for r in recipes] == [110, 160, 160]


@pytest.mark.parametrize("name", ["REGRESSION_LEARNERS", "learn_numbers", "poisson_fit"])
def test_learners_of_numbers_have_moved(name):
    from blockrr.study import numeric_learners

    with pytest.warns(DeprecationWarning, match=f"use blockrr.study.numeric_learners.{name}"):
        assert getattr(learners, name) is getattr(numeric_learners, name)


def test_records_name_no_true_label(toy):
    [record] = run_all([Spec("digits", "rr", 1.0, learner="toy")])
    assert set(json.loads(json.dumps(record.to_dict()))["details"]) == {"certified_epsilon", "n_released", "label"}

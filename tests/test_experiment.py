"""A run from its spec to its record; one row of a table is all that a new mechanism needs."""

import csv

import numpy as np
import pytest

import blockrr as br
from blockrr.learning.workspace import WORKSPACES, Workspace
from blockrr.privacy.methods import METHODS, Method, Setting
from blockrr.study import experiment
from blockrr.study.cli import main
from blockrr.study.experiment import Record, overview, release_labels, run, run_all, score
from blockrr.study.figures import COLOURS
from blockrr.study.frames import MECHANISM_TITLES, learner_table, name_learners, read_records
from blockrr.study.learner import Released
from blockrr.study.records import load, save
from blockrr.study.spec import Spec, grid
from blockrr.study.staged import STAGED, StagedMethod


def check_share(value):
    if value is None:
        return 0.5
    if not 0 < value <= 1:
        raise ValueError(f"share: needs 0 < share <= 1, got {value}")
    return float(value)


def build_lazy(domain, epsilon, prior, share):
    "Randomized response that uses a share of epsilon alone."
    return br.rr(domain, share * epsilon), {"share": share}


@pytest.fixture
def toy(monkeypatch):
    settings = {"share": Setting(check_share, "share of epsilon that is used")}
    monkeypatch.setitem(METHODS, "lazy", Method("lazy", "LazyRR", build_lazy, settings, False, "#123456"))


def test_a_row_is_all_that_a_mechanism_needs(toy, tmp_path):
    "Found in the spec, the grid, the run, the overview, record files, tables and colours."
    specs = grid("digits", ["rr", "lazy"], [2.0], 2, settings={"share": [0.25, 1]})
    assert [(s.mechanism, s.settings) for s in specs[::2]] == [
        ("rr", ()),
        ("lazy", (("share", 0.25),)),
        ("lazy", (("share", 1.0),)),
    ]
    assert Spec(**specs[2].to_dict()) == specs[2] and specs[2].to_dict()["settings"] == {"share": 0.25}
    assert len({s.key for s in specs}) == 6
    records = run_all(specs)
    assert [r.details["certified_epsilon"] <= limit for r, limit in zip(records[::2], (2, 0.5, 2))] == [True] * 3
    assert "| lazy, share 0.25 |" in overview(records)
    assert load(save(records, tmp_path / "records" / "a.json")) == records
    frame = name_learners(read_records(tmp_path / "records"))
    assert "LazyRR" in learner_table(frame).index.get_level_values("mechanism")
    assert MECHANISM_TITLES["lazy"] == "LazyRR" and COLOURS["lazy"] == "#123456" and [*COLOURS] == [*METHODS]
    [usual] = grid("digits", "lazy", 2.0, 1)
    assert usual.settings == (("share", 0.5),)
    with pytest.raises(ValueError, match="share: needs 0 < share <= 1, got 2"):
        Spec("digits", "lazy", 1.0, settings={"share": 2})
    with pytest.raises(ValueError, match="share: only the methods 'frequent_rr' and 'lazy' have one"):
        Spec("digits", "optimal_rr", 1.0, floor=0.5, settings={"share": 1})


def test_the_command_line_has_a_new_mechanism(toy, tmp_path, capsys):
    source = tmp_path / "in.csv"
    with open(source, "w", newline="") as file:
        csv.writer(file).writerows([["answer"], *([["yes"], ["no"]] * 50)])
    common = [str(source), "--column", "answer", "--domain", "yes,no", "--epsilon", "2", "--method", "lazy"]
    assert main(["release", *common, "--output", str(tmp_path / "out.csv"), "--share", "0.25"]) == 0
    assert "epsilon 0.5 certified (within the 2 asked for)" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="share: needs 0 < share <= 1, got 3"):
        main(["release", *common, "--output", str(tmp_path / "other.csv"), "--share", "3"])
    with pytest.raises(SystemExit):
        main(["release", "--help"])
    assert "LazyRR: share of epsilon that is used" in " ".join(capsys.readouterr().out.split())


def test_a_row_is_all_that_a_mechanism_in_stages_needs(monkeypatch):
    def release(task):
        assert task.workspace.images.name == "digits"
        rows = np.arange(len(task.labels))
        one = br.rr(task.n_classes, task.epsilon)
        y = one.privatize(task.labels, task.release_seed)
        return Released(y, rows, rows[:0], one.square(), {"certified_epsilon": one.certify().epsilon})

    monkeypatch.setitem(STAGED, "at_once", StagedMethod("at_once", "All at once", release))
    [record] = run_all(grid("digits", ["at_once"], [2.0], 1))
    assert record.details["certified_epsilon"] <= 2 and record.accuracy > 50


def test_scores():
    assert score(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 2]), 3) == (75.0, (50.0, 100.0, 100.0))
    with pytest.raises(ValueError, match="got none of class 1"):
        score(np.array([0]), np.array([0]), 2)


@pytest.mark.parametrize("bad", [float("nan"), "75", -1.0, True])
def test_a_record_holds_percentages(bad):
    with pytest.raises(ValueError, match="accuracy: needs"):
        Record(Spec("digits", "rr", 1.0), bad, (50.0,), {})


@pytest.mark.parametrize("mechanism", ["rr", "rr_with_prior", "lp_2st"])
def test_original_labels_at_infinity(mechanism):
    data = WORKSPACES["digits"].images
    found = release_labels(Spec("digits", mechanism, "inf"), data.train_labels, 10)
    assert found.details == {"original_labels": True} and (found.labels == data.train_labels[found.rows]).all()
    assert (len(found.held) > 0) == (mechanism == "rr_with_prior")


def test_a_workspace_may_be_given():
    data = WORKSPACES["digits"].images
    spec = Spec("digits", "rr", 3.0)
    assert run(spec, workspaces={"digits": Workspace(data)}) == run(spec)


@pytest.mark.parametrize("name", ["use", "plan_lines"])
def test_names_that_have_moved(name):
    with pytest.warns(DeprecationWarning, match="use blockrr"):
        assert callable(getattr(experiment, name))

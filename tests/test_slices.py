"""What the profiles say, slice by slice, and which code a slice depends on. Snakemake is run in test_reproduce."""

import json
import shutil

import pytest
import yaml

from blockrr.study.parameters import budgets
from blockrr.study.regression import regression_grid
from blockrr.study.reproduce import ROOT, code_digest, import_closure, pretrained_files, profiles, slices
from blockrr.study.spec import grid


def profile(name):
    return yaml.safe_load((ROOT / "workflow" / "profiles" / f"{name}.yaml").read_text())


def cells(slice_):
    "The specs of a slice, as its notebook makes them."
    given = {k: v for k, v in slice_.items() if k not in ("name", "output", "cells", "learners", "learner")}
    fixed = [given.pop(k) for k in ("dataset", "mechanisms", "epsilons", "seeds")]
    found = []
    for plan in slice_.get("learners", [{"learner": slice_.get("learner")}]):
        mechanisms = plan.get("mechanisms", fixed[1])
        own = {k: v for k, v in plan.items() if k != "mechanisms"}
        found += grid(fixed[0], mechanisms, budgets(None, fixed[2]), fixed[3], **{**given, **own})
    return found


@pytest.mark.parametrize(
    "name, n_slices, n_runs",
    [
        ("smoke", 7, 150),
        ("laptop", 30, 1440),
        ("gpu", 18, 540),
        ("gpu_smoke", 2, 12),
        ("optimal", 16, 1120),
        ("learners", 64, 4570),
        ("sets", 88, 2400),
    ],
)
def test_every_slice_is_a_list_of_cells(name, n_slices, n_runs):
    found = slices(profile(name), "runs/x")
    assert all(s["name"] == key and s["output"] == "runs/x/records" for key, s in found.items())
    assert (len(found), sum(len(cells(s)) for s in found.values())) == (n_slices, n_runs)
    assert json.loads(json.dumps(found)) == found  # they travel as JSON


def test_the_slices_of_a_regression():
    found = slices(profile("regression"), "runs/x")
    specs = [
        regression_grid(s["dataset"], s["epsilons"], range(s["seeds"]), mechanisms=s["mechanisms"])
        for s in found.values()
    ]
    assert (len(found), sum(map(len, specs))) == (20, 8740) and found["diabetes-references"]["epsilons"] == []


@pytest.mark.parametrize("name", ["laptop", "optimal", "learners"])
def test_the_records_on_disk_are_the_cells_of_the_slices(name):
    found = slices(profile(name), "x")
    files = {p.stem: json.loads(p.read_text())["records"] for p in (ROOT / "results" / name / "records").glob("*.json")}
    assert set(files) == set(found)
    for key, records in files.items():
        assert [r["spec"] for r in records] == [spec.to_dict() for spec in cells(found[key])], key


def test_the_records_of_sets_are_cells_of_its_slices():
    "Those of the study of learners are taken over as they are."
    found = slices(profile("sets"), "x")
    paths = sorted((ROOT / "results" / "sets" / "records").glob("*.json"))
    taken = 0
    for path in paths:
        content = json.loads(path.read_text())
        assert [r["spec"] for r in content["records"]] == [s.to_dict() for s in cells(found[path.stem])], path.stem
        if source := content["provenance"].get("taken_from"):
            known = json.loads((ROOT / source).read_text())["records"]
            assert all(record in known for record in content["records"]), path.stem
            taken += 1
    assert len(paths) > taken == 16


def test_all_profiles_are_known():
    assert {"smoke", "laptop", "gpu", "gpu_smoke", "learners", "optimal", "regression"} <= set(profiles())


def test_what_a_slice_reads_of_pretrained_features(monkeypatch):
    both = {"learner": "forward", "options": {"features": "both"}}
    monkeypatch.setenv("BLOCKRR_PRETRAINED", "here")
    assert pretrained_files({"dataset": "cifar10_2", "learners": [both]}) == ["here/cifar10_1.json"]
    assert pretrained_files({"dataset": "digits", "options": {"features": "pretrained"}}) == ["here/digits.json"]
    assert pretrained_files({"dataset": "digits", "learners": ["probe", {"learner": "forward"}]}) == []


def test_a_digest_covers_what_is_imported_and_nothing_else(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "blockrr", tmp_path / "blockrr", ignore=shutil.ignore_patterns("__pycache__"))
    closure = import_closure("blockrr.study.experiment", tmp_path)
    names = {"/".join(p.relative_to(tmp_path).parts[1:]) for p in closure}
    assert {"study/learners.py", "study/staged.py", "learning/training.py", "privacy/methods.py"} <= names
    assert not {"study/cli.py", "study/figures.py", "study/reproduce.py", "study/numeric_learners.py"} & names
    assert closure == sorted(closure)
    numeric = import_closure("blockrr.study.regression")
    assert ROOT / "blockrr/study/numeric_learners.py" in numeric and ROOT / "blockrr/learning/probe.py" not in numeric


def test_a_change_of_code_changes_the_digest(monkeypatch):
    before = {study: code_digest(study) for study in ("accuracy", "resnet", "regression")}
    assert before["accuracy"] == before["resnet"] != before["regression"]
    changed = ROOT / "blockrr/study/learners.py"
    read = type(changed).read_bytes
    monkeypatch.setattr(type(changed), "read_bytes", lambda self: read(self) + (b"#" if self == changed else b""))
    assert code_digest("accuracy") != before["accuracy"] and code_digest("regression") == before["regression"]

"""What the profiles say, slice by slice, and which code a slice depends on. Snakemake is run in test_reproduce."""

import ast
import json
import shutil

import pytest
import yaml

from blockrr.study.regression import regression_grid
from blockrr.study.reproduce import ROOT, code_digest, import_closure, pretrained_files, profiles, slices
from blockrr.study.spec import slice_cells


def profile(name):
    return yaml.safe_load((ROOT / "workflow" / "profiles" / f"{name}.yaml").read_text())


def cells(slice_):
    "The specs of a slice."
    given = {k: v for k, v in slice_.items() if k not in ("name", "output", "cells")}
    fixed = [given.pop(k) for k in ("dataset", "mechanisms", "epsilons", "seeds")]
    return slice_cells(*fixed, **given)


def code_cells(study):
    "The code cells of a slice's notebook, its cell of parameters first."
    found = json.loads((ROOT / "nbs" / "experiments" / f"{study}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [c for c in found if c["cell_type"] == "code"]
    code.sort(key=lambda c: "parameters" not in c["metadata"].get("tags", []))
    return ["".join(c["source"]) for c in code]


def planned(study, parameters):
    "What a notebook is about to run with these parameters, by its own cells."
    space = {}
    defaults, imports, plan, *_ = code_cells(study)
    exec(imports, space)
    exec(defaults, space)
    space.update(parameters)
    exec(plan, space)
    return space["specs"] if "specs" in space else space["grid"]


@pytest.mark.parametrize(
    "name, n_slices, n_runs",
    [
        ("smoke", 7, 150),
        ("laptop", 30, 1440),
        ("gpu", 18, 540),
        ("gpu_smoke", 2, 12),
        ("optimal", 16, 1120),
        ("learners", 64, 4570),
        ("network", 39, 186),
        ("sets", 88, 2400),
    ],
)
def test_every_slice_is_a_list_of_cells(name, n_slices, n_runs):
    found = slices(profile(name), "runs/x")
    assert all(s["name"] == key and s["output"] == "runs/x/records" for key, s in found.items())
    assert (len(found), sum(len(cells(s)) for s in found.values())) == (n_slices, n_runs)
    assert json.loads(json.dumps(found)) == found  # they travel as JSON


@pytest.mark.parametrize("name", profiles())
def test_a_notebook_has_the_parameters_of_every_slice(name):
    read = profile(name)
    defaults = ast.parse(code_cells(read.get("study", "accuracy"))[0]).body
    declared = {ast.unparse(getattr(node, "target", None) or node.targets[0]) for node in defaults}
    assert all(set(parameters) <= declared for parameters in slices(read, "x").values())


@pytest.mark.parametrize("name", ["smoke", "gpu_smoke", "gpu", "laptop", "optimal", "learners", "regression_smoke"])
def test_a_notebook_plans_the_cells_of_its_slice(name):
    read = profile(name)
    found = slices(read, "x")
    for parameters in list(found.values())[:3] + list(found.values())[-3:]:
        plan = planned(read.get("study", "accuracy"), parameters)
        if read.get("study") == "regression":
            shared = {k: parameters[k] for k in ("mechanisms", "learners", "prior_fraction") if k in parameters}
            defaults = {"learners": ["linear", "boosting"], "prior_fraction": 0.1}
            fixed = parameters["dataset"], parameters["epsilons"], range(parameters["seeds"])
            assert plan == regression_grid(*fixed, **{**defaults, **shared})
        else:
            assert plan == cells(parameters)


@pytest.mark.parametrize(
    "study, name, given",
    [
        ("accuracy", "smoke", {"epsilon": 1.0, "dataset": "digits", "seeds": 5}),
        ("accuracy", "laptop", {"epsilon": "inf", "dataset": "cifar10_2", "seeds": "10"}),
        ("resnet", "gpu", {"epsilon": 1.0, "dataset": "cifar10_1", "seeds": 10}),
        ("resnet", "gpu_smoke", {"epsilon": 1.0, "seeds": 2}),
    ],
)
def test_one_epsilon_by_hand_is_a_slice(study, name, given):
    "With nothing else on the command line."
    key = f"{given.get('dataset', 'digits')}-eps{given['epsilon']}"
    assert set(planned(study, given)) == set(cells(slices(profile(name), "x")[key]))


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
    assert {path.stem for path in paths} == set(found) and taken == 16


def test_all_profiles_are_known():
    assert {"smoke", "laptop", "gpu", "gpu_smoke", "learners", "network", "optimal", "regression"} <= set(profiles())


def test_what_a_slice_reads_of_pretrained_features(tmp_path, monkeypatch):
    both = {"learner": "forward", "options": {"features": "both"}}
    monkeypatch.setenv("BLOCKRR_PRETRAINED", "here")
    assert pretrained_files({"dataset": "cifar10_2", "learners": [both]}) == ["here/cifar10_1.json"]
    assert pretrained_files({"dataset": "digits", "options": {"features": "pretrained"}}) == ["here/digits.json"]
    assert pretrained_files({"dataset": "digits", "learners": ["probe", {"learner": "forward"}]}) == []
    monkeypatch.setenv("BLOCKRR_PRETRAINED", str(tmp_path))
    (tmp_path / "encoder.pt").touch()
    assert pretrained_files({"dataset": "digits", "learners": [both]}) == [str(tmp_path / "encoder.pt")]
    (tmp_path / "digits.json").touch()
    assert pretrained_files({"dataset": "digits", "learners": [both]}) == [str(tmp_path / "digits.json")]


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


def test_the_records_of_the_network_are_cells_of_its_profile():
    "As many as there was time for, in the profile's order or not."
    from blockrr.study.profile_batch import ordered_cells

    wanted = {json.dumps(s.to_dict(), sort_keys=True) for s in ordered_cells(profile("network"))}
    paths = sorted((ROOT / "results" / "network" / "records").glob("*.json"))
    found = [json.loads(path.read_text())["records"] for path in paths]
    assert found and all(len(records) == 1 for records in found)
    assert {json.dumps(r["spec"], sort_keys=True) for [r] in found} <= wanted

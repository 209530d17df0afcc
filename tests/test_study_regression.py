"""The regression study: records as functions of their specs, what true labels may reach, public ranges, releases."""

import json
import math
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from blockrr.learning.tabular import RANGES, PublicRange, TabularData, group_split, tabular
from blockrr.privacy import regression as numeric
from blockrr.privacy.regression import NUMERIC_MECHANISMS, NumericMechanism
from blockrr.privacy.values import ValueMechanism
from blockrr.study.frames import read_records
from blockrr.study.numeric_learners import REGRESSION_LEARNERS, Fitted
from blockrr.study.records import load, save
from blockrr.study.regression import (
    REFERENCES,
    RegressionSpec,
    build,
    regression_grid,
    release_numbers,
    run_on,
    run_regression,
)
from blockrr.study.regression_report import error_table, plot_regression

ROOT = Path(__file__).resolve().parent.parent
EVERYTHING = (*NUMERIC_MECHANISMS, *REFERENCES)
WITH_PRIOR = [m.name for m in NUMERIC_MECHANISMS.values() if m.needs_prior]


def counts(seed=0, n=400, name="randhie"):
    "A made-up table of counts with signal; some targets lie outside the public range."
    r = np.random.default_rng(seed)
    x = r.normal(size=(n, 3))
    y = r.poisson(np.exp(0.8 + x @ [0.7, -0.4, 0])).astype(float)
    y[:3] = 90
    public = PublicRange(0, 8, 1, "", "")
    return TabularData(name, x, ("a", "b", "c"), y, public, group_split(np.arange(n)), counts=True)


SPECS = regression_grid("randhie", [2.0], 2, mechanisms=EVERYTHING)
DATA = counts()


@pytest.fixture(scope="module")
def records():
    return run_on(DATA, SPECS)


# a record is a function of its spec


def test_same_spec_same_record(records):
    assert run_on(DATA, SPECS[::-1])[::-1] == records  # another order, a second time
    for s, r in list(zip(SPECS, records))[::17]:
        assert run_on(DATA, [s]) == [r]  # alone


def test_in_another_process():
    spec = RegressionSpec("diabetes", "rr_on_bins", 2, 3, "boosting", "debiased")
    code = f"""import json
from blockrr.study.regression import *
print(json.dumps(run_regression([RegressionSpec(**{spec.to_dict()!r})])[0].to_dict()))"""
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == run_regression([spec])[0].to_dict()


@pytest.mark.parametrize(
    "bad, word",
    [
        ({"dataset": "boston"}, "dataset: needs one of randhie"),
        ({"mechanism": "x"}, "mechanism: needs one of rr"),
        ({"epsilon": 0}, "epsilon: needs epsilon > 0"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"seed": -1}, "seed: needs an integer >= 0, got -1"),
        ({"seed": 1.5}, "seed: needs an integer >= 0, got 1.5"),
        ({"learner": "x"}, "learner: needs one of linear"),
        ({"labels": "clipped"}, "labels: needs one of raw, debiased, got 'clipped'"),
        (
            {"mechanism": "laplace", "labels": "raw"},
            "prior_fraction: laplace needs no prior, got 0.1",
        ),
        ({"prior_fraction": 1}, "prior_fraction: needs 0 < prior_fraction < 1, got 1"),
        ({"mechanism": "none", "labels": "raw", "prior_fraction": None}, "none is not private"),
    ],
)
def test_a_bad_spec_is_refused(bad, word):
    with pytest.raises(ValueError, match=word):
        replace(RegressionSpec("diabetes", "rr_on_bins", 2, labels="debiased"), **bad)


def test_equal_specs_have_equal_keys():
    spec = RegressionSpec("diabetes", "rr", np.float64(1), np.int64(0))
    assert spec.key == RegressionSpec("diabetes", "rr", 1).key
    assert hash(spec) == hash(replace(spec))
    assert RegressionSpec(**RegressionSpec("diabetes", "none", "inf").to_dict()).epsilon == math.inf
    with pytest.raises(FrozenInstanceError):
        spec.seed = 3


def test_learners_and_postprocessing_share_one_release(records):
    for m in NUMERIC_MECHANISMS:
        seen = {}
        for s in SPECS:
            if s.mechanism != m:
                continue
            out = release_numbers(s, DATA.part(test=False)[1], DATA.public)
            first = seen.setdefault(s.seed, out)
            assert (out.values == first.values).all() and (out.rows == first.rows).all()
        assert len(seen) == 2 and (seen[0].values[:50] != seen[1].values[:50]).any()
    errors = {}
    for r in records:
        errors.setdefault((r.spec.mechanism, r.spec.seed, r.spec.labels), set()).add(r.label_mse)
    assert all(len(e) == 1 for e in errors.values())  # the labels' error does not depend on the learner


# what true labels may reach


def test_test_labels_reach_the_score_alone(records):
    y = DATA.target.copy()
    y[DATA.test] = np.random.default_rng(1).permutation(y[DATA.test])
    other = run_on(replace(DATA, target=y), SPECS)
    assert [(r.details, r.label_mse) for r in other] == [(r.details, r.label_mse) for r in records]
    assert all(a.mse != b.mse for a, b in zip(other, records) if a.spec.learner != "mean")


def test_training_labels_reach_the_release_alone(monkeypatch, records):
    "With the releases held fixed, other true training labels change nothing but the reported error of the labels."
    from blockrr.study import regression

    fixed = {s.release: release_numbers(s, DATA.part(test=False)[1], DATA.public) for s in SPECS}
    monkeypatch.setattr(regression, "release_numbers", lambda spec, target, public: fixed[spec])
    y = DATA.target.copy()
    y[~DATA.test] = np.random.default_rng(2).permutation(y[~DATA.test])
    other = regression.run_on(replace(DATA, target=y), SPECS)
    assert [(r.details, r.mse, r.deviance) for r in other] == [(r.details, r.mse, r.deviance) for r in records]
    assert any(a.label_mse != b.label_mse for a, b in zip(other, records))


@pytest.mark.parametrize("mechanism", WITH_PRIOR)
def test_prior_and_release_use_different_rows(mechanism):
    y = DATA.part(test=False)[1]
    spec = RegressionSpec("randhie", mechanism, 2.0, 1)
    out = release_numbers(spec, y, DATA.public)
    assert len(out.held) and not set(out.held) & set(out.rows) and len(out.held) + len(out.rows) == len(y)
    moved = y.copy()
    moved[out.rows] = moved[out.rows][::-1]  # rows that are released do not move the prior, nor with it the mechanism
    again = release_numbers(spec, moved, DATA.public)
    probe = np.arange(9.0)
    assert (again.mechanism.mean(probe) == out.mechanism.mean(probe)).all()


@pytest.mark.parametrize("mechanism", NUMERIC_MECHANISMS)
def test_public_range_is_never_inferred(mechanism):
    "The domain does not depend on which labels occur: a table with one value has the mechanism's domain of any other."
    public = RANGES["randhie"]
    for target in (np.zeros(300), np.full(300, 7.0), np.linspace(-50, 500, 300)):
        out = release_numbers(RegressionSpec("randhie", mechanism, 1.0), target, public)
        m = out.mechanism
        if hasattr(m, "values"):
            assert m.values.tolist() == public.grid.tolist()
        else:
            assert public.low <= m.low < m.high <= public.high
            assert mechanism != "square_wave" or (m.low, m.high) == (public.low, public.high)
        if mechanism == "rr_on_bins":
            assert sum(m.bins, ()) == tuple(public.grid)
        assert out.details["certified"] <= 1
    if mechanism not in WITH_PRIOR:
        assert m is release_numbers(RegressionSpec("randhie", mechanism, 1.0), np.zeros(9), public).mechanism


def test_outside_labels_are_clipped_one_by_one():
    public = RANGES["randhie"]
    for m in NUMERIC_MECHANISMS:
        a = release_numbers(RegressionSpec("randhie", m, 3.0), np.r_[np.full(50, 24.0), np.zeros(50)], public)
        b = release_numbers(RegressionSpec("randhie", m, 3.0), np.r_[np.full(50, 77.0), np.full(50, -5.0)], public)
        assert (a.values == b.values).all()


@pytest.mark.parametrize("epsilon", [0.3, 2.0, math.inf])
@pytest.mark.parametrize("name", NUMERIC_MECHANISMS)
def test_releases(name, epsilon):
    "Certificate, rows, right means after debiasing, and the limit at infinity: the label's public value."
    table = tabular("diabetes")
    y = table.part(test=False)[1]
    spec = RegressionSpec("diabetes", name, epsilon)
    r = release_numbers(spec, y, table.public)
    method, m, grid = NUMERIC_MECHANISMS[name], r.mechanism, table.public.grid
    by_values = isinstance(m, ValueMechanism)
    assert math.isinf(epsilon) or r.details["certified"] <= epsilon
    assert (np.sort(np.concatenate([r.rows, r.held])) == np.arange(len(y))).all()
    assert (len(r.held) > 0) == method.needs_prior
    if method.unbiased:
        assert abs(m.mean(grid) - grid).max() < 1e-4 * np.ptp(m.points)
        assert r.lowest("clipped") >= 0
    elif by_values:
        wanted = m.points[m.bin_of] if name == "rr_on_bins" else grid
        assert m.transition @ r.postprocessed("debiased", m.points) == pytest.approx(wanted, abs=1e-6)
    else:
        inside = np.linspace(m.low, m.high, 9)
        assert r.postprocessed("debiased", m.mean(inside)) == pytest.approx(inside, abs=1e-6)
    if math.isinf(epsilon) and name not in (
        "rr_on_bins",
        "rp_uniform",
        "rp_project",
    ):  # these are tailored to a prior
        wanted = numeric.to_values(y[r.rows], grid) if by_values else y[r.rows]
        assert r.values == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("mechanism", NUMERIC_MECHANISMS)
def test_outputs_of_the_study(mechanism):
    "Every mechanism on every table's public range, far ends of epsilon included, with a prior that has one value only."
    for public in RANGES.values():
        point = np.eye(len(public.grid))[1]
        for e in (0.25, 8.0, 60.0, math.inf):
            m = build(mechanism, public, e, prior=point)
            assert m.certify().holds and np.isfinite(m.privatize(public.grid, seed=0)).all()


# one row of a table


def test_a_new_mechanism_and_a_new_learner_are_found_everywhere(tmp_path, monkeypatch):
    "A row of each table is all that is needed to run, keep, read, tabulate and draw them."
    toy = NumericMechanism("toy", "Toy", numeric.randomized_response)
    monkeypatch.setitem(NUMERIC_MECHANISMS, "toy", toy)
    monkeypatch.setitem(
        REGRESSION_LEARNERS, "median", lambda task: Fitted(lambda z: np.full(len(z), np.median(task.y)), {})
    )
    specs = regression_grid("diabetes", [1.0], 2, learners=["median"])
    assert {(s.mechanism, s.labels) for s in specs} >= {("toy", "raw"), ("toy", "debiased")}
    chosen = [s for s in specs if s.mechanism in ("toy", "rr", "laplace")]
    save(run_regression(chosen), tmp_path / "toy.json")
    assert [r.spec for r in load(tmp_path / "toy.json")] == chosen
    frame = read_records(tmp_path)
    assert {"Toy", "Toy, debiased"} <= set(frame.name)
    assert {"Toy", "Toy, debiased"} <= set(error_table(frame).index)
    legend = plot_regression(frame, "diabetes", "median").axes[1].get_legend()
    assert "Toy" in [text.get_text() for text in legend.get_texts()]


# the committed records


def test_committed_records_come_from_this_code():
    "A sample of results/regression, made again; sums may be rounded otherwise on another machine, draws may not."
    files = (ROOT / "results" / "regression" / "records").glob("diabetes-*.json")
    found = {r.spec: r for path in files for r in load(path)}
    assert len(found) == 12 * 2 * 2 * 9 * 10 + 50
    sample = regression_grid("diabetes", [0.25, 2.0, 8.0], [7], mechanisms=EVERYTHING, learners=["linear"])
    specs = [s for s in sample if s in found]
    assert len(specs) == 12 * 2 * 3 + 3
    for new in run_regression(specs):
        old = found[new.spec]
        assert new.label_mse == pytest.approx(old.label_mse, rel=1e-6)
        assert new.mse == pytest.approx(old.mse, rel=1e-4)
        for name in ("prior", "penalty"):
            assert new.details.get(name) == old.details.get(name)


# the command line


@pytest.mark.skipif(not find_spec("snakemake"), reason="Snakemake needs Python 3.11")
def test_reproduce(tmp_path):
    out = tmp_path / "out"
    program = str(Path(sys.executable).parent / "blockrr")
    command = [program, "reproduce", "--profile", "regression_smoke", "--output", str(out)]
    how = {
        "env": {**os.environ, "MPLBACKEND": "agg"},
        "capture_output": True,
        "text": True,
        "timeout": 600,
    }
    done = subprocess.run(command, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    files = {p.name: load(p, "regression") for p in sorted((out / "records").glob("*.json"))}
    assert list(files) == [
        "diabetes-eps1.0.json",
        "diabetes-eps4.0.json",
        "diabetes-references.json",
    ]
    specs = regression_grid("diabetes", [4.0], 2, mechanisms=["rr", "rr_on_bins", "laplace", "unbiased"])
    assert files["diabetes-eps4.0.json"] == run_regression(specs)
    assert "Regression with private labels" in (out / "report.html").read_text()
    head = json.loads((out / "records" / "diabetes-eps4.0.json").read_text())["provenance"]
    assert head["data_sha256"] == {"diabetes": tabular("diabetes").sha256} and head["threads"]["OMP_NUM_THREADS"] == "1"
    before = {p: p.stat().st_mtime_ns for p in (out / "records").glob("*.json")}
    (out / "records" / "diabetes-eps1.0.json").write_text("{")
    done = subprocess.run(command, **how)
    assert done.returncode == 0 and "made anew" in done.stderr, done.stderr
    assert load(out / "records" / "diabetes-eps1.0.json") == files["diabetes-eps1.0.json"]
    kept = out / "records" / "diabetes-eps4.0.json"
    assert kept.stat().st_mtime_ns == before[kept]

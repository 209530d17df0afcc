"""The regression study: records as functions of their specs, what true labels may reach, public ranges, files, bad input, the command line."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import blockrr as br
from blockrr.learning.tabular import (
    CRITEO,
    RANGES,
    TABLES,
    PublicRange,
    TabularData,
    california,
    criteo,
    hold_out,
    tabular,
)
from blockrr.privacy import regression as numeric
from blockrr.privacy.bins import risk
from blockrr.study.regression import (
    REFERENCES,
    REGRESSION_MECHANISMS,
    WITH_PRIOR,
    RegressionSpec,
    build,
    load_regression,
    poisson_fit,
    regression_grid,
    release_numbers,
    run_on,
    run_regression,
    save_regression,
    treatments,
)

ROOT = Path(__file__).resolve().parent.parent
VALUES, PRIOR = [0, 1, 2, 4, 8], [0.4, 0.3, 0.15, 0.1, 0.05]


def counts(seed=0, n=400, name="randhie"):
    "A made-up table of counts with signal; some targets lie outside the public range."
    r = np.random.default_rng(seed)
    x = r.normal(size=(n, 3))
    y = r.poisson(np.exp(0.8 + x @ [0.7, -0.4, 0])).astype(float)
    y[:3] = 90
    return TabularData(name, x, ("a", "b", "c"), y, PublicRange(0, 8, 1, "", ""), hold_out(np.arange(n)), counts=True)


SPECS = regression_grid("randhie", [2.0], 2, REGRESSION_MECHANISMS + REFERENCES)
DATA = counts()


@pytest.fixture(scope="module")
def records():
    return run_on(DATA, SPECS)


# a record is a function of its spec


def test_same_spec_same_record(records):
    assert run_on(DATA, SPECS[::-1])[::-1] == records  # another order, a second time
    for s, r in list(zip(SPECS, records))[::17]:
        assert run_on(DATA, [s]) == [r]  # alone


def test_in_another_process(tmp_path):
    spec = RegressionSpec("diabetes", "rr_on_bins", 2, 3, "boosting", "debiased")
    code = f"from blockrr.study.regression import *; print(json.dumps(run_regression([RegressionSpec(**{spec.to_dict()!r})])[0].to_dict()))"
    done = subprocess.run(
        [sys.executable, "-c", "import json\n" + code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "5"},
    )
    assert json.loads(done.stdout) == run_regression([spec])[0].to_dict()


def test_learners_and_treatments_share_one_release(records):
    for m in REGRESSION_MECHANISMS:
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


@pytest.mark.parametrize("mechanism", REGRESSION_MECHANISMS)
def test_public_range_is_never_inferred(mechanism):
    "The domain does not depend on which labels occur: a table with one value has the mechanism's domain of any other."
    public = RANGES["randhie"]
    for target in (np.zeros(300), np.full(300, 7.0), np.linspace(-50, 500, 300)):
        out = release_numbers(RegressionSpec("randhie", mechanism, 1.0), target, public)
        m = out.mechanism
        if hasattr(m, "values"):
            assert m.values.tolist() == public.grid.tolist()
        else:
            assert public.low <= m.low < m.high <= public.high and (
                mechanism != "square_wave" or (m.low, m.high) == (public.low, public.high)
            )
        if mechanism == "rr_on_bins":
            assert sum(m.bins, ()) == tuple(public.grid)
        assert out.details["certified"] <= 1
    if mechanism not in WITH_PRIOR:
        assert m is release_numbers(RegressionSpec("randhie", mechanism, 1.0), np.zeros(9), public).mechanism


def test_outside_labels_are_clipped_one_by_one():
    public = RANGES["randhie"]
    for m in REGRESSION_MECHANISMS:
        a = release_numbers(RegressionSpec("randhie", m, 3.0), np.r_[np.full(50, 24.0), np.zeros(50)], public)
        b = release_numbers(RegressionSpec("randhie", m, 3.0), np.r_[np.full(50, 77.0), np.full(50, -5.0)], public)
        assert (a.values == b.values).all()


# models


def test_unbiased_labels_keep_the_regression_function():
    "Poisson regression on debiased numbers finds the coefficients that true labels have; on raw numbers it does not."
    r = np.random.default_rng(5)
    x = r.normal(size=(60_000, 2))
    y = np.minimum(r.poisson(np.exp(0.3 + x @ [0.5, -0.3])), 8.0)
    public = PublicRange(0, 8, 1, "", "")
    true = poisson_fit(x, y, 1e-6)
    for m, t in (
        ("rr", "debiased"),
        ("exponential", "debiased"),
        ("square_wave", "debiased"),
        ("laplace", "raw"),
        ("unbiased", "raw"),
    ):
        out = release_numbers(RegressionSpec("randhie", m, 3.0), y, public)
        noise = math.sqrt(
            np.var(out.treated(t) - y[out.rows]) / len(out.rows) / np.exp(0.3)
        )  # of a coefficient, roughly
        assert abs(poisson_fit(x[out.rows], out.treated(t), 1e-6) - true).max() < 6 * noise + 0.02, m
    raw = release_numbers(RegressionSpec("randhie", "rr", 3.0), y, public)
    assert abs(poisson_fit(x, raw.values, 1e-6) - true).max() > 0.1


@pytest.mark.parametrize("noise", [0, 3, 30, 1000])
def test_poisson_fit_is_the_minimum(noise):
    r = np.random.default_rng(noise)
    x = r.normal(size=(500, 4))
    y = r.poisson(2, 500) + r.laplace(0, noise, 500) + noise / 4
    for penalty in (1e-3, 1.0, 1e3):
        w = poisson_fit(x, y, penalty)
        if y.mean() <= 0.1:
            continue
        X = np.column_stack([np.ones(500), x])
        slope = X.T @ (np.exp(X @ w) - y) / 500 + np.r_[0, w[1:] * penalty]
        assert np.isfinite(w).all() and abs(slope).max() < 1e-4 * (1 + abs(y).mean())


def test_predictions_are_public_numbers(records):
    for r in records:
        assert 0 <= r.mse < math.inf and 0 <= r.deviance < math.inf


# files


def test_a_killed_writer_leaves_whole_files(tmp_path):
    path = tmp_path / "records" / "a.json"
    code = (
        "import sys; from pathlib import Path; from blockrr.study.regression import *\n"
        "r = [RegressionRecord(RegressionSpec('diabetes', 'rr', 1, s), 1., None, 2., {}) for s in range(3000)]\n"
        "for i in range(10**6): save_regression(r[:1000 + i % 2000], sys.argv[1]); print(i, flush=True)"
    )
    for pause in (0, 0.01, 0.03):
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()  # one file is complete
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(load_regression(path)) >= 1000


def test_saved_and_loaded(tmp_path, records):
    path = save_regression(records, tmp_path / "x.json", {"seconds": 1})
    assert load_regression(path) == records and path.stat().st_size < 700 * len(records)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="not a file of regression records"):
        load_regression(path)
    from blockrr.study.experiment import load

    save_regression(records, path)
    with pytest.raises(ValueError, match="not a file of records"):
        load(path)  # the two studies' files are not confused


@pytest.mark.parametrize(
    "bad, word",
    [
        ("1,2,3\n", "line 1 has 3 fields"),
        ("a," * 8 + "1\n", "not a number"),
        ("", "needs 20,640 lines, got 0"),
        ("\0\x01PNG", "line 1"),
    ],
)
def test_bad_california(tmp_path, bad, word):
    path = tmp_path / "cal_housing.data"
    path.write_text(bad)
    with pytest.raises(ValueError, match=word):
        california(path)
    with pytest.raises(ValueError, match=word):
        tabular("california", tmp_path)


def test_bad_archive(tmp_path):
    path = tmp_path / "cal_housing.tgz"
    path.write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="has SHA-256"):
        california(path)


@pytest.mark.parametrize(
    "k, value, word",
    [
        (0, "2", "field 1"),
        (1, "-1", "field 2"),
        (1, "secret", "fields 2, 5 and 6"),
        (5, "", "fields 2, 5 and 6"),
        (22, "u\tv", "24 fields"),
    ],
)
def test_bad_criteo(tmp_path, k, value, word):
    path = tmp_path / "log.gz"
    line = ["1", "12.5", "60", "1598891820", "3", "19.9", *["AB12"] * 17]
    assert len(line) == len(CRITEO)
    rows = [line[:-1] + [f"user{i}"] for i in range(40)]
    with gzip.open(path, "wt") as f:
        f.write("\n".join("\t".join(r) for r in rows) + "\n")
    assert len(criteo(path).target) == 40
    rows[20][k] = value
    with gzip.open(path, "wt") as f:
        f.write("\n".join("\t".join(r) for r in rows) + "\n")
    with pytest.raises(ValueError, match=f"line 21.*{word}") as error:
        criteo(path)
    assert "secret" not in str(error.value)
    assert len(criteo(path, rows=20).target) == 20  # what comes before it is fine


def test_truncated_gzip(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"1\t2\n" * 1000)[:20])
    with pytest.raises((ValueError, EOFError, OSError)):
        criteo(path)


def test_ranges_are_constants():
    assert set(RANGES) == set(TABLES)
    for name, r in RANGES.items():
        assert r.reason and r.unit and len(r.grid) <= 64, name  # 64: the linear program


# bad input of the mechanisms


MAKERS = {
    "rr_on_bins": lambda v, p, e: numeric.rr_on_bins(v, p, e),
    "unbiased": lambda v, p, e: numeric.optimal_unbiased(v, p, e),
    "laplace": lambda v, p, e: numeric.laplace(v, e),
    "discrete_laplace": lambda v, p, e: numeric.discrete_laplace(v, e),
    "gaussian": lambda v, p, e: numeric.gaussian(v, e, 1e-5),
    "staircase": lambda v, p, e: numeric.staircase(v, e),
    "exponential": lambda v, p, e: numeric.exponential(v, e),
    "square_wave": lambda v, p, e: numeric.square_wave(v, e),
    "rp": lambda v, p, e: numeric.rp_with_prior(v, p[1:], e),
}
quiet = pytest.mark.filterwarnings("ignore:.*carries no information")


@quiet
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "values, word",
    [
        ([0, 2, 1, 4, 8], "strictly"),
        ([0, 1, 1, 4, 8], "strictly"),
        ([0, 1, math.nan, 4, 8], "finite"),
        ([0, 1, 2, 4, math.inf], "finite"),
        ([3], "at least 2"),
        ([], "at least 2"),
    ],
)
def test_bad_grid(name, values, word):
    with pytest.raises(ValueError, match=f"values: .*{word}"):
        MAKERS[name](values, PRIOR, 1.0)


@quiet
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("epsilon", [-1, math.nan, -math.inf, "1", None, True])
def test_bad_epsilon(name, epsilon):
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        MAKERS[name](VALUES, PRIOR, epsilon)


@quiet
@pytest.mark.parametrize("name", MAKERS)
def test_limits_of_epsilon(name):
    if name in ("laplace", "discrete_laplace", "staircase", "unbiased"):  # no scale, or no unbiased mechanism, at 0
        with pytest.raises(ValueError, match="epsilon"):
            MAKERS[name](VALUES, PRIOR, 0)
    else:
        m = MAKERS[name](VALUES, PRIOR, 0)
        c = m.certify()
        assert c.holds and (name == "gaussian" or c.epsilon == 0)
        if name in ("rr_on_bins", "exponential"):
            assert np.ptp(m.transition, axis=0).max() < 1e-15
    for e in (700.0, 1e6, math.inf):
        m = MAKERS[name](VALUES, PRIOR, e)
        assert m.certify().holds
        noise = (
            5 * (4 if name == "gaussian" else 8 / e) * math.isfinite(e)
        )  # integers do not resolve a Gaussian beyond epsilon 25
        assert abs(np.asarray(m.privatize(VALUES, seed=1)) - VALUES).max() < 0.02 + noise


@quiet
@pytest.mark.parametrize("prior", [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0.5, 0, 0, 0, 0.5], [0, 0.2, 0.3, 0.5, 0]])
@pytest.mark.parametrize("name", ["rr_on_bins", "unbiased", "rp"])
@pytest.mark.parametrize("epsilon", [0.01, 1, 8, 50])
def test_zero_mass_and_point_mass(name, prior, epsilon):
    m = MAKERS[name](VALUES, prior if name != "rp" else [0, *prior[:4]] if any(prior[:4]) else PRIOR, epsilon)
    assert m.certify().holds
    out = m.privatize([*VALUES, -7, 99], seed=1)
    assert np.isfinite(out).all()
    if name == "rr_on_bins" and max(prior) == 1:
        assert risk(m, prior) < 1e-20  # the point itself, at any epsilon
    if name == "unbiased":
        assert abs(m.mean() - VALUES).max() < 1e-5 * np.ptp(m.points)


@pytest.mark.parametrize("prior", [[0] * 5, [-1, 1, 1, 1, 1], [math.nan, 1, 1, 1, 1], [1, 1], "abcde"])
def test_bad_prior(prior):
    for name in ("rr_on_bins", "unbiased"):
        with pytest.raises((ValueError, TypeError), match="prior"):
            MAKERS[name](VALUES, prior, 1.0)


def test_poisson_and_narrow_grids():
    with pytest.raises(ValueError, match="Poisson loss needs labels >= 0, got -1"):
        numeric.rr_on_bins([-1, 0, 2], [1, 1, 1], 1, "poisson")
    with pytest.raises(ValueError, match="Poisson loss"):
        numeric.guide([-1, 0, 2], [1, 1, 1], 1, "poisson")
    for grid in (VALUES, np.linspace(-4, 12, 30)):
        with pytest.raises(ValueError, match=r"grid: must reach range / \(e\*\*epsilon - 1\) = 4.65"):
            numeric.optimal_unbiased(VALUES, PRIOR, 1, grid)
    assert numeric.optimal_unbiased(VALUES, PRIOR, 1, np.linspace(-9, 17, 60)).certify().holds
    with pytest.raises(ValueError, match="strictly"):
        numeric.optimal_unbiased(VALUES, PRIOR, 1, [20, 0, -20])


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("column", [[math.nan], [None], ["3"], [math.inf], [1j]])
def test_bad_labels_release_nothing(name, column):
    with pytest.raises((ValueError, TypeError), match="row 2") as error:
        MAKERS[name](VALUES, PRIOR, 2.0).privatize([1, 2, *column])
    assert "nothing was released" in str(error.value)


@pytest.mark.parametrize("mechanism", REGRESSION_MECHANISMS)
def test_outputs_of_the_study(mechanism):
    "Every mechanism on every table's public range, far ends of epsilon included, with a prior that has one value only."
    for public in RANGES.values():
        point = np.eye(len(public.grid))[1]
        for e in (0.25, 8.0, 60.0, math.inf):
            m = build(mechanism, public, e, point)
            assert m.certify().holds and np.isfinite(m.privatize(public.grid, seed=0)).all()


# the committed records


def test_committed_records_come_from_this_code():
    "A sample of results/regression, made again; sums may be rounded otherwise on another machine, draws may not."
    found = {
        r.spec: r
        for p in (ROOT / "results" / "regression" / "records").glob("diabetes-*.json")
        for r in load_regression(p)
    }
    assert len(found) == 12 * 2 * 2 * 9 * 10 + 50
    specs = [
        s
        for s in regression_grid("diabetes", [0.25, 2.0, 8.0], [7], REGRESSION_MECHANISMS + REFERENCES, ["linear"])
        if s in found
    ]
    assert len(specs) == 12 * 2 * 3 + 3
    for new in run_regression(specs):
        old = found[new.spec]
        assert new.label_mse == pytest.approx(old.label_mse, rel=1e-6) and new.mse == pytest.approx(old.mse, rel=1e-4)
        assert new.details.get("prior") == old.details.get("prior") and new.details.get("penalty") == old.details.get(
            "penalty"
        )


# the interval mechanism in pieces


def test_interval_in_pieces():
    m = br.rp_with_prior([0, 1, 2, 5], [1, 5, 1], 1.0)
    y = np.random.default_rng(0).uniform(-1, 7, 200_000)
    whole = m.privatize(y, seed=4)
    pieces = np.split(y, np.sort(np.random.default_rng(1).integers(0, len(y), 20)))
    assert (np.concatenate(list(m.privatize_chunks(pieces, seed=4, threads=2))) == whole).all() and (
        m.privatize(y, seed=4, threads=5) == whole
    ).all()
    assert (m.privatize(y[:50]) != m.privatize(y[:50])).any()
    secure = np.concatenate(list(m.privatize_chunks(pieces, threads=2)))
    assert abs(secure.mean() - m.mean(y).mean()) < 6 * math.sqrt(m.variance(y).mean() / len(y))


# the command line


@pytest.mark.skipif(not find_spec("snakemake"), reason="Snakemake needs Python 3.11")
def test_reproduce(tmp_path):
    out = tmp_path / "out"
    command = [
        str(Path(sys.executable).parent / "blockrr"),
        "reproduce",
        "--profile",
        "regression_smoke",
        "--output",
        str(out),
    ]
    run = lambda: subprocess.run(
        command, env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True, timeout=600
    )
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    files = {p.name: load_regression(p) for p in sorted((out / "records").glob("*.json"))}
    assert list(files) == ["diabetes-eps1.0.json", "diabetes-eps4.0.json", "diabetes-references.json"]
    assert files["diabetes-eps4.0.json"] == run_regression(
        regression_grid("diabetes", [4.0], 2, ["rr", "rr_on_bins", "laplace", "unbiased"])
    )
    assert "Regression with private labels" in (out / "report.html").read_text()
    head = json.loads((out / "records" / "diabetes-eps4.0.json").read_text())["provenance"]
    assert head["data_sha256"] == {"diabetes": tabular("diabetes").sha256} and head["threads"]["OMP_NUM_THREADS"] == "1"
    before = {p: p.stat().st_mtime_ns for p in (out / "records").glob("*.json")}
    (out / "records" / "diabetes-eps1.0.json").write_text("{")
    done = run()
    assert done.returncode == 0 and "made anew" in done.stderr, done.stderr
    assert load_regression(out / "records" / "diabetes-eps1.0.json") == files["diabetes-eps1.0.json"]
    kept = out / "records" / "diabetes-eps4.0.json"
    assert kept.stat().st_mtime_ns == before[kept]

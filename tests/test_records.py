"""Record files: whole or not at all, one format for two studies, foreign and damaged files named."""

import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blockrr.study import experiment, records
from blockrr.study.records import load, read_file, save
from blockrr.study.regression import RegressionRecord, RegressionSpec
from blockrr.study.spec import Spec

ROOT = Path(__file__).resolve().parent.parent
RUN = RegressionRecord(RegressionSpec("diabetes", "rr", 1), 1.0, None, 2.0, {})
ACCURACY = experiment.Record(Spec("digits", "rr", 1.0), 91.5, (90.0, 93.0), {})


def test_a_killed_writer_leaves_whole_files(tmp_path):
    path = tmp_path / "records" / "a.json"
    code = (
        "import sys; from blockrr.study.records import save; from blockrr.study.regression import *\n"
        "r = [RegressionRecord(RegressionSpec('diabetes', 'rr', 1, s), 1., None, 2., {}) for s in range(3000)]\n"
        "for i in range(10**6): save(r[:1000 + i % 2000], sys.argv[1]); print(i, flush=True)"
    )
    for pause in (0, 0.01, 0.03):
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()  # one file is complete
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(load(path)) >= 1000


@pytest.mark.parametrize("record, study", [(RUN, "regression"), (ACCURACY, "accuracy")])
def test_saved_and_loaded(tmp_path, record, study):
    path = save([record] * 3, tmp_path / "deep" / "x.json", {"seconds": 1})
    assert load(path) == load(path, study) == [record] * 3
    assert read_file(path)[:2] == (study, {"seconds": 1})
    before = path.read_bytes()
    save([record] * 3, path, {"seconds": 1})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
    other = {"regression": "accuracy", "accuracy": "regression"}[study]
    with pytest.raises(ValueError, match=f"x.json: needs records of the study {other}, got '{study}'"):
        load(path, other)
    path.write_bytes(before[:-20])
    with pytest.raises(ValueError, match="x.json: needs a record file, got no readable JSON"):
        load(path)


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = save([RUN], tmp_path / "x.json")
    before = path.read_bytes()
    for bad in ([RegressionRecord(RUN.spec, 1.0, None, 2.0, {"x": math.nan})], [RUN, ACCURACY]):
        with pytest.raises(ValueError):
            save(bad, path)
    assert path.read_bytes() == before
    assert load(save([], path)) == []


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "got no readable JSON"),
        ("{}", "without a list 'records'"),
        ("[]", "without a list 'records'"),
        ('{"schema": 2, "study": "regression", "records": []}', "got schema 2"),
        ('{"records": []}', "got schema None"),
        ('{"schema": 1, "study": "weather", "records": []}', "got 'weather'"),
        (
            '{"schema": 1, "study": "regression", "records": [{"spec": {}}]}',
            "needs RegressionRecords, got others",
        ),
        (
            '{"schema": 1, "records": [{"spec": {"dataset": "digits"}}]}',
            "needs Records, got others",
        ),
    ],
)
def test_foreign_files_are_named(tmp_path, text, word):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"a.json: .*{word}"):
        load(path)


@pytest.mark.parametrize("profile", ["laptop", "learners", "optimal", "regression", "sets"])
def test_a_committed_file_is_written_again_byte_by_byte(tmp_path, profile):
    "The format of files on disk: keys, their order, indentation."
    for path in sorted((ROOT / "results" / profile / "records").glob("*.json"))[::7]:
        again = save(load(path), tmp_path / "again.json", read_file(path).provenance)
        assert again.read_bytes() == path.read_bytes(), path.name


def test_provenance():
    "What a measurement comes from; packages that matter too come last."
    about = records.provenance(1.234, {"digits": "abc"}, ["scikit-learn"])
    assert about["wall_seconds"] == 1.23 and about["data_sha256"] == {"digits": "abc"}
    assert list(about["versions"])[-1] == "scikit-learn" and about["versions"]["numpy"]


@pytest.mark.parametrize("name", ["SCHEMA", "provenance", "save", "load"])
def test_names_that_were_in_experiment(name):
    with pytest.warns(DeprecationWarning, match=f"use blockrr.study.records.{name}"):
        assert getattr(experiment, name) is getattr(records, name)

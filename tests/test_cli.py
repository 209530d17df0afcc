"""The command line as a user meets it."""
import csv
import subprocess
import sys
from pathlib import Path

import pytest

BLOCKRR = [str(Path(sys.executable).parent / "blockrr")]


def run(*args, **kwargs): return subprocess.run([*BLOCKRR, *map(str, args)], capture_output=True, text=True, **kwargs)


@pytest.fixture
def survey(tmp_path):
    path = tmp_path / "survey.csv"
    with open(path, "w", newline="") as f: csv.writer(f).writerows([["name", "answer"], *([f"a,{i}", ["yes", "no"][i % 3 == 0]] for i in range(200))])
    return path


def test_version_and_help():
    assert run("--version").stdout.startswith("blockrr 0.")
    assert "reproduce" in run("--help").stdout
    assert run().returncode == 2


def test_release(survey, tmp_path):
    target = tmp_path / "out.csv"
    args = ("release", survey, "--output", target, "--column", "answer", "--domain", "yes,no", "--epsilon", 1)
    done = run(*args)
    assert done.returncode == 0 and "label DP with epsilon 1 certified" in done.stdout and "secure" in done.stdout
    rows = list(csv.reader(open(target, newline="")))
    original = list(csv.reader(open(survey, newline="")))[1:]
    assert rows[0] == ["row", "name", "answer"] and len(rows) == 1 + 198
    assert all(original[int(r[0])][0] == r[1] and r[2] in ("yes", "no") for r in rows[1:])
    again = run(*args)
    assert again.returncode and "exists already" in again.stderr


@pytest.mark.parametrize("change, word", [({"--domain": "yes,maybe"}, "row"), ({"--epsilon": "-1"}, "epsilon"), ({"--column": "nothing"}, "--column"),
                                          ({"--method": "best"}, "method"), ({"--sigma": "0"}, "sigma"), ({"--l": "-1"}, "l: needs"),
                                          ({"--seed": "-1"}, "seed"), ({"--epsilon": "nan"}, "epsilon"), ({"--domain": "yes"}, "at least 2"),
                                          ({"--prior-fraction": "1"}, "prior_fraction"), ({"--floor": "0.5"}, "floor")])
def test_bad_input_writes_nothing(survey, tmp_path, change, word):
    options = {"--output": str(tmp_path / "out.csv"), "--column": "answer", "--domain": "yes,no", "--epsilon": "1", **change}
    done = run("release", survey, *(f"{k}={v}" for k, v in options.items()))
    assert done.returncode and word in done.stderr and "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["survey.csv"]


def test_no_field_of_a_file_without_a_header_is_shown(tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("alice,HIV+\nbob,neg\n")
    done = run("release", path, "--output", tmp_path / "o.csv", "--column", "y", "--domain", "HIV+,neg", "--epsilon", 1)
    assert done.returncode and "--column" in done.stderr and "alice" not in done.stderr and "HIV+" not in done.stderr
    path.write_bytes("n,y\ncaf\u00e9,neg\n".encode("latin-1"))
    done = run("release", path, "--output", tmp_path / "o.csv", "--column", "y", "--domain", "HIV+,neg", "--epsilon", 1)
    assert done.returncode and "not UTF-8" in done.stderr and "0x" not in done.stderr


@pytest.mark.parametrize("target", ["missing/o.csv", "dangling.csv"])
def test_a_place_that_cannot_be_written_costs_nothing(survey, tmp_path, target):
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere" / "x")
    args = ("release", survey, "--column", "answer", "--domain", "yes,no", "--epsilon", 1, "--ledger", tmp_path / "l.db", "--dataset-id", "d", "--budget", 1)
    done = run(*args, "--output", tmp_path / target)
    assert done.returncode and "--output" in done.stderr
    assert run(*args, "--output", tmp_path / "good.csv").returncode == 0  # the whole budget is still there
    done = run(*args, "--output", tmp_path / "more.csv")
    assert done.returncode and "budget" in done.stderr and not (tmp_path / "more.csv").exists()


def test_spreadsheet_files(tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes("\ufeffy,row\r\nyes,1\r\nno,2\r\n\r\n".encode())
    (tmp_path / "domain.txt").write_bytes("\ufeffyes\r\nno\r\n".encode())
    done = run("release", path, "--output", tmp_path / "o.csv", "--column", "y", "--domain", f"@{tmp_path / 'domain.txt'}", "--epsilon", "inf", "--method", "rr")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.csv").read_text() == "row_number,y,row\n0,yes,1\n1,no,2\n"
    assert run("release", path, "--output", tmp_path / "p.csv", "--column", "y", "--domain", "yes,,no", "--epsilon", 1).returncode
    assert run("release", path, "--output", tmp_path / "q.csv", "--column", "y", "--domain", "yes, no", "--epsilon", "inf", "--method", "rr").returncode == 0


def test_ragged_file(tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text("a,b\n1,yes\n2\n")
    done = run("release", path, "--output", tmp_path / "o.csv", "--column", "b", "--domain", "yes,no", "--epsilon", 1)
    assert done.returncode and "data row 1" in done.stderr


def test_domain_from_file(survey, tmp_path):
    (tmp_path / "domain.txt").write_text("yes\nno\n")
    done = run("release", survey, "--output", tmp_path / "o.csv", "--column", "answer", "--domain", f"@{tmp_path / 'domain.txt'}", "--epsilon", 2, "--method", "rr", "--seed", 4)
    assert done.returncode == 0 and "NOT private" in done.stdout


def test_unknown_profile():
    done = run("reproduce", "--profile", "desktop")
    assert done.returncode and "smoke" in done.stderr

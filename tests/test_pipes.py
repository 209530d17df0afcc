"Standard input and output, real processes and real pipes."

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import blockrr as br

BLOCKRR = [str(Path(sys.executable).parent / "blockrr")]
TEXT = "id;answer\n" + "".join(f"{i};{'yes' if i % 3 else 'no'}\n" for i in range(3000))
ARGS = ("--column", "answer", "--domain", "yes,no", "--epsilon", "1", "--method", "rr")


def test_through_pipes(tmp_path):
    command = [*BLOCKRR, "release", "-", "--output", "-", "--companion", "c.json", *ARGS]
    done = subprocess.run(command, input=TEXT, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "id;answer" and len(lines) == 3001
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]
    (tmp_path / "c.csv").write_text(done.stdout)
    (tmp_path / "c.json").rename(tmp_path / "c.csv.json")
    assert list(br.load_release(tmp_path / "c.csv").labels) == [line.split(";")[1] for line in lines[1:]]


@pytest.mark.parametrize("data", [b"", b"x", b"\x1f\x8bnot gz", b"PAR1", b"PAnama,answer\n1,yes\n"])
def test_odd_input(tmp_path, data):
    command = [*BLOCKRR, "release", "-", "--output", "o.csv", *ARGS]
    done = subprocess.run(command, input=data, capture_output=True, cwd=tmp_path)
    if data.startswith(b"PAn"):
        assert done.returncode == 0 and len(list(tmp_path.iterdir())) == 2
    else:
        assert done.returncode and b"Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_a_reader_that_closes_the_pipe(tmp_path):
    "The release is complete and stays: the error says where."
    source = tmp_path / "s.csv"
    source.write_text(TEXT + "".join(f"{i};yes\n" for i in range(200_000)))
    ledger = ("--ledger", "l.db", "--dataset-id", "d", "--budget", "1")
    command = [*BLOCKRR, "release", "s.csv", "--output", "-", "--companion", "c.json", *ARGS, *ledger]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(write)
    assert done.returncode and "release is complete and its epsilon is spent" in done.stderr
    kept = list(tmp_path.glob(".blockrr-*/released.csv"))
    assert len(kept) == 1 and kept[0].parent.stat().st_mode & 0o077 == 0
    assert br.load_release(kept[0]).statement.rows == 203_000 and br.Ledger(tmp_path / "l.db").account("d").spent == 1


@pytest.mark.parametrize(
    "args, word",
    [
        (("-", "--output", "-"), "--companion: needs a file"),
        (("s.csv", "--output", "o.csv", "--companion", "c.json"), "--companion: needs --output -"),
        (("s.csv", "--output", "-", "--companion", "s.csv"), "exists already"),
        (("s.csv", "--output", "-", "--companion", "no/c.json"), "does not exist"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path, args, word):
    (tmp_path / "s.csv").write_text(TEXT)
    done = subprocess.run([*BLOCKRR, "release", *args, *ARGS], input="", capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode and word in done.stderr and [p.name for p in tmp_path.iterdir()] == ["s.csv"]


def test_an_error_leaves_nothing(tmp_path):
    command = [*BLOCKRR, "release", "-", "--output", "-", "--companion", "c.json", *ARGS]
    done = subprocess.run(command, input=TEXT + "1;maybe\n", capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode and "row 3000" in done.stderr and "maybe" not in done.stderr and not done.stdout
    assert not list(tmp_path.iterdir())


def test_several_columns(tmp_path):
    (tmp_path / "s.csv").write_text("a,b\n" + "yes,x\nno,y\n" * 300)
    options = (
        "--columns",
        "a,b",
        "--domain",
        "yes,no;x,y,z",
        "--epsilon",
        "1",
        "--prior-fraction",
        "0.2",
        "--method",
        "block_rr",
    )
    ledger = ("--ledger", "l.db", "--dataset-id", "d", "--budget", "1")
    command = [*BLOCKRR, "release", "s.csv", "--output", "o.csv", *options, *ledger]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "wrote o.csv" in done.stdout, done.stderr
    facts = json.loads((tmp_path / "o.csv.json").read_text())
    assert facts["epsilon"] == 1 and facts["columns"] == ["a", "b"]
    assert [d.epsilon for d in br.Ledger(tmp_path / "l.db").debits("d")] == [0.5, 0.5]
    one, two = (br.load_release(tmp_path / "o.csv", name) for name in "ab")
    assert (one.index == two.index).all() and len(one.index) < 480 and one.certificate.epsilon <= 0.5
    assert [(s.rows, s.rows_prior, s.rows_released) for s in (one.statement, two.statement)] == [
        (600, 120, len(one.index)),
        (600, 120, len(one.index)),
    ]
    with pytest.raises(ValueError, match="^column: needs one of the released columns 'a', 'b', got none"):
        br.load_release(tmp_path / "o.csv")
    for change, word in (
        (("--columns", "a,c"), "'c' names 0"),
        (("--columns", "a,a"), "--columns: needs"),
        (("--column", "a"), "need one of them"),
        (("--domain", "yes,no;x,y;z,w"), "--domain: needs one domain"),
        (("--epsilon", "1.5"), "budget"),
    ):
        again = [*command[:4], "p.csv", *command[5:], *change]
        done = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode and word in done.stderr and not (tmp_path / "p.csv").exists(), done.stderr
    assert len(br.Ledger(tmp_path / "l.db").debits("d")) == 2


def test_missing_and_row_numbers(tmp_path):
    (tmp_path / "s.csv").write_text("id\tanswer\n1\tyes\n2\t\n")
    command = [*BLOCKRR, "release", "s.csv", "--output", "o.tsv", "--column", "answer", "--domain", "yes,none"]
    command += ["--epsilon", "inf", "--method", "rr"]
    for more, word in (
        (("--missing", "maybe"), "--missing: needs"),
        ((), "missing label"),
        (("--delimiter", "ab"), "--d"),
    ):
        done = subprocess.run([*command, *more], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode and word in done.stderr
    done = subprocess.run(
        [*command, "--missing", "none", "--row-numbers"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0 and (tmp_path / "o.tsv").read_text() == "row\tid\tanswer\n0\t1\tyes\n1\t2\tnone\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_stream_is_refused_before_anything_is_spent(tmp_path, closed):
    (tmp_path / "s.csv").write_text(TEXT)
    place = "- --output o.csv" if closed == "<&-" else "s.csv --output - --companion c.json"
    ledger = "--ledger l.db --dataset-id d --budget 1"
    command = f"{BLOCKRR[0]} release {place} {' '.join(ARGS)} {ledger} {closed}"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode and "needs an open standard" in done.stderr and "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]


def test_true_labels_do_not_stay(tmp_path):
    "Neither where the reader closes the pipe, nor unnoticed after a kill."
    command = [*BLOCKRR, "release", "-", "--output", "-", "--companion", "c.json", *ARGS]
    read, write = os.pipe()
    os.close(read)
    text = TEXT + "".join(f"{i};yes\n" for i in range(200_000))
    done = subprocess.run(command, input=text, stdout=write, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(write)
    assert done.returncode and "release is complete" in done.stderr
    (kept,) = tmp_path.glob(".blockrr-*")
    assert sorted(p.name for p in kept.iterdir()) == ["released.csv", "released.csv.json"]
    slow = [*BLOCKRR, "release", "-", "--output", "o.csv", *ARGS]
    killed = subprocess.Popen(slow, stdin=subprocess.PIPE, cwd=tmp_path)
    killed.stdin.write(b"id;answer\n1;yes\n")
    killed.stdin.flush()
    for _ in range(600):
        if any(tmp_path.glob(".blockrr-*/source.*")):
            break
        time.sleep(0.05)
    other = [*BLOCKRR, "release", "-", "--output", "p.csv", *ARGS]
    done = subprocess.run(other, input=TEXT, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "was killed" not in done.stderr  # it still runs
    killed.kill()
    killed.wait()
    other[4] = "q.csv"
    done = subprocess.run(other, input=TEXT, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "holds true labels: remove it" in done.stderr


@pytest.mark.parametrize(
    "change, word",
    [
        (("--domain", "yes,no;x,y"), "row 2 .*is not one of the 2 labels.* That is column 'b'"),
        (("--columns", "b,a", "--domain", "x,y,z;yes,no", "--method", "subset", "--size", "2"), "size: .*column 'a'"),
    ],
    ids=["label", "size"],
)
def test_the_last_column_is_checked_before_the_first_is_paid_for(tmp_path, change, word):
    (tmp_path / "s.csv").write_text("a,b\nyes,x\nno,y\nyes,z\n")
    options = ("--columns", "a,b", "--domain", "yes,no;x,y,z", "--epsilon", "1", "--method", "rr")
    ledger = ("--ledger", "l.db", "--dataset-id", "d", "--budget", "5")
    command = [*BLOCKRR, "release", "s.csv", "--output", "o.csv", *options, *ledger]
    done = subprocess.run([*command, *change], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode and re.search(word, done.stderr) and "is spent" not in done.stderr, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and br.Ledger(tmp_path / "l.db").account("d").spent == 1

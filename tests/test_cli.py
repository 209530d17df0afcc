"""The command line as a user meets it."""

import csv
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

import blockrr
from blockrr.privacy.ledger import Ledger
from blockrr.study import drafts as drafts_module
from blockrr.study.cli import COMMANDS, main, parameter_help
from blockrr.study.files import release_file

BLOCKRR = [str(Path(sys.executable).parent / "blockrr")]


def run(*args, **kwargs):
    return subprocess.run([*BLOCKRR, *map(str, args)], capture_output=True, text=True, **kwargs)


@pytest.fixture
def survey(tmp_path):
    path = tmp_path / "survey.csv"
    with open(path, "w", newline="") as f:
        csv.writer(f).writerows([["name", "answer"], *([f"a,{i}", ["yes", "no"][i % 3 == 0]] for i in range(200))])
    return path


def test_version_and_help():
    assert run("--version").stdout.startswith("blockrr 0.")
    assert "reproduce" in run("--help").stdout
    assert run().returncode == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name, capsys):
    "Help comes from the function's own source; a parameter without a comment would be a KeyError."
    command = COMMANDS[name]
    known = [p.name for p in inspect.signature(command.run).parameters.values() if p.kind is not p.VAR_KEYWORD]
    assert list(parameter_help(command.run)) == known
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = "".join(capsys.readouterr().out.split())
    texts = [*parameter_help(command.run).values(), *(extra.help for extra in command.extras().values())]
    assert texts and all("".join(text.split()) in shown for text in texts)


def test_release(survey, tmp_path):
    target = tmp_path / "out.csv"
    args = ("release", survey, "--output", target, "--column", "answer", "--domain", "yes,no", "--epsilon", 1)
    args += ("--row-numbers",)
    done = run(*args)
    assert f"wrote {target} and {target}.json" in done.stdout
    assert done.returncode == 0 and "label DP with epsilon 1 certified" in done.stdout and "secure" in done.stdout
    rows = list(csv.reader(open(target, newline="")))
    original = list(csv.reader(open(survey, newline="")))[1:]
    assert rows[0] == ["row", "name", "answer"] and len(rows) == 1 + 200
    assert all(original[int(r[0])][0] == r[1] and r[2] in ("yes", "no") for r in rows[1:])
    again = run(*args)
    assert again.returncode and "exists already" in again.stderr


@pytest.mark.parametrize(
    "change, word",
    [
        ({"--domain": "yes,maybe"}, "row"),
        ({"--epsilon": "-1"}, "epsilon"),
        ({"--column": "nothing"}, "--column"),
        ({"--method": "best"}, "method"),
        ({"--sigma": "0"}, "sigma"),
        ({"--l": "-1", "--method": "block_rr"}, "l: needs"),
        ({"--l": "1"}, "l: only the method 'block_rr'"),
        ({"--seed": "-1"}, "seed"),
        ({"--epsilon": "nan"}, "epsilon"),
        ({"--domain": "yes"}, "at least 2"),
        ({"--prior-fraction": "1"}, "prior_fraction"),
        ({"--floor": "0.5"}, "floor"),
    ],
)
def test_bad_input_writes_nothing(survey, tmp_path, change, word):
    options = {
        "--output": str(tmp_path / "out.csv"),
        "--column": "answer",
        "--domain": "yes,no",
        "--epsilon": "1",
        **change,
    }
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
    args = (
        "release",
        survey,
        "--column",
        "answer",
        "--domain",
        "yes,no",
        "--epsilon",
        1,
        "--ledger",
        tmp_path / "l.db",
        "--dataset-id",
        "d",
        "--budget",
        1,
    )
    done = run(*args, "--output", tmp_path / target)
    assert done.returncode and "--output" in done.stderr
    assert run(*args, "--output", tmp_path / "good.csv").returncode == 0  # the whole budget is still there
    done = run(*args, "--output", tmp_path / "more.csv")
    assert done.returncode and "budget" in done.stderr and not (tmp_path / "more.csv").exists()


def test_spreadsheet_files(tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes("\ufeffy,row\r\nyes,1\r\nno,2\r\n\r\n".encode())
    (tmp_path / "domain.txt").write_bytes("\ufeffyes\r\nno\r\n".encode())
    done = run(
        "release",
        path,
        "--output",
        tmp_path / "o.csv",
        "--column",
        "y",
        "--domain",
        f"@{tmp_path / 'domain.txt'}",
        "--epsilon",
        "inf",
        "--method",
        "rr",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.csv").read_text() == "y,row\nyes,1\nno,2\n"
    assert run(
        "release", path, "--output", tmp_path / "p.csv", "--column", "y", "--domain", "yes,,no", "--epsilon", 1
    ).returncode
    assert (
        run(
            "release",
            path,
            "--output",
            tmp_path / "q.csv",
            "--column",
            "y",
            "--domain",
            "yes, no",
            "--epsilon",
            "inf",
            "--method",
            "rr",
        ).returncode
        == 0
    )


def test_ragged_file(tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text("a,b\n1,yes\n2\n")
    done = run("release", path, "--output", tmp_path / "o.csv", "--column", "b", "--domain", "yes,no", "--epsilon", 1)
    assert done.returncode and "data row 1" in done.stderr


@pytest.mark.parametrize(
    "text, row",
    [
        ("y\nyes\nno\n\nno\n", 2),
        ("y\nyes\n\n", 1),
        ("y\r\n\r\nyes\r\n", 0),
        ("y\ryes\r\rno", 1),
        ("\ufeffy\nyes\n \t\n", 1),
        ('y\nyes\n""\n', 1),
        ("id,y\n1,yes\n2,\n", 1),
        ("y,id\n ,1\n", 0),
        ("id,y\n1,yes\n\n2,no\n", 1),
        ("id,y\n1,yes\n2\n", 1),
    ],
)
def test_a_missing_label_is_refused_and_called_so(tmp_path, text, row):
    (tmp_path / "s.csv").write_bytes(text.encode())
    args = (
        "release",
        tmp_path / "s.csv",
        "--output",
        tmp_path / "o.csv",
        "--column",
        "y",
        "--domain",
        "yes,no",
        "--epsilon",
        1,
        "--method",
        "rr",
        "--ledger",
        tmp_path / "l.db",
        "--dataset-id",
        "d",
        "--budget",
        1,
    )
    with pytest.raises(SystemExit, match=f"data row {row} .*missing"):
        main([*map(str, args)])
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]


@pytest.mark.parametrize(
    "text", ["y\nyes\nno", "y\nyes\nno\n", "\ufeffy\r\nyes\r\nno\r\n", "y\ryes\rno\r", '"y"\r\n"yes"\r\n"no"']
)
def test_line_ends(tmp_path, text):
    (tmp_path / "s.csv").write_bytes(text.encode())
    release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", ["yes", "no"], "inf", method="rr")
    assert (tmp_path / "o.csv").read_text() == "y\nyes\nno\n"


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("y\n", "no rows"),
        ('id,y\n1,"yes\n2,no\n', "can be read"),
        ("id,y\n1,yes,2\n", "3 fields"),
        ("y\nNA\nyes\n", "not one of the 2 labels"),
        ("y\nyes \n", "not one of the 2 labels"),
    ],
)
def test_files_that_leave_a_doubt(tmp_path, text, word):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(ValueError, match=word):
        release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", ["yes", "no"], 1, method="rr")
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]


def test_words_for_missing_are_labels_where_the_domain_has_them(tmp_path):
    (tmp_path / "s.csv").write_text("y\nNA\n\nnull\n")
    release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", ["NA", "null", ""], "inf", method="rr")
    assert (tmp_path / "o.csv").read_text() == 'y\nNA\n""\nnull\n'


def test_every_field_comes_back(tmp_path):
    rows = [["row", "row_number", "blockrr_row", "y"], ["a\rb", "c\nd", 'e"f', "yes"], ["", " ", ",", "no"]]
    with open(tmp_path / "s.csv", "w", newline="") as f:
        csv.writer(f, quoting=csv.QUOTE_ALL).writerows(rows)
    release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", ["yes", "no"], "inf", row_numbers=True, method="rr")
    with open(tmp_path / "o.csv", newline="") as f:
        back = list(csv.reader(f))
    assert [r[1:] for r in back] == rows and back[0][0] == "row_0"


ACCOUNT = ("--ledger", "l.db", "--dataset-id", "d", "--budget", "1")
COMMAND = (
    "release",
    "survey.csv",
    "--output",
    "out.csv",
    "--column",
    "answer",
    "--domain",
    "yes,no",
    "--epsilon",
    "0.25",
)
PAUSED = """
    import sys, time
    from blockrr.study import cli, files
    def pause(*args, **kwargs):
        print("here", flush=True)
        time.sleep(60)
    {where}
    cli.main(sys.argv[1:])
"""
PLACES = {
    "before": "files.blockrr.release = pause",
    "after the debit": "import blockrr.privacy.release as r; r.Mechanism.certify = pause",
    "while writing": "write, calls = files._write_rows, []\n    files._write_rows = "
    "lambda f, *a: (calls.append(f), pause() if len(calls) > 1 else 0, write(f, *a))",
    "when complete": "files.os.link = pause",
}


def paused(place, folder, *more):
    "The command, stopped at a place."
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PAUSED.format(where=PLACES[place])), *COMMAND, *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "here\n", process.stderr.read()
    return process


def drafts(folder):
    return sorted(p.name for p in folder.iterdir() if p.name.endswith(".tmp"))


@pytest.mark.parametrize("account", [ACCOUNT, ()])
@pytest.mark.parametrize(
    "place, word",
    [
        ("before", "may have been drawn"),
        ("while writing", "may have been drawn"),
        ("when complete", "complete: rename"),
    ],
)
def test_the_next_run_notices_a_killed_one(survey, tmp_path, place, word, account):
    process = paused(place, tmp_path, *account)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert drafts(tmp_path) == [".out.csv.json.tmp", ".out.csv.tmp"] and all(
        (tmp_path / name).stat().st_mode & 0o077 == 0 for name in drafts(tmp_path)
    )
    spent = 0.25 if account and place != "before" else 0
    before = {name: (tmp_path / name).read_bytes() for name in drafts(tmp_path)}
    for _ in range(2):  # a scheduler may try again as often as it likes
        done = run(*COMMAND, *account, cwd=tmp_path)
        assert (
            done.returncode
            and "killed" in done.stderr
            and ".out.csv.tmp" in done.stderr
            and word in done.stderr
            and "--again" in done.stderr
        )
        assert {name: (tmp_path / name).read_bytes() for name in drafts(tmp_path)} == before and not (
            tmp_path / "out.csv"
        ).exists()
    if spent:
        assert Ledger(tmp_path / "l.db").account("d").spent == spent
    if place == "when complete":
        text = (tmp_path / ".out.csv.tmp").read_text()
        assert text.count("\n") == 1 + json.loads((tmp_path / ".out.csv.json.tmp").read_text())["rows_released"]
    done = run(*COMMAND, *account, "--again", cwd=tmp_path)
    assert done.returncode == 0 and "removed .out.csv.json.tmp, .out.csv.tmp" in done.stderr and not drafts(tmp_path)
    if account:
        assert Ledger(tmp_path / "l.db").account("d").spent == spent + 0.25


def test_a_run_that_was_killed_before_anything_was_drawn(survey, tmp_path):
    for names in ((".out.csv.tmp",), (".out.csv.tmp", ".out.csv.json.tmp")):
        for name in names:
            (tmp_path / name).write_text(" " * 100)
        done = run(*COMMAND, cwd=tmp_path)
        assert done.returncode and "before anything was drawn" in done.stderr
    for name in names:
        (tmp_path / name).unlink()
    (tmp_path / ".out.csv.a1b2_3d4.tmp").write_text("row,name,answer\n")  # of an earlier version
    (tmp_path / ".out.csv.bak.tmp").write_text("")  # of something else
    done = run(*COMMAND, cwd=tmp_path)
    assert done.returncode and "left .out.csv.a1b2_3d4.tmp:" in done.stderr and "may have been drawn" in done.stderr
    assert run(*COMMAND, "--again", cwd=tmp_path).returncode == 0 and drafts(tmp_path) == [".out.csv.bak.tmp"]


def test_a_run_at_work_is_left_alone(survey, tmp_path):
    process = paused("while writing", tmp_path)
    try:
        for more in ((), ("--again",)):
            done = run(*COMMAND, *more, cwd=tmp_path)
            assert (
                done.returncode
                and "another run is writing" in done.stderr
                and drafts(tmp_path) == [".out.csv.json.tmp", ".out.csv.tmp"]
            )
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["before", "after the debit", "while writing", "when complete"])
def test_an_interrupted_run_says_what_is_spent(survey, tmp_path, place, number):
    process = paused(place, tmp_path, *ACCOUNT, "--method", "rr_with_prior")
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 1 and "stopped" in error and "Traceback" not in error
    if place == "before":
        assert "spent" not in error and not drafts(tmp_path)
    else:
        assert (
            "epsilon 0.25 of data set 'd' is spent, debited in" in error
            and Ledger(tmp_path / "l.db").account("d").spent == 0.25
        )
        assert ("complete: move" in error) == (place == "when complete") == bool(drafts(tmp_path))
        if place == "when complete":
            for name in ("out.csv", "out.csv.json"):
                (tmp_path / f".{name}.tmp").rename(tmp_path / name)  # as it says
            assert (
                json.loads((tmp_path / "out.csv.json").read_text())["rows_released"]
                == (tmp_path / "out.csv").read_text().count("\n") - 1
            )
        else:
            assert "without" in error and run(*COMMAND, cwd=tmp_path).returncode == 0  # as it says


@pytest.fixture
def options(survey, tmp_path):
    return dict(
        source=survey,
        target=tmp_path / "out.csv",
        column="answer",
        domain=["yes", "no"],
        epsilon=0.25,
        ledger=tmp_path / "l.db",
        dataset_id="d",
        budget=1,
    )


@pytest.mark.parametrize(
    "error",
    [PermissionError(1, "Operation not permitted"), OSError(95, "Operation not supported"), NotImplementedError()],
)
def test_a_file_system_without_hard_links(options, tmp_path, monkeypatch, error):
    def link(*_):
        raise error

    monkeypatch.setattr(os, "link", link)
    release_file(**options)
    assert (
        (tmp_path / "out.csv").read_text().count("\n") == 201
        and not drafts(tmp_path)
        and (tmp_path / "out.csv.json").exists()
    )


def test_a_name_that_is_taken_meanwhile_keeps_the_release(options, tmp_path, monkeypatch):
    release = blockrr.release

    def slow(*args, **kwargs):
        (tmp_path / "out.csv").write_text("somebody else's")
        return release(*args, **kwargs)

    monkeypatch.setattr(blockrr, "release", slow)
    with pytest.raises(FileExistsError) as e:
        release_file(**options)
    said = " ".join([str(e.value), *e.value.__notes__])
    assert "is spent" in said and f"move {tmp_path / '.out.csv.tmp'} to {tmp_path / 'out.csv'}" in said
    assert (tmp_path / "out.csv").read_text() == "somebody else's" and (tmp_path / ".out.csv.tmp").read_text().count(
        "\n"
    ) == 201


@pytest.mark.parametrize("call", [0, 1, 2, 3])
def test_a_full_disk(options, tmp_path, monkeypatch, call):
    "Each time something is put on the disk: before the debit it costs nothing, afterwards it says so."
    sync, calls = os.fsync, []

    def full(number):
        calls.append(number)
        if len(calls) == call + 1:
            raise OSError(28, "No space left on device")
        sync(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as e:
        release_file(**options)
    assert not drafts(tmp_path) and not (tmp_path / "out.csv").exists()
    if call < 3:
        assert not hasattr(e.value, "__notes__") and not (tmp_path / "l.db").exists()
    else:
        assert "is spent" in " ".join(e.value.__notes__) and Ledger(tmp_path / "l.db").account("d").spent == 0.25


def test_a_disk_that_is_full_in_the_middle_of_a_write(options, tmp_path, monkeypatch):
    "The kernel refuses the write itself, so that some of it is left in a buffer."
    resource = pytest.importorskip("resource")
    old, release = resource.getrlimit(resource.RLIMIT_FSIZE), blockrr.release

    def last(*args, **kwargs):
        out = release(*args, **kwargs)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old[1]))
        return out

    monkeypatch.setattr(blockrr, "release", last)
    try:
        with pytest.raises(OSError) as e:
            release_file(**options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert "is spent" in " ".join(e.value.__notes__) and not drafts(tmp_path) and not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    "mode, umask, expected",
    [
        (0o600, 0o022, 0o600),
        (0o640, 0o022, 0o640),
        (0o644, 0o022, 0o644),
        (0o666, 0o027, 0o640),
        (0o755, 0o022, 0o644),
        (0o400, 0, 0o400),
        (0o644, 0o077, 0o600),
    ],
)
def test_files_are_as_private_as_the_input(options, tmp_path, mode, umask, expected):
    options["source"].chmod(mode)
    old = os.umask(umask)
    try:
        release_file(**options)
    finally:
        os.umask(old)
    assert {name: oct((tmp_path / name).stat().st_mode & 0o777) for name in ("out.csv", "out.csv.json", "l.db")} == {
        "out.csv": oct(expected),
        "out.csv.json": oct(expected),
        "l.db": oct(0o600),
    }


def test_a_group_that_cannot_be_given_gets_nothing(tmp_path, monkeypatch):
    def chown(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", chown)
    (path := tmp_path / "out.csv").touch()
    old = os.umask(0)
    try:
        for group, expected in ((path.stat().st_gid, 0o664), (path.stat().st_gid + 1, 0o604)):
            drafts_module.permit(path, SimpleNamespace(st_mode=0o664, st_gid=group))
            assert path.stat().st_mode & 0o777 == expected
    finally:
        os.umask(old)


def test_parts_and_the_ledger_command(survey, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def said(*args):
        main(["ledger", *args])
        return capsys.readouterr().out

    for part in ("2026-01", "2026-02"):
        main([*COMMAND, *ACCOUNT, "--part", part, "--output", f"{part}.csv"])
        assert json.loads((tmp_path / f"{part}.csv.json").read_text())["part"] == part
    main([*COMMAND, *ACCOUNT[:4]])
    capsys.readouterr()
    text = said("l.db")
    assert "d: budget 1, spent 0.5, left 0.5" in text and "  part 2026-01: spent 0.5, left 0.5" in text
    assert sum("release by auto" in line for line in text.splitlines()) == 3
    (facts,) = json.loads(said("l.db", "--json", "--dataset", "d"))
    assert {k: facts[k] for k in ("dataset_id", "budget", "spent", "left")} == {
        "dataset_id": "d",
        "budget": 1.0,
        "spent": 0.5,
        "left": 0.5,
    }
    assert [(d["epsilon"], d["part"]) for d in facts["debits"]] == [(0.25, "2026-01"), (0.25, "2026-02"), (0.25, None)]
    Ledger("l.db").spend("all\tof it", "inf", budget="inf")
    Ledger("l.db").spend("tenths", 0.3, budget=0.7)
    assert "'all\\tof it': budget inf, spent inf, left 0" in said(
        "l.db"
    ) and "tenths: budget 0.7, spent 0.3, left 0.4\n" in said("l.db")
    assert json.loads(said("l.db", "--json"))[1]["budget"] == "inf"
    for args, word in (
        (("none.db",), "there is no file"),
        (("l.db", "--dataset", "e"), "not in the ledger"),
        (("survey.csv",), "not a database"),
    ):
        with pytest.raises(SystemExit, match=word):
            said(*args)
    assert not (tmp_path / "none.db").exists()


def test_decimals_on_the_command_line(survey, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(10):
        main([*COMMAND[:-1], "0.1", *ACCOUNT, "--output", f"{i}.csv"])
    with pytest.raises(SystemExit, match="0.0 is left"):
        main([*COMMAND[:-1], "0.1", *ACCOUNT, "--output", "10.csv"])
    with pytest.raises(SystemExit, match="budget: needs"):
        main([*COMMAND, *ACCOUNT[:-1], "much"])
    main([*COMMAND[:-1], "1/3", *ACCOUNT[:3], "thirds", "--budget", "1/3", "--output", "third.csv"])
    account = Ledger("l.db").account("thirds")
    assert account.left == 0 and account.spent >= Fraction(1, 3)
    for bad in ("much", "nan", "-1", "1/0", ""):
        with pytest.raises(SystemExit, match="epsilon: needs a number"):
            main([*COMMAND[:-2], f"--epsilon={bad}", "--output", "bad.csv"])
    assert not drafts(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_what_cannot_be_shown_is_said_to_be_complete(survey, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*BLOCKRR, *COMMAND, *ACCOUNT, "--output", "o.csv"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert done.returncode and "No space left" in done.stderr
    assert "release is complete all the same, in o.csv and o.csv.json, and its epsilon is spent" in done.stderr
    assert (
        (tmp_path / "o.csv").exists() and not drafts(tmp_path) and Ledger(tmp_path / "l.db").account("d").spent == 0.25
    )


def test_domain_from_file(survey, tmp_path):
    (tmp_path / "domain.txt").write_text("yes\nno\n")
    done = run(
        "release",
        survey,
        "--output",
        tmp_path / "o.csv",
        "--column",
        "answer",
        "--domain",
        f"@{tmp_path / 'domain.txt'}",
        "--epsilon",
        2,
        "--method",
        "rr",
        "--seed",
        4,
    )
    assert done.returncode == 0 and "NOT private" in done.stdout


def test_unknown_profile():
    done = run("reproduce", "--profile", "desktop")
    assert done.returncode and "smoke" in done.stderr


@pytest.mark.parametrize("name", ["", " ", "a{x}", "{", "a\nb", "a\tb", 'say "x"', "back\\slash"])
def test_a_folder_that_cannot_be_named_is_refused(tmp_path, name):
    done = run("reproduce", "--output", name, cwd=tmp_path)
    assert (
        done.returncode
        and "--output" in done.stderr
        and "Traceback" not in done.stderr
        and not list(tmp_path.iterdir())
    )

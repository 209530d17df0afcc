"""`blockrr reproduce` killed in the middle: it resumes, loses nothing that was finished, and gives the same records."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not find_spec("snakemake"), reason="Snakemake needs Python 3.11")


def command(output):
    return [str(Path(sys.executable).parent / "blockrr"), "reproduce", "--profile", "smoke", "--output", str(output)]


def environment(folder):
    return {**os.environ, "BLOCKRR_CACHE": str(folder / "cache"), "MPLBACKEND": "agg"}


def records(output):
    "File name -> records as text, provenance left out."
    return {
        p.name: json.dumps(json.loads(p.read_text())["records"]) for p in sorted((output / "records").glob("*.json"))
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    done = subprocess.run(command(folder / "out"), env=environment(folder), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Report: {folder / 'out' / 'report.html'}" in done.stdout and (folder / "out" / "report.html").exists()
    lines = [line for line in done.stdout.splitlines() if "14 steps" in line]
    assert lines[-1].startswith("14 of 14 steps, ") and all("so far, about " in line for line in lines[:-1])
    assert "Finished jobid" not in done.stdout + done.stderr  # which is in a file
    return folder


def test_everything_is_there(whole):
    found = records(whole / "out")
    assert len(found) == 7
    for name in found:
        executed = json.loads((whole / "out" / "notebooks" / name.replace(".json", ".ipynb")).read_text())
        assert "papermill" in executed["metadata"] and (whole / "out" / "logs" / name.replace(".json", ".log")).exists()
    assert sum(len(json.loads(text)) for text in found.values()) == 5 * 3 * 5 + 7 * 5 + 8 * 5


def test_a_dry_run_says_what_is_left(whole, tmp_path):
    for out, words in ((whole / "out", "0 slices"), (tmp_path / "new", "7 slices")):
        done = subprocess.run([*command(out), "--dry-run"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and f"{words} without records" in done.stdout
        assert done.stdout.count("job ") == done.stdout.count("slice ") == (words == "7 slices")
    assert not (tmp_path / "new" / "records").exists()


def test_second_run_does_nothing(whole):
    before = {p: p.stat().st_mtime_ns for p in (whole / "out").rglob("*.json")}
    done = subprocess.run(command(whole / "out"), env=environment(whole), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and {p: p.stat().st_mtime_ns for p in (whole / "out").rglob("*.json")} == before


def test_killed_and_resumed(whole, tmp_path):
    out = tmp_path / "é ü [1] #x, 'y' 50% ~ $HOME"
    process = subprocess.Popen(
        command(out),
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not list(out.glob("records/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = records(out)  # every file that is there is complete
    assert kept and len(kept) < 7
    times = {n: (out / "records" / n).stat().st_mtime_ns for n in kept}
    done = subprocess.run(command(out), env=environment(tmp_path), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(out) == records(whole / "out")
    redone = [n for n in kept if (out / "records" / n).stat().st_mtime_ns != times[n]]
    assert len(redone) <= 2  # at most the notebooks in flight, one a core; their records may have been written already
    unfinished = [p for pattern in ("*.tmp", ".partial-*") for p in (out / "records").glob(pattern)]
    assert len(unfinished) <= 2  # what a killed writer leaves is never read as a record


@pytest.mark.parametrize(
    "name",
    [
        "é ü [1] #x",
        "1e5",
        "null",
        "-x",
        "~",
        "#",
        "%41",
        "[a, b]",
        "key: value",
        "runs/smoke",
        "'q' $HOME `x` *?&;!",
        "a=b,c",
    ],
)
def test_a_folder_goes_literally_through_the_command_line(name):
    "Snakemake reads the name as YAML, and passes what it has read to a Snakemake for every job, which reads it again."
    from urllib.parse import unquote

    from snakemake.cli import parse_config

    from blockrr.study.reproduce import escaped

    once = parse_config([f"output={escaped(name)}"])["output"]
    assert unquote(str(parse_config([f"output={once}"])["output"])) == name


def test_a_broken_record_is_made_anew(whole):
    out, before = whole / "out", records(whole / "out")
    (out / "records" / "digits-eps2.0.json").write_text("{")
    done = subprocess.run(command(out), env=environment(whole), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "made anew" in done.stderr and records(out) == before


def test_a_killed_driver_leaves_the_lock_to_its_snakemake(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(out),
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not (out / "logs").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        done = subprocess.run(command(out), env=environment(tmp_path), capture_output=True, text=True, timeout=60)
        assert done.returncode and "another run is writing" in done.stderr
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_terminated_driver_ends_its_snakemake(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(out),
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (out / "logs").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(timeout=120)
    fcntl = pytest.importorskip("fcntl")
    with open(out / ".lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free again


def test_two_drivers_do_not_share_a_folder(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with open(tmp_path / ".lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode and "another run is writing" in done.stderr

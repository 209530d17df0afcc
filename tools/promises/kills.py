"""Releases killed at random moments: what the ledger and the folder then say."""

import csv
import json
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from faults import Faults

import blockrr as br
from blockrr.study.cli import main

DOMAIN, EPSILON, BUDGET, ROWS = ["never", "once", "sometimes"], 0.25, 100, 400
PRIVATE = 0o077  # permissions that a file with labels must not have where its source has none of them


def private(path):
    "A new binary file that only its owner may read."
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


# processes


def forked(action, log):
    "The id of a child that runs action() and ends, its words in a file. It is warm: nothing is imported again."
    sys.stdout.flush(), sys.stderr.flush()
    if pid := os.fork():
        return pid
    out, status = private(log), 70
    for stream in (1, 2):
        os.dup2(out.fileno(), stream)
    try:
        status = action() or 0
    except SystemExit as e:
        if not isinstance(e.code, int):
            print(e.code, file=sys.stderr)
        status = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def finished(pid) -> int:
    "Wait for a child: its exit status, or minus the signal that ended it."
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(pid, after) -> bool:
    "Send SIGKILL after so many seconds; whether that is what ended the process."
    time.sleep(after)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return finished(pid) == -signal.SIGKILL


# the ledger


def debits(ledger, name) -> int:
    "How many releases of a data set were debited; a fault if the ledger is damaged or its sums are wrong."
    if not Path(ledger).exists():
        return 0
    try:
        account = br.Ledger(ledger).account(name)
    except ValueError as e:
        if re.search(r"\bnew\b|no debit", str(e)):
            return 0
        raise
    spent = EPSILON * account.debits  # exact as a float
    if (account.spent, account.left) != (spent, BUDGET - spent):
        raise ValueError(f"ledger: {account.debits} debits of {EPSILON} are {account.spent} spent, {account.left} left")
    return account.debits


def sound(ledger) -> list:
    "What SQLite says about the file."
    if not Path(ledger).exists():
        return []
    db = sqlite3.connect(ledger)
    try:
        return [] if db.execute("PRAGMA integrity_check").fetchall() == [("ok",)] else ["the ledger is damaged"]
    except sqlite3.DatabaseError as e:
        return [f"the ledger is damaged: {e}"]
    finally:
        db.close()


# the folder of one run of the command


class Run(NamedTuple):
    "Where one `blockrr release` reads and writes."

    folder: Path
    ledger: Path
    name: str

    @property
    def source(self) -> Path:
        return self.folder / "in.csv"

    @property
    def target(self) -> Path:
        return self.folder / "out.csv"

    @property
    def statement(self) -> Path:
        return self.folder / "out.csv.json"

    def arguments(self) -> list:
        options = {
            "output": self.target,
            "column": "y",
            "domain": ",".join(DOMAIN),
            "epsilon": EPSILON,
            "method": "rr",
            "ledger": self.ledger,
            "dataset-id": self.name,
            "budget": BUDGET,
        }
        return ["release", str(self.source), *(word for k, v in options.items() for word in (f"--{k}", str(v)))]


def new_run(folder, ledger, name, rng) -> Run:
    "A folder with a column to release; only its owner may read it."
    folder.mkdir(mode=0o700)
    run = Run(folder, ledger, name)
    rows = "".join(f"{i},{DOMAIN[y]}\n" for i, y in enumerate(rng.integers(0, 3, ROWS)))
    with private(run.source) as f:
        f.write(f"x,y\n{rows}".encode())
    return run


def words(path) -> list:
    return re.findall("|".join(DOMAIN), path.read_bytes().decode(errors="replace"))


def columns(run) -> dict:
    "Released labels in the files of a folder, by inode: a hard link is no second release, nor is one label all over."
    found = {}
    for path in run.folder.iterdir():
        if path in (run.source, run.ledger) or path.suffix == ".log" or not path.is_file():
            continue
        labels = words(path)
        if len(labels) > 30 and len(set(labels)) > 1:
            found[path.stat().st_ino] = labels
    return found


def loose(run) -> list:
    "Files that others may read, the public statement aside."
    names = {p.name for p in run.folder.iterdir() if p.stat().st_mode & PRIVATE and ".json" not in p.name}
    return sorted({re.sub(r"[.]\w{6,10}[.]tmp$", ".*.tmp", name) for name in names})


def faults(run, paid) -> list:
    "What is wrong in the folder of a run, however it ended, if so many debits stand in the ledger."
    found, wrong, truth = columns(run), sound(run.ledger), words(run.source)
    if len(found) > paid:
        wrong.append(f"{len(found)} released columns and {paid} debits")
    agreement = [np.mean([a == b for a, b in zip(labels, truth)]) for labels in found.values()]
    if max(agreement, default=0) > 0.8:
        wrong.append("true labels in a file")
    if run.target.exists():
        wrong += half_written(run)
    return wrong + [f"others may read {name}" for name in loose(run)]


def half_written(run) -> list:
    "What an output lacks."
    with open(run.target, newline="") as f:
        header, *rows = list(csv.reader(f))
    whole = len(rows) == ROWS and run.target.read_bytes().endswith(b"\n")
    whole = whole and all(len(r) == len(header) and r[header.index("y")] in DOMAIN for r in rows)
    try:
        stated = json.loads(run.statement.read_text())["rows_released"]
    except (OSError, ValueError, KeyError):
        return ["an output without its statement"]
    return [] if whole and stated == ROWS else ["a half-written output"]


def again(run, paid) -> list:
    "Run the same command to its end after a kill: what is wrong."
    done = run.target.read_bytes() if run.target.exists() else None
    log = run.folder / "again.log"
    status = finished(forked(lambda: main(run.arguments()), log))
    said = "\n".join(line for line in log.read_text().splitlines() if not line.startswith("Release of"))
    now = debits(run.ledger, run.name)
    wrong = [f"after the next run: {w}" for w in faults(run, now)]
    if done and (status == 0 or now != paid or run.target.read_bytes() != done):
        wrong.append("a second release over a finished one")
    if not done and paid and status == 0 and not re.search("kill|interrupt|stop|finish|earlier|left|before", said):
        wrong.append("the next run says nothing of the killed one")
    if status and not said.strip():
        wrong.append("the next run failed and says nothing")
    if status == 0 and not run.target.exists():
        wrong.append("the next run ended well without an output")
    return wrong


def stage(run, paid) -> str:
    "How far a killed run had come."
    return "output there" if run.target.exists() else "debited, no output" if paid else "before the debit"


def kill_command(run, start, seconds) -> tuple:
    "Kill one run of the command: whether it was killed, how far it had come, what is wrong."
    if not killed(start(run), seconds):
        return False, "", []
    paid = debits(run.ledger, run.name)
    wrong = faults(run, paid) + ([] if paid in (0, 1) else [f"one run was debited {paid} times"])
    return True, stage(run, paid), wrong + again(run, paid)


def in_fork(run):
    return forked(lambda: main(run.arguments()), run.folder / "words.log")


def in_shell(run):
    "The program as it is installed, in an interpreter of its own."
    with private(run.folder / "words.log") as log:
        command = [sys.executable, "-m", "blockrr", *run.arguments()]
        return subprocess.Popen(command, cwd=run.folder, stdout=log, stderr=subprocess.STDOUT).pid


# the library: releases one after the other, each announced when it is there


def kill_library(ledger, name, seconds, rng) -> tuple:
    "Kill a process that releases again and again: whether it was killed, how far it had come, what is wrong."
    reader, writer = os.pipe()
    labels, method = rng.integers(0, 3, ROWS), ["rr", "rr_with_prior", "block_rr"][rng.integers(3)]

    def release():
        for _ in range(50):
            br.release(labels, EPSILON, 3, method=method, ledger=ledger, dataset_id=name, budget=BUDGET)
            os.write(writer, b".")

    log = Path(ledger).with_suffix(".log")
    pid = forked(release, log)
    os.close(writer)
    hit = killed(pid, seconds)
    with os.fdopen(reader, "rb") as f:
        announced = len(f.read())
    paid, wrong = debits(ledger, name), sound(ledger)
    if paid not in (announced, announced + 1):
        wrong.append(f"{announced} releases and {paid} debits")
    if not hit and announced < 50:
        wrong.append(f"ended by itself after {announced} releases: {log.read_text()[-200:]}")
    return hit, "between releases" if paid == announced else "debited, not released", wrong


# all of it


def typical(folder, start, rng) -> float:
    "Seconds that a run takes when it is left alone."
    times = []
    for i in range(3):
        run = new_run(folder / f"{start.__name__}{i}", folder / "alone.db", f"{start.__name__} {i}", rng)
        begin = time.perf_counter()
        if status := finished(start(run)):
            raise RuntimeError(f"blockrr release: status {status}: {(run.folder / 'words.log').read_text()[-400:]}")
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def attempt(i, folder, times, rng) -> tuple:
    "One process and its kill: the ledger and the data set that it used, and what came of it."
    own, name = folder / str(i), f"d{i}"
    ledger = own / "ledger.db" if i % 4 == 3 else folder / "ledger.db"  # every fourth run has to make its ledger first
    if i % 8 == 1:
        own.mkdir(mode=0o700)
        return ledger, name, *kill_library(ledger, name, rng.uniform(0, 0.2), rng)
    start = in_shell if i % 16 == 2 else in_fork
    share = rng.uniform(
        *[(0, 1.2), (0.5, 1.1)][start is in_shell or i % 2]
    )  # half an interpreter's time is its imports
    return ledger, name, *kill_command(new_run(own, ledger, name, rng), start, share * times[start])


def run(count, seed, say=print) -> dict:
    "Kill `count` processes; those that were faster than the kill are not counted."
    rng, kills, i = np.random.default_rng(seed), 0, 0
    stages, found, kept = Counter(), Faults(), {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        times = {start: typical(folder, start, rng) for start in (in_fork, in_shell)}
        while kills < count and i < 3 * count + 20:
            try:
                ledger, name, hit, how, wrong = attempt(i, folder, times, rng)
            except Exception as e:
                hit, how, wrong = True, "unknown", [f"{type(e).__name__}: {e}"]
            else:
                if not wrong:
                    kept[ledger, name] = debits(ledger, name)
            if hit:
                kills, stages[how] = kills + 1, stages[how] + 1
            found.add(f"attempt {i}, {how or 'not killed'}", wrong)
            if (i := i + 1) % 100 == 0:
                say(f"kills: {kills} of {count}, {found.trials} with faults")
        lost = sum(debits(ledger, name) != n for (ledger, name), n in kept.items())
    found.add("the end", [f"{lost} data sets have other debits than after their kill"] if lost else [])
    found.add("the end", [f"only {kills} of {i} processes could be killed"] if kills < count else [])
    alone = {start.__name__: round(seconds, 3) for start, seconds in times.items()}
    return {"kills": kills, "attempts": i, "killed": dict(stages), "seconds_alone": alone, **found.figures()}

"""Batches with real processes: races, kill -9, merging; what is refused, and how."""

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from blockrr.learning.images import digits, read_pack, write_bare_pack
from blockrr.study import batch
from blockrr.study.cli import main
from blockrr.study.experiment import run_all
from blockrr.study.records import cell_file, check_folder, load

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ["--seeds", "1", "--options", '{"epochs": 2, "width": 2}']


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return write_bare_pack(tmp_path_factory.mktemp("pack") / "digits.zip", digits(), steps=20)


def command(folder, pack, *extra, minutes="5", device="cpu"):
    "Arguments of `blockrr`."
    return [
        "gpu-batch",
        "--minutes",
        minutes,
        "--device",
        device,
        "--output",
        str(folder),
        "--pack",
        str(pack),
        *extra,
    ]


def start(folder, pack):
    "A worker in a process of its own."
    how = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "start_new_session": True,
    }
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "blockrr", *command(folder, pack, *OPTIONS)]
    return subprocess.Popen(line, cwd=ROOT, env=environment, **how)


def trained(output):
    return [line.partition(":")[0] for line in output.splitlines() if " seed " in line]


def test_priority():
    "The stated order, written down independently."
    want = [
        (seed, data, e, m)
        for seed in range(10)
        for data in ("cifar10_1", "cifar10_2")
        for e in (1, math.inf, 0.6, 2, 4, 0.8, 3, 6, 8)
        for m in ("rr", "block_rr", "rr_with_prior")
    ]
    assert [(s.seed, s.dataset, s.epsilon, s.mechanism) for s in batch.priority_order()] == want
    assert all(s.learner == "resnet18" and s.options == () and s.prior_fraction == 0.01 for s in batch.priority_order())


def test_race_kill_resume(tmp_path, pack):
    "Two workers share a folder and one is killed: files are whole, one training is lost, nothing is done twice."
    folder = tmp_path / "a batch"
    victim, other = (start(folder, pack) for _ in range(2))
    end = time.monotonic() + 240
    while len(list(folder.glob("records/*.json"))) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(victim.pid, signal.SIGKILL)
    kept = {p: p.read_bytes() for p in folder.glob("records/*.json") if not p.name.startswith(".")}
    first, second = trained(victim.communicate()[0]), other.communicate(timeout=300)[0]
    assert other.returncode == 0, second
    assert len(kept) >= 4 and all(load(p) for p in kept)
    assert not set(first) & set(trained(second)), "a cell was run twice"
    again = start(folder, pack)
    last = again.communicate(timeout=300)[0]
    assert again.returncode == 0 and "0 left: complete" in last, last
    lines = first + trained(second) + trained(last)
    assert len(set(lines)) == len(lines)
    assert len(lines) in (26, 27), "more than the training in flight was lost"  # a record may be there without its line
    assert check_folder(folder) == 27 and {p: p.read_bytes() for p in kept} == kept
    assert "0 trainings done, 0 left: complete" in start(folder, pack).communicate(timeout=300)[0]


def test_executed_notebook(tmp_path, pack):
    if not find_spec("papermill"):
        pytest.skip("papermill is not installed")
    specs = batch.priority_order(["digits"], 1, [8.0], learner="probe", prior_fraction=0.1)
    batch.run_cells(specs, tmp_path)
    content = json.loads(batch.show_batch(tmp_path, ROOT).read_text())
    assert "papermill" in content["metadata"] and "3 trainings of 3 cells" in json.dumps(content)
    assert batch.show_batch(tmp_path / "empty", ROOT) is None


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([*arguments])
    return str(stop.value)


def test_no_cuda(tmp_path, pack, capsys, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("BLOCKRR_DEVICE", "")
    monkeypatch.setattr(batch, "visible_gpus", lambda: [])
    said = refused(capsys, *command(tmp_path, pack, device="cuda"))
    assert "no CUDA device" in said and "cpu" in said


@pytest.mark.parametrize(
    "name, value",
    [("minutes", "nan"), ("minutes", "0"), ("minutes", "-1"), ("seeds", "0"), ("seeds", "-1")],
)
def test_senseless_limits(tmp_path, pack, capsys, name, value):
    "Named before anything is made."
    said = refused(capsys, *command(tmp_path / "out", pack, f"--{name}={value}"))
    assert f"{name}: needs" in said and value in said and not (tmp_path / "out").exists()


def test_wrong_pack(tmp_path, pack, capsys, monkeypatch):
    "Another image under a known name, a changed file, a text file, no file."
    data = digits()
    images = data.train_images.copy()
    images[0, 0, 0] ^= 1
    forged = write_bare_pack(tmp_path / "forged.zip", replace(data, train_images=images), steps=5)
    changed = tmp_path / "changed.zip"
    changed.write_bytes(pack.read_bytes()[:-3000])
    text = tmp_path / "text.zip"
    text.write_text("no zip")
    monkeypatch.setenv("BLOCKRR_DEVICE", "cpu")
    wrong = {forged: "expected", changed: "no readable pack", text: "no readable pack"}
    for path, word in {**wrong, tmp_path / "absent.zip": "absent.zip"}.items():
        said = refused(capsys, *command(tmp_path / "out", path))
        assert word in said
    assert not list(tmp_path.glob("out/records/*"))
    assert read_pack(pack).sha256 == data.sha256


def test_other_schema(tmp_path, pack, capsys):
    "Found before anything is loaded or run; the file stays as it is."
    path = tmp_path / "records" / "old.json"
    path.parent.mkdir()
    path.write_text('{"schema": 0, "records": []}')
    said = refused(capsys, *command(tmp_path, pack))
    assert str(path) in said and "of schema 1, got schema 0" in said
    assert path.read_text() == '{"schema": 0, "records": []}'


def test_full_disk(tmp_path, capsys, monkeypatch):
    "No room: nothing is started. Room that vanishes in mid-training: the record is printed, earlier ones stay."
    specs = batch.priority_order(["digits"], 1, [8.0], learner="probe", prior_fraction=0.1)
    batch.run_cells(specs[:1], tmp_path)
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as m:
        m.setattr(batch.shutil, "disk_usage", lambda _: usage._replace(free=1000))
        m.setattr(batch, "run", lambda _: pytest.fail("something was started"))
        with pytest.raises(OSError, match="nothing is lost"):
            batch.run_cells(specs, tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(batch, "save", full)
        capsys.readouterr()
        with pytest.raises(OSError, match="No space left.*printed above.*Earlier records are safe"):
            batch.run_cells(specs, tmp_path)
    [line] = [l for l in capsys.readouterr().out.splitlines() if l.startswith("{")]
    assert check_folder(tmp_path) == 1
    cell_file(tmp_path, specs[1]).write_text(line)
    assert batch.run_cells(specs, tmp_path).done == 1 and check_folder(tmp_path) == 3


def test_merge(tmp_path, capsys):
    specs = batch.priority_order(["digits"], 1, [1.0, 8.0], learner="probe", prior_fraction=0.1)
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    batch.run_cells(specs[:4], a)
    batch.run_cells(specs[2:], b)
    main(["merge", str(a), str(b), "--output", str(c)])
    assert "6 records merged; 6 in" in capsys.readouterr().out
    assert run_all(specs) == [r for s in specs for r in load(cell_file(c, s))]
    bad = cell_file(b, specs[2])
    content = json.loads(bad.read_text())
    content["records"][0]["accuracy"] = 12.5
    bad.write_text(json.dumps(content))
    said = refused(capsys, "merge", str(a), str(b), "--output", str(tmp_path / "d"))
    assert "contradict" in said and str(bad) in said and str(cell_file(a, specs[2])) in said
    assert not (tmp_path / "d").exists()
    bad.write_text("{")
    assert str(bad) in refused(capsys, "merge", str(a), str(b), "--output", str(tmp_path / "d"))


def test_two_workers_take_two_gpus(tmp_path):
    "Real processes on a machine that claims two GPUs; a third gets none."
    code = """import sys
from blockrr.study.batch import one_gpu
with one_gpu(sys.argv[1], 0) as gpu:
    print(gpu, flush=True)
    sys.stdin.read()"""

    def hold():
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"}
        return subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment, text=True, **pipes)

    first = hold()
    assert first.stdout.readline() == "0\n"
    second = hold()
    assert second.stdout.readline() == "1\n"
    third = hold()
    assert "needs a free one among 0, 1, got none" in third.communicate()[1]
    first.kill()
    first.wait()
    fourth = hold()
    assert fourth.stdout.readline() == "0\n"  # the killed one's lock is gone
    for p in (second, fourth):
        p.communicate("")


@pytest.mark.skipif(not find_spec("snakemake"), reason="Snakemake needs Python 3.11")
def test_gpu_profile():
    "18 slices of 30 trainings, each asking for one GPU; no label-free stage."
    line = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        "workflow/Snakefile",
        "--cores",
        "2",
        "--resources",
        "gpu=2",
    ]
    line += [
        "--configfile",
        "workflow/profiles/gpu.yaml",
        "--config",
        'output="runs/none"',
        "--dry-run",
        "--nolock",
    ]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert text.count("rule slice:") == 18 and text.count("gpu=1") == 18 and "rule features" not in text


def test_jobs_of_a_queue_number_their_own_gpus(tmp_path, monkeypatch):
    "Two jobs on one machine may both call their GPU 0."
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    held = []
    for job in "12":
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        held.append(batch.one_gpu(tmp_path, 0))
        assert held[-1].__enter__() == "0"
    for gpu in held:
        gpu.__exit__(None, None, None)


def test_the_alarm_waits_for_a_record():
    "What comes while a record is written goes off at its end."
    written = []
    with pytest.raises(batch.OutOfTime), batch.time_limit(time.monotonic() + 0.05):
        with batch._undisturbed():
            time.sleep(0.2)
            written.append(1)
        written.append(2)
    assert written == [1]
    with batch.time_limit(math.inf):
        pass

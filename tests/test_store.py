"""Damaged and foreign entries of the cache, builders that fail or die, processes that race, folders without locks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blockrr.learning import store as S


@pytest.fixture
def build():
    def build():
        build.calls += 1
        return dict(a=np.arange(5000), b=np.eye(2))

    build.calls = 0
    return build


def read(build, folder):
    return S.cached("demo", dict(seed=1), build, cache=folder)


def check(arrays):
    assert arrays.keys() == {"a", "b"}
    assert (arrays["a"] == np.arange(5000)).all() and (arrays["b"] == np.eye(2)).all()


def test_read_again(tmp_path, build):
    check(read(build, tmp_path))
    again = read(build, tmp_path)
    check(again)
    assert build.calls == 1 and isinstance(again["a"], np.memmap)
    assert S.cached("demo", dict(seed=1), build, cache=False)["a"].flags.writeable
    assert build.calls == 2


def flipped(raw):
    return raw[:4200] + bytes([raw[4200] ^ 1]) + raw[4201:]


@pytest.mark.parametrize("harm", [flipped, lambda raw: raw[:-9], lambda raw: b""])
def test_damaged_arrays_are_built_again(tmp_path, build, harm):
    read(build, tmp_path)
    (file,) = tmp_path.rglob("a.npy")
    file.write_bytes(harm(file.read_bytes()))
    check(read(build, tmp_path))
    assert build.calls == 2


FOREIGN = '{"recipe": {"seed": 2}, "files": {"a": "0"}}'


@pytest.mark.parametrize("text", [FOREIGN, "[]", '{"recipe": {"seed": 1}, "files": {}}', "no JSON"])
def test_foreign_descriptions_are_built_again(tmp_path, build, text):
    read(build, tmp_path)
    (about,) = tmp_path.rglob("about.json")
    about.write_text(text)
    check(read(build, tmp_path))
    assert build.calls == 2


def test_a_builder_that_fails_leaves_nothing(tmp_path):
    def fails():
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        S.cached("demo", dict(seed=3), fails, cache=tmp_path)
    assert not list(tmp_path.rglob("about.json"))


SCRIPT = """
import os, pathlib, sys, time
import numpy as np
from blockrr.learning.store import cached

def build():
    with open(sys.argv[1] + "/log", "a") as f: f.write("built ")
    if sys.argv[2] == "die": os.kill(os.getpid(), 9)
    time.sleep(.3)
    return dict(a=np.arange(3))

print(cached("race", dict(x=1), build, cache=sys.argv[1])["a"].sum())
"""


def start(folder, how):
    command = [sys.executable, "-c", SCRIPT, str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_death_and_a_race(tmp_path):
    "A builder that dies leaves no entry; of two processes at once one builds and both get the result."
    assert start(tmp_path, "die").wait() == -signal.SIGKILL
    assert not list(tmp_path.glob("race-*/arrays"))
    pair = [start(tmp_path, "live") for _ in range(2)]
    assert [p.communicate()[0].strip() for p in pair] == ["3", "3"]
    assert (tmp_path / "log").read_text() == "built built "
    assert {p.name for p in tmp_path.glob("race-*/*")} == {"arrays", ".lock"}


@pytest.mark.parametrize("error", [PermissionError("read-only"), NotImplementedError("no locks here")])
def test_no_lock_is_no_error(tmp_path, monkeypatch, error):
    class Refused(S.FileLock):
        def acquire(self, *args, **kwargs):
            raise error

    monkeypatch.setattr(S, "FileLock", Refused)
    (tmp_path / ".partial-dead").mkdir()
    with S.locked(tmp_path):
        assert os.listdir(tmp_path) == [".partial-dead"]  # without the lock nothing is swept


def test_only_what_is_unfinished_is_swept(tmp_path):
    for name in (".partial-file", "finished"):
        (tmp_path / name).write_text("")
    (tmp_path / ".partial-folder" / "inside").mkdir(parents=True)
    with S.locked(tmp_path):
        assert sorted(os.listdir(tmp_path)) == [".lock", "finished"]


def test_an_error_gives_the_lock_back(tmp_path):
    with pytest.raises(KeyError), S.locked(tmp_path):
        raise KeyError
    with S.locked(tmp_path):
        pass


def test_a_file_is_written_whole(tmp_path):
    path = tmp_path / "big.bin"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), S.atomic_write(path) as f:
        f.write(b"half of it")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["big.bin"]
    with S.atomic_write(path) as f:
        f.write(b"all of it")
    assert path.read_bytes() == b"all of it"
    assert oct(Path(path).stat().st_mode)[-3:] == "644"  # readable by others, as a shared cache must be

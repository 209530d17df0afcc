"""What is no story about blockrr.learning.pretrain: oracles, killed runs, broken files, missing devices, what may be an argument."""
import inspect
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

torch = pytest.importorskip("torch")

from blockrr.learning import pretrain as P
from blockrr.learning.data import ImageData, digits, imbalanced
from blockrr.learning.features import Features
from blockrr.learning.probe import Probe

TINY = P.Recipe(size=8, views=4, batch=32, width=4, embed=32, area=.4, mirror=False, hue=0., grey=0., rate=5e-3)
DIGITS = digits()


def pictures(n, side=32, channels=3, seed=0):
    "Smooth made images."
    rng = np.random.default_rng(seed)
    coarse = rng.random((n, 5, 5, channels))
    return (255 * np.repeat(np.repeat(coarse, -(-side // 5), 1), -(-side // 5), 2)[:, :side, :side]).astype(np.uint8)


# Views: one image at a time, one change after the other, as in the papers' code.
def oracle(image, u, recipe):
    "One view of a uint8 image [H, W, 3], in float64."
    both, (h, w, _) = 2 * u - 1, image.shape
    area, ratio = recipe.area + (1 - recipe.area) * u[0], (4 / 3)**both[1]
    width, height = min(1, math.sqrt(area * ratio)) * w, min(1, math.sqrt(area / ratio)) * h
    left, top = (w - width) * (both[2] + 1) / 2, (h - height) * (both[3] + 1) / 2
    steps = (np.arange(recipe.size) + .5) / recipe.size
    x, y = left + width * steps - .5, top + height * steps - .5
    if recipe.mirror and u[4] < .5: x = x[::-1]
    grid = np.meshgrid(y, x, indexing="ij")
    v = np.stack([map_coordinates(image[..., c] / 255, grid, order=1, mode="nearest") for c in range(3)], -1)
    on = u[5] < recipe.coloured
    v = v * (1 + on * recipe.jitter * both[6])
    luma = np.array([.299, .587, .114])
    v = (1 + on * recipe.jitter * both[7]) * v + (1 - (1 + on * recipe.jitter * both[7])) * (v @ luma).mean()
    to = np.array([luma, [.5959, -.2746, -.3213], [.2115, -.5227, .3112]])
    q = v @ to.T
    turn, s = 2 * math.pi * on * recipe.hue * both[9], (1 + on * recipe.saturation * both[8]) * (u[10] >= recipe.grey)
    i, j = s * (q[..., 1] * math.cos(turn) - q[..., 2] * math.sin(turn)), s * (q[..., 1] * math.sin(turn) + q[..., 2] * math.cos(turn))
    return np.clip(np.stack([q[..., 0], i, j], -1) @ np.linalg.inv(to).T, 0, 1)


@pytest.mark.parametrize("recipe", [P.Recipe(), P.Recipe(size=13, area=.1, jitter=.8, saturation=.8, hue=.5, grey=.5, mirror=False)])
def test_views_are_the_oracles(recipe):
    images, u = pictures(40), np.random.default_rng(1).random((40, P.DRAWS)).astype(np.float32)
    ours = P.views(torch.tensor(images.transpose(0, 3, 1, 2)), torch.tensor(u), recipe).permute(0, 2, 3, 1).numpy()
    theirs = np.stack([oracle(x, v.astype(float), recipe) for x, v in zip(images, u)])
    assert abs(ours - theirs).max() < 2e-3  # float32 coordinates, at edges of blocks


def test_moments_of_views():
    "Means and deviations of pixels over chance, ours and the oracle's, from different random numbers."
    image, n, recipe = pictures(1, seed=5), 3000, P.Recipe(size=12)
    u = torch.rand(n, P.DRAWS, generator=torch.Generator().manual_seed(0))
    ours = P.views(torch.tensor(image.transpose(0, 3, 1, 2)).expand(n, -1, -1, -1), u, recipe).permute(0, 2, 3, 1).numpy()
    rng = np.random.default_rng(7)
    theirs = np.stack([oracle(image[0], rng.random(P.DRAWS), recipe) for _ in range(n)])
    for power in (1, 2):
        a, b = ours**power, theirs**power
        noise = np.sqrt((a.var(0) + b.var(0)) / n)
        z = (a.mean(0) - b.mean(0)) / noise
        assert abs(z).max() < 5  # 432 pixels, of which some 60 are independent: 5 deviations happen once in 30,000 such tests
    a, b = (np.cov(v.mean((1, 2)).T) for v in (ours, theirs))
    assert np.allclose(a, b, rtol=.15, atol=2e-4)


def test_no_label_is_an_argument():
    words = ("label", "target", "released", "class", "transition", "epsilon")
    for name in P.__all__:
        thing = getattr(P, name)
        if not callable(thing): continue
        for parameter in inspect.signature(thing).parameters: assert not any(w in parameter for w in words), (name, parameter)
    for f in P.Recipe.__dataclass_fields__: assert not any(w in f for w in words)


def test_labels_change_nothing(tmp_path):
    "Permuted labels: the same file, which is found and read under the other labels as well."
    P.make(DIGITS.train_images, DIGITS.test_images, "digits", tmp_path, TINY, dims=8, steps=3, device="cpu")
    rng = np.random.default_rng(0)
    other = ImageData("digits", DIGITS.train_images, rng.permutation(DIGITS.train_labels), DIGITS.test_images, rng.permutation(DIGITS.test_labels), DIGITS.classes)
    a, b = (P.pretrained(d, folder=tmp_path) for d in (DIGITS, other))
    assert np.array_equal(a.train, b.train) and a.recipe == b.recipe


def test_test_images_change_no_feature_of_training_images(tmp_path):
    "Encoder and axes see training images only."
    changed = DIGITS.test_images[::-1] // 2
    for name, test in (("a", DIGITS.test_images), ("b", changed)): P.make(DIGITS.train_images, test, "digits", tmp_path / name, TINY, dims=8, steps=3, device="cpu")
    a, b = (np.load(tmp_path / name / "digits.npz") for name in "ab")
    assert np.array_equal(a["train"], b["train"]) and not np.array_equal(a["test"], b["test"])
    c, d = (P.Encoder.load(tmp_path / name / "encoder.pt").basis for name in "ab")
    assert np.array_equal(c.axes, d.axes) and np.array_equal(c.mean, d.mean) and c.step == d.step


def test_pretraining_helps():
    "Four principal axes of the features: pre-trained against untrained networks, the same probe. Two seeds gained 15 and 30 points."
    def accuracy(encoder):
        f, g = (encoder.features(x, "cpu") for x in (DIGITS.train_images, DIGITS.test_images))
        b = P.principal(f, 4)
        fit = Probe(Features(b.codes(f), b.codes(g), {}), cache=False).fit(DIGITS.train_labels[None].astype(int))
        return 100 * float((fit.predictions[0] == DIGITS.test_labels).mean())
    gain = []
    for seed in (0, 1):
        recipe = replace(TINY, width=8, embed=64, seed=seed)
        before = accuracy(P.Encoder(P.embedder(DIGITS.train_images, recipe).eval(), recipe, {"white": 16.}))
        gain.append(accuracy(P.pretrain(DIGITS.train_images, recipe, steps=120, device="cpu")) - before)
    assert np.mean(gain) > 8  # the standard error of a difference on 286 images is at most 4, of this mean at most 3


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
from blockrr.learning import pretrain as P
from blockrr.learning.data import digits
recipe = P.Recipe(size=8, views=4, batch=32, width=4, embed=32, area=.4, mirror=False, hue=0., grey=0., rate=5e-3)
P.pretrain(digits().train_images, recipe, steps=40, device="cpu", checkpoint=sys.argv[1], every=.1, report=lambda line: print(line, flush=True)).save(sys.argv[2])
"""


def test_killed_and_resumed(tmp_path):
    def start(name): return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / f"{name}.ck"), str(tmp_path / f"{name}.pt")], stdout=subprocess.PIPE, text=True)
    victim = start("killed")
    line = victim.stdout.readline()  # the first checkpoint is there
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert line.startswith("step ") and not (tmp_path / "killed.pt").exists()
    assert 0 < torch.load(tmp_path / "killed.ck")["step"] < 40
    resumed = start("killed")
    resumed.communicate()
    assert resumed.returncode == 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try: P.pretrain(DIGITS.train_images, TINY, steps=40, device="cpu", checkpoint=tmp_path / "whole.ck").save(tmp_path / "whole.pt")
    finally: torch.set_num_threads(threads)
    a, b = (P.Encoder.load(tmp_path / f"{name}.pt") for name in ("killed", "whole"))
    assert all(torch.equal(x, y) for x, y in zip(a.net.state_dict().values(), b.net.state_dict().values()))
    assert a.about["loss"] == b.about["loss"] and a.about["steps"] == 40
    with pytest.raises(ValueError, match="another recipe"): P.pretrain(DIGITS.train_images, replace(TINY, seed=9), steps=40, device="cpu", checkpoint=tmp_path / "whole.ck")


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_taught_run_resumes_where_it_stopped(tmp_path, one_thread):
    recipe = replace(P.LAPTOP, size=8, batch=32, width=4, embed=32, mirror=False, hue=0., grey=0.)
    teacher = np.random.default_rng(0).normal(size=(len(DIGITS.train_images), 6)).astype(np.float32)
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    def run(name, teacher=teacher, **more): return P.pretrain(DIGITS.train_images, recipe, steps=12, device="cpu", checkpoint=tmp_path / name, teacher=teacher, **more)
    def stop(line):
        if line.startswith("step 5 "): raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): run("halted", every=0, report=stop)
    assert torch.load(tmp_path / "halted")["step"] == 5
    with pytest.raises(ValueError, match="another recipe"): run("halted", np.roll(teacher, 1, 0))
    halted, whole, other = run("halted"), run("whole"), run("other", np.roll(teacher, 1, 0))
    assert halted.about["loss"] == whole.about["loss"]
    assert all(torch.equal(x, y) for x, y in zip(halted.net.state_dict().values(), whole.net.state_dict().values()))
    assert other.about["loss"] != whole.about["loss"] and other.about["teacher"] != whole.about["teacher"]
    whole.save(tmp_path / "encoder.pt")
    assert np.array_equal(P.Encoder.load(tmp_path / "encoder.pt").features(DIGITS.test_images[:9], "cpu"), whole.features(DIGITS.test_images[:9], "cpu"))


def test_budget_is_kept_and_fixed_by_measurement(tmp_path):
    encoder = P.pretrain(DIGITS.train_images, TINY, minutes=.05, device="cpu", checkpoint=tmp_path / "ck", every=1e9)
    state = torch.load(tmp_path / "ck")
    assert len(state["losses"]) == encoder.about["steps"] == state["step"] and encoder.about["seconds"] < 30


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="no CUDA device"): P.pretrain(DIGITS.train_images, TINY, steps=1, device="cuda")
    assert P.pretrain(DIGITS.train_images, TINY, steps=1).about["steps"] == 1  # the device is chosen: the processor

    def full(*_): raise torch.OutOfMemoryError("CUDA out of memory")
    monkeypatch.setattr(P, "views", full)
    with pytest.raises(RuntimeError, match="try a batch of 16"): P.pretrain(DIGITS.train_images, TINY, steps=1, device="cpu")


def test_compiles():
    "The graph that a GPU compiles, without a backend: the same steps as uncompiled."
    plain = P.pretrain(DIGITS.train_images, TINY, steps=3, device="cpu")
    original, torch.compile = torch.compile, lambda f, **k: original(f, backend="eager", **k)
    try: graph = P.pretrain(DIGITS.train_images, TINY, steps=3, device="cpu", compiled=True)
    finally: torch.compile = original
    assert abs(np.subtract(plain.about["loss"], graph.about["loss"])).max() < .3


def test_files_of_something_else(tmp_path):
    made = P.make(DIGITS.train_images, DIGITS.test_images, "digits", tmp_path, TINY, dims=8, steps=1, device="cpu")
    about = json.loads((tmp_path / "digits.json").read_text())
    assert about["encoder"] == made.about and about["encoder"]["steps"] == 1 and P.Recipe(**about["recipe"]) == TINY
    assert about["images_sha256"] and about["sha256"] and about["encoder"]["versions"]["torch"] == str(torch.__version__)
    for change, message in ((dict(sha256="0" * 64), "has SHA-256"), (dict(format="x"), "no file of features"), (dict(images_sha256="0" * 64), "other images")):
        (tmp_path / "digits.json").write_text(json.dumps({**about, **change}))
        with pytest.raises(ValueError, match=message): P.pretrained(DIGITS, folder=tmp_path)
    (tmp_path / "digits.json").write_text("{")
    with pytest.raises(ValueError, match="does not say where"): P.pretrained(DIGITS, folder=tmp_path)
    (tmp_path / "digits.json").unlink()
    with pytest.raises(ValueError, match="does not say where"): P.pretrained(DIGITS, folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="blockrr pretrain --name digits"): P.pretrained(DIGITS, folder=tmp_path / "none")


def test_subsets_and_larger_sets(tmp_path):
    "A subset takes rows of the larger set's file; an encoder describes shared images of a larger set by the same integers."
    small = imbalanced(DIGITS, [20] * 10, [5] * 10)
    encoder = P.make(small.train_images, small.test_images, "digits", tmp_path / "small", TINY, dims=8, steps=2, device="cpu")
    P.make(DIGITS.train_images, DIGITS.test_images, "digits", tmp_path / "all", encoder=encoder, device="cpu")
    part, own = P.pretrained(small, base=DIGITS, folder=tmp_path / "all"), P.pretrained(small, folder=tmp_path / "small")
    assert part.train.shape == own.train.shape
    assert (part.train != own.train).mean() < .01  # batches of another size may round otherwise
    assert abs(part.train.astype(int) - own.train).max() <= 1


@pytest.mark.parametrize("n", [36_850, 60_000])
def test_files_stay_small(tmp_path, n):
    "What 128 features with a slowly falling spectrum take, at the default precision."
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n, 128)) * np.arange(1, 129)**-.5
    codes = P.principal(features[:5000]).codes(features)
    about = P.write_features(tmp_path / "x.npz", codes[:-1000], codes[-1000:], {})
    assert .95 * P.LIMIT < about["bytes"] < P.LIMIT if about["shape"][2] < 128 else about["bytes"] < P.LIMIT
    assert about["shape"][2] == 128 if n < 40_000 else about["shape"][2] > 100
    assert np.array_equal(np.load(tmp_path / "x.npz")["test"].T, codes[-1000:, :about["shape"][2]])


def test_command_line(tmp_path, monkeypatch, capsys):
    "Made by the command, found by the study; the usual records do not change."
    from blockrr.study.cli import main
    from blockrr.study.experiment import Spec, run_all
    monkeypatch.setenv("BLOCKRR_CACHE", str(tmp_path / "cache"))  # for the teacher, too
    (tmp_path := tmp_path / "made").mkdir()
    sizes = ["--size", "8", "--views", "4", "--batch", "32", "--width", "4", "--embed", "32", "--dims", "16"]
    assert main(["pretrain", "--name", "digits", "--steps", "4", "--output", str(tmp_path), "--device", "cpu", *sizes]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["digits.json", "digits.npz", "encoder.pt"] and "step 4 of 4" in capsys.readouterr().out
    monkeypatch.setenv("BLOCKRR_PRETRAINED", str(tmp_path))
    usual = Spec("digits", "rr", 3.)
    plain, deep, both = run_all([usual, *(replace(usual, options={"features": k}) for k in ("pretrained", "both"))])
    assert run_all([usual])[0].to_dict() == plain.to_dict() and "features" not in plain.details
    assert deep.details["features"] != both.details["features"] and deep.accuracy > 30
    aware = replace(usual, learner="forward")
    patches, beside = run_all([aware, replace(aware, options={"features": "both"})])
    assert "features" not in patches.details and beside.details["features"] and patches.details["held_out"] != beside.details["held_out"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device"): main(["pretrain", "--name", "digits", "--output", str(tmp_path), "--device", "cuda"])
    with pytest.raises(SystemExit, match="need one of them"): main(["pretrain", "--name", "digits", "--pack", "x", "--output", str(tmp_path)])


def test_bare_machine(tmp_path):
    "PyTorch, NumPy and SciPy are enough."
    code = f"""
import sys
for name in ("cryptography", "narwhals", "PIL", "tqdm", "torchvision", "sklearn", "threadpoolctl", "fastcore", "IPython", "pandas", "papermill"): sys.modules[name] = None
import numpy as np
from blockrr.learning import pretrain as P
images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)
P.make(images[:30], images[30:], "noise", {str(tmp_path)!r}, P.Recipe(size=8, batch=8, width=2, embed=8), steps=2, device="cpu", checkpoint={str(tmp_path / "ck")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "noise.npz").exists()

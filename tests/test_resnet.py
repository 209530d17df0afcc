"""The paper's network and recipe against independent plain code; compiled 16-bit arithmetic; imports on a bare machine."""
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from blockrr.learning import training as T
from blockrr.learning.augment import Augmentation, augment, draw
from blockrr.learning.data import digits, imbalanced
from blockrr.learning.resnet import resnet18
from blockrr.study import experiment as E

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
TINY = T.Recipe(epochs=2, batch=16, late=2, flip=False, pad=1, cutout=2, width=2)


@pytest.mark.parametrize("epochs", [1, 2, 7, 110, 160])
def test_schedule(epochs):
    "Every epoch, in exact fractions."
    warm = int(Fraction(15, 100) * epochs)
    for e in range(epochs):
        done = Fraction(e + 1, epochs)
        if e < warm: expected = Fraction(e + 1, warm)
        elif done < Fraction(3, 10): expected = 1
        elif done < Fraction(6, 10): expected = Fraction(1, 10)
        elif done < Fraction(9, 10): expected = Fraction(1, 100)
        else: expected = Fraction(1, 1000)
        assert T.rate_factor(e, epochs) == float(expected)


def test_two_steps_by_hand():
    "Nesterov momentum and decay on every parameter of the real network, gradients by autograd, updates by hand."
    data, recipe = digits(), replace(TINY, rate=.05)
    trainer = T.Trainer(data.train_images, data.test_images, 10, recipe, T.Execution())
    twin = resnet18(0, 10, 1, 2)
    T.reset(twin, T.generators(7, "cpu")[0])
    velocity, w = [torch.zeros_like(p) for p in twin.parameters()], list(twin.parameters())
    chance, settings = T.generators(7, "cpu")[1], recipe.augmentation(data.train_images)
    rows = torch.arange(40)
    labels = torch.tensor(data.train_labels[:40]).long()
    step = T.Step(twin, settings, 16, T.Execution())
    for epoch in range(2):
        order, draws = torch.randperm(40, generator=chance), draw(40, 16, (8, 8, 1), settings, chance)
        rate = .05 * T.rate_factor(epoch, 2)
        for start in (0, 16, 32):  # the last batch has 8 images
            pick = order[start:start + 16]
            loss = step.loss(torch.tensor(data.train_images)[rows[pick]], labels[pick], draws.batch(start, start + 16))
            for p, v, g in zip(w, velocity, torch.autograd.grad(loss, w)):
                with torch.no_grad():
                    g = g + 1e-4 * p
                    v.mul_(.9).add_(g)
                    p -= rate * (g + .9 * v)
    T.fit(trainer, data.train_labels[:40], np.arange(40), 7)
    for ours, plain in zip(trainer.model.parameters(), w): torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-6)


def test_augmentation_at_full_size():
    "Mean and mean square of every pixel of a 32x32 image against plain code with its own random numbers, within 5.5 standard errors (6,144 figures)."
    rng, n = np.random.default_rng(0), 1500
    image = rng.integers(0, 256, (32, 32, 3), np.uint8)
    ours = augment(torch.tensor(image).expand(n, 32, 32, 3), draw(n, n, (32, 32), Augmentation(), torch.Generator().manual_seed(1)), Augmentation()).numpy()
    plain = np.empty_like(ours)
    for k in range(n):
        x = np.pad(image[:, ::-1] if rng.random() < .5 else image, ((4, 4), (4, 4), (0, 0)), "reflect")
        top, left, cy, cx = *rng.integers(0, 9, 2), *rng.integers(0, 32, 2)
        x = (x[top:top + 32, left:left + 32] / 255 - [.4914, .4822, .4465]) / [.2023, .1994, .2010]
        x[max(cy - 4, 0):cy + 4, max(cx - 4, 0):cx + 4] = 0
        plain[k] = x.transpose(2, 0, 1)
    for power in (1, 2):
        a, b = ours.astype(float)**power, plain.astype(float)**power
        assert (np.abs(a.mean(0) - b.mean(0)) / np.sqrt((a.var(0) + b.var(0)) / n)).max() < 5.5


def small_network(seed=0, n_classes=10, channels=3, width=64, device="cpu"):
    "Stands in for the ResNet, whose compilation takes minutes on a CPU."
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, n_classes))
    return T.reset(model.to_empty(device=device), torch.Generator().manual_seed(seed))


def test_compiled_16_bits_match(monkeypatch):
    "The real step, compiled and in bfloat16, trains a small network as well as float32 without compilation, within the noise of the seeds; short batches compile nothing."
    if not shutil.which("g++"): pytest.skip("NO C++ COMPILER: compiled execution is NOT tested here; install g++")
    monkeypatch.setattr(T, "resnet18", small_network)
    data, recipe, seeds = digits(), replace(TINY, epochs=6, batch=64, rate=.2, late=2, mixup=0), range(4)
    accuracy, entered = {}, []
    for how in (T.Execution(), T.Execution(precision="bfloat16", compile="default")):
        trainer = T.Trainer(data.train_images, data.test_images, 10, recipe, how)
        assert trainer.compiled == (how.compile == "default")
        loss = trainer.step.loss
        trainer.step.loss = lambda *a: entered.append(len(a[0])) or loss(*a)
        found = [T.fit(trainer, data.train_labels[:n], np.arange(n), seed) for seed in seeds for n in (869, 850)]
        accuracy[how] = np.array([100 * (f.predictions == data.test_labels).mean() for f in found])
    assert set(entered[-6:]) <= {869 % 64, 850 % 64}, "full batches ran uncompiled"
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2, "something was compiled again"
    a, b = accuracy.values()
    assert a.mean() > 70 and abs(a.mean() - b.mean()) < 3 * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))


def test_compiler_failure_is_survived():
    "Where compiling fails, training goes on without it and says so."
    data = digits()
    trainer = T.Trainer(data.train_images, data.test_images, 10, TINY, T.Execution())
    def broken(*_): raise RuntimeError("no compiler here")
    trainer.step.compiled = broken
    with pytest.warns(UserWarning, match="going on uncompiled .RuntimeError: no compiler here"): assert trainer.compiled is False
    assert len(T.fit(trainer, data.train_labels[:40], np.arange(40)).losses) == 2


def test_learner_trains_on_the_large_sets_images(monkeypatch):
    "CIFAR-10_2's cells train on rows of CIFAR-10_1's images and are scored on their own test images."
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 6).astype(np.uint8)
    big = replace(digits(), name="cifar10_1", train_images=rng.integers(0, 256, (60, 8, 8, 3), np.uint8), train_labels=rng.permutation(labels),
                  test_images=rng.integers(0, 256, (60, 8, 8, 3), np.uint8), test_labels=rng.permutation(labels))
    small = imbalanced(big, [6] * 6 + [2] * 4, [6] * 6 + [3] * 4, name="cifar10_2")
    monkeypatch.setattr(E, "_data", {"cifar10_1": big, "cifar10_2": small}.get)
    seen = []
    def fit(trainer, labels, rows, seed, epochs):
        seen.append((trainer.images[rows].numpy(), labels))
        return T.Training(np.stack([big.test_labels] * 2), (1., float("nan")), (1., 2.), len(rows))
    monkeypatch.setattr(T, "fit", fit)
    E._trainer.cache_clear()
    options = {"pad": 1, "cutout": 2, "width": 2}
    record, other = E.run_all([E.Spec("cifar10_2", "rr_with_prior", "inf", learner="resnet18", prior_fraction=.1, options=options),
                               E.Spec("cifar10_1", "rr", 1., learner="resnet18", options=options)])
    E._trainer.cache_clear()
    assert record.accuracy == other.accuracy == 100 and record.details["losses"] == [1., None] and record.details["n_released"] == 40
    released = E.release_labels(record.spec, small.train_labels, 10)
    assert (seen[0][0] == small.train_images[released.rows]).all() and (seen[0][1] == released.labels).all()
    assert len(seen[1][0]) == 60 and len(record.details["epochs"]) == 2


BLOCKED = "narwhals cryptography threadpoolctl sklearn PIL tqdm pandas polars pyarrow matplotlib torchvision IPython papermill snakemake fastcore nbdev yaml"


def test_bare_machine(tmp_path):
    "With torch, numpy and scipy alone the study's cells run: everything else cannot be found."
    code = f"""
import sys
class Hide:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *args): return None if name.split(".")[0] in {set(BLOCKED.split())} else self.finder.find_spec(name, *args)
sys.meta_path[:] = map(Hide, sys.meta_path)
for name in {BLOCKED.split()}:
    try: __import__(name)
    except ModuleNotFoundError: continue
    raise SystemExit(name + " is not hidden")
import numpy as np, torch
torch.set_num_threads(1)
import blockrr.study.experiment as E, blockrr.study.batch as B, blockrr.study.cli
from blockrr.learning.data import ImageData, SHA256
rng, y = np.random.default_rng(0), np.arange(100).astype(np.uint8) % 10
data = ImageData("digits", rng.integers(0, 17, (100, 8, 8, 1), np.uint8), y, rng.integers(0, 17, (100, 8, 8, 1), np.uint8), y, tuple("0123456789"))
SHA256["digits"] = data.sha256
E.use(data)
specs = B.order(["digits"], 1, [1., float("inf")], prior_fraction=.2, options={{"epochs": 1, "width": 2}})
print(B.run_cells(specs, sys.argv[1]).done)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "6" and len(list(tmp_path.glob("records/*.json"))) == 6


def test_benchmark_runs(tmp_path):
    "The benchmark's every part, tiny, on whatever device there is."
    pytest.importorskip("torchvision")
    done = subprocess.run([sys.executable, "tools/bench_resnet.py", "--tiny", "--device", "cpu", "--json", str(tmp_path / "deep" / "b.json")], cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0 and "failed" not in done.stdout, done.stdout + done.stderr
    out = json.loads((tmp_path / "deep" / "b.json").read_text())
    assert set(out["variants"]) == {"float32", "bfloat16", "ordinary pipeline, float32"} and out["tiny"] is True
    assert all(v["images_per_second"] > 0 for v in out["variants"].values()) and out["parts"]["convolutions"] > 0
    assert abs(out["ratio_to_float32"] - max(v["images_per_second"] for k, v in out["variants"].items() if k == "float32") / out["variants"]["ordinary pipeline, float32"]["images_per_second"]) < .02

"""The paper's recipe against independent plain code; compiled 16-bit arithmetic; imports on a bare machine."""

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
from blockrr.learning.augment import draw_augmentation
from blockrr.learning.device import Execution
from blockrr.learning.images import digits, imbalanced
from blockrr.learning.resnet import reset, resnet18
from blockrr.learning.workspace import Workspace
from blockrr.study import experiment as E

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
TINY = T.Recipe(epochs=2, batch=16, late=2, flip=False, pad=1, cutout=2, width=2)
DIGITS = digits()


def new_trainer(recipe=TINY, **how):
    return T.Trainer(DIGITS.train_images, DIGITS.test_images, 10, recipe=recipe, how=Execution(**how))


def factor(epoch, epochs):
    "The paper's schedule in exact fractions."
    warm = int(Fraction(15, 100) * epochs)
    if epoch < warm:
        return Fraction(epoch + 1, warm)
    done = Fraction(epoch + 1, epochs)
    return Fraction(1, 10 ** sum(done >= Fraction(end, 10) for end in (3, 6, 9)))


@pytest.mark.parametrize("epochs", [1, 2, 7, 110, 160])
def test_schedule(epochs):
    assert [T.lr_factor(e, epochs) for e in range(epochs)] == [float(factor(e, epochs)) for e in range(epochs)]


@pytest.mark.parametrize(
    "name, bad",
    [
        ("epochs", 0),
        ("epochs", True),
        ("batch", 1),
        ("rate", 0),
        ("momentum", 2),
        ("late", 0),
        ("width", 1.5),
        ("warmup", -1),
    ],
)
def test_bad_recipes(name, bad):
    with pytest.raises(ValueError, match=f"^{name}: needs"):
        T.Recipe(**{name: bad})


@pytest.mark.parametrize("name", ["reshuffle", "nesterov", "flip"])
def test_flags_are_flags(name):
    with pytest.raises(TypeError, match=f"^{name}: needs True or False, got 1"):
        T.Recipe(**{name: 1})


@pytest.mark.parametrize(
    "labels, rows, word",
    [
        ([0, 1], None, "one label for each row"),
        ([10], [0], "0 <= label < 10"),
        ([-1], [0], "0 <= label"),
        ([0], [9999], "0 <= row"),
    ],
)
def test_bad_examples(labels, rows, word):
    with pytest.raises(ValueError, match=word):
        T.fit(new_trainer(), labels, rows)


class Plain:
    "Nesterov momentum and decay on every parameter of the real network, gradients by autograd, updates by hand."

    def __init__(self, seed, recipe):
        weights, self.chance = T.generators(seed, "cpu")
        self.recipe = recipe
        self.model = reset(resnet18(0, 10, 1, width=2), weights)
        self.velocity = [torch.zeros_like(p) for p in self.model.parameters()]
        self.settings = recipe.augmentation(DIGITS.train_images)
        self.step = T.TrainingStep(self.model, self.settings, recipe.batch, how=Execution())

    def epoch(self, images, labels, rate):
        n, batch = len(labels), self.recipe.batch
        order = torch.randperm(n, generator=self.chance)
        draws = draw_augmentation(n, batch, (8, 8, 1), settings=self.settings, generator=self.chance)
        for start in range(0, n, batch):  # the last batch has what is left
            pick = order[start : start + batch]
            loss = self.step.loss(images[pick], labels[pick], draws.batch(start, start + batch))
            self.update(loss, rate)

    def update(self, loss, rate):
        parameters = list(self.model.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, v, g in zip(parameters, self.velocity, gradients):
                g = g + 1e-4 * p
                v.mul_(0.9).add_(g)
                p -= rate * (g + 0.9 * v)


def test_two_epochs_by_hand():
    recipe = replace(TINY, rate=0.05)
    plain = Plain(7, recipe)
    images, labels = (
        torch.tensor(DIGITS.train_images[:40]),
        torch.tensor(DIGITS.train_labels[:40]).long(),
    )
    for epoch in range(2):
        plain.epoch(images, labels, 0.05 * T.lr_factor(epoch, 2))
    trainer = new_trainer(recipe)
    T.fit(trainer, DIGITS.train_labels[:40], np.arange(40), seed=7)
    for ours, theirs in zip(trainer.model.parameters(), plain.model.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def small_network(seed=0, n_classes=10, channels=3, *, width=64, device="cpu"):
    "Stands in for the ResNet, whose compilation takes minutes on a CPU."
    with torch.device("meta"):
        features = (
            nn.Conv2d(channels, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AvgPool2d(4),
        )
        model = nn.Sequential(*features, nn.Flatten(), nn.Linear(64, n_classes))
    return reset(model.to_empty(device=device), torch.Generator().manual_seed(seed))


def accuracies(trainer, entered):
    "Of eight trainings, with and without a short last batch; `entered` gets the sizes of uncompiled batches."
    loss = trainer.step.loss

    def spied(images, *rest):
        entered.append(len(images))
        return loss(images, *rest)

    trainer.step.loss = spied
    found = []
    for seed in range(4):
        for n in (869, 850):
            fit = T.fit(trainer, DIGITS.train_labels[:n], np.arange(n), seed=seed)
            found.append(100 * (fit.predictions == DIGITS.test_labels).mean())
    return np.array(found)


def test_compiled_16_bits_match(monkeypatch):
    "The real step, compiled and in bfloat16, trains a small network as well as float32 without compilation."
    if not shutil.which("g++"):
        pytest.skip("NO C++ COMPILER: compiled execution is NOT tested here; install g++")
    monkeypatch.setattr(T, "resnet18", small_network)
    recipe, found = replace(TINY, epochs=6, batch=64, rate=0.2, late=2, mixup=0), []
    for how in ({}, dict(precision="bfloat16", compile="default")):
        trainer, entered = new_trainer(recipe, **how), []
        assert trainer.compiled == bool(how)
        found.append(accuracies(trainer, entered))
    assert set(entered[-6:]) <= {869 % 64, 850 % 64}, "full batches ran uncompiled"
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2, "something was compiled again"
    a, b = found
    assert a.mean() > 70 and abs(a.mean() - b.mean()) < 3 * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))


def test_compiler_failure_is_survived():
    "Where compiling fails, training goes on without it and says so."
    trainer = new_trainer()

    def broken(*_):
        raise RuntimeError("no compiler here")

    trainer.step.compiled = broken
    with pytest.warns(UserWarning, match="going on uncompiled .RuntimeError: no compiler here"):
        assert trainer.warm_up() is False
    assert len(T.fit(trainer, DIGITS.train_labels[:40], np.arange(40)).losses) == 2


def made_up(name, labels):
    rng = np.random.default_rng(0)
    images = {f"{split}_images": rng.integers(0, 256, (60, 8, 8, 3), np.uint8) for split in ("train", "test")}
    labels = {f"{split}_labels": rng.permutation(labels) for split in ("train", "test")}
    return replace(DIGITS, name=name, **images, **labels)


def test_learner_trains_on_the_large_sets_images(monkeypatch):
    "CIFAR-10_2's cells train on rows of CIFAR-10_1's images and are scored on their own test images."
    big = made_up("cifar10_1", np.repeat(np.arange(10), 6).astype(np.uint8))
    small = imbalanced(big, [6] * 6 + [2] * 4, [6] * 6 + [3] * 4, name="cifar10_2")
    base = Workspace(big)
    workspaces = {"cifar10_1": base, "cifar10_2": Workspace(small, base)}
    seen = []

    def fit(trainer, labels, rows, *, seed, epochs):
        seen.append((trainer.images[rows].numpy(), labels))
        return T.Training(np.stack([big.test_labels] * 2), (1.0, float("nan")), (1.0, 2.0), len(rows))

    monkeypatch.setattr(T, "fit", fit)
    common = dict(learner="resnet18", options={"pad": 1, "cutout": 2, "width": 2})
    specs = [
        E.Spec("cifar10_2", "rr_with_prior", "inf", prior_fraction=0.1, **common),
        E.Spec("cifar10_1", "rr", 1.0, **common),
    ]
    record, other = E.run_all(specs, workspaces=workspaces)
    assert record.accuracy == other.accuracy == 100
    assert record.details["losses"] == [1.0, None] and record.details["n_released"] == 40
    released = E.release_labels(record.spec, small.train_labels, 10)
    assert (seen[0][0] == small.train_images[released.rows]).all() and (seen[0][1] == released.labels).all()
    assert len(seen[1][0]) == 60 and len(record.details["epochs"]) == 2


BLOCKED = (
    "narwhals cryptography threadpoolctl sklearn PIL tqdm pandas polars pyarrow matplotlib torchvision IPython "
    "papermill snakemake fastcore nbdev yaml"
)
BARE = f"""
import sys
class Hide:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *args):
        return None if name.split(".")[0] in {set(BLOCKED.split())} else self.finder.find_spec(name, *args)
sys.meta_path[:] = map(Hide, sys.meta_path)
for name in {BLOCKED.split()}:
    try: __import__(name)
    except ModuleNotFoundError: continue
    raise SystemExit(name + " is not hidden")
import numpy as np, torch
torch.set_num_threads(1)
import blockrr.study.batch as B, blockrr.study.cli
from blockrr.learning.workspace import provide
from blockrr.learning.images import ImageData, SHA256
rng, y = np.random.default_rng(0), np.arange(100).astype(np.uint8) % 10
def images(): return rng.integers(0, 17, (100, 8, 8, 1), np.uint8)
data = ImageData("digits", images(), y, images(), y, tuple("0123456789"))
SHA256["digits"] = data.sha256
provide(data)
specs = B.priority_order(["digits"], 1, [1., float("inf")], prior_fraction=.2, options={{"epochs": 1, "width": 2}})
print(B.run_cells(specs, sys.argv[1]).done)
"""


def test_bare_machine(tmp_path):
    "With torch, numpy and scipy alone the study's cells run: everything else cannot be found."
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "6" and len(list(tmp_path.glob("records/*.json"))) == 6


def test_benchmark_runs(tmp_path):
    "The benchmark's every part, tiny, on whatever device there is."
    pytest.importorskip("torchvision")
    path = tmp_path / "deep" / "b.json"
    command = [
        sys.executable,
        "tools/bench_resnet.py",
        "--tiny",
        "--device",
        "cpu",
        "--json",
        str(path),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "failed" not in done.stdout, done.stdout + done.stderr
    out = json.loads(path.read_text())
    assert set(out["variants"]) == {"float32", "bfloat16", "ordinary pipeline, float32"} and out["tiny"] is True
    rates = {name: v["images_per_second"] for name, v in out["variants"].items()}
    assert min(rates.values()) > 0 and out["parts"]["convolutions"] > 0
    ours = max(rate for name, rate in rates.items() if name == "float32")
    assert abs(out["ratio_to_float32"] - ours / rates["ordinary pipeline, float32"]) < 0.02

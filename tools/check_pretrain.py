"""The first minute on a new GPU, before the long run: is pre-training right, how fast, how much memory, which rate?

    python tools/check_pretrain.py (--pack FILE | --name NAME) [--device cuda] [--seconds 10] [--json FILE]

Right: views, loss, gradient and features of the device against the processor's, compiled against not compiled.
Fast: views a second and peak memory for several sizes of a step.
Rate: short runs at three learning rates, and one with the other loss, judged by how much of the labels released at
epsilon 1 the probe explains when each label is predicted without itself. That uses released labels only, so the choice
costs no privacy beyond the release.
"""

import argparse
import copy
import json
import math
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

import blockrr as br
from blockrr.learning.contrastive import (
    DRAWS_PER_VIEW,
    GPU,
    LOSS_FUNCTIONS,
    PretrainRecipe,
    views,
)
from blockrr.learning.data import dataset
from blockrr.learning.device import synchronize, torch_device
from blockrr.learning.encoder import Encoder, as_stored, brightest, embedder, fit_pca
from blockrr.learning.features import Features
from blockrr.learning.images import read_pack
from blockrr.learning.pretrain import PretrainRun, try_compiled

try:
    from blockrr.learning.probe import Probe
except ImportError:
    Probe = None  # the rates are then compared by their loss alone

RATES = (("vicreg", 5e-4), ("vicreg", 1e-3), ("vicreg", 2e-3), ("simclr", 1e-3))


def apart(a, b):
    "Relative distance."
    a, b = (torch.as_tensor(x).double().cpu() for x in (a, b))
    return float((a - b).norm() / b.norm())


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def gradient(z, loss):
    return torch.autograd.grad(loss(z.requires_grad_(), 4), z)[0]


def right(images, recipe, device):
    "Distances between device and processor, all of the same numbers."
    some, white = images[:64], brightest(images)
    pixels = torch.tensor(some.transpose(0, 3, 1, 2))
    draws = torch.rand(64, DRAWS_PER_VIEW, generator=seeded(0))
    z = torch.randn(4 * 64, 128, generator=seeded(1))
    there = views(pixels.to(device), draws.to(device), recipe, white=white)
    found = {"views": apart(there, views(pixels, draws, recipe, white=white))}
    for name, loss in LOSS_FUNCTIONS.items():
        found[f"{name}, value"] = apart(loss(z.to(device), 4), loss(z, 4))
    for name, loss in LOSS_FUNCTIONS.items():
        found[f"{name}, gradient"] = apart(gradient(z.clone().to(device), loss), gradient(z.clone(), loss))
    encoder = Encoder(as_stored(embedder(images, recipe)), recipe, {"white": white})
    here = encoder.features(some, "cpu")
    found["features"] = apart(encoder.features(some, device), here)
    return found


class Timed(NamedTuple):
    "A run, and a line for the table."

    run: PretrainRun
    line: dict


def gib(device):
    "Peak memory; None on a processor."
    if device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_allocated(device) / 2**30, 2)


def step_seconds(run, seconds):
    "Seconds a step, after three to warm up."
    run.begin(10**6)
    for _ in range(3):
        run.advance()
    synchronize(run.device)
    since, count = time.monotonic(), 0
    while time.monotonic() - since < seconds:
        for _ in range(4):
            run.advance()
        synchronize(run.device)
        count += 4
    return (time.monotonic() - since) / count


def speed(images, recipe, device, *, compiled, seconds):
    "How fast a recipe runs."
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start, said = time.monotonic(), []
    run = PretrainRun(images, recipe, device, compiled=compiled)
    if compiled:
        try_compiled(run, said.append)
    ready = time.monotonic() - start
    each = step_seconds(run, seconds)
    line = {
        "size": recipe.size,
        "batch": recipe.batch,
        "views": recipe.views,
        "compiled": compiled and not said,
        "said": said,
        "seconds to start": round(ready, 1),
        "ms a step": round(1000 * each, 2),
        "views a second": round(recipe.batch * recipe.views / each),
        "peak GiB": gib(device),
    }
    return Timed(run, line)


def explained(run, data):
    "Share of the variance of labels released at epsilon 1 that the probe explains, in percent."
    if Probe is None:
        return math.nan
    encoder = Encoder(as_stored(copy.deepcopy(run.net)), run.recipe, {"white": run.white})
    f = encoder.features(data.train_images, run.device)
    codes = fit_pca(f).codes(f)
    released = np.asarray(br.rr(data.n_classes, 1.0).privatize(data.train_labels, seed=0)).astype(int)
    fit = Probe(Features(codes, codes[:1], {}), cache=False).fit(released[None], data.n_classes)
    return 100 * float(fit.curve.max())


def short_run(run, rate, steps):
    "Train anew at a rate; mean loss of the last tenth."
    run.rate = rate
    run.begin(steps)
    while run.step < steps:
        run.advance()
    return round(float(run.losses[-max(1, steps // 10) :].mean()), 3)


class Check:
    "All parts, printed as they come."

    def __init__(self, data, recipe, device, seconds):
        self.data, self.recipe, self.device, self.seconds = (
            data,
            recipe,
            device,
            seconds,
        )
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self.result = {
            "torch": str(torch.__version__),
            "device": name,
            "data": data.name,
        }
        print(self.result, flush=True)

    def right(self):
        found = self.result["right"] = right(self.data.train_images, self.recipe, self.device)
        shown = {k: f"{v:.1e}" for k, v in found.items()}
        print("relative distance to the processor:", shown, flush=True)

    def speed(self, recipe, compiled, **more):
        timed = speed(
            self.data.train_images,
            recipe,
            self.device,
            compiled=compiled,
            seconds=self.seconds / 3,
        )
        self.result.setdefault("speed", []).append({**more, **timed.line})
        print(self.result["speed"][-1], flush=True)
        return timed

    def speeds(self):
        r = self.recipe
        for other in (
            r,
            replace(r, batch=2 * r.batch),
            replace(r, size=r.size * 4 // 3),
        ):
            self.speed(other, False)

    def rates(self):
        run, line = self.speed(self.recipe, True)
        steps = max(1, int(self.seconds * 1000 / line["ms a step"]))
        fresh = embedder(self.data.train_images, self.recipe, self.device).state_dict()
        found = self.result["rates"] = {}
        for loss, rate in RATES:
            if loss != run.recipe.loss:
                run, line = self.speed(replace(self.recipe, loss=loss), True, loss=loss)
            run.net.load_state_dict(fresh)
            mean = short_run(run, rate, steps)
            share = round(explained(run, self.data), 4)
            found[f"{loss} {rate:g}"] = {
                "steps": steps,
                "loss": mean,
                "explained": share,
            }
            print(loss, "at rate", rate, found[f"{loss} {rate:g}"], flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--pack", "--name", "--json"):
        parser.add_argument(name)
    parser.add_argument("--device", default="cuda")
    each = "for each learning rate; a third of it for each size of a step"
    parser.add_argument("--seconds", type=float, default=10.0, help=each)
    for name in ("size", "width", "batch", "embed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(GPU, name))
    return parser.parse_args()


def main():
    o = arguments()
    device = torch_device(o.device)
    data = read_pack(o.pack) if o.pack else dataset(o.name or "cifar10_1")
    recipe = PretrainRecipe(size=o.size, width=o.width, batch=o.batch, embed=o.embed)
    check = Check(data, recipe, device, o.seconds)
    check.right()
    check.speeds()
    check.rates()
    wrong = [k for k, v in check.result["right"].items() if not v < 1e-3]
    if o.json:
        with open(o.json, "w") as f:
            json.dump(check.result, f, indent=1)
    print("wrong:" if wrong else "right", *wrong)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()

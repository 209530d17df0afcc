"""The first minute on a new GPU, before the long run: is pre-training right here, how fast, how much memory, which rate?

    python tools/check_pretrain.py (--pack FILE | --name NAME) [--device cuda] [--seconds 10] [--json FILE]

Right: views, loss, gradient and features of the device against the processor's, compiled against not compiled.
Fast: views a second and peak memory for several sizes of a step.
Rate: short runs at three learning rates, and one with the other loss, judged by how much of the labels released at epsilon 1
the probe explains when each label is predicted without itself. That uses released labels only, so the choice costs no privacy beyond the release.
"""
import argparse, copy, json, math, time
from dataclasses import replace

import numpy as np
import torch

import blockrr as br
from blockrr.learning import pretrain as P
from blockrr.learning.data import dataset, read_pack
from blockrr.learning.features import Features

try: from blockrr.learning.probe import Probe
except ImportError: Probe = None  # the rates are then compared by their loss alone


def apart(a, b):
    "Relative distance."
    a, b = (torch.as_tensor(x).double().cpu() for x in (a, b))
    return float((a - b).norm() / b.norm())


def right(images, recipe, device):
    "Distances between device and processor, all of the same numbers."
    some, n = images[:64], 64
    pixels, draws = torch.tensor(some.transpose(0, 3, 1, 2)), torch.rand(n, P.DRAWS, generator=torch.Generator().manual_seed(0))
    white = P._white(images)
    z = torch.randn(4 * n, 128, generator=torch.Generator().manual_seed(1))
    def gradient(z, loss): return torch.autograd.grad(loss(z.requires_grad_(), 4), z)[0]
    found = {"views": apart(P.views(pixels.to(device), draws.to(device), recipe, white), P.views(pixels, draws, recipe, white)),
             **{f"{f.__name__}, value": apart(f(z.to(device), 4), f(z, 4)) for f in (P.vicreg, P.simclr)},
             **{f"{f.__name__}, gradient": apart(gradient(z.clone().to(device), f), gradient(z.clone(), f)) for f in (P.vicreg, P.simclr)}}
    encoder = P.Encoder(P._rounded(P.embedder(images, recipe)), recipe, {"white": white})
    on_cpu = encoder.features(some, "cpu")
    found["features"] = apart(encoder.features(some, device), on_cpu)
    return found


def speed(images, recipe, device, compiled, seconds):
    "(run, line for the table)."
    if device.type == "cuda": torch.cuda.reset_peak_memory_stats(device)
    start, run, said = time.monotonic(), P._Training(images, recipe, device, compiled), []
    if compiled: P._try_compiled(run, said.append)
    run.begin(10**6)
    for _ in range(3): run.advance()
    P._wait(device)
    ready, since, count = time.monotonic() - start, time.monotonic(), 0
    while time.monotonic() - since < seconds:
        for _ in range(4): run.advance()
        P._wait(device)
        count += 4
    each = (time.monotonic() - since) / count
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return run, {"size": recipe.size, "batch": recipe.batch, "views": recipe.views, "compiled": compiled and not said, "said": said, "seconds to start": round(ready, 1),
                 "ms a step": round(1000 * each, 2), "views a second": round(recipe.batch * recipe.views / each), "peak GiB": memory and round(memory, 2)}


def explained(run, images, labels, n_classes):
    "Share of the variance of labels released at epsilon 1 that the probe explains, in percent, from training images alone."
    if Probe is None: return math.nan
    net = P._rounded(copy.deepcopy(run.net))
    encoder = P.Encoder(net, run.recipe, {"white": run.white})
    f = encoder.features(images, run.device)
    codes = P.principal(f).codes(f)
    released = np.asarray(br.rr(n_classes, 1.).privatize(labels, seed=0)).astype(int)
    return 100 * float(Probe(Features(codes, codes[:1], {}), cache=False).fit(released[None], n_classes).curve.max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--pack", "--name", "--json"): parser.add_argument(name)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=10., help="for each learning rate; a third of it for each size of a step")
    for name in ("--size", "--width", "--batch", "--embed"): parser.add_argument(name, type=int, default=getattr(P.Recipe(), name[2:]))
    o = parser.parse_args()
    device, data = P._chosen(o.device), read_pack(o.pack) if o.pack else dataset(o.name or "cifar10_1")
    recipe, images = P.Recipe(size=o.size, width=o.width, batch=o.batch, embed=o.embed), data.train_images
    result = {"torch": str(torch.__version__), "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", "data": data.name}
    print(result, flush=True)
    result["right"] = right(images, recipe, device)
    print("relative distance to the processor:", {k: f"{v:.1e}" for k, v in result["right"].items()}, flush=True)
    result["speed"] = []
    for other in (recipe, replace(recipe, batch=2 * recipe.batch), replace(recipe, size=recipe.size * 4 // 3)):
        result["speed"].append(speed(images, other, device, False, o.seconds / 3)[1])
        print(result["speed"][-1], flush=True)
    run, line = speed(images, recipe, device, True, o.seconds / 3)
    result["speed"].append(line)
    print(line, flush=True)
    steps, fresh = max(1, int(o.seconds * 1000 / line["ms a step"])), P.embedder(images, recipe, device).state_dict()
    result["rates"] = {}
    for loss, rate in (("vicreg", 5e-4), ("vicreg", 1e-3), ("vicreg", 2e-3), ("simclr", 1e-3)):
        if loss != run.recipe.loss:
            run, line = speed(images, replace(recipe, loss=loss), device, True, o.seconds / 3)
            result["speed"].append({"loss": loss, **line})
            print(result["speed"][-1], flush=True)
        run.net.load_state_dict(fresh)
        run.rate = rate
        run.begin(steps)
        while run.step < steps: run.advance()
        result["rates"][f"{loss} {rate:g}"] = {"steps": steps, "loss": round(float(run.losses[-max(1, steps // 10):].mean()), 3), "explained": round(explained(run, images, data.train_labels, data.n_classes), 4)}
        print(loss, "at rate", rate, result["rates"][f"{loss} {rate:g}"], flush=True)
    wrong = [k for k, v in result["right"].items() if not v < 1e-3]
    if o.json:
        with open(o.json, "w") as f: json.dump(result, f, indent=1)
    print("wrong:" if wrong else "right", *wrong)
    raise SystemExit(bool(wrong))


if __name__ == "__main__": main()

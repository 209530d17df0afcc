"""How fast the ResNet-18 trains: ours, its variants and the ordinary pipeline, in one run; and where the time goes.

    python tools/bench_resnet.py [--pack FILE] [--minutes 4] [--json results/bench/resnet.json]   on a GPU
    python tools/bench_resnet.py --tiny                                                        anywhere, in seconds

Speeds are images/s of whole training steps, everything included: choosing images, random numbers, augmentation, mixup,
both passes, the optimiser. The floor is the arithmetic alone, at the rate given by --tflops. The ordinary pipeline is a
DataLoader with torchvision's transforms in worker processes and PyTorch's ordinary execution. The file is written anew
after every line, so a run that is cut off leaves what it has. Without --pack the images are noise: speeds are the same,
and the comparison of accuracies uses the digits.
"""

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # from the source tree, nothing installed
import numpy as np
import torch

from blockrr.learning import training as T
from blockrr.learning.augment import Draws, augment, draw_augmentation, mix, mixed_loss
from blockrr.learning.device import Execution, execution, tuned
from blockrr.learning.images import read_pack
from blockrr.learning.resnet import flops, resnet18
from blockrr.learning.store import atomic_write

KINDS = {
    "convolutions": r"conv|gemm|xmma|cutlass|wgrad|dgrad|cudnn|sm90_|nvjet|mm_",
    "optimiser": r"sgd|multi_tensor|foreach",
    "random numbers, choosing images": r"rand|distribution|sort|index|gather|scan",
    "copies": r"memcpy|memset|copy_",
    "fused normalisation and pointwise": r"triton|batch_norm|elementwise|relu|reduce",
}


class Images(NamedTuple):
    "What is trained on."

    train: np.ndarray
    test: np.ndarray


def variants(cuda, tiny):
    "Name -> Execution, the most important first."
    if not cuda:
        plain = {"float32": Execution(), "bfloat16": Execution(precision="bfloat16")}
        return plain if tiny else {"float32": plain["float32"]}
    base = execution("cuda")
    return {
        "ours: bfloat16, channels_last, compiled": base,
        "not compiled": replace(base, compile="off"),
        "CUDA graph": replace(base, compile="reduce-overhead"),
        "not channels_last": replace(base, channels_last=False),
        "float32, not compiled": replace(base, precision="float32", compile="off"),
        "max-autotune": replace(base, compile="max-autotune-no-cudagraphs"),
    }


def time_variant(how, recipe, data, steps):
    "(line, trainer)."
    if how.compile != "off":
        torch._dynamo.reset()  # what other variants compiled must not count
    start = time.perf_counter()
    trainer = T.Trainer(*data, 10, recipe=recipe, how=how)
    compiled = trainer.compiled
    prepared = time.perf_counter() - start
    if how.cuda:
        torch.cuda.reset_peak_memory_stats()
    rates = [T.speed(trainer, steps) for _ in range(3)]
    line = {
        "images_per_second": round(statistics.median(rates), 1),
        "repeats": [round(r, 1) for r in rates],
        "compiled": compiled,
        "prepare_seconds": round(prepared, 1),
        **asdict(how),
    }
    if how.cuda:
        line |= {
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "estimated_bytes": trainer.needs,
        }
    return line, trainer


class OneBatch:
    "The same weights, images and random numbers for every execution."

    def __init__(self, recipe, images):
        self.recipe, self.images = recipe, images[: recipe.batch]
        self.settings = recipe.augmentation(images)
        generator = torch.Generator().manual_seed(0)
        how = dict(settings=self.settings, generator=generator)
        self.draws = draw_augmentation(recipe.batch, recipe.batch, images.shape[1:], **how)
        self.labels = torch.randint(10, (recipe.batch,), generator=generator)

    def numbers(self, how):
        "Augmented images, loss and gradient, on the CPU."
        r = self.recipe
        model = resnet18(0, 10, self.images.shape[3], width=r.width, device=how.device)
        if how.channels_last:
            model = model.to(memory_format=torch.channels_last)
        step = T.TrainingStep(model, self.settings, r.batch, how=how)
        images = torch.tensor(self.images).to(how.device)
        draws = Draws(*(t.to(how.device) for t in self.draws))
        loss = step(images, self.labels.to(how.device), draws)
        loss.backward()
        gradient = torch.cat([p.grad.flatten().float().cpu() for p in model.parameters()])
        augmented = augment(images, draws, self.settings, constants=step.constants)
        return {
            "images": augmented.cpu(),
            "loss": loss.detach().cpu(),
            "gradient": gradient,
        }


def same_numbers(executions, recipe, data):
    "Relative errors of every execution against float32 on the CPU."
    batch = OneBatch(recipe, data.train)
    reference = batch.numbers(Execution())
    out = {}
    for name, how in executions.items():
        found = batch.numbers(how)
        out[name] = {k: float((found[k] - b).norm() / b.norm()) for k, b in reference.items()}
    return out


def kind_of(key):
    for name, pattern in KINDS.items():
        if re.search(pattern, key, re.I):
            return name
    return "other"


def profiled(once, cuda):
    "PyTorch's averages over one pass."
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as profile:
        once()
    return profile.key_averages()


def parts(trainer, steps):
    "Seconds a step by kind of work; 'waiting' is wall time in which the device had nothing to do."
    cuda, device = trainer.how.cuda, trainer.images.device
    opt = T.optimiser(trainer.model, trainer.recipe)
    chance = torch.Generator(device).manual_seed(0)
    rows = torch.arange(steps * trainer.recipe.batch, device=device) % len(trainer.images)
    order = torch.arange(len(rows), device=device)

    def once():
        trainer.epoch(T.Examples(torch.zeros_like(rows), rows), order, chance=chance, opt=opt).item()

    once()
    start = time.perf_counter()
    once()
    wall = (time.perf_counter() - start) / steps
    found = dict.fromkeys([*KINDS, "other"], 0.0)
    largest = []
    for e in profiled(once, cuda):
        seconds = (e.self_device_time_total if cuda else e.self_cpu_time_total) / 1e6 / steps
        found[kind_of(e.key)] += seconds
        largest.append((seconds, e.count // steps, e.key[:90]))
    waiting = max(wall - sum(found.values()), 0.0)
    largest.sort(reverse=True)
    return {"step_seconds": wall, **found, "waiting": waiting, "largest": largest[:15]}


def waits(trainer):
    "How often an epoch waits for the device, by PyTorch's own check."
    device = trainer.images.device
    rows = torch.arange(1024, device=device)
    examples = T.Examples(torch.zeros_like(rows), rows)
    how = dict(
        chance=torch.Generator(device).manual_seed(0),
        opt=T.optimiser(trainer.model, trainer.recipe),
    )
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            trainer.epoch(examples, rows, **how)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found = [str(w.message).splitlines()[0][:200] for w in said if "synchroniz" in str(w.message)]
    return {"count": len(found), "first": found[:3]}


class Ordinary(torch.utils.data.Dataset):
    "Images one at a time, as torchvision's CIFAR10 gives them."

    def __init__(self, images, transform):
        self.images, self.transform = images, transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        from PIL import Image

        return self.transform(Image.fromarray(self.images[i])), i % 10


def cutout(x):
    y, z = np.random.randint(0, x.shape[1]), np.random.randint(0, x.shape[2])
    x[:, max(y - 4, 0) : y + 4, max(z - 4, 0) : z + 4] = 0
    return x


def transforms(settings, size):
    "torchvision's, one image at a time."
    from torchvision import transforms as V

    return V.Compose(
        [
            V.RandomHorizontalFlip(),
            V.RandomCrop(size, settings.pad, padding_mode="reflect"),
            V.ToTensor(),
            V.Normalize(settings.mean, settings.std),
            cutout,
        ]
    )


class OrdinaryTraining:
    "PyTorch's ordinary execution of the same recipe."

    def __init__(self, recipe, data, device, *, workers, autocast):
        settings = recipe.augmentation(data.train)
        self.device, self.autocast = device, autocast
        self.loader = torch.utils.data.DataLoader(
            Ordinary(data.train, transforms(settings, data.train.shape[1])),
            recipe.batch,
            shuffle=True,
            num_workers=workers,
            pin_memory=device == "cuda",
            persistent_workers=workers > 0,
            drop_last=True,
        )
        self.model = resnet18(0, 10, data.train.shape[3], width=recipe.width, device=device).train()
        self.opt = T.optimiser(self.model, recipe)
        self.rng = np.random.default_rng(0)

    def draws(self, n):
        partner = torch.randperm(n, device=self.device)
        weight = torch.full((n,), self.rng.beta(8, 8), dtype=torch.float32, device=self.device)
        return Draws(*[None] * 5, partner, weight)

    def train(self, x, y):
        x, y = (t.to(self.device, non_blocking=True) for t in (x, y))
        draws = self.draws(len(x))
        with torch.autocast(self.device, torch.bfloat16, self.autocast):
            logits = self.model(mix(x, draws))
        loss = mixed_loss(logits.float(), y, draws)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def rate(self, work, seconds):
        "Images/s of some work on each batch; the first batch starts the clock."
        n, start = (
            0,
            None,
        )  # workers are up and kernels are loaded when the clock starts
        while start is None or time.perf_counter() - start < seconds:
            for x, y in self.loader:
                work(x, y)
                if start is None:
                    start = time.perf_counter()
                else:
                    n += len(x)
                if time.perf_counter() - start > seconds and n:
                    break
            if n == 0 and start is not None and len(self.loader) < 2:
                break
        return n / (time.perf_counter() - start)


def same_accuracy(executions, data, recipe, seeds):
    "Accuracy by seeds of a fast execution and a reference, and their difference in standard errors."
    found, accuracies = {}, []
    for name, how in executions.items():
        trainer = T.Trainer(data.train_images, data.test_images, 10, recipe=recipe, how=how)
        runs = [T.fit(trainer, data.train_labels, seed=s).predictions for s in range(seeds)]
        found[name] = [round(100 * float((p == data.test_labels).mean()), 3) for p in runs]
        found[name + "_execution"] = asdict(how)
        accuracies.append(np.array(found[name]))
    a, b = accuracies
    error = float(np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / seeds)) if seeds > 1 else float("nan")
    return {
        **found,
        "recipe": asdict(recipe),
        "images": len(data.train_images),
        "difference": round(float(a.mean() - b.mean()), 3),
        "standard_error": round(error, 3),
    }


def say(*words):
    print(*words, flush=True)


class Bench:
    "All parts in order; the file is written after each."

    def __init__(self, options):
        o = self.options = options
        self.begun = time.perf_counter()
        self.cuda = o.device.startswith("cuda")
        self.pack = read_pack(o.pack) if o.pack else None
        self.data = Images(self.pack.train_images, self.pack.test_images) if self.pack else self.noise()
        self.recipe = T.Recipe(width=4, batch=32) if o.tiny else T.PAPER
        self.steps = 2 if o.tiny else 30
        size = self.data.train.shape
        network = resnet18(channels=size[3], width=self.recipe.width)
        self.cost = 3 * flops(network, size[3:] + size[1:3])
        self.floor = o.tflops * 1e12 / self.cost if self.cuda else None
        self.out = self.about()

    def noise(self):
        rng = np.random.default_rng(0)
        sizes = (200, 50) if self.options.tiny else (33_500, 3_350)
        return Images(*(rng.integers(0, 256, (n, 32, 32, 3), np.uint8) for n in sizes))

    def about(self):
        o = self.options
        return {
            "schema": 1,
            "what": "training a ResNet-18, images per second",
            "tiny": o.tiny,
            "flop_per_image": self.cost,
            "floor_images_per_second": self.floor,
            "tflops": o.tflops if self.cuda else None,
            "batch": self.recipe.batch,
            "width": self.recipe.width,
            "device": torch.cuda.get_device_name() if self.cuda else "cpu",
            "cpus": os.cpu_count(),
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
            "variants": {},
        }

    def keep(self):
        path = Path(self.options.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as f:
            f.write((json.dumps(self.out, indent=1) + "\n").encode())

    def attempt(self, name, work, *arguments):
        "Do one part, unless the time is over; a failure is a result too."
        minutes = self.options.minutes
        if time.perf_counter() - self.begun > 60 * minutes:
            return say(f"{name}: not started, {minutes:g} minutes are over")
        try:
            return work(*arguments)
        except Exception as e:
            say(f"{name}: failed ({type(e).__name__}: {' '.join(str(e).split())[:300]})")
        finally:
            self.keep()

    def check(self, executions):
        self.out["relative_errors"] = same_numbers(executions, self.recipe, self.data)
        for name, errors in self.out["relative_errors"].items():
            shown = ", ".join(f"{k} {v:.1e}" for k, v in errors.items())
            say(f"{name:45} errors against float32 on the CPU: {shown}")

    def line(self, name, how):
        line, trainer = time_variant(how, self.recipe, self.data, self.steps)
        self.out["variants"][name] = line
        rate = line["images_per_second"]
        share = f" {rate / self.floor:7.1%} of the floor" if self.floor else ""
        say(f"{name:45} {rate:>10,.0f} images/s{share}   ready after {line['prepare_seconds']:.0f} s")
        return trainer

    def where(self, trainer):
        with tuned(self.cuda):  # as in a training
            p = self.out["parts"] = parts(trainer, 2 if self.options.tiny else 20)
            if self.cuda:
                say(
                    "waits for the device in an epoch:",
                    self.out.setdefault("waits", waits(trainer)),
                )
        times = {k: 1e3 * v for k, v in p.items() if isinstance(v, float)}
        whole = times.pop("step_seconds")
        say(f"a step takes {whole:.2f} ms: " + ", ".join(f"{k} {ms:.2f}" for k, ms in times.items()))
        if self.floor:
            say(f"the arithmetic alone would take {1e3 * self.recipe.batch / self.floor:.2f} ms")

    def ordinary(self, precision):
        "The ordinary pipeline in one precision: training, and its loader alone."
        o, name = self.options, f"ordinary pipeline, {precision}"
        workers = 0 if o.tiny else min(os.cpu_count(), 16)
        how = dict(workers=workers, autocast=precision == "bfloat16")
        plain = OrdinaryTraining(self.recipe, self.data, o.device, **how)
        seconds = 0.5 if o.tiny else 6
        rate = plain.rate(plain.train, seconds)
        alone = plain.rate(lambda x, y: None, seconds)
        best = max(v["images_per_second"] for k, v in self.out["variants"].items() if not k.startswith("ordinary"))
        line = {
            "images_per_second": round(rate, 1),
            "loader_alone": round(alone, 1),
            "workers": workers,
        }
        self.out["variants"][name] = line
        self.out[f"ratio_to_{precision}"] = round(best / rate, 2)
        ratio = f"ours is {best / rate:.1f} times as fast"
        say(f"{name:45} {rate:>10,.0f} images/s, its loader alone {alone:,.0f}; {ratio}")

    def ordinaries(self):
        for precision in ("float32",) if self.options.tiny else ("float32", "bfloat16"):
            self.ordinary(precision)

    def equal(self):
        if self.pack and self.pack.name == "cifar10_1":
            some = dict(
                train_images=self.pack.train_images[:6144],
                train_labels=self.pack.train_labels[:6144],
            )
            data, small = (
                replace(self.pack, **some),
                replace(self.recipe, epochs=10, late=2),
            )
        elif self.options.tiny:
            return
        else:
            from blockrr.learning.images import digits

            plain = dict(flip=False, pad=1, cutout=0, mixup=0)
            data, small = (
                digits(),
                T.Recipe(epochs=10, batch=128, rate=0.2, late=2, width=8, **plain),
            )
        fast = execution(self.options.device) if self.cuda else Execution(precision="bfloat16")
        executions = {"fast": fast, "reference": Execution(self.options.device)}
        e = self.out["same_accuracy"] = same_accuracy(executions, data, small, 3)
        means = f"{np.mean(e['fast']):.2f} % fast, {np.mean(e['reference']):.2f} % in float32"
        say(f"accuracy {means}: difference {e['difference']:+.2f}, standard error {e['standard_error']:.2f}")

    def run(self):
        chosen = variants(self.cuda, self.options.tiny)
        usual = {n: h for n, h in chosen.items() if h.compile in ("off", "default") and h.channels_last}
        self.attempt("numbers", self.check, usual)
        first, *others = chosen.items()
        trainer = self.attempt(first[0], self.line, *first)
        if trainer is not None:
            self.attempt("parts of a step", self.where, trainer)
        trainer = None  # its memory is wanted
        self.attempt("ordinary pipeline", self.ordinaries)
        self.attempt("accuracy", self.equal)
        for name, how in others:
            self.attempt(name, self.line, name, how)
        self.keep()
        say(f"written: {self.options.json}, after {time.perf_counter() - self.begun:.0f} s")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pack", help="images (bare pack); default: noise")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--minutes", type=float, default=4, help="no further line is started after this")
    p.add_argument(
        "--tflops",
        type=float,
        default=790,
        help="matrix rate of the device, for the floor",
    )
    p.add_argument("--json", default="results/bench/resnet.json")
    p.add_argument(
        "--tiny",
        action="store_true",
        help="a narrow network on a few images, for tests",
    )
    return p.parse_args()


if __name__ == "__main__":
    Bench(arguments()).run()

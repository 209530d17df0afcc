"""How fast the ResNet-18 trains: ours, its variants and the ordinary pipeline, in one run; what fraction of the floor, and where the rest goes.

    python tools/bench_resnet.py [--pack FILE] [--minutes 4] [--json results/bench/resnet.json]       on a GPU
    python tools/bench_resnet.py --tiny                                                               anywhere, in seconds

Speeds are images/s of whole training steps, everything included: choosing images, random numbers, augmentation, mixup, both passes,
the optimiser. The floor is the arithmetic alone, at the rate given by --tflops. The ordinary pipeline is a DataLoader with torchvision's
transforms in worker processes and PyTorch's ordinary execution. The file is written anew after every line, so a run that is cut off
leaves what it has. Without --pack the images are noise: speeds are the same, and the comparison of accuracies uses the digits.
"""
import argparse, json, os, platform, re, statistics, sys, time, warnings
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent)) # from the source tree, nothing installed
import numpy as np
import torch

from blockrr.learning import training as T
from blockrr.learning.augment import Draws, augment, draw, mix, mixed_loss
from blockrr.learning.data import atomic_write, read_pack
from blockrr.learning.resnet import flops, resnet18

KINDS = (("convolutions", r"conv|gemm|xmma|cutlass|wgrad|dgrad|cudnn|sm90_|nvjet|mm_"), ("optimiser", r"sgd|multi_tensor|foreach"),
         ("random numbers, choosing images", r"rand|distribution|sort|index|gather|scan"), ("copies", r"memcpy|memset|copy_"), ("fused normalisation and pointwise", r"triton|batch_norm|elementwise|relu|reduce"))


def variants(cuda, tiny):
    "(name, Execution), the most important first."
    if not cuda: return [("float32", T.Execution()), ("bfloat16", T.Execution(precision="bfloat16"))][:2 if tiny else 1]
    base = T.execution("cuda")
    return [("ours: bfloat16, channels_last, compiled", base), ("not compiled", replace(base, compile="off")), ("CUDA graph", replace(base, compile="reduce-overhead")),
            ("not channels_last", replace(base, channels_last=False)), ("float32, not compiled", replace(base, precision="float32", compile="off")),
            ("max-autotune", replace(base, compile="max-autotune-no-cudagraphs"))]


def time_variant(how, recipe, data, steps):
    if how.compile != "off": torch._dynamo.reset() # what other variants compiled must not count
    start = time.perf_counter()
    trainer = T.Trainer(data[0], data[1], 10, recipe, how)
    compiled = trainer.compiled
    prepared = time.perf_counter() - start
    if how.cuda: torch.cuda.reset_peak_memory_stats()
    rates = [T.speed(trainer, steps) for _ in range(3)]
    line = {"images_per_second": round(statistics.median(rates), 1), "repeats": [round(r, 1) for r in rates], "compiled": compiled, "prepare_seconds": round(prepared, 1), **asdict(how)}
    if how.cuda: line |= {"peak_bytes": torch.cuda.max_memory_allocated(), "estimated_bytes": trainer.needs}
    return line, trainer


def same_numbers(executions, recipe, data):
    "One batch, the same weights and random numbers: augmented images, loss and gradient against float32 on the CPU, as relative errors."
    batch, out, reference = recipe.batch, {}, None
    settings, gen = recipe.augmentation(data[0]), torch.Generator().manual_seed(0)
    draws, labels = draw(batch, batch, data[0].shape[1:], settings, gen), torch.randint(10, (batch,), generator=gen)
    for name, how in [("reference", T.Execution())] + executions:
        model = resnet18(0, 10, data[0].shape[3], recipe.width, how.device)
        step = T.Step(model.to(memory_format=torch.channels_last) if how.channels_last else model, settings, batch, how)
        place = lambda t: t.to(how.device)
        images, here = place(torch.tensor(data[0][:batch])), Draws(*map(place, draws))
        loss = step(images, place(labels), here)
        loss.backward()
        found = augment(images, here, settings, step.constants).cpu(), loss.detach().cpu(), torch.cat([p.grad.flatten().float().cpu() for p in model.parameters()])
        if reference is None: reference = found
        else: out[name] = {k: float((a - b).norm() / b.norm()) for k, a, b in zip(("images", "loss", "gradient"), found, reference)}
    return out


def parts(trainer, steps):
    "Seconds a step by kind of work, from PyTorch's profiler; 'waiting' is wall time in which the device had nothing to do."
    cuda, batch, device = trainer.how.cuda, trainer.recipe.batch, trainer.images.device
    opt, chance = T.optimiser(trainer.model, trainer.recipe), torch.Generator(device).manual_seed(0)
    rows = torch.arange(steps * batch, device=device) % len(trainer.images)
    once = lambda: trainer.epoch(torch.zeros_like(rows), rows, torch.arange(len(rows), device=device), chance, opt).item()
    once()
    start = time.perf_counter()
    once()
    wall = time.perf_counter() - start
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as profile: once()
    found = {name: 0. for name, _ in KINDS} | {"other": 0.}
    biggest = []
    for e in profile.key_averages():
        seconds = (e.self_device_time_total if cuda else e.self_cpu_time_total) / 1e6
        found[next((name for name, pattern in KINDS if re.search(pattern, e.key, re.I)), "other")] += seconds
        biggest.append((seconds / steps, e.count // steps, e.key[:90]))
    found = {k: v / steps for k, v in found.items()}
    return {"step_seconds": wall / steps, **found, "waiting": max(wall / steps - sum(found.values()), 0.), "largest": sorted(biggest, reverse=True)[:15]}


def waits(trainer):
    "How often an epoch waits for the device, by PyTorch's own check."
    rows, chance = torch.arange(1024, device=trainer.images.device), torch.Generator(trainer.images.device).manual_seed(0)
    opt, labels = T.optimiser(trainer.model, trainer.recipe), torch.zeros_like(rows)
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try: trainer.epoch(labels, rows, rows, chance, opt)
        finally: torch.cuda.set_sync_debug_mode("default")
    found = [str(w.message).splitlines()[0][:200] for w in said if "synchroniz" in str(w.message)]
    return {"count": len(found), "first": found[:3]}


class Ordinary(torch.utils.data.Dataset):
    "Images one at a time, as torchvision's CIFAR10 gives them."
    def __init__(self, images, transform): self.images, self.transform = images, transform
    def __len__(self): return len(self.images)
    def __getitem__(self, i):
        from PIL import Image
        return self.transform(Image.fromarray(self.images[i])), i % 10


def cutout(x):
    y, z = np.random.randint(0, x.shape[1]), np.random.randint(0, x.shape[2])
    x[:, max(y - 4, 0):y + 4, max(z - 4, 0):z + 4] = 0
    return x


def ordinary(recipe, data, device, seconds, workers, autocast):
    "The ordinary pipeline: (images/s in training, images/s of the loader alone)."
    from torchvision import transforms as V
    settings = recipe.augmentation(data[0])
    steps = [V.RandomHorizontalFlip(), V.RandomCrop(data[0].shape[1], settings.pad, padding_mode="reflect"), V.ToTensor(), V.Normalize(settings.mean, settings.std), cutout]
    loader = torch.utils.data.DataLoader(Ordinary(data[0], V.Compose(steps)), recipe.batch, shuffle=True, num_workers=workers, pin_memory=device == "cuda", persistent_workers=workers > 0, drop_last=True)
    model = resnet18(0, 10, data[0].shape[3], recipe.width, device).train()
    opt, rng = T.optimiser(model, recipe), np.random.default_rng(0)
    def train(x, y):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        other, weight = torch.randperm(len(x), device=device), torch.full((len(x),), rng.beta(8, 8), dtype=torch.float32, device=device)
        draws = Draws(*[None] * 5, other, weight)
        with torch.autocast(device, torch.bfloat16, autocast): logits = model(mix(x, draws))
        loss = mixed_loss(logits.float(), y, draws)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()
    rates = []
    for work in (train, lambda x, y: None):
        n, start, first = 0, None, True
        while start is None or time.perf_counter() - start < seconds:
            for x, y in loader:
                work(x, y)
                if first: start, first = time.perf_counter(), False # workers are up, kernels are loaded
                else: n += len(x)
                if time.perf_counter() - start > seconds and n: break
            if n == 0 and not first and len(loader) < 2: break
        rates.append(n / (time.perf_counter() - start))
    return rates


def same_accuracy(fast, slow, data, recipe, seeds):
    "Accuracy by seeds of two executions, and their difference in standard errors."
    images, test, labels, test_labels = data
    found = {}
    for name, how in (("fast", fast), ("reference", slow)):
        trainer = T.Trainer(images, test, 10, recipe, how)
        found[name] = [round(100 * float((T.fit(trainer, labels, seed=s).predictions == test_labels).mean()), 3) for s in range(seeds)]
        found[name + "_execution"] = asdict(how)
    a, b = (np.array(found[k]) for k in ("fast", "reference"))
    error = float(np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / seeds)) if seeds > 1 else float("nan")
    return {**found, "recipe": asdict(recipe), "images": len(images), "difference": round(float(a.mean() - b.mean()), 3), "standard_error": round(error, 3)}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pack", help="images (bare pack); default: noise")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--minutes", type=float, default=4, help="no further line is started after this")
    p.add_argument("--tflops", type=float, default=790, help="matrix rate of the device, for the floor")
    p.add_argument("--json", default="results/bench/resnet.json")
    p.add_argument("--tiny", action="store_true", help="a narrow network on a few images, for tests")
    o = p.parse_args()
    begun, cuda, rng = time.perf_counter(), o.device.startswith("cuda"), np.random.default_rng(0)
    recipe, steps = (T.Recipe(width=4, batch=32), 2) if o.tiny else (T.Recipe(), 30)
    images = read_pack(o.pack) if o.pack else None
    data = (images.train_images, images.test_images) if images else tuple(rng.integers(0, 256, (n, 32, 32, 3), np.uint8) for n in ((200, 50) if o.tiny else (33_500, 3_350)))
    cost = 3 * flops(resnet18(channels=data[0].shape[3], width=recipe.width), data[0].shape[3:] + data[0].shape[1:3])
    floor = o.tflops * 1e12 / cost if cuda else None
    out = {"schema": 1, "what": "training a ResNet-18, images per second", "tiny": o.tiny, "flop_per_image": cost, "floor_images_per_second": floor, "tflops": o.tflops if cuda else None,
           "batch": recipe.batch, "width": recipe.width, "device": torch.cuda.get_device_name() if cuda else "cpu", "cpus": os.cpu_count(),
           "versions": {"python": platform.python_version(), "torch": torch.__version__}, "variants": {}}
    def keep():
        Path(o.json).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(o.json) as f: f.write((json.dumps(out, indent=1) + "\n").encode())
    def attempt(name, work):
        "Do one part, unless the time is over; a failure is a result too."
        if time.perf_counter() - begun > 60 * o.minutes: return print(f"{name}: not started, {o.minutes:g} minutes are over", flush=True)
        try: return work()
        except Exception as e: print(f"{name}: failed ({type(e).__name__}: {' '.join(str(e).split())[:300]})", flush=True)
        finally: keep()

    def line(name, how):
        out["variants"][name], trainer = time_variant(how, recipe, data, steps)
        v = out["variants"][name]
        print(f"{name:45} {v['images_per_second']:>10,.0f} images/s" + (f" {v['images_per_second'] / floor:7.1%} of the floor" if floor else "") + f"   ready after {v['prepare_seconds']:.0f} s", flush=True)
        return trainer

    def where(trainer):
        with T._tuned(cuda): # as in a training
            out["parts"] = parts(trainer, 2 if o.tiny else 20)
            if cuda: print("waits for the device in an epoch:", out.setdefault("waits", waits(trainer)), flush=True)
        p = out["parts"]
        print(f"a step takes {1e3 * p['step_seconds']:.2f} ms: " + ", ".join(f"{k} {1e3 * v:.2f}" for k, v in p.items() if isinstance(v, float) and k != "step_seconds"), flush=True)
        if floor: print(f"the arithmetic alone would take {1e3 * recipe.batch / floor:.2f} ms", flush=True)

    def plain():
        workers = 0 if o.tiny else min(os.cpu_count(), 16)
        for name, autocast in (("ordinary pipeline, float32", False), ("ordinary pipeline, bfloat16", True))[:1 if o.tiny else 2]:
            rate, loader = ordinary(recipe, data, o.device, .5 if o.tiny else 6, workers, autocast)
            out["variants"][name] = {"images_per_second": round(rate, 1), "loader_alone": round(loader, 1), "workers": workers}
            best = max(v["images_per_second"] for k, v in out["variants"].items() if not k.startswith("ordinary"))
            out["ratio_to_" + name.rpartition(" ")[2]] = round(best / rate, 2)
            print(f"{name:45} {rate:>10,.0f} images/s, its loader alone {loader:,.0f}; ours is {best / rate:.1f} times as fast", flush=True)

    def equal():
        if images and images.name == "cifar10_1": chosen, small = (images.train_images[:6144], images.test_images, images.train_labels[:6144], images.test_labels), replace(recipe, epochs=10, late=2)
        elif o.tiny: return
        else:
            from blockrr.learning.data import digits
            d = digits()
            chosen, small = (d.train_images, d.test_images, d.train_labels, d.test_labels), T.Recipe(epochs=10, batch=128, rate=.2, late=2, flip=False, pad=1, cutout=0, mixup=0, width=8)
        fast = T.execution(o.device) if cuda else T.Execution(precision="bfloat16")
        e = out["same_accuracy"] = same_accuracy(fast, T.Execution(o.device), chosen, small, 3)
        print(f"accuracy {np.mean(e['fast']):.2f} % fast, {np.mean(e['reference']):.2f} % in float32: difference {e['difference']:+.2f}, standard error {e['standard_error']:.2f}", flush=True)

    def check(executions):
        out["relative_errors"] = same_numbers(executions, recipe, data)
        for name, e in out["relative_errors"].items(): print(f"{name:45} errors against float32 on the CPU: " + ", ".join(f"{k} {v:.1e}" for k, v in e.items()), flush=True)

    chosen = variants(cuda, o.tiny)
    attempt("numbers", lambda: check([(n, h) for n, h in chosen if h.compile in ("off", "default") and h.channels_last]))
    trainer = attempt(chosen[0][0], lambda: line(*chosen[0]))
    if trainer is not None: attempt("parts of a step", lambda: where(trainer))
    trainer = None
    attempt("ordinary pipeline", plain)
    attempt("accuracy", equal)
    for name, how in chosen[1:]: attempt(name, lambda: line(name, how) and None)
    keep()
    print(f"written: {o.json}, after {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__": main()

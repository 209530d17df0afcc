"""Pre-training measured: what the features are worth beside patches, and methods compared at an equal number of views.

    python tools/bench_pretrain.py features [--name cifar10_1] [--folder DIR] [--seeds 5] [--json FILE]
    python tools/bench_pretrain.py axes [--encoder FILE] [--name cifar10_1] [--json FILE]
    python tools/bench_pretrain.py methods [--views 150000] [--json FILE]
    python tools/bench_pretrain.py weights [--json FILE]

`features`: the learners probe and posterior on patches, on pre-trained features (DIR or results/pretrain) and on both
together; RR, several epsilons; overall accuracy and average over classes; mean and population standard deviation over
seeds.
`axes`: the same encoder's features by other numbers of axes, powers of their spread and steps of rounding; size of the
file.
`methods`: short runs on the processor of the laptop's recipe with other losses, equally many views each. They are
judged by how much of the labels released at epsilon 1 and 2 the probe explains when each label is predicted without
itself (no unreleased label is looked at); the clean accuracy on test images is stated as well, and nothing is chosen
by it.
`weights`: the weight of pre-trained features in `coordinates.concatenate`, judged by the held-out likelihood of
released labels that `fit_forward` reaches; three releases each at epsilon 1 and 2. --json adds to what the file holds.
"""

import argparse
import json
import math
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import blockrr as br
from blockrr.learning.contrastive import LAPTOP, LOSS_FUNCTIONS, teacher_targets
from blockrr.learning.coordinates import concatenate
from blockrr.learning.data import dataset
from blockrr.learning.encoder import Encoder, fit_pca
from blockrr.learning.features import Features
from blockrr.learning.likelihood import label_likelihood
from blockrr.learning.noise_aware import fit_forward
from blockrr.learning.pretrain import pretrain
from blockrr.learning.pretrained import pretrained_root, write_features
from blockrr.learning.probe import Probe
from blockrr.learning.workspace import WORKSPACES
from blockrr.study.experiment import run_all, score
from blockrr.study.records import provenance
from blockrr.study.spec import grid

EPSILONS = (1.0, 2.0)  # at which released labels judge


def barlow(z, n_views, recipe, off=0.005):
    "Zbontar et al. 2021, averaged over pairs of views."
    z = z.view(n_views, -1, z.shape[1])
    z = (z - z.mean(1, keepdim=True)) / (z.std(1, keepdim=True, correction=0) + 1e-5)
    total = z.sum(0)
    pairs = total.T @ total - sum(v.T @ v for v in z)
    c = pairs / (z.shape[1] * n_views * (n_views - 1))
    diagonal = c.diagonal()
    return (1 - diagonal).square().sum() + off * (c.square().sum() - diagonal.square().sum())


METHODS = {  # what differs from LAPTOP; Barlow Twins' loss stands in for the other
    "SimCLR, teacher": {},
    "SimCLR": {"teacher": 0.0},
    "VICReg, 4 views": {"teacher": 0.0, "loss": "vicreg", "views": 4},
    "VICReg, teacher": {"loss": "vicreg"},
    "Barlow Twins": {"teacher": 0.0, "loss": "vicreg"},
}


def show(line):
    print(line, flush=True)
    return line


def train(data, name, views, teacher):
    "An encoder by one of the methods."
    recipe = replace(LAPTOP, **METHODS[name])
    other = {"vicreg": barlow} if name == "Barlow Twins" else {}
    steps = views // (recipe.batch * recipe.views)
    how = dict(device="cpu", teacher=teacher if recipe.teacher else None)
    with patch.dict(LOSS_FUNCTIONS, other):
        return pretrain(data.train_images, recipe, steps, **how)


def compare(data, views, chosen):
    "One line for each method."
    teacher = teacher_targets(data)
    for name in chosen:
        encoder = train(data, name, views, teacher)
        of = Described(*(encoder.features(x, "cpu") for x in (data.train_images, data.test_images)))
        judged = judge(data, of)
        yield show(
            {
                "method": name,
                "views": views,
                "views a second": encoder.about["views_per_second"],
                **judged.explained,
                "clean test accuracy, %": judged.clean,
            }
        )


class Described(NamedTuple):
    "Features of an encoder."

    train: np.ndarray
    test: np.ndarray


class Judged(NamedTuple):
    "What a probe makes of features."

    explained: dict  # share of released labels, by epsilon
    clean: float  # accuracy with true labels
    size: int  # bytes of the file
    kept: int  # axes that it has room for


def judge(data, described, **how):
    "Features by a basis, judged by the probe."
    b = fit_pca(described.train, **how)
    codes = [b.codes(f) for f in described]
    probe = Probe(Features(*codes, {}), cache=False)
    explained = {}
    for e in EPSILONS:
        curve = probe.fit(released(data, e), data.n_classes).curve
        explained[f"explained at epsilon {e:g}, %"] = round(100 * float(curve.max(1).mean()), 3)
    with tempfile.TemporaryDirectory() as folder:
        written = write_features(Path(folder) / "x.npz", *codes, about={})
    return Judged(explained, clean(probe, data), written["bytes"], written["shape"][2])


def released(data, epsilon):
    "Three releases, int [3, n]."
    mechanism = br.rr(data.n_classes, epsilon)
    runs = [np.asarray(mechanism.privatize(data.train_labels, seed=s)) for s in range(3)]
    return np.stack(runs).astype(int)


def clean(probe, data):
    fit = probe.fit(data.train_labels[None].astype(int), data.n_classes)
    return round(score(fit.predictions[0], data.test_labels, data.n_classes)[0], 2)


CHOICES = (  # axes, power, steps
    (214, 0.5, 16),
    (214, 1.0, 16),
    (214, 0.0, 16),
    (256, 0.5, 16),
    (128, 0.5, 16),
    (64, 0.5, 16),
    (32, 0.5, 16),
    (214, 0.5, 32),
    (214, 0.5, 8),
)


def axes(data, path):
    "One line for each choice."
    encoder = Encoder.load(path)
    described = Described(*(encoder.features(x) for x in (data.train_images, data.test_images)))
    for dims, power, steps in CHOICES:
        judged = judge(data, described, dims=dims, power=power, steps=steps)
        choice = {"axes": dims, "power": power, "steps": steps}
        facts = {"clean test accuracy, %": judged.clean, "bytes": judged.size, "axes in the file": judged.kept}
        yield show({**choice, **judged.explained, **facts})


def held_out(Z, data, epsilon):
    "Mean held-out log-likelihood of `fit_forward`."
    T = br.rr(data.n_classes, epsilon).transition
    fit = fit_forward(Z, np.stack([label_likelihood(y, T) for y in released(data, epsilon)]))
    return round(float(np.mean([max(d["held_out"].values()) for d in fit.details])), 6)


def weights(data):
    "One line for each weight."
    Z = WORKSPACES[data.name].coordinates()
    other = WORKSPACES[data.name].features("pretrained")
    for weight in (1.0, 3.0, 10.0, 30.0, 100.0):
        both = concatenate(Z, other, weight, cache=False)
        found = {f"held-out log-likelihood at epsilon {e:g}": held_out(both, data, e) for e in EPSILONS}
        yield show({"weight": weight, **found})


def moments(records):
    "Mean and standard deviation of both accuracies."
    got = [(r.accuracy, np.mean(r.per_class)) for r in records]
    numbers = *np.mean(got, 0), *np.std(got, 0)
    names = "accuracy", "per class", "sd", "sd per class"
    found = {name: round(float(v), 2) for name, v in zip(names, numbers)}
    return {name: found[name] for name in ("accuracy", "sd", "per class", "sd per class")}


def specs(name, learner, kind, options):
    "The study's cells for one kind of features."
    for e in options.epsilons:
        seeds = options.seeds if math.isfinite(e) else 1
        yield from grid(name, ["rr"], [e], seeds, learner=learner, options={"features": kind})


def worth(name, options):
    "One line for each kind of features, learner and epsilon; the records are the study's."
    for kind in ("patches", "pretrained", "both"):
        for learner in ("probe", "posterior"):
            start = time.monotonic()
            records = run_all(list(specs(name, learner, kind, options)))
            for e in options.epsilons:
                of = [r for r in records if r.spec.epsilon == e]
                line = {
                    "features": kind,
                    "learner": learner,
                    "epsilon": "inf" if math.isinf(e) else e,
                }
                yield show({**line, "seeds": len(of), **moments(of)})
            print(f"{time.monotonic() - start:.0f} s", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("features", "axes", "methods", "weights"))
    for name in ("--folder", "--json"):
        parser.add_argument(name)
    parser.add_argument("--encoder", default=pretrained_root() / "encoder.pt")
    parser.add_argument("--name", default="cifar10_1")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.6, 1.0, 2.0, math.inf])
    parser.add_argument("--views", type=int, default=150_000)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    return parser.parse_args()


def measure(o, data):
    if o.what == "axes":
        return {"lines": list(axes(data, o.encoder))}
    if o.what == "weights":
        return {"lines": list(weights(data))}
    if o.what == "methods":
        return {"lines": list(compare(data, o.views, o.methods))}
    if o.folder:
        os.environ["BLOCKRR_PRETRAINED"] = o.folder
    base = "cifar10_1" if o.name == "cifar10_2" else o.name
    about = json.loads((pretrained_root() / f"{base}.json").read_text())
    return {"lines": list(worth(o.name, o)), "made_by": about}


def main():
    o = arguments()
    start = time.monotonic()
    data = dataset(o.name)
    result = measure(o, data)
    result["provenance"] = provenance(time.monotonic() - start, {data.name: data.sha256})
    if o.json:
        path = Path(o.json)
        both = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**both, o.what: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Pre-training measured: what the features are worth beside patches, and methods compared at an equal number of views.

    python tools/bench_pretrain.py features [--name cifar10_1] [--folder DIR] [--seeds 5] [--json FILE]
    python tools/bench_pretrain.py axes --encoder encoder.pt [--name cifar10_1] [--json FILE]
    python tools/bench_pretrain.py methods [--views 150000] [--json FILE]
    python tools/bench_pretrain.py weights [--json FILE]

`features`: the learners probe and posterior on patches, on pre-trained features (DIR or results/pretrain) and on both side by side;
RR, several epsilons; overall accuracy and average over classes; mean and population standard deviation over seeds.
`axes`: the same encoder's features by other numbers of axes, powers of their spread and steps of rounding; size of the file.
`methods`: short runs on the processor of the laptop's recipe with other losses, equally many views each. They are judged by how much of the labels released
at epsilon 1 and 2 the probe explains when each label is predicted without itself (no unreleased label is looked at); the clean
accuracy on test images is stated beside it, and nothing is chosen by it.
`weights`: the weight of pre-trained features beside coordinates (`coordinates.beside`), judged by the held-out likelihood of released labels
that `forward` reaches; three releases each at epsilon 1 and 2. --json adds to what the file holds.
"""
import argparse, json, math, os, tempfile, time
from dataclasses import replace
from pathlib import Path

import numpy as np

import blockrr as br
from blockrr.learning import pretrain as P
from blockrr.learning.data import dataset
from blockrr.learning.coordinates import beside
from blockrr.learning.denoise import forward, label_likelihood
from blockrr.learning.features import Features
from blockrr.learning.probe import Probe
from blockrr.study.experiment import _coordinates, _features, grid, provenance, run_all, score


def barlow(z, n_views, recipe, off=.005):
    "Zbontar et al. 2021, averaged over pairs of views."
    z = z.view(n_views, -1, z.shape[1])
    z = (z - z.mean(1, keepdim=True)) / (z.std(1, keepdim=True, correction=0) + 1e-5)
    c = (z.sum(0).T @ z.sum(0) - sum(v.T @ v for v in z)) / (z.shape[1] * n_views * (n_views - 1))
    return (1 - c.diagonal()).square().sum() + off * (c.square().sum() - c.diagonal().square().sum())


METHODS = {"SimCLR, teacher": {}, "SimCLR": {"teacher": 0.}, "VICReg, 4 views": {"teacher": 0., "loss": "vicreg", "views": 4}, "VICReg, teacher": {"loss": "vicreg"},
           "Barlow Twins": {"teacher": 0., "loss": "vicreg"}}  # what differs from P.LAPTOP; Barlow Twins' loss stands in for the other


def compare(data, views, chosen):
    "One line for each method."
    teacher = P.descriptions(data)
    for name in chosen:
        recipe, usual = replace(P.LAPTOP, **METHODS[name]), P.vicreg
        if name == "Barlow Twins": P.vicreg = barlow
        try: encoder = P.pretrain(data.train_images, recipe, steps=views // (recipe.batch * recipe.views), device="cpu", teacher=teacher if recipe.teacher else None)
        finally: P.vicreg = usual
        f, g = (encoder.features(x, "cpu") for x in (data.train_images, data.test_images))
        probe, found, _ = explained(data, f, g)
        line = {"method": name, "views": views, "views a second": encoder.about["views_per_second"], **found, "clean test accuracy, %": clean(probe, data)}
        print(line, flush=True)
        yield line


def explained(data, f, g, **how):
    "(probe, what it explains of released labels, bytes of the file)."
    b = P.principal(f, **how)
    codes = b.codes(f), b.codes(g)
    probe = Probe(Features(*codes, {}), cache=False)
    found = {f"explained at epsilon {e:g}, %": round(100 * float(probe.fit(released(data, e), data.n_classes).curve.max(1).mean()), 3) for e in (1., 2.)}
    with tempfile.TemporaryDirectory() as folder: return probe, found, P.write_features(Path(folder) / "x.npz", *codes, {})["bytes"]


def released(data, epsilon): return np.stack([np.asarray(br.rr(data.n_classes, epsilon).privatize(data.train_labels, seed=s)) for s in range(3)]).astype(int)


def clean(probe, data): return round(score(probe.fit(data.train_labels[None].astype(int), data.n_classes).predictions[0], data.test_labels, data.n_classes)[0], 2)


def axes(data, path):
    "One line for each choice."
    encoder = P.Encoder.load(path)
    f, g = (encoder.features(x) for x in (data.train_images, data.test_images))
    for dims, power, steps in ((128, .5, 32), (128, 1., 32), (128, 0., 32), (64, .5, 32), (32, .5, 32), (128, .5, 16), (128, .5, 8), (128, 1., 127)):
        probe, found, size = explained(data, f, g, dims=dims, power=power, steps=steps)
        line = {"axes": dims, "power": power, "steps": steps, **found, "clean test accuracy, %": clean(probe, data), "bytes": size}
        print(line, flush=True)
        yield line


def weights(data):
    "One line for each weight."
    Z, other = _coordinates(data.name)[1], _features(data.name, "pretrained")[1]
    for weight in (1., 3., 10., 30., 100.):
        both, line = beside(Z, other, weight, cache=False), {"weight": weight}
        for e in (1., 2.):
            T = br.rr(data.n_classes, e).transition
            found = forward(both, np.stack([label_likelihood(y, T) for y in released(data, e)]))
            line[f"held-out log-likelihood at epsilon {e:g}"] = round(float(np.mean([max(d["held_out"].values()) for d in found.details])), 6)
        print(line, flush=True)
        yield line


def worth(name, seeds, epsilons):
    "One line for each kind of features, learner and epsilon; the records are the study's."
    for kind in ("patches", "pretrained", "both"):
        for learner in ("probe", "posterior"):
            start = time.monotonic()
            specs = [s for e in epsilons for s in grid(name, ["rr"], [e], seeds if math.isfinite(e) else 1, learner=learner, options={"features": kind})]
            records = run_all(specs)
            for e in epsilons:
                got = [(r.accuracy, np.mean(r.per_class)) for r in records if r.spec.epsilon == e]
                (a, c), (sd, sc) = np.mean(got, 0), np.std(got, 0)
                line = {"features": kind, "learner": learner, "epsilon": "inf" if math.isinf(e) else e, "seeds": len(got),
                        **{k: round(float(v), 2) for k, v in (("accuracy", a), ("sd", sd), ("per class", c), ("sd per class", sc))}}
                print(line, flush=True)
                yield line
            print(f"{time.monotonic() - start:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("features", "axes", "methods", "weights"))
    for name in ("--folder", "--encoder", "--json"): parser.add_argument(name)
    parser.add_argument("--name", default="cifar10_1")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[.6, 1., 2., math.inf])
    parser.add_argument("--views", type=int, default=150_000)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    o = parser.parse_args()
    start, data = time.monotonic(), dataset(o.name)
    if o.what == "features":
        if o.folder: os.environ["BLOCKRR_PRETRAINED"] = o.folder
        about = json.loads((P.pretrained_root() / f"{'cifar10_1' if o.name == 'cifar10_2' else o.name}.json").read_text())
        result = {"lines": list(worth(o.name, o.seeds, o.epsilons)), "made_by": about}
    elif o.what == "axes": result = {"lines": list(axes(data, o.encoder))}
    elif o.what == "weights": result = {"lines": list(weights(data))}
    else: result = {"lines": list(compare(data, o.views, o.methods))}
    result["provenance"] = provenance(time.monotonic() - start, {data.name: data.sha256})
    if o.json:
        path = Path(o.json)
        both = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**both, o.what: result}, indent=1) + "\n")


if __name__ == "__main__": main()

"""Draw nbs/accuracy.png, the README's picture, from the records; or check that it shows them (--check).

The file holds the digest of the numbers that were drawn, so that a picture of other records is noticed.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
from PIL import Image

from blockrr.study.frames import read_records
from blockrr.study.paper import printed

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "nbs" / "accuracy.png"
DATASET, LAST = "cifar10_1", 12.0  # where infinity is drawn
PRE_TRAINED = {"features": "both"}


def means(frame) -> dict:  # epsilon -> [mean, standard deviation], in percent
    runs = frame.groupby("epsilon").accuracy
    return {e: [round(m, 2), round(s, 2)] for e, m, s in zip(runs.groups, runs.mean(), runs.std(ddof=0))}


def curves() -> dict:  # name -> {epsilon: [mean, standard deviation]}
    "Read what is drawn."
    laptop, learners, sets, network = (
        read_records(ROOT / "results" / name / "records") for name in ("laptop", "learners", "sets", "network")
    )
    paper = printed("overall").query("dataset == @DATASET and not misprint").groupby("epsilon").value.max()
    known = pd.concat([sets, learners]).query("dataset == @DATASET and learner == 'forward'")
    known = known[known.options.map(lambda o: o == PRE_TRAINED)]
    known = known.drop_duplicates(["epsilon", "mechanism", "seed"])  # the studies share cells
    main = laptop[(laptop.mechanism == "rr") & (laptop.dataset == DATASET)]
    believed = network.query("dataset == @DATASET and learner == 'network' and mechanism == 'rr' and seed < 2")
    twice = believed.groupby("epsilon").filter(lambda runs: len(runs) == 2)
    return {
        "paper's best of three (ResNet-18, GPU)": {e: [v, 0] for e, v in paper.items()},
        "ours: ridge on RR": means(main),
        "ours: small network on RR (two seeds, test-time views)": means(twice),
        "ours: likelihood on RR": means(known[known.mechanism == "rr"]),
        "ours: likelihood on sets": means(known[known.mechanism == "subset"]),
    }


def digest(numbers: dict) -> str:
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()


def draw(numbers: dict):
    looks = [
        ("black", "--", "s"),
        ("#999933", "-", "v"),
        ("#AA4499", "-", "^"),
        ("#4477AA", "-", "o"),
        ("#CC3311", "-", "D"),
    ]
    fig, ax = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    for (name, points), (colour, line, mark) in zip(numbers.items(), looks):
        where = [min(e, LAST) for e in points]
        mean, spread = zip(*points.values())
        ax.errorbar(where, mean, spread, color=colour, ls=line, marker=mark, ms=4, lw=1.6, label=name)
    ax.set_xscale("log")
    ticks = [0.2, 0.4, 0.6, 1, 2, 4, 8, LAST]
    ax.set_xticks(ticks, [*(f"{t:g}" for t in ticks[:-1]), "∞"])
    ax.minorticks_off()
    ax.set(xlabel="label-DP epsilon (log scale)", ylabel="test accuracy (%)", title="CIFAR-10$_1$, ten seeds")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=9, loc="lower right")
    fig.savefig(PICTURE, dpi=110, metadata={"Numbers": digest(numbers), "Software": None})
    plt.close(fig)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    numbers = curves()
    if not parser.parse_args().check:
        matplotlib.use("agg")
        draw(numbers)
        print(f"wrote {PICTURE.relative_to(ROOT)}")
    elif Image.open(PICTURE).info.get("Numbers") != digest(numbers):
        sys.exit("nbs/accuracy.png shows other records: run python tools/front_picture.py")
    else:
        print("nbs/accuracy.png shows the records")

"""How fast the small network trains beside the paper's ResNet-18 on this machine, and to what accuracy in what time.

    python tools/bench_network.py [--epochs 4] [--width 32] [--json results/bench/network.json]

Both train on the images of CIFAR-10_1 with their true labels, in the same process, the same number of threads; every
speed is the median of three timings of whole steps. The small network is then trained in full, and for the ResNet-18
it is said how many of its epochs pass in the same time: no accuracy of it is measured here, a training takes hours.
Run it alone: beside another busy process two threads are ten times slower.
"""

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # from the source tree, nothing installed
import torch

from blockrr.learning import training
from blockrr.learning.data import dataset
from blockrr.learning.device import Execution, processor_name
from blockrr.learning.network import Network, NetworkRecipe
from blockrr.learning.network_targets import label_targets
from blockrr.learning.network_training import NetworkTrainer, fit_network, step_seconds
from blockrr.learning.resnet import flops, resnet18
from blockrr.learning.store import atomic_write
from blockrr.study.experiment import score

DATASET = "cifar10_1"


def network_speed(data, width, how) -> dict:
    "Images a second of the small network."
    trainer = NetworkTrainer(data.train_images, data.test_images, 10, recipe=NetworkRecipe(width=width), how=how)
    found = [trainer.recipe.batch / step_seconds(trainer) for _ in range(3)]
    return {"network": f"small, width {width}", "images_per_second": statistics.median(found)}


def resnet_speed(data, how) -> dict:
    "Images a second of the ResNet-18 by the paper's recipe."
    trainer = training.Trainer(data.train_images, data.test_images, 10, how=how)
    training.speed(trainer, 1)
    found = [training.speed(trainer, 1) for _ in range(3)]
    return {"network": "ResNet-18, the paper's", "images_per_second": statistics.median(found)}


def speeds(data) -> list:
    "Every network in both arithmetics."
    found = []
    for precision in ("float32", "bfloat16"):
        how = Execution("cpu", precision=precision)
        for line in (network_speed(data, 32, how), network_speed(data, 64, how), resnet_speed(data, how)):
            seconds = len(data.train_images) / line["images_per_second"]
            found.append(line | {"precision": precision, "seconds_an_epoch": round(seconds, 1)})
            print(found[-1], flush=True)
    return found


def in_full(data, width, epochs) -> dict:
    "Train the small network, and score it."
    recipe = NetworkRecipe(width=width, epochs=epochs, smoothing=0.2)
    trainer = NetworkTrainer(data.train_images, data.test_images, 10, recipe=recipe)
    start = time.perf_counter()
    fit = fit_network(trainer, label_targets(data.train_labels, 10), seed=0)
    seconds = time.perf_counter() - start
    found = {"width": width, "epochs": epochs, "seconds": round(seconds, 1), "precision": trainer.how.precision}
    for name, logits in (("with views", fit.logits), ("without views", fit.plain)):
        accuracy, per_class = score(logits.argmax(1), data.test_labels, 10)
        found[name] = {"accuracy": round(accuracy, 2), "average": round(sum(per_class) / 10, 2)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    data = dataset(DATASET)
    sizes = {f"small, width {w}": flops(Network(10, 3, w), (3, 32, 32)) for w in (32, 64)}
    sizes["ResNet-18, the paper's"] = flops(resnet18(), (3, 32, 32))
    found = {"data": DATASET, "labels": "true", "flops_forward": sizes, "speeds": speeds(data)}
    found["trained"] = in_full(data, asked.width, asked.epochs)
    fastest = min(r["seconds_an_epoch"] for r in found["speeds"] if r["network"].startswith("ResNet"))
    found["resnet_epochs_in_the_same_time"] = round(found["trained"]["seconds"] / fastest, 2)
    found["provenance"] = {
        "device": f"{processor_name()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "recipe": asdict(NetworkRecipe()),
    }
    print(json.dumps(found["trained"]), found["resnet_epochs_in_the_same_time"], flush=True)
    if asked.json:
        with atomic_write(asked.json) as f:
            f.write((json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()

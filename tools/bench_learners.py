"""Processor seconds of each noise-aware learner: ten releases of CIFAR-10_1 by randomized response at epsilon 1, one thread.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 python tools/bench_learners.py results/bench/learners.json
"""
import json
import sys
import time

from blockrr.learning.data import dataset
from blockrr.study.experiment import _LEARN, _coordinates, _probe, grid, provenance, release_labels

LEARNERS = ("probe", "backward", "calibrated", "posterior", "consensus", "forward")


def main(path):
    data = dataset("cifar10_1")
    _probe("cifar10_1"), _coordinates("cifar10_1")  # label-free: computed once, not counted
    start, found = time.perf_counter(), {}
    for name in LEARNERS:
        specs = grid("cifar10_1", ["rr"], [1], 10, learner=name)
        released = [release_labels(s, data.train_labels, data.n_classes) for s in specs]
        begin = time.process_time()
        _LEARN[name]("cifar10_1", specs, released)
        found[name] = round((time.process_time() - begin)/len(specs), 3)
    about = provenance(time.perf_counter() - start, {"cifar10_1": data.sha256})
    with open(path, "w") as f: json.dump({"schema": 1, "provenance": about, "processor_seconds_per_run": found}, f, indent=1)
    print(found)


if __name__ == "__main__": main(sys.argv[1])

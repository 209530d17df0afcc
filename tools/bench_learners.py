"""Processor seconds of each noise-aware learner: ten releases of CIFAR-10_1 by randomized response at epsilon 1, one thread.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 python tools/bench_learners.py results/bench/learners.json [--run runs/learners]

--run adds how long a finished run of the profile took, by the dates of its files, if nothing stopped it: from features that are computed to the report.
"""
import argparse
import json
import time
from pathlib import Path

from blockrr.learning.data import dataset
from blockrr.study.experiment import _LEARN, _coordinates, _probe, grid, provenance, release_labels

LEARNERS = ("probe", "backward", "calibrated", "posterior", "consensus", "forward")


def run_times(folder):
    "Minutes of a finished run, from the dates of its files, and of its slices one after the other, by their kind."
    made = [f.stat().st_mtime for f in (folder / "prepared" / "features.json", folder / "report.html")]
    if made[1] <= made[0]: raise SystemExit(f"--run: the files of {folder} are not in the order in which a run makes them; were they copied?")
    kinds, commits = {}, set()
    for f in (folder / "records").glob("*.json"):
        part = f.stem.split("-")[1] if f.stem.count("-") > 1 else "all learners"
        about = json.loads(f.read_text())["provenance"]
        kinds[part] = kinds.get(part, 0) + about["wall_seconds"]
        commits.add(about["commit"])
    return {"commits": sorted(commits), "minutes": round((made[1] - made[0])/60, 1), "minutes_of_slices": {k: round(v/60, 1) for k, v in sorted(kinds.items())}}


def main(path, run=None):
    whole = {} if run is None else {"run": run_times(Path(run))}
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
    with open(path, "w") as f: json.dump({"schema": 1, "provenance": about, "processor_seconds_per_run": found, **whole}, f, indent=1)
    print(found, whole)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--run", help="folder of a finished run")
    given = parser.parse_args()
    main(given.output, given.run)

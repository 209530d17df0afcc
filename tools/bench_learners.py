"""Processor seconds of each noise-aware learner: ten releases of CIFAR-10_1 by randomized response at epsilon 1.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 \\
        python tools/bench_learners.py results/bench/learners.json [--run runs/learners]

--run adds how long a finished run of the profile took, by the dates of its files, if nothing stopped it:
from features that are computed to the report.
"""

import argparse
import json
import time
from pathlib import Path

from blockrr.learning.data import dataset
from blockrr.learning.workspace import WORKSPACES
from blockrr.study.experiment import release_labels
from blockrr.study.learners import LEARNERS
from blockrr.study.records import provenance
from blockrr.study.spec import grid

DATA = "cifar10_1"
TIMED = [name for name, row in LEARNERS.items() if row.pace is None]


def minutes(seconds):
    return round(seconds / 60, 1)


def kind(path):
    "The kind of a slice, from the name of its records."
    name = path.stem
    return name.split("-")[1] if name.count("-") > 1 else "all learners"


def run_times(folder):
    "Minutes of a finished run, from the dates of its files, and of its slices one after the other."
    first, last = (f.stat().st_mtime for f in (folder / "prepared" / "features.json", folder / "report.html"))
    if last <= first:
        raise SystemExit(
            f"--run: the files of {folder} are not in the order in which a run makes them; were they copied?"
        )
    seconds, commits = {}, set()
    for path in (folder / "records").glob("*.json"):
        about = json.loads(path.read_text())["provenance"]
        seconds[kind(path)] = seconds.get(kind(path), 0) + about["wall_seconds"]
        commits.add(about["commit"])
    return {
        "commits": sorted(commits),
        "minutes": minutes(last - first),
        "minutes_of_slices": {name: minutes(s) for name, s in sorted(seconds.items())},
    }


def time_learner(name, data):
    "Processor seconds a run."
    specs = grid(DATA, ["rr"], [1], 10, learner=name)
    released = [release_labels(s, data.train_labels, data.n_classes) for s in specs]
    start = time.process_time()
    LEARNERS[name].fit(WORKSPACES[DATA], specs, released)
    return round((time.process_time() - start) / len(specs), 3)


def main(path, run=None):
    whole = {} if run is None else {"run": run_times(Path(run))}
    data = dataset(DATA)
    WORKSPACES[DATA].probe()  # label-free: computed once, not counted
    WORKSPACES[DATA].coordinates()
    start = time.perf_counter()
    found = {name: time_learner(name, data) for name in TIMED}
    about = provenance(time.perf_counter() - start, {DATA: data.sha256})
    result = {
        "schema": 1,
        "provenance": about,
        "processor_seconds_per_run": found,
        **whole,
    }
    Path(path).write_text(json.dumps(result, indent=1))
    print(found, whole)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--run", help="folder of a finished run")
    given = parser.parse_args()
    main(given.output, given.run)

"""Times of the promises in the README: import, a release of ten million labels, and (with --study) the laptop profile.

    python tools/benchmark.py            import and release
    python tools/benchmark.py --study    also the laptop profile with an empty cache, and a run with nothing to do
    python tools/benchmark.py --study --output results/bench/study.json    the same, kept as a record

Figures are medians over --runs repetitions (the study runs once); ratios are against a peer in the same process.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def timed(f, runs):
    "Median seconds of f()."
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def import_time(runs):
    "Seconds of `import blockrr` in a fresh interpreter, an empty interpreter subtracted."

    def run(code):
        return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True), runs)

    return run("import blockrr") - run("pass")


def release_times(n, runs):
    "Rows of (what, seconds) for n labels of ten classes."
    import numpy as np

    import blockrr as br

    y = np.random.default_rng(0).integers(0, 10, n)
    m, rng, p = br.rr(10, 1.0), np.random.default_rng(0), br.rr(10, 1.0).transition[0, 0]

    def ordinary():  # keep with probability p, else one of the nine others
        other = rng.integers(0, 9, n)
        return np.where(rng.random(n) < p, y, other + (other >= y))

    return [
        (f"ordinary vectorised RR, {n:,} int64 labels", timed(ordinary, runs)),
        (f"Mechanism.privatize, secure bits, {n:,} int64 labels", timed(lambda: m.privatize(y), runs)),
        (
            f"br.release (BlockRR with private prior), {n:,} int64 labels",
            timed(lambda: br.release(y, 1.0, 10, "block_rr"), runs),
        ),
    ]


def study(profile):
    "Rows for a first run with an empty feature cache and for a second one with nothing to do."
    command = [str(Path(sys.executable).parent / "blockrr"), "reproduce", "--profile", profile]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "BLOCKRR_CACHE": f"{folder}/cache"}

        def run():
            output = ["--output", f"{folder}/out"]
            subprocess.run([*command, *output], check=True, env=env, stdout=subprocess.DEVNULL)

        first, second = timed(run, 1), timed(run, 1)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return [
        (f"{profile} profile with features, CIFAR-10 on disk", first),
        (f"{profile} profile again, nothing to do", second),
    ], peak


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--study", nargs="?", const="laptop", help="a profile (laptop)")
    parser.add_argument("--output", help="JSON file for the figures")
    options = parser.parse_args()
    from blockrr.study.records import provenance

    start, peak = time.perf_counter(), None
    rows = [("import blockrr", import_time(options.runs)), *release_times(10_000_000, options.runs)]
    if options.study:
        more, peak = study(options.study)
        rows += more
    result = {
        "seconds": {what: round(seconds, 3) for what, seconds in rows},
        "ordinary_over_privatize": round(rows[1][1] / rows[2][1], 2),
        "runs": options.runs,
        "study_peak_gib_of_one_process": peak and round(peak, 2),
        "provenance": provenance(time.perf_counter() - start, {}),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.output:
        Path(options.output).write_text(text + "\n")

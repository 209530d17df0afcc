"""Times of the promises in the README: import, a release of ten million labels, and (with --study) the laptop profile.

    python tools/benchmark.py            import and release
    python tools/benchmark.py --study    also the whole laptop profile with an empty cache, and a second run with nothing to do

Figures are medians over --runs repetitions (the study runs once); ratios are against a peer in the same process.
"""
import argparse
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
    run = lambda code: timed(lambda: subprocess.run([sys.executable, "-c", code], check=True), runs)
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

    return [(f"ordinary vectorised RR, {n:,} int64 labels", timed(ordinary, runs)),
            (f"Mechanism.privatize, secure bits, {n:,} int64 labels", timed(lambda: m.privatize(y), runs)),
            (f"br.release (BlockRR with private prior), {n:,} int64 labels", timed(lambda: br.release(y, 1.0, 10), runs))]


def study(profile):
    "Rows for a first run with an empty feature cache and for a second one with nothing to do."
    command = [str(Path(sys.executable).parent / "blockrr"), "reproduce", "--profile", profile]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "BLOCKRR_CACHE": f"{folder}/cache"}
        run = lambda: subprocess.run([*command, "--output", f"{folder}/out"], check=True, env=env, stdout=subprocess.DEVNULL)
        first, second = timed(run, 1), timed(run, 1)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return [(f"{profile} profile, empty cache", first), (f"{profile} profile again, nothing to do", second)], peak


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--study", nargs="?", const="laptop", help="a profile (laptop)")
    options = parser.parse_args()
    from blockrr.study.experiment import _processor
    print(f"{_processor()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    rows = [("import blockrr", import_time(options.runs)), *release_times(10_000_000, options.runs)]
    for what, seconds in rows: print(f"{seconds:9.3f} s  {what}")
    print(f"{rows[1][1] / rows[2][1]:9.2f} ×  ordinary / privatize")
    if options.study:
        more, peak = study(options.study)
        for what, seconds in more: print(f"{seconds:9.1f} s  {what}")
        print(f"{peak:9.2f} GiB  largest single process of the study")

"""How long the optimal bins take, and how much memory, for k public values.

    python tools/bench_bins.py [--sizes 100,400,2000,5000] [--repeats 5] [--epsilon 3] [--json FILE]

Every size and loss runs in a process of its own. "seconds" is the median over the repeats of one call of rr_on_bins
(bins, table, integers); "peak MB" is the process's largest resident memory, Python and NumPy included. Of the
"base MB" of it, nothing is due to the bins: it is what the process held after its imports.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time

import numpy as np


def one(k, loss, epsilon, repeats):
    import blockrr as br

    rng = np.random.default_rng(k)
    values, prior = np.sort(rng.gamma(1, 50, k)), rng.dirichlet(np.full(k, 2.0))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        m = br.rr_on_bins(values, prior, epsilon, loss)
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return dict(
        k=k,
        loss=loss,
        epsilon=epsilon,
        bins=len(m.outputs),
        seconds=round(statistics.median(times), 4),
        slowest=round(max(times), 4),
        peak_mb=round(peak / 1024),
        base_mb=round(base / 1024),
        holds=m.certify().holds,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,400,2000,5000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", help="write the record here")
    o = parser.parse_args()
    if o.one:
        k, loss = o.one.split(":")
        return print(json.dumps(one(int(k), loss, o.epsilon, o.repeats)))
    rows = []
    print(f"{'k':>6} {'loss':>9} {'bins':>5} {'seconds':>9} {'slowest':>9} {'peak MB':>8} {'base MB':>8}")
    for k in map(int, o.sizes.split(",")):
        for loss in ("squared", "absolute", "poisson"):
            command = [
                sys.executable,
                __file__,
                "--one",
                f"{k}:{loss}",
                "--epsilon",
                str(o.epsilon),
                "--repeats",
                str(o.repeats),
            ]
            r = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append(r)
            print(
                f"{r['k']:6} {r['loss']:>9} {r['bins']:5} {r['seconds']:9.4f} {r['slowest']:9.4f} "
                f"{r['peak_mb']:8} {r['base_mb']:8}",
                flush=True,
            )
    if o.json:
        from blockrr import __version__

        record = dict(
            schema=1,
            what="rr_on_bins",
            repeats=o.repeats,
            machine=dict(cpus=os.cpu_count(), processor=platform.machine(), system=platform.system()),
            versions=dict(python=platform.python_version(), numpy=np.__version__, blockrr=__version__),
            rows=rows,
        )
        with open(o.json + ".part", "w", encoding="utf-8") as f:
            json.dump(record, f, indent=1)
        os.replace(o.json + ".part", o.json)


if __name__ == "__main__":
    main()

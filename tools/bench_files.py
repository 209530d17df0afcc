"""How long a column of a large CSV file takes to release, and how much memory, beside pandas and our Python call.

    python tools/bench_files.py [--rows 5000000] [--json FILE]

Every way runs in a process of its own and reads and writes the same file: ids, a short text, three numbers and a label.
"seconds" is wall time, "cpu" the processor's, imports left out; "peak MB" is the process's largest resident memory.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

DOMAIN = ["never", "once", "often", "always"]


def make(path, rows):
    "Write the file, a piece at a time."
    import pyarrow as pa
    import pyarrow.csv

    rng = np.random.default_rng(7)
    kinds = pa.array([f"town {i}" for i in range(500)])
    with open(path, "wb") as f:
        for start in range(0, rows, 500_000):
            n = min(500_000, rows - start)
            table = pa.table(
                {
                    "id": np.arange(start, start + n),
                    "town": kinds.take(pa.array(rng.integers(0, 500, n))),
                    "a": rng.integers(0, 100_000, n),
                    "b": rng.random(n).round(6),
                    "c": rng.integers(18, 90, n),
                    "answer": pa.array(DOMAIN).take(pa.array(rng.integers(0, 4, n))),
                }
            )
            options = pyarrow.csv.WriteOptions(include_header=start == 0, quoting_style="none")
            pyarrow.csv.write_csv(table, f, options)


def command(source, target):
    from blockrr.study.files import release_file

    return lambda: release_file(source, target, "answer", DOMAIN, 1, method="rr")


def pandas_and_call(source, target):
    import pandas as pd

    import blockrr as br

    def run():
        frame = pd.read_csv(source)
        frame["answer"] = br.release(frame["answer"], 1, DOMAIN, "rr").labels
        frame.to_csv(target, index=False)

    return run


def bare_command(source, target):
    from blockrr.study import files

    files.LARGE = 1 << 60  # as without PyArrow
    return command(source, target)


WAYS = {"blockrr release": command, "pandas + br.release": pandas_and_call, "blockrr release, bare": bare_command}


def one(way, source, target):
    run = WAYS[way](source, target)
    start, used = time.perf_counter(), time.process_time()
    run()
    seconds, used = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"name": way, "seconds": round(seconds, 2), "cpu": round(used, 2), "peak_mb": round(peak)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--json", help="write the figures here as well")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args, start = parser.parse_args(), time.perf_counter()
    if args.one:
        return one(*args.one)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "survey.csv"
        make(source, args.rows)
        size = source.stat().st_size
        print(f"{args.rows:,} rows, {size / 1e6:.0f} MB, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        for i, way in enumerate(WAYS):
            target = Path(folder) / f"out{i}.csv"
            again = [sys.executable, __file__, "--one", way, source, target]
            done = subprocess.run(list(map(str, again)), capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(found[-1], flush=True)
            target.unlink()
    if args.json:
        from blockrr.study.records import provenance

        facts = {"rows": args.rows, "bytes": size, "load": os.getloadavg()[0], "ways": found}
        with open(args.json, "w") as f:
            json.dump({"provenance": provenance(time.perf_counter() - start, {}), **facts}, f, indent=1)


if __name__ == "__main__":
    sys.exit(main())

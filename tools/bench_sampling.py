"""How long a released label takes: ours, ordinary NumPy, the random bits alone, and two public libraries, in one run.

    python tools/bench_sampling.py [--labels 10000000] [--repeats 7] [--epsilon 1] [--json FILE]

Every line is the median over the repeats, and the contestants take turns, so that a busy machine slows all alike.
"x ordinary" is the median over the repeats of the ratio within one turn. The public libraries are optional
(multi-freq-ldpy, opendp, pure-ldp): those that cannot be imported are listed as absent. They release label by label
and get fewer labels.
"Extra memory" is what NumPy and Python allocate beyond the released column, for n and for 4 n labels.
"""

import argparse
import json
import math
import os
import pickle
import platform
import statistics
import sys
import time
import tracemalloc

import numpy as np

import blockrr as br
from blockrr.privacy.sampling import RandomBits

K, CHUNK, LONG = 10, 1 << 18, "blockrr K=10, uint8, 8 n labels"


def ordinary(y, epsilon, rng):
    "Randomized response as it is usually written: keep with probability p, else another label."
    p = math.exp(epsilon) / (math.exp(epsilon) + K - 1)
    other = (y + rng.integers(1, K, len(y), dtype=y.dtype)) % y.dtype.type(K)
    return np.where(rng.random(len(y)) < p, y, other)


def raw_bits(n, bits_each):
    "The floor: secure random bits of the length that n labels need, nothing else."
    bits, buffer = RandomBits(), np.empty(CHUNK + 15, np.uint8)
    for _ in range(n * bits_each // 8 // CHUNK):
        bits.fill(buffer, CHUNK)


def peers(epsilon):
    "(name, function from a list of labels to released ones) for the public libraries that are there; then the others."
    there, absent = [], []
    p = math.exp(epsilon) / (math.exp(epsilon) + K - 1)
    try:
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client

        there.append(("multi-freq-ldpy GRR_Client", lambda ys: [GRR_Client(y, K, epsilon) for y in ys]))
    except ImportError as e:
        absent.append(f"multi-freq-ldpy ({e})")
    try:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        respond = dp.m.make_randomized_response(list(range(K)), p)
        there.append(("opendp make_randomized_response", lambda ys: [respond(y) for y in ys]))
    except ImportError as e:
        absent.append(f"opendp ({e})")
    try:
        from pure_ldp.frequency_oracles.direct_encoding import DEClient

        client = DEClient(epsilon=epsilon, d=K)
        there.append(("pure-ldp DEClient", lambda ys: [client.privatise(y + 1) for y in ys]))
    except ImportError as e:
        absent.append(f"pure-ldp ({e})")
    return there, absent


def contestants(n, epsilon):
    "(name, labels, function of no argument)"
    rng = np.random.default_rng()
    small, large = br.rr(K, epsilon), br.rr(1000, epsilon)
    y, long = (
        rng.integers(0, K, size, dtype=np.uint8) for size in (n, 8 * n)
    )  # a longer run, so that a scheduler has time to spread two threads
    wide, big = y.astype(np.int64), rng.integers(0, 1000, n, dtype=np.uint16)
    small.privatize(y[:10]), large.privatize(big[:10])  # the look-up tables are made once per mechanism
    key, rows = br.RowKey(os.urandom(32)), np.arange(n)
    shuffled = rng.permutation(n)
    few = y[: min(n, 20_000)].tolist()
    there, absent = peers(epsilon)
    return [
        ("ordinary NumPy, int64", n, lambda: ordinary(wide, epsilon, rng)),
        ("ordinary NumPy, uint8", n, lambda: ordinary(y, epsilon, rng)),
        ("random bits alone, 16 a label", n, lambda: raw_bits(n, 16)),
        ("random bits alone, 32 a label", n, lambda: raw_bits(n, 32)),
        ("blockrr K=10, uint8", n, lambda: small.privatize(y)),
        (LONG, 8 * n, lambda: small.privatize(long)),
        (LONG + ", 2 threads", 8 * n, lambda: small.privatize(long, threads=2)),
        ("blockrr K=10, uint8, seeded", n, lambda: small.privatize(y, seed=1)),
        ("blockrr K=10, uint8, keyed by row", n, lambda: small.privatize(y, key=key, rows=rows)),
        ("blockrr K=10, uint8, keyed by row, shuffled", n, lambda: small.privatize(y, key=key, rows=shuffled)),
        ("blockrr K=10, int64", n, lambda: small.privatize(wide)),
        ("blockrr K=1000, uint16", n, lambda: large.privatize(big)),
        ("blockrr K=1000, uint16, 2 threads", n, lambda: large.privatize(big, threads=2)),
        *((name, len(few), lambda f=f: f(few)) for name, f in there),
    ], absent


def measure(names, repeats):
    "Wall and processor ns a label, [contestant][repeat]; all take one turn per repeat, the first is a rehearsal."
    wall, cpu = ([[] for _ in names] for _ in range(2))
    for turn in range(repeats + 1):
        for i, (_, n, f) in enumerate(names):
            w, c = time.perf_counter_ns(), time.process_time_ns()
            f()
            w, c = (time.perf_counter_ns() - w) / n, (time.process_time_ns() - c) / n
            if turn:
                wall[i].append(w), cpu[i].append(c)
    return wall, cpu


def ceiling(repeats) -> float:
    "How much faster two threads finish two sorts than one thread does: what this machine has to give at this moment."
    from concurrent.futures import ThreadPoolExecutor

    a, ratios = np.random.default_rng(0).random(1_000_000), []

    def timed(threads):
        start = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: np.sort(a), range(2)))
        return time.perf_counter() - start

    for _ in range(repeats):
        ratios.append(timed(1) / timed(2))
    return statistics.median(ratios)


def extra_memory(n_labels, n, threads) -> float:
    "MiB allocated at the peak of one release, look-up table included, released column excluded."
    m = pickle.loads(pickle.dumps(br.rr(n_labels, 1.0)))  # without its look-up table
    y = np.zeros(n, np.uint8 if n_labels <= 256 else np.uint16)
    tracemalloc.start()
    out = m.privatize(y, threads=threads)
    peak = tracemalloc.get_traced_memory()[1] - out.nbytes
    tracemalloc.stop()
    return peak / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--json", help="write the figures here as well")
    args, start = parser.parse_args(), time.perf_counter()
    names, absent = contestants(args.labels, args.epsilon)
    wall, cpu = measure(names, args.repeats)
    middle = statistics.median
    rows = []
    print(
        f"{args.labels:,} labels, epsilon {args.epsilon:g}, {args.repeats} repeats; "
        f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{os.cpu_count()} processors" + (f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "")
    )
    print(f"{'':36}{'ns a label':>12}{'(fastest)':>12}{'cpu ns':>12}{'x ordinary':>12}")
    for (name, n, _), w, c in zip(names, wall, cpu):
        row = dict(
            name=name,
            labels=n,
            ns=middle(w),
            fastest=min(w),
            cpu_ns=middle(c),
            times_ordinary=middle(o / x for o, x in zip(wall[0], w)),
        )
        rows.append(row)
        print(f"{name:36}{row['ns']:12,.2f}{row['fastest']:12,.2f}{row['cpu_ns']:12,.2f}{row['times_ordinary']:12,.3g}")
    at = {name: i for i, (name, *_) in enumerate(names)}
    for name in (LONG, "blockrr K=1000, uint16"):
        gain = middle(a / b for a, b in zip(wall[at[name]], wall[at[name + ", 2 threads"]]))
        print(f"two threads, {name[8:]}: x {gain:.2f}")
    most = ceiling(args.repeats)
    print(f"two threads, two independent np.sort (what the machine has to give): x {most:.2f}")
    memory = {
        f"K={k}, {t} thread{'s' * (t > 1)}": [extra_memory(k, n, t) for n in (args.labels, 4 * args.labels)]
        for k in (10, 1000)
        for t in (1, 2)
    }
    for name, (one, four) in memory.items():
        print(f"extra memory, {name}: {one:.1f} MiB for n labels, {four:.1f} MiB for 4 n")
    for name in absent:
        print("absent:", name)
    if args.json:
        from blockrr.study.records import provenance

        with open(args.json, "w") as file:
            json.dump(
                {
                    "provenance": provenance(time.perf_counter() - start, {}),
                    "rows": rows,
                    "memory_mib": memory,
                    "absent": absent,
                    "two_threads_ceiling": most,
                    "python": platform.python_version(),
                    "numpy": np.__version__,
                    "processors": os.cpu_count(),
                },
                file,
                indent=1,
            )


if __name__ == "__main__":
    sys.exit(main())

"""Set-valued releases at scale: certificates, the drawn distribution, the codebooks' criterion, the speed.

    python tools/sets_check.py [--certificates 10000] [--draws 100000000] [--output results/sets/check.json]

Writes a JSON file. Status 1 where a promise is broken.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from scipy.stats import chi2

import blockrr as br
from blockrr.privacy.codebook import cyclic_sets, make_codebook
from blockrr.privacy.subsets import SubsetResponse, best_size

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from test_subsets import certificates  # noqa: E402

CHUNK = 10**7
SEED = 2**127 + 16


def distribution(mechanism, draws) -> dict:
    "Chi-square of the released sets of evenly spread labels, each label by itself and all together."
    K, n_sets = len(mechanism.labels), mechanism.n_outputs
    counts, rows = np.zeros((K, n_sets), np.int64), np.zeros(K, np.int64)
    chunks = [np.arange(start, min(start + CHUNK, draws)) % K for start in range(0, draws, CHUNK)]
    for y, released in zip(chunks, mechanism.privatize_chunks(chunks, seed=SEED)):
        counts += np.bincount(y * n_sets + released, minlength=K * n_sets).reshape(K, n_sets)
        rows += np.bincount(y, minlength=K)
    expected = mechanism.transition * rows[:, None]
    by_label = ((counts - expected) ** 2 / expected).sum(1)
    degrees = n_sets - 1
    return {
        "mechanism": repr(mechanism),
        "draws": draws,
        "chi_square": float(by_label.sum()),
        "degrees_of_freedom": K * degrees,
        "p_value": float(chi2.sf(by_label.sum(), K * degrees)),
        "smallest_p_value_of_a_label": float(chi2.sf(by_label.max(), degrees)),
    }


def criteria() -> dict:
    "The worst A-criterion of the codebooks for up to 20 labels, all sizes, and up to 1,000, many sizes."
    small = [(make_codebook(K, w).criterion, K, w) for K in range(2, 21) for w in range(1, K)]
    large = []
    for K in sorted({*range(21, 101, 4), *np.geomspace(100, 1000, 25).astype(int).tolist()}):
        sizes = {2, 3, K // 10, K // 4, K // 2, K - 2, *(best_size(K, e) for e in (0.2, 0.6, 1, 2, 4))}
        large += [(make_codebook(K, w).criterion, K, w) for w in sorted(sizes) if w > 1]
    return {
        name: {"codebooks": len(found), "worst": min(found)[0], "at_n_labels": min(found)[1], "at_size": min(found)[2]}
        for name, found in (("up_to_20_labels", small), ("up_to_1000_labels", large))
    }


def speeds(n=5 * 10**6, repeats=5) -> list:
    "Processor time in nanoseconds a label, without a seed, median over the repeats; and that of randomized response."
    out = []
    for K in (10, 20, 100, 1000, 2**16):
        y = np.random.default_rng(0).integers(0, K, n).astype(np.uint16)
        ways = br.subset_response(K, 1.0), br.rr(K, 1.0)
        taken = [[], []]
        for way in ways:
            way.privatize(y[:10])
        for _ in range(repeats):
            for way, times in zip(ways, taken):
                start = time.process_time()
                way.privatize(y)
                times.append((time.process_time() - start) / n * 1e9)
        sets, labels = map(statistics.median, taken)
        out.append({"mechanism": repr(ways[0]), "ns_a_label": round(sets, 2), "rr_ns_a_label": round(labels, 2)})
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--certificates", type=int, default=10_000)
    parser.add_argument("--draws", type=int, default=10**8)
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "sets" / "check.json")
    options = parser.parse_args()
    tables = certificates(options.certificates, seed=16)  # raises where one is wrong
    drawn = [
        distribution(m, options.draws)
        for m in (
            br.subset_response(10, 0.6),
            br.subset_response(20, 1.0),
            SubsetResponse(cyclic_sets(20, 6), 1.0),
            SubsetResponse(cyclic_sets(100, 27), 1.0),
        )
    ]
    found = {
        "certificates": {"mechanisms": options.certificates, "with_a_table": tables, "wrong": 0},
        "drawn": drawn,
        "criterion": criteria(),
        "speed": speeds(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": next(
            (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
            platform.processor(),
        ),
        "cores": os.cpu_count(),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    worst = found["criterion"]
    kept = worst["up_to_20_labels"]["worst"] >= 0.98 and worst["up_to_1000_labels"]["worst"] >= 0.95
    likely = all(min(d["p_value"], d["smallest_p_value_of_a_label"]) > 1e-6 for d in drawn)
    return int(not (kept and likely))


def _lines(path) -> list:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


if __name__ == "__main__":
    sys.exit(main())

"""The promises at scale: mechanisms judged exactly, draws held against their tables, kills, bad columns.

    python tools/promises                              all in full, figures in results/promises.json
    python tools/promises --parts kills columns        these parts again; the figures of the others stay
    python tools/promises --scale 0.01 --output p.json a hundredth of everything

Ends with status 1 if any promise was found broken; the figures are written all the same.
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

from blockrr.learning.data import atomic_write
from blockrr.study.records import provenance

FULL = {"kills": 800, "mechanisms": 100_000, "draws": 10**9, "columns": 3_000}  # kills fork: before any threads
OUTPUT = Path(__file__).resolve().parent.parent.parent / "results" / "promises.json"
SCHEMA = 1


def say(line):
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def options(argv=None) -> argparse.Namespace:
    "What was asked for on the command line."
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("promises", description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("--parts", nargs="+", choices=FULL, default=list(FULL), help="which parts to run (default: all)")
    add("--scale", type=float, default=1.0, help="share of the full counts (default: 1)")
    for name, count in FULL.items():
        add(f"--{name}", type=int, help=f"how many, instead of a share of {count:,}")
    add("--seed", type=int, default=13, help="makes the cases (default: 13); secure bits and moments of kills differ")
    add("--output", type=Path, default=OUTPUT, help="JSON file for the figures (default: results/promises.json)")
    return parser.parse_args(argv)


def figures(name, count, seed) -> dict:
    "Run one part: its figures, and where they come from."
    start = time.perf_counter()
    found = importlib.import_module(name).run(count, seed, say)
    return {**found, "seed": seed, "provenance": provenance(time.perf_counter() - start, {})}


def write(path, parts):
    "Write all figures in one piece."
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, "parts": parts}, indent=1, allow_nan=False)
    with atomic_write(path) as f:
        f.write((text + "\n").encode())


def run(chosen) -> int:
    "Run the chosen parts; how many trials had faults."
    parts = json.loads(chosen.output.read_text())["parts"] if chosen.output.exists() else {}
    failures = 0
    for name in [n for n in FULL if n in chosen.parts]:
        count = getattr(chosen, name)
        if count is None:
            count = round(FULL[name] * chosen.scale)
        part = parts[name] = figures(name, count, chosen.seed)
        write(chosen.output, parts)
        failures += part["failures"]
        seconds = part["provenance"]["wall_seconds"]
        say(f"{name}: {part[name]:,} tried in {seconds:.0f} s, {part['failures']} with faults")
        for problem in part["problems"]:
            print(f"    {problem}")
    return failures


if __name__ == "__main__":
    sys.exit(bool(run(options())))

"""The promises at scale: random mechanisms judged exactly, draws held against their tables, releases killed, bad columns offered.

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
from blockrr.study.experiment import provenance

FULL = {"kills": 800, "mechanisms": 100_000, "draws": 10**9, "columns": 3_000}  # kills first: they fork, and no threads are there yet
OUTPUT = Path(__file__).resolve().parent.parent.parent / "results" / "promises.json"
SCHEMA = 1


def say(line): print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def options(argv=None) -> argparse.Namespace:
    "What was asked for on the command line."
    parser = argparse.ArgumentParser("promises", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=FULL, default=list(FULL), help="which parts to run (default: all)")
    parser.add_argument("--scale", type=float, default=1., help="share of the full counts (default: 1)")
    for name, count in FULL.items(): parser.add_argument(f"--{name}", type=int, help=f"how many, instead of the scale's share of {count:,}")
    parser.add_argument("--seed", type=int, default=13, help="what random cases are made from (default: 13); secure draws and moments of kills do not repeat")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file for the figures (default: results/promises.json)")
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
    with atomic_write(path) as f: f.write((text + "\n").encode())


def run(chosen) -> int:
    "Run the chosen parts; how many of them found a fault."
    parts = json.loads(chosen.output.read_text())["parts"] if chosen.output.exists() else {}
    broken = 0
    for name in [n for n in FULL if n in chosen.parts]:
        count = getattr(chosen, name)
        parts[name] = figures(name, round(FULL[name] * chosen.scale) if count is None else count, chosen.seed)
        write(chosen.output, parts)
        broken += bool(parts[name]["failures"])
        say(f"{name}: {parts[name]['failures']} faults in {parts[name][name]:,}, {parts[name]['provenance']['wall_seconds']:.0f} s")
        for problem in parts[name]["problems"]: print(f"    {problem}")
    return broken


if __name__ == "__main__": sys.exit(bool(run(options())))

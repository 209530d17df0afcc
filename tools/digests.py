"""Compare the records of a run with committed digests.

    python tools/digests.py runs/smoke            against results/smoke.json; status 1 if a file differs
    python tools/digests.py runs/smoke --write    write results/smoke.json

A digest is of what was computed: specs, accuracies, details. Commit, time and machine are left out.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

COMMITTED = Path(__file__).resolve().parent.parent / "results" / "smoke.json"


def digest(path: Path) -> str:
    "SHA-256 of the records of a file, whatever its layout."
    records = json.loads(path.read_text(encoding="utf-8"))["records"]
    return hashlib.sha256(json.dumps(records, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digests(run: Path) -> dict[str, str]:
    "File name -> digest, for the records of a run."
    return {path.name: digest(path) for path in sorted((run / "records").glob("*.json"))}


def compare(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    "One line for each file that is missing, differs or is too many."
    faults = {name: "is missing" for name in wanted.keys() - found.keys()}
    faults |= {name: "has no committed digest" for name in found.keys() - wanted.keys()}
    faults |= {name: "has other records" for name in wanted.keys() & found.keys() if wanted[name] != found[name]}
    return [f"{name} {fault}" for name, fault in sorted(faults.items())]


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("digests", description=__doc__, formatter_class=raw)
    parser.add_argument("run", type=Path, help="output folder of `blockrr reproduce`")
    parser.add_argument("--write", action="store_true", help="write the digests instead of comparing")
    args = parser.parse_args()
    found = digests(args.run)
    if args.write:
        about = json.loads(next((args.run / "records").glob("*.json")).read_text(encoding="utf-8"))["provenance"]
        kept = {name: about[name] for name in ("versions", "device", "system", "threads")}
        COMMITTED.write_text(json.dumps({"schema": 1, "profile": "smoke", **kept, "sha256": found}, indent=1) + "\n")
        return print(f"wrote {len(found)} digests") or 0
    faults = compare(found, json.loads(COMMITTED.read_text(encoding="utf-8"))["sha256"])
    print(*faults, f"{len(found) - len(faults)} of {len(found)} record files have the committed digest", sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())

"""Write ARTIFACT.md from the committed records, or check that it is up to date (--check)."""

import json
import statistics
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
TEN_MILLION = "Mechanism.privatize, secure bits, 10,000,000 int64 labels"
LABELS = "equal digits"


def load(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def records(profile: str) -> tuple[list[dict], float, str]:
    "All records of a profile, the minutes that they took one after the other, and where."
    files = [json.loads(p.read_text(encoding="utf-8")) for p in sorted((RESULTS / profile / "records").glob("*.json"))]
    about = [f["provenance"] for f in files]
    devices = ", ".join(sorted({a["device"] for a in about}))
    return [r for f in files for r in f["records"]], sum(a["wall_seconds"] for a in about) / 60, devices


def unfinished(profile: str) -> str:
    "Say how many slices of a profile are committed, if not all."
    from blockrr.study.reproduce import slices

    config = yaml.safe_load((ROOT / "workflow" / "profiles" / f"{profile}.yaml").read_text(encoding="utf-8"))
    wanted = set(slices(config, f"runs/{profile}"))
    there = wanted & {path.stem for path in (RESULTS / profile / "records").glob("*.json")}
    return "" if there == wanted else f", {len(there)} of {len(wanted)} slices"


def mean(rows: list[dict], dataset: str, epsilon: float, mechanism: str, learner: str = "probe", **options) -> str:
    "Mean ± standard deviation over seeds of one cell, as the tables print it."
    found = {}
    for row in rows:
        spec = row["spec"]
        same = (spec["dataset"], spec["epsilon"], spec["mechanism"], spec["learner"])
        if same == (dataset, epsilon, mechanism, learner) and spec.get("options", {}) == options:
            if spec["prior_fraction"] == 0.01:
                found.setdefault((spec["sigma"], spec["l"]), {})[spec["seed"]] = row["accuracy"]
    values = list(max(found.values(), key=len).values())
    return f"{statistics.mean(values):.1f} ± {statistics.pstdev(values):.1f}"


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"


def study_rows() -> list[tuple]:
    "The profiles of `blockrr reproduce`."
    smoke = load("smoke.json")
    out = [
        (
            "The whole pipeline runs, and gives what it gave here",
            f"{len(smoke['sha256'])} record files",
            "blockrr reproduce --profile smoke",
            "1",
            smoke["device"],
            "equal digits: `python tools/digests.py runs/smoke` compares with `results/smoke.json`",
        )
    ]
    laptop, _, device = records("laptop")
    seconds = load("bench/study.json")["seconds"]["laptop profile with features, CIFAR-10 on disk"]
    cells = "; ".join(
        f"{m} {mean(laptop, 'cifar10_1', 1.0, k)}" for k, m in (("rr", "RR"), ("rr_with_prior", "RRWithPrior"))
    )
    out.append(
        (
            "The paper's grid and ablations with a learner that needs no GPU (README, tables, both ablations)",
            f"{len(laptop):,} records; CIFAR-10₁, ε = 1: {cells}",
            "blockrr reproduce --profile laptop",
            minutes(seconds),
            device,
            LABELS,
        )
    )
    learners, took, device = records("learners")
    run = load("bench/learners.json")["run"]["minutes"]
    out.append(
        (
            "A learner that knows the mechanism learns more from the same labels",
            f"{len(learners):,} records; CIFAR-10₁, ε = 1, RR: plain {mean(learners, 'cifar10_1', 1.0, 'rr')}, "
            f"likelihood {mean(learners, 'cifar10_1', 1.0, 'rr', 'forward')}",
            "blockrr reproduce --profile learners",
            f"{run:.0f} on two cores ({took:.0f} of slices)",
            device,
            LABELS,
        )
    )
    for profile, claim in (
        ("optimal", "What mechanisms on the frontier are worth to a learner"),
        ("regression", "Twelve mechanisms for labels that are numbers"),
        ("sets", "A set of labels says more than one label at the same ε"),
    ):
        rows, took, device = records(profile)
        words = f"{len(rows):,} records" + unfinished(profile)
        out.append((claim, words, f"blockrr reproduce --profile {profile}", f"{took:.0f} of slices", device, LABELS))
    rows, _, device = records("network")
    took = {}  # width -> seconds
    for path in (RESULTS / "network" / "records").glob("*.json"):
        file = json.loads(path.read_text(encoding="utf-8"))
        width = file["records"][0]["details"]["recipe"]["width"]
        took.setdefault(width, []).append(file["provenance"]["wall_seconds"])
    each = " and ".join(f"{statistics.median(took[w]) / 60:.0f} of width {w}" for w in sorted(took))
    out.append(
        (
            "A small network learns from released labels or posteriors in minutes, without a GPU",
            f"{len(rows)} of the profile's trainings, in `results/network`; `nbs/experiments/network.ipynb` shows them",
            "blockrr batch --profile network --minutes 120 --output runs/network",
            f"{each}, on one core beside other work",
            device,
            f"{LABELS} on one processor, number of threads and choice of arithmetic",
        )
    )
    return out


def other_rows() -> list[tuple]:
    "What is not a profile."
    parts = load("promises.json")["parts"]
    seconds = sum(part["provenance"]["wall_seconds"] for part in parts.values())
    failures = sum(part["failures"] for part in parts.values())
    default, evaluate, study = load("default/default.json"), load("evaluate.json"), load("bench/study.json")
    held = [v for r in evaluate["results"] for v in r["intervals_hold_percent"].values()]
    pretrain = load("pretrain/cifar10_1.json")["encoder"]
    files = [json.loads(p.read_text(encoding="utf-8")) for p in sorted((RESULTS / "compare/records").glob("*.json"))]
    compared = [r for f in files for r in f["records"]]
    processors = ", ".join(sorted({about["device"] for f in files for about in f["provenance"].values()}))
    return [
        (
            "The promises of privacy hold at scale",
            f"{parts['mechanisms']['mechanisms']:,} mechanisms, {parts['draws']['draws']:,} draws, "
            f"{parts['kills']['kills']} kills, {parts['columns']['columns']:,} bad columns: {failures} failures",
            "python -m pytest -m slow tests/test_promises.py",
            minutes(seconds),
            parts["mechanisms"]["provenance"]["device"],
            "0 failures; the draws are new each time",
        ),
        (
            "The default method is never clearly worse than randomised response",
            f"{len({row['table'] for row in default['tables']})} tables, {default['seeds']} seeds; at worst "
            f"{100 * default['worst_default_minus_rr']:+.2f} points",
            "python tools/default_release.py",
            f"{minutes(default['cpu_seconds'])} of processor time",
            default["device"],
            LABELS,
        ),
        (
            "On tables a learner that knows the mechanism is compared with plain training and with cleanlab",
            f"{len(compared):,} records, in `results/compare`; `nbs/experiments/comparison.ipynb` shows them",
            "python tools/compare_cleanlab.py --records runs/compare",
            f"{sum(r['seconds'] for r in compared) / 60:.0f} of one core",
            processors,
            "equal to 12 digits; needs `pip install -e '.[compare]'` too",
        ),
        (
            "The intervals of `br.evaluate` hold the truth in 95 of 100 releases",
            f"{min(held)} to {max(held)} %",
            "python tools/coverage_evaluate.py",
            "about 3, estimated from 50 runs",
            "one core",
            "1.4 points (two standard errors of 1,000 runs)",
        ),
        (
            "Speed",
            f"10,000,000 labels in {study['seconds'][TEN_MILLION]:.2f} s",
            "python tools/benchmark.py",
            minutes(study["provenance"]["wall_seconds"]),
            study["provenance"]["device"],
            "the factor against ordinary NumPy, within a third",
        ),
        (
            "Features of a network that saw no label",
            "`results/pretrain`: features of CIFAR-10₁, and the encoder",
            f"blockrr pretrain --device cpu --steps {pretrain['steps']} --output runs/pretrain",
            minutes(pretrain["seconds"]),
            pretrain["device"],
            "none: another processor's arithmetic gives other features; those used are committed",
        ),
    ]


def text() -> str:
    "ARTIFACT.md."
    batch = []
    for path in sorted((RESULTS / "batch" / "cpu" / "records").glob("*.json")):
        batch += json.loads(path.read_text(encoding="utf-8"))["records"]
    lines = [
        "<!-- made from results/ by tools/artifact.py -->",
        "",
        "# Artifact appendix",
        "",
        "What is claimed, how to see it for yourself, how long that takes, and how close the numbers must come. All "
        "figures here are computed from the files under `results/`, and a test compares them.",
        "",
        "## Before you start",
        "",
        "* **Hardware**: two processor cores, 8 GB of memory and 20 GB of disk (the pinned "
        "packages take half of it) are enough for all commands of the table. "
        "No GPU.",
        "* **Software**: Python 3.11 on Linux for equal digits; 3.11 to 3.13 for all other commands, and 3.10 for "
        "releases alone. "
        "`requirements-3.11.txt` pins every package by its hash.",
        "* **Data**: the digits are part of scikit-learn. CIFAR-10 is fetched once and verified by its SHA-256; "
        "`blockrr data pack` writes it for a machine without a network. The regression tables are in the repository's "
        "dependencies.",
        "",
        "## Install and try",
        "",
        "```",
        "docker build -t blockrr . && docker run --rm --network none blockrr",
        "```",
        "",
        "The image holds the pinned packages. It runs the smoke profile without a network and compares what came out "
        "with the committed digests. The same without Docker, on Linux with Python 3.11:",
        "",
        "```",
        "python3.11 -m venv .venv && . .venv/bin/activate",
        "pip install --require-hashes -r requirements-3.11.txt",
        "pip install --no-deps --no-build-isolation -e .",
        "blockrr reproduce --profile smoke && python tools/digests.py runs/smoke",
        "```",
        "",
        "## Claims",
        "",
        "Minutes are wall time on the hardware named. *Of slices* is the sum over the papermill runs, of which two run "
        "at a time. Commands are given in the activated environment, from the repository's root. Each profile writes "
        "a report and records under `runs/`, in a folder with the profile's name; the committed ones are in the folder "
        "of the same name under `results/`, and their reports under `nbs/reports`.",
        "",
        "| claim, and the committed result | command | minutes, on | tolerance |",
        "|---|---|---|---|",
    ]
    for claim, result, command, took, device, tolerance in (*study_rows(), *other_rows()):
        lines.append(f"| {claim}: {result} | `{command}` | {took}, {device} | {tolerance} |")
    lines += [
        "",
        "*Equal digits*: with the versions in the record, released labels and accuracies are those of the records, "
        "digit by digit. This was seen for the smoke profile and for one slice each of the others, in an "
        "environment of the pinned packages, on processors of one kind. Another processor or other versions may round "
        "differently. Then the released labels are still the same, since they are drawn by integers, but a learner's "
        "choice between near ties can differ, and with it an accuracy in its last digits. The differences between "
        "mechanisms must stay within the standard deviations that the tables print.",
        "",
        "One slice by hand takes seconds:",
        "",
        "```",
        "papermill nbs/experiments/accuracy.ipynb out.ipynb -p epsilon 1.0 -p dataset digits -p seeds 3",
        "```",
        "",
        "Mathematics needs no records. `nbdev_test --path nbs/paper/theorems.ipynb` checks by computation what the "
        "paper proves, and so do the other notebooks under `nbs/paper`.",
        "",
        "## What cannot be run again without a GPU",
        "",
        "* `blockrr reproduce --profile gpu`: the paper's own ResNet-18, 540 trainings. **There are no GPU records in "
        "this repository**, so nothing here confirms or refutes the paper's level of accuracy. The code path is tested "
        f"on processors by `blockrr reproduce --profile gpu_smoke`, and by {len(batch)} short trainings under "
        "`results/batch/cpu`.",
        "* The larger network of `blockrr pretrain` on a GPU: not made yet. All that is claimed uses the one above.",
        "",
        "Test accuracies are computed from true test labels, and are not private.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    path, made = ROOT / "ARTIFACT.md", text()
    if "--check" not in sys.argv[1:]:
        path.write_text(made, encoding="utf-8")
        print("wrote ARTIFACT.md")
    elif not path.exists() or path.read_text(encoding="utf-8") != made:
        sys.exit("ARTIFACT.md is not what results/ gives: run python tools/artifact.py")
    else:
        print("ARTIFACT.md is in sync with results/")

"""All tests: every notebook through nbdev_test, then pytest; ends with a line that counts both."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*command):
    "Run a command in the repository's root and show what it says."
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, flush=True)
    return done


def left_out(path) -> bool:
    "Whether nbdev_test leaves a notebook out because of its folder."
    folders = path.relative_to(ROOT).parents
    return any(q.name.startswith("_") or (ROOT / q / ".notest").exists() for q in folders)


def notebooks() -> tuple:
    "Run nbdev_test; (passed, failed) notebooks."
    from nbdev.doclinks import nbglob

    names = [p for p in map(Path, nbglob(ROOT / "nbs")) if not left_out(p)]
    done = run(str(Path(sys.executable).parent / "nbdev_test"), "--n_workers", "2", "--do_print")
    if done.returncode == 0:
        return len(names), 0
    listed = done.stdout.rpartition("Failed On The Following Notebooks:")[2]
    failed = len(set(re.findall(r"(\S+\.ipynb)$", listed, re.M))) or 1
    return len(names) - failed, failed


def pytests() -> tuple:
    "Run pytest; (passed, failed, skipped) tests. A run that collects nothing is a failure."
    done = run(sys.executable, "-m", "pytest", "-q", "tests")
    last = done.stdout.strip().rpartition("\n")[2]

    def count(word):
        return int((re.findall(rf"(\d+) {word}", last) or [0])[0])

    passed, failed, skipped = count("passed"), count("failed") + count("error"), count("skipped")
    return passed, max(failed, int(done.returncode != 0)), skipped


if __name__ == "__main__":
    books, tests = notebooks(), pytests()
    print(
        f"notebooks: {books[0]} passed, {books[1]} failed;",
        f"tests: {tests[0]} passed, {tests[1]} failed, {tests[2]} skipped",
    )
    print(f"{books[0] + tests[0]} passed, {books[1] + tests[1]} failed, {tests[2]} skipped")
    sys.exit(bool(books[1] + tests[1]))

"""All tests: every notebook through nbdev_test, then pytest; ends with a line that counts both."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def notebooks() -> tuple:
    "Run nbdev_test; (passed, failed) notebooks."
    from nbdev.doclinks import nbglob
    skipped = lambda path: any(q.name.startswith("_") or (ROOT / q / ".notest").exists() for q in path.relative_to(ROOT).parents)
    names = [p for p in map(Path, nbglob(ROOT / "nbs")) if not skipped(p)]
    done = subprocess.run([str(Path(sys.executable).parent / "nbdev_test"), "--n_workers", "2", "--do_print"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, flush=True)
    if done.returncode == 0: return len(names), 0
    failed = len(set(re.findall(r"(\S+\.ipynb)$", done.stdout.rpartition("failed on the following notebooks:")[2], re.M))) or 1
    return len(names) - failed, failed


def pytests() -> tuple:
    "Run pytest; (passed, failed, skipped) tests. A run that collects nothing is a failure."
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "tests"], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, flush=True)
    count = lambda word: int((re.findall(rf"(\d+) {word}", done.stdout.strip().rpartition("\n")[2]) or [0])[0])
    passed, failed, skipped = count("passed"), count("failed") + count("error"), count("skipped")
    return passed, max(failed, int(done.returncode != 0)), skipped


if __name__ == "__main__":
    books, tests = notebooks(), pytests()
    print(f"notebooks: {books[0]} passed, {books[1]} failed; tests: {tests[0]} passed, {tests[1]} failed, {tests[2]} skipped")
    print(f"{books[0] + tests[0]} passed, {books[1] + tests[1]} failed, {tests[2]} skipped")
    sys.exit(bool(books[1] + tests[1]))

"""Make the reports of the measured records: `python tools/result_pages.py FOLDER [PROFILE ...]`.

Every profile whose records the repository holds becomes FOLDER/PROFILE.html, a page that needs no other file. The
notebooks that read records are executed on these records, so text and figures are those of this commit, and the page
names the commit that made the records.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import papermill
import yaml

ROOT = Path(__file__).resolve().parent.parent
TITLES = {"regression": "Regression with private labels"}


def readings():
    "Profile -> the notebooks that show its records."
    found = {}
    for path in sorted((ROOT / "workflow" / "profiles").glob("*.yaml")):
        if any((ROOT / "results" / path.stem / "records").glob("*.json")):
            profile = yaml.safe_load(path.read_text(encoding="utf-8"))
            found[path.stem] = profile.get("reading", ["tables", "ablation_l", "ablation_sigma"])
    return found


def make_page(profile, folder):
    "Execute the notebooks of a profile, and merge them."
    records = ROOT / "results" / profile / "records"
    target = Path(folder).resolve() / f"{profile}.html"
    with tempfile.TemporaryDirectory() as scratch:
        books = [Path(scratch) / f"{name}.ipynb" for name in readings()[profile]]
        for book in books:
            source = ROOT / "nbs" / "experiments" / book.name
            given = {"records": str(records)}
            papermill.execute_notebook(str(source), str(book), given, kernel_name="python3", progress_bar=False)
        command = [sys.executable, "-m", "blockrr", "report", *map(str, books), "--output", str(target)]
        title = ["--title", TITLES[profile]] if profile in TITLES else []
        subprocess.run([*command, "--records", str(records), *title], cwd=ROOT, check=True)
    return target


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(readings()):
        sys.exit(f"needs a folder, and names among {', '.join(readings())}")
    for profile in sys.argv[2:] or readings():
        print(make_page(profile, sys.argv[1]), flush=True)

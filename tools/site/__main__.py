"""The site from the notebooks, and a check of every link in it.

    python tools/site            build _docs/ and check it; `python -m http.server -d _docs` shows it
    python tools/site --check    check the _docs/ that is there

Needs `pip install -e '.[study,site]'`; nothing is executed, nothing is fetched.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from configparser import ConfigParser
from pathlib import Path

from linkcheck import check, weight
from stage import stage

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def build(site: Path) -> int:
    "Stage and build; the exit status of Sphinx, for which a warning is an error."
    parser = ConfigParser(delimiters=["="])
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    pages, work = ROOT / "_proc", ROOT / "_proc.tmp"
    stage(pages, parser["DEFAULT"]["git_url"])
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", "-b", "html", "-c", str(HERE)]
    command += ["-d", str(work / "doctrees"), str(pages), str(work / "html")]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(work / "html", site, ignore=shutil.ignore_patterns(".buildinfo", "objects.inv"))
    (site / ".nojekyll").touch()  # GitHub Pages: folders that begin with an underscore are served too
    return done.returncode


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("site", description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="build nothing")
    parser.add_argument("--output", type=Path, default=ROOT / "_docs", help="folder of the site (default: _docs)")
    args = parser.parse_args()
    start = time.perf_counter()
    failed = 0 if args.check else build(args.output)
    built = time.perf_counter() - start
    faults = check(args.output)
    print(*faults, sep="\n", end="\n" if faults else "")
    first = weight(args.output / "index.html") if (args.output / "index.html").is_file() else 0
    n = len(list(args.output.rglob("*.html")))
    print(f"site: {n} pages in {built:.0f} s, the first {first / 1000:.0f} KB; {len(faults)} faults")
    return int(bool(failed or faults))


if __name__ == "__main__":
    sys.exit(main())

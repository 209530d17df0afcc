"""The README is short, and its picture shows the records."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_readme_is_short_and_has_a_picture():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert "](nbs/accuracy.png)" in text


def test_the_picture_shows_the_records():
    command = [sys.executable, "tools/front_picture.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

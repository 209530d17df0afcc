"""Every relative link of every notebook and of every Markdown file leads somewhere."""

import json
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / "nbs"  # where README opens JupyterLab
CODE = re.compile(r"^```.*?^```\s*$|`[^`\n]+`", re.M | re.S)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|^\[[^\]\n]+\]:\s+<?([^\s>]+)|(?:href|src)=[\"']([^\"']+)", re.M)
HOSTS = {
    "arxiv.org",
    "docs.cleanlab.ai",
    "doi.org",
    "github.com",
    "semver.org",
    "blockrr.github.io",
    "proceedings.mlr.press",
    "openreview.net",
}
NAMED = re.compile(r"`((?:nbs|results|tools|tests|workflow|blockrr)/[\w./-]+\w)`")  # a path from the root


def committed():
    "Paths of the repository, those that git ignores left out."
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = [ROOT / p for p in listed.split("\0") if p]
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        found = [p for folder in ("nbs", "results", "tools", "workflow") for p in (ROOT / folder).rglob("*")]
        found += ROOT.glob("*")
    return sorted(p for p in found if p.is_file() and ".ipynb_checkpoints" not in p.parts)


FILES = committed()
FOLDERS = {parent for p in FILES for parent in p.parents}
PAGES = [p for p in FILES if p.suffix in (".ipynb", ".md")]


def texts(path):
    "Markdown and HTML of a file: prose, and what cells show."
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return [content]
    cells = json.loads(content)["cells"]
    shown = [o.get("data", {}) for c in cells for o in c.get("outputs", [])]
    outputs = [data[kind] for data in shown for kind in ("text/markdown", "text/html") if kind in data]
    return ["".join(t) for t in [*(c["source"] for c in cells if c["cell_type"] == "markdown"), *outputs]]


def links(text):
    "Targets of links and images that are not on another server."
    targets = [next(filter(None, found)) for found in LINK.findall(CODE.sub("", text))]
    return [unquote(t) for t in targets if not re.match(r"[a-zA-Z][\w+.-]*:|//", t)]


def addresses(text):
    "Targets of links and images on other servers."
    targets = [next(filter(None, found)) for found in LINK.findall(CODE.sub("", text))]
    return [t for t in targets if re.match(r"[a-zA-Z][\w+.-]*:|//", t) and not t.startswith(("mailto:", "data:"))]


def slug(heading):
    "A heading as an anchor, in the spelling of GitHub and in that of Jupyter alike."
    return re.sub(r"[^\w-]", "", re.sub(r"\s", "-", heading.strip().lower()))


def anchors(path):
    prose = "\n\n".join(texts(path))
    return {slug(h) for h in re.findall(r"^#+\s+(.+)$", CODE.sub(lambda m: m[0].strip("`"), prose), re.M)}


def trouble(path, target):
    "Why a link leads nowhere, or None."
    place, _, anchor = target.partition("#")
    if place.startswith("/"):
        return "is not relative"
    there = Path(os.path.normpath(path.parent / place)) if place else path
    if there not in FILES and there not in FOLDERS:
        return "is not in the repository"
    if path.suffix == ".ipynb" and there in FOLDERS:
        return "is a folder, which JupyterLab does not open"
    if path.is_relative_to(LAB) and not there.is_relative_to(LAB):
        return "is out of JupyterLab's reach"
    if anchor and there.suffix in (".ipynb", ".md") and slug(anchor) not in anchors(there):
        return "has no such heading"
    return None


def dead(path):
    found = [(t, trouble(path, t)) for text in texts(path) for t in links(text)]
    return [f"{path.relative_to(ROOT)}: {t} {why}" for t, why in found if why]


def test_every_relative_link_leads_somewhere():
    assert len(PAGES) > 60 and sum(len(links(t)) for p in PAGES for t in texts(p)) > 60
    assert not [line for p in PAGES for line in dead(p)]


def test_addresses_are_well_formed():
    "No network is used: their form, and that they name servers that are here to stay."
    found = {(p, t) for p in PAGES for text in texts(p) for t in addresses(text)}
    hosts = {t: re.match(r"https://([\w-]+(?:\.[\w-]+)+)(?:/[\w./~%#?=&+:@()-]*)?$", t) for _, t in found}
    assert len(found) > 5 and not [t for t, form in hosts.items() if not form]
    assert {form[1] for form in hosts.values()} <= HOSTS


def test_every_path_that_is_named_is_there():
    named = {(p, name) for p in PAGES for text in texts(p) for name in NAMED.findall(text)}
    assert len(named) > 20
    assert not [
        f"{p.relative_to(ROOT)}: {name}"
        for p, name in sorted(named)
        if ROOT / name not in FILES and ROOT / name not in FOLDERS
    ]


def test_a_notebook_that_papermill_copies_has_no_relative_links():
    "They would lead nowhere from results/, from runs/ and in the report."
    books = list((ROOT / "nbs" / "experiments").glob("*.ipynb"))
    found = {p.name: [t for text in texts(p) for t in links(text)] for p in books}
    assert len(books) > 10 and not {name: targets for name, targets in found.items() if targets}


@pytest.mark.parametrize(
    "text, bad",
    [
        ("[a](privacy/03_labels.ipynb) ![b](index.ipynb) [c](https://example.org/x) [d](mailto:a@b.c)", 0),
        ("[a](nbs/privacy/03_labels.ipynb)", 1),
        ("![a](nothing.png)", 1),
        ('<img src="nothing.png">', 1),
        ("[a][b]\n\n[b]: nothing.ipynb", 1),
        ("[a](../../elsewhere.md)", 1),
        ("[a](../README.md)", 1),
        ("[a](/privacy/03_labels.ipynb)", 1),
        ("`[a](nothing.png)`\n\n```\n[a](nothing.png)\n```", 0),
        ("[a](privacy)", 1),
        ("[a](#What-it-does-not-do)", 0),
        ("[a](#what-it-does-not-do)", 0),
        ("[a](#What-it-does)", 1),
        ("[a](privacy/30_release.ipynb#No-such-heading)", 1),
    ],
)
def test_dead_links_are_found(text, bad):
    found = [trouble(ROOT / "nbs" / "index.ipynb", target) for target in links(text)]
    assert len(found) - found.count(None) == bad

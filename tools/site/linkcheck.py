"""Every link of a built site, its weight, and that it asks no other server for anything."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FIRST = 500_000  # bytes of the first page with all that it loads
OTHERS = "http", "https", "mailto", "data"


class Page(HTMLParser):
    "Anchors, links and loaded files of a page."

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links, self.loads = {"", "top"}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href") is not None:
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe", "source") and found.get("src"):
            self.loads.append(found["src"])
        if tag == "link" and "stylesheet" in (found.get("rel") or "") and found.get("href"):
            self.loads.append(found["href"])


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def trouble(path: Path, target: str, site: Path) -> str | None:
    "Why a link of a page leads nowhere, or None."
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        good = parts.scheme in OTHERS and (parts.netloc or parts.scheme in ("mailto", "data"))
        return None if good else "is no address"
    there = path.parent.joinpath(unquote(parts.path)).resolve() if parts.path else path
    if there.is_dir():
        there = there / "index.html"
    if not there.is_relative_to(site) or not there.is_file():
        return "is not on the site"
    if there.suffix == ".html" and unquote(parts.fragment) not in page(there).anchors:
        return "has no such anchor"
    return None


def weight(path: Path) -> int:
    "Bytes of a page with what it loads."
    files = {path.parent.joinpath(unquote(urlsplit(t).path)).resolve() for t in page(path).loads if "data:" not in t}
    return path.stat().st_size + sum(p.stat().st_size for p in files if p.is_file())


def check(site: Path) -> list[str]:
    "One line for each fault of a built site."
    site = site.resolve()
    pages = sorted(p for p in site.rglob("*.html") if "_static" not in p.parts)
    found = [] if pages else [f"{site}: no pages"]
    for path in pages:
        name = path.relative_to(site)
        here = page(path)
        faults = {t: trouble(path, t, site) for t in [*here.links, *here.loads]}
        found += [f"{name}: {t} {why}" for t, why in faults.items() if why]
        found += [f"{name}: loads {t} from another server" for t in here.loads if urlsplit(t).netloc]
    first = site / "index.html"
    if first.is_file() and weight(first) > FIRST:
        found.append(f"index.html: weighs {weight(first):,} bytes with what it loads, more than {FIRST:,}")
    return found

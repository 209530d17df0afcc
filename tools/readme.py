"""Write README.md from nbs/index.ipynb, or check that it is up to date (--check).

nbdev's own processors drop hidden cells and export marks; nbconvert turns the rest into Markdown.
"""

import posixpath
import re
import sys
from pathlib import Path

import nbformat
from execnb.nbio import nb2str
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import TagRemovePreprocessor
from nbdev.process import NBProcessor
from nbdev.processors import clean_magics, clean_show_doc, hide_, hide_line, rm_export, rm_header_dash, strip_ansi

ROOT = Path(__file__).resolve().parent.parent
TARGET = r"(?![a-z][a-z+.-]*:|[/#])([^\s)\"'>]+)"  # a relative path
LINK = re.compile(r"(\]\(|^\[[^\]\n]+\]:[ ]+|(?:href|src)=[\"'])" + TARGET, re.M)
NOTE = "<!-- made from nbs/index.ipynb by tools/readme.py; edit the notebook -->\n\n"


def no_echo(cell):
    "Quarto's `echo: false`, for nbconvert."
    if cell.directives_.get("echo:") == ["false"]:
        cell.metadata["tags"] = ["no-echo"]


def from_root(text: str) -> str:
    "Links that are right in nbs/, as they are right in the repository's root; code is left alone."

    def moved(link):
        return link[1] + posixpath.normpath(posixpath.join("nbs", link[2]))

    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else LINK.sub(moved, part) for i, part in enumerate(parts))


def markdown() -> str:
    "The index notebook as Markdown, outputs included."
    steps = [no_echo, strip_ansi, hide_line, clean_show_doc, rm_export, clean_magics, hide_, rm_header_dash]
    processor = NBProcessor(ROOT / "nbs" / "index.ipynb", rm_directives=True, procs=steps)
    processor.process()
    exporter = MarkdownExporter()
    exporter.register_preprocessor(TagRemovePreprocessor(remove_input_tags={"no-echo"}), enabled=True)
    body, resources = exporter.from_notebook_node(nbformat.reads(nb2str(processor.nb), 4))
    if resources.get("outputs"):
        raise SystemExit(
            "nbs/index.ipynb: outputs with image files cannot go into README.md; link to a committed figure"
        )
    return NOTE + "\n".join(line.rstrip() for line in from_root(body).strip().splitlines()) + "\n"


if __name__ == "__main__":
    readme, text = ROOT / "README.md", markdown()
    if "--check" in sys.argv[1:]:
        if not readme.exists() or readme.read_text(encoding="utf-8") != text:
            sys.exit("README.md is not what nbs/index.ipynb gives: run python tools/readme.py")
        print("README.md is in sync with nbs/index.ipynb")
    else:
        readme.write_text(text, encoding="utf-8")
        print("wrote README.md")

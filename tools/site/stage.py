"""Notebooks and Markdown files as the site's generator takes them: nbdev's directives turned into tags, links to pages.

`#| hide` and `#| default_exp` cells leave the page, `#| echo: false` leaves the output alone, and `#| export` folds
the code under a line that names what it defines. Nothing is executed.
"""

import ast
import json
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NBS = ROOT / "nbs"
PAPERS = ("ARTIFACT.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")  # of the root, shown on the site
SECTIONS = {  # folder -> title of its page, what it says
    "start": ("Start", "Three ways in: to understand, to run it again, to release labels."),
    "lessons": ("Lessons", "Eight lessons, of which the last is about learning: from ten people to a learner."),
    "privacy": (
        "Privacy",
        "Mechanisms, certificates, releases: what the bare install holds, in the order it is built.",
    ),
    "learning": ("Learning", "Data, label-free features, and learners that know the mechanism."),
    "study": ("Study", "Experiments, records, reports and the command line."),
    "paper": ("The paper", "Its mathematics, checked, and what follows from it."),
    "experiments": ("Experiments", "The notebooks that papermill runs, and what came out."),
    "practice": ("Practice", "From a column of labels to a model, with the tools people have."),
}
ASSETS = (".png", ".html")  # pictures, and reports that are pages by themselves
DIRECTIVE = re.compile(r"^#\|\s*(\w+)(?:\s*:?\s*(.*?))?\s*$")
CODE = re.compile(r"(^```.*?^```\s*$|`[^`\n]+`)", re.M | re.S)
LINK = re.compile(r"(\]\(\s*<?)(?![a-z][a-z+.-]*:|/)([^)\s>]+)")


def directives(source: str) -> tuple[dict, str]:
    "Split nbdev's directives off a cell's source."
    found, rest = {}, []
    for line in source.splitlines():
        match = DIRECTIVE.match(line)
        if match:
            found[match[1]] = match[2]
        else:
            rest.append(line)
    return found, "\n".join(rest).strip("\n")


def defines(source: str) -> list[str]:
    "Name what a cell defines, in its order."
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [t.id for t in targets if isinstance(t, ast.Name)]
    return names


def page_cell(cell: dict) -> dict | None:
    "One cell as its page shows it, or None."
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return {**cell, "source": source}
    found, source = directives(source)
    if "hide" in found or "default_exp" in found or not source:
        return None
    metadata = dict(cell["metadata"])
    tags = [t for t in metadata.pop("tags", []) if t == "parameters"]
    if found.get("echo") == "false":
        tags.append("remove-input")
    elif "export" in found:
        names = defines(source)
        if not names and not cell["outputs"]:
            return None  # imports
        tags.append("hide-input")
        words = ", ".join(names[:6]) + (" …" if names[6:] else "")
        metadata["mystnb"] = {"code_prompt_show": f"Code: {words}", "code_prompt_hide": f"Code: {words}"}
    return {**cell, "source": source, "metadata": {**metadata, "tags": tags}}


def moved(link: str, folder: str, pages: set, repository: str) -> str:
    "A relative link from a file in `folder` as the site needs it: to a page, or to the file in the repository."
    place, hash_, anchor = link.partition("#")
    anchor = anchor.lower()
    if not place:
        return hash_ + anchor
    target = posixpath.normpath(posixpath.join(folder, place))
    if target in pages:
        here = posixpath.relpath(target, folder) if folder.startswith("nbs") else posixpath.relpath(target, "nbs")
        return here + hash_ + anchor
    kind = "tree" if (ROOT / target).is_dir() else "blob"
    return f"{repository}/{kind}/main/{target}"


def relink(text: str, folder: str, pages: set, repository: str) -> str:
    "All links of a text; code is left alone."
    parts = CODE.split(text)
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda m: m[1] + moved(m[2], folder, pages, repository), parts[i])
    return "".join(parts)


def sections(books: list[Path]) -> dict[str, list[Path]]:
    "The notebooks of each folder, those of `nbs/` itself first."
    return {f: [p for p in books if p.parent == NBS / f] for f in ("", *SECTIONS)}


def first_lines(path: Path) -> tuple[str, str]:
    "A notebook's title and the line below it."
    text = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    title, said = re.search(r"^# (.+)$", text, re.M), re.search(r"^> (.+)$", text, re.M)
    return title[1].strip(), said[1].strip() if said else ""


def toctree(entries: list[str], caption: str = "") -> str:
    "A list of pages for the sidebar, not shown in the text."
    return "\n".join(["```{toctree}", ":hidden:", *[f":caption: {caption}"] * bool(caption), "", *entries, "```", ""])


def section_page(folder: str, books: list[Path]) -> str:
    "What a folder of notebooks holds."
    title, said = SECTIONS[folder]
    rows = [(p.name, *first_lines(p)) for p in books]
    lines = [f"* [{name.replace('_', ' ')}]({file}): {what}" for file, name, what in rows]
    return "\n".join([f"# {title}", "", said, "", *lines, "", toctree([file for file, *_ in rows])])


def documented() -> dict[str, list[tuple]]:
    "The full names that have an API page, by module: the names of `blockrr` and whatever has a section Parameters."
    public = {a.name: n.module for n in imports_of(ROOT / "blockrr" / "__init__.py") for a in n.names}
    found: dict[str, list[tuple]] = {}
    rooms = [p for room in ("privacy", "learning", "study") for p in sorted((ROOT / "blockrr" / room).glob("*.py"))]
    for path in rooms:
        module = f"blockrr.{path.parent.name}.{path.stem}"
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
                continue
            ours = node.name in public
            if ours or "\nParameters\n---" in (ast.get_docstring(node) or ""):
                kind = "class" if isinstance(node, ast.ClassDef) else "function"
                full = f"blockrr.{node.name}" if ours else f"{module}.{node.name}"
                found.setdefault(module, []).append((kind, full, (ast.get_docstring(node) or "").split("\n")[0]))
    return found


def imports_of(path: Path) -> list[ast.ImportFrom]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module.startswith("blockrr.")]


def api_pages() -> dict[str, str]:
    "Path -> text of the API pages: one for each module, and a list of all names."
    pages, lists = {}, {"blockrr": [], "other": []}
    for module, names in documented().items():
        _, room, stem = module.split(".")
        path = ROOT / "blockrr" / room / f"{stem}.py"
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines = [f"# {stem.replace('_', ' ')}", "", said, ""]
        source = re.search(r"File to edit: \S*?nbs/(\S+\.ipynb)", path.read_text(encoding="utf-8"))
        if source:
            lines += [f"How it works, step by step: [{Path(source[1]).stem}](../{source[1]}).", ""]
        for kind, full, what in names:
            lines += ["```{eval-rst}", f".. auto{kind}:: {full}", "```", ""]
            where = "blockrr" if full.count(".") == 1 else "other"
            lists[where].append(
                f"| [`{full.replace('blockrr.', 'br.', 1) if where == 'blockrr' else full}`](#{full}) | {what} |"
            )
        pages[f"api/{room}-{stem}.md"] = "\n".join(lines)
    lists = {k: sorted(v, key=str.lower) for k, v in lists.items()}
    head = "| name | what it does |\n|---|---|\n"
    pages["api/index.md"] = "\n".join(
        [
            "# API",
            "",
            "`import blockrr as br` gives these names:",
            "",
            head + "\n".join(lists["blockrr"]),
            "",
            "Others with a page, imported from their module:",
            "",
            head + "\n".join(lists["other"]),
            "",
            toctree([p[4:] for p in pages]),
        ]
    )
    return pages


def shown(cell: dict, folder: str, pages: set, repository: str) -> dict:
    "A cell with links that lead to pages, in prose and in what it shows; a ± stays with its numbers."
    if cell["cell_type"] == "markdown":
        cell["source"] = relink(cell["source"], folder, pages, repository)
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        for kind in {"text/markdown", "text/html"} & set(data):
            data[kind] = "".join(data[kind]).replace(" ± ", "\u00a0±\u00a0")
        if "text/markdown" in data:
            data["text/markdown"] = relink(data["text/markdown"], folder, pages, repository)
        if "text/html" in data:
            data["text/html"] = re.sub(r"(href=\")(?![a-z]+:)([^\"]+)\.ipynb", r"\1\2.html", data["text/html"])
    return cell


def index_page(book: dict, groups: dict) -> dict:
    "The first page, with the lists that the sidebar shows."
    papers = [name for name in PAPERS if (ROOT / name).exists()]
    start = [f"start/{name}.ipynb" for name in ("reader", "reproducer", "practitioner")]
    start += [p.name for p in groups[""] if p.name != "index.ipynb"]
    rooms = [f"{folder}/index" for folder, group in groups.items() if group and folder not in ("", "start")]
    trees = [toctree(start, "Start"), toctree(rooms, "Notebooks"), toctree(["api/index", *papers], "Reference")]
    cell = {"cell_type": "markdown", "id": "contents", "metadata": {}, "source": "\n\n".join(trees)}
    return {**book, "cells": [*book["cells"], cell]}


def files_in_notebooks(*suffixes: str) -> list[Path]:
    "The files of `nbs/` of some kinds."
    found = sorted(p for suffix in suffixes for p in NBS.rglob(f"*{suffix}"))
    return [p for p in found if ".ipynb_checkpoints" not in p.parts]


def pages_of(repository: str) -> dict[str, str]:
    "Path -> text of all pages."
    books = files_in_notebooks(".ipynb")
    known = {p.relative_to(ROOT).as_posix() for p in [*books, *files_in_notebooks(*ASSETS)]}
    groups = sections(books)
    left = set(books) - {p for group in groups.values() for p in group}
    if left:
        raise SystemExit(
            f"tools/site/stage.py: SECTIONS: needs the folders of {', '.join(p.name for p in sorted(left))}"
        )
    pages = {}
    for path in books:
        folder = path.parent.relative_to(ROOT).as_posix()
        book = json.loads(path.read_text(encoding="utf-8"))
        cells = [c for c in map(page_cell, book["cells"]) if c]
        book["cells"] = [shown(c, folder, known, repository) for c in cells]
        if path == NBS / "index.ipynb":
            book = index_page(book, groups)
        pages[path.relative_to(NBS).as_posix()] = json.dumps(book)
    for folder, group in groups.items():
        if group and folder not in ("", "start"):
            pages[f"{folder}/index.md"] = section_page(folder, group)
    for name in PAPERS:
        if (ROOT / name).exists():
            pages[name] = relink((ROOT / name).read_text(encoding="utf-8"), "", known, repository)
    return {**pages, **api_pages()}


def stage(target: Path, repository: str) -> None:
    "Write all pages into a folder; what did not change keeps its time, so that it is not built again."
    pages = {name: text.encode() for name, text in pages_of(repository).items()}
    pages |= {p.relative_to(NBS).as_posix(): p.read_bytes() for p in files_in_notebooks(*ASSETS)}
    for path in [p for p in target.rglob("*") if p.is_file()]:
        if path.relative_to(target).as_posix() not in pages:
            path.unlink()
    for name, content in pages.items():
        path = target / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

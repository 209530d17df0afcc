"""Write the PNG outputs of notebooks with a palette of 128 colours where that halves them; GitHub shows no large files.

python tools/shrink_pictures.py nbs/paper/frontier.ipynb ...     without arguments: every notebook over 150 KB
"""

import base64
import io
import sys
from pathlib import Path

import nbformat
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent


def shrunk(png: str) -> str:
    "Return a base64 PNG with a palette, or the same if that does not halve it."
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA")
    on_white = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    out = io.BytesIO()
    on_white.quantize(128, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    small = base64.b64encode(out.getvalue()).decode() + "\n"
    return small if 2 * len(small) <= len(png) else png


def shrink(path) -> None:
    "Shrink the pictures of one notebook in place."
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        for data in (output.get("data", {}) for output in cell.get("outputs", [])):
            if "image/png" in data:
                data["image/png"] = shrunk(data["image/png"])
    nbformat.write(notebook, path)


if __name__ == "__main__":
    large = [p for p in (ROOT / "nbs").rglob("*.ipynb") if p.stat().st_size > 150_000]
    for path in map(Path, sys.argv[1:] or large):
        shrink(path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} KB")

"""Sphinx settings of the site; built by `python tools/site`."""

import re
from configparser import ConfigParser
from pathlib import Path

from math_core import LatexToMathML

ROOT = Path(__file__).resolve().parents[2]
parser = ConfigParser(delimiters=["="])
parser.read(ROOT / "settings.ini", encoding="utf-8")
cfg = parser["DEFAULT"]

project, author, version = cfg["title"], cfg["author"], cfg["version"]
release, project_copyright = version, cfg["copyright"]
root_doc, language = "index", "en"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nitpicky = False  # numpy's and pandas' names have no pages here

nb_execution_mode = "off"  # notebooks are shown as they were committed
nb_render_markdown_format = "myst"  # tables and links of what cells show, as in prose
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_dmath_double_inline = True
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # a cell with IPython's own lines

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
default_role = "literal"  # a name in single backticks
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = "blockrr"
html_baseurl = cfg["doc_host"] + cfg["doc_baseurl"] + "/"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"},
    "footer_icons": [{"name": "GitHub", "url": cfg["git_url"], "html": "GitHub", "class": ""}],
}


FORMULAS = LatexToMathML()


def mathml(tex: str, display: str) -> str:
    "A formula as MathML, which browsers show without a script."
    tex = re.sub(r"\\tag\{(.*?)\}", r"\\qquad(\1)", tex)
    return FORMULAS.convert_with_local_state(tex, displaystyle=display == "block")


def visit_inline(self, node):
    self.body.append(mathml(node.astext(), "inline"))
    raise_skip()


def visit_block(self, node):
    self.body.append(f'<div class="math" role="math">{mathml(node.astext(), "block")}</div>')
    raise_skip()


def raise_skip():
    from docutils.nodes import SkipNode

    raise SkipNode


def plain_bars(app, what, name, obj, options, lines):
    "|B(y)| in a docstring is a size and no substitution."
    lines[:] = [line if "``" in line else re.sub(r"(?<!\\)\|", r"\\|", line) for line in lines]


def skip(app, what, name, obj, skipped, options):
    "scikit-learn's methods for metadata are documented there."
    return True if re.fullmatch(r"[sg]et_\w+_(request|routing)", name) else None


def setup(app):
    app.connect("autodoc-process-docstring", plain_bars)
    app.connect("autodoc-skip-member", skip)
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))

"""Settings of the documentation; `make docs` builds it with warnings as errors."""

import re
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform

import inbounds

HERE = Path(__file__).parent

project = "inbounds"
author = "The inbounds authors"
copyright = "2026, the inbounds authors"
version = release = inbounds.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
myst_fence_as_directive = ["math"]
default_role = "code"  # docstrings write names in single backquotes
nitpicky = False

autodoc_typehints = "description"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"inbounds {release}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
templates_path: list[str] = []
exclude_patterns = ["_build"]


def process_docstring(app, what, name, obj, options, lines):
    """Make docstrings, which are written for `help`, readable by reStructuredText.

    A bar is an absolute value and not a substitution; presets are shown as they stand.
    """
    shown = []
    for line in lines:
        shown.append(line.replace("|", r"\|"))
        if line.startswith("Presets ("):
            shown[-1] = shown[-1].rstrip(":") + "::"
            shown.append("")
    lines[:] = shown


INCLUDED = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}


def read_source(app, docname, source):
    """Complete pages that are plain Markdown, so that a repository host shows them as they are meant.

    Two pages lead to files of the repository, which the site shows in their place. The sidebar has the sections and
    the links of the start page.
    """
    if docname in INCLUDED:
        source[0] = (HERE.parent / INCLUDED[docname]).read_text(encoding="utf-8")
    if docname == "index":
        for section in source[0].split("\n## ")[1:]:
            caption, rest = section.split("\n", 1)
            pages = "\n".join(re.findall(r"^- \[[^]]+\]\(([\w/]+)\.md\)", rest, re.MULTILINE))
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


class DarkTwins(SphinxTransform):
    """Shows NAME-dark.png in the place of NAME.png on a dark page, and lets figures scroll on a narrow one."""

    default_priority = 100

    def apply(self):
        """Put the dark figure beside the light one; the theme hides one of them."""
        for image in list(self.document.findall(nodes.image)):
            twin = image["uri"].removesuffix(".png") + "-dark.png"
            if not (Path(self.document["source"]).parent / twin).exists():
                continue
            dark = image.deepcopy()
            dark["uri"], dark["classes"], image["classes"] = twin, ["only-dark"], ["only-light"]
            image.parent.insert(image.parent.index(image) + 1, dark)
            image.parent["classes"].append("figure")


def setup(app):
    """Register the hooks."""
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("source-read", read_source)
    app.add_transform(DarkTwins)

"""Settings of the documentation; `make docs` builds it with warnings as errors."""

import inbounds

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
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"inbounds {release}"
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


def setup(app):
    """Register the hook."""
    app.connect("autodoc-process-docstring", process_docstring)

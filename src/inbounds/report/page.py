"""One self-contained web page: the template, style and script of this package with the data put inside."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from inbounds.errors import MissingDependencyError

FILMS = {".mp4": "video/mp4", ".gif": "image/gif"}


def render_page(data: Mapping[str, Any], live: bool = False) -> str:
    """Return the page as text; it needs no other file and asks no host for anything."""
    try:
        from jinja2 import Environment
    except ImportError as error:
        raise MissingDependencyError(
            "a report needs the package jinja2. Install it with `pip install jinja2`."
        ) from error
    template = Environment(autoescape=False).from_string(asset("page.html.j2"))
    return template.render(
        title=escaped(str(data["title"])),
        style=asset("style.css"),
        script=asset("chart.js") + asset("page.js"),
        data=embedded(data),
        live=live,
    )


def asset(name: str) -> str:
    """Return a file that is installed with the package."""
    return resources.files("inbounds.report").joinpath("assets", name).read_text(encoding="utf-8")


def embedded(data: Mapping[str, Any]) -> str:
    """Return JSON that can stand inside a script element: nothing in it can close the element."""
    # A learner's setting may be infinite, which JSON does not know.
    finite = json.loads(json.dumps(data), parse_constant=lambda _: None)
    return json.dumps(finite, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def escaped(text: str) -> str:
    """Return text that HTML shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def film_as_text(path: Path) -> str | None:
    """Return a film as a data address, or nothing for a file that no browser would show."""
    kind = FILMS.get(path.suffix.lower())
    if kind is None or not path.is_file():
        return None
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"

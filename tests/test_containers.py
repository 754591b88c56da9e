"""The container files name only what the repository has."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_image_copies_existing_files_and_installs_existing_extras() -> None:
    lines = (ROOT / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", lines, re.M) for name in line.split()]
    sent = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.M))
    assert set(copied) == sent and all((ROOT / name).exists() for name in copied)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = re.findall(r"EXTRAS=([\w,]+)", lines)
    assert len(extras) == 2 and all(set(named.split(",")) <= set(known) for named in extras)


def test_the_development_container_prepares_what_make_test_needs() -> None:
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    target = settings["postCreateCommand"].removeprefix("make ")
    assert f"test: {target.replace('.venv', '$(VENV)')} " in (ROOT / "Makefile").read_text()

"""Writes requirements/*.txt: the exact versions that `make` installs, for every supported Python at once.

Run `python scripts/make_pins.py` after changing a dependency in pyproject.toml (existing pins are kept where
they still fit), or with `--upgrade` to move everything to its newest version. It needs `pip install uv`.
The files name versions only: no index, no file host, so they work with any package mirror.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
PYPROJECT = "pyproject.toml"
HEADER = "# Made by scripts/make_pins.py from {source}; do not edit.\n"

# What each file is resolved from. Most are held to the versions of `runtime`, so that they install together.
SOURCES = {
    "runtime": [PYPROJECT, "--extra", "export"],  # so that the first example of one's own runs to its end
    "build": ["--group", f"{PYPROJECT}:build"],
    "dev": ["--group", f"{PYPROJECT}:dev"],
    "docs": ["--group", f"{PYPROJECT}:docs"],
    "envs": [PYPROJECT, "--extra", "envs"],
    "slow": ["--group", f"{PYPROJECT}:slow"],
    "strangers": ["requirements/strangers.in"],
    "peers": [PYPROJECT, "requirements/peers.in"],
}
HELD_TO_RUNTIME = {"build", "dev", "docs", "envs", "slow", "strangers"}
# scripts/make_peers.py chooses the torch (one installed, or a CPU build): it and its CUDA are not pinned.
NOT_PINNED = re.compile(r"^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z-]+)==.*\n", re.MULTILINE)


def compile_pins(name: str, upgrade: bool) -> str:
    """Resolve one requirements file and return its text."""
    arguments = [
        "uv",
        "pip",
        "compile",
        *SOURCES[name],
        "--universal",
        "--no-header",
        "--no-annotate",
        "--quiet",
    ]
    arguments += ["--python-version", "3.11", "--constraints", "requirements/exact.in"]
    if name in HELD_TO_RUNTIME:
        arguments += ["--constraints", "requirements/runtime.txt"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "pins.txt")
        current = FOLDER / f"{name}.txt"
        if current.exists() and not upgrade:
            output.write_text(current.read_text())  # uv keeps the versions that it finds in its output file
        subprocess.run([*arguments, "--output-file", str(output)], cwd=ROOT, check=True)
        return NOT_PINNED.sub("", output.read_text())


def main() -> None:
    """Resolve the files asked for, refuse any that names a place, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", default=list(SOURCES), help=f"which files (default: {' '.join(SOURCES)})"
    )
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest versions instead of keeping the pins"
    )
    options = parser.parse_args()
    for name in options.names:
        if name not in SOURCES:
            sys.exit(f"no requirements file is called '{name}'; choose from {', '.join(SOURCES)}.")
        pins = compile_pins(name, options.upgrade)
        if re.search(r"://|file:| @ |--index|--find-links", pins):
            sys.exit(
                f"requirements/{name}.txt would name a place, not only versions. Unset the custom index."
            )
        source = " ".join(word for word in SOURCES[name] if not word.startswith("--"))
        (FOLDER / f"{name}.txt").write_text(HEADER.format(source=source) + pins)
        print(f"requirements/{name}.txt: {sum('==' in line for line in pins.splitlines())} pins")


if __name__ == "__main__":
    main()

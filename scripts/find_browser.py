"""Prints the path of a Chromium with which the tests look at the report's page, or says loudly that there is none.

Tried in this order: the one that INBOUNDS_BROWSER names, one that is installed, one that an earlier call brought, and
the build that the npm registry has. `make test-slow` asks; its browser tests are skipped where nothing is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
PACKAGE = "@sparticuz/chromium@147.0.0"
UNPACK = (
    "import chromium from '@sparticuz/chromium'; import { renameSync } from 'node:fs';"
    "renameSync(await chromium.executablePath(), process.argv[1]);"
)
NOTHING = """
**********************************************************************************************
  NOT RUN: the tests that look at the report's page in a browser. {why}
  To run them install one (Debian: apt-get install chromium), or install Node.js with npm and
  let `make test-slow` fetch one, or name one: INBOUNDS_BROWSER=/path/to/chromium make test-slow
**********************************************************************************************
"""


def starts(path: str) -> bool:
    """Tell whether a browser runs here at all: a missing shared library shows at once."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def fetch(folder: Path) -> str | None:
    """Bring the npm registry's build into a folder and return its path; nothing where npm or the registry is away."""
    target = folder / "chromium"
    if target.exists():
        return str(target)
    if not (shutil.which("npm") and shutil.which("node")):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    install = [
        "npm",
        "install",
        "--prefix",
        str(folder),
        "--no-save",
        "--ignore-scripts",
        "--silent",
        PACKAGE,
    ]
    environment = {**os.environ, "TMPDIR": str(folder)}  # where the package unpacks itself
    unpack = ["node", "--input-type=module", "--eval", UNPACK, str(target)]
    try:
        subprocess.run(install, check=True, timeout=300, stdout=sys.stderr)
        subprocess.run(unpack, check=True, timeout=120, stdout=sys.stderr, cwd=folder, env=environment)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return str(target)


def main() -> None:
    """Print the first browser that starts."""
    (folder,) = sys.argv[1:]
    if named := os.environ.get("INBOUNDS_BROWSER"):
        if not starts(named):
            sys.exit(f"INBOUNDS_BROWSER is {named}, which does not start. Name a Chromium, or unset it.")
        print(named)
        return
    found = [path for name in NAMES if (path := shutil.which(name)) is not None]
    for path in found:
        if starts(path):
            print(path)
            return
    fetched = fetch(Path(folder).resolve())
    if fetched is not None and starts(fetched):
        print(fetched)
        return
    why = "No Chromium is installed, and none came from npm."
    if fetched or found:
        why = f"{fetched or found[0]} does not start."
    print(NOTHING.format(why=why), file=sys.stderr)


if __name__ == "__main__":
    main()

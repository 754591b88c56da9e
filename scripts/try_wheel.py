"""Installs a built wheel into a new virtual environment, outside the checkout, and runs the README's code there.

`python scripts/try_wheel.py DIST` with the folder that holds the wheel. The dependencies are those of the
interpreter that runs this; the package itself comes from the wheel alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STRICT = ("-W", "error", "-W", "ignore:Error reading persistent compilation cache entry")
"""Warnings are errors, but for entries of a shared cache of compiled programs that another process has half written."""
CHECK = """
import importlib.resources, pathlib, sys
import inbounds

assert pathlib.Path(inbounds.__file__).is_relative_to(sys.prefix), inbounds.__file__
assert importlib.resources.files("inbounds").joinpath("py.typed").is_file(), "the wheel lacks py.typed"
for name in inbounds.__all__:
    getattr(inbounds, name)

import gymnasium

environment = gymnasium.make("inbounds/Reacher-v0")
environment.reset(seed=0)
environment.step(environment.action_space.sample())
print(f"inbounds {inbounds.__version__}: {len(inbounds.__all__)} public names work from the wheel")
"""


def readme_code() -> list[str]:
    """Return the Python of the README, block by block."""
    blocks = re.findall(
        r"^```py(?:thon)?\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    if not blocks:
        sys.exit("README.md shows no Python. Look at how its code blocks begin.")
    return blocks


def main() -> None:
    """Install the one wheel of the folder and run the check from an empty folder."""
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/try_wheel.py DIST (the folder that holds one wheel of inbounds)")
    wheels = list(Path(sys.argv[1]).glob("inbounds-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"expected one wheel of inbounds in {sys.argv[1]}, found {len(wheels)}: run `make wheel`.")
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        python = str(venv / "bin" / "python")
        install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        subprocess.run([python, *install, str(wheels[0].resolve())], check=True)
        # A path file lends the dependencies. Path files in that folder are not read, so an editable install
        # of this checkout stays out of sight.
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.strip()
        Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, "-W", "error", "-c", CHECK], cwd=folder, env=environment, check=True)
        Path(folder, "policies").symlink_to(
            ROOT / "policies"
        )  # the README's code loads policies of the clone
        for number, block in enumerate(readme_code(), 1):
            snippet = Path(folder, f"readme_{number}.py")
            snippet.write_text(block)
            subprocess.run([python, *STRICT, str(snippet)], cwd=folder, env=environment, check=True)
        command = str(venv / "bin" / "inbounds")
        subprocess.run([command, "list"], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

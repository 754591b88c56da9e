"""Collects what an offline GPU machine lacks into one archive: `make bundle` here, one command there.

The machine is expected to have Python and a JAX that sees its GPU (with NumPy, SciPy and safetensors) and to
reach no package index. Everything else that training needs is taken at the pinned versions, for the Python of
that machine, and packed into `bundle/site.tar.gz`, to be unpacked into a folder on PYTHONPATH. Plots, reports
and TensorBoard are made where the run folders are read: matplotlib, Jinja2 and tensorboardX do not travel.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PINS = [ROOT / "requirements" / name for name in ("runtime.txt", "slow.txt", "strangers.txt")]
MEBIBYTE = 2**20

# Has it already, because its JAX does.
PRESENT = ("jax", "jaxlib", "numpy", "scipy", "ml-dtypes", "opt-einsum", "safetensors")
# What the trainer imports, and what those packages import in turn.
CARRIED = (
    "absl-py",
    "array-api-compat",
    "cloudpickle",
    "daqp",
    "docstring-parser",
    "etils",
    "farama-notifications",
    "glfw",
    "gymnasium",
    "imageio",
    "lazy-loader",
    "markdown-it-py",
    "mdurl",
    "mujoco",
    "optax",
    "packaging",
    "pygments",
    "rich",
    "typeguard",
    "typing-extensions",
    "tyro",
)
# What a package of `--also` imports in turn, beyond what is carried or present.
COMPANIONS = {
    "box2d": ("pygame-ce",),
    "gymnasium-robotics": ("jinja2", "markupsafe", "pettingzoo"),
    "mujoco-mjx": ("trimesh",),
}
# Folders and files inside the wheels that no training run opens: viewers, headers, tests, drawings, MJX's other engine.
STRIPPED = (
    "mujoco/experimental",
    "mujoco/include",
    "mujoco/mjx/integration_test",
    "mujoco/mjx/test_data",
    "mujoco/mjx/third_party",
    "mujoco/sysid",
    "mujoco/_simulate.*",
    "mujoco/_render_filament.*",
    "mujoco/MuJoCo*",
    "gymnasium_robotics/envs/assets/adroit_hand",
    "gymnasium_robotics/envs/assets/fetch",
    "gymnasium_robotics/envs/assets/hand",
    "gymnasium_robotics/envs/assets/kitchen_franka",
    "gymnasium_robotics/envs/assets/stls",
    "gymnasium_robotics/envs/assets/textures",
    "pygame/docs",
    "pygame/examples",
    "*/tests",
    "*/*_test.py",
    "*/*.pyi",
    "*/*.h",
)
PLATFORMS = (
    "manylinux1",
    "manylinux2010",
    "manylinux2014",
    *(f"manylinux_2_{minor}" for minor in (17, 24, 26, 27, 28)),
)


def pinned(python: str) -> dict[str, str]:
    """Return the pinned version of every package that can travel, for one Python version."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    versions = {}
    for line in (line for pins in PINS for line in pins.read_text().splitlines()):
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(environment):
                versions[canonicalize_name(requirement.name)] = str(requirement.specifier)
    return versions


def chosen(also: Sequence[str]) -> list[str]:
    """Return the packages to carry: those of every training run, and those asked for with what they import."""
    more = [canonicalize_name(name) for name in also]
    companions = [name for asked in more for name in COMPANIONS.get(asked, ())]
    return sorted({*CARRIED, *more, *companions} - set(PRESENT))


def download(names: list[str], versions: dict[str, str], python: str, folder: Path) -> list[Path]:
    """Download one wheel per package, for another Python than the one that runs this."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += [
        "--only-binary=:all:",
        "--implementation",
        "cp",
        "--python-version",
        python,
        "--dest",
        str(folder),
    ]
    for platform in PLATFORMS:
        command += ["--platform", f"{platform}_x86_64"]
    subprocess.run([*command, *(name + versions[name] for name in names)], check=True)
    return sorted(folder.glob("*.whl"))


def is_stripped(name: str) -> bool:
    """Whether a file of a wheel stays behind: it, or a folder that it lies in, matches a pattern."""
    path = PurePosixPath(name)
    return any(part.match(pattern) for part in (path, *path.parents) for pattern in STRIPPED)


def unpack(wheels: list[Path], site: Path) -> list[tuple[str, int]]:
    """Unpack the wheels side by side and return the unpacked size of each."""
    sizes = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            kept = [entry for entry in archive.infolist() if not is_stripped(entry.filename)]
            archive.extractall(site, members=kept)
        sizes.append((wheel.name, sum(entry.file_size for entry in kept)))
    return sizes


def main() -> None:
    """Build the archive, refuse one that is too large to carry, and print the command that uses it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--python", default="3.12", help="Python version of the offline machine (default 3.12)"
    )
    parser.add_argument("--limit", type=float, default=48.0, help="largest archive in MiB (default 48)")
    parser.add_argument("--out", type=Path, default=ROOT / "bundle", help="folder to write (default bundle/)")
    parser.add_argument(
        "--also", nargs="*", default=[], help="more packages to carry, for example mujoco-mjx or pyopengl"
    )
    options = parser.parse_args()

    versions = pinned(options.python)
    names = chosen(options.also)
    unknown = [name for name in names if name not in versions]
    if unknown:
        pins = " or ".join(f"requirements/{path.name}" for path in PINS)
        sys.exit(f"{', '.join(unknown)}: not in {pins}. Choose from {', '.join(sorted(versions))}.")

    site, archive = options.out / "site", options.out / "site.tar.gz"
    shutil.rmtree(options.out, ignore_errors=True)
    site.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        sizes = unpack(download(names, versions, options.python, Path(folder)), site)
    with tarfile.open(archive, "w:gz", compresslevel=9) as tar:
        for path in sorted(site.iterdir()):
            tar.add(path, arcname=path.name)
    shutil.rmtree(site)

    for name, size in sizes:
        print(f"{size / MEBIBYTE:8.2f} MiB  {name}")
    packed = archive.stat().st_size / MEBIBYTE
    print(
        f"{sum(size for _, size in sizes) / MEBIBYTE:8.2f} MiB unpacked, {packed:.2f} MiB in {archive.name}"
    )
    if packed > options.limit:
        archive.unlink()
        sys.exit(
            f"the archive has {packed:.1f} MiB, the limit is {options.limit:g}: raise --limit or carry less."
        )
    print(
        "There, in a copy of this checkout:\n"
        "  mkdir -p bundle/site && tar xzf bundle/site.tar.gz -C bundle/site\n"
        "  PYTHONPATH=bundle/site:src python3 -m inbounds train halfcheetah"
    )


if __name__ == "__main__":
    main()

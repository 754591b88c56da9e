"""What the installed package promises: its public names, a light import, and a wheel that works anywhere."""

from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import inbounds

ROOT = Path(__file__).resolve().parent.parent
USE_WITHOUT_JAX = """
import sys
sys.modules.update(dict.fromkeys(["jax", "jaxlib", "optax", "torch"]))  # importing any of them now fails
import numpy as np
import inbounds as ib

outside = np.array([3.0, 4.0])
ball = ib.Ball(radius_squared=0.25) & ib.Box(-1.0, 1.0)
assert not ball.contains(None, outside)
assert ball.contains(None, ball.project(None, outside))
samples = ball.sample(np.random.default_rng(0), None, n=100, dimension=2)
assert ball.violation(None, samples).max() <= 0
"""


def run_python(code: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_every_public_name_resolves() -> None:
    assert [name for name in inbounds.__all__ if getattr(inbounds, name, None) is None] == []


def test_every_public_name_is_documented() -> None:
    for name in inbounds.__all__:
        value = getattr(inbounds, name)
        documented = value if callable(value) or inspect.ismodule(value) else type(value)
        assert documented.__doc__, f"{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Boxx"):
        inbounds.Boxx  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("name", "meant"), [("report", "inbounds.write_report"), ("Polytop", "inbounds.Polytope")]
)
def test_an_unknown_name_is_told_with_those_like_it(name: str, meant: str) -> None:
    told = run_python(f"import inbounds; inbounds.{name}").stderr
    assert f"inbounds has no attribute {name}. Did you mean" in told and meant in told


def test_the_public_names_are_listed_before_they_are_imported() -> None:
    listed = run_python("import inbounds; print(set(inbounds.__all__) <= set(dir(inbounds)))")
    assert listed.stdout.strip() == "True", listed.stderr


def test_importing_the_package_imports_no_numerical_library() -> None:
    code = "import sys, inbounds; print(*sorted({'jax', 'numpy', 'gymnasium', 'mujoco'} & set(sys.modules)))"
    imported = run_python(code)
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.split() == []


@pytest.mark.parametrize("imports", ["import gymnasium, inbounds", "import inbounds.tasks, gymnasium"])
def test_gymnasium_knows_the_tasks_once_they_are_imported(imports: str) -> None:
    ids = "print(sum(name.startswith('inbounds/') for name in gymnasium.registry), 'jax' in sys.modules)"
    listed = run_python(f"import sys\n{imports}\n{ids}")
    assert listed.returncode == 0, listed.stderr
    count, jax_is_imported = listed.stdout.split()
    assert int(count) == len({inbounds.make(name).environment_id for name in inbounds.tasks.names()})
    assert jax_is_imported == "False"


def test_constraints_work_where_jax_is_not_installed() -> None:
    used = run_python(USE_WITHOUT_JAX)
    assert used.returncode == 0, used.stderr


def test_the_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("inbounds") == inbounds.__version__


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_and_the_code_of_the_readme_work_outside_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*build, "--wheel-dir", tmp_path, "."], cwd=ROOT, check=True)
    tried = subprocess.run(
        [sys.executable, ROOT / "scripts" / "try_wheel.py", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr

"""The scripts in examples/peers train with the real libraries; each runs where its packages are (`make peers`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "peers"
PACKAGES = {
    "sb3_sac": ("stable_baselines3",),
    "cleanrl_style_sac": ("torch",),
    "torchrl_ppo": ("torchrl",),
    "rllib_ppo": ("torch", "ray", "tree"),  # ray alone is installed for `make test-slow`, without its RLlib
}


def run(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    # One thread each: small networks gain nothing from more, and threads that wait for a busy core lose minutes.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(path)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_every_script_is_run_here_and_named_in_the_documentation() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(PACKAGES)
    text = (ROOT / "docs" / "other_libraries.md").read_text()
    assert [name for name in PACKAGES if f"examples/peers/{name}.py" not in text] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", PACKAGES)
def test_a_script_trains_and_no_infeasible_action_arrives(name: str, tmp_path: Path) -> None:
    for package in PACKAGES[name]:
        pytest.importorskip(package)
    ran = run(FOLDER / f"{name}.py", tmp_path)
    assert ran.returncode == 0, ran.stderr
    worst = ran.stdout.rsplit("worst violation ", 1)[1]
    assert float(worst) <= 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_script_fails_without_its_wrapper(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    source = (FOLDER / "sb3_sac.py").read_text()
    assert source.count("ib.ProjectAction(guard)") == 1
    script = tmp_path / "unprotected.py"
    script.write_text(source.replace("ib.ProjectAction(guard)", "guard"))
    ran = run(script, tmp_path)
    assert ran.returncode != 0 and "InfeasibleActionError" in ran.stderr

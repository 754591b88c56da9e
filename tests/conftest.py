"""Settings shared by every test: reproducible property tests, JAX on the CPU, figures without a screen."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

# A failure in CI must be the same failure on the next machine. `HYPOTHESIS_PROFILE=explore` searches afresh.
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))

# Set in the environment, not in the process, so that commands which tests start inherit them.
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("WANDB_MODE", "offline")
if importlib.util.find_spec("jax") is not None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Workers and commands of one test run share what they compile; the folder is new for each run.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _cache = tempfile.TemporaryDirectory(prefix="inbounds-jax-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name


@pytest.fixture(autouse=True)
def quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile learners without most optimisations, whose time the few steps of a test do not win back.

    Tests that are marked slow keep them, and so do those of feasibility, where rounding is what matters.
    """
    folder = request.path.parent.name
    if folder not in ("learners", "training", "benchmark") or request.node.get_closest_marker("slow"):
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)

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
    # Tests compile thousands of small functions, most in far less than the second from which JAX keeps them.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # Most of a quick test's time is the compiler's. It works three to five times faster without optimisations.
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before pytest selects by markers, mark a sweep slow, and tests of constraints as those where rounding decides."""
    for item in items:
        if item.get_closest_marker("sweep") is not None:
            item.add_marker("slow")
        if item.path.parent.name == "constraints":
            item.add_marker("optimised")


@pytest.fixture(autouse=True)
def optimised_compilation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile as users do where rounding decides (constraints, `optimised` tests) and in tests marked slow.

    Other tests, and the commands that they start, compile without most optimisations. So do all tests of training: they
    compare runs bit for bit with runs of module fixtures, which are made before this fixture. A sweep compiles as the
    quick cases of its property do.
    """
    marked = {marker.name for marker in request.node.iter_markers()}
    is_long = "slow" in marked and "sweep" not in marked and request.path.parent.name != "training"
    if not is_long and "optimised" not in marked:
        yield
        return
    import jax

    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)

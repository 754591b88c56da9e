"""Which device JAX computes on: decided through the environment, before JAX looks for devices."""

from __future__ import annotations

import os
from typing import Any

from inbounds.errors import ConfigurationError, UnknownNameError

PLATFORMS = {"cpu": "cpu", "gpu": "cuda"}


def prepare_device(device: str | None, deterministic: bool = False) -> None:
    """Set JAX's platform and, if asked, the flag for reproducible kernels; too late once JAX has computed."""
    if device is not None:
        if device not in PLATFORMS:
            raise UnknownNameError("device", device, PLATFORMS, "Leave --device out to use what JAX finds.")
        os.environ["JAX_PLATFORMS"] = PLATFORMS[device]
    if deterministic:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()


def started_device(device: str | None = None) -> Any:
    """Let JAX look for its devices and return the first one; refuse to go on if it is not what was asked for."""
    import jax

    try:
        found = jax.devices()[0]
    except (RuntimeError, AssertionError) as error:  # the latter is what jax 0.10 says without a CUDA plugin
        asked = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS')}" if device is None else f"--device {device}"
        raise ConfigurationError(
            f"JAX finds no device for {asked} ({_first_line(error)}). Leave that out, or install what the device "
            f"needs: `pip install 'inbounds[cuda12]'`."
        ) from error
    if device is not None and found.platform != device:
        raise ConfigurationError(
            f"JAX computes on {found.platform} here and not on {device}. Leave --device out, or pass --device "
            f"{found.platform}."
        )
    return found


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["it has no such backend"])[0]

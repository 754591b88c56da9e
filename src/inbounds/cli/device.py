"""Which device JAX computes on: decided through the environment, before JAX looks for devices."""

from __future__ import annotations

import os

from inbounds.errors import UnknownNameError

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

"""Reinforcement learning whose every action satisfies a hard constraint: the public names of the library.

Names are imported on first use (PEP 562), so `import inbounds` itself costs almost nothing and needs no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from inbounds import errors as errors

# Where each public name lives; a module maps to itself. A test keeps this equal to the block above.
_HOME = {
    "errors": "inbounds.errors",
}

__all__ = ["__version__", "errors"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(
            f"module 'inbounds' has no attribute '{name}'. Public names: {', '.join(__all__)}."
        )
    module = importlib.import_module(home)
    value = module if home == f"inbounds.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(set(globals()) | set(__all__))

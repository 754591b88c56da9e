"""Reinforcement learning whose every action satisfies a hard constraint: the public names of the library.

`__init__.pyi` lists the names. They are imported on first use, so `import inbounds` is fast and needs no JAX.
"""

import sys
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name, or say which names are like an unknown one."""
    try:
        return _listed(name)
    except AttributeError as error:
        import difflib

        near = [f"inbounds.{known}" for known in difflib.get_close_matches(name, __all__)]
        hint = f" Did you mean {' or '.join(near)}?" if near else " dir(inbounds) lists the names."
        raise AttributeError(f"inbounds has no attribute {name}.{hint}", name=name) from error


if "gymnasium" in sys.modules:
    from inbounds import tasks as tasks  # registers the Gymnasium ids

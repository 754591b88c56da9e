"""Reinforcement learning whose every action satisfies a hard constraint: the public names of the library.

`__init__.pyi` lists the names. They are imported on first use, so `import inbounds` is fast and needs no JAX.
"""

import sys

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if "gymnasium" in sys.modules:
    from inbounds import tasks as tasks  # registers the Gymnasium ids

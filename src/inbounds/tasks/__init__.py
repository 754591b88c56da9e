"""What is solved: environments with their hard constraints, by name and as Gymnasium ids.

Importing this package registers the ids: `gymnasium.make("inbounds.tasks:inbounds/Reacher-v0")` needs no other import.
`__init__.pyi` lists the names. They are imported on first use.
"""

import lazy_loader

from inbounds.tasks.registry import register_environments

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register_environments()

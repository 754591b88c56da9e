"""Makes the tasks known to `gymnasium.make` whenever Gymnasium is imported, without importing it ourselves.

Gymnasium has no plugin mechanism since its version 1.0, and importing it costs more than `import inbounds`
does. So the tasks are registered at once if it is already there, and otherwise a finder waits for its import:
`gymnasium.make("inbounds/Reacher-v0")` works in whichever order a program imports the two.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def register_with_gymnasium() -> None:
    """Register the tasks now if Gymnasium is loaded, else as soon as it is."""
    if "gymnasium" in sys.modules:
        _register()
    elif not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder())


def _register() -> None:
    importlib.import_module("inbounds.tasks.registry").register_environments()


class _GymnasiumFinder(importlib.abc.MetaPathFinder):
    """Lets the other finders find Gymnasium, and adds one step after its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return Gymnasium's own spec with our loader around its loader; nothing for other modules."""
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)  # it has served, and the search below must not come back here
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader)
        return spec


class _ThenRegister(importlib.abc.Loader):
    """Loads a module as its own loader does, then registers the tasks."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Gymnasium must keep its own loader: `importlib.resources` and `inspect` ask it for files.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _register()

"""Tells when a module is imported for the first time, without importing it."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec


class Arrival(MetaPathFinder):
    """Calls `then` once, right after the module `name` has run, before the import statement goes on.

    Stands in `sys.meta_path` until then, which costs the imports before it one comparison each; nothing of it is
    left behind. What `then` raises is dropped: it must not become an error of the user's import.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def wait(self) -> None:
        """Begin to look out; where the module is there already, nothing happens."""
        if self.name not in sys.modules and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Look out no more."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders give; for the module in question with a loader that tells us."""
        if name != self.name:
            return None
        others = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
        spec = next((s for f in others if (s := f.find_spec(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Loader) -> None:
        # on the object and not around it: others ask a module for its loader by its class
        run = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            self.stop()
            with contextlib.suppress(Exception):
                self.then()

        with contextlib.suppress(AttributeError):  # a loader without a place for attributes: then without us
            loader.exec_module = exec_module  # type: ignore[method-assign]

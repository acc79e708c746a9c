"""Diagnose, compile and time the functions of a notebook with `jax.jit`.

In IPython or Jupyter, `%load_ext jitmagic` brings `%%jit`, `%jit`, `%%jitcheck` and `%jitcheck`.
In Python, `jit`, `check` and `explain` do the same without a notebook. Importing this package loads
neither JAX nor IPython: what a name needs comes in with its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from jitmagic.checking.asked import check
    from jitmagic.render import Report
    from jitmagic.rules import page as explain
    from jitmagic.state.compiled import jit

__version__ = "0.1.0"
__all__ = [
    "Report",
    "__version__",
    "check",
    "explain",
    "jit",
    "load_ipython_extension",
    "unload_ipython_extension",
]

# No submodule may bear one of these names: importing it would put the module in the function's place.
_HOMES = {
    "Report": ("jitmagic.render", "Report"),
    "check": ("jitmagic.checking.asked", "check"),
    "explain": ("jitmagic.rules", "page"),
    "jit": ("jitmagic.state.compiled", "jit"),
}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics and hooks in `shell`; what `%load_ext jitmagic` calls."""
    from jitmagic.notebook import magics

    magics.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove from `shell` what `load_ipython_extension` put there; what `%unload_ext jitmagic` calls."""
    from jitmagic.notebook import magics

    magics.unload(shell)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

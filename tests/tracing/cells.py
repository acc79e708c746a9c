"""Cells for the tests: source with a file name that linecache knows, as IPython gives it."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any

_PRELUDE = "import functools\nimport math\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
_numbers = itertools.count(1)


def cell(source: str, prelude: str = _PRELUDE) -> dict[str, Any]:
    """Run source as a cell of its own and give its namespace."""
    name = f"<ipython-input-{next(_numbers)}-test>"
    text = prelude + source
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace: dict[str, Any] = {}
    exec(compile(text, name, "exec"), namespace)
    return namespace


def function(source: str) -> Callable[..., Any]:
    """The function `f` that a cell defines."""
    return cell(source)["f"]

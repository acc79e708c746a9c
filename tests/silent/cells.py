"""Cells run as a notebook runs them, and what is found in them without an error."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Sequence
from typing import Any

from jitmagic.checking.checker import Checker
from jitmagic.checking.corrections import findings_of
from jitmagic.checking.watched import Watched
from jitmagic.evidence import Silent
from jitmagic.report import Finding
from jitmagic.settings import CellSource, Settings

SETUP = "import functools\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
_numbers = itertools.count(1)


def checked(cell: str, *calls: str, setup: str = "", **options: Any) -> Checker:
    """The checker of the cell's `f` after these calls; one that fails is left behind."""
    from jitmagic.options import JitOptions

    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(SETUP + setup, namespace)
    file, text = f"<ipython-input-{next(_numbers)}-silent>", "\n" + cell
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), namespace)
    checker = Checker(
        namespace["f"], "f", namespace=namespace, settings=Settings(time=False),
        cell=CellSource("%%jit\n" + cell, cell), options=JitOptions.of(**options),
    )  # fmt: skip
    checker.history = lambda: list(calls)
    namespace["f"] = Watched(namespace["f"], checker)
    for call in calls:
        checker.call_source = lambda call=call: (call, None)  # type: ignore[misc]
        try:
            exec(call, namespace)
        except Exception:  # the diagnosis is what is wanted
            pass
    return checker


def facts(cell: str, *calls: str, setup: str = "", **options: Any) -> Silent:
    """The silent facts of those calls."""
    found = checked(cell, *calls, setup=setup, **options).seen.silent
    assert found is not None
    return found


def finding(kind: str, cell: str, *calls: str, setup: str = "", **options: Any) -> Finding:
    """The one finding of that kind."""
    found = [f for f in findings_of(checked(cell, *calls, setup=setup, **options)) if f.kind == kind]
    assert len(found) == 1, found
    return found[0]


def lines(records: Sequence[Any]) -> list[str]:
    """Source lines of records."""
    return [r.where.source for r in records]

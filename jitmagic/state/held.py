"""Arrays that a notebook holds, by the paths that lead to them from its names."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from jitmagic.state.values import children, is_jax_array, step_text
from jitmagic.tracing.compat import is_tracer

MOST = 100_000
"""Values that are looked at."""


def held_arrays(names: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    """Each array of jax's with its shortest path; what the notebook itself keeps of results (`Out[3]`, `_`) last."""
    ordered = sorted(names.items(), key=lambda item: item[0].startswith("_") or item[0] in ("In", "Out"))
    waiting = deque((name, value) for name, value in ordered if not isinstance(value, ModuleType))
    seen = {id(names)}
    while waiting and len(seen) < MOST:
        path, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if is_jax_array(value):
            if not is_tracer(value):
                yield path, value
            continue
        for kind, key, inner in children(value):
            waiting.append((path + step_text(kind, key), inner))

"""What a notebook holds, by the paths that lead there from its names: arrays, and variables of frameworks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from jitmagic.state import values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.values import children, is_a, is_jax_array, step_text
from jitmagic.tracing.compat import is_tracer

MOST = 100_000
"""Values that are looked at for arrays."""
MOST_NAMED, DEPTH = 5_000, 4
"""Those that are looked at for variables, and how far below a name."""


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


def names_of_variables(namespace: Mapping[str, object]) -> dict[int, str]:
    """The shortest public path to each framework's variable below the names of a notebook, by its `id`.

    The attribute of an object comes before a name of its own, which a loop over variables may leave behind. Private
    names and attributes are left out; modules, functions and plain arrays are not looked into."""
    found: dict[int, str] = {}
    bare = {id(v): n for n, v in namespace.items() if adapter_for(v) is not None and not n.startswith("_")}
    seen: set[int] = set()
    level = [(name, value) for name, value in namespace.items() if not name.startswith("_")]
    for _ in range(DEPTH):
        below: list[tuple[str, object]] = []
        for path, value in level:
            if (
                id(value) in seen
                or (path in namespace and id(value) in bare)
                or len(seen) > MOST_NAMED
                or not _is_looked_into(value)
            ):
                continue
            seen.add(id(value))
            if adapter_for(value) is not None:
                found[id(value)] = path
                continue
            below += [(path + step_text(kind, key), v) for kind, key, v in children(value) if _public(key)]
        level = below
    return bare | found


def _is_looked_into(value: object) -> bool:
    atoms = (ModuleType, type, *values.FUNCTIONS)
    return not (is_a(value, atoms) or values.is_leaf(value)) and values.is_walkable(value)


def _public(key: object) -> bool:
    return not (isinstance(key, str) and key.startswith("_"))


def is_there(array: Any) -> bool:
    """Its memory could be had, or is still to be asked for; jaxlib ends the process where any other's is read."""
    try:
        if array.is_ready():
            array.block_until_ready()
    except Exception:  # deleted, or what did not fit
        return False
    return True

"""The names that a notebook has for variables which a function reaches through the insides of a library."""

from __future__ import annotations

import types
from collections.abc import Mapping

from jitmagic.state import values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.values import is_a, step_text

MOST = 5_000
DEPTH = 4


def of_variables(namespace: Mapping[str, object]) -> dict[int, str]:
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
                or len(seen) > MOST
                or not _is_looked_into(value)
            ):
                continue
            seen.add(id(value))
            if adapter_for(value) is not None:
                found[id(value)] = path
                continue
            below += [
                (path + step_text(kind, key), v) for kind, key, v in values.children(value) if _public(key)
            ]
        level = below
    return bare | found


def _is_looked_into(value: object) -> bool:
    atoms = (types.ModuleType, type, *values.FUNCTIONS)
    return not (is_a(value, atoms) or values.is_leaf(value)) and values.is_walkable(value)


def _public(key: object) -> bool:
    return not (isinstance(key, str) and key.startswith("_"))

"""A class whose `__init__` looks at its values: jax rebuilds the objects without it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.source import scope
from jitmagic.source.edits import FunctionNode


def unflattened(spot: Spot) -> Iterator[Change]:
    """`tree_unflatten` with `object.__new__`, where `__init__` asks for the value of what it is given."""
    owner = spot.here(ast.ClassDef)
    if owner is None or spot.innermost is None or spot.innermost.name not in ("__init__", "__post_init__"):
        return
    methods = {m.name: m for m in owner.body if isinstance(m, FunctionNode)}
    if not {"tree_flatten", "tree_unflatten"} <= set(methods):
        return
    flatten, unflatten = methods["tree_flatten"], methods["tree_unflatten"]
    pair = spot.text.own(flatten, ast.Return)[-1].value
    if isinstance(pair, ast.Tuple) and len(pair.elts) == 2:
        *above, settings, children = (a.arg for a in unflatten.args.args)
        stored = [f"obj = object.__new__({above[0] if above else owner.name})"]
        for part, given in zip(pair.elts, (children, settings), strict=True):
            names = _attributes(flatten, part)
            stored += (
                [f"{', '.join(f'obj.{n}' for n in names)}{',' * (len(names) == 1)} = {given}"]
                if names
                else []
            )
        body = "\n".join([*stored, "return obj"])
        edits = spot.edits().statements(unflatten.body[0], body, unflatten.body[-1])
        yield Change(
            "let `tree_unflatten` rebuild the object without `__init__`, which looks at values", edits
        )


def _attributes(flatten: FunctionNode, part: ast.expr) -> list[str]:
    """Names of the attributes that a part of what `tree_flatten` returns holds, in order."""
    if isinstance(part, ast.Name):
        part = scope.assigned(flatten, part.id) or part
    own = flatten.args.args[0].arg
    found = (n for n in ast.walk(part) if isinstance(n, ast.Attribute) and getattr(n.value, "id", "") == own)
    return list(dict.fromkeys(n.attr for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))))

"""What displays hold: tuples, lists, dicts, and calls that make objects of classes of the cell."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from jitmagic.fixes.change import Spot
from jitmagic.fixes.objects.layouts import class_of, declared
from jitmagic.source.modules import last_name


def part_of(
    spot: Spot, node: ast.expr, path: str, spelt_out: Callable[[ast.expr], ast.expr] = lambda node: node
) -> ast.expr | None:
    """What stands at `[0]`, `['n']` or `.n` of an expression; None where that is not written there. `spelt_out` gives
    what a name stands for."""
    for step in re.findall(r"\[[^\]]*\]|\.\w+", path):
        key = step.strip("[].'\"")
        found = _held(spot, spelt_out(node), int(key) if key.isdigit() else key)
        if found is None:
            return None
        node = found
    return node


def _held(spot: Spot, node: ast.expr, key: str | int) -> ast.expr | None:
    match node:
        case ast.Tuple(elts) | ast.List(elts) if isinstance(key, int):
            return elts[key] if key < len(elts) else None
        case ast.Dict(keys, values):
            named = {getattr(k, "value", None): v for k, v in zip(keys, values, strict=True)}
            return named.get(key)
        case ast.Call(func):
            kind = class_of(spot, last_name(func))
            fields = declared(kind) if kind is not None else {}
            name = [*fields][key] if isinstance(key, int) and key < len(fields) else str(key)
            given = dict(zip(fields, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
            return given.get(name)
    return None

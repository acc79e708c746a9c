"""Texts among the results, which are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.source.edits import Edits
from jitmagic.source.pattern import tuple_of


def returned_texts(spot: Spot) -> Iterator[Change]:
    """A text among the results is left out: an entry of a dict, the end of a tuple."""
    edits, left_out = spot.edits(), list[str]()
    for leave in spot.text.own(spot.definition, ast.Return):
        for node in spot.text.within(leave, ast.expr):
            if isinstance(node, ast.Dict | ast.Tuple):
                left_out += _without_texts(spot, edits, node)
    if left_out:
        told = " and ".join(f"`{code}`" for code in left_out)
        claim = Claim("covers", f"without {told}")
        yield Change(f"leave {told} out of what is returned: add it after the call", edits, claim=claim)


def _without_texts(spot: Spot, edits: Edits, node: ast.Dict | ast.Tuple) -> list[str]:
    """Take the texts out of a dict, and off the end of a tuple; how each looks in the source."""
    if isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
        kept = [(k, v) for k, v in pairs if not _is_text(spot, v, k)]
        codes = [
            f"{spot.code(k)}: {edits.code(v)}" if k is not None else f"**{edits.code(v)}" for k, v in kept
        ]
        code = "{" + ", ".join(codes) + "}"
        gone = [f"{spot.code(k)}: {spot.code(v)}" for k, v in pairs if (k, v) not in kept and k is not None]
    else:
        count = len(node.elts)
        while count and _is_text(spot, node.elts[count - 1], None):
            count -= 1
        gone = [spot.code(e) for e in node.elts[count:]] if count else []
        code = tuple_of([edits.code(e) for e in node.elts[:count]])
    if gone:
        edits.replace(node, code)
    return gone


def _is_text(spot: Spot, node: ast.expr, key: ast.expr | None) -> bool:
    named = isinstance(key, ast.Constant) and key.value in spot.names and not isinstance(node, ast.Call)
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr) or text or named

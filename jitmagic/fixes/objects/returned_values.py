"""Functions and texts among the results: a function as a `Partial`, a text left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.objects.argument_forms import function_of
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, FunctionNode


def returned_functions(spot: Spot) -> Iterator[Change]:
    """A function that is returned is a `Partial`, a pytree whose leaves are the values that it has kept."""
    function, edits, kept = function_of(spot), spot.edits(), list[str]()
    inner = {f.name: f for f in function.body if isinstance(f, ast.FunctionDef)}
    bound = scope.local_names(function) - {*spot.declared, *inner}
    for part in _returned(spot, function):
        made = inner.get(part.id) if isinstance(part, ast.Name) else part
        if not isinstance(made, ast.FunctionDef | ast.Lambda):
            continue
        free = scope.loads(made) & bound
        read = list(dict.fromkeys(n.id for n in spot.text.within(made, ast.Name) if n.id in free))
        uses = [n for n in spot.text.within(function, ast.Name) if n.id == getattr(made, "name", "")]
        if not read or len(uses) > 1:
            return
        if isinstance(made, ast.FunctionDef):
            signature.take_first(edits, made, read)
            edits.replace(part, spot.write("jax.tree_util.Partial($f, $*kept)", f=part, kept=read))
        else:
            taken = ", ".join([*read, ast.unparse(made.args)]).rstrip(", ")
            partial = "jax.tree_util.Partial(lambda $$taken: $body, $*kept)"
            edits.replace(part, spot.write(partial, taken=taken, body=made.body, kept=read))
        kept += [n for n in read if n not in kept]
    if kept:
        title = f"return a function that takes {listed(kept)} along: a `Partial`, whose values jax can return"
        yield Change(title, edits, claim=Claim("new", "the function that comes back is a `Partial`"))


def returned_texts(spot: Spot) -> Iterator[Change]:
    """A text among the results is left out: an entry of a dict, the end of a tuple."""
    edits, left_out = spot.edits(), list[str]()
    for value in _values(spot, function_of(spot)):
        for node in spot.text.within(value, ast.expr):
            if isinstance(node, ast.Dict | ast.Tuple):
                left_out += _without_texts(spot, edits, node)
    if left_out:
        told = " and ".join(f"`{code}`" for code in left_out)
        claim = Claim("covers", f"without {told}")
        yield Change(f"leave {told} out of what is returned: add it after the call", edits, claim=claim)


def _values(spot: Spot, function: FunctionNode) -> list[ast.expr]:
    return [r.value for r in spot.text.own(function, ast.Return) if r.value is not None]


def _returned(spot: Spot, function: FunctionNode) -> list[ast.expr]:
    """What is returned, and the parts of a tuple of it."""
    values = _values(spot, function)
    return [part for v in values for part in (v.elts if isinstance(v, ast.Tuple) else [v])]


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
        code = f"({', '.join(edits.code(e) for e in node.elts[:count])}{',' * (count == 1)})"
    if gone:
        edits.replace(node, code)
    return gone


def _is_text(spot: Spot, node: ast.expr, key: ast.expr | None) -> bool:
    named = isinstance(key, ast.Constant) and key.value in spot.names and not isinstance(node, ast.Call)
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr) or text or named

"""Settings among what goes in and comes out: objects that hold them, modules of a framework that its own `jit` takes
as they are, and texts among the results."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.inputs.followed_variables import decorated
from jitmagic.fixes.objects.argument_forms import arguments, refused_besides
from jitmagic.fixes.objects.layouts import declare, declared
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source.edits import Edits
from jitmagic.source.pattern import tuple_of
from jitmagic.state.adapters import DECLARED_STATIC, OWN_JIT, TAKES_CONVERTER


def static_settings(spot: Spot) -> Iterator[Change]:
    """Texts and functions, for which a program can only be compiled, are static."""
    if names := refused_besides(spot, ()):
        title = f"make {listed(names)} static: each new value compiles again"
        yield Change(title, static=names, sure=False)


def static_objects(spot: Spot) -> Iterator[Change]:
    """An object that cannot change and holds settings alone, or has no state at all, is static."""
    for name in arguments(spot):
        leaves = spot.leaves(name)
        if leaves and all(leaf.path == name and leaf.settles for leaf in leaves):
            title = f"make `{name}` static: no state of it may change, and each new one compiles again"
            yield Change(title, static=(name, *refused_besides(spot, [name])), sure=False)


def own_jit(spot: Spot) -> Iterator[Change]:
    """A function that takes objects with settings in them is compiled by a framework's `jit`, which leaves them out."""
    function = spot.definition
    objects = any("." in leaf.path for n in arguments(spot) for leaf in spot.leaves(n))
    known = set(spot.modules.names.values()) & set(OWN_JIT) if objects and not spot.declared else ()
    for jit in (spot.modules.spelled(OWN_JIT[module]) for module in known):
        title = f"compile with `{jit}`, which traces the arrays and keeps the rest as it is"
        yield Change(title, decorated(spot, function, jit))


def fields_as_arrays(spot: Spot) -> Iterator[Change]:
    """A number in a field of a framework's class, to whose `jit` it is static, is held as an array."""
    for name in (path.rpartition(".")[2] for path in spot.names[:1] if root(path) != path):
        edits = spot.edits()
        for kind in spot.classes:
            part = declared(kind).get(name)
            made = next((m for m in map(spot.full, kind.bases) if m in TAKES_CONVERTER), None)
            if part is not None and made is not None and ast.unparse(part.annotation) in ("float", "int"):
                converter = spot.write("converter=jnp.asarray")
                declare(spot, edits, part, DECLARED_STATIC[made][0], converter, spot.write("jax.Array"))
        if edits:
            yield Change(f"hold `{name}` as an array", edits)


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
        codes = (f"{spot.code(k)}: {edits.code(v)}" if k else f"**{edits.code(v)}" for k, v in kept)
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

"""Traced values as an index or a key: functions in a list, tables of constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.source.edits import Edits
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Filling, call_of, stripped

SWITCH = "choose the function with `jax.lax.switch`"
ARRAY = "make `{}` an array, which takes a traced index"
CLAMPED = "an index beyond the end is clamped, not an error"
MISSING = "a missing key is no error"
BOUNDED = frozenset("argmax argmin clip argsort categorical".split())
"""What gives indices that are in range."""


def lookups(spot: Spot) -> Iterator[Change]:
    """A list, a pair, a dict or an array of NumPy's that is looked up by a traced value."""
    yield from _with_default(spot)
    for node in _lookups(spot):
        if spot.modules.called(node.value).startswith("jax."):
            continue  # an array takes it already
        if _is_dict(spot, node.value):
            yield from _entry(spot, node)
        elif not isinstance(node.slice, ast.Tuple):
            yield from _item(spot, node)
        elif {s.type for s in spot.seen(node.value)} == {"numpy"}:
            title = f"make `{spot.code(node.value)}` an array of jax's, which takes traced indices"
            array = spot.write("jnp.asarray($table)", table=node.value)
            yield _indexed(spot, title, spot.edits().replace(node.value, array), node)


def _lookups(spot: Spot) -> list[ast.Subscript]:
    """Single items, by something traced."""
    return [
        n for n in spot.on_line(ast.Subscript)
        if isinstance(n.ctx, ast.Load) and spot.is_traced(n.slice)
        and not isinstance(n.slice, ast.Slice)
    ]  # fmt: skip


def _item(spot: Spot, node: ast.Subscript) -> Iterator[Change]:
    """`table[i]` of a list: a call of it as `switch`, or an item of an array."""
    table, index = spot.code(node.value), _whole(spot, node.slice)
    parent, edits = spot.text.parents[node], spot.edits()
    found = _uses(spot, parent if isinstance(parent, ast.Assign) else node)
    given = [_arguments(spot, use) for use in found]
    if found and None not in given:
        for use, a in zip(found, given, strict=True):
            edits.replace(spot.text.parents[use], call_of(spot.write("lax.switch"), index, table, *(a or ())))
        yield _indexed(spot, SWITCH, edits.remove(parent) if isinstance(parent, ast.Assign) else edits, node)
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    stacked = "jax.tree.map(lambda *xs: jnp.stack(xs)[$index], *$table)"
    for form in ("jnp.array($table)[$index]", "jnp.stack($table)[$index]", stacked):
        title = f"stack what `{table}` holds, and index that" if form is stacked else ARRAY.format(table)
        new = spot.write(form, table=node.value, index=index)
        yield _indexed(spot, title, spot.edits().replace(node, new), node)


def _indexed(spot: Spot, title: str, edits: Edits, node: ast.Subscript) -> Change:
    """A lookup by a traced index: beyond the end it is no error, but the last element, where it can be there."""
    bounded = any(
        last_name(n.func) in BOUNDED if isinstance(n, ast.Call)
        else isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) and spot.code(n.right).startswith("len(")
        for n in ast.walk(_assigned(spot, node.slice))
    )  # fmt: skip
    return Change(title, edits) if bounded else Change(title, edits, cost=CLAMPED, sure=False)


def _inside_int(node: ast.expr) -> ast.expr | None:
    """`x` of `int(x)`."""
    match node:
        case ast.Call(func=ast.Name(id="int"), args=[value], keywords=[]):
            return value
    return None


def _whole(spot: Spot, node: ast.expr) -> str:
    """An index as one that arrays take: without `int`, where what it is called on is whole already."""
    value = _inside_int(node)
    kinds = {s.dtype.strip("0123456789") for s in spot.seen(value)} if value is not None else set()
    if value is not None and kinds == {"bool"}:
        return spot.write("jnp.int32($value)", value=value)
    return stripped(spot.code(value if value is not None and kinds and kinds <= {"int", "uint"} else node))


# --- dicts --------------------------------------------------------------------------------------------


def _is_dict(spot: Spot, table: ast.expr) -> bool:
    asked = f"(__seen__(int(isinstance({spot.code(table)}, dict))), {spot.code(table)})[1]"
    shown = isinstance(_assigned(spot, table), ast.Dict)
    return shown or any(s.value for s in spot.probe(spot.edits().replace(table, asked).result()))


def _entry(spot: Spot, node: ast.Subscript) -> Iterator[Change]:
    """`table[key]` of a dict: where the key stands among its keys is the index of its value."""
    table, parent = node.value, spot.text.parents[node]
    place = "jnp.argmax(jnp.array(list($table)) == $key)"
    place = spot.write(place, table=table, key=_whole(spot, node.slice))
    holes: dict[str, Filling] = {"table": table, "place": place}
    title = ARRAY.format(spot.code(table))
    forms = ["jnp.array(list($table.values()))[$place]", "jnp.stack(list($table.values()))[$place]"]
    replaced: ast.AST = node
    if isinstance(parent, ast.Call) and parent.func is node:
        title, forms, replaced = SWITCH, ["lax.switch($place, list($table.values()), $*given)"], parent
        holes["given"] = [*parent.args, *parent.keywords]
    for form in () if isinstance(table, ast.Call) else forms:
        edits = spot.edits().replace(replaced, spot.write(form, **holes))
        yield Change(title, edits, cost=MISSING, sure=False)


def _uses(spot: Spot, node: ast.AST) -> list[ast.AST]:
    """Where the one name occurs that a statement binds; another expression itself."""
    bound = [n for n in spot.text.within(node, ast.Name) if isinstance(n.ctx, ast.Store)]
    if not isinstance(node, ast.stmt):
        return [node]
    names = spot.text.within(spot.innermost or spot.text.tree, ast.Name)
    own = spot.text.within(node, ast.Name)
    return [n for n in names if {b.id for b in bound} == {n.id} and n not in own]


def _arguments(spot: Spot, function: ast.AST) -> list[str] | None:
    """The arguments of the call of this function; None where it is no call, or not by position."""
    match spot.text.parents[function]:
        case ast.Call(func=func, args=given, keywords=[]) if func is function:
            if not any(isinstance(a, ast.Starred) for a in given):
                return [stripped(spot.code(a)) for a in given]
    return None


def _assigned(spot: Spot, node: ast.expr) -> ast.expr:
    return (spot.assigned(node.id) if isinstance(node, ast.Name) else None) or node


def _with_default(spot: Spot) -> Iterator[Change]:
    """`table.get(key, default)` of a dict."""
    for node in spot.on_line(ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *default], keywords=[]) if (
                len(default) < 2 and spot.is_traced(key)
            ):
                form = "jnp.select([$key == key for key in $table], list($table.values()), $default)"
                otherwise = default[0] if default else spot.write("jnp.nan")
                new = spot.write(form, key=_whole(spot, key), table=table, default=otherwise)
                title = f"choose from `{spot.code(table)}` with `jnp.select`"
                yield Change(title, spot.edits().replace(node, new))

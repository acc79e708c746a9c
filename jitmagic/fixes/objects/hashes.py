"""A hash for a class of the cell whose object is a static argument."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from jitmagic.fixes.change import AttributeTypes, Change, Spot
from jitmagic.fixes.objects.argument_forms import arguments
from jitmagic.fixes.objects.layouts import class_of, declared, is_dataclass
from jitmagic.fixes.objects.registered import made_of
from jitmagic.source.edits import Edits
from jitmagic.source.modules import dotted, last_name
from jitmagic.source.pattern import tuple_of

_HASHED = {"list": "tuple({})", "set": "frozenset({})", "dict": "tuple(sorted({}.items()))"}
"""What stands in a hash for an attribute of these types."""


def hashes(spot: Spot) -> Iterator[Change]:
    """`frozen=True` for a dataclass, or a `__hash__` by what `__eq__` compares."""
    for name in {leaf.python_type for n in arguments(spot) for leaf in spot.leaves(n)}:
        kind = class_of(spot, name)
        if kind is None:
            continue
        fields = made_of(spot, [kind]).get(name, {})
        edits = spot.edits()
        done = (
            _frozen(spot, edits, kind, fields) if is_dataclass(spot, kind) else _compared(edits, kind, fields)
        )
        if done:
            cost = "its attributes must not change, and each new one compiles again"
            yield Change(f"{done}: {cost}", edits, sure=False)


def _frozen(spot: Spot, edits: Edits, kind: ast.ClassDef, fields: Mapping[str, AttributeTypes]) -> str:
    done = []
    for decorator in kind.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        head = call.func if call is not None else decorator
        given = {k.arg: ast.unparse(k.value) for k in call.keywords} if call is not None else {}
        if last_name(head) == "dataclass" and given.get("frozen") != "True":
            inside = [spot.code(k) for k in call.keywords if k.arg != "frozen"] if call is not None else []
            edits.replace(decorator, f"{spot.code(head)}({', '.join([*inside, 'frozen=True'])})")
            done.append(f"make `{kind.name}` a frozen dataclass")
    if any(not held.hashable for held in fields.values()):
        _with_hash(edits, [*declared(kind).values()][-1], "self", fields)
        done.append("give it a hash by its fields" if done else f"give `{kind.name}` a hash by its fields")
    return ", and ".join(done)


def _compared(edits: Edits, kind: ast.ClassDef, fields: Mapping[str, AttributeTypes]) -> str:
    equal = next((n for n in kind.body if isinstance(n, ast.FunctionDef) and n.name == "__eq__"), None)
    if equal is None:
        return ""
    own = equal.args.args[0].arg
    read = {n.attr for n in ast.walk(equal) if isinstance(n, ast.Attribute) and dotted(n.value) == own}
    if not read & set(fields):
        return ""
    _with_hash(edits, equal, own, {name: held for name, held in fields.items() if name in read})
    return f"give `{kind.name}` a hash by what `__eq__` compares"


def _with_hash(edits: Edits, above: ast.stmt, own: str, fields: Mapping[str, AttributeTypes]) -> None:
    parts = [_HASHED.get(min(h.types), "{}").format(f"{own}.{name}") for name, h in fields.items()]
    pad = " " * above.col_offset
    lines = ["", "", f"{pad}def __hash__({own}):", f"{pad}    return hash({tuple_of(parts)})"]
    edits.insert(edits.text.span(above)[1], "\n".join(lines))

"""What a loop carries and what its body leaves behind: types of the start, and lists that a body fills."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place

LOOPS = {"fori_loop": 3, "while_loop": 2, "scan": 1}
"""Position of the start value."""


def candidates(place: Place) -> Iterator[Candidate]:
    """A start that has another type than the result of the body; a body that appends to a list outside."""
    if place.kind in ("carry-mismatch", "user-error"):
        yield from _starts(place)
    elif place.kind in ("leaked-tracer", "state-write"):
        yield from _appended(place)


# -- the start of a loop


def _starts(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    for loop in place.on_line(cst.Call):
        start = start_of(loop)
        if start is None:
            continue
        found = mismatches(place.message)
        rows = argument_of(loop, 2, "xs") if loop_name(loop) == "scan" else None
        likes = [f"{rows.value}[0]", ""] if isinstance(rows, cst.Name) and any(m[3] for m in found) else [""]
        for like in likes:
            changes: dict[Any, str | None] = {}
            for path, have, want, shape in found:
                if have == want and not shape:
                    continue  # a number comes out of what is an array
                part = part_at(place, loop, start, path)
                if isinstance(part, Missing):
                    value = f"{part.name}={started(place, part.default, want, shape, have, like)}"
                    changes[part.call] = _with_argument(place.cell.code(part.call), value)
                elif part is not None:
                    changes[part] = started(place, part, want, shape, have, like)
            sized = not like and any(m[3] for m in found)
            if changes:
                yield Candidate(
                    "start the loop with the type that its body gives", place.cell.edit(changes),
                    "unsafe" if sized else "safe", "for arrays of this size" if sized else "",
                )  # fmt: skip


def argument_of(call: Any, position: int, keyword: str) -> Any:
    """What a call gives for a parameter, or None."""
    named = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == keyword), None)
    plain = [a.value for a in call.args if a.keyword is None and not a.star]
    return named if named is not None else plain[position] if len(plain) > position else None


def loop_name(call: Any) -> str:
    """`scan` for `jax.lax.scan(...)`, or nothing where it is no loop."""
    import libcst as cst

    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
    return name if name in LOOPS else ""


def start_of(loop: Any) -> Any:
    """The node of the start value in a call of a loop, or None."""
    name = loop_name(loop)
    if not name:
        return None
    return argument_of(loop, LOOPS[name], "init" if name == "scan" else "init_val")


@dataclass(frozen=True)
class Missing:
    """An argument that a call leaves to its default."""

    call: Any
    name: str
    default: Any


def part_at(place: Place, loop: Any, start: Any, path: str) -> Any:
    """The node of the part of the start value that a path of jax's message names; None where it is not spelt out."""
    path = re.sub(r"^loop_carry\[\d+\]", "", path)
    keys = [m[0] for m in re.finditer(r"\[[^\]]+\]|\.\w+", path)]
    node = start
    for key in keys:
        node = _child(place, _spelt_out(place, loop, node), key)
        if node is None or isinstance(node, Missing):
            return node
    return node if keys or _spelt_out(place, loop, node) is node else _scalar(place, loop, node)


def _scalar(place: Place, loop: Any, node: Any) -> Any:
    """The number that a name was given, else the name itself."""
    import libcst as cst

    found = _spelt_out(place, loop, node)
    return found if isinstance(found, (cst.Integer, cst.Float)) else node


def _spelt_out(place: Place, loop: Any, node: Any) -> Any:
    """What a name of the function was assigned, where that happens once; any other node is itself."""
    import libcst as cst

    if not isinstance(node, cst.Name):
        return node
    scope = place.cell.function(loop)
    assigned = [
        a.value for a in (place.cell.own(scope, cst.Assign) if scope is not None else ())
        if len(a.targets) == 1 and getattr(a.targets[0].target, "value", None) == node.value
    ]  # fmt: skip
    return assigned[0] if len(assigned) == 1 else node


def _child(place: Place, node: Any, key: str) -> Any:
    import libcst as cst

    if key.startswith("."):
        return _field(place, node, key[1:])
    inside = key[1:-1]
    if isinstance(node, (cst.Tuple, cst.List)) and inside.isdigit() and int(inside) < len(node.elements):
        return node.elements[int(inside)].value
    if isinstance(node, cst.Dict):
        for element in node.elements:
            if isinstance(element, cst.DictElement) and _literal(place.cell.code(element.key)) == _literal(
                inside
            ):
                return element.value
    if isinstance(node, cst.Call) and getattr(node.func, "value", "") == "dict":
        return next((a.value for a in node.args if a.keyword and a.keyword.value == _literal(inside)), None)
    return _field(place, node, int(inside)) if inside.isdigit() else None


def _literal(code: str) -> Any:
    try:
        return ast.literal_eval(code)
    except (ValueError, SyntaxError):
        return code


def _field(place: Place, node: Any, name: str | int) -> Any:
    """The argument of `State(x, v, t=0)` for a field of a class of this cell, by its name or number."""
    import libcst as cst

    if not isinstance(node, cst.Call):
        return None
    fields = _fields(place, getattr(node.func, "value", ""))
    if isinstance(name, int):
        if name >= len(fields):
            return None
        name = list(fields)[name]
    named = next((a.value for a in node.args if a.keyword is not None and a.keyword.value == name), None)
    if named is not None:
        return named
    plain = [a.value for a in node.args if a.keyword is None]
    at = list(fields).index(name) if name in fields else -1
    if 0 <= at < len(plain):
        return plain[at]
    default = fields.get(name)
    return Missing(node, name, default) if default is not None else None


def _fields(place: Place, kind: Any) -> dict[str, Any]:
    """Annotated fields of a class of this cell with their defaults."""
    import libcst as cst

    for node in place.cell.within(place.cell.module, cst.ClassDef):
        if node.name.value == kind:
            lines = [
                s
                for line in node.body.body
                for s in getattr(line, "body", ())
                if isinstance(s, cst.AnnAssign)
            ]
            return {s.target.value: s.value for s in lines if isinstance(s.target, cst.Name)}
    return {}


def _with_argument(code: str, argument: str) -> str:
    inside = code.rstrip()[:-1].rstrip()
    return f"{inside}{'' if inside.endswith(('(', ',')) else ','} {argument})".replace("( ", "(")


def mismatches(message: str) -> list[tuple[str, str, str, str]]:
    """Path in the carry, dtype it starts with, dtype and shape the body gives, for each that differ."""
    flat = " ".join(message.split())
    found = []
    pattern = (
        r"[Tt]he input carry(?: component)? ?(\S*?) has type (\w+)\[([\d,]*)\](?:\{[^}]*\})? "
        r"but the corresponding output carry component has type (\w+)\[([\d,]*)\]"
    )
    for m in re.finditer(pattern, flat):
        found.append((m.group(1), m.group(2), m.group(4), m.group(5) if m.group(5) != m.group(3) else ""))
    return found


FULL = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i32": "int32", "i64": "int64",
        "i8": "int8", "i16": "int16", "u8": "uint8", "u32": "uint32", "b": "bool_",
        "pred": "bool_", "c64": "complex64",
        "bool": "bool_"}  # fmt: skip


def started(place: Place, part: Any, dtype: str, shape: str, have: str, like: str = "") -> str:
    """The start value with another dtype, and spread to a shape (that of `like`) where that differs too."""
    import libcst as cst

    code, jnp = place.cell.code(part), place.jnp
    dtype = FULL.get(dtype, dtype)
    if shape and like:
        return f"{jnp}.full_like({like}, {code}, {jnp}.{dtype})"
    if shape:
        sizes = ", ".join(s for s in shape.split(",") if s)
        return f"{jnp}.full(({sizes},), {code}, {jnp}.{dtype})"
    if isinstance(part, cst.Integer) and dtype == "float32":
        return f"{code}.0"
    if isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute) and len(part.args) >= 1:
        if place.cell.code(part.func.value) == jnp and part.func.attr.value == FULL.get(have, have):
            return f"{jnp}.{dtype}({place.cell.code(part.args[0].value)})"
        if place.cell.code(part.func.value) == jnp and (named := _dtype_argument(part)) is not None:
            given = f"dtype={jnp}.{dtype}" if named.keyword is not None else f"{jnp}.{dtype}"
            arguments = [given if a is named else place.cell.code(a).rstrip(", ") for a in part.args]
            return f"{place.cell.code(part.func)}({', '.join(arguments)})"
    return f"{jnp}.asarray({code}, {jnp}.{dtype})"


MAKES = {"zeros": 1, "ones": 1, "empty": 1, "full": 2, "array": 1, "asarray": 1}
"""Position of the dtype in what makes an array."""


def _dtype_argument(call: Any) -> Any:
    """The argument that names a dtype, or None."""
    at = MAKES.get(call.func.attr.value)
    if at is None:
        return None
    named = next((a for a in call.args if a.keyword is not None and a.keyword.value == "dtype"), None)
    plain = [a for a in call.args if a.keyword is None]
    return named or (plain[at] if len(plain) > at else None)


# -- lists that a body fills


def _appended(place: Place) -> Iterator[Candidate]:
    """`seen.append(x)` in a scan body, as the second thing that the body returns."""
    import libcst as cst

    found = _append_of(place)
    if found is None:
        return
    line, name, value = found
    body = place.cell.function(line)
    outer = place.cell.function(body) if body is not None else None
    if body is None or outer is None:
        return
    scan = next(
        (c for c in place.cell.within(outer, cst.Call) if _is_scan_of(place, c, body.name.value)), None
    )
    returns = place.cell.own(body, cst.Return)
    if scan is None or len(returns) != 1:
        return
    yield from _stacked(place, outer, body, scan, returns[0], line, name, value)


def _append_of(place: Place) -> tuple[Any, str, str] | None:
    import libcst as cst

    lines = place.on_line(cst.SimpleStatementLine)
    scope = place.outermost
    if scope is not None:
        lines += [s for s in place.cell.within(scope, cst.SimpleStatementLine) if s not in lines]
    for line in lines:
        small = line.body[0]
        if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call) or len(line.body) != 1:
            continue
        function = small.value.func
        if (
            isinstance(function, cst.Attribute)
            and function.attr.value == "append"
            and len(small.value.args) == 1
        ):
            inner = place.cell.function(line)
            if (
                isinstance(function.value, cst.Name)
                and inner is not None
                and place.cell.function(inner) is not None
            ):
                if function.value.value not in names.stores(
                    "\n".join(place.cell.code(s) for s in inner.body.body)
                ):
                    return line, function.value.value, place.cell.code(small.value.args[0].value)
    return None


def _is_scan_of(place: Place, call: Any, name: str) -> bool:
    import libcst as cst

    function = (
        call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
    )
    return function == "scan" and bool(call.args) and getattr(call.args[0].value, "value", None) == name


def _stacked(
    place: Place, outer: Any, body: Any, scan: Any, leave: Any, line: Any, name: str, value: str
) -> Iterator[Candidate]:
    import libcst as cst

    returned = leave.value
    if not isinstance(returned, cst.Tuple) or len(returned.elements) != 2:
        return
    carry, ys = (place.cell.code(e.value) for e in returned.elements)
    changes: dict[Any, str | None] = {line: None}
    statement = place.cell.statement(scan)
    keeps = ys == "None"
    changes[returned] = f"{carry}, {value}" if keeps else f"{carry}, ({ys}, {value})"
    for node in place.cell.own(outer, cst.SimpleStatementLine):
        small = node.body[0]
        if isinstance(small, cst.Assign) and place.cell.code(small.targets[0].target) == name:
            if isinstance(small.value, cst.List) and not small.value.elements and len(node.body) == 1:
                changes[node] = None
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if small is None:
        return
    code = place.cell.code(scan)
    if isinstance(small, cst.Expr) and small.value is scan:
        changes[small] = f"_, {name} = {code}" if keeps else f"_, (_, {name}) = {code}"
    elif (
        isinstance(small, cst.Assign)
        and small.value is scan
        and isinstance(small.targets[0].target, cst.Tuple)
    ):
        first, second = (place.cell.code(e.value) for e in small.targets[0].target.elements)
        changes[small] = f"{first}, {name} = {code}" if keeps else f"{first}, ({second}, {name}) = {code}"
    elif (
        isinstance(small, cst.Assign) and isinstance(small.value, cst.Subscript) and small.value.value is scan
    ):
        if place.cell.code(small.value.slice[0]) != "0" or not keeps:
            return
        changes[small] = f"{place.cell.code(small.targets[0].target)}, {name} = {code}"
    else:
        return
    if not stacked_uses(place, outer, changes, name):
        changes[statement] = f"{changes.pop(small)}\n{name} = list({name})\n"
    yield Candidate(f"return what is collected in `{name}` from the scan body", place.cell.edit(changes))


def stacked_uses(place: Place, outer: Any, changes: dict[Any, str | None], name: str) -> bool:
    """`jnp.stack(seen)` as `seen`, which a scan has stacked; False where the outer function uses the list otherwise."""
    import libcst as cst

    uses = 0
    for call in place.cell.own(outer, cst.Call):
        function = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if function in ("stack", "array", "asarray") and len(call.args) == 1:
            if getattr(call.args[0].value, "value", None) == name:
                changes[call] = name
                uses += 1
    read = [n for n in place.cell.own(outer, cst.Name) if n.value == name]
    stored = [t for a in place.cell.own(outer, cst.AssignTarget) for t in place.cell.within(a, cst.Name)]
    return len([n for n in read if n not in stored]) == uses

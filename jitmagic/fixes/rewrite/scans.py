"""What a loop carries and what its body leaves behind: types of the start, and lists that a body fills."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
        name = (
            loop.func.attr.value if isinstance(loop.func, cst.Attribute) else getattr(loop.func, "value", "")
        )
        if name not in LOOPS or len(loop.args) <= LOOPS[name]:
            continue
        start = loop.args[LOOPS[name]].value
        parts = list(e.value for e in start.elements) if isinstance(start, cst.Tuple) else [start]
        found = mismatches(place.message)
        changes: dict[Any, str | None] = {}
        for path, have, want, shape in found:
            index = re.match(r"\w*\[(\d+)\]", path)
            if len(parts) > 1 and index is None:
                continue
            part = parts[int(index.group(1)) if index and len(parts) > 1 else 0]
            changes[part] = started(place, part, want, shape, have)
        if changes:
            yield Candidate("start the loop with the type that its body gives", place.cell.edit(changes))


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


def started(place: Place, part: Any, dtype: str, shape: str, have: str) -> str:
    """The start value with another dtype, and spread to a shape where that differs too."""
    import libcst as cst

    code, jnp = place.cell.code(part), place.jnp
    dtype = FULL.get(dtype, dtype)
    if shape:
        sizes = ", ".join(s for s in shape.split(",") if s)
        return f"{jnp}.full(({sizes},), {code}, {jnp}.{dtype})"
    if isinstance(part, cst.Integer) and dtype == "float32":
        return f"{code}.0"
    if isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute) and len(part.args) >= 1:
        if place.cell.code(part.func.value) == jnp and part.func.attr.value == FULL.get(have, have):
            return f"{jnp}.{dtype}({place.cell.code(part.args[0].value)})"
    return f"{jnp}.asarray({code}, {jnp}.{dtype})"


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
    for call in place.cell.own(outer, cst.Call):
        function = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if function in ("stack", "array", "asarray") and len(call.args) == 1:
            if getattr(call.args[0].value, "value", None) == name:
                changes[call] = name
    yield Candidate(f"return what is collected in {name} from the scan body", place.cell.edit(changes))

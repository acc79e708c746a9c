"""What only leaves the function, for a log or a variable outside: handed out through `jax.debug.callback`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place

LATER = "the value arrives while the compiled function runs"


def candidates(place: Place) -> Iterator[Candidate]:
    """A statement whose value nobody uses (`log.append(np.mean(h))`) runs as a callback."""
    import libcst as cst

    statement = next((n for n in place.path if isinstance(n, cst.SimpleStatementLine)), None)
    if statement is None or place.innermost is None or len(statement.body) != 1:
        return
    small = statement.body[0]
    code = place.cell.code(small)
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        function = place.cell.code(small.value.func)
        root = function.partition(".")[0]
        if function.startswith((f"{place.jax}.debug", f"{place.jnp}.")) or root in _local_names(
            place
        ) - _receiver(place):
            return
        values = _values(place, code)
        if not values:
            return
        if function.endswith(".append") and place.kind in ("leaked-tracer", "state-write"):
            argument = small.value.args[0].value if len(small.value.args) == 1 else None
            if isinstance(argument, cst.Name):
                edits = _appends(place) or {
                    small: f"{place.jax}.debug.callback({function}, {argument.value})"
                }
                title = f"call `{function}` through `jax.debug.callback`"
                yield Candidate(title, place.cell.edit(edits), "unsafe",
                                LATER, effects=True)  # fmt: skip
                return
        new = f"{place.jax}.debug.callback(lambda {', '.join(values)}: {code}, {', '.join(values)})"
        yield Candidate(f"call `{function}` through `jax.debug.callback`", place.cell.edit({small: new}), "safe",
                        LATER, effects=True)  # fmt: skip
    elif isinstance(small, (cst.Assign, cst.AugAssign)):
        yield from _stored_outside(place, statement, small, code)


def _appends(place: Place) -> dict[Any, str | None]:
    """Every `log.append(x)` of the function to a list from outside, as a callback: one alone would leave the others."""
    import libcst as cst

    found: dict[Any, str | None] = {}
    local = _local_names(place) - _receiver(place)
    for small in place.cell.own(place.innermost, cst.Expr):
        call = small.value
        if (
            not isinstance(call, cst.Call)
            or len(call.args) != 1
            or not isinstance(call.args[0].value, cst.Name)
        ):
            continue
        function, value = place.cell.code(call.func), call.args[0].value.value
        if (
            function.endswith(".append")
            and re.split(r"[.\[]", function)[0] not in local
            and value in place.traced
        ):
            found[small] = f"{place.jax}.debug.callback({function}, {value})"
    return found


def _stored_outside(place: Place, statement: Any, small: Any, code: str) -> Iterator[Candidate]:
    """`history["loss"] = float(loss)` on an object of the notebook."""
    import libcst as cst

    target = small.target if isinstance(small, cst.AugAssign) else small.targets[0].target
    if isinstance(small, cst.Assign) and isinstance(target, cst.Name):
        yield from _kept_in_global(place, statement, small, target.value)
    if not isinstance(target, (cst.Subscript, cst.Attribute)):
        return
    root: Any = target
    while isinstance(root, (cst.Subscript, cst.Attribute)):
        root = root.value
    if not isinstance(root, cst.Name) or root.value in _local_names(place) - _receiver(place):
        return
    if isinstance(small, cst.Assign) and isinstance(target, cst.Attribute) and root.value in _receiver(place):
        yield from _kept_on_self(place, statement, small, target)
        return
    values = _values(place, place.cell.code(small.value))
    if not values:
        return
    keep = names.fresh("keep", place.taken)
    called = f"{place.jax}.debug.callback({', '.join([keep, *values])})"
    text = f"def {keep}({', '.join(values)}):\n    {code}\n\n{called}\n"
    title = f"store into `{root.value}` through `jax.debug.callback`"
    yield Candidate(title, place.cell.edit({statement: text}), "unsafe",
                    LATER, effects=True)  # fmt: skip


def _kept_in_global(place: Place, statement: Any, small: Any, name: str) -> Iterator[Candidate]:
    """`last = e` of a global that the function does not read."""
    import libcst as cst

    function = place.innermost
    declared = [
        s for s in place.cell.own(function, cst.Global) if name in {item.name.value for item in s.names}
    ]
    uses = [n for n in place.cell.within(function.body, cst.Name) if n.value == name]
    values = _values(place, place.cell.code(small.value))
    if not declared or len(uses) != 2 or len(small.targets) != 1 or not values:  # the declaration and this
        return
    keep = names.fresh("keep", place.taken)
    called = f"{place.jax}.debug.callback({', '.join([keep, *values])})"
    text = f"def {keep}({', '.join(values)}):\n    global {name}\n    {place.cell.code(small)}\n\n{called}\n"
    line = place.cell.parents[declared[0]]
    alone = len(declared[0].names) == 1 and len(line.body) == 1
    yield Candidate(f"store into `{name}` through `jax.debug.callback`",
                    place.cell.edit({statement: text, **({line: None} if alone else {})}), "unsafe",
                    LATER, effects=True)  # fmt: skip


def _kept_on_self(place: Place, statement: Any, small: Any, target: Any) -> Iterator[Candidate]:
    """`self.h = e` as a local value that is handed out, where only the rest of the method reads it."""
    import libcst as cst

    code, attribute = place.cell.code, target.attr.value
    own = names.fresh(attribute, place.taken)
    uses = [n for n in place.cell.within(place.cell.module, cst.Attribute) if n.attr.value == attribute]
    stores = [n for n in uses if isinstance(place.cell.parents[n], cst.AssignTarget)]
    reads = [n for n in uses if n not in stores]
    within = place.cell.own(place.innermost, cst.Attribute)
    if any(n not in within or place.cell.positions[n].start.line <= place.line for n in reads):
        return  # a state that goes on from one call to the next
    store = f'lambda {own}: setattr({code(target.value)}, "{attribute}", {own})'
    text = f"{own} = {code(small.value)}\n{place.jax}.debug.callback({store}, {own})\n"
    yield Candidate(f"store into `{code(target)}` through `jax.debug.callback`",
                    place.cell.edit({statement: text, **dict.fromkeys(reads, own)}), "unsafe",
                    LATER, effects=True)  # fmt: skip


def _receiver(place: Place) -> set[str]:
    """`self` of a method: what hangs on it is outside."""
    import libcst as cst

    method = place.outermost
    if method is None or not any(isinstance(n, cst.ClassDef) for n in place.cell.ancestors(method)):
        return set()
    return {p.name.value for p in method.params.params[:1]}


def _values(place: Place, code: str) -> list[str]:
    """Local names that the source reads and that may be traced: the callback's arguments."""
    local = _local_names(place)
    return [n for n in _reads(place, code) if n in place.traced and n in local]


def _reads(place: Place, code: str) -> list[str]:
    own = names.loads(code)
    import ast

    order = [n.id for n in ast.walk(names.parse(code)) if isinstance(n, ast.Name)]
    return [n for n in dict.fromkeys(order) if n in own]


def _local_names(place: Place) -> set[str]:
    """Names that the functions around the place bind themselves, parameters included."""
    import libcst as cst

    out: set[str] = set()
    for function in (n for n in place.path if isinstance(n, cst.FunctionDef)):
        out |= set(names.stores("\n".join(place.cell.code(s) for s in function.body.body)))
        out |= {p.name.value for p in place.cell.within(function.params, cst.Param)}
        for statement in place.cell.own(function, cst.Global, cst.Nonlocal):
            out -= {item.name.value for item in statement.names}
    return out

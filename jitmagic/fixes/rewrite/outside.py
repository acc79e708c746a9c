"""What only leaves the function, for a log or a variable outside: handed out through `jax.debug.callback`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.rules.words import listed

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
        yield from _stored_outside(place, statement)


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


def _stored_outside(place: Place, statement: Any) -> Iterator[Candidate]:
    """`history["loss"] = float(loss)` on an object of the notebook; one such store alone would leave the others."""
    import libcst as cst

    small = statement.body[0]
    if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
        yield from _kept_in_global(place, statement, small, small.targets[0].target.value)
    store = _store(place, statement)
    if store is None:
        return
    lines = place.cell.own(place.innermost, cst.SimpleStatementLine)
    every = [s for s in (_store(place, line) for line in lines) if s is not None]
    for stores in [every, [store]] if len(every) > 1 else [[store]]:
        edits = _edits(place, stores)
        if edits is not None:
            words = listed(dict.fromkeys(s.into for s in stores))
            yield Candidate(f"store into {words} through `jax.debug.callback`", place.cell.edit(edits), "unsafe",
                            LATER, effects=True)  # fmt: skip


@dataclass(frozen=True)
class _Store:
    """A statement that stores into something from outside; `kept`: an attribute of the receiver, bound anew."""

    statement: Any
    small: Any
    target: Any
    into: str
    kept: bool


def _store(place: Place, statement: Any) -> _Store | None:
    import libcst as cst

    small = statement.body[0] if len(statement.body) == 1 else None
    if not isinstance(small, (cst.Assign, cst.AugAssign)):
        return None
    target = small.target if isinstance(small, cst.AugAssign) else small.targets[0].target
    root: Any = target
    while isinstance(root, (cst.Subscript, cst.Attribute)):
        root = root.value
    if root is target or not isinstance(root, cst.Name):
        return None
    if root.value in _local_names(place) - _receiver(place):
        return None
    kept = (
        isinstance(small, cst.Assign) and isinstance(target, cst.Attribute) and root.value in _receiver(place)
    )
    if not kept and not _values(place, place.cell.code(small.value)):
        return None
    return _Store(statement, small, target, place.cell.code(target) if kept else root.value, kept)


def _edits(place: Place, stores: Sequence[_Store]) -> dict[Any, str | None] | None:
    """The stores as callbacks; None where one of them is a state that goes on from one call to the next."""
    edits: dict[Any, str | None] = {}
    local: dict[str, str] = {}
    taken = set(place.taken)
    for store in stores:
        text = (
            _kept_on_self(place, store, edits, local, taken) if store.kept else _called(place, store, taken)
        )
        if text is None:
            return None
        edits[store.statement] = text
    for statement in (s.statement for s in stores):
        for old, own in local.items():
            edits[statement] = re.sub(rf"{re.escape(old)}(?!\w)", own, str(edits[statement]))
        for read in [n for n in edits if n is not statement and statement in place.cell.ancestors(n)]:
            del edits[read]
    return edits


def _called(place: Place, store: _Store, taken: set[str]) -> str:
    code, value = place.cell.code, place.cell.code(store.small.value)
    keep = names.fresh("keep", taken)
    taken.add(keep)
    values, line = _values(place, value), code(store.small)
    given = values
    if not value.isidentifier() and _is_traced(place, store.small.value):
        own = names.fresh("value", taken)
        values, given = [own], [value]
        line = f"{line[: line.rindex(value)]}{own}"
    called = f"{place.jax}.debug.callback({', '.join([keep, *given])})"
    return f"def {keep}({', '.join(values)}):\n    {line}\n\n{called}\n"


def _is_traced(place: Place, value: Any) -> bool:
    """Computed by jax alone: it can stay in the compiled function, and its result leaves."""
    import libcst as cst

    roots = {place.cell.code(c.func).partition(".")[0] for c in place.cell.within(value, cst.Call)}
    return not isinstance(value, cst.Call) or roots <= {
        place.jnp.partition(".")[0],
        place.jax.partition(".")[0],
    }


def _kept_on_self(
    place: Place, store: _Store, edits: dict[Any, str | None], local: dict[str, str], taken: set[str]
) -> str | None:
    """`self.h = e` as a local value that is handed out, where only the rest of the method reads it."""
    import libcst as cst

    code, target = place.cell.code, store.target
    attribute, line = target.attr.value, place.cell.positions[store.statement].start.line
    own = names.fresh(attribute, taken)
    taken.add(own)
    uses = [n for n in place.cell.within(place.cell.module, cst.Attribute) if n.attr.value == attribute]
    stored = [n for n in uses if isinstance(place.cell.parents[n], cst.AssignTarget)]
    reads = [n for n in uses if n not in stored]
    within = place.cell.own(place.innermost, cst.Attribute)
    if any(n not in within or place.cell.positions[n].start.line <= line for n in reads):
        return None  # a state that goes on from one call to the next
    local[code(target)] = own
    edits |= dict.fromkeys(reads, own)
    out = f'lambda {own}: setattr({code(target.value)}, "{attribute}", {own})'
    return f"{own} = {code(store.small.value)}\n{place.jax}.debug.callback({out}, {own})\n"


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

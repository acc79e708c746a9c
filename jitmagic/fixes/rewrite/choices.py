"""Traced values as an index or a key: branches in a list, tables of constants, caches and memos."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.merging import call as call_text
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import assigned


def candidates(place: Place) -> Iterator[Candidate]:
    """Lists and dicts looked up by a traced value; helpers that remember results by it."""
    if place.kind in ("tracer-int", "tracer-hash", "tracer-array-conversion"):
        yield from _lookups(place)
    if place.kind in ("tracer-hash", "leaked-tracer", "state-write", "tracer-bool"):
        yield from _caches(place)
        yield from _memos(place)


# -- lists and dicts


def _lookups(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    for node in place.on_line(cst.Subscript, cst.Call):
        if isinstance(node, cst.Call):
            if (
                isinstance(node.func, cst.Attribute)
                and node.func.attr.value == "get"
                and 1 <= len(node.args) <= 2
            ):
                yield from _dict_get(place, node)
            continue
        if isinstance(place.cell.parents.get(node), (cst.AssignTarget, cst.AugAssign)):
            continue
        if not all(isinstance(part.slice, cst.Index) for part in node.slice):
            continue
        if place.kind == "tracer-hash":
            yield from _dict_item(place, node)
        elif len(node.slice) == 1:
            yield from _list_item(place, node)


def _call_of(place: Place, node: Any) -> Any:
    """The call of which the node is the function, or None."""
    import libcst as cst

    parent = place.cell.parents.get(node)
    return parent if isinstance(parent, cst.Call) and parent.func is node else None


def _positional(place: Place, call: Any) -> list[str] | None:
    if any(a.keyword or a.star for a in call.args):
        return None
    return [place.cell.code(a.value) for a in call.args]


def _list_item(place: Place, node: Any) -> Iterator[Candidate]:
    index = place.cell.code(node.slice[0].slice.value)
    if not names.traced_in(index, place.traced):
        return
    table = place.cell.code(node.value)
    call = _call_of(place, node)
    if call is not None:
        arguments = _positional(place, call)
        if arguments is None:
            return
        new = call_text(f"{place.lax}.switch", index, table, *arguments)
        yield Candidate(
            "choose the function with `jax.lax.switch`", place.cell.edit({call: new}), **clamps(place, index)
        )
        return
    later = _called_later(place, node)
    if later is not None:
        statement, calls = later
        changes: dict[Any, str | None] = {statement: None}
        for call in calls:
            arguments = _positional(place, call)
            if arguments is None:
                return
            changes[call] = call_text(f"{place.lax}.switch", index, table, *arguments)
        yield Candidate(
            "choose the function with `jax.lax.switch`", place.cell.edit(changes), **clamps(place, index)
        )
    for form in (f"{place.jnp}.array({table})[{index}]", f"{place.jnp}.stack({table})[{index}]"):
        yield Candidate(f"make `{table}` an array, which takes a traced index", place.cell.edit({node: form}),
                        **clamps(place, index))  # fmt: skip
    tree = f"{place.jax}.tree.map(lambda *xs: {place.jnp}.stack(xs)[{index}], *{table})"
    yield Candidate(
        f"stack what `{table}` holds, and index that", place.cell.edit({node: tree}), **clamps(place, index)
    )


def clamps(place: Place, index: str) -> dict[str, Any]:
    """What a traced index costs: beyond the end it is no error, but the last element. Nothing where it cannot be."""
    import libcst as cst

    value = assigned(place, cst.Name(index)) if index.isidentifier() else None
    source = place.cell.code(value) if value is not None else index
    if any(word in source for word in BOUNDED):
        return {}
    return {"applicability": "unsafe", "cost": "an index beyond the end is clamped, not an error"}


BOUNDED = ("argmax(", "argmin(", "clip(", "% len(", "argsort(", "categorical(")
"""What gives indices that are in range."""


def _called_later(place: Place, node: Any) -> tuple[Any, list[Any]] | None:
    """`g = fs[i]` with every use of `g` a call: the statement and these calls."""
    import libcst as cst

    parent = place.cell.parents.get(node)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1 or place.outermost is None:
        return None
    target = parent.targets[0].target
    statement = place.cell.statement(parent)
    if (
        not isinstance(target, cst.Name)
        or not isinstance(statement, cst.SimpleStatementLine)
        or len(statement.body) > 1
    ):
        return None
    uses = [
        n for n in place.cell.within(place.outermost, cst.Name) if n.value == target.value and n is not target
    ]
    calls = [_call_of(place, n) for n in uses]
    return (statement, calls) if uses and all(c is not None for c in calls) else None


def _keys(place: Place, table: Any) -> tuple[list[str], list[str]] | None:
    """Keys and values of a dict display, or None where it is not at hand."""
    import libcst as cst

    value = assigned(place, table) if isinstance(table, cst.Name) else table
    if not isinstance(value, cst.Dict) or not all(isinstance(e, cst.DictElement) for e in value.elements):
        return None
    elements: list[Any] = list(value.elements)
    return [place.cell.code(e.key) for e in elements], [place.cell.code(e.value) for e in value.elements]


def _dict_item(place: Place, node: Any) -> Iterator[Candidate]:
    import libcst as cst

    index, table = place.cell.code(node.slice[0].slice.value), place.cell.code(node.value)
    if len(node.slice) > 1:
        index = f"({', '.join(place.cell.code(part.slice.value) for part in node.slice)})"
    if isinstance(node.value, cst.Call) or not names.traced_in(index, place.traced):
        return
    found = _keys(place, node.value)
    counted = found is not None and found[0] == [str(i) for i in range(len(found[0]))]
    call = _call_of(place, node)
    position = index if counted else _position_of_key(place, table, index)
    if call is not None:
        arguments = _positional(place, call)
        if arguments is not None:
            new = call_text(f"{place.lax}.switch", position, f"list({table}.values())", *arguments)
            yield Candidate(
                "choose the function with `jax.lax.switch`", place.cell.edit({call: new}), **MISSING_KEY
            )
        return
    for make in ("array", "stack"):
        new = f"{place.jnp}.{make}(list({table}.values()))[{position}]"
        yield Candidate(
            f"make `{table}` an array, which takes a traced index",
            place.cell.edit({node: new}),
            **MISSING_KEY,
        )


def _position_of_key(place: Place, table: str, index: str) -> str:
    """Where the traced key stands in the dict; one that is a tuple is compared item by item."""
    import libcst as cst

    key = assigned(place, cst.Name(index)) if index.isidentifier() else None
    source = place.cell.code(key) if key is not None else index
    if isinstance(cst.parse_expression(source), cst.Tuple):
        return f"{place.jnp}.argmax(({place.jnp}.array(list({table})) == {place.jnp}.array({index})).all(-1))"
    return f"{place.jnp}.argmax({place.jnp}.array(list({table})) == {index})"


MISSING_KEY: dict[str, Any] = {"applicability": "unsafe", "cost": "a missing key is no error"}


def _dict_get(place: Place, node: Any) -> Iterator[Candidate]:
    index, table = place.cell.code(node.args[0].value), place.cell.code(node.func.value)
    if not names.traced_in(index, place.traced):
        return
    default = place.cell.code(node.args[1].value) if len(node.args) == 2 else f"{place.jnp}.nan"
    new = f"{place.jnp}.select([{index} == key for key in {table}], list({table}.values()), {default})"
    yield Candidate(f"choose from `{table}` with `jnp.select`", place.cell.edit({node: new}))


# -- caches


_CACHES = ("lru_cache", "cache", "memoize", "memoise", "cached")


def _caches(place: Place) -> Iterator[Candidate]:
    """A helper under `functools.lru_cache`: without it where the cell defines it, else past it."""
    import libcst as cst

    called = {place.cell.code(c.func).rpartition(".")[2] for c in place.on_line(cst.Call)}
    defined = {n.name.value for n in place.path if isinstance(n, cst.FunctionDef)}
    for function in place.cell.functions():
        for decorator in function.decorators:
            head = place.cell.code(decorator.decorator).partition("(")[0].rpartition(".")[2]
            if head not in _CACHES:
                continue
            name = function.name.value
            if name in called or name in defined or place.cell.positions[decorator].start.line == place.line:
                yield Candidate(f"take the cache off `{name}`", place.cell.edit({decorator: None}), "safe",
                                "its result is computed anew in each trace")  # fmt: skip
    functions = {f.name.value for f in place.cell.functions()}
    for call in place.on_line(cst.Call):
        name = place.cell.code(call.func)
        if isinstance(call.func, (cst.Name, cst.Attribute)) and name not in functions:
            last = name.rpartition(".")[2]
            if last in ("__wrapped__", "append", "add", "get", "update", "setdefault"):
                continue  # a container's own; past its cache already
            if name.partition(".")[0] not in place.modules and name not in dir(__builtins__):
                yield Candidate(
                    f"call `{name}` past its cache", place.cell.edit({call.func: f"{name}.__wrapped__"})
                )


def _memos(place: Place) -> Iterator[Candidate]:
    """`if k not in memo: memo[k] = e` and `return memo[k]`, as `return e`."""
    import libcst as cst

    for function in place.cell.functions():
        if not isinstance(function.body, cst.IndentedBlock):
            continue
        body = list(function.body.body)
        for i, statement in enumerate(body):
            changes = _memo(place, statement, body[i + 1 :])
            if changes:
                name = function.name.value
                title = f"compute the result of `{name}` anew, without the memo"
                yield Candidate(title, place.cell.edit(changes), "safe",
                                "nothing is remembered between calls")  # fmt: skip


def _memo(place: Place, statement: Any, rest: list[Any]) -> dict[Any, str | None] | None:
    import libcst as cst

    if isinstance(statement, cst.Try):
        return _memo_by_exception(place, statement, rest)
    if not isinstance(statement, cst.If) or statement.orelse is not None:
        return None
    body = list(statement.body.body) if isinstance(statement.body, cst.IndentedBlock) else []
    if not body:
        return None
    test: Any = statement.test
    compared = isinstance(test, cst.Comparison) and len(test.comparisons) == 1
    if compared and isinstance(test.comparisons[0].operator, (cst.NotIn, cst.Is)):
        return _fill_then_return(place, statement, body, rest)
    if compared and isinstance(test.comparisons[0].operator, (cst.In, cst.IsNot)) and len(body) == 1:
        if isinstance(body[0], cst.SimpleStatementLine) and isinstance(body[0].body[0], cst.Return):
            return _return_if_known(place, statement, rest)
    return None


def _store(place: Place, line: Any) -> tuple[str, Any] | None:
    """Target and value of `memo[k] = e`, `self.memo = e` or `name = e`."""
    import libcst as cst

    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    small = line.body[0]
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    return place.cell.code(small.targets[0].target), small.value


def _fill_then_return(
    place: Place, statement: Any, body: list[Any], rest: list[Any]
) -> dict[Any, str | None] | None:
    """The last line of the `if` stores; every later read of the target becomes the value."""
    import libcst as cst

    stored = _store(place, body[-1])
    if stored is None or not rest:
        return None
    target, value = stored
    reads = [
        n for s in rest for n in place.cell.within(s, cst.Subscript, cst.Attribute, cst.Name)
        if place.cell.code(n) == target
    ]  # fmt: skip
    if not reads:
        return None
    kept = place.cell.block(body[:-1])
    if len(reads) == 1:
        code = place.cell.code(value)
        parent = place.cell.parents.get(reads[0])
        new = code if isinstance(parent, cst.Return) else names.wrapped(code)
        return {statement: kept or None, reads[0]: new}
    name = names.fresh("value", place.taken)
    return {statement: f"{kept}{name} = {place.cell.code(value)}\n", **{n: name for n in reads}}


def _return_if_known(place: Place, statement: Any, rest: list[Any]) -> dict[Any, str | None] | None:
    """`if k in memo: return memo[k]` goes, and so does the store."""
    import libcst as cst

    memo = place.cell.code(statement.test.comparisons[0].comparator)
    for line in rest:
        stored = _store(place, line)
        if stored is not None and stored[0].startswith(f"{memo}["):
            changes: dict[Any, str | None] = {statement: None}
            reads = [
                n for s in rest for n in place.cell.within(s, cst.Subscript)
                if place.cell.code(n) == stored[0] and not any(a is line for a in place.cell.ancestors(n))
            ]  # fmt: skip
            if isinstance(stored[1], cst.Name):
                changes[line] = None
                changes |= {n: stored[1].value for n in reads}
            elif len(reads) == 1:
                changes[line] = None
                changes[reads[0]] = place.cell.code(stored[1])
            else:
                name = names.fresh("value", place.taken)
                changes[line] = f"{name} = {place.cell.code(stored[1])}\n"
                changes |= {n: name for n in reads}
            return changes
    return None


def _memo_by_exception(place: Place, statement: Any, rest: list[Any]) -> dict[Any, str | None] | None:
    """`try: return memo[k]` with the computation in `except KeyError`."""
    import libcst as cst

    if len(statement.handlers) != 1 or statement.orelse is not None or statement.finalbody is not None:
        return None
    kind = statement.handlers[0].type
    if kind is None or place.cell.code(kind) not in ("KeyError", "(KeyError, TypeError)", "AttributeError"):
        return None
    first: Any = statement.body.body[-1]
    if not isinstance(first, cst.SimpleStatementLine) or not isinstance(first.body[-1], cst.Return):
        return None
    known = first.body[-1].value
    if known is None:
        return None
    lines = [*statement.handlers[0].body.body, *rest]
    text = ""
    for line in lines:
        stored = _store(place, line)
        if stored is not None and place.cell.code(known) == stored[0]:
            if not isinstance(stored[1], cst.Name):
                return None
            continue
        if isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Pass):
            continue
        text += place.cell.module.code_for_node(line)
    return {statement: text, **{s: None for s in rest}}

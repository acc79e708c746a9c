"""Helpers that remember their results by a traced value: without their cache or memo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place


def candidates(place: Place) -> Iterator[Candidate]:
    """Caches of `functools` taken off, memos left out."""
    if place.kind in ("tracer-hash", "leaked-tracer", "state-write", "tracer-bool"):
        yield from _caches(place)
        yield from _memos(place)


_CACHES = ("lru_cache", "cache", "memoize", "memoise", "cached")


def _caches(place: Place) -> Iterator[Candidate]:
    """A helper under `functools.lru_cache`: without it where the cell defines it, else past it."""
    import libcst as cst

    called = {place.cell.code(c.func).rpartition(".")[2] for c in place.on_line(cst.Call)}
    defined = {n.name.value for n in place.path if isinstance(n, cst.FunctionDef)}
    for function in place.cell.functions():
        for decorator in function.decorators:
            head = place.cell.code(decorator.decorator).partition("(")[0].rpartition(".")[2]
            name = function.name.value
            if head == "cached_property" and name in {a.attr.value for a in place.on_line(cst.Attribute)}:
                yield Candidate(f"make `{name}` a plain property", place.cell.edit({decorator.decorator: "property"}),
                                "safe", "it is computed anew in each trace")  # fmt: skip
            if head not in _CACHES:
                continue
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

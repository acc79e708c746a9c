"""A `while_loop` that counts its steps and fills a list outside: a `scan` of so many steps, which stacks the values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.scans import argument_of, loop_name, stacked_uses


@dataclass(frozen=True)
class Count:
    """How often a loop runs: the place of its counter in the carry (None where it is all of it), and the end."""

    at: int | None
    end: str


def candidates(place: Place) -> Iterator[Candidate]:
    """One candidate for each loop whose body appends once."""
    import libcst as cst

    outer = place.outermost
    if place.kind not in ("leaked-tracer", "state-write") or outer is None:
        return
    functions = {f.name.value: f for f in place.cell.own(outer, cst.FunctionDef)}
    for loop in (c for c in place.cell.own(outer, cst.Call) if loop_name(c) == "while_loop"):
        test, body, start = (
            argument_of(loop, i, n) for i, n in enumerate(("cond_fun", "body_fun", "init_val"))
        )
        body = functions.get(getattr(body, "value", ""))
        test = functions.get(getattr(test, "value", ""), test)
        if body is None or len(body.params.params) != 1 or start is None:
            continue
        count = _count(place.cell.code(test).strip()) if test is not None else None
        length = _length(place, count, start) if count is not None else None
        if count is not None and length and _counts_by_one(place, body, count):
            yield from _scanned(place, outer, body, loop, start, length)


def _count(source: str) -> Count | None:
    """What a condition compares with its end: `s[1] < 3`, or `k < n` of `x, k = s`."""
    node = ast.parse(source).body[0]
    function = node.value if isinstance(node, ast.Expr) else node
    if not isinstance(function, (ast.FunctionDef, ast.Lambda)) or len(function.args.args) != 1:
        return None
    given = function.args.args[0].arg
    statements: list[ast.stmt] = (
        function.body if isinstance(function, ast.FunctionDef) else [ast.Return(function.body)]
    )
    last = statements[-1]
    test = last.value if isinstance(last, ast.Return) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Lt):
        return None
    parts = _unpacked(statements[:-1], given)
    own, end = test.left, test.comparators[0]
    if parts is None or names.loads(end) & {given, *parts}:
        return None
    if isinstance(own, ast.Subscript) and ast.unparse(own.value) == given:
        at = own.slice.value if isinstance(own.slice, ast.Constant) else None
        return Count(at, ast.unparse(end)) if isinstance(at, int) else None
    if isinstance(own, ast.Name) and own.id in (given, *parts):
        return Count(parts.index(own.id) if own.id in parts else None, ast.unparse(end))
    return None


def _unpacked(statements: Sequence[ast.stmt], given: str) -> list[str] | None:
    """Names that the carry is unpacked into; None where anything else is done."""
    if not statements:
        return []
    first = statements[0]
    if len(statements) > 1 or not isinstance(first, ast.Assign) or ast.unparse(first.value) != given:
        return None
    target = first.targets[0]
    return [ast.unparse(e) for e in target.elts] if isinstance(target, (ast.Tuple, ast.List)) else None


def _length(place: Place, count: Count, start: Any) -> str | None:
    import libcst as cst

    if count.at is not None:
        if not isinstance(start, cst.Tuple) or count.at >= len(start.elements):
            return None
        start = start.elements[count.at].value
    begin = place.cell.code(start)
    if not begin.isdigit():
        return None
    return count.end if begin == "0" else f"{names.wrapped(count.end)} - {begin}"


def _counts_by_one(place: Place, body: Any, count: Count) -> bool:
    """The body gives the counter plus one where the carry has it."""
    import libcst as cst

    returns = place.cell.own(body, cst.Return)
    if len(returns) != 1 or returns[0].value is None:
        return False
    function = ast.parse(place.cell.code(body).strip()).body[0]
    assert isinstance(function, ast.FunctionDef)
    new: Any = next(n.value for n in ast.walk(function) if isinstance(n, ast.Return))
    given, at = function.args.args[0].arg, count.at
    if at is not None and (not isinstance(new, ast.Tuple) or at >= len(new.elts)):
        return False
    own = (
        {given}
        if at is None
        else {f"{given}[{at}]", *(_unpacked(function.body[:1], given) or [])[at : at + 1]}
    )
    text = ast.unparse(new if at is None else new.elts[at])
    added = {ast.unparse(n.target) for n in ast.walk(function) if isinstance(n, ast.AugAssign)
             and isinstance(n.op, ast.Add) and ast.unparse(n.value) == "1"}  # fmt: skip
    return text in {f"{n} + 1" for n in own} | {f"1 + {n}" for n in own} | (own & added)


def _scanned(place: Place, outer: Any, body: Any, loop: Any, start: Any, length: str) -> Iterator[Candidate]:
    from jitmagic.fixes.rewrite.escapes import escapes_of

    escapes = list(escapes_of(place, outer, body))
    if len(escapes) != 1 or escapes[0].how != "append":
        return
    (escape,) = escapes
    code, name = place.cell.code, escape.name
    after = body.body.body[list(body.body.body).index(escape.line) + 1 :]
    kept = escape.value.isidentifier() and escape.value not in names.stores("\n".join(map(code, after)))
    item = (
        escape.value
        if kept
        else names.fresh(name.removesuffix("s") if name.endswith("s") else "value", place.taken)
    )
    import libcst as cst

    leave = place.cell.own(body, cst.Return)[0].value
    edit: dict[Any, str | None] = {
        escape.line: None if kept else f"{item} = {escape.value}\n",
        leave: f"{names.wrapped(code(leave))}, {item}",
        body.params.params[0].name: f"{body.params.params[0].name.value}, _",
    }
    lax = code(loop.func).removesuffix("while_loop")
    new = f"{lax}scan({body.name.value}, {code(start)}, None, length={length})"
    statement = place.cell.statement(loop)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if small is None or len(statement.body) != 1:
        return
    again = "" if stacked_uses(place, outer, edit, name) else f"{name} = list({name})\n"
    if isinstance(small, cst.Assign) and small.value is loop and len(small.targets) == 1:
        into = code(small.targets[0].target)
        edit[statement] = f"{names.wrapped(into)}, {name} = {new}\n{again}"
    else:
        result = names.fresh("result", place.taken)
        rest = "" if isinstance(small, cst.Expr) else code(small).replace(code(loop), result, 1) + "\n"
        edit[statement] = f"{result}, {name} = {new}\n{again}{rest}"
    for line in place.cell.own(outer, cst.SimpleStatementLine):
        if code(line).strip() in (f"{name} = []", f"{name} = list()"):
            edit[line] = None
    test = argument_of(loop, 0, "cond_fun")
    used = [n for n in place.cell.within(outer, cst.Name) if n.value == getattr(test, "value", None)]
    for function in place.cell.own(outer, cst.FunctionDef):
        if function.name in used and len(used) == 2:
            edit[function] = None
    title = f"a scan of `{length}` steps in place of the `while_loop`, which stacks `{name}`"
    given = {p.name.value for p in outer.params.params} if outer.name.value == place.function else set()
    static = tuple(sorted(names.loads(length) & given - place.static))
    if static:
        yield Candidate(title, place.cell.edit(edit), "unsafe", static=static)
    else:
        yield Candidate(title, place.cell.edit(edit))

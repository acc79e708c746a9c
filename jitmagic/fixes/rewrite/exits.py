"""Loops that a traced condition leaves or skips: `break`, `continue` and `return` inside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.liveness import bound_before, live_after, rebound
from jitmagic.fixes.rewrite.loops import Body, first_values, has_break, impure, range_of, while_loop
from jitmagic.fixes.rewrite.merging import body_of, parts, where
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import is_boolean, negated, stripped, truth

BREAK = "loop with `jax.lax.while_loop`, which stops where the loop breaks"


def leaving(place: Place, statement: Any) -> Iterator[Candidate]:
    """The `if` of the place holds a `break` or `continue`."""
    import libcst as cst

    for node in list(place.cell.ancestors(statement))[1:]:
        if isinstance(node, (cst.For, cst.While)):
            if place.cell.own(statement, cst.Continue) and not _breaks(place, node):
                yield from _continuing(place, statement, node)
            elif has_break(place, node) and place.cell.own(statement, cst.Break):
                yield from with_break(place, node)
            elif place.cell.own(statement, cst.Return):
                yield from with_return(place, node)
            return
        if isinstance(node, cst.FunctionDef):
            return


def _breaks(place: Place, loop: Any) -> bool:
    import libcst as cst

    return any(
        next(n for n in place.cell.ancestors(b) if isinstance(n, (cst.For, cst.While))) is loop
        for b in place.cell.own(loop, cst.Break)
    )


def _continuing(place: Place, statement: Any, loop: Any) -> Iterator[Candidate]:
    """`if c: continue` and what follows, as `if not c:` over what follows."""
    import libcst as cst

    block, index = place.cell.siblings(statement)
    if block is not loop.body or statement.orelse is not None or len(body_of(statement)) != 1:
        return
    if not place.cell.own(statement, cst.Continue) or index + 1 == len(block.body):
        return
    rest = block.body[index + 1 :]
    text = f"if {negated(place, statement.test)}:\n{indented(place.cell.block(rest))}"
    changes: dict[Any, str | None] = {statement: text, **{s: None for s in rest}}
    yield Candidate(
        "skip the rest of the turn by a condition in place of `continue`", place.cell.edit(changes)
    )


def with_break(place: Place, loop: Any) -> Iterator[Candidate]:
    """A loop with one `if c: break` on its top level, as a while loop that carries whether it is done."""
    import libcst as cst

    statements = body_of(loop)
    at = [i for i, s in enumerate(statements) if isinstance(s, cst.If) and place.cell.own(s, cst.Break)]
    if not at:
        return
    run = [i for i in at if _only_breaks(statements[i])]
    together = len(at) > 1 and at == run == list(range(at[0], at[-1] + 1))
    if len(at) > 1 and not (together and all(is_boolean(place, statements[i].test) for i in at)):
        return
    leave = statements[at[0]]
    inner = body_of(leave)
    if leave.orelse is not None or not isinstance(inner[-1].body[-1], cst.Break) or len(inner[-1].body) != 1:
        return
    if len(place.cell.own(loop, cst.Break, cst.Continue)) != len(at):
        return
    done = names.fresh("done", place.taken)
    head, tail = statements[: at[0]], statements[at[-1] + 1 :]
    tests = [stripped(truth(place, statements[i].test)) for i in at]
    asked = tests[0] if len(tests) == 1 else " | ".join(map(names.wrapped, tests))
    text = rebound(place, head) + f"{done} = {asked}\n"
    if len(inner) > 1:
        text += f"if {done}:\n{indented(rebound(place, inner[:-1]))}"
        if tail:
            text += f"else:\n{indented(rebound(place, tail))}"
    elif tail:
        text += f"if not {done}:\n{indented(rebound(place, tail))}"
    yield from _until_done(place, loop, text, done)


def _only_breaks(statement: Any) -> bool:
    """`if c: break`, with nothing else in it."""
    import libcst as cst

    inner = body_of(statement)
    return statement.orelse is None and len(inner) == 1 and isinstance(inner[0].body[0], cst.Break)


def _turns(place: Place, loop: Any) -> tuple[str, tuple[str, str, str], str] | None:
    """The counter of a `for`, start, stop and step of it, and what each turn takes by it from the rows of an array."""
    import libcst as cst

    bounds = range_of(place, loop)
    if bounds is not None:
        if not isinstance(loop.target, cst.Name):
            return None
        unused = loop.target.value == "_"  # a name that says it is not read, and a counter is
        return names.fresh("i", place.taken) if unused else loop.target.value, bounds, ""
    looped, target, code = loop.iter, loop.target, place.cell.code
    index = names.fresh("i", place.taken)
    function = getattr(looped.func, "value", "") if isinstance(looped, cst.Call) else ""
    if function == "enumerate" and isinstance(target, cst.Tuple) and len(looped.args) == 1:
        index = code(target.elements[0].value)
        rows = [(code(target.elements[1].value), code(looped.args[0].value))]
    elif function == "zip" and isinstance(target, cst.Tuple) and len(target.elements) == len(looped.args):
        rows = [(code(t.value), code(a.value)) for t, a in zip(target.elements, looped.args, strict=True)]
    elif isinstance(looped, (cst.Name, cst.Attribute)) and isinstance(target, cst.Name):
        rows = [(target.value, code(looped))]
    else:
        return None
    taken = "".join(f"{name} = {array}[{index}]\n" for name, array in rows)
    return index, ("0", f"len({rows[0][1]})", "1"), taken


def with_return(place: Place, loop: Any) -> Iterator[Candidate]:
    """`for …: if c: return a` and `return b` behind it: the loop stops where the condition holds, then `a` or `b`."""
    import libcst as cst

    statements = body_of(loop)
    leave = next((s for s in statements if isinstance(s, cst.If) and place.cell.own(s, cst.Return)), None)
    if leave is None or loop.orelse is not None or has_break(place, loop):
        return
    block, at = place.cell.siblings(loop)
    rest = block.body[at + 1 :]
    then, otherwise = parts(leave)
    found, last = _returned(then), _returned(rest)
    endless = isinstance(loop, cst.While) and place.cell.code(loop.test).strip("()") in ("True", "1")
    if found is None or (last is None and (rest or not endless)):
        return
    turns = _turns(place, loop) if isinstance(loop, cst.For) else ("", ("", "", "1"), "")
    if turns is None or turns[1][2] != "1" or len(place.cell.own(loop, cst.Return)) != 1:
        return
    index, (start, stop, _), head = turns
    done, turn = names.fresh("found", place.taken), statements.index(leave)
    text = head + rebound(place, statements[:turn]) + f"{done} = {stripped(truth(place, leave.test))}\n"
    if tail := [*otherwise, *statements[turn + 1 :]]:
        text += f"if not {done}:\n{indented(rebound(place, tail))}"
    text += f"{index} = {place.jnp}.where({done}, {index}, {index} + 1)\n" if index else ""
    value = found if last is None else _chosen(place, done, found, last)
    value = value if isinstance(value, str) or value is None else stripped(place.cell.code(value))
    if value is None:
        return
    reads, taken = names.loads(value), set(names.stores(head)) if head else set()
    bound = [n for n in names.stores(text) if n not in (index, done)]
    carried = [n for n in bound if (n in names.exposed(text, (index,)) or n in reads) and n not in taken]
    begun = _begun(place, loop, carried, index, start)
    if begun is None:
        return
    first, start = begun
    own = (
        ""
        if endless
        else f"({index} < {stop})"
        if index
        else names.wrapped(stripped(truth(place, loop.test)))
    )
    test = f"{own} & ~{done}" if own else f"~{done}"
    state, starts = ([index], [start]) if index else ([], [])
    body = Body(text, (*state, done, *carried), first)
    loop_text = while_loop(place, test, body, [*starts, f"{place.jnp}.array(False)", *carried])
    after = head if taken & reads else ""
    yield Candidate(
        "loop with `jax.lax.while_loop`, which stops where the loop would return",
        place.cell.edit({loop: f"{loop_text}{after}return {value}\n", **{s: None for s in rest}}),
    )


def _begun(place: Place, loop: Any, carried: Sequence[str], index: str, start: str) -> tuple[str, str] | None:
    """Assignments in front of the loop for carried names without a value there, and where the counter starts."""
    before = bound_before(place, loop)
    missing = [n for n in carried if n not in before]
    first = first_values(body_of(loop), missing, {*before, index}, place, ())
    if first and index and index in names.loads(first):
        return f"{index} = {start}\n{first}", index
    return None if first is None else (first, start)


def _returned(statements: Sequence[Any]) -> Any:
    """What a block that is nothing but `return v` returns, else None."""
    import libcst as cst

    only = statements[0] if len(statements) == 1 else None
    if not isinstance(only, cst.SimpleStatementLine) or not isinstance(only.body[0], cst.Return):
        return None
    return only.body[0].value


def _chosen(place: Place, done: str, found: Any, last: Any) -> str | None:
    """One of two returned values, element by element where they are tuples; None where their forms differ."""
    import libcst as cst

    tuples = [isinstance(v, cst.Tuple) for v in (found, last)]
    if any(tuples):
        if not all(tuples) or len(found.elements) != len(last.elements):
            return None
        pieces = [
            _chosen(place, done, *(e.value for e in pair))
            for pair in zip(found.elements, last.elements, strict=True)
        ]
        return None if None in pieces else ", ".join(p or "" for p in pieces)
    first, second = (stripped(place.cell.code(v)) for v in (found, last))
    return first if first == second else where(place, done, first, second, boolean=True)


def _until_done(place: Place, loop: Any, text: str, done: str) -> Iterator[Candidate]:
    import libcst as cst

    index, start, head = "", "", ""
    otherwise = f"if not {done}:\n{indented(place.cell.block(body_of(loop.orelse)))}" if loop.orelse else ""
    live = live_after(place, loop) | names.loads(otherwise or "pass")
    if isinstance(loop, cst.For):
        turns = _turns(place, loop)
        if turns is None:
            return
        index, (start, stop, step), head = turns
        text = head + text
        sign = ">" if step.startswith("-") else "<"
        test = f"({index} {sign} {stop}) & ~{done}"
        following = f"{index} + {names.wrapped(step)}"
        if index in live:  # after a break it is where it was, after all turns that of the last
            if step != "1":
                return
            following = f"{place.jnp}.where({done}, {index}, {following})"
            otherwise = f"{index} = {place.jnp}.minimum({index}, {stop} - 1)\n{otherwise}"
        text = text.rstrip() + f"\n{index} = {following}\n"
    else:
        own = stripped(truth(place, loop.test))
        test = f"~{done}" if own in ("True", "1") else f"{names.wrapped(own)} & ~{done}"
    bound = names.stores(text)
    needed = names.exposed(text, (index,) if index else ()) | names.loads(test)
    carried = [n for n in bound if (n in needed or n in live) and n not in (index, done)]
    begun = _begun(place, loop, carried, index, start)
    if begun is None or impure(place, loop, carried, bound):
        return
    first, start = begun
    own_names, own_starts = ([index, done], [start]) if index else ([done], [])
    body = Body(text, (*own_names, *carried), first)
    turns_made = while_loop(place, test, body, [*own_starts, f"{place.jnp}.array(False)", *carried])
    yield Candidate(BREAK, place.cell.edit({loop: turns_made + otherwise}))

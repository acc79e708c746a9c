"""Loops whose number of turns is traced: `lax.while_loop` and `lax.fori_loop` with the names they carry."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.branches import body_of, bound_before, call, live_after, rebound
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.conditions import is_boolean, stripped, truth
from jitmagic.fixes.rewrite.place import Candidate, Place

WHILE = "loop with jax.lax.while_loop"
FORI = "loop with jax.lax.fori_loop"
BREAK = "loop with jax.lax.while_loop, which stops where the loop breaks"


def candidates(place: Place) -> Iterator[Candidate]:
    """`while` on a traced condition, `for` over a traced range, and loops that a traced condition leaves."""
    import libcst as cst

    if place.kind in ("tracer-bool", "tracer-hash"):
        for node in place.path:
            if isinstance(node, cst.While) and any(n is node.test for n in place.path):
                yield from while_statement(place, node)
                return
            if isinstance(node, cst.If) and any(n is node.test for n in place.path):
                yield from _leaving(place, node)
                return
    elif place.kind in ("tracer-int", "dynamic-shape", "user-error"):
        for node in place.path:
            if isinstance(node, cst.For):
                yield from for_loop(place, node)
                return
        yield from _generated_sum(place)


@dataclass(frozen=True)
class Body:
    """A loop's body as source, and the names that one turn hands to the next."""

    text: str
    carried: tuple[str, ...]
    first: str = ""
    """Assignments in front of the loop, for names that have no value there."""


def _carried(
    place: Place, loop: Any, statements: Sequence[Any], test: str = "", own: Sequence[str] = ()
) -> Body | None:
    """None where a name lives on after the loop that has no value before it."""
    text = rebound(place, statements)
    bound = [n for n in names.stores(text) if n not in own]
    live, before = live_after_loop(place, loop), bound_before(place, loop)
    needed = names.exposed(text, own) | (names.loads(test) if test else set())
    carried = tuple(n for n in bound if n in needed or n in live)
    first = _first_values(statements, [n for n in carried if n not in before], before, place, own)
    if not carried or first is None:
        return None
    if _impure(place, loop, carried, bound):
        return None
    return Body(text, carried, first)


def _first_values(
    statements: Sequence[Any],
    missing: Sequence[str],
    before: Collection[str],
    place: Place,
    own: Sequence[str],
) -> str | None:
    """The assignments of the body that give names without a value before the loop one; None where that takes more."""
    import libcst as cst

    text, known = "", set(before)
    if any(n in own for n in missing):
        return None
    for statement in statements:
        if set(missing) <= known:
            break
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            continue
        small = statement.body[0]
        if not isinstance(small, cst.Assign) or place.cell.own(small.value, cst.Lambda):
            continue
        code = place.cell.code(statement)
        bound = names.stores(code)
        if not set(bound) & known and set(bound) <= set(missing) and not names.loads(code) & set(own):
            text += code if code.endswith("\n") else code + "\n"
            known |= set(bound)
    return text if set(missing) <= known else None


def live_after_loop(place: Place, loop: Any) -> set[str]:
    """Names read after the loop, its own body and head left out."""
    return live_after(place, loop)


def _impure(place: Place, loop: Any, carried: Sequence[str], bound: Sequence[str]) -> bool:
    """The body returns, yields, or fills a list or another object: a traced body would do that once."""
    import libcst as cst

    if place.cell.own(loop, cst.Return, cst.Yield, cst.Await):
        return True
    for node in place.cell.own(loop, cst.Call):
        if isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Name):
            if node.func.attr.value in ("append", "extend", "add", "update", "insert", "pop"):
                if node.func.value.value not in bound and place.modules.get(node.func.value.value) is None:
                    return True
    return False


def _has_break(place: Place, loop: Any) -> bool:
    import libcst as cst

    for jump in place.cell.own(loop, cst.Break, cst.Continue):
        for node in place.cell.ancestors(jump):
            if isinstance(node, (cst.For, cst.While)):
                if node is loop:
                    return True
                break
    return False


def _state(carried: Sequence[str]) -> str:
    return carried[0] if len(carried) == 1 else f"({', '.join(carried)})"


def _single(text: str, name: str) -> str | None:
    """The value where the body is only `name = value`."""
    import ast

    tree = ast.parse(text)
    if len(tree.body) != 1 or "\n" in text.strip():
        return None
    node = tree.body[0]
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return text.strip().partition("=")[2].strip() if "#" not in text else None
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and "#" not in text:
        sign, _, value = text.strip().removeprefix(name).strip().partition("=")
        return f"{name} {sign.strip()} {names.wrapped(value.strip())}"
    return None


def while_statement(place: Place, loop: Any) -> Iterator[Candidate]:
    """`while` as `jax.lax.while_loop` over the names that the body binds."""
    if loop.orelse is not None:
        return
    if _has_break(place, loop):
        yield from _with_break(place, loop)
        return
    test = stripped(truth(place, loop.test))
    body = _carried(place, loop, body_of(loop), test)
    if body is None:
        return
    yield Candidate(WHILE, place.cell.edit({loop: while_loop(place, test, body)}))
    if not is_boolean(place, loop.test):  # Python takes every number but zero for true
        yield Candidate(
            WHILE, place.cell.edit({loop: while_loop(place, f"{names.wrapped(test)} != 0", body)})
        )


def while_loop(place: Place, test: str, body: Body, starts: Sequence[str] = ()) -> str:
    """Source of a `lax.while_loop` over the carried names; `starts` are their first values, else themselves."""
    carried, lax = body.carried, place.lax
    state = _state(starts or carried)
    if len(carried) == 1:
        name = carried[0]
        value = _single(body.text, name)
        step, defs = f"lambda {name}: {value}", ""
        if value is None or len(value) > 60:
            step = names.fresh("body", place.taken)
            defs = f"def {step}({name}):\n{indented(_end(body.text, name))}\n"
        loop = call(f"{lax}.while_loop", f"lambda {name}: {test}", step, state)
        return f"{defs}{body.first}{name} = {loop}\n"
    keep, step = names.fresh("keep_going", place.taken), names.fresh("body", place.taken)
    unpack = f"{', '.join(carried)} = state\n"
    return (
        f"def {keep}(state):\n{indented(unpack + f'return {test}' + chr(10))}\n"
        f"def {step}(state):\n{indented(unpack + _end(body.text, ', '.join(carried)))}\n{body.first}"
        f"{', '.join(carried)} = {call(f'{lax}.while_loop', keep, step, state)}\n"
    )


def _end(text: str, result: str) -> str:
    return f"{text.rstrip()}\nreturn {result}\n"


# -- for


def _range(place: Place, loop: Any) -> tuple[str, str, str] | None:
    """Start, stop and step of `range(...)` as source."""
    import libcst as cst

    call_ = loop.iter
    if not isinstance(call_, cst.Call):
        return None
    turned = getattr(call_.func, "value", "") == "reversed" and len(call_.args) == 1
    if turned and isinstance(call_.args[0].value, cst.Call):
        call_ = call_.args[0].value
    if getattr(call_.func, "value", "") != "range":
        return None
    arguments = [stripped(place.cell.code(a.value)) for a in call_.args]
    if any(a.keyword or a.star for a in call_.args) or not 1 <= len(arguments) <= 3:
        return None
    if turned:
        low, high = ("0", arguments[0]) if len(arguments) == 1 else (arguments[0], arguments[1])
        below = f"{names.wrapped(low)} - 1" if low != "0" else "-1"
        return (f"{names.wrapped(high)} - 1", below, "-1") if len(arguments) < 3 else None
    if len(arguments) == 1:
        return "0", arguments[0], "1"
    return arguments[0], arguments[1], arguments[2] if len(arguments) == 3 else "1"


def for_loop(place: Place, loop: Any) -> Iterator[Candidate]:
    """`for i in range(...)` as `jax.lax.fori_loop`, or as `while_loop` where it can be left early."""
    import libcst as cst

    bounds = _range(place, loop)
    if bounds is None or loop.orelse is not None or not isinstance(loop.target, cst.Name):
        return
    if _has_break(place, loop):
        yield from _with_break(place, loop)
        return
    index = loop.target.value
    body = _carried(place, loop, body_of(loop), own=(index,))
    if body is None or index in live_after(place, loop):
        return
    start, stop, step = bounds
    yield Candidate(FORI, place.cell.edit({loop: fori_loop(place, index, start, stop, step, body)}))


def fori_loop(place: Place, index: str, start: str, stop: str, step: str, body: Body) -> str:
    """Source of a `lax.fori_loop`; a step other than 1 counts turns."""
    text, turn = body.text, index
    if step == "-1":
        turn = names.fresh("turn", place.taken)
        text = f"{index} = {start} - {turn}\n{text}"
        inner = stripped(stop)
        low, high = "0", f"{start} + 1" if inner == "-1" else f"{start} - {names.wrapped(stop)}"
    elif step != "1":
        turn = names.fresh("turn", place.taken)
        text = f"{index} = {start + ' + ' if start != '0' else ''}{turn} * {names.wrapped(step)}\n{text}"
        width = f"{names.wrapped(stop)} - {names.wrapped(start)}" if start != "0" else names.wrapped(stop)
        low, high = "0", f"({width} + {names.wrapped(step)} - 1) // {names.wrapped(step)}"
    else:
        low, high = start, stop
    high = high.replace("- 1 + 1", "").strip()
    carried, lax = body.carried, place.lax
    if len(carried) == 1:
        name = carried[0]
        value = _single(text, name)
        function, defs = f"lambda {turn}, {name}: {value}", ""
        if value is None or len(value) > 60:
            function = names.fresh("body", place.taken)
            defs = f"def {function}({turn}, {name}):\n{indented(_end(text, name))}\n"
        return f"{defs}{body.first}{name} = {call(f'{lax}.fori_loop', low, high, function, name)}\n"
    function = names.fresh("body", place.taken)
    inner = f"{', '.join(carried)} = state\n{_end(text, ', '.join(carried))}"
    return (
        f"def {function}({turn}, state):\n{indented(inner)}\n{body.first}"
        f"{', '.join(carried)} = {call(f'{lax}.fori_loop', low, high, function, _state(carried))}\n"
    )


def _generated_sum(place: Place) -> Iterator[Candidate]:
    """`sum(f(k) for k in range(n))` as a loop that adds."""
    import libcst as cst

    for node in place.on_line(cst.Call):
        if getattr(node.func, "value", "") != "sum" or len(node.args) != 1:
            continue
        value = node.args[0].value
        if (
            not isinstance(value, (cst.GeneratorExp, cst.ListComp))
            or value.for_in.ifs
            or value.for_in.inner_for_in
        ):
            continue
        bounds = _range(place, value.for_in)
        if bounds is None or bounds[2] != "1" or not isinstance(value.for_in.target, cst.Name):
            continue
        index, total = value.for_in.target.value, names.fresh("total", place.taken)
        term = names.wrapped(place.cell.code(value.elt))
        for zero in ("0.0", "0"):
            new = call(
                f"{place.lax}.fori_loop",
                bounds[0],
                bounds[1],
                f"lambda {index}, {total}: {total} + {term}",
                zero,
            )
            yield Candidate(FORI, place.cell.edit({node: new}))


# -- break and continue


def _leaving(place: Place, statement: Any) -> Iterator[Candidate]:
    """The `if` of the place holds a `break` or `continue`."""
    import libcst as cst

    for node in list(place.cell.ancestors(statement))[1:]:
        if isinstance(node, (cst.For, cst.While)):
            if place.cell.own(statement, cst.Continue) and not _breaks(place, node):
                yield from _continuing(place, statement, node)
            elif _has_break(place, node) and place.cell.own(statement, cst.Break):
                yield from _with_break(place, node)
            elif place.cell.own(statement, cst.Return):
                yield from _with_return(place, node, statement)
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
    text = f"if {_negated(place, statement.test)}:\n{indented(place.cell.block(rest))}"
    changes: dict[Any, str | None] = {statement: text, **{s: None for s in rest}}
    yield Candidate(
        "skip the rest of the turn by a condition in place of `continue`", place.cell.edit(changes)
    )


def _negated(place: Place, test: Any) -> str:
    import libcst as cst

    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return stripped(place.cell.code(test.expression))
    return f"not {names.wrapped(stripped(place.cell.code(test)))}"


def _with_break(place: Place, loop: Any) -> Iterator[Candidate]:
    """A loop with one `if c: break` on its top level, as a while loop that carries whether it is done."""
    import libcst as cst

    statements = body_of(loop)
    at = [i for i, s in enumerate(statements) if isinstance(s, cst.If) and place.cell.own(s, cst.Break)]
    if len(at) != 1 or loop.orelse is not None:
        return
    leave = statements[at[0]]
    inner = body_of(leave)
    if leave.orelse is not None or not isinstance(inner[-1].body[-1], cst.Break) or len(inner[-1].body) != 1:
        return
    if len(place.cell.own(loop, cst.Break, cst.Continue)) != 1:
        return
    done = names.fresh("done", place.taken)
    head, tail = statements[: at[0]], statements[at[0] + 1 :]
    text = rebound(place, head) + f"{done} = {stripped(truth(place, leave.test))}\n"
    if len(inner) > 1:
        text += f"if {done}:\n{indented(rebound(place, inner[:-1]))}"
        if tail:
            text += f"else:\n{indented(rebound(place, tail))}"
    elif tail:
        text += f"if not {done}:\n{indented(rebound(place, tail))}"
    yield from _until_done(place, loop, text, done)


def _turns(place: Place, loop: Any) -> tuple[str, tuple[str, str, str], str] | None:
    """The counter of a `for`, start, stop and step of it, and what each turn takes by it from the rows of an array."""
    import libcst as cst

    bounds = _range(place, loop)
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


def _with_return(place: Place, loop: Any, leave: Any) -> Iterator[Candidate]:
    """`for …: if c: return a` and `return b` behind it: the loop stops where the condition holds, then `a` or `b`."""
    import libcst as cst

    statements, (block, at) = body_of(loop), place.cell.siblings(loop)
    rest = block.body[at + 1 :]
    inner = body_of(leave)
    last = rest[0].body[-1] if len(rest) == 1 and isinstance(rest[0], cst.SimpleStatementLine) else None
    found = inner[0].body[-1] if len(inner) == 1 and isinstance(inner[0], cst.SimpleStatementLine) else None
    plain = all(isinstance(r, cst.Return) and r.value is not None for r in (last, found))
    if not plain or leave.orelse is not None or leave not in statements or loop.orelse is not None:
        return
    if not isinstance(loop, cst.For) or len(place.cell.own(loop, cst.Return)) != 1 or _has_break(place, loop):
        return
    turns = _turns(place, loop)
    if turns is None or turns[1][2] != "1":
        return
    index, (start, stop, _), head = turns
    done = names.fresh("found", place.taken)
    turn = statements.index(leave)
    text = head + rebound(place, statements[:turn]) + f"{done} = {stripped(truth(place, leave.test))}\n"
    if statements[turn + 1 :]:
        text += f"if not {done}:\n{indented(rebound(place, statements[turn + 1 :]))}"
    text += f"{index} = {place.jnp}.where({done}, {index}, {index} + 1)\n"
    before = bound_before(place, loop)
    bound = [n for n in names.stores(text) if n not in (index, done)]
    reads = names.loads(place.cell.code(found.value)) | names.loads(place.cell.code(last.value))  # type: ignore[union-attr]
    taken = set(names.stores(head)) if head else set()
    carried = [n for n in bound if (n in names.exposed(text, (index,)) or n in reads) and n not in taken]
    if not set(carried) <= before:
        return
    test = f"({index} < {stop}) & ~{done}"
    loop_text = while_loop(
        place, test, Body(text, (index, done, *carried)), [start, f"{place.jnp}.array(False)", *carried]
    )
    values = [stripped(place.cell.code(r.value)) for r in (found, last)]  # type: ignore[union-attr]
    after = head if taken & reads else ""
    new = f"{loop_text}{after}return {call(f'{place.jnp}.where', done, *values)}\n"
    yield Candidate(
        "loop with jax.lax.while_loop, which stops where the loop would return",
        place.cell.edit({loop: new, rest[0]: None}),
    )


def _until_done(place: Place, loop: Any, text: str, done: str) -> Iterator[Candidate]:
    import libcst as cst

    index, starts, head = "", [], ""
    if isinstance(loop, cst.For):
        turns = _turns(place, loop)
        if turns is None:
            return
        index, (start, stop, step), head = turns
        own_target = index == getattr(loop.target, "value", "")
        if own_target and index in live_after(place, loop):
            return  # after a break it has another value than a counter
        text = head + text
        sign = ">" if step.startswith("-") else "<"
        test = f"({index} {sign} {stop}) & ~{done}"
        text = text.rstrip() + f"\n{index} = {index} + {names.wrapped(step)}\n"
        starts = [start]
    else:
        own = stripped(truth(place, loop.test))
        test = f"~{done}" if own in ("True", "1") else f"{names.wrapped(own)} & ~{done}"
    bound = names.stores(text)
    live, before = live_after(place, loop), bound_before(place, loop)
    needed = names.exposed(text, (index,) if index else ()) | names.loads(test)
    carried = [n for n in bound if (n in needed or n in live) and n not in (index, done)]
    if not set(carried) <= before or _impure(place, loop, carried, bound):
        return
    own_names = [*([index] if index else []), done]
    starts = [*starts, f"{place.jnp}.array(False)", *carried]
    yield Candidate(BREAK, place.cell.edit(
        {loop: while_loop(place, test, Body(text, (*own_names, *carried)), starts)}
    ))  # fmt: skip

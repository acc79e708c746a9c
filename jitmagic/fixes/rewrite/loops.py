"""Loops whose number of turns is traced: `lax.while_loop` and `lax.fori_loop` with the names they carry."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.liveness import bound_before, live_after, rebound
from jitmagic.fixes.rewrite.merging import body_of, call
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import assigned, is_boolean, stripped, truth

WHILE = "loop with `jax.lax.while_loop`"
FORI = "loop with `jax.lax.fori_loop`"


def candidates(place: Place) -> Iterator[Candidate]:
    """`while` on a traced condition, `for` over a traced range, and loops that a traced condition leaves."""
    import libcst as cst

    from jitmagic.fixes.rewrite import exits

    if place.kind in ("tracer-bool", "tracer-hash"):
        for node in place.path:
            if isinstance(node, cst.While) and any(n is node.test for n in place.path):
                yield from while_statement(place, node)
                return
            if isinstance(node, cst.If) and any(n is node.test for n in place.path):
                yield from exits.leaving(place, node)
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
    first = first_values(statements, [n for n in carried if n not in before], before, place, own)
    if not carried or first is None:
        return None
    if impure(place, loop, carried, bound):
        return None
    return Body(text, carried, first)


def first_values(
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
    inside = set(names.stores(place.cell.block(statements) or "pass"))
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
        reads = names.loads(code)
        if set(bound) & known or not set(bound) <= set(missing) or reads & {*own, *(inside - known)}:
            continue
        text += code if code.endswith("\n") else code + "\n"
        known |= set(bound)
    for name in (n for n in missing if n not in known):
        zeros = _zeros(place, name)
        if zeros is None:
            return None
        text += f"{name} = {zeros}\n"
    return text


def _zeros(place: Place, name: str) -> str | None:
    """A value of the form that the only assignment to the name gives it, which the first turn replaces."""
    import libcst as cst

    value = assigned(place, cst.Name(name))
    shapes = (
        place.probe(place.cell.edit({value: f"__seen({place.cell.code(value)})"}))
        if value is not None
        else ()
    )
    forms = {(s.shape, s.dtype) for s in shapes}
    if len(forms) != 1:
        return None
    shape, dtype = forms.pop()
    if not shape:
        return {"float": "0.0", "int": "0", "bool": "False", "uint": "0"}.get(dtype.rstrip("0123456789_"))
    usual = "" if dtype == "float32" else f", {place.jnp}.{dtype}"
    return (
        f"{place.jnp}.zeros({shape}{usual})"
        if dtype.startswith(("float", "int", "uint", "complex"))
        else None
    )


def live_after_loop(place: Place, loop: Any) -> set[str]:
    """Names read after the loop, its own body and head left out."""
    return live_after(place, loop)


def impure(place: Place, loop: Any, carried: Sequence[str], bound: Sequence[str]) -> bool:
    """The body returns, yields, or fills a list or another object: a traced body would do that once."""
    import libcst as cst

    if place.cell.own(loop.body, cst.Return, cst.Yield, cst.Await):
        return True
    for node in place.cell.own(loop.body, cst.Call):
        if isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Name):
            if node.func.attr.value in ("append", "extend", "add", "update", "insert", "pop"):
                if node.func.value.value not in bound and place.modules.get(node.func.value.value) is None:
                    return True
    return False


def has_break(place: Place, loop: Any) -> bool:
    """A `break` or `continue` belongs to this loop, not to one inside it."""
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
    from jitmagic.fixes.rewrite import exits

    if has_break(place, loop):
        yield from exits.with_break(place, loop)
        return
    if loop.orelse is not None:
        return
    yield from exits.with_return(place, loop)
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


def range_of(place: Place, loop: Any) -> tuple[str, str, str] | None:
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

    from jitmagic.fixes.rewrite import exits

    bounds = range_of(place, loop)
    if bounds is None or not isinstance(loop.target, cst.Name):
        return
    if has_break(place, loop):
        yield from exits.with_break(place, loop)
        return
    if loop.orelse is not None:
        return
    yield from exits.with_return(place, loop)
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
        bounds = range_of(place, value.for_in)
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

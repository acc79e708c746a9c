"""Functions that call themselves until a traced condition holds: a loop in place of the last call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.merging import body_of, parts
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import negated, stripped

TITLE = "loop in place of the function's call of itself"


def candidates(place: Place) -> Iterator[Candidate]:
    """The body of the function around the place as `while True:`, where a call of itself is the last that it does."""
    turn = ended_by(place)
    text = None if turn is None else _loop(place, turn)
    if text is not None:
        first, *others = _statements(place)
        yield Candidate(TITLE, place.cell.edit({first: text, **{s: None for s in others}}), ends=True)


def ended_by(place: Place) -> _Turn | None:
    """The function's calls of itself end where the condition of the place holds. No other way to trace it ends."""
    if place.kind not in ("tracer-bool", "tracer-hash") or place.innermost is None:
        return None
    if not _own_calls(place, place.innermost.body):
        return None
    return _turn(place, _statements(place))


def _statements(place: Place) -> list[Any]:
    """The function's statements without its docstring."""
    found = body_of(place.innermost)
    return found[1:] if _is_text(found[0]) else found


def _own_calls(place: Place, node: Any) -> list[Any]:
    import libcst as cst

    return [c for c in place.cell.within(node, cst.Call) if place.cell.code(c.func) in _own_names(place)]


def _own_names(place: Place) -> set[str]:
    """What the innermost function is called inside itself; a method, by its receiver."""
    import libcst as cst

    function, parameters = place.innermost, place.innermost.params.params
    block = place.cell.parents.get(function)
    if isinstance(place.cell.parents.get(block), cst.ClassDef) and parameters:
        return {f"{parameters[0].name.value}.{function.name.value}"}
    return {function.name.value}


def _is_text(statement: Any) -> bool:
    import libcst as cst

    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)


@dataclass(frozen=True)
class _Turn:
    """One call of the function: `head`, then `result` where `test` holds, else `rest` and the call `again`."""

    head: Sequence[Any]
    test: str
    result: str
    rest: Sequence[Any]
    again: Any = None
    ways: str = ""
    """Source of `rest` and of the calls that it ends in, where there are several, as assignments."""


def _turn(place: Place, body: Sequence[Any]) -> _Turn | None:
    import libcst as cst

    at = next((i for i, s in enumerate(body) if isinstance(s, cst.If) or _value(s) is not None), None)
    if at is None or not any(n is body[at] for n in place.path):
        return None
    head, last = body[:at], body[at]
    if any(_own_calls(place, s) for s in head):
        return None
    value = _value(last)
    if isinstance(value, cst.IfExp):
        return _either(place, head, value.test, ([], value.body), ([], value.orelse))
    if not isinstance(last, cst.If):
        return None
    first, second = parts(last)
    sides = [first, [*second, *body[at + 1 :]]]
    several = _several(place, head, last.test, sides)
    returned = [_returning(s) for s in sides]
    return several or (None if None in returned else _either(place, head, last.test, *returned))


def _several(place: Place, head: Sequence[Any], test: Any, sides: Sequence[Any]) -> _Turn | None:
    """The turn of an `if` of which one side returns a result and the other calls the function in several places."""
    results: list[Any] = [_value(s[0]) if len(s) == 1 else None for s in sides]
    plain = [v is not None and not _own_calls(place, v) for v in results]
    if plain[0] == plain[1]:
        return None
    ways = _ways(place, sides[plain[0]])
    asked = stripped(place.cell.code(test)) if plain[0] else negated(place, test)
    result = stripped(place.cell.code(results[plain[1]]))
    return None if ways is None else _Turn(head, asked, result, [], ways=ways)


def _ways(place: Place, statements: Sequence[Any]) -> str | None:
    """Statements that end in calls of the function only, with the parameters bound anew in place of these."""
    import libcst as cst

    at = next((i for i, s in enumerate(statements) if _own_calls(place, s)), None)
    if at is None:
        return None
    head, last = place.cell.block(statements[:at]), statements[at]
    if isinstance(last, cst.If):
        first, second = parts(last)
        sides = [_ways(place, first), _ways(place, [*second, *statements[at + 1 :]])]
        return None if None in sides else head + _if(place, last.test, *sides)
    value = _value(last)
    if isinstance(value, cst.IfExp):
        sides = [_rebound(place, value.body), _rebound(place, value.orelse)]
        return None if None in sides else head + _if(place, value.test, *sides)
    again = _rebound(place, value)
    return None if again is None else head + again


def _if(place: Place, test: Any, first: str | None, second: str | None) -> str:
    asked = stripped(place.cell.code(test))
    return f"if {asked}:\n{indented(first or '')}else:\n{indented(second or '')}"


def _value(statement: Any) -> Any:
    """What the statement returns, where it is nothing but `return v`."""
    import libcst as cst

    small = statement.body[-1] if isinstance(statement, cst.SimpleStatementLine) else None
    return small.value if isinstance(small, cst.Return) and len(statement.body) == 1 else None


def _returning(statements: Sequence[Any]) -> tuple[Sequence[Any], Any] | None:
    """The statements before the last, and what that one returns."""
    value = _value(statements[-1]) if statements else None
    return None if value is None else (statements[:-1], value)


def _either(place: Place, head: Sequence[Any], test: Any, *sides: Any) -> _Turn | None:
    """The turn of two ways to return, of which one is the call."""
    again = [bool(_own_calls(place, value)) for _, value in sides]
    if again[0] == again[1] or any(_own_calls(place, s) for before, _ in sides for s in before):
        return None
    (before, result), (rest, call) = sides if again[1] else reversed(sides)
    asked = stripped(place.cell.code(test)) if again[1] else negated(place, test)
    return None if before else _Turn(head, asked, stripped(place.cell.code(result)), rest, call)


def _loop(place: Place, turn: _Turn) -> str | None:
    """Source of the loop; None where more is done with the call's result than adding or multiplying."""
    step = _step(place, turn)
    if step is None:
        return None
    start, result, last = step
    head, rest = place.cell.block(turn.head), place.cell.block(turn.rest)
    leave = f"if {turn.test}:\n    return {result}\n"
    return f"{start}while True:\n{indented(head + leave + rest + last)}"


def _step(place: Place, turn: _Turn) -> tuple[str, str, str] | None:
    """What stands before the loop, what it returns, and the end of its turn."""
    import libcst as cst

    node = turn.again
    if turn.ways:
        return "", turn.result, turn.ways
    if not isinstance(node, cst.BinaryOperation):
        again = _rebound(place, node)
        return None if again is None else ("", turn.result, again)
    signs = {cst.Add: ("total", "+", "0"), cst.Multiply: ("product", "*", "1")}
    sides = sorted((node.left, node.right), key=lambda n: bool(_own_calls(place, n)))
    again = _rebound(place, sides[1]) if type(node.operator) in signs else None
    if again is None or _own_calls(place, sides[0]):
        return None
    name, sign, nothing = signs[type(node.operator)]
    name = names.fresh(name, place.taken)
    kept = f"{name} = {name} {sign} {names.wrapped(stripped(place.cell.code(sides[0])))}\n"
    result = name if turn.result == nothing else f"{name} {sign} {names.wrapped(turn.result)}"
    return f"{name} = {nothing}\n", result, kept + again


def _rebound(place: Place, call: Any) -> str | None:
    """The parameters bound to what the call of itself gives them; None for anything else than such a call."""
    import libcst as cst

    if not isinstance(call, cst.Call) or place.cell.code(call.func) not in _own_names(place):
        return None
    params = place.innermost.params
    own = [*params.posonly_params, *params.params][("." in place.cell.code(call.func)) :]
    keyed = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    given = [a.value for a in call.args if a.keyword is None]
    if any(a.star for a in call.args) or len(given) > len(own):
        return None
    values = dict(zip((p.name.value for p in own), given, strict=False)) | keyed
    for p in (*own, *params.kwonly_params):
        if p.name.value not in values:
            values[p.name.value] = p.default
    if None in values.values():
        return None
    texts = {n: stripped(place.cell.code(v)) for n, v in values.items()}
    changed = {n: t for n, t in texts.items() if n != t}
    return f"{', '.join(changed)} = {', '.join(changed.values())}\n" if changed else None

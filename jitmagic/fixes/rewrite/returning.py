"""Branches that return: one `return` of a choice, or of `jax.lax.cond`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.checks import only_raises
from jitmagic.fixes.rewrite.liveness import bound_before, rebound
from jitmagic.fixes.rewrite.merging import BOTH, COND, WHERE, body_of, call, parts, where, without_not
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import is_boolean, stripped, truth


@dataclass(frozen=True)
class Tail:
    """The rest of a function: statements that do no harm when run anyway, and what is returned."""

    before: tuple[str, ...]
    value: str
    values: tuple[str, ...] = ()
    """The elements, where a tuple is returned."""

    @property
    def text(self) -> str:
        return "".join(self.before)

    @property
    def bound(self) -> set[str]:
        return set(names.stores(self.text)) if self.before else set()

    @property
    def reads(self) -> set[str]:
        return names.loads(self.value) | (names.exposed(self.text) if self.before else set())


def returning_choice(place: Place, statement: Any) -> Iterator[Candidate]:
    """An `if` that returns, with what comes after it, as one `return` of a choice."""
    block, index = place.cell.siblings(statement)
    rest = list(block.body[index:])
    if not _always_returns(rest):
        return
    changes: dict[Any, str | None] = {s: None for s in rest[1:]}
    tail = _tail(place, rest)
    if tail is not None:
        changes[statement] = tail.text + f"return {tail.value}\n"
        yield Candidate(WHERE, place.cell.edit(changes), "safe", BOTH)
    text = _returning_cond(place, statement, rest[1:])
    if text is not None:
        changes[statement] = text
        yield Candidate(COND, place.cell.edit(changes))


def _always_returns(statements: Sequence[Any]) -> bool:
    import libcst as cst

    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, cst.SimpleStatementLine):
        return isinstance(last.body[-1], (cst.Return, cst.Raise))
    if isinstance(last, cst.If):
        a, b = parts(last)
        return _always_returns(a) and _always_returns(b)
    return False


def _tail(place: Place, statements: Sequence[Any]) -> Tail | None:
    import libcst as cst

    before: list[str] = []
    for i, statement in enumerate(statements):
        if isinstance(statement, cst.If) and place.cell.own(statement, cst.Return, cst.Raise):
            if only_raises(statement):
                before.append(_line(place, statement))
                continue
            joined = _joined(place, statement, statements[i + 1 :])
            return None if joined is None else Tail((*before, *joined.before), joined.value, joined.values)
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[-1], cst.Return):
            value = statement.body[-1].value
            if len(statement.body) > 1 or value is None:
                return None
            values = (
                tuple(place.cell.code(e.value) for e in value.elements)
                if isinstance(value, cst.Tuple)
                else ()
            )
            return Tail(tuple(before), stripped(place.cell.code(value)), values)
        if not _harmless(place, statement):
            return None
        before.append(_line(place, statement))
    return None


def _line(place: Place, statement: Any) -> str:
    return place.cell.module.code_for_node(statement).rstrip("\n") + "\n"


def _harmless(place: Place, statement: Any) -> bool:
    """Whether the statement only binds names of its own: it may run although its branch is not taken."""
    import libcst as cst

    if isinstance(statement, cst.SimpleStatementLine):
        return all(
            isinstance(s, cst.Pass)
            or (isinstance(s, cst.Expr) and isinstance(s.value, cst.SimpleString))
            or (isinstance(s, cst.Assign) and all(_plain(t.target) for t in s.targets))
            or (isinstance(s, (cst.AugAssign, cst.AnnAssign)) and isinstance(s.target, cst.Name))
            for s in statement.body
        )
    if isinstance(statement, cst.If):
        a, b = parts(statement)
        return all(_harmless(place, s) for s in (*a, *b))
    if isinstance(statement, cst.For):
        return statement.orelse is None and all(_harmless(place, s) for s in body_of(statement))
    return isinstance(statement, cst.FunctionDef)


def _plain(target: Any) -> bool:
    import libcst as cst

    if isinstance(target, cst.Tuple):
        return all(_plain(e.value) for e in target.elements)
    return isinstance(target, cst.Name)


def _joined(place: Place, statement: Any, rest: Sequence[Any]) -> Tail | None:
    """An `if` that returns in one branch at least, and what follows it, as one tail."""
    first, second = parts(statement)
    sides = []
    for branch in (first, second):
        if _always_returns(branch):
            sides.append(_tail(place, branch))
        elif len(rest) == 1 or not branch or branch is second:
            sides.append(_tail(place, [*branch, *rest]))
        else:
            return None
    then, other = sides
    if then is None or other is None:
        return None
    if then.bound & (other.reads | other.bound) or other.bound & names.loads(then.value):
        return None
    asked, negated = without_not(statement.test)
    test = stripped(truth(place, asked))
    pairs = then.values and other.values and len(then.values) == len(other.values)
    before: list[str] = []
    if (then.bound | other.bound) & names.loads(test) or (pairs and not names.constant(test)):
        name = names.fresh("condition", place.taken | then.bound | other.bound)
        before.append(f"{name} = {test}\n")
        test = name
    before += [*then.before, *other.before]
    yes, chosen = is_boolean(place, asked), (other, then) if negated else (then, other)
    if pairs:
        values = tuple(
            a if a == b else where(place, test, a, b, boolean=yes)
            for a, b in zip(*(side.values for side in chosen), strict=True)
        )
        return Tail(tuple(before), ", ".join(values), values)
    if then.values or other.values:
        return None
    return Tail(tuple(before), where(place, test, *(side.value for side in chosen), boolean=yes))


def _returning_cond(place: Place, statement: Any, rest: Sequence[Any]) -> str | None:
    """The two ways as functions under `jax.lax.cond`."""
    import libcst as cst

    first, second = parts(statement)
    sides = [
        list(first) if _always_returns(first) else [*first, *rest],
        list(second) if _always_returns(second) else [*second, *rest],
    ]
    if not all(_always_returns(s) for s in sides) or (
        not _always_returns(first) and len(rest) > 1 and second
    ):
        return None
    if any(isinstance(r.value, type(None)) for s in sides for x in s for r in place.cell.own(x, cst.Return)):
        return None
    texts = [rebound(place, s) for s in sides]
    before = bound_before(place, statement)
    bound = list(dict.fromkeys(n for t in texts for n in names.stores(t)))
    parameters = [n for n in bound if n in before and any(n in names.exposed(t) for t in texts)]
    defs, functions = "", []
    for word, side, text in zip(("when_true", "when_false"), sides, texts, strict=True):
        only = side[0].body[0] if len(side) == 1 and isinstance(side[0], cst.SimpleStatementLine) else None
        if isinstance(only, cst.Return) and only.value is not None:
            value = place.cell.code(only.value)
            value = f"({value})" if isinstance(only.value, cst.Tuple) and not only.value.lpar else value
            functions.append(f"lambda{' ' if parameters else ''}{', '.join(parameters)}: {value}")
            continue
        name = names.fresh(word, place.taken)
        defs += f"def {name}({', '.join(parameters)}):\n{indented(text)}\n"
        functions.append(name)
    test = stripped(truth(place, statement.test))
    return f"{defs}return {call(f'{place.lax}.cond', test, *functions, *parameters)}\n"

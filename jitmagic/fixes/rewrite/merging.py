"""Both branches of an `if` as one run of assignments, with `jnp.where` where they differ."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Place
from jitmagic.fixes.rewrite.truths import is_boolean, stripped, truth

WHERE = "choose with `jnp.where` in place of `if`"
COND = "choose with `jax.lax.cond` in place of `if`"
BOTH = "both branches are computed"


def parts(statement: Any) -> tuple[list[Any], list[Any]]:
    """Statements of the two branches; an `elif` is an `if` in the second."""
    import libcst as cst

    orelse = statement.orelse
    if orelse is None:
        other: list[Any] = []
    elif isinstance(orelse, cst.If):
        other = [orelse]
    else:
        other = body_of(orelse)
    return body_of(statement), other


def body_of(node: Any) -> list[Any]:
    """The statements of a block, those of `if x: y` on one line too."""
    import libcst as cst

    if isinstance(node.body, cst.IndentedBlock):
        return list(node.body.body)
    return [cst.SimpleStatementLine(body=[s]) for s in node.body.body]


def code(place: Place, statement: Any) -> str:
    """Source of a statement; an `elif` reads `if`."""
    text = place.cell.code(statement)
    return text[2:] if text.startswith("elif") else text


# -- branches that assign


@dataclass(frozen=True)
class Step:
    """`name = value`, where one branch does it."""

    name: str
    value: str


def steps(
    place: Place, statements: Sequence[Any], live: Collection[str], before: Collection[str]
) -> list[Step] | None:
    """The statements of a branch as assignments to single names, or None where they are more than that."""
    import libcst as cst

    out: list[Step] = []
    for statement in statements:
        if isinstance(statement, cst.If):
            inner = merged(place, statement, live, {*before, *(s.name for s in out)})
            if inner is None:
                return None
            out += inner
        elif isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                more = _assignments(place, small)
                if more is None:
                    return None
                out += more
        else:
            return None
    return out


def _assignments(place: Place, small: Any) -> list[Step] | None:
    import libcst as cst

    text = place.cell.code
    if isinstance(small, cst.Pass) or (
        isinstance(small, cst.Expr) and isinstance(small.value, (cst.SimpleString, cst.Ellipsis))
    ):
        return []
    if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name) and small.value is not None:
        return [Step(small.target.value, text(small.value))]
    if isinstance(small, (cst.AugAssign, cst.Assign)):
        from jitmagic.fixes.rewrite.stored import rebinding

        stored = rebinding(place, small)
        if stored is not None:
            return [Step(*stored)]
    if isinstance(small, cst.AugAssign) and (
        isinstance(small.target, cst.Name) or _is_attribute(small.target)
    ):
        name, sign = text(small.target), text(small.operator).strip().removesuffix("=")
        value = text(small.value)
        return [Step(name, f"{name} {sign} {names.wrapped(value)}")]
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    target = small.targets[0].target
    if isinstance(target, cst.Name) or _is_attribute(target):
        return [Step(text(target), text(small.value))]
    if isinstance(target, cst.Tuple) and isinstance(small.value, cst.Tuple):
        pairs = list(zip(target.elements, small.value.elements, strict=False))
        if len(target.elements) != len(small.value.elements) or not all(
            isinstance(t, cst.Element) and isinstance(t.value, cst.Name) for t, _ in pairs
        ):
            return None
        found = [Step(t.value.value, text(v.value)) for t, v in pairs]  # type: ignore[attr-defined]
        for i, first in enumerate(found):
            if any(first.name in names.loads(later.value) for later in found[i + 1 :]):
                return None
        return found
    return None


def _is_attribute(node: Any) -> bool:
    """`self.v` and `self.v.value`, which have a value already."""
    import libcst as cst

    while isinstance(node, cst.Attribute):
        node = node.value
        if isinstance(node, cst.Name):
            return True
    return False


def merged(place: Place, statement: Any, live: Collection[str], before: Collection[str]) -> list[Step] | None:
    """Both branches in one run of assignments, with `jnp.where` where they differ; None where that is not possible.

    `live`: names read after the `if`; `before`: names bound before it.
    """
    first, second = parts(statement)
    a, b = steps(place, first, live, before), steps(place, second, live, before)
    if a is None or b is None:
        return _swapped(place, statement, first, second, before)
    asked, negated = without_not(statement.test)
    if negated:
        a, b = b, a
    order = _order([s.name for s in a], [s.name for s in b])
    if order is None:
        return None
    before = {*before, *(n for n in order if "." in n)}
    then, other = {s.name: s.value for s in a}, {s.name: s.value for s in b}
    test = stripped(truth(place, asked))
    chosen = [n for n in order if n in then and n in other or n in live or n in before]
    out: list[Step] = []
    late = [
        n for i, n in enumerate(order) if n in names.loads(test) and any(m in chosen for m in order[i + 1 :])
    ]
    if late or (len(chosen) > 1 and not names.constant(test)):
        name = names.fresh("condition", place.taken | {s.name for s in (*a, *b)})
        out.append(Step(name, test))
        test = name
    for name in order:
        if name not in chosen:
            out.append(Step(name, then.get(name, other.get(name, ""))))
        elif name not in before and (name not in then or name not in other):
            return None
        else:
            values = stripped(then.get(name, name)), stripped(other.get(name, name))
            if values[0] == values[1]:
                out.append(Step(name, values[0]))
            else:
                yes = is_boolean(place, asked)
                out.append(Step(name, where(place, test, *values, boolean=yes)))
    return out


def without_not(test: Any) -> tuple[Any, bool]:
    """The expression under `not`, and whether an odd number of them stood before it."""
    import libcst as cst

    negated = False
    while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, negated = test.expression, not negated
    return test, negated


def _swapped(
    place: Place, statement: Any, first: Sequence[Any], second: Sequence[Any], before: Collection[str]
) -> list[Step] | None:
    """`a, b = b, a` in one branch and nothing in the other, as one assignment of two `jnp.where`."""
    import libcst as cst

    if (
        second
        or len(first) != 1
        or not isinstance(first[0], cst.SimpleStatementLine)
        or len(first[0].body) != 1
    ):
        return None
    small = first[0].body[0]
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    target, value = small.targets[0].target, small.value
    if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
        return None
    stored = [place.cell.code(e.value) for e in target.elements]
    if len(stored) != len(value.elements) or not set(stored) <= set(before):
        return None
    test = stripped(truth(place, statement.test))
    out: list[Step] = []
    if not names.constant(test):
        name = names.fresh("condition", place.taken)
        out.append(Step(name, test))
        test = name
    values = [
        where(place, test, place.cell.code(e.value), n) for e, n in zip(value.elements, stored, strict=True)
    ]
    return [*out, Step(", ".join(stored), ", ".join(values))]


def _order(a: list[str], b: list[str]) -> list[str] | None:
    """One order that keeps both; None where a name comes twice in one or the orders contradict."""
    if len(set(a)) != len(a) or len(set(b)) != len(b):
        return None
    out: list[str] = []
    a, b = list(a), list(b)
    while a or b:
        if a and a[0] not in b:
            out.append(a.pop(0))
        elif b and b[0] not in a:
            out.append(b.pop(0))
        elif a and b and a[0] == b[0]:
            out.append(a.pop(0))
            b.pop(0)
        else:
            return None
    return out


def where(place: Place, test: str, a: str, b: str, *, boolean: bool = False) -> str:
    """`jnp.where(test, a, b)`, on several lines where it is long; a `boolean` test itself for True and False."""
    if boolean and (a, b) == ("True", "False"):
        return test
    if boolean and (a, b) == ("False", "True"):
        return f"{place.jnp}.logical_not({test})"
    return call(f"{place.jnp}.where", test, a, b)


def call(function: str, *arguments: str) -> str:
    """Source of a call, on several lines where it is long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= 84 or any("\n" in a for a in arguments):
        return line
    return f"{function}(\n" + "".join(f"    {a},\n" for a in arguments) + ")"

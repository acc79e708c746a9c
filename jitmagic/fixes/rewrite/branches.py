"""`if` statements on traced conditions: `jnp.where` for what both branches can compute, else `jax.lax.cond`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.conditions import (
    is_boolean,
    maybe_traced,
    only_raises,
    operands_of,
    stripped,
    truth,
)
from jitmagic.fixes.rewrite.place import Candidate, Place

WHERE = "choose with jnp.where in place of `if`"
COND = "choose with jax.lax.cond in place of `if`"
BOTH = "both branches are computed"


def candidates(place: Place) -> Iterator[Candidate]:
    """The `if` of the place with its branches merged."""
    import libcst as cst

    if place.kind not in ("tracer-bool", "tracer-hash"):
        return
    statement = next((n for n in place.path if isinstance(n, cst.If)), None)
    if statement is None or not _asked(place, statement):
        return
    top = _whole(place, statement)
    if any(_jumps(place, n) for n in (top,)):
        return  # `break` and `continue` belong to their loop
    yield from _known_first(place, statement)
    returns = place.cell.own(top, cst.Return)
    if returns:
        yield from _returning(place, top)
    elif not only_raises(top):
        yield from _assigning(place, top)


def _known_first(place: Place, statement: Any) -> Iterator[Candidate]:
    """`if flag and x > 0:` with a flag that is known while jax traces, as `if flag:` around `if x > 0:`."""
    import libcst as cst

    test = statement.test
    if statement.orelse is not None or place.cell.own(statement, cst.Return):
        return
    if not isinstance(test, cst.BooleanOperation) or not isinstance(test.operator, cst.And):
        return
    operands = operands_of(test, cst.And)
    count = next((i for i, o in enumerate(operands) if maybe_traced(place, o)), 0)
    if not count:
        return
    outer, inner = (
        " and ".join(place.cell.code(o) for o in part) for part in (operands[:count], operands[count:])
    )
    if isinstance(place.cell.parents.get(statement), cst.If):
        return  # an `elif`
    body = place.cell.block(body_of(statement))
    text = f"if {stripped(outer)}:\n{indented(f'if {stripped(inner)}:{chr(10)}{indented(body)}')}"
    yield Candidate("ask first what is known while jax traces", place.cell.edit({statement: text}))


def _asked(place: Place, statement: Any) -> bool:
    return any(n is statement.test for n in place.path) or place.path[0] is statement


def _whole(place: Place, statement: Any) -> Any:
    """The `if` that an `elif` belongs to."""
    import libcst as cst

    parent = place.cell.parents.get(statement)
    while isinstance(parent, cst.If) and parent.orelse is statement:
        statement, parent = parent, place.cell.parents.get(parent)
    return statement


def _jumps(place: Place, statement: Any) -> bool:
    """A `break` or `continue` in it that leaves it."""
    import libcst as cst

    for jump in place.cell.own(statement, cst.Break, cst.Continue):
        for node in place.cell.ancestors(jump):
            if isinstance(node, (cst.For, cst.While)):
                break
            if node is statement:
                return True
    return False


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
        from jitmagic.fixes.rewrite.updates import rebinding

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


def outside(place: Place, statement: Any) -> str:
    """Source of the innermost function (or the cell) without the statement."""
    scope = place.cell.function(statement) or place.cell.module
    gap = place.cell.module.deep_replace  # a tree without the statement; only its names matter
    import libcst as cst

    bare = scope.deep_replace(statement, cst.SimpleStatementLine(body=[cst.Pass()]))
    del gap
    return place.cell.module.code_for_node(bare)


def live_after(place: Place, statement: Any) -> set[str]:
    """Names that may be read after the statement: by what follows it, or by the next turn of a loop around it."""
    import libcst as cst

    found: set[str] = set()
    node = statement
    while True:
        parent = place.cell.parents.get(node)
        if parent is None or isinstance(node, (cst.FunctionDef, cst.Module)):
            break
        if isinstance(parent, (cst.IndentedBlock, cst.Module)):
            index = next(i for i, s in enumerate(parent.body) if s is node)
            found |= {n for s in parent.body[index + 1 :] for n in names.loads(code(place, s))}
        if isinstance(parent, (cst.For, cst.While)) and node is parent.body:
            found |= _next_turn(place, parent)
        node = parent
    scope = place.cell.function(statement)
    if scope is not None:
        own = set(place.cell.within(statement, cst.FunctionDef, cst.Lambda))
        for inner in place.cell.own(scope, cst.FunctionDef, cst.Lambda):
            if inner is not scope and inner not in own:
                found |= names.loads(place.cell.code(inner))
        shared = place.cell.own(scope, cst.Global, cst.Nonlocal)
        found |= {item.name.value for s in shared for item in s.names}
    return found


def _next_turn(place: Place, loop: Any) -> set[str]:
    """Names that a turn of the loop reads before it binds them."""
    import libcst as cst

    text = "".join(code(place, s) for s in body_of(loop))
    if isinstance(loop, cst.While):
        return names.exposed(text) | names.loads(place.cell.code(loop.test))
    return names.exposed(text, names.stores(f"{place.cell.code(loop.target).strip()} = 0"))


def bound_before(place: Place, statement: Any) -> set[str]:
    """Names of the innermost function that may be bound before the statement."""
    import libcst as cst

    scope = place.cell.function(statement)
    if scope is None:
        return set()
    start = place.cell.positions[statement].start.line
    found = {p.name.value for p in place.cell.within(scope.params, cst.Param)}
    for node in place.cell.own(scope, cst.Name, cst.FunctionDef):
        if node is scope:
            continue
        where_ = place.cell.positions[node]
        name = node.name.value if isinstance(node, cst.FunctionDef) else node.value
        if where_.start.line < start:
            found.add(name)
    stored = set(names.stores("\n".join(place.cell.code(s) for s in body_of(scope))))
    parameters = {p.name.value for p in place.cell.within(scope.params, cst.Param)}
    return found & (stored | parameters)


def _assigning(place: Place, statement: Any) -> Iterator[Candidate]:
    live, before = live_after(place, statement), bound_before(place, statement)
    flat = merged(place, statement, live, before)
    if flat:
        text = "".join(f"{s.name} = {s.value}\n" for s in flat)
        yield Candidate(WHERE, place.cell.edit({statement: text}), "safe", BOTH)
    text2 = _as_cond(place, statement, live, before)
    if text2 is not None:
        yield Candidate(COND, place.cell.edit({statement: text2}))


def rebound(place: Place, statements: Sequence[Any]) -> str:
    """Source of statements with stores into items of a name as rebinding of the name."""
    from jitmagic.fixes.rewrite.updates import with_rebindings

    return with_rebindings(place, statements)


def _as_cond(place: Place, statement: Any, live: Collection[str], before: Collection[str]) -> str | None:
    first, second = parts(statement)
    texts = [rebound(place, first), rebound(place, second)]
    bound = list(dict.fromkeys([*names.stores(texts[0]), *names.stores(texts[1] or "pass")]))
    outputs = [n for n in bound if n in live]
    if not outputs:
        return None
    parameters = [
        n for n in bound if n in before and (n in outputs or any(n in names.exposed(t) for t in texts if t))
    ]
    if any(n not in before and n not in names.stores(t or "pass") for n in outputs for t in texts):
        return None
    result = ", ".join(outputs)
    defs, functions = "", []
    for word, text in (("when_true", texts[0]), ("when_false", texts[1])):
        if not text.strip():
            tuple_ = f"({result})" if len(outputs) > 1 else result
            functions.append(
                f"lambda {', '.join(parameters)}: {tuple_}" if parameters else f"lambda: {tuple_}"
            )
            continue
        name = names.fresh(word, place.taken)
        body = indented(f"{text.rstrip()}\nreturn {result}\n")
        defs += f"def {name}({', '.join(parameters)}):\n{body}\n"
        functions.append(name)
    test = stripped(truth(place, statement.test))
    return f"{defs}{result} = {call(f'{place.lax}.cond', test, *functions, *parameters)}\n"


# -- branches that return


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


def _returning(place: Place, statement: Any) -> Iterator[Candidate]:
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

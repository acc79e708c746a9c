"""Both branches of an `if` as one run of statements: what they bind and return is chosen where they differ.

A branch is read as steps: names bound to values, checks that raise, and statements that bind names of its own. Two
runs of steps are put together in an order that keeps both, with a choice where both bind or return something.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from jitmagic.evidence import root
from jitmagic.fixes.branches.choice import Choice, parsed_value
from jitmagic.fixes.change import Spot
from jitmagic.fixes.stores.rebinding import SIGNS, is_path, rebinding, rebound
from jitmagic.source import scope
from jitmagic.source.edits import CannotEdit, Edits, Text, indented
from jitmagic.source.pattern import atom, expression, in_brackets, same, stripped

_CONDITION = re.compile(r"__cond\d+__")
COPIES = 200
"""How many statements are read at most: what follows branches that both go on is read once for each."""


@dataclass(frozen=True)
class Line:
    """`names = values`; with a test, a check that raises; else a statement that binds names of its own only."""

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    source: str = ""
    """As written, or the body of a check."""
    test: str = ""
    comments: tuple[str, ...] = ()

    @cached_property
    def plain(self) -> str:
        """Source of the step."""
        if self.test:
            return f"if {self.test}:\n{indented(self.source)}"
        values = (atom(v) if "\n" in v else v for v in self.values)
        return self.source or (f"{', '.join(self.names)} = {', '.join(values)}" if self.names else "")

    @cached_property
    def bound(self) -> set[str]:
        """Names and paths that it binds."""
        return set(self.names) or set(scope.stores(self.source))


@dataclass(frozen=True)
class Straight:
    """Steps, and what is returned at their end."""

    steps: tuple[Line, ...] = ()
    result: str | None = None
    raises: str = ""
    """The statement that ends it by raising."""

    @property
    def code(self) -> str:
        """Source of the run, with the comments that stood at a step above it."""
        lines = [line for s in self.steps for line in (*s.comments, s.plain.rstrip("\n")) if line]
        if self.result is not None:
            a_tuple = isinstance(expression(self.result), ast.Tuple) and not self.result.endswith(",)")
            bare = a_tuple and in_brackets(self.result) and "\n" not in self.result
            result = self.result[1:-1] if bare else self.result
            lines.append(f"return {atom(result) if chr(10) in result else result}")
        return "".join(f"{line}\n" for line in [*lines, *filter(None, [self.raises])])

    @cached_property
    def bound(self) -> set[str]:
        """Names and paths that it binds."""
        return {n for s in self.steps for n in s.bound}

    @cached_property
    def reads(self) -> set[str]:
        """Names that it needs from before."""
        return scope.exposed("".join(f"{s.plain}\n" for s in self.steps) + (self.result or ""))


def sides_of(statement: ast.If, rest: Sequence[ast.stmt] = ()) -> list[list[ast.stmt]]:
    """The two ways through an `if`, and on through what follows where they do not end before."""
    return [[*side, *(() if ends(side) else rest)] for side in (statement.body, statement.orelse)]


def ends(statements: Sequence[ast.stmt]) -> bool:
    """The statements return or raise in any case."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.If):
        return ends(last.body) and ends(last.orelse)
    return isinstance(last, ast.Return | ast.Raise)


def only_raises(statement: ast.If) -> bool:
    """An `if` without `else` whose body ends in `raise`."""
    return not statement.orelse and isinstance(statement.body[-1], ast.Raise)


def returns(text: Text, statement: ast.stmt) -> bool:
    """The function may end in the statement with a result."""
    return bool(text.own(statement, ast.Return))


class Merger:
    """Puts the branches of one `if` together. Raises CannotEdit where they do more than steps do."""

    def __init__(self, spot: Spot, end: int) -> None:
        self.spot, self.text, self.left, self.conditions, self.chose = spot, spot.text, COPIES, 0, False
        self.end = end
        """Where the text ends that is replaced: comments behind it stay."""

    def code(self, run: Straight) -> str:
        """Source of a run, with names for its conditions in the order in which they come."""
        code, taken = run.code, set(self.spot.modules.names)
        for mark in dict.fromkeys(_CONDITION.findall(code)):
            name = self.text.fresh("condition", taken=taken)
            taken.add(name)
            code = code.replace(mark, name)
        return code

    def merged(
        self, statement: ast.If, rest: Sequence[ast.stmt], live: AbstractSet[str], before: AbstractSet[str]
    ) -> Straight:
        """An `if` as one run. `live`: names read after it; `before`: names bound before it."""
        start = self.text.span(statement)[0]
        runs: list[Straight] = []
        for block, side in zip((statement.body, statement.orelse), sides_of(statement, rest), strict=True):
            runs.append(self._run(side, live, before, start))
            start = self._comments(block[-1], start)[1] if block else start
        choice = Choice(self.spot, statement.test)
        run = joined(choice, (runs[0], runs[1]), live, before)
        self.chose |= choice.chose
        if choice.wants_name:
            self.conditions += 1
            name = f"__cond{self.conditions}__"
            run = joined(Choice(self.spot, statement.test, name), (runs[0], runs[1]), live, before)
            return replace(run, steps=(Line((name,), (choice.test,)), *run.steps))
        return run

    def _run(
        self, statements: Sequence[ast.stmt], live: AbstractSet[str], before: AbstractSet[str], start: int
    ) -> Straight:
        """Statements as steps, each with the comments above and beside it, from `start` on."""
        run = Straight()
        for i, statement in enumerate(statements):
            self.left -= 1
            if self.left < 0:
                raise CannotEdit("too many ways through the branches")
            rest = statements[i + 1 :]
            if isinstance(statement, ast.If):
                leaves = returns(self.text, statement)
                after = live if leaves else live | scope.exposed(scope.body_of(rest))
                more = self.merged(statement, rest if leaves else (), after, before | run.bound)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                more = Straight(result=self._code(statement.value))
            elif isinstance(statement, ast.Raise):
                more = Straight(raises=self.text.code(statement))
            else:
                more = Straight(tuple(self._steps(statement)))
            comments, start = self._comments(statement, start)
            if comments:
                first, *others = more.steps or (Line(),)
                more = replace(more, steps=(replace(first, comments=(*comments, *first.comments)), *others))
            run = replace(more, steps=(*run.steps, *more.steps))
            if run.result is not None or run.raises:
                break
        return run

    def _comments(self, statement: ast.stmt, start: int) -> tuple[tuple[str, ...], int]:
        """Comments above and beside a statement, and where those of the next begin."""
        first, last = self.text.span(statement)
        line = self.text.plain.find("\n", last)
        stop = min(line if line >= 0 else self.end, self.end)
        return (*self.text.comments_in(start, first), *self.text.comments_in(last, stop)), max(last, stop)

    def _code(self, node: ast.expr) -> str:
        start, end = self.text.bracketed(node)
        if not self.text.comments_in(start, end):
            start, end = self.text.span(node)
        return stripped(self.text.at_margin(self.text.plain[start:end], start))

    def _steps(self, statement: ast.stmt) -> Iterator[Line]:
        """One statement of a branch as steps."""
        targets: Sequence[ast.expr] = ()
        values: list[str] = []
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return
            case ast.AugAssign(target=target, op=op, value=value):
                targets = [target]
                values = [f"{self._code(target)} {SIGNS[type(op)]} {atom(self._code(value))}"]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=given)):
                values = [self._code(v) for v in given]
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                targets, values = [target], [self._code(value)]
        names = [self._code(t) for t in targets if is_path(self.spot, t)]
        if (stored := rebinding(self.spot, statement)) is not None:
            yield Line(stored[:1], stored[1:])
        elif not names or not len(names) == len(targets) == len(values):
            source = rebound(self.spot, [statement])
            if not all(map(_harmless, ast.parse(source).body)):
                raise CannotEdit("the branch does more than bind names")
            yield Line(source=source)
        elif any(root(n) in scope.loads(v) for i, n in enumerate(names) for v in values[i + 1 :]):
            yield Line(tuple(names), tuple(values))
        else:
            whole = self.text.code(statement) if len(names) == 1 else ""
            yield from (Line((n,), (v,), whole) for n, v in zip(names, values, strict=True))


def _harmless(statement: ast.stmt) -> bool:
    """The statement only binds names: it may run although its branch is not taken."""
    match statement:
        case ast.Assign(targets=targets):
            held = [n for t in targets for n in ast.walk(t)]
            return all(isinstance(n, ast.Name | ast.Tuple | ast.expr_context) for n in held)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return isinstance(target, ast.Name)
        case ast.If(body=body, orelse=orelse) | ast.For(body=body, orelse=orelse):
            return all(map(_harmless, [*body, *orelse]))
    return isinstance(statement, ast.Pass | ast.FunctionDef)


# --- two runs as one ----------------------------------------------------------------------------------


def joined(
    choice: Choice, runs: tuple[Straight, Straight], live: AbstractSet[str], before: AbstractSet[str]
) -> Straight:
    """The steps of both branches, and one result."""
    then, other = runs
    raising = [r for r in (then, other) if r.raises]
    if len(raising) == 1:
        check = Line(source=raising[0].code, test=choice.holds(raising[0] is then))
        on = other if raising[0] is then else then
        return replace(on, steps=(check, *on.steps))
    if raising or (then.result is None) != (other.result is None):
        raise CannotEdit("the branches do not end alike")
    then, other = (_composed(a, live | b.reads | b.bound) for a, b in ((then, other), (other, then)))
    pairs, steps = list(_interleaved(then.steps, other.steps)), []
    for i, (one, two) in enumerate(pairs):
        step = one or two or Line()
        if one and two:
            chosen = one.plain != two.plain
            step = replace(one, comments=tuple(dict.fromkeys((*one.comments, *two.comments))))
        elif step.test:
            chosen, step = False, replace(step, test=choice.holds(bool(one), step.test))
        else:
            own, across = (then, other) if one else (other, then)
            left = Straight(tuple(p[bool(one)] or Line() for p in pairs[i + 1 :]), across.result)
            chosen = any(_needed(n, own, left, live) for n in step.bound)
            if chosen and any(n.isidentifier() and n not in before | choice.bound for n in step.names):
                raise CannotEdit("only one branch binds a name")
            if not chosen and choice.python and step.plain:
                code = f"if {choice.holds(bool(one))}:\n{indented(step.plain)}"
                step = Line(source=code, comments=step.comments)
        if chosen and not step.names:
            raise CannotEdit("statements of one branch bind what is read after it")
        if chosen:
            sides = zip(one.values if one else step.names, two.values if two else step.names, strict=True)
            step = replace(step, values=tuple(choice.of(a, b) for a, b in sides), source="")
        choice.bound |= step.bound
        steps.append(step)
    result = choice.of(then.result, other.result) if then.result and other.result else None
    return Straight(tuple(steps), result)


def _composed(run: Straight, wanted: AbstractSet[str]) -> Straight:
    """`y = a` and `y = f(y)` below it as `y = f(a)`, where `y` is wanted and read once."""
    steps: list[Line] = []
    for step in run.steps:
        if steps and steps[-1].names == step.names and len(step.names) == 1 and step.names[0] in wanted:
            text, value = parsed_value(step.values[0])
            read = [n for n in text.within(value, ast.Name) if n.id == step.names[0]]
            if len(read) == 1 and not text.within(value, ast.Lambda, *scope.COMPREHENSIONS):
                old = steps.pop()
                forms = (old.values[0], f"({old.values[0]})")
                codes = [Edits(text).replace(read[0], form).code(value) for form in forms]
                new = codes[not same(*(parsed_value(c)[1] for c in codes))]
                step = replace(step, values=(new,), source="", comments=(*old.comments, *step.comments))
        steps.append(step)
    return replace(run, steps=tuple(steps))


def _needed(name: str, own: Straight, left: Straight, live: AbstractSet[str]) -> bool:
    """What one branch binds is read after it, or by what is left of the other branch."""
    if not name.isidentifier():
        return root(name) not in own.bound
    return name in left.reads or name in live and name not in left.bound


def _interleaved(a: Sequence[Line], b: Sequence[Line]) -> Iterator[tuple[Line | None, Line | None]]:
    """Two runs in one order that keeps both; what both bind, or do alike, in one place where that can be."""

    def what(step: Line) -> tuple[str, ...]:
        return step.names or (step.plain,)

    one, two = list(a), list(b)
    while one or two:
        if one and two and what(one[0]) == what(two[0]):
            yield one.pop(0), two.pop(0)
        elif one and (not two or what(two[0]) in map(what, one) or what(one[0]) not in map(what, two)):
            yield one.pop(0), None
        else:
            yield None, two.pop(0)

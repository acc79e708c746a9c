"""`if` statements on traced conditions: `jnp.where` for what both branches can compute, else `jax.lax.cond`; checks
that move into the compiled program."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitmagic.fixes.branches.choice import Choice
from jitmagic.fixes.branches.merge import Merger, ends, only_raises, returns, sides_of
from jitmagic.fixes.branches.truth import maybe_traced, truth
from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.stores.rebinding import rebound
from jitmagic.source import scope
from jitmagic.source.edits import indented
from jitmagic.source.pattern import bare, call_of, stripped

WHERE = "choose with `jnp.where` in place of `if`"
COND = "choose with `jax.lax.cond` in place of `if`"
BOTH = "both branches are computed"
CHECK = "check first, then go on"
KNOWN = "ask first what is known while jax traces"


@dataclass(frozen=True)
class _If:
    """An `if` with all of its `elif`s, and what follows where it returns."""

    node: ast.If
    rest: Sequence[ast.stmt]
    live: set[str]
    before: set[str]

    @property
    def last(self) -> ast.stmt:
        """The last statement that is replaced."""
        return self.rest[-1] if self.rest else self.node


def _asked(spot: Spot) -> Iterator[ast.If]:
    """The `if` whose condition stands at the place."""
    found = spot.here(ast.If)
    if found is not None and (found is spot.node or found.test in spot.path):
        yield found


def _whole(spot: Spot) -> Iterator[_If]:
    """The `if` of the place, where it leaves no loop, and where the function ends in it or behind it if it returns."""
    text = spot.text
    for node in _asked(spot):
        while text.is_elif(node) and isinstance(outer := text.parents[node], ast.If):
            node = outer
        jumps = [text.around(j, ast.For, ast.While) for j in text.own(node, ast.Break, ast.Continue)]
        block, index = text.siblings(node)
        leaves = returns(text, node)
        rest = block[index + 1 :] if leaves and not ends([node]) else []
        if not set(jumps) & set(text.ancestors(node)) and (not leaves or ends([node, *rest])):
            live = scope.live_after(text, rest[-1] if rest else node)
            yield _If(node, rest, live, scope.bound_before(text, node))


def known_first(spot: Spot) -> Iterator[Change]:
    """`if flag and x > 0:` with a flag that is known while jax traces, as `if flag:` around `if x > 0:`."""
    for node in _asked(spot):
        if node.orelse or spot.text.is_elif(node) or returns(spot.text, node):
            continue
        match node.test:
            case ast.BoolOp(op=ast.And(), values=[first, *_] as asked) if not maybe_traced(spot, first):
                count = next((i for i, o in enumerate(asked) if maybe_traced(spot, o)), 0)
                outer, inner = (" and ".join(map(spot.code, part)) for part in (asked[:count], asked[count:]))
                new = spot.write(
                    "if $$outer:\n    if $$inner:\n        $body",
                    outer=stripped(outer), inner=stripped(inner), body=spot.text.block(node.body),
                )  # fmt: skip
                if count:
                    yield Change(KNOWN, spot.edits().statements(node, new))


def selecting(spot: Spot) -> Iterator[Change]:
    """Both branches of the `if` as one run of statements, with `jnp.where` for what differs."""
    for found in _whole(spot):
        merger = Merger(spot, spot.text.span(found.last)[1])
        run = merger.merged(found.node, found.rest, found.live, found.before)
        if merger.chose or not only_raises(found.node):
            checked = not merger.chose and any(s.test for s in run.steps)
            edits = spot.edits().statements(found.node, merger.code(run), found.last)
            yield Change(CHECK, edits) if checked else Change(WHERE, edits, cost=BOTH)


def branching(spot: Spot) -> Iterator[Change]:
    """The branches of the `if` as functions under `jax.lax.cond`."""
    for found in _whole(spot):
        sides = sides_of(found.node, found.rest)
        both = found.node.orelse and not ends(found.node.body) and not ends(found.node.orelse)
        returned = [r for side in sides for r in spot.text.own(scope.body_of(side), ast.Return)]
        raises = any(side and isinstance(side[-1], ast.Raise) for side in sides)
        if raises or both and len(found.rest) > 1 or not all(r.value for r in returned):
            continue  # what follows would be there twice, or nothing is given
        codes = [rebound(spot, side) for side in sides]
        written = _cond(spot, found, codes, leaves=returns(spot.text, found.node))
        if written:
            yield Change(COND, spot.edits().statements(found.node, written, found.last))


def _cond(spot: Spot, found: _If, codes: Sequence[str], *, leaves: bool) -> str:
    """Two branches as functions and a call of them; nothing where they bind nothing that is read."""
    bound = [scope.stores(code) for code in codes]
    every = list(dict.fromkeys([*bound[0], *bound[1]]))
    outputs = [] if leaves else [n for n in every if n in found.live]
    known = all(n in found.before or n in bound[0] and n in bound[1] for n in outputs)
    if not known or not leaves and not outputs:
        return ""
    needed = {*outputs, *(n for code in codes for n in scope.exposed(code))}
    parameters, result = [n for n in every if n in found.before and n in needed], ", ".join(outputs)
    defs, functions = "", []
    choice = Choice(spot, found.node.test)
    for word, code in zip(("when_true", "when_false"), codes[::-1] if choice.flipped else codes, strict=True):
        if (value := _value(code, outputs)) is not None:
            functions.append(f"lambda{' ' if parameters else ''}{', '.join(parameters)}: {bare(value)}")
        else:
            functions.append(spot.fresh(word))
            body = code if leaves else f"{code}return {result}\n"
            defs += f"def {functions[-1]}({', '.join(parameters)}):\n{indented(body)}\n"
    called = call_of(spot.write("lax.cond"), choice.test, *functions, *parameters)
    return f"{defs}{'return' if leaves else f'{result} ='} {called}\n"


def _value(code: str, outputs: Sequence[str]) -> str | None:
    """What a branch gives, where it is one expression."""
    if not code.strip():
        return ", ".join(outputs)
    statement, *more = ast.parse(code).body
    if more or ast.get_source_segment(code, statement) != code.strip():  # there are comments
        return None
    match statement:
        case ast.Return(value=ast.expr() as value):
            return ast.get_source_segment(code, value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if [name] == list(outputs):
            return ast.get_source_segment(code, value)
    return None


CALLBACK = "check the values in `jax.debug.callback`, which raises while the compiled function runs"


def checks(spot: Spot) -> Iterator[Change]:
    """An `assert`, or an `if` that raises, as a check that runs with the compiled program."""
    statement = spot.text.statement(spot.node)
    match statement:
        case ast.If(test=test) if only_raises(statement) and test in spot.path:
            flag, body = spot.fresh("failed"), spot.text.block(statement.body)
            guard = spot.write("if $$flag:\n    $body", flag=flag, body=body)
        case ast.Assert(test=test, msg=message):
            flag, body = spot.fresh("holds"), "" if message is None else spot.code(message)
            guard = f"assert {flag}, {body}" if body else f"assert {flag}"
        case _:
            return
    asked, check = stripped(truth(spot, test)), spot.fresh("check")
    values = sorted(scope.loads(body) & spot.traced) if body else []
    new = spot.write(
        "def $$check($*header):\n    $guard\n\njax.debug.callback($*called)",
        check=check, header=", ".join([flag, *values]), guard=guard, called=", ".join([check, asked, *values]),
    )  # fmt: skip
    cost = "the error arrives as one of jax's runtime"
    yield Change(CALLBACK, spot.edits().statements(statement, new), cost=cost, sure=False)

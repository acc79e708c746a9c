"""Python loops as `while_loop` and `fori_loop`: those whose number of iterations is traced, those that a traced
condition leaves, and those that jax writes out, iteration by iteration; with names for attributes that they store
into."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from jitmagic.fixes.branches.truth import is_boolean, truth
from jitmagic.fixes.change import Change, Family, Spot
from jitmagic.fixes.loops.exits import JUMPS, Exits
from jitmagic.fixes.loops.heads import Counted, counted, plus
from jitmagic.fixes.loops.iterations import Iteration, fori_loop, iteration, while_loop
from jitmagic.fixes.loops.scanned import FEWER
from jitmagic.fixes.loops.stored_attributes import methods, stored_in
from jitmagic.fixes.stores.rebinding import rebindings
from jitmagic.source import scope
from jitmagic.source.edits import Edits, Text, indented
from jitmagic.source.loops import LoopBody, LoopNode, Turns
from jitmagic.source.modules import dotted
from jitmagic.source.pattern import atom, call_of, stripped
from jitmagic.source.tree import characters

WHILE = "loop with `jax.lax.while_loop`"
FORI = "loop with `jax.lax.fori_loop`"
BREAK = f"{WHILE}, which stops where the loop breaks"
RETURN = f"{WHILE}, which stops where the loop would return"
SKIP = "skip the rest of the iteration by a condition in place of `continue`"


def stopping_loops(spot: Spot) -> Iterator[Change]:
    """`while` on a traced condition, and loops that a traced condition leaves or skips a part of."""
    for node in spot.path:
        if isinstance(node, ast.While | ast.If) and node.test in spot.path:
            if isinstance(node, ast.While):
                yield from lowered(spot, node)
            else:
                yield from _around(spot, node)
            return


def counted_loops(spot: Spot) -> Iterator[Change]:
    """`for` over a traced range."""
    if (loop := spot.here(ast.For)) is not None:
        yield from lowered(spot, loop)


def lowered(spot: Spot, loop: LoopNode) -> Iterator[Change]:
    """A loop of Python's as one of `jax.lax`."""
    if LoopBody(spot.text, loop).jumps:
        yield from _left(spot, loop)
        return
    title = FORI if isinstance(loop, ast.For) else WHILE
    for new in codes(spot, loop, rebindings(spot, loop.body)):
        yield Change(title, spot.edits().statements(loop, new))


def codes(spot: Spot, loop: LoopNode, edits: Edits) -> Iterator[str]:
    """Source of a loop that nothing leaves, with the changes of its body."""
    if loop.orelse:
        return
    code = edits.block(loop.body)
    if isinstance(loop, ast.For):
        head = counted(spot, Turns.of(loop))
        if head.index not in scope.live_after(spot.text, loop):
            step = iteration(spot, loop, head.head + code, own=(head.index,))
            yield head.before + fori_loop(spot, head, step)
        return
    test = stripped(truth(spot, loop.test))
    step = iteration(spot, loop, code, reads=scope.loads(test))
    if not is_boolean(spot, loop.test) and any(s.dtype != "bool" for s in spot.seen(loop.test)):
        test = f"{atom(test)} != 0"  # Python takes every number but zero for true
    yield while_loop(spot, test, step)


def _around(spot: Spot, statement: ast.If) -> Iterator[Change]:
    """The loop that an `if` leaves; where it only skips the rest, the rest under a condition."""
    loop = spot.text.around(statement, ast.For, ast.While, ast.FunctionDef)
    jumps = LoopBody(spot.text, loop).jumps if isinstance(loop, LoopNode) else []
    if not isinstance(loop, LoopNode) or not {*jumps} & {*spot.text.within(statement, *JUMPS)}:
        return
    if all(isinstance(n, ast.Continue) for n in jumps):
        exits = Exits(spot, loop, spot.edits())
        yield Change(SKIP, spot.edits().statements(exits.at, exits.code, loop.body[-1]))
    else:
        yield from lowered(spot, loop)


def _left(spot: Spot, loop: LoopNode) -> Iterator[Change]:
    """A loop with `break`, `continue` or `return` as one that carries whether it has ended."""
    exits = Exits(spot, loop, rebindings(spot, loop.body))
    head = counted(spot, Turns.of(loop)) if isinstance(loop, ast.For) else None
    if head is not None and not exits.flags and not loop.orelse:  # it only skips
        step = iteration(spot, loop, head.head + exits.body, own=(head.index,))
        yield Change(FORI, spot.edits().statements(loop, head.before + fori_loop(spot, head, step)))
        return
    if head is not None and head.index == "_":  # a name that says it is not read, and now it is
        head = replace(head, index=spot.fresh("i"))
    block, at = spot.text.siblings(loop)
    test = _test(spot, loop, head, exits.flags)
    after, last = _after(spot, loop, exits, block[at + 1 :], endless=test.startswith("~"))
    live, read, counter = scope.live_after(spot.text, loop), scope.loads(after), ""
    code, before, begun = exits.body, "", [spot.write("jnp.array(False)")] * len(exits.flags)
    if head is not None:
        code, before, counter, following = head.head + code, head.before, head.index, _next(head)
        taken = {*scope.stores(head.head)} & read - live
        if exits.flags and (counter in live | read or taken):  # where it has ended it stays as it was
            where = "jnp.where($ended, $$at, $next)"
            following = spot.write(where, ended=exits.ended, at=counter, next=following)
        if taken:  # its row is there still
            after, read = head.head + after, read - taken
        if counter in live:  # after all of its numbers it is the last
            if head.step != "1":
                return
            least = spot.write("jnp.minimum($$at, $end)", at=counter, end=plus(head.stop, -1))
            after = f"{counter} = {least}\n{after}"
        code = f"{code.rstrip()}\n{counter} = {following}\n"
    own = [*([counter] if counter else []), *exits.flags]
    step = iteration(spot, loop, code, own, read | scope.loads(test), counter)
    first = step.first
    if head is not None:
        asked = counter in scope.loads(first)
        first = f"{counter} = {head.start}\n{first}" if asked else first
        begun = [counter if asked else head.start, *begun]
    whole = Iteration(code, (*own, *step.carried), first, (*begun, *step.carried))
    new = before + while_loop(spot, test, whole) + after
    title = RETURN if exits.found else BREAK if exits.done else WHILE
    yield Change(title, spot.edits().statements(loop, new, last))


def _test(spot: Spot, loop: LoopNode, head: Counted | None, flags: Sequence[str]) -> str:
    """Whether the loop goes on."""
    ended = [f"~{flag}" for flag in flags]
    if head is not None:
        own = f"({head.index} {'>' if head.step.startswith('-') else '<'} {head.stop})"
    else:
        assert isinstance(loop, ast.While)
        own = atom(stripped(truth(spot, loop.test)))
    return stripped(" & ".join(ended if own in ("True", "1") else [own, *ended]))


def _next(head: Counted) -> str:
    """The counter of the iteration that follows."""
    number = head.step.lstrip("-").isdigit()
    return plus(head.index, int(head.step)) if number else f"{head.index} + {atom(head.step)}"


def _after(
    spot: Spot, loop: LoopNode, exits: Exits, rest: list[ast.stmt], *, endless: bool
) -> tuple[str, ast.stmt | None]:
    """What stands behind the loop: what it would have returned, what its `else` does; and the last statement behind
    the loop that this replaces."""
    only = rest[0] if len(rest) == 1 and not loop.orelse else None
    if len(exits.found) == 1 and isinstance(only, ast.Return) and only.value is not None:
        ((flag, found),) = exits.found.items()
        if not isinstance(found, ast.Tuple) and not isinstance(only.value, ast.Tuple):
            return f"return {_where(spot, flag, found, only.value)}\n", only
    returns = [(flag, f"return {spot.code(value)}\n") for flag, value in exits.found.items()]
    last = returns.pop()[1] if endless and not exits.done else ""
    code = "".join(f"if {flag}:\n{indented(leave)}" for flag, leave in returns) + last
    if loop.orelse:
        otherwise = spot.text.block(loop.orelse)
        code += f"if not {exits.done}:\n{indented(otherwise)}" if exits.done else otherwise
    return code, rest[-1] if last and rest else None


def _where(spot: Spot, flag: str, found: ast.expr, other: ast.expr) -> str:
    """One of two returned values."""
    a, b = stripped(spot.code(found)), stripped(spot.code(other))
    if a == b or (a, b) == ("True", "False"):
        return a if a == b else flag
    if (a, b) == ("False", "True"):
        return f"~{flag}"
    return call_of(spot.write("jnp.where"), flag, a, b)


# --- loops that are written out


def nested_loops(spot: Spot) -> Iterator[Change]:
    """A loop and those in it as loops of `jax.lax`."""
    loop = next((n for n in spot.path if isinstance(n, LoopNode)), None)
    if loop is None or LoopBody(spot.text, loop).jumps:
        return
    edits = _inner(spot, loop)
    for new in codes(spot, loop, edits) if edits else ():
        yield Change(FORI, spot.edits().statements(loop, new), claim=FEWER)


def _inner(spot: Spot, loop: LoopNode) -> Edits:
    """The loops in the body of a loop as loops of `jax.lax`."""
    edits, found = rebindings(spot, loop.body), spot.edits()
    for inner in spot.text.own(loop, ast.For, ast.While):
        own = spot.text.around(inner, ast.For, ast.While) is loop
        if own and isinstance(inner, LoopNode) and not LoopBody(spot.text, inner).jumps:
            inside = _inner(spot, inner) or rebindings(spot, inner.body)
            found = edits.statements(inner, next(codes(spot, inner, inside), spot.code(inner)))
    return found


def counting_loops(spot: Spot) -> Iterator[Change]:
    """A `for` over a range as a `fori_loop`, a `while`, and what breaks off, as a `while_loop`."""
    loop = next((n for n in spot.path if isinstance(n, LoopNode)), None)
    turns = Turns.of(loop) if isinstance(loop, ast.For) and not LoopBody(spot.text, loop).jumps else None
    if loop is not None and (turns is None or turns.counting is not None):
        yield from (replace(change, claim=FEWER) for change in lowered(spot, loop))


# --- attributes --------------------------------------------------------------------------------------


def of_attributes(family: Family) -> Family:
    """A family for loops, asked of the loop with a name for each attribute that it stores into: read in front of the
    loop, stored behind it. Where methods read or write them too, the attributes themselves are handed on."""

    @functools.wraps(family)
    def asked(spot: Spot) -> Iterator[Change]:
        loop = next((n for n in reversed(spot.path) if isinstance(n, LoopNode)), None)
        if loop is None:
            return
        if paths := _stored(spot.text, loop):
            yield from family(_named(spot, loop, paths))
        elif kept := _kept(spot, loop):
            yield from family(replace(spot, kept=kept))

    return asked


def comprehensions_of_attributes(family: Family) -> Family:
    """`of_attributes` of a family, asked of a comprehension as a loop that fills a list."""

    def asked(spot: Spot) -> Iterator[Change]:
        for node in spot.on_line(ast.ListComp)[:1]:
            turns = node.generators[0]
            statement = spot.text.around(node, ast.stmt)
            if len(node.generators) > 1 or turns.ifs or not isinstance(statement, ast.Assign | ast.Return):
                return
            name, rest = spot.fresh("rows", "values"), ""
            if isinstance(statement, ast.Assign) and statement.value is node:
                name = spot.code(statement.targets[0])
            else:
                rest = spot.edits().replace(node, name).code(statement)
            filled = f"{name}.append({spot.code(node.elt)})"
            looped = (
                f"{name} = []\nfor {spot.code(turns.target)} in {spot.code(turns.iter)}:\n{indented(filled)}"
            )
            edits = spot.edits().statements(statement, f"{looped}\n{rest}")
            yield from of_attributes(family)(moved(spot, edits, 1))

    return asked


def _stored(text: Text, loop: LoopNode) -> list[str]:
    """The attributes that a loop stores into; none where something else may read or write them meanwhile."""
    chains = [n for n in text.within(loop, ast.Attribute) if dotted(n)]
    paths = list(dict.fromkeys(dotted(n) for n in chains if isinstance(n.ctx, ast.Store)))
    roots, last = {p.partition(".")[0] for p in paths}, {p.rpartition(".")[2] for p in paths}
    if any(isinstance(n, ast.Return) for n in LoopBody(text, loop).jumps):
        return []
    if any(n.attr in last and dotted(n) not in paths for n in chains):  # it may be the same object
        return []
    names = (n for n in text.within(loop, ast.Name) if n.id in roots)
    return [] if any(_is_handed_on(text, n, paths) for n in names) else paths


def _is_handed_on(text: Text, name: ast.Name, paths: Collection[str]) -> bool:
    """The object itself is used, or a method of it is called."""
    node: ast.AST = name
    while isinstance(above := text.parents[node], ast.Attribute):
        if dotted(above) in paths:
            return False
        node = above
    return node is name or isinstance(above, ast.Call) and above.func is node


def _kept(spot: Spot, loop: LoopNode) -> tuple[str, ...]:
    """The attributes that a loop and the methods that it calls store into, as they are written and as the trace saw
    it; none where its test calls one too, something is added, or the loop may be left before that."""
    found = stored_in(spot, loop.body)
    left = LoopBody(spot.text, loop).jumps
    early = next((s for s in loop.body if {*spot.text.within(s, *JUMPS)} & {*left}), None) if left else None
    first = isinstance(early, ast.If) and not stored_in(spot, [*early.body, *early.orelse])  # its test stores
    late = max((loop.body.index(s) for s in found.values() if not (first and s is early)), default=-1)
    tested = isinstance(loop, ast.While) and (methods(spot.text, loop.test) or stored_in(spot, [loop.test]))
    return () if tested or early is not None and loop.body.index(early) <= late else tuple(found)


def _named(spot: Spot, loop: LoopNode, paths: Sequence[str]) -> Spot:
    """The place in the cell with names for these attributes."""
    names, edits = dict[str, str](), spot.edits()
    for path in paths:
        whole = path.replace(".", "_")
        short = path.rpartition(".")[2].lstrip("_") or whole
        names[path] = spot.text.fresh(short, whole, taken=[*spot.modules.names, *names.values()])
    for node in spot.text.within(loop, ast.Attribute):
        if (name := names.get(dotted(node))) is not None:
            edits.replace(node, name)
    edits.before(loop, "\n".join(f"{name} = {path}" for path, name in names.items()))
    edits.after(loop, "\n".join(f"{path} = {name}" for path, name in names.items()))
    return moved(spot, edits, len(names))


def moved(spot: Spot, edits: Edits, more: int) -> Spot:
    """The place in the cell as it is edited, with so many statements more in front of it."""
    text = Text(edits.result())
    statement = next(n for n in spot.path if isinstance(n, ast.stmt))
    moved = _statements(text)[_statements(spot.text).index(statement) + more]
    first: ast.expr | ast.stmt = moved
    if isinstance(moved, ast.While | ast.If) and getattr(statement, "test", None) in spot.path:
        first = moved.test
    end = moved.iter if isinstance(moved, ast.For) else first
    last, after = end.end_lineno or 0, end.end_col_offset or 0
    return replace(
        spot, text=text, line=first.lineno, column=characters(text.lines[first.lineno - 1], first.col_offset),
        end_line=last, end_column=characters(text.lines[last - 1], after),
    )  # fmt: skip


def _statements(text: Text) -> list[ast.stmt]:
    """All of a cell, from above."""
    return sorted(text.within(text.tree, ast.stmt), key=lambda s: (s.lineno, s.col_offset))

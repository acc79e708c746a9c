"""Python loops that jax wrote out, turn by turn, in the traced program."""

from __future__ import annotations

import ast
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jitmagic.evidence import Unrolled
from jitmagic.silent.code import is_repeating, names_in, whole_line
from jitmagic.silent.in_program import Stack, all_equations
from jitmagic.source.tree import ByCode, Source, line_of, nodes_of, source_of, span_of, walk

TURNS = 8
EQUATIONS = 100
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)


@dataclass
class _Loop:
    file: str
    equations: int = 0
    seen: Counter[object] = field(default_factory=Counter)
    own: Counter[object] = field(default_factory=Counter)
    """What no loop inside of it makes."""

    def turns(self) -> int:
        """How often the body ran: the count that most of its operations share."""
        return _most_common(self.seen)

    def own_turns(self) -> int:
        """The same, without the turns of loops inside of it."""
        return _most_common(self.own) if self.own else 0


def _most_common(seen: Counter[object]) -> int:
    counts = Counter(n for n in seen.values() if n > 1)
    return min(counts, key=lambda n: (-counts[n], n)) if counts else 1


def unrolled(closed: object) -> Iterator[Unrolled]:
    """The outermost loops of at least 8 turns whose bodies made at least 100 equations."""
    loops: dict[ast.AST, _Loop] = {}
    chains: dict[tuple[int, int], list[ast.AST]] = {}
    looping: dict[int, bool] = {}
    equations = all_equations(closed)
    for eqn, stack in equations if len(equations) >= EQUATIONS else ():
        if not _any_loops(stack, looping):
            continue
        # by identity: the hash of a code object reads all of its instructions
        places = tuple((id(code), offset) for code, offset in stack)
        # Python 3.11 moves the place of a call once it has run a few times
        lines = *places[:1], *((id(code), line_of(code, offset)) for code, offset in stack[1:])
        inside: set[ast.AST] = set()  # a comprehension's own frame is on its line too
        for depth, (code, offset) in enumerate(stack):
            key = places[depth]
            if key not in chains:
                chains[key] = _loops_around(code, offset)
            for loop in chains[key]:
                found = loops.setdefault(loop, _Loop(code.co_filename))
                found.equations += loop not in inside
                operation = lines[: depth + 1], eqn.primitive.name
                found.seen[operation] += 1
                if not inside - {loop}:
                    found.own[operation] += 1
                inside.add(loop)
    large = {n: x for n, x in loops.items() if x.equations >= EQUATIONS and x.turns() >= TURNS}
    for node, made in large.items():
        source = source_of(made.file)
        if not any(o in large for o in source.ancestors(node)):
            yield Unrolled(
                whole_line(made.file, node), _names(node), made.turns(), made.equations, made.own_turns()
            )


_loops: ByCode[list[object]] = ByCode()


def _loops_in(code: types.CodeType) -> list[Any]:
    known = _loops.get(code)
    return _loops.put(code, _loops_of(source_of(code.co_filename), code)) if known is None else known


def _any_loops(stack: Stack, known: dict[int, bool]) -> bool:
    """Has any function of the stack a loop? `known` holds the answers by `id`."""
    for code, _ in stack:
        if id(code) not in known:
            known[id(code)] = bool(_loops_in(code))
        if known[id(code)]:
            return True
    return False


def _loops_around(code: types.CodeType, offset: int) -> list[Any]:
    """Loops of that code's function in whose bodies the instruction's line is, innermost first."""
    known = _loops_in(code)
    if not known:
        return known
    line = line_of(code, offset)
    return [n for n in known if _contains(n, line) and _in_body(n, line)]


def _loops_of(source: Source, code: types.CodeType) -> list[Any]:
    """The loops of a function, or of a cell's top level, the innermost first."""
    root = source.function(code) or (source.tree if code.co_name == "<module>" else None)
    if root is None:  # what a comprehension is compiled to on 3.11 stands in a function of its own
        around = source.functions(code.co_firstlineno)
        root = around[-1] if around else source.tree
    found = [
        n for n in (nodes_of(root) if root is not None else ()) if isinstance(n, _LOOPS) or is_repeating(n)
    ]
    return sorted(found, key=lambda n: span_of(n) or (), reverse=True)


def _contains(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


def _in_body(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.For | ast.While):
        return any(_contains(part, line) for part in node.body)
    return True


def _names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.For):
        target, looped = node.target, [node.iter]
    elif isinstance(node, ast.While):
        return tuple(names_in(node.test))
    elif isinstance(node, ast.Call):
        return tuple(n for x in node.args for n in names_in(x) if n != "range")
    else:
        generator = node.generators[0]  # type: ignore[attr-defined]
        target, looped = generator.target, [generator.iter]
    own = [n.id for n in walk(target) if isinstance(n, ast.Name)]
    called = {"range", "enumerate", "zip", "reversed", "len"}
    return tuple(dict.fromkeys([*own, *(n for x in looped for n in names_in(x) if n not in called)]))

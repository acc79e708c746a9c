"""A cell and the cells after it, run unasked: what they show, print, raise and leave, as pictures."""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import itertools
import linecache
import operator
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jitmagic.evidence import Problem
from jitmagic.source.cell import bound_names, statements_at_top
from jitmagic.source.edits import masked
from jitmagic.source.tree import parsed
from jitmagic.tracing import unwinding
from jitmagic.tracing.locate import locate
from jitmagic.trial import budget, quiet
from jitmagic.trial.beginning import Beginning
from jitmagic.trial.picture import Node, Painter

_numbers = itertools.count(1)
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


@dataclass
class Ran:
    """What a run of a cell and those after it did."""

    shown: list[Node] = field(default_factory=list)
    """Values of the expressions that are statements, in order."""
    printed: str = ""
    error: BaseException | None = None
    problem: Problem | None = None
    """Where that was raised."""
    state: dict[str, Node] = field(default_factory=dict)
    """What the names of the notebook stood for afterwards."""
    file: str = ""
    """What the cell counted as, for the places of errors."""
    tracers: int = 0
    """Traced values that it left behind."""
    baseline: str = ""
    """How a plain run was had that cannot run as it is: `loops in Python`, `NumPy arrays`."""

    @property
    def numbers(self) -> dict[str, Node]:
        """Those in what it printed, in order."""
        found = enumerate(map(float, _NUMBER.findall(self.printed)), 1)
        return {f"printed number {i}": Painter().draw(n) for i, n in found}

    @property
    def failed(self) -> str:
        """The name of what was raised; nothing where nothing was."""
        return type(self.error).__name__ if self.error is not None else ""


def play(
    beginning: Beginning,
    cell: str,
    later: Sequence[str],
    *,
    first: Callable[[], None] = lambda: None,
    bound: Callable[[Sequence[str]], None] = lambda names: None,
    last: Callable[[], Iterable[object]] = tuple,
    around: contextlib.AbstractContextManager[object] | None = None,
    more: Mapping[str, object] | None = None,
    lines_above: int = 1,
) -> Ran:
    """Run the cell from where it began, then the later ones; nothing of it is seen afterwards.

    `first` is called at the beginning, `bound` hears of the names after each statement that binds some, `last` gives
    more to show at the end, `around` holds meanwhile, `more` are names besides. Raises SyntaxError, and OutOfTime.
    """
    import jax

    ran, painter = Ran(), Painter()
    ran.file = f"<jitmagic run {next(_numbers)}>"
    programs = [(ran.file, _without(_program(cell, ran.file, lines_above), beginning.above))]
    files = (f"{ran.file[:-1]}.{i}>" for i in itertools.count(1))
    programs += [(file, _program(source, file, 0)) for source, file in zip(later, files, strict=False)]
    with beginning.rewound() as namespace, quiet.held_back(), around or contextlib.nullcontext():
        known = dict(namespace)
        with quiet.overheard() as printed:
            try:
                namespace.update(more or {})
                first()
                for file, tree in programs:
                    _run(tree, file, namespace, ran, painter, bound)
                ran.shown += map(painter.draw, last())
                jax.effects_barrier()
                quiet.heed()
            except (KeyboardInterrupt, budget.OutOfTime):
                raise
            except Exception as exc:
                ran.error = quiet.writes_into_shut(exc) or exc
            except BaseException as exc:
                ran.error = quiet.Ended(f"it raises {type(exc).__name__}")
            ran.printed = printed.kept
        ran.state, ran.tracers = painter.names(namespace), painter.tracers
        if ran.error is not None:
            ran.problem = locate(ran.error, prefer=ran.file)
            unwinding.let_go(ran.error)
        del painter  # which keeps all that it has drawn
        unwinding.forget_names(namespace, known)
    return ran


def _program(source: str, file: str, lines_above: int) -> ast.Module:
    text = "\n" * lines_above + masked(source)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return parsed(text)


def _without(tree: ast.Module, done: Sequence[str]) -> ast.Module:
    """The program without statements that have run already, before it began."""
    left = list(done)
    for statement in tree.body if done else ():
        if (text := ast.dump(statement)) in left:
            left.remove(text)
            tree.body = [s for s in tree.body if s is not statement]
    return tree


def _compiled(tree: ast.Module | ast.Expression, file: str, mode: str) -> types.CodeType:
    """As the shell compiles: with what the notebook has taken from `__future__`, and nothing that this file has."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    flags = getattr(getattr(shell, "compile", None), "flags", 0)
    return compile(tree, file, mode, flags & _OF_FUTURE, dont_inherit=True)


_OF_FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names)
)


def _run(
    tree: ast.Module, file: str, namespace: dict[str, object], ran: Ran, painter: Painter,
    bound: Callable[..., None],
) -> None:  # fmt: skip
    """The statements one by one, at the top level; the values of those that are expressions are kept."""
    for statement in tree.body:
        if isinstance(statement, ast.Expr):
            value = eval(_compiled(ast.Expression(statement.value), file, "eval"), namespace)
            if value is not None:
                ran.shown.append(painter.draw(value))
        else:
            exec(_compiled(ast.Module([statement], []), file, "exec"), namespace)
        if names := [n for s in statements_at_top([statement]) for n in bound_names(s)]:
            bound(names)

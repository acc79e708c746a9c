"""A cell run again, plain or under its magic: what the proof of a correction asks for.

`CellReruns` runs the whole cell and those after it, from where it began. `CallReruns` runs its definitions, and the
calls that were kept: where the whole cannot be run again.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax

from jitmagic import rules
from jitmagic.checking.conclusions import evidence_of, told_of
from jitmagic.checking.plain_runs import within
from jitmagic.checking.request import Request, Run, taken
from jitmagic.checking.seen import Sample
from jitmagic.checking.watched import held_by, plainly, recording
from jitmagic.checking.watching import Watching
from jitmagic.fixes.prove import clock
from jitmagic.settings import CellSource
from jitmagic.source.cell import definitions, uses_jit
from jitmagic.source.edits import Text, masked
from jitmagic.source.tree import parsed
from jitmagic.tracing.messages import is_of_jax, refuses_stores
from jitmagic.trial.beginning import Beginning
from jitmagic.trial.permission import Again
from jitmagic.trial.play import Ran, play
from jitmagic.trial.python_loops import loops_in_python, on_numpy
from jitmagic.trial.verify import Attempt, Examined, Verifier

InTime = Callable[[], contextlib.AbstractContextManager[None]]


class CellReruns:
    """Runs one cell and those after it again; `in_time` ends a run that takes too long with OutOfTime."""

    tested: Literal["cell", "calls"] = "cell"

    def __init__(
        self,
        run: Run,
        names: dict[str, Any],
        request_of: Callable[[str], Request],
        in_time: InTime,
        earlier: Collection[str] = (),
    ) -> None:
        self.run, self.names, self.request_of = run, names, request_of
        self.in_time, self.earlier = in_time, earlier
        self.original = Attempt(run.source.magic, run.source.body, (*run.source.calls, *run.later))

    def obstacle(self) -> str:
        """Why the cell cannot be run again; empty where it can."""
        beginning = self.run.beginning
        if beginning is None:
            return "what it began from is not known any more"
        trees = [parsed(masked(s)) for s in (self.original.cell, *self.original.later)]
        own = {n.name for t in trees for n in ast.walk(t) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        judge = Again(self.names, own)
        return beginning.obstacle or next(filter(None, map(judge.obstacle, trees)), "")

    def plain(self, attempt: Attempt) -> Ran:
        """Without the magic, and without jit. Raises OutOfTime."""
        ran = self._plain(attempt, self._unjitted(attempt))
        if ran.error is not None and refuses_stores(ran.error):
            other, baseline = self._plain(attempt, self._unjitted(attempt), on_numpy=True), "NumPy arrays"
        elif ran.error is not None and is_of_jax(ran.error):
            other, baseline = self._plain(attempt, self._unjitted(attempt, in_python=True)), "loops in Python"
        else:
            return ran
        if other.error is not None:
            return ran
        other.baseline = baseline
        return other

    def _plain(
        self,
        attempt: Attempt,
        around: contextlib.AbstractContextManager[None],
        *,
        on_numpy: bool = False,
        **more: Any,
    ) -> Ran:
        def bound(names: Collection[str]) -> None:
            for name in set(names) & set(self.run.targets) if on_numpy else ():
                self._wrap(name)

        with self.in_time():
            return self._play(attempt, around=around, bound=bound, **more)

    def _wrap(self, name: str) -> None:
        if callable(self.names.get(name)):
            self.names[name] = on_numpy(self.names[name])

    @contextlib.contextmanager
    def _unjitted(self, attempt: Attempt, *, in_python: bool = False) -> Iterator[None]:
        compiles = any(uses_jit(parsed(masked(s))) for s in (attempt.cell, *attempt.later))
        off = loops_in_python() if in_python else jax.disable_jit() if compiles else contextlib.nullcontext()
        with plainly(), off:
            yield

    def observe(self, cell: str, names: dict[str, Any]) -> None:
        """A plain run of a form of the cell that calls these names on its way, as far as it goes. Raises OutOfTime."""
        attempt = replace(self.original, cell=cell)
        with contextlib.suppress(SyntaxError):
            self._plain(attempt, self._unjitted(attempt), more=names)

    def under_magic(self, attempt: Attempt) -> Examined:
        """As the user would run it, with what is found. Raises OutOfTime, ValueError for a magic line that is none."""
        request, tree = self._request(attempt), parsed(masked(attempt.cell))
        source = replace(self.run.source, text=attempt.text, body=attempt.cell, magic=attempt.magic)
        run = Run(request, source, taken(request, tree), later=list(attempt.later))
        watching = Watching(run, self.names, tree)
        with self.in_time(), recording(_Checkers(run)):
            ran = self._play(attempt, first=watching.begin, bound=watching.bound)
            checkers = list(run.checkers.values())
            large = rules.Settings(large_constant=request.settings.large_constant)
            found = [f for c in checkers for f in rules.run(evidence_of(c), large)]
        return Examined(
            ran, rules.select(found), sum(c.seen.traces for c in checkers),
            sum(c.seen.equations or 0 for c in checkers),
        )  # fmt: skip

    def _play(self, attempt: Attempt, **how: Any) -> Ran:
        assert self.run.beginning is not None
        above = int(attempt.magic.startswith("%%"))
        return play(self.run.beginning, attempt.cell, attempt.later, lines_above=above, **how)

    def _request(self, attempt: Attempt) -> Request:
        """What the magic line of an attempt asks for, with nothing measured. Raises ValueError."""
        request = self.run.request
        if attempt.magic != self.original.magic:
            try:
                request = self.request_of(attempt.magic)
            except Exception as exc:  # IPython's UsageError, which this room does not know
                raise ValueError(f"{attempt.magic}: {exc}") from exc
        settings = replace(request.settings, time=False, measure=False, rehearse=False)
        return replace(request, settings=settings)


class CallReruns(CellReruns):
    """Runs the definitions of a cell as the notebook is now, and the calls of one function that were kept."""

    tested = "calls"

    def __init__(
        self,
        function: str,
        samples: Sequence[Sample],
        source: CellSource,
        request: Request,
        names: dict[str, Any],
        request_of: Callable[[str], Request],
        in_time: InTime,
    ) -> None:
        run = Run(request, source, (function,))
        super().__init__(run, names, request_of, in_time)
        self.function, self.samples = function, samples
        self.original = Attempt(source.magic, source.body)
        run.beginning = Beginning(names, self._definitions(source.body))

    def obstacle(self) -> str:
        """Why the calls cannot be made again; empty where they can."""
        if not self.samples:
            return "no call was kept"
        return self.run.beginning.obstacle if self.run.beginning is not None else ""

    def _definitions(self, cell: str) -> ast.Module:
        """The statements of a cell that define something, in their places."""
        defined = {d.name for d in definitions(parsed(masked(cell)))}
        kept = [s for s in parsed(masked(cell)).body if _defines(s, defined)]
        return ast.Module(kept, [])

    def _play(self, attempt: Attempt, **how: Any) -> Ran:
        assert self.run.beginning is not None
        text = Text(attempt.cell)
        kept = self._definitions(attempt.cell).body
        gone = {
            n
            for s in text.tree.body
            if s not in kept
            for n in range(s.lineno, (s.end_lineno or s.lineno) + 1)
        }
        lines = ["\n" if i in gone else line for i, line in enumerate(text.lines, 1)]
        above = int(attempt.magic.startswith("%%"))
        return play(self.run.beginning, "".join(lines), (), last=self._called, lines_above=above, **how)

    def _called(self) -> Iterator[Any]:
        """The results of the calls that were kept."""
        head, _, method = self.function.partition(".")
        holder = self.names[head]
        fn: Any = held_by(holder).get(method) if method else holder
        for sample in self.samples:
            args, kwargs = sample.args, sample.kwargs
            if method and args and type(args[0]).__name__ == head:
                with _of_class(args[0], holder):
                    yield fn(*args, **kwargs)
            else:
                yield fn(*args, **kwargs)


@contextlib.contextmanager
def _of_class(value: Any, cls: Any) -> Iterator[None]:
    """An object as one of the class that the corrected cell defines."""
    old = type(value)
    try:
        object.__setattr__(value, "__class__", cls)
        yield
    finally:
        object.__setattr__(value, "__class__", old)


def _defines(statement: ast.stmt, defined: Collection[str]) -> bool:
    """A definition or import; a function made of those that the cell defines; what registers a class."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return True
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Assign):
        of_functions = isinstance(value, ast.Call) and any(
            isinstance(n, ast.Name) and n.id in defined for a in value.args for n in ast.walk(a)
        )
        return isinstance(value, ast.Lambda) or of_functions and not _calls_own(value, defined)
    called = getattr(getattr(value, "func", None), "attr", "")
    return isinstance(statement, ast.Expr) and (called.startswith("register_") or called.startswith("def"))


def _calls_own(node: ast.AST | None, defined: Collection[str]) -> bool:
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call)) if node is not None else ()
    return any(isinstance(c.func, ast.Name) and c.func.id in defined for c in calls)


class _Checkers:
    """The checkers of a run, those to come included."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __contains__(self, checker: object) -> bool:
        return any(c is checker for c in self.run.checkers.values())


def verifier_of(
    run: Run,
    names: dict[str, Any],
    request_of: Callable[[str], Request],
    deadline: float,
    earlier: Collection[str] = (),
) -> Verifier:
    """What proves corrections of a cell until a deadline (by `prove.clock`)."""

    def in_time() -> contextlib.AbstractContextManager[None]:
        return within(max(0.0, deadline - clock()))

    told = [f for c in run.checkers.values() for f in told_of(c)]
    return Verifier(CellReruns(run, names, request_of, in_time, earlier), told)

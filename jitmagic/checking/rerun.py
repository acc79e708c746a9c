"""A cell run again from where it began, plain or under its magic: what the proof of a correction asks for."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import jax

from jitmagic import rules
from jitmagic.checking.conclusions import evidence_of, told_of
from jitmagic.checking.plain_runs import within
from jitmagic.checking.request import Request, Run, taken
from jitmagic.checking.watched import plainly, recording
from jitmagic.checking.watching import Watching
from jitmagic.fixes.prove import clock
from jitmagic.source.cell import uses_jit
from jitmagic.source.edits import masked
from jitmagic.source.tree import parsed
from jitmagic.trial.permission import Again
from jitmagic.trial.play import Ran, play
from jitmagic.trial.verify import Attempt, Examined, Verifier


class CellReruns:
    """Runs one cell and those after it again; `in_time` ends a run that takes too long with OutOfTime."""

    def __init__(
        self,
        run: Run,
        names: dict[str, Any],
        request_of: Callable[[str], Request],
        in_time: Callable[[], contextlib.AbstractContextManager[None]],
        earlier: Collection[str] = (),
    ) -> None:
        self.run, self.names, self.request_of = run, names, request_of
        self.in_time, self.earlier = in_time, earlier
        self.original = Attempt(run.source.magic, run.source.body, (*run.source.calls, *run.later))
        trees = [parsed(masked(s)) for s in (self.original.cell, *self.original.later)]
        self._compiles = any(map(uses_jit, trees))

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
        assert self.run.beginning is not None
        above = int(attempt.magic.startswith("%%"))
        with self.in_time():
            return play(
                self.run.beginning, attempt.cell, attempt.later, around=self._unjitted(), lines_above=above
            )  # fmt: skip

    @contextlib.contextmanager
    def _unjitted(self) -> Iterator[None]:
        with plainly(), jax.disable_jit() if self._compiles else contextlib.nullcontext():
            yield

    def under_magic(self, attempt: Attempt) -> Examined:
        """As the user would run it, with what is found. Raises OutOfTime."""
        assert self.run.beginning is not None
        request, tree = self._request(attempt), parsed(masked(attempt.cell))
        source = replace(self.run.source, text=attempt.text, body=attempt.cell, magic=attempt.magic)
        run = Run(request, source, taken(request, tree), later=list(attempt.later))
        watching, above = Watching(run, self.names, tree), int(attempt.magic.startswith("%%"))
        with self.in_time(), recording(_Checkers(run)):
            ran = play(
                self.run.beginning, attempt.cell, attempt.later, first=watching.begin, bound=watching.bound,
                lines_above=above,
            )  # fmt: skip
            checkers = list(run.checkers.values())
            large = rules.Settings(large_constant=request.settings.large_constant)
            found = [f for c in checkers for f in rules.run(evidence_of(c), large)]
        return Examined(
            ran, rules.select(found), sum(c.seen.traces for c in checkers),
            sum(c.seen.equations or 0 for c in checkers),
        )  # fmt: skip

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

"""Timings of earlier runs, to compare with: of a saved report, or of the last run of the same cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from jitmagic.checking.request import Request, Run
from jitmagic.report import LAST_RUN
from jitmagic.source.cell import body_of

if TYPE_CHECKING:
    from jitmagic.render import Report
    from jitmagic.report import FunctionReport

MOST_CORRECTED = 40


class Earlier:
    """The functions that each cell timed when it last ran."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Any, ...], list[FunctionReport]] = {}
        self._before: dict[str, str] = {}
        """Bodies of cells by those that our corrections make of them; the newest `MOST_CORRECTED`."""

    def of(self, request: Request, place: tuple[object, ...]) -> dict[str, tuple[FunctionReport, str]]:
        """Timings of a cell's functions, and what their run is called: of the file that is compared with, else of the
        last run in the same place. Raises UsageError where the file cannot be read."""
        path = request.compare or (request.save if (request.save or "").lower().endswith(".json") else None)
        if path is not None:
            from jitmagic.render import load

            try:
                saved = load(path)
            except (OSError, ValueError) as exc:
                if request.compare:
                    raise UsageError(f"--compare {path}: {exc}") from None
            else:
                return {f.name: (f, f"the run in {path}") for f in saved.functions}
        known = self._runs.get(place)
        return {f.name: (f, LAST_RUN) for f in known} if known else {}

    def before_fix(self, body: str) -> str | None:
        """What this body was before a correction, or several in turn; None where it is the user's own."""
        return self._before.get(body.strip())

    def keep(self, run: Run, place: tuple[object, ...], shown: Report | None) -> None:
        """Remember what a run of a cell timed, and the corrections that it was offered."""
        from jitmagic.checking.conclusions import function_report

        for fix in (x for f in shown.findings for x in f.fixes if x.cell) if shown is not None else ():
            corrected = body_of(fix.cell or "").strip()
            self._before.pop(corrected, None)
            if corrected != run.source.body.strip():
                self._before[corrected] = run.source.before_fix or run.source.body
        self._before = dict(list(self._before.items())[-MOST_CORRECTED:])
        timed = [c for c in run.checkers.values() if c.seen.timing.jit is not None]
        if timed:
            self._runs[place] = [function_report(c) for c in timed]

"""Timings of earlier runs, to compare with: of a saved report, or of the last run of the same cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from jitmagic.checking.request import Request, Run
from jitmagic.report import LAST_RUN

if TYPE_CHECKING:
    from jitmagic.report import FunctionReport


class Earlier:
    """The functions that each cell timed when it last ran."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Any, ...], list[FunctionReport]] = {}

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

    def keep(self, run: Run, place: tuple[object, ...]) -> None:
        """Remember what a run of a cell timed."""
        from jitmagic.checking.conclusions import function_report

        timed = [c for c in run.checkers.values() if c.seen.timing.jit is not None]
        if timed:
            self._runs[place] = [function_report(c) for c in timed]

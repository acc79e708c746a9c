"""What a cell shows while it runs and at its end: one display for progress and report."""

from __future__ import annotations

import html
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import IPython.display

from jitmagic.interrupts import ending
from jitmagic.notebook import progress, reports, targets
from jitmagic.notebook.running import Notebook, say
from jitmagic.render import in_terminal, mime_bundle, on_screen
from jitmagic.settings import Stage
from jitmagic.units import listed
from jitmagic.work import clock

if TYPE_CHECKING:
    from jitmagic.checking.checker import Checker
    from jitmagic.checking.request import Run
    from jitmagic.render import Report
    from jitmagic.silent.waiting import Waits


QUICK_S = 1.0
"""A cell that has taken so long is not run again where no action is needed."""
LONG = 2_000
"""Operations, of loops that are written out, for which XLA takes seconds."""
Shown = AbstractContextManager[Callable[[str], None]]
Progress = Callable[[str], Shown]


class Display:
    """The display of the running cell."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def news(self, checker: Checker) -> None:
        """Something new was seen; shown at once in a kernel, in a terminal at the end of the cell, but for what XLA
        takes long over."""
        from jitmagic.tracing.compat import trace_state_clean

        news = self.notebook.running.news
        if checker not in news:
            news.append(checker)
        if trace_state_clean() and self.notebook.is_live():
            self.show_pending()
        elif trace_state_clean() and checker.compiles_long and (checker.seen.equations or 0) >= LONG:
            self._say_early(checker)

    def _say_early(self, checker: Checker) -> None:
        """The verdict in front of a long compilation, where nothing that is shown can be replaced."""
        from jitmagic.checking import conclusions

        run, owner = self.notebook.running.run, self.notebook.last
        if owner is not None and not owner.request.quiet and not (owner.request.give_back and run is owner):
            say(on_screen(conclusions.assemble([checker]), "verdicts"), flush=True)

    def show_pending(self, *, search: bool = False) -> None:
        """Show the report of what is new in this cell, in place of what stands there; `search`: with corrections."""
        running, owner = self.notebook.running, self.notebook.last
        if search and owner is not None:
            running.news += [s for s in self._wrong(owner) if s not in running.news]
        news = running.news
        if owner is None or not news and not running.remade:
            return
        if owner.request.quiet or (owner.request.give_back and running.run is owner):
            news.clear()
            return
        from jitmagic.checking import conclusions

        cell = None if news else owner.source
        report = self._with_late(conclusions.assemble(news, cell))
        said = False
        if search and any(f.wants_fixes for f in report.findings):
            from jitmagic.checking import corrections

            if said := not self.notebook.is_live() and in_terminal():
                say(on_screen(report, "verdicts"), flush=True)
            told = (lambda found: self._replace(self._with_late(found))) if self.notebook.is_live() else None
            found = corrections.report_of(news, cell, on_fix=told, advice_s=running.compare_s)
            if running.remade:
                running.remade = reports.compilations(self.notebook)
            report = self._with_late(found)
        if self.notebook.is_live() and running.shown is not None:
            self._replace(report)
        elif said:
            running.report = report
            say(f"\n{on_screen(report, 'rest')}")
        else:
            running.report = report
            running.shown = IPython.display.display(report, display_id=True)
        if not self.notebook.is_live():
            news.clear()
            running.remade = ()

    def _with_late(self, report: Report) -> Report:
        """The report with what came from outside of the functions: the error of this cell, what it compiled again.
        Where they are another cell's, that is named."""
        from jitmagic.checking.conclusions import below_another
        from jitmagic.checking.postmortem import joined
        from jitmagic.checking.remade import beside
        from jitmagic.state.definition import source_file

        running = self.notebook.running
        if running.run is None and running.news:
            names = {c.name: self.notebook.cell_name(source_file(c.fn)) for c in running.news}
            report = below_another(report, names)
        report = joined(report, running.late) if running.late is not None else report
        return beside(report, running.remade)

    def _replace(self, report: Report) -> None:
        """Put this report in the place of what the running cell shows."""
        running = self.notebook.running
        if running.shown is not None and running.report != report:
            running.report = report
            running.shown.update(report)

    def _offer_choices(self, run: Run, report: Report) -> None:
        """Last of all, buttons for what needs no action."""
        from jitmagic.checking import corrections

        with ending:
            offered = corrections.with_choices(report, list(run.checkers.values()))
            if offered != report:
                self._replace(offered)

    def _wrong(self, run: Run) -> list[Checker]:
        """The functions of the newest cell with a magic whose calls left something else than plain ones would."""
        from jitmagic.checking import left_behind

        checkers = list(run.checkers.values())
        exhausted = any(c.seen.exhausted_by for c in checkers)
        if exhausted or not run.request.settings.rehearse or not _has_new_calls(run):
            return []
        notebook = self.notebook
        found = left_behind.look(checkers, notebook.verifier, notebook.shell.user_ns)
        return [c for c in checkers if c in found]

    def end_of_cell(self, error: BaseException | None, run: Run | None) -> None:
        """What is left to show: an error that no report has told of, the last news; no progress stays behind."""
        running = self.notebook.running
        quick = clock() - running.began < QUICK_S
        if error is not None and run is not None:
            self._note_exhausted(error, run)
        if run is not None and running.waits is not None:
            self._note_waits(running.waits, run)
        if run is not None and not isinstance(error, Exception) and _shows(run):
            self._note_remade(run)
        if error is not None and not self._told() and (self.notebook.always or _shows(run)):
            self._show_error(error)
        ending.heard = isinstance(error, KeyboardInterrupt)
        if ending.heard and self.notebook.last is not None:
            _has_new_calls(self.notebook.last)  # a later cell does not look into what was interrupted
        self._catch_up("looking closer", "comparing", "counting costs", "asking what if")
        if self.notebook.is_live():
            self.show_pending(search=not ending.heard)
        if self._catch_up("timing", reason="the cell ended in an error" if error is not None else "") or (
            not self.notebook.is_live()
        ):
            self.show_pending(search=not ending.heard)
        if (
            run is not None
            and quick
            and not ending.heard
            and self.notebook.is_live()
            and running.report is not None
        ):
            self._offer_choices(run, running.report)
        if error is None and run is not None and _shows(run) and running.shown is None:
            self._say_what_comes(run)
        if running.shown is not None and running.report is None:
            running.shown.update({"text/plain": "", "text/html": ""}, raw=True)

    def _note_exhausted(self, error: BaseException, run: Run) -> None:
        """The device tells that it has no memory left when a result is read, after the call."""
        from jitmagic.tracing.messages import is_out_of_memory

        if is_out_of_memory(error):
            for checker in run.checkers.values():
                checker.seen.exhausted_by = checker.seen.exhausted_by or error

    def _note_remade(self, run: Run) -> None:
        """What the cell has compiled again and again; of the functions made at one place the newest is shown."""
        running, newest = self.notebook.running, run.checkers.values()
        running.remade = reports.compilations(self.notebook, fixes=False)
        if running.remade:
            running.news = [c for c in running.news if c in newest or c.seen.problems or c.seen.is_wrong]

    def _note_waits(self, waits: Waits, run: Run) -> None:
        """Where the cell waited for the device, as seen of the function that it stands in, else of the one that was
        called most."""
        waits.stop()
        called = [c for c in run.checkers.values() if c.seen.count]
        for wait in waits.facts() if called else ():
            own = (c for c in called if c.name == wait.where.function)
            checker = next(own, None) or max(called, key=lambda c: c.seen.count)
            checker.seen.waits += (wait,)
            self.notebook.running.news += [checker] if checker not in self.notebook.running.news else []

    def _say_what_comes(self, run: Run) -> None:
        """One line for a cell that has only defined functions, and one for each name of none."""
        for name in run.request.functions:
            if name not in run.checkers and (instead := targets.of_object(name, self.notebook.shell.user_ns)):
                say(f"-f {name}: {instead}")
        waiting = [name for name, checker in run.checkers.items() if not checker.seen.count]
        if not waiting or len(waiting) < len(run.checkers) or run.request.widget:
            return
        done = "compiled" if run.request.kind == "jit" else "checked"
        say(f"{listed(waiting)}: {done} at the first call, and the report comes with it")

    def _catch_up(self, *stages: Stage, reason: str = "") -> bool:
        """Do what has waited for the end of the cell, until an interrupt, unless there is a reason not to. Was there
        anything?"""
        running = self.notebook.running
        todo = [step for stage in stages for step in running.postponed if step[1] == stage]
        running.postponed = [step for step in running.postponed if step[1] not in stages]
        functions, spent = len({id(checker) for checker, *_ in todo}), 0.0
        for checker, stage, step in todo:
            seconds = checker.settings.seconds(stage, functions)
            start = clock()
            with ending:
                if not reason and not ending.heard:
                    with self.progress(checker.bound_as)(stage):
                        checker.guarded(step, max(0.0, seconds - spent) if stage == "comparing" else seconds)
            reason = "it was interrupted" if ending.heard else reason
            if stage == "comparing":
                spent += clock() - start
                self.notebook.running.compare_s = max(0.0, seconds - spent)
            if reason:
                _left_out(checker, stage, reason)
        return bool(todo)

    def _told(self) -> bool:
        """A watched function has told of a failed call in this cell."""
        running = self.notebook.running
        run = running.run
        watched = [*running.news, *(run.checkers.values() if run is not None else ())]
        return any(call.outcome == "failed" for c in watched for call in c.seen.calls[-1:])

    def _show_error(self, error: BaseException) -> None:
        running = self.notebook.running
        late = reports.of_error(self.notebook, error)
        if late is None:
            return
        if running.news and _shows(running.run) and late.cell.source == running.source:
            running.late = late
            self.show_pending()
        else:
            IPython.display.display(late)

    def progress(self, name: str) -> Progress:
        """Makes the context that shows a stage of this function while it takes long."""

        def shown(stage: str) -> Shown:
            last = self.notebook.compilations.last_s(name, stage)
            before = f" ({last:.0f} s last time)" if last is not None and last >= 1 else ""
            return progress.shown(f"{name}: {stage}", self.notebook.is_quiet, self.tell, before)

        return shown

    def tell(self, line: str | None) -> None:
        """Progress in the run's display, below the report where one is there; nothing moves when it goes."""
        running = self.notebook.running
        if line is None and running.report is None:
            return  # the report will stand there, or after_cell clears it
        bundle = mime_bundle(running.report) if running.report is not None else {"text/plain": ""}
        if line is not None:
            words = f'<div style="opacity:0.75">{html.escape(line)}</div>'
            bundle |= {"text/plain": f"{bundle['text/plain']}\n{line}".strip("\n"),
                       "text/html": bundle.get("text/html", "") + words}  # fmt: skip
        if running.shown is None:
            running.shown = IPython.display.display(bundle, raw=True, display_id=True)
        else:
            running.shown.update(bundle, raw=True)


def _left_out(checker: Checker, stage: Stage, reason: str) -> None:
    """Say that a stage was not reached."""
    seen = checker.seen
    if stage == "comparing":
        seen.note(f"the run without jit was left out: {reason}")
    elif checker.settings.time and seen.timing.jit is None:
        seen.timing = replace(seen.timing, left_out=f"not timed: {reason}")


def _has_new_calls(run: Run) -> bool:
    """There were calls since this was asked last."""
    known, run.looked_at = run.looked_at, tuple(c.seen.count for c in run.checkers.values())
    return run.looked_at != known


def _shows(run: Run | None) -> bool:
    """The magic of this cell asked for a report on the screen."""
    return run is not None and not run.request.quiet and not run.request.give_back

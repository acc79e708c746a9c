"""The panel of one function: its buttons, and what they run.

One thing runs at a time: a callback that comes in meanwhile is refused, and the widgets are disabled while work
is under way or a cell runs. (With some kernels callbacks run in another thread than the cell.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from jitmagic.checking import corrections
from jitmagic.checking.checker import Checker
from jitmagic.checking.watched import checker_of
from jitmagic.panel import markup
from jitmagic.panel.rows import Rows
from jitmagic.render import Report
from jitmagic.report import Fix
from jitmagic.trial import quiet
from jitmagic.units import counted

BUSY_AFTER_S = 0.4
"""A cell that runs longer is said to keep the kernel busy."""

_BUSY = threading.Lock()


class Panel:
    """One function's panel; `widget` is what is displayed."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self._busy = _BUSY
        self._cell_runs = False
        self._before_busy: str | None = None
        self._waiting: threading.Timer | None = None
        self.rows = Rows(checker, self._changed)
        self.verdict, self.code, self.details = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.report: Report | None = None
        self.buttons = [
            self._button("check", "look at the last call again, and try fixes on it", self.check),
            self._button("compile and time", "compile and time on the values of the last call", self.time),
            self._button(
                "apply", "the notebook's function takes these settings from its next call on", self.apply
            ),
            self._button("code", "the same as a %%jit line and in Python, to copy", self.show_code),
        ]
        title = widgets.HTML(
            f"<b>{markup.code(checker.name)}</b>: what is static, dynamic or constant, and what follows"
        )
        buttons = widgets.HBox(self.buttons, layout=widgets.Layout(flex_flow="row wrap"))
        self.widget = widgets.VBox([title, self.rows.table, buttons, self.verdict, self.code, self.details])
        self.widget.add_class("jm-panel")
        self.retrace()

    def _button(self, text: str, tooltip: str, action: Callable[[], None]) -> Any:
        button = widgets.Button(description=text, tooltip=tooltip, layout=widgets.Layout(width="auto"))
        button.on_click(lambda _: action())
        return button

    def _changed(self, change: object) -> None:
        self.code.value = ""
        self.retrace()

    # -- buttons

    def retrace(self) -> None:
        """Trace with the chosen settings, on shapes alone: nothing runs, no device is needed."""

        def work() -> None:
            checker = self._checker(rehearse=False)
            args, kwargs = self.rows.shapes()
            checker.seen.count = 1
            checker.diagnose(tuple(args), kwargs)
            self._show(checker)

        self._run("tracing", work)

    def check(self) -> None:
        """Diagnose the last call with the chosen settings on its real values; fixes are tried."""

        def work() -> None:
            checker = self._checker(rehearse=True)
            checker.seen.count = 1
            checker.diagnose(self.rows.sample.args, self.rows.sample.kwargs)
            self._show(checker, "checked on the last call")

        self._run("checking", work)

    def time(self) -> None:
        """Compile and time on the values of the last call."""

        def work() -> None:
            checker, sample = self._checker(rehearse=True), self.rows.sample
            checker.settings = replace(checker.settings, compile=True, time=True)
            with quiet.undone(checker.reach(sample.args, sample.kwargs)), quiet.held_back():
                try:
                    checker.call(sample.args, sample.kwargs)
                except Exception:
                    if not checker.seen.problems:
                        raise
            self._show(checker, "timed on the last call")

        self._run("compiling and timing", work)

    def apply(self) -> None:
        """Let the notebook's function be compiled with the chosen settings from its next call on."""

        def work() -> None:
            self.checker.options, self.checker.dyn = self.rows.settings()
            self.checker.start_over()
            self.verdict.value = markup.line("applied: the next call compiles with these settings", "ok")
            self.code.value = markup.into_cell(self.checker.cell, [self._as_it_is_set()])

        self._run("applying", work)

    def show_code(self) -> None:
        """The settings as code to copy, and the cell's own magic line with them."""
        own = markup.into_cell(self.checker.cell, [self._as_it_is_set()])
        self.code.value = markup.with_button(self.as_code()) + own

    def as_code(self) -> str:
        """The settings as a `%%jit` line and as Python."""
        return markup.as_code(self.checker.name, *self.rows.settings())

    def _as_it_is_set(self) -> tuple[str, Fix]:
        return "as it is set here", markup.as_fix(*self.rows.settings(), self.checker.options)

    # -- running

    def _checker(self, *, rehearse: bool) -> Checker:
        options, dyn = self.rows.settings()
        old = self.checker
        checker = Checker(
            old.fn, old.name, options=options, dyn=dyn, namespace=old.namespace, cell=old.cell,
            settings=replace(old.settings, rehearse=rehearse, compile=False),
        )  # fmt: skip
        checker.what_if = old.what_if
        return checker

    def _run(self, what: str, work: Callable[[], None]) -> None:
        if self._cell_runs or not self._busy.acquire(blocking=False):
            busy = "a cell has run" if self._cell_runs else "the last step is done"
            self.verdict.value = markup.line(f"busy: wait until {busy}", "warning")
            return
        try:
            with self._disabled():
                if self._is_of_an_older_function():
                    old = (
                        f"{self.checker.name} was defined again since: run its cell with -w for a panel of it"
                    )
                    self.verdict.value = markup.line(old, "warning")
                    return
                self.verdict.value = markup.line(f"{what} …")
                work()
        except Exception as exc:
            message = " ".join(str(exc).split())[:300]
            self.verdict.value = markup.line(f"{type(exc).__name__}: {message}", "error")
        finally:
            self._busy.release()

    def _is_of_an_older_function(self) -> bool:
        """The notebook's name stands for another function by now, and nothing there for this one."""
        values = list(self.checker.namespace.values())
        classes = [v for v in values if isinstance(v, type) and v.__module__ == "__main__"]
        held = [*values, *(method for c in classes for method in vars(c).values())]
        if any(v is self.checker.original or checker_of(v) is self.checker for v in held):
            return False
        return callable(self.checker.namespace.get(self.checker.name.partition(".")[0]))

    @contextmanager
    def _disabled(self) -> Iterator[None]:
        self._enable(False)
        try:
            yield
        finally:
            self._enable(True)

    def _enable(self, on: bool) -> None:
        for control in (*self.buttons, *self.rows.controls()):
            control.disabled = not on

    def kernel_busy(self, busy: bool) -> None:
        """A cell has begun, or ended: one that takes a while is told, as nothing here can be answered meanwhile."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting.join()
            self._waiting = None
        self._cell_runs = busy
        if busy:
            self._waiting = threading.Timer(BUSY_AFTER_S, self._say_busy)
            self._waiting.daemon = True
            self._waiting.start()
        elif self._before_busy is not None:
            self.verdict.value, self._before_busy = self._before_busy, None
            self._enable(True)

    def _say_busy(self) -> None:
        self._before_busy = self.verdict.value
        self._enable(False)
        busy = "the kernel is busy with a cell: the panel waits for its end"
        self.verdict.value = markup.line(busy, "warning")

    # -- results

    def _show(self, checker: Checker, done: str = "") -> None:
        self.report = corrections.report_of([checker])
        self.rows.grow(checker)
        said, tone = markup.verdict(self.report)
        needed, kinds = self.rows.compilations()
        if kinds and tone == "ok":
            said += f"; {counted(needed, 'compilation')} for the {counted(kinds, 'kind')} of call seen"
        said += f"; {done}" if done else ""
        buttons = markup.into_cell(checker.cell, markup.proved(self.report))
        self.verdict.value = markup.line(said, tone) + buttons
        opened = " open" if "<details open" in self.details.value else ""
        summary = '<summary style="cursor:pointer">the report with these settings</summary>'
        self.details.value = f"<details{opened}>{summary}{self.report.to_html()}</details>"

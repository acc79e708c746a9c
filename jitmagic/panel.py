"""The interactive panel of `%%jit -w`: which argument is static, which variable dynamic, and what follows.

Core ipywidgets only. Every change traces again on shapes alone (no device, nothing runs); what runs the function
waits for its button. One thing runs at a time: a callback that comes in meanwhile is refused, and the widgets are
disabled while work is under way or a cell runs. (With some kernels callbacks run in another thread than the cell.)
Two things a kernel can't do, writing into a cell and copying, are HTML buttons that the in-editor layer shows and
serves (lab/src/panel.ts); without it the same text can be selected.
"""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from jitmagic import checking, quiet
from jitmagic.correction import corrected
from jitmagic.render.html import EDGES, color
from jitmagic.render.parts import Tone
from jitmagic.report import Fix, FunctionReport, Report
from jitmagic.state import paths
from jitmagic.state.values import short
from jitmagic.tracing import leaves, search
from jitmagic.units import counted, scaled, times

ROWS = 16
"""Variables that get a row."""

BUSY_AFTER_S = 0.4
"""A cell that runs longer is said to keep the kernel busy."""

DTYPES = {"f": "float", "i": "int", "u": "uint", "c": "complex", "bf": "bfloat"}
_SHAPE = re.compile(r"\s*(bf|f|i|u|c)(\d+)\s*\[\s*([\d,\s]*)\]\s*$|\s*bool\s*\[\s*([\d,\s]*)\]\s*$")


def parse_type(text: str) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of `f32[10,3]` or `bool[4]`. Raises ValueError saying what the form is."""
    match = _SHAPE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no array type; write it like f32[10,3] or bool[4]")
    kind, bits, sizes, of_bool = match.groups()
    shape = tuple(int(n) for n in (sizes if of_bool is None else of_bool).split(",") if n.strip())
    return shape, "bool" if of_bool is not None else f"{DTYPES[kind]}{bits}"


_BUSY = threading.Lock()


class Panel:
    """One function's panel; `widget` is what is displayed."""

    def __init__(self, checker: checking.Checker) -> None:
        self.checker = checker
        self.sample = checker.seen.samples[-1]
        self._busy = _BUSY
        self._cell_runs = False
        self._before_busy: str | None = None
        self._waiting: threading.Timer | None = None
        self.arguments = leaves.bound_arguments(checker.fn, self.sample.args, self.sample.kwargs)
        self.roles: dict[str, Any] = {}
        self.types: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
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
            f"<b>{_code(checker.name)}</b>: what is static, dynamic or constant, and what follows"
        )
        buttons = widgets.HBox(self.buttons, layout=widgets.Layout(flex_flow="row wrap"))
        self.table = self._table()
        parts = [title, self.table, buttons, self.verdict, self.code, self.details]
        self.widget = widgets.VBox(parts)
        self.retrace()

    # -- rows

    def _table(self) -> Any:
        """A row for each argument, for each variable known so far, and for what was declared dynamic."""
        table = widgets.VBox([self._argument(name, path, value) for name, path, value in self.arguments])
        self._grow(table, self.checker)
        declared = paths.split_paths(self.checker.dyn) if isinstance(self.checker.dyn, str) else []
        unknown = [path for path in declared if path not in self.state and path != "auto"]
        table.children += tuple(self._variable(path, "dynamic", "") for path in unknown)
        return table

    def _grow(self, table: Any, checker: checking.Checker) -> None:
        """Rows for variables that a trace has found and that have none."""
        found = [v for v in checker.seen.variables.values() if v.type in ("array", "scalar")]
        new = [v for v in found if v.path not in self.state and v.path not in self.roles]
        for v in new[: max(ROWS - len(self.state), 0)]:
            what = v.value or f"{v.dtype or ''}{list(v.shape or ())}"
            table.children += (self._variable(v.path, v.role, what),)

    def _argument(self, name: str, path: str, value: Any) -> Any:
        reason = search.why_not_static(value)
        declared = name in self.checker.options.static_parameters(self.checker.fn)
        options = ["dynamic", "static"] if reason is None or declared else ["dynamic"]
        role = self._switch(path, options, "static" if declared else "dynamic")
        self.roles[path] = role
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            text = widgets.Text(value=short(value), continuous_update=False, layout=_width("11em"))
            text.tooltip = "shape and dtype to trace with, like f32[10,3]"
            text.observe(self._changed, "value")
            self.types[path] = text
            return _row(path, role, text)
        why = f" (dynamic: {reason})" if reason and not declared else ""
        return _row(path, role, widgets.HTML(_code(short(value)) + html.escape(why)))

    def _variable(self, path: str, role: str, what: str) -> Any:
        switch = self._switch(path, ["constant", "dynamic"], role)
        self.state[path] = switch
        return _row(path, switch, widgets.HTML(_code(what)))

    def _switch(self, path: str, options: list[str], value: str) -> Any:
        switch = widgets.ToggleButtons(
            options=options, value=value, tooltips=[f"{path}: {option}" for option in options]
        )
        switch.style.button_width = "6em"
        switch.observe(self._changed, "value")
        return switch

    def _button(self, text: str, tooltip: str, action: Callable[[], None]) -> Any:
        button = widgets.Button(description=text, tooltip=tooltip, layout=_width("auto"))
        button.on_click(lambda _: action())
        return button

    def _changed(self, change: Any) -> None:
        self.code.value = ""
        self.retrace()

    # -- what the rows say

    def settings(self) -> tuple[Any, str | None]:
        """Options and dynamic variables as chosen."""
        names, numbers = [], []
        order = list(dict.fromkeys(name for name, _, _ in self.arguments))
        for path, role in self.roles.items():
            if role.value == "static":
                match = re.fullmatch(r"(\w+)\[(\d+)\]", path)
                numbers.append(order.index(match[1]) + int(match[2])) if match else names.append(path)
        options = replace(self.checker.options, static_argnames=tuple(names), static_argnums=tuple(numbers))
        dynamic = [path for path, role in self.state.items() if role.value == "dynamic"]
        given = self.checker.dyn
        if given is not None and (given == "auto" or not isinstance(given, str)) and not self.state:
            return options, given  # what it stands for is not known before a trace
        return options, ",".join(dynamic) or None

    def shapes(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the last call, arrays as shapes with the types that the rows show."""
        import jax

        def value(path: str, given: Any) -> Any:
            if path not in self.types:
                return given
            shape, dtype = parse_type(self.types[path].value)
            return jax.ShapeDtypeStruct(shape, dtype)

        given = {path: value(path, v) for _, path, v in self.arguments}
        args, kwargs = search.rebuild(self.sample.args, self.sample.kwargs, self.arguments, given)
        return tuple(args), kwargs

    def compilations(self) -> tuple[int, int]:
        """How many programs the kinds of call on record need with these settings, and how many kinds these are."""
        static = {path for path, role in self.roles.items() if role.value == "static"}

        def key(call: Any) -> tuple[Any, ...]:
            return tuple(
                (x.path, x.value) if x.argument in static or x.path in static
                else (x.path, x.shape, x.dtype, x.weak_type, x.python_type)
                for x in call.leaves
            )  # fmt: skip

        calls = self.checker.seen.calls
        return len({key(call) for call in calls}), len({call.leaves for call in calls})

    # -- buttons

    def retrace(self) -> None:
        """Trace with the chosen settings, on shapes alone: nothing runs, no device is needed."""

        def work() -> None:
            checker = self._checker(rehearse=False)
            args, kwargs = self.shapes()
            checker.seen.count = 1
            checker.diagnose(tuple(args), kwargs)
            self._show(checker)

        self._run("tracing", work)

    def check(self) -> None:
        """Diagnose the last call with the chosen settings on its real values; fixes are tried."""

        def work() -> None:
            checker = self._checker(rehearse=True)
            checker.seen.count = 1
            checker.diagnose(self.sample.args, self.sample.kwargs)
            self._show(checker)

        self._run("checking", work)

    def time(self) -> None:
        """Compile and time on the values of the last call."""

        def work() -> None:
            checker = self._checker(rehearse=True)
            checker.settings = replace(checker.settings, compile=True, time=True)
            with quiet.undone(checker.reach(self.sample.args, self.sample.kwargs)), quiet.held_back():
                try:
                    checker.call(self.sample.args, self.sample.kwargs)
                except Exception:
                    if not checker.seen.problems:
                        raise
            self._show(checker)

        self._run("compiling and timing", work)

    def apply(self) -> None:
        """Let the notebook's function be compiled with the chosen settings from its next call on."""

        def work() -> None:
            self.checker.options, self.checker.dyn = self.settings()
            self.checker.clear_cache()
            self.verdict.value = _line("applied: the next call compiles with these settings", "ok")
            self.code.value = self._into_cell([("as it is set here", self._as_fix())])

        self._run("applying", work)

    def show_code(self) -> None:
        """The settings as code to copy, and the cell's own magic line with them."""
        text = html.escape(self.as_code(), quote=True)
        copy = f'<button hidden class="jupyter-button jm-copy" data-jm-text="{text}">copy</button>'
        own = self._into_cell([("as it is set here", self._as_fix())])
        self.code.value = f'<pre style="{PRE}">{text}</pre>{copy}{own}'

    def as_code(self) -> str:
        """The settings as a `%%jit` line and as Python."""
        options, dyn = self.settings()
        names, numbers = options.static_argnames, options.static_argnums
        flags = [f"-f {self.checker.name}"]
        flags += [f"--static {','.join(names)}"] if names else []
        flags += [f"--static-argnums {','.join(map(str, numbers))}"] if numbers else []
        flags += [f'--dyn "{dyn}"'] if dyn else []
        call = [
            self.checker.name,
            *(f"{k}={v!r}" for k, v in options.kwargs().items() if k.startswith("static")),
        ]
        call += [f"dyn_vars={dyn!r}"] if dyn else []
        return f"%%jit {' '.join(flags)}\n{'jitmagic' if dyn else 'jax'}.jit({', '.join(call)})"

    def _as_fix(self) -> Fix:
        options, dyn = self.settings()
        numbers = options.static_argnums
        return Fix(
            "as it is set here", static_argnames=options.static_argnames,
            static_argnums=numbers if numbers or self.checker.options.static_argnums else None,
            dyn=tuple((dyn or "").split(",")) if dyn else (),
        )  # fmt: skip

    # -- writing into the cell

    def _into_cell(self, fixes: Sequence[tuple[str, Fix]]) -> str:
        """For each change a button that writes it into the cell; the in-editor layer shows and serves them."""
        cell = self.checker.cell
        out = []
        for title, fix in fixes:
            after = corrected(cell.text, fix) if cell.text else ""
            if after and after != cell.text:
                data = f'data-jm-cell="{_quoted(cell.id or "")}" data-jm-before="{_quoted(cell.text)}"'
                label = f"Put into the cell: {html.escape(title)}"
                out.append(f'<button hidden class="jupyter-button jm-write" style="width:auto" {data} '
                           f'data-jm-after="{_quoted(after)}">{label}</button>')  # fmt: skip
        return f"<div>{' '.join(out)}</div>" if out else ""

    def _proved(self) -> list[tuple[str, Fix]]:
        found = self.report.findings if self.report is not None else ()
        fixes = {x.title: x for f in found for x in f.fixes if x.verified and x.applicability != "display"}
        return list(fixes.items())

    # -- running

    def _checker(self, *, rehearse: bool) -> checking.Checker:
        options, dyn = self.settings()
        old = self.checker
        return checking.Checker(
            old.fn, old.name, options=options, dyn=dyn, namespace=old.namespace, cell=old.cell,
            settings=replace(old.settings, rehearse=rehearse, compile=False),
        )  # fmt: skip

    def _run(self, what: str, work: Callable[[], None]) -> None:
        if self._cell_runs or not self._busy.acquire(blocking=False):
            busy = "a cell has run" if self._cell_runs else "the last step is done"
            self.verdict.value = _line(f"busy: wait until {busy}", "warning")
            return
        try:
            with self._disabled():
                self.verdict.value = _line(f"{what} …")
                work()
        except Exception as exc:
            message = " ".join(str(exc).split())[:300]
            self.verdict.value = _line(f"{type(exc).__name__}: {message}", "error")
        finally:
            self._busy.release()

    @contextmanager
    def _disabled(self) -> Iterator[None]:
        self._enable(False)
        try:
            yield
        finally:
            self._enable(True)

    def _enable(self, on: bool) -> None:
        for control in (*self.buttons, *self.roles.values(), *self.types.values(), *self.state.values()):
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
        self.verdict.value = _line("the kernel is busy with a cell: the panel waits for its end", "warning")

    # -- results

    def _show(self, checker: checking.Checker) -> None:
        self.report = checking.assemble([checker])
        self._grow(self.table, checker)
        [function] = self.report.functions
        tone: Tone = "error" if function.verdict == "fails" else "ok"
        needed, kinds = self.compilations()
        count = (
            f"{counted(needed, 'compilation')} for the {counted(kinds, 'kind')} of call seen" if kinds else ""
        )
        words = [_verdict(function, self.report), count if function.verdict != "fails" else ""]
        self.verdict.value = _line("; ".join(filter(None, words)), tone) + self._into_cell(self._proved())
        opened = " open" if "<details open" in self.details.value else ""
        summary = '<summary style="cursor:pointer">the report with these settings</summary>'
        self.details.value = f"<details{opened}>{summary}{self.report.to_html()}</details>"


def _verdict(function: FunctionReport, report: Report) -> str:
    errors = sum(f.severity == "error" for f in report.findings)
    if function.verdict == "fails":
        return f"✗ fails to trace: {counted(errors, 'problem')}"
    flops = f", {scaled(function.cost.flops, 'flop')}" if function.cost.flops else ""
    speedup = function.timing.speedup
    ratio = f"; compiled {times(speedup)} as fast as without jit" if speedup else ""
    return f"✓ traces{flops}{ratio}"


PRE = (
    "margin:4px 0;padding:4px 8px;background-color:rgba(127,127,127,0.1);color:inherit;user-select:all;"
    "white-space:pre"
)


def _line(text: str, tone: Tone = "note") -> str:
    """The panel's one line about how things stand."""
    style = f"border-left:4px solid {EDGES[tone]};padding:2px 8px;{color(tone)}"
    return f'<div role="status" style="{style}"><b>{html.escape(text)}</b></div>'


def _quoted(text: str) -> str:
    return html.escape(text, quote=True).replace("\n", "&#10;")


def _code(text: str) -> str:
    return f'<code style="background-color:transparent;color:inherit">{html.escape(text)}</code>'


def _row(path: str, role: Any, what: Any) -> Any:
    label = widgets.HTML(_code(path), layout=_width("12em"))
    return widgets.HBox(
        [label, role, what], layout=widgets.Layout(flex_flow="row wrap", align_items="center")
    )


def _width(width: str) -> Any:
    return widgets.Layout(width=width)

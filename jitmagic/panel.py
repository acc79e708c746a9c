"""The interactive panel of `%%jit -w`: which argument is static, which variable dynamic, and what follows.

Core ipywidgets only. Every change traces again on shapes alone (no device, nothing runs); compiling and timing
wait for their button. One thing runs at a time: a callback that comes in meanwhile is refused, and the widgets are
disabled while work is under way. (With some kernels callbacks run in another thread than the cell.)
"""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from jitmagic import checking, quiet
from jitmagic.report import FunctionReport, Report
from jitmagic.state.values import short
from jitmagic.tracing import leaves, search

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


class Panel:
    """One function's panel; `widget` is what is displayed."""

    def __init__(self, checker: checking.Checker) -> None:
        self.checker = checker
        self.sample = checker.seen.samples[-1]
        self._busy = threading.Lock()
        self.arguments = leaves.bound_arguments(checker.fn, self.sample.args, self.sample.kwargs)
        self.roles: dict[str, Any] = {}
        self.types: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
        self.verdict = widgets.HTML()
        self.details = widgets.HTML()
        self.code = widgets.HTML()
        self.report: Report | None = None
        self.buttons = [
            self._button("check", "trace with these settings", self.check),
            self._button("compile and time", "compile and time on the values of the last call", self.time),
            self._button("apply", "let the notebook's function use these settings", self.apply),
            self._button("show as code", "the jax.jit call and the %%jit line", self.show_code),
        ]
        self.widget = widgets.VBox(
            [
                widgets.HTML(f"<b>{html.escape(checker.name)}</b>"),
                self._table(),
                widgets.HBox(self.buttons),
                self.verdict,
                self.code,
                self.details,
            ]
        )
        self.check()

    # -- rows

    def _table(self) -> Any:
        rows: list[Any] = [self._argument(name, path, value) for name, path, value in self.arguments]
        rows += [
            self._variable(v) for v in self.checker.seen.variables.values() if v.type in ("array", "scalar")
        ]
        return widgets.VBox(rows)

    def _argument(self, name: str, path: str, value: Any) -> Any:
        reason = search.why_not_static(value)
        declared = name in self.checker.options.static_parameters(self.checker.fn)
        options = ["dynamic", "static"] if reason is None or declared else ["dynamic"]
        role = widgets.Dropdown(
            options=options, value="static" if declared else "dynamic", layout=_width("8em")
        )
        role.tooltip = f"{path}: {reason or 'may be static'}"
        role.observe(self._changed, "value")
        self.roles[path] = role
        cells = [_label(path), role]
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            text = widgets.Text(value=short(value), continuous_update=False, layout=_width("10em"))
            text.observe(self._changed, "value")
            self.types[path] = text
            cells.append(text)
        else:
            cells.append(_label(short(value)))
        return widgets.HBox(cells)

    def _variable(self, variable: Any) -> Any:
        role = widgets.Dropdown(options=["constant", "dynamic"], value=variable.role, layout=_width("8em"))
        role.observe(self._changed, "value")
        self.state[variable.path] = role
        return widgets.HBox([_label(variable.path), role, _label(variable.value or variable.dtype or "")])

    def _button(self, text: str, tooltip: str, action: Callable[[], None]) -> Any:
        button = widgets.Button(description=text, tooltip=tooltip, layout=_width("auto"))
        button.on_click(lambda _: action())
        return button

    def _changed(self, change: Any) -> None:
        self.check()

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
        dyn = ",".join(path for path, role in self.state.items() if role.value == "dynamic")
        return options, dyn or None

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

    # -- buttons

    def check(self) -> None:
        """Trace with the chosen settings, on shapes alone."""

        def work() -> None:
            checker = self._checker(rehearse=False)
            args, kwargs = self.shapes()
            checker.seen.count = 1
            checker.diagnose(tuple(args), kwargs)
            self._show(checker)

        self._run("tracing", work)

    def time(self) -> None:
        """Compile and time on the values of the last call."""

        def work() -> None:
            checker = self._checker(rehearse=True)
            checker.settings = replace(checker.settings, compile=True, time=True)
            with quiet.undone(checker.reach(self.sample.args, self.sample.kwargs)), quiet.held_back():
                checker.call(self.sample.args, self.sample.kwargs)
            self._show(checker)

        self._run("compiling and timing", work)

    def apply(self) -> None:
        """Let the notebook's function be compiled with the chosen settings from its next call on."""

        def work() -> None:
            self.checker.options, self.checker.dyn = self.settings()
            self.checker.clear_cache()
            self.verdict.value = _line("applied: the next call compiles with these settings")

        self._run("applying", work)

    def show_code(self) -> None:
        """The `jax.jit` call and the `%%jit` line that mean the same."""
        self.code.value = f"<pre>{html.escape(self.as_code())}</pre>"

    def as_code(self) -> str:
        """The settings as a `%%jit` line and as Python."""
        options, dyn = self.settings()
        flags = [f"-f {self.checker.name}"]
        flags += [f"--static {','.join(options.static_argnames)}"] if options.static_argnames else []
        flags += (
            [f"--static-argnums {','.join(map(str, options.static_argnums))}"]
            if options.static_argnums
            else []
        )
        flags += [f'--dyn "{dyn}"'] if dyn else []
        call = [
            self.checker.name,
            *(f"{k}={v!r}" for k, v in options.kwargs().items() if k.startswith("static")),
        ]
        call += [f"dyn_vars={dyn!r}"] if dyn else []
        return f"%%jit {' '.join(flags)}\n{'jitmagic' if dyn else 'jax'}.jit({', '.join(call)})"

    # -- running

    def _checker(self, *, rehearse: bool) -> checking.Checker:
        options, dyn = self.settings()
        old = self.checker
        return checking.Checker(
            old.fn, old.name, options=options, dyn=dyn, namespace=old.namespace, cell=old.cell,
            settings=replace(old.settings, rehearse=rehearse, compile=False),
        )  # fmt: skip

    def _run(self, what: str, work: Callable[[], None]) -> None:
        if not self._busy.acquire(blocking=False):
            self.verdict.value = _line("busy: wait until the last step is done")
            return
        try:
            with self._disabled():
                self.verdict.value = _line(f"{what} …")
                work()
        except Exception as exc:
            self.verdict.value = _line(f"{type(exc).__name__}: {' '.join(str(exc).split())[:300]}")
        finally:
            self._busy.release()

    @contextmanager
    def _disabled(self) -> Iterator[None]:
        for button in self.buttons:
            button.disabled = True
        try:
            yield
        finally:
            for button in self.buttons:
                button.disabled = False

    def _show(self, checker: checking.Checker) -> None:
        self.report = checking.assemble([checker])
        [function] = self.report.functions
        self.verdict.value = _line(_verdict(function, self.report))
        self.details.value = self.report.to_html()


def _verdict(function: FunctionReport, report: Report) -> str:
    errors = sum(f.severity == "error" for f in report.findings)
    if function.verdict == "fails":
        return f"fails to trace: {errors} problem{'s' if errors != 1 else ''}"
    flops = f", {function.cost.flops:,.0f} flop" if function.cost.flops else ""
    ratio = f", {function.timing.speedup:.2g} times as fast as without jit" if function.timing.speedup else ""
    return f"traces{flops}; {function.compiles} compiled{ratio}"


def _line(text: str) -> str:
    return f"<b>{html.escape(text)}</b>"


def _label(text: str) -> Any:
    return widgets.HTML(f"<code>{html.escape(text)}</code>", layout=_width("14em"))


def _width(width: str) -> Any:
    return widgets.Layout(width=width)

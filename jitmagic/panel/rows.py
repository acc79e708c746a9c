"""The rows of the panel: a switch for each argument and variable, and the types to trace with."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import ipywidgets as widgets
import jax

from jitmagic.checking.checker import Checker
from jitmagic.checking.seen import KeptCall
from jitmagic.evidence import Call
from jitmagic.options import JitOptions
from jitmagic.panel.markup import code
from jitmagic.state import paths
from jitmagic.state.values import is_a, is_array, short
from jitmagic.tracing import leaves
from jitmagic.tracing import minimal_static as search
from jitmagic.units import array_type, counted

ROWS = 16
"""Arguments, and variables, that get a row; the others stay as they are."""

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


class Rows:
    """What is chosen for one function; `changed` is called at every change."""

    def __init__(self, checker: Checker, changed: Callable[[object], None]) -> None:
        self.checker, self.changed = checker, changed
        call = checker.seen.samples[-1]
        self.sample = KeptCall(call.args, call.kwargs)
        self.arguments = leaves.bound_arguments(checker.fn, self.sample.args, self.sample.kwargs)
        self.declared = {path for name, path, _ in self.arguments if self._is_declared(name, path)}
        self.roles: dict[str, Any] = {}
        self.types: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
        self.apart: dict[str, str] = {}
        """Roles of the variables beyond those that have rows."""
        self.more = widgets.HTML()
        self.table = widgets.VBox()
        self._fill()

    def _fill(self) -> None:
        """A row for each argument, for each variable known so far, and for what was declared dynamic."""
        shown = self.arguments[:ROWS]
        self._add(self._argument(path, value) for _, path, value in shown)
        self.grow(self.checker)
        dyn = self.checker.dyn
        listed = paths.split_paths(dyn) if isinstance(dyn, str) else []
        self._add(
            self._variable(path, "dynamic", "")
            for path in listed
            if path not in self.state and path not in self.apart and path != "auto"
        )

    def _number(self, path: str) -> int | None:
        """Position of one of `*args`, which has no name of its own."""
        match = re.fullmatch(r"(\w+)\[(\d+)\]", path)
        order = list(dict.fromkeys(name for name, _, _ in self.arguments))
        return order.index(match[1]) + int(match[2]) if match and match[1] in order else None

    def _is_declared(self, name: str, path: str) -> bool:
        options, number = self.checker.options, self._number(path)
        if number is not None and options.static_argnums:
            return number in options.static_argnums
        return name in options.static_parameters(self.checker.fn)

    def _add(self, rows: Iterable[object]) -> None:
        self.table.children = (*(c for c in self.table.children if c is not self.more), *rows, self.more)

    def grow(self, checker: Checker) -> None:
        """Rows for variables that a trace has found and that have none."""
        found = [v for v in checker.seen.variables.values() if v.type in ("array", "scalar")]
        new = [v for v in found if not ({v.path} & {*self.state, *self.roles, *self.apart})]
        room = max(ROWS - len(self.state), 0)
        self._add(
            self._variable(v.path, v.role, v.value or (array_type(v.dtype, v.shape) if v.dtype else ""))
            for v in new[:room]
        )
        self.apart |= {v.path: v.role for v in new[room:]}
        self._count_others()

    def _count_others(self) -> None:
        others = [(len(self.arguments) - ROWS, "argument"), (len(self.apart), "variable")]
        words = " and ".join(counted(n, f"more {noun}") for n, noun in others if n > 0)
        self.more.value = f"<i>… {words}, as they are</i>" if words else ""

    def _argument(self, path: str, value: object) -> object:
        reason = search.why_not_static(value)
        declared = path in self.declared
        options = ["dynamic", "static"] if reason is None or declared else ["dynamic"]
        role = self._switch(path, options, "static" if declared else "dynamic")
        if len(options) == 1:
            role.tooltips = [f"{path}: dynamic; it can't be static, as it is {reason}"]
        self.roles[path] = role
        if is_array(value) or is_a(value, jax.ShapeDtypeStruct):
            text = widgets.Text(value=short(value), continuous_update=False, layout=_width("11em"))
            text.tooltip = f"{path}: shape and dtype to trace with, like f32[10,3]"
            text.observe(self.changed, "value")
            self.types[path] = text
            return _row(path, role, text)
        return _row(path, role, widgets.HTML(code(short(value))))

    def _variable(self, path: str, role: str, what: str) -> object:
        switch = self._switch(path, ["constant", "dynamic"], role)
        self.state[path] = switch
        return _row(path, switch, widgets.HTML(code(what)))

    def _switch(self, path: str, options: list[str], value: str) -> Any:
        switch = widgets.ToggleButtons(
            options=options, value=value, tooltips=[f"{path}: {option}" for option in options]
        )
        switch.style.button_width = "7.5em"
        switch.observe(self.changed, "value")
        return switch

    def controls(self) -> tuple[widgets.Widget, ...]:
        """Everything that can be changed."""
        return (*self.roles.values(), *self.types.values(), *self.state.values())

    # -- what they say

    def _static(self) -> set[str]:
        """Paths of the static arguments; those without a row are as declared."""
        shown = {path for path, role in self.roles.items() if role.value == "static"}
        return shown | {path for _, path, _ in self.arguments[ROWS:] if path in self.declared}

    def settings(self) -> tuple[JitOptions, str | None]:
        """Options and dynamic variables as chosen."""
        static = self._static()
        chosen = [(path, self._number(path)) for _, path, _ in self.arguments if path in static]
        names = tuple(path for path, number in chosen if number is None)
        numbers = tuple(number for _, number in chosen if number is not None)
        options = replace(self.checker.options, static_argnames=names, static_argnums=numbers)
        dynamic = [path for path, role in self.state.items() if role.value == "dynamic"]
        dynamic += [path for path, role in self.apart.items() if role == "dynamic"]
        given = self.checker.dyn
        if given is not None and (given == "auto" or not isinstance(given, str)) and not self.state:
            return options, given  # what it stands for is not known before a trace
        return options, ",".join(dynamic) or None

    def shapes(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments of the last call, arrays as shapes with the types that the rows show."""

        def value(path: str, given: object) -> object:
            if path not in self.types:
                return given
            shape, dtype = parse_type(self.types[path].value)
            return jax.ShapeDtypeStruct(shape, dtype)

        given = {path: value(path, v) for _, path, v in self.arguments}
        args, kwargs = search.rebuild(self.sample.args, self.sample.kwargs, self.arguments, given)
        return tuple(args), kwargs

    def compilations(self) -> tuple[int, int]:
        """How many programs the kinds of call on record need with these settings, and how many kinds these are."""
        static = self._static()

        def key(call: Call) -> tuple[object, ...]:
            return tuple(
                (x.path, x.value) if x.argument in static or x.path in static
                else (x.path, x.shape, x.dtype, x.weak_type, x.python_type)
                for x in call.leaves
            )  # fmt: skip

        calls = self.checker.seen.calls
        return len({key(call) for call in calls}), len({call.leaves for call in calls})


def _row(path: str, role: object, what: object) -> object:
    label = widgets.HTML(
        f'<span title="{html.escape(path, quote=True)}">{code(path)}</span>', layout=_width("12em")
    )
    return widgets.HBox(
        [label, role, what], layout=widgets.Layout(flex_flow="row wrap", align_items="center")
    )


def _width(width: str) -> object:
    return widgets.Layout(width=width)

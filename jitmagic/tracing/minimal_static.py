"""The smallest set of leaves that, made static, lets a function trace.

Grow by the culprits of each failing trace, then drop one at a time. Traces run on shapes alone and on fresh
function objects, so nothing is computed and no cache of the user's is touched. For k leaves at most 2k traces.
"""

from __future__ import annotations

import enum
import functools
import inspect
import random
import re
import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jitmagic import work
from jitmagic.evidence import Problem, root
from jitmagic.options import parameters_of
from jitmagic.tracing import leaves as leaves_
from jitmagic.tracing.locate import locate
from jitmagic.tracing.unwinding import let_go

MAX_GROWTH = 8
_FUNCTIONS = ("PjitFunction", "CustomJVPFunction", "custom_jvp", "ufunc")

Arguments = Sequence[tuple[str, str, object]]
"""(parameter, path, value) of each argument of a call."""


@dataclass(frozen=True)
class StaticSearch:
    """`leaves` is None where no set of static leaves helps; `argnames` and `argnums` are the whole list,
    with what the user had declared."""

    leaves: tuple[str, ...] | None
    argnames: tuple[str, ...] = ()
    argnums: tuple[int, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    traces: int = 0
    errors: tuple[Problem, ...] = ()


def smallest_static(
    fn: Callable[..., object],
    args: Sequence[object],
    kwargs: object,
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
    suspects: Sequence[str] = (),
    stored: Sequence[str] = (),
    budget_s: float = 5.0,
) -> StaticSearch:
    """Search for the smallest static set, starting from the leaves in `suspects`.

    Of what is only `stored` into an array no fractions are tried: they are data, and a store can be written otherwise.
    Arrays, lists, dicts and objects with state of their own are never made static: they stand in `refused`
    with the reason. The caller proves the result through `jax.jit` and restores state that a trace changes.
    """
    search = _Search(fn, args, kwargs, leaves_.static_names(fn, static_argnums, static_argnames), budget_s)
    found = search.run([*suspects, *(path for path in stored if path not in search.fractions)])
    if found is None:
        return StaticSearch(None, refused=tuple(search.refused.items()), traces=search.traces,
                            errors=tuple(search.errors))  # fmt: skip
    names, numbers = _spelled(fn, found, static_argnums, static_argnames)
    return StaticSearch(tuple(sorted(found)), names, numbers, tuple(search.refused.items()), search.traces,
                        tuple(search.errors))  # fmt: skip


def why_not_static(value: object) -> str | None:
    """Why this argument must not be static, or None where it may be."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return "an array"
    if isinstance(value, list):
        return "a list: pass a tuple"
    if isinstance(value, dict):
        return "a dict: pass what is needed by itself"
    if inspect.getattr_static(type(value), "__next__", None):
        return "an iterator: what it gives would be used once and for ever"
    if is_random(value):
        return "a random generator: what it draws first would be used for ever"
    plain = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType, enum.Enum)
    if isinstance(value, plain):
        return None
    if isinstance(value, (tuple, frozenset)):
        reasons = (why_not_static(v) for v in value)
        return next((f"it holds {r}" for r in reasons if r), None)
    if isinstance(value, functools.partial):
        return why_not_static((*value.args, *value.keywords.values()))
    if inspect.isroutine(value) or type(value).__name__ in _FUNCTIONS:
        return None
    if callable(value) and (hasattr(value, "__wrapped__") or not getattr(value, "__dict__", None)):
        return None
    fixed = leaves_.is_hashable(value) and not hasattr(value, "__dict__")
    return None if fixed else "an object that can change"


def is_random(value: object) -> bool:
    """A random generator of NumPy's or Python's: each draw changes it."""
    return isinstance(value, (np.random.Generator, np.random.RandomState, random.Random))


class _Search:
    def __init__(
        self,
        fn: Callable[..., object],
        args: Sequence[object],
        kwargs: object,
        declared: set[str],
        budget_s: float,
    ) -> None:
        self.fn, self.args, self.kwargs, self.declared = fn, args, kwargs, declared
        self.arguments = leaves_.bound_arguments(fn, args, kwargs)
        self.values = {path: value for _, path, value in self.arguments}
        self.fractions = {p for p, v in self.values.items() if isinstance(v, (float, complex))}
        self.traces, self.errors = 0, list[Problem]()
        self.refused: dict[str, str] = {}
        self.deadline = work.clock() + budget_s

    def run(self, suspects: Sequence[str]) -> set[str] | None:
        static = {
            path
            for _, path, v in self.arguments
            if not self._is_declared(path) and self._no_jax_type(path, v)
        }
        static |= self._allowed(suspects)
        if not static and suspects:
            return None  # the trace that failed is all there is to try
        growth, needed = 0, set[str]()
        while (problem := self._problem_with(static)) is not None:
            growth += 1
            self.errors.append(problem)
            new = self._allowed(problem.leaves) - static
            if problem.op == "setitem":
                new -= self.fractions
            if not new or growth > MAX_GROWTH or work.clock() > self.deadline:
                return None
            static |= new
            needed = new if len(new) == 1 else set()
        return self._smaller(static, needed)

    def _smaller(self, static: set[str], needed: set[str]) -> set[str]:
        """Drop one at a time what is not needed; what alone made the last trace work is."""
        if len(static) == 1:
            return static
        for path in sorted(static - needed):
            if self._no_jax_type(path, self.values[path]) or work.clock() > self.deadline:
                continue
            if len(static) > 1 and self._problem_with(static - {path}) is None:
                static = static - {path}
        return static

    def _is_declared(self, path: str) -> bool:
        return root(path) in self.declared

    def _no_jax_type(self, path: str, value: object) -> bool:
        """jax would refuse this argument outright, and it may be static."""
        bad = any(not is_jax_type(v) for v in jax.tree.leaves(value))
        if bad and (reason := why_not_static(value)):
            self.refused[path] = reason
            return False
        return bad

    def _allowed(self, paths: Collection[str]) -> set[str]:
        """The whole arguments that these leaves belong to, where they may be static."""
        out = set()
        for leaf in paths:
            path = next((p for p in self.values if leaf == p or leaf.startswith((f"{p}[", f"{p}."))), None)
            if path is None or self._is_declared(path):
                continue
            if reason := why_not_static(self.values[path]):
                self.refused[path] = reason
            else:
                out.add(path)
        return out

    def _problem_with(self, static: set[str]) -> Problem | None:
        """Trace with these arguments static; the problem that stopped it, or None."""
        self.traces += 1
        dynamic = {p: v for p, v in self.values.items() if p not in static and not self._is_declared(p)}
        flat, tree = jax.tree.flatten(list(dynamic.values()))  # a dict would be sorted by its keys

        @functools.wraps(self.fn)
        def call(leaves: Sequence[object]) -> object:
            given = {**self.values, **dict(zip(dynamic, jax.tree.unflatten(tree, leaves), strict=True))}
            args, kwargs = rebuild(self.args, self.kwargs, self.arguments, given)
            return self.fn(*args, **kwargs)

        only = inspect.Parameter("leaves", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        call.__signature__ = inspect.Signature([only])  # type: ignore[attr-defined]
        names = [path for p, v in dynamic.items() for path, _ in leaves_.leaves_below(p, v)]
        try:
            jax.make_jaxpr(call)([as_type(v) for v in flat])
        except Exception as exc:
            problem = locate(exc)
            let_go(exc)
            return _renamed(problem, names)
        return None


def _renamed(problem: Problem, names: Sequence[str]) -> Problem:
    """`leaves[2]`, as jax calls our flat argument, by the user's name for it."""

    def name(leaf: str) -> str:
        match = re.match(r"leaves\[(\d+)\]", leaf)
        return names[int(match[1])] if match and int(match[1]) < len(names) else leaf

    return replace(problem, leaves=tuple(name(leaf) for leaf in problem.leaves))


def rebuild(
    args: Sequence[object], kwargs: object, arguments: Arguments, given: dict[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Positional and keyword arguments in the form of the original call, with other values."""
    in_order = [path for _, path, _ in arguments]
    originals = {id(v): path for _, path, v in reversed(arguments)}
    positional = []
    left = list(in_order)
    for value in args:
        path = next((p for p in left if _value_of(arguments, p) is value), originals.get(id(value)))
        if path in left:
            left.remove(path)
        positional.append(given[path] if path is not None else value)
    names = {path: name for name, path, _ in arguments}
    return positional, {names[p]: given[p] for p in left}


def _value_of(arguments: Arguments, path: str) -> object:
    return next(v for _, p, v in arguments if p == path)


def is_jax_type(value: object) -> bool:
    """Whether the value is an array or a number to jax."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind not in "OUSMm"
    return isinstance(value, (jax.Array, bool, int, float, complex, jax.ShapeDtypeStruct)) or hasattr(
        value, "__jax_array__"
    )


def as_type(value: object) -> Any:
    """The leaf without its data: weak types stay weak."""
    if isinstance(value, jax.Array):
        weak = bool(getattr(value, "weak_type", False))
        return jax.ShapeDtypeStruct(value.shape, value.dtype, weak_type=weak)
    if isinstance(value, np.ndarray):
        return jax.ShapeDtypeStruct(value.shape, jax.dtypes.canonicalize_dtype(value.dtype))
    return value


def _spelled(
    fn: Callable[..., object], found: set[str], numbers: Sequence[int], names: Sequence[str]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The whole list of static arguments, by name where a name can say it, by position for `*args`."""
    parameters = parameters_of(fn)
    if parameters is None:
        return tuple(names), tuple(numbers)
    order = [p.name for p in parameters]
    all_names, all_numbers = list(names), list(numbers)
    for path in sorted(found, key=lambda p: order.index(root(p)) if root(p) in order else 99):
        match = re.fullmatch(r"(\w+)\[(\d+)\]", path)
        only = next((p for p in parameters if p.name == path), None)
        if match and match[1] in order:
            all_numbers.append(order.index(match[1]) + int(match[2]))
        elif only is not None and only.kind is inspect.Parameter.POSITIONAL_ONLY:
            all_numbers.append(order.index(path))
        else:
            all_names.append(path)
    return tuple(dict.fromkeys(all_names)), tuple(dict.fromkeys(all_numbers))

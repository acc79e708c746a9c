"""The user's expression that an exception outside all traces came from: which call, which names, which values."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitmagic.evidence import Where
from jitmagic.tracing import compat
from jitmagic.tracing.expressions import called_object, look_up, names_in
from jitmagic.tracing.locate import frames_of, is_user_file, namespace_of
from jitmagic.tracing.sites import Site, site_of

_SPELLED = ("static_arg", "donate_arg")


@dataclass(frozen=True)
class CallSite:
    """`function` is the compiled function that is called there, or the one handed to `jax.jit`, where it can be
    had; `parameters` and `declared` are read from the source of a decorated definition or of the call."""

    where: Where
    names: tuple[str, ...] = ()
    function: Callable[..., object] | None = None
    parameters: tuple[str, ...] = ()
    declared: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    """Of the definition that is decorated there."""


@dataclass(frozen=True)
class FailedCall:
    """A call of the compiled `function`, by its name in the notebook, that ended in an error."""

    name: str
    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]


def calling_site(exc: BaseException) -> CallSite | None:
    """The innermost expression of the user's in the traceback; None where there is none."""
    found = _site(exc)
    if found is None:
        return None
    site, namespace = found
    node = site.node
    declared = _declared(node)
    decorated = _decorated(site)
    if decorated is not None:
        a = decorated.args
        return CallSite(
            site.where,
            parameters=tuple(x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)),
            declared=declared,
            name=decorated.name,
        )
    called = called_object(node, namespace)
    if declared and isinstance(node, ast.Call) and node.args:
        called = bound(_transformed(node.args[0]), namespace)
        return CallSite(site.where, function=called if callable(called) else None, declared=declared)
    function = called if compat.is_jitted(called) else None
    return CallSite(site.where, names_in(site, "donated", namespace), function)


def call_under_way(exc: BaseException) -> Where | None:
    """The user's expression that is calling what has just raised."""
    frame = exc.__traceback__.tb_frame if exc.__traceback__ is not None else None
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    site = site_of(frame.f_code, frame.f_lasti) if frame is not None else None
    return site.where if site is not None else None


def _transformed(node: ast.expr) -> ast.expr:
    """The function in `jax.vmap(jax.grad(loss))`, which takes the arguments of the whole."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return node


def bound(node: ast.expr, namespace: Mapping[str, object]) -> object:
    """What a name or `model.step` stands for; a method with its object, which takes one argument less."""
    called = look_up(ast.unparse(node), namespace)
    owner = look_up(ast.unparse(node.value), namespace) if isinstance(node, ast.Attribute) else None
    plain = owner is None or isinstance(owner, (type, types.ModuleType))
    return called if plain or not isinstance(called, types.FunctionType) else types.MethodType(called, owner)


def failed_call(exc: BaseException) -> FailedCall | None:
    """The outermost call of a compiled function on the way to the error; None where its function has no name there."""
    names: Mapping[str, object] = {}
    for frame, _ in frames_of(exc):
        if is_user_file(frame.f_code.co_filename):
            names = namespace_of(frame)
        elif given := compat.jitted_call(frame):
            fun, args, kwargs = given
            for name, value in names.items():
                if callable(value) and compat.is_jitted(value) and vars(value).get("__wrapped__") is fun:
                    return FailedCall(name, value, args, kwargs)
            return None
    return None


def values_read(exc: BaseException) -> list[object]:
    """Values of the names in the expression that failed."""
    found = _site(exc)
    if found is None:
        return []
    site, namespace = found
    return [look_up(name, namespace) for name in names_in(site, "donated", namespace)]


def _site(exc: BaseException) -> tuple[Site, Mapping[str, object]] | None:
    users = [(f, i) for f, i in frames_of(exc) if is_user_file(f.f_code.co_filename)]
    if not users:
        return None
    frame, lasti = users[-1]
    site = site_of(frame.f_code, lasti)
    return (site, namespace_of(frame)) if site is not None else None


def _declared(node: ast.AST | None) -> dict[str, object]:
    """Static and donated arguments that a call spells as literals."""
    declared: dict[str, Any] = {}
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        if keyword.arg and keyword.arg.startswith(_SPELLED):
            try:
                declared[keyword.arg] = ast.literal_eval(keyword.value)
            except ValueError:
                continue
    return declared


def _decorated(site: Site) -> ast.FunctionDef | None:
    parent = site.source.parent(site.node) if site.node is not None else None
    inside = isinstance(parent, ast.FunctionDef) and site.node in parent.decorator_list
    return parent if inside and isinstance(parent, ast.FunctionDef) else None

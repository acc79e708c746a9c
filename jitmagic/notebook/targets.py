"""Which functions a cell's magic takes, and whether the names on its line are names of something."""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from jitmagic.checking.request import Request, left_aside, taken
from jitmagic.options import parameters_of
from jitmagic.source import cell as cells


def chosen(
    request: Request, tree: ast.Module, names: Mapping[str, object], wrong: Sequence[str] = ()
) -> tuple[str, ...]:
    """The functions that the magic takes of a cell, none maybe. Raises UsageError with what is known to be wrong
    with the line, and every name on it that is none of anything."""
    taken_here = taken(request, tree)
    wrong = [*wrong, *_wrong_functions(request, tree, names), *_wrong_paths(request, tree, names)]
    if arguments := _wrong_arguments(request, tree, taken_here):
        wrong.append(f"no function of this cell has such an argument: {', '.join(arguments)}")
    if wrong:
        raise UsageError("; ".join(wrong))
    return taken_here


def _wrong_functions(request: Request, tree: ast.Module, names: Mapping[str, object]) -> Iterator[str]:
    """Functions that neither the cell nor the notebook has."""
    usable = [d.name for d in cells.definitions(tree) if not d.is_generator and not d.is_async]
    bound = cells.top_level_names(tree)
    for name in request.functions:
        head, _, method = name.partition(".")
        known = name in usable or (not method and head in bound) or _is_callable(name, names)
        if not known and not (method and head in bound and not _class_in(tree, head)):
            hint = _nearest(name, [*usable, *bound]) or f" (it defines {_listing(usable)})"
            yield f"-f {name}: neither this cell nor the notebook has such a function{hint}"
        elif head not in bound and (instead := of_object(name, names)):
            yield f"-f {name}: {instead}"


def of_object(name: str, names: Mapping[str, object]) -> str:
    """What to name in place of a method of an object of the notebook, in words; empty for other names."""
    from jitmagic.checking.users_jit import held_by

    head, _, method = name.partition(".")
    value = names.get(head)
    kind = type(value)
    plain = value is None or isinstance(value, type | types.ModuleType)
    if not method or plain or method in held_by(value) or not callable(getattr(value, method, None)):
        return ""
    if names.get(kind.__name__) is kind and method in held_by(kind):
        return f"{head} is an object; name the method of its class: -f {kind.__name__}.{method}"
    return (
        f"{head} is an object; give its method a name, {method} = {head}.{method}, and take that: -f {method}"
    )


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def none_taken(
    request: Request, tree: ast.Module, functions: Collection[str], names: Mapping[str, object]
) -> str:
    """One line for a cell without a function to take, which runs as it is; empty where there is one to look at."""
    if functions or request.calls or cells.uses_jit(tree):
        return ""
    verb, found = "compile" if request.kind == "jit" else "check", cells.definitions(tree)
    done = f"{verb.removesuffix('e')}ed"
    if request.kind != "jit" and found and cells.listens(tree):
        return "nothing is checked: the cell listens to the calls itself, and Python 3.11 tells one listener alone"
    if makers := sorted(cells.factories(tree) & {d.name for d in found}):
        how = f"bind one of them, and name it: %%{request.kind} -f NAME"
        return f"nothing is {done}: {makers[0]} gives functions; {how}"
    from jitmagic.checking.users_jit import compiled_in_use

    usable = [d for d in found if not d.is_generator and not d.is_async]
    if compiled_in_use(names, tree):
        return ""
    if aside := sorted(left_aside(request, tree) & {d.name for d in usable}):
        how = f"to take it all the same, name it: %%{request.kind} -f {aside[0]}"
        return f"nothing is {done}: {aside[0]} is a decorator, or called by others than you; {how}"
    methods = [d for d in usable if "." in d.name and not _is_special(d.name.rpartition(".")[2])]
    methods.sort(key=lambda d: len(d.parameters or ()) < 2)  # what is given something computes
    hint = f"; to {verb} a method, name it: %%{request.kind} -f {methods[0].name}" if methods else ""
    return f"nothing is {done}: the cell defines no function, and runs as it is{hint}"


def _is_special(method: str) -> bool:
    """What Python calls by itself, and computes nothing: `__init__`, `__repr__`."""
    return method.startswith("__") and method.endswith("__") and method != "__call__"


def _wrong_arguments(request: Request, tree: ast.Module, functions: Collection[str]) -> list[str]:
    """Names of arguments that no function of the cell has.

    Of functions that the line names, `jax.jit` itself is asked, and a finding tells what it says."""
    known = cells.parameter_names(tree, functions)
    every = {name for names in known.values() for name in names}
    if request.functions or "**" in every or not every or set(functions) - known.keys():
        return []
    static, donated = request.options.static_argnames, request.options.donate_argnames
    given = ("--static", static), ("--donate", () if request.dyn else donated)
    return unknown(every, *given, *request.settings.what_if.named)


def unknown(known: Collection[str], *given: tuple[str, Sequence[str]]) -> list[str]:
    """The names after each flag that are none of the known ones, each with the nearest."""
    wrong = [(flag, name) for flag, names in given for name in names if name not in known]
    return [f"{flag} {name}{_nearest(name.partition('=')[0], known)}" for flag, name in wrong]


def wrong_of_call(request: Request, name: str, fn: Any, names: Mapping[str, object]) -> list[str]:
    """What a line that checks one call of this function names, and neither the function nor the notebook has."""
    parameters = parameters_of(fn)
    known = {p.name for p in parameters or ()}
    if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return []
    static, donated = request.options.static_argnames, request.options.donate_argnames
    flags = (
        ("--static", static),
        ("--donate", () if request.dyn else donated),
        *request.settings.what_if.named,
    )
    arguments = unknown(known, *flags)
    wrong = [f"{name} has no such argument: {', '.join(arguments)}"] if arguments else []
    inner = inspect.unwrap(fn)
    inner = getattr(inner, "__func__", inner)
    if request.dyn and (code := getattr(inner, "__code__", None)) is not None:
        own = {*code.co_freevars, *code.co_varnames[: code.co_argcount]}  # of a bound method `self` too
        wrong += _wrong_roots(request.dyn, known | own | names.keys() | inner.__globals__.keys())
    return wrong


def _wrong_roots(dyn: str, known: Collection[str]) -> Iterator[str]:
    from jitmagic.state import paths

    for text in paths.split_paths(dyn):
        with contextlib.suppress(ValueError):  # no path, which is told as such
            if text != "auto" and (root := paths.parse(text).root) not in known:
                yield f"--dyn {text}: neither the function nor the notebook has {root!r}{_nearest(root, known)}"


def _is_callable(name: str, names: Mapping[str, object]) -> bool:
    head, _, method = name.partition(".")
    value = names.get(head)
    return callable(getattr(value, method, None)) if method else callable(value)


def _class_in(tree: ast.Module, name: str) -> bool:
    return any(isinstance(n, ast.ClassDef) and n.name == name for n in tree.body)


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) or "no function"


def _wrong_paths(request: Request, tree: ast.Module, names: Mapping[str, object]) -> Iterator[str]:
    """Dynamic variables that start from a name that nobody binds."""
    from jitmagic.state import paths

    if not request.dyn:
        return
    bound = cells.top_level_names(tree) | set(names)
    inner = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    inner |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    takes = cells.parameter_names(tree, [n for n in taken(request, tree) if "." not in n])
    for text in paths.split_paths(request.dyn):
        if text == "auto":
            continue
        try:
            path = paths.parse(text)
        except ValueError as exc:
            yield f"--dyn {text}: {exc}"
            continue
        root = path.root
        if (
            path.steps
            and root not in bound
            and (takers := [f for f, names in takes.items() if root in names])
        ):
            yield f"--dyn {text}: {root!r} is an argument of {takers[0]}, and dynamic as a whole: --dyn {root}"
        elif root not in bound and root not in inner and not _may_close_over(request, tree):
            meant = [n for n in bound if type(names.get(n)) is not types.ModuleType]
            yield f"--dyn {text}: neither this cell nor the notebook binds {root!r}{_nearest(root, meant)}"


def _may_close_over(request: Request, tree: ast.Module) -> bool:
    """A chosen function comes from a call (`f = make()`), so its own closure may bind the name."""
    defined = {d.name for d in cells.definitions(tree)}
    return any(name not in defined for name in request.functions)

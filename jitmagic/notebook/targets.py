"""Which functions a cell's magic takes, and whether the names on its line are names of something."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Mapping, Sequence

from IPython.core.error import UsageError

from jitmagic.checking.request import Request, taken
from jitmagic.source import cell as cells


def chosen(request: Request, tree: ast.Module, names: Mapping[str, object]) -> tuple[str, ...]:
    """The functions that the magic takes of a cell, none maybe. Raises UsageError where it names others."""
    found = cells.definitions(tree)
    usable = [d.name for d in found if not d.is_generator and not d.is_async]
    bound = cells.top_level_names(tree)
    for name in request.functions:
        head, _, method = name.partition(".")
        known = name in usable or (not method and head in bound) or _is_callable(name, names)
        if not known and not (method and head in bound and not _class_in(tree, head)):
            near = difflib.get_close_matches(name, [*usable, *bound], 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it defines {_listing(usable)}"
            raise UsageError(f"-f {name}: neither this cell nor the notebook has such a function{hint}")
    return taken(request, tree)


def none_taken(
    request: Request, tree: ast.Module, functions: Collection[str], names: Mapping[str, object]
) -> str:
    """One line for a cell without a function to take, which runs as it is; empty where there is one to look at."""
    if functions or request.calls or cells.uses_jit(tree):
        return ""
    done, found = "compiled" if request.kind == "jit" else "checked", cells.definitions(tree)
    if makers := sorted(cells.factories(tree) & {d.name for d in found}):
        how = f"bind one of them, and name it: %%{request.kind} -f NAME"
        return f"nothing is {done}: {makers[0]} gives functions; {how}"
    from jitmagic.checking.users_jit import compiled_in_use

    usable = [d.name for d in found if not d.is_generator and not d.is_async]
    if not cells.not_for_jit(tree).isdisjoint(usable) or compiled_in_use(names, tree):
        return ""
    methods = [n for n in usable if "." in n and not _is_special(n.rpartition(".")[2])]
    hint = f"; a method is {done} by its name, %%{request.kind} -f {methods[0]}" if methods else ""
    return f"nothing is {done}: the cell defines no function, and runs as it is{hint}"


def _is_special(method: str) -> bool:
    """What Python calls by itself, and computes nothing: `__init__`, `__repr__`."""
    return method.startswith("__") and method.endswith("__") and method != "__call__"


def check_names(request: Request, tree: ast.Module, functions: Collection[str]) -> None:
    """The name of an argument has to be one that a function of the cell has. Raises UsageError with every wrong one.

    Of functions that the line names, `jax.jit` itself is asked, and a finding tells what it says."""
    known = cells.parameter_names(tree, functions)
    every = {name for names in known.values() for name in names}
    if request.functions or "**" in every or set(functions) - known.keys():
        return
    options, what_if, said = request.options, request.settings.what_if, []
    dynamic = {p.strip() for p in (request.dyn or "").split(",")}
    for flag, names in (
        ("--static", options.static_argnames), ("--donate", options.donate_argnames),
        ("--vmap", what_if.vmap), ("--grad", what_if.grad),
    ):  # fmt: skip
        for name in names:
            if name not in every and not (flag == "--donate" and (request.dyn or name in dynamic)):
                near = difflib.get_close_matches(name, every, 1)
                said.append(f"{flag} {name}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    if said and every:
        raise UsageError(f"no function of this cell has such an argument: {', '.join(said)}")


def _is_callable(name: str, names: Mapping[str, object]) -> bool:
    head, _, method = name.partition(".")
    value = names.get(head)
    return callable(getattr(value, method, None)) if method else callable(value)


def _class_in(tree: ast.Module, name: str) -> bool:
    return any(isinstance(n, ast.ClassDef) and n.name == name for n in tree.body)


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) or "no function"


def check_paths(request: Request, tree: ast.Module, names: Collection[str]) -> None:
    """A dynamic variable has to start from a name that somebody binds. Raises UsageError."""
    from jitmagic.state import paths

    if not request.dyn:
        return
    bound = cells.top_level_names(tree) | set(names)
    inner = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    inner |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    for text in paths.split_paths(request.dyn):
        if text == "auto":
            continue
        try:
            root = paths.parse(text).root
        except ValueError as exc:
            raise UsageError(f"--dyn {text}: {exc}") from None
        if root not in bound and root not in inner and not _may_close_over(request, tree):
            near = difflib.get_close_matches(root, bound, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"--dyn {text}: neither this cell nor the notebook binds {root!r}{hint}")


def _may_close_over(request: Request, tree: ast.Module) -> bool:
    """A chosen function comes from a call (`f = make()`), so its own closure may bind the name."""
    defined = {d.name for d in cells.definitions(tree)}
    return any(name not in defined for name in request.functions)

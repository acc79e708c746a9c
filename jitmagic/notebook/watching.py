"""The functions of a cell in their watched form: those that its magic takes, and those that it compiles by itself."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.checking.watched import compiled_parts, held_by
from jitmagic.notebook.running import Request
from jitmagic.settings import Settings
from jitmagic.source import cell as cells

if TYPE_CHECKING:
    from jitmagic.notebook.session import Session


def what_is_there(session: Session, request: Request, tree: ast.Module) -> None:
    """Watch what the notebook has before the cell runs: functions that the magic names, compiled ones that are used."""
    bound = cells.top_level_names(tree)
    for name in request.functions:
        if name.partition(".")[0] not in bound:
            watch(session, name)
    if not request.functions:
        trees = (tree, *map(ast.parse, request.calls))
        watch_compiled(session, {n.id for t in trees for n in ast.walk(t) if isinstance(n, ast.Name)})


def give_back(session: Session, tree: ast.Module) -> None:
    """What an earlier cell had compiled, and this one hands to jax or uses as a decorator, is the user's again."""
    from jitmagic.checking.watched import Watched

    names = session.shell.user_ns
    watched = {name for name, value in list(names.items()) if isinstance(value, Watched)}
    for name in watched & cells.not_for_jit(tree) if watched else ():
        names[name] = names[name]._checker.original


def names_bound(session: Session, names: Iterable[str]) -> None:
    """The running cell has bound these names: take the functions that its magic asked for."""
    run = session.running.run
    if run is None or run.request.off:
        return
    for target in run.targets:
        if target.partition(".")[0] in names:
            watch(session, target)
    if not run.request.functions:
        watch_compiled(session, names)


def watch_compiled(session: Session, names: Iterable[str]) -> None:
    """Watch what the user's own code has compiled under these names: `g = jax.jit(f)`, methods of a class, what an
    object keeps (`self.step = jax.jit(self._step)`)."""
    for name in names:
        for part in compiled_parts(session.shell.user_ns.get(name)):
            watch(session, f"{name}.{part}" if part else name, own=True)


def watch(session: Session, target: str, *, own: bool = False) -> None:
    """Put the watched form of a function or method where the function was; `own`: it is compiled already,
    and goes on running as it is."""
    from jitmagic.checking.checker import Checker
    from jitmagic.checking.watched import Watched

    run = session.running.run
    head, _, method = target.partition(".")
    holder = session.shell.user_ns.get(head)
    fn = held_by(holder).get(method) if method else holder
    if run is None or fn is None or isinstance(fn, Watched) or isinstance(fn, type) or not callable(fn):
        return
    request = run.request
    settings = _settings_for(session, target, request)
    checker = Checker(
        fn, _known_as(target, fn) if own else target,
        options=None if own else request.options, dyn=None if own else request.dyn,
        namespace=session.shell.user_ns, settings=replace(settings, compile=False) if own else settings,
        cell=run.source, on_news=session.display.news, progress=session.display.progress(target),
    )  # fmt: skip
    checker.bound_as = target
    checker.call_source = lambda: (session.running.source, session.running.id)
    checker.reported = lambda: session.last is not None and not session.display.quiet()
    checker.history = lambda: _cells_after(session.sources, checker.cell.text)
    checker.seen.earlier = run.earlier.get(target)
    run.checkers[target] = checker
    watched = Watched(fn, checker)
    if method and isinstance(holder, type):
        setattr(holder, method, watched)
    elif method:
        holder.__dict__[method] = watched
    else:
        session.shell.user_ns[head] = watched


def _known_as(target: str, fn: Any) -> str:
    """The name of the function inside what is compiled, where the source has one; of a bound method of the
    notebook's with its class."""
    from jitmagic.tracing import foreign

    inner = foreign.inner_function(fn) if foreign.framework_of(fn) else fn
    made_of = getattr(inner, "__wrapped__", None)
    if (own := foreign.user_method(made_of)) is not made_of or "." in target:
        inner = own
    if isinstance(inner, types.MethodType) and type(inner.__self__).__module__ == "__main__":
        return inner.__qualname__
    name = getattr(inner, "__name__", "")
    return target if "." in target or not str(name).isidentifier() else str(name)


def _cells_after(sources: list[str], text: str) -> list[str]:
    """Sources of the cells that ran after the newest one of this text, those with magics left out."""
    last = max((i for i, s in enumerate(sources) if s == text), default=len(sources))
    return [s for s in sources[last + 1 :] if not s.lstrip().startswith(("%", "!"))]


def _settings_for(session: Session, target: str, request: Request) -> Settings:
    """Under `%%jitcheck`, what a function jits by itself is watched as it runs: the whole is not for jit."""
    tree = session.running.tree
    if request.kind == "jit" or tree is None:
        return replace(request.settings, diagnose=True)
    if session.running.compiling is None:
        session.running.compiling = cells.compile_inside(tree)
    return replace(request.settings, diagnose=target not in session.running.compiling)

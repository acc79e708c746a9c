"""The functions of a cell in their watched form: those that its magic takes, and those that it compiles by itself."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from jitmagic.checking.checker import Checker
from jitmagic.checking.request import Run
from jitmagic.checking.users_jit import compiled_parts, held_by, is_object
from jitmagic.checking.watched import Watched, checker_of
from jitmagic.options import JitOptions
from jitmagic.settings import Settings
from jitmagic.source import cell as cells
from jitmagic.source.tree import nodes_of
from jitmagic.state.values import is_a, is_users_function
from jitmagic.state.wrappers import full_name
from jitmagic.tracing import foreign


@dataclass
class Watching:
    """One run of a cell with a magic: hears what the cell binds, and puts the watched form in its place."""

    run: Run
    names: dict[str, object]
    """The notebook's."""
    tree: ast.Module
    """The statements behind the magic."""
    prepare: Callable[[Checker], None] = lambda checker: None
    """What the surroundings add to each new checker."""
    made: Callable[..., Checker] = Checker
    hears: Callable[[Checker], bool] | None = None
    """Hears the calls of what is not compiled, which stays where it is; without it (a run of ours) that is replaced."""
    plain: Collection[str] = ()
    """Functions that run without jit, whatever is asked for."""
    _compiling: set[str] | None = field(default=None, init=False)

    def begin(self) -> None:
        """Watch what the notebook has before the cell runs: functions that the magic names, compiled ones in use."""
        request, bound = self.run.request, cells.top_level_names(self.tree)
        for name in request.functions:
            if name.partition(".")[0] not in bound:
                self._give_back(name)
                if not request.off:
                    self.watch(name)
        if not request.functions:
            calls = [*map(ast.parse, request.calls)]
            for name in () if request.off or self.run.targets else _called(calls) - bound:
                if is_users_function(self.names.get(name)):
                    self.watch(name)
            self.watch_compiled(
                {n.id for t in (self.tree, *calls) for n in nodes_of(t) if isinstance(n, ast.Name)}
            )

    def bound(self, names: Collection[str]) -> None:
        """The cell has bound these names: take the functions that its magic asked for."""
        if self.run.request.off:
            return
        for target in self.run.targets:
            if target.partition(".")[0] in names:
                self.watch(target)
        if not self.run.request.functions:
            self.watch_compiled(names)

    def watch_compiled(self, names: Iterable[str]) -> None:
        """Watch what the user's own code has compiled under these names: `g = jax.jit(f)`, methods of a class, what
        an object keeps (`self.step = jax.jit(self._step)`)."""
        for name in names:
            for part in compiled_parts(self.names.get(name)):
                self.watch(f"{name}.{part}" if part else name, own=True)

    def _give_back(self, target: str) -> None:
        """What an earlier cell had taken is taken anew, as this magic line asks for it."""
        head, _, method = target.partition(".")
        holder = self.names.get(head)
        fn = held_by(holder).get(method) if method else holder
        if is_a(fn, Watched):
            self._put(target, fn.plain_function)

    def _put(self, target: str, value: object) -> None:
        head, _, method = target.partition(".")
        holder = self.names.get(head)
        if method and isinstance(holder, type):
            setattr(holder, method, value)
        elif method:
            holder.__dict__[method] = value
        else:
            self.names[head] = value

    def watch(self, target: str, *, own: bool = False) -> None:
        """Put the watched form of a function or method where the function was; `own`: it is compiled already, and
        goes on running as it is."""
        head, _, method = target.partition(".")
        holder = self.names.get(head)
        fn = held_by(holder).get(method) if method else holder
        if fn is None or isinstance(fn, Watched) or isinstance(fn, type) or not callable(fn):
            return
        if target in self.run.checkers and self.run.checkers[target].original is fn:
            return
        request, settings = self.run.request, self._settings_for(target)
        left = request.kind == "jit" and not own and is_object(fn) and target not in request.functions
        if left:
            settings = replace(settings, compile=False)
        checker = self.made(
            fn, _known_as(target, fn) if own else target,
            options=None if own else self._options_for(target), dyn=None if own else request.dyn,
            namespace=self.names, settings=replace(settings, compile=False) if own else settings,
            cell=self.run.source,
        )  # fmt: skip
        checker.bound_as, checker.is_named = target, target in request.functions
        self.prepare(checker)
        checker.seen.earlier = self.run.earlier.get(target)
        self.run.checkers[target] = checker
        if left:
            checker.seen.note(f"an object of `{full_name(type(fn))}` is not compiled, and stays what it is")
        if self.hears is not None and not checker.settings.compile:
            if self.hears(checker) or checker.is_plain:
                return
        self._put(target, Watched(fn, checker))

    def _options_for(self, target: str) -> JitOptions:
        """The options without the names that only other functions of the cell have."""
        known = cells.parameter_names(self.tree, self.run.targets)
        mine = known.pop(target, {"**"})
        others = {name for names in known.values() for name in names}
        return self.run.request.options.without_names(others - mine if "**" not in mine else ())

    def _settings_for(self, target: str) -> Settings:
        """Under `%%jitcheck`, what a function jits by itself is watched as it runs: the whole is not for jit."""
        request = self.run.request
        if request.kind == "jit":
            return replace(request.settings, diagnose=True)
        if self._compiling is None:
            self._compiling = cells.compile_inside(self.tree)
        for_jit = target not in self._compiling
        compiled = request.settings.compile and for_jit and target not in self.plain
        return replace(request.settings, diagnose=for_jit, compile=compiled)


def _called(calls: Iterable[ast.Module]) -> set[str]:
    """The names of the functions that the calls of a magic line call."""
    made = [getattr(statement, "value", None) for call in calls for statement in call.body]
    return {c.func.id for c in made if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)}


def give_back(names: dict[str, object], tree: ast.Module) -> None:
    """What an earlier cell had compiled, and this one hands to others or uses as a decorator, is the user's again."""
    watched = {name: value for name, value in list(names.items()) if is_a(value, Watched)}
    if not watched:
        return
    others, elsewhere = cells.not_for_jit(tree), cells.run_elsewhere(tree)
    for name, value in watched.items():
        checker = checker_of(value)
        if name in others or (name in elsewhere and checker is not None and not checker.is_named):
            names[name] = value.plain_function


def _known_as(target: str, fn: object) -> str:
    """The name of the function inside what is compiled, where the source has one; of a bound method of the
    notebook's with its class."""
    inner = foreign.inner_function(fn) if foreign.framework_of(fn) else fn
    made_of = getattr(inner, "__wrapped__", None)
    if (own := foreign.user_method(made_of)) is not made_of or "." in target:
        inner = own
    if isinstance(inner, types.MethodType) and type(inner.__self__).__module__ == "__main__":
        return inner.__qualname__
    name = getattr(inner, "__name__", "")
    return target if "." in target or not str(name).isidentifier() else str(name)

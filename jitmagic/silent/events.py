"""Functions that the user's code jits anew again and again, told by jax's own compile events."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jitmagic.evidence import Where
from jitmagic.silent.code import names_in, whole_line
from jitmagic.source import scope
from jitmagic.source.modules import last_name
from jitmagic.source.tree import Function, Source, source_of, walk
from jitmagic.tracing.locate import users_above
from jitmagic.tracing.stages import COMPILE, frame_that_compiles, listen, told
from jitmagic.trial.quiet import is_held

MANY = 3
"""Compilations of functions made at one place from which on they are told."""
_MOST_EVENTS = 2000
_JITS = frozenset("jit pjit pmap filter_jit filter_pmap".split())
_TRANSFORMS = frozenset("partial grad value_and_grad vmap jacfwd jacrev hessian checkpoint remat jvp filter_grad "
                        "filter_value_and_grad filter_vmap".split())  # fmt: skip


@dataclass(frozen=True)
class Event:
    """One compilation: the function's name, (file, line) of the user frames above it, innermost first, and what XLA
    took."""

    fun_name: str
    frames: tuple[tuple[str, int], ...]
    seconds: float = 0.0


@dataclass(eq=False)
class Watcher:
    """Notes each compilation between `start` and `stop`."""

    events: list[Event] = field(default_factory=list)

    def start(self) -> None:
        """Begin to listen."""
        listen()
        if self.hear not in told:
            told.append(self.hear)

    def stop(self) -> None:
        """Hear no more."""
        if self.hear in told:
            told.remove(self.hear)

    def clear(self) -> None:
        """Forget what was heard."""
        self.events.clear()

    def hear(self, event: str, name: str, seconds: float) -> None:
        """Note one event of jax's."""
        # our own runs of the user's code hold its output back; the user's calls never do
        if event == COMPILE and not is_held() and len(self.events) < _MOST_EVENTS:
            name = name.removeprefix("jit(").removesuffix(")")
            lines = ((f.f_code.co_filename, f.f_lineno) for f in users_above(frame_that_compiles()))
            self.events.append(Event(name, tuple(lines), seconds))


@dataclass(frozen=True, eq=False)
class Maker:
    """A place that makes a compiled function: `jax.jit(...)`, or a decorator inside a function."""

    file: str
    node: ast.AST
    scope: ast.AST
    """The loop or function that runs it each time."""
    made: ast.AST
    name: str
    """Name under which jax knows the function that is made."""


def repeated(events: Sequence[Event]) -> Iterator[tuple[Maker, list[Event]]]:
    """Each place that makes compiled functions again and again, with the compilations."""
    for file in dict.fromkeys(f for e in events for f, _ in e.frames):
        for maker in makers(file):
            mine = [e for e in events if _is_of(e, maker)]
            # A function made once may be compiled for several shapes: then its own line makes it once only.
            if len(mine) >= MANY and max(Counter(e.fun_name for e in mine).values()) >= MANY:
                yield maker, mine


def _is_of(event: Event, maker: Maker) -> bool:
    if event.fun_name != maker.name and maker.name:
        return False
    first, last = maker.scope.lineno, maker.scope.end_lineno  # type: ignore[attr-defined]
    return any(f == maker.file and first <= line <= last for f, line in event.frames)


def makers(file: str) -> Iterator[Maker]:
    """Places in a cell that make a compiled function inside a loop or function and keep it nowhere else."""
    source = source_of(file)
    for node in walk(source.tree) if source.tree is not None else ():
        if isinstance(node, ast.Call) and _is_jit(node.func) and node.args:
            made: ast.AST = node.args[0]
        elif isinstance(node, ast.FunctionDef) and any(map(_jits, node.decorator_list)):
            made = node
        else:
            continue
        around = _around(source, node)
        if around is not None and not _is_kept(source, node, around):
            yield Maker(file, node, around, made, _made_name(source, made))


def _is_jit(node: ast.AST) -> bool:
    return last_name(node) in _JITS


def _jits(decorator: ast.expr) -> bool:
    """`@jax.jit`, `@jax.jit(...)`, `@partial(jax.jit, ...)`."""
    if isinstance(decorator, ast.Call):
        return _is_jit(decorator.func) or any(map(_is_jit, decorator.args))
    return _is_jit(decorator)


def _around(source: Source, node: ast.AST) -> ast.AST | None:
    """The innermost loop, else the function, whose body has the node; None at the top of a cell."""
    child = node
    for parent in source.ancestors(node):
        if isinstance(parent, ast.For | ast.While) and child in parent.body:
            return parent
        if isinstance(parent, Function) and child not in getattr(parent, "decorator_list", ()):
            return parent
        child = parent
    return None


def _is_kept(source: Source, node: ast.AST, scope: ast.AST) -> bool:
    """It is stored in an object or table, or returned: then it is made once for many calls."""
    parent = source.parent(node)
    if isinstance(parent, ast.Return):
        return True
    if isinstance(parent, ast.Assign) and any(
        isinstance(t, ast.Attribute | ast.Subscript) for t in parent.targets
    ):
        return not isinstance(scope, ast.For | ast.While)
    if any(d for d in getattr(scope, "decorator_list", ()) if "cache" in ast.unparse(d)):
        return True
    name = node.name if isinstance(node, ast.FunctionDef) else None
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        name = parent.targets[0].id
    returned = (n.value for n in walk(scope) if isinstance(n, ast.Return) and n.value is not None)
    return name is not None and any(isinstance(v, ast.Name) and v.id == name for v in returned)


def _made_name(source: Source, made: ast.AST) -> str:
    if isinstance(made, ast.FunctionDef):
        return made.name
    if isinstance(made, ast.Lambda):
        return "<lambda>"
    if isinstance(made, ast.Attribute):
        return made.attr
    if isinstance(made, ast.Name):
        return _bound_name(source, made)
    if isinstance(made, ast.Call) and made.args and last_name(made.func) in _TRANSFORMS:
        return _made_name(source, made.args[0])
    return ""


def _bound_name(source: Source, name: ast.Name) -> str:
    """What a name assigned from a lambda, a partial or a transformation is called in jax."""
    made = (v for v in _assigned(source, name.id) if isinstance(v, ast.Lambda | ast.Call))
    return next((_made_name(source, value) for value in made), name.id)


def _assigned(source: Source, name: str) -> Iterator[ast.expr]:
    """What assignments of the cell give to a name."""
    for node in walk(source.tree) if source.tree is not None else ():
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == name for t in node.targets):
            yield node.value


def culprits(maker: Maker, source: Source) -> list[str]:
    """What varies or is captured: keywords of a partial, free names of the function made, its own name."""
    inside = [n.id for n in walk(maker.scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    arguments = [a.arg for a in walk(maker.scope) if isinstance(a, ast.arg)]
    captured = list(itertools.chain.from_iterable(_captured(source, n) for n in _parts(maker.made)))
    changing = [n for n in captured if n in inside or n in arguments]
    own = [maker.name] if maker.name and not maker.name.startswith("<") else []
    rest = [n for n in captured if n not in changing]
    made = [maker.node.name] if isinstance(maker.node, ast.FunctionDef) else source.bound_to(maker.node)
    return list(dict.fromkeys([*changing, *made, *own, *rest, scope_name(source, maker)]))


def _parts(made: ast.AST) -> list[ast.AST]:
    """The functions and bound values in `grad(partial(f, x=a))`."""
    if isinstance(made, ast.Call):
        return [p for a in (*made.args, *(k.value for k in made.keywords)) for p in _parts(a)]
    return [made]


def _captured(source: Source, node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        for other in walk(source.tree) if source.tree is not None else ():
            if (
                isinstance(other, ast.FunctionDef)
                and other.name == node.id
                and _around(source, other) is not None
            ):
                return [*_free(other), node.id]
        for value in _assigned(source, node.id):
            if isinstance(value, ast.Call) and last_name(value.func) == "partial":
                bound = [k.value for k in value.keywords] + value.args[1:]
                return [*dict.fromkeys(n for b in bound for n in names_in(b)), node.id]
        return [node.id]
    return _free(node) if isinstance(node, ast.Lambda | ast.FunctionDef) else names_in(node)


def _free(node: ast.Lambda | ast.FunctionDef) -> list[str]:
    called = {id(n.func) for n in walk(node) if isinstance(n, ast.Call)}
    called |= {id(n.value) for n in walk(node) if isinstance(n, ast.Attribute) and id(n) in called}
    body = node.body if isinstance(node.body, list) else [node.body]
    free = scope.loads(node) - {"jax", "jnp", "np", "lax", "functools"}
    found = [n for part in body for n in walk(part) if isinstance(n, ast.Name) and id(n) not in called]
    return list(dict.fromkeys(n.id for n in found if n.id in free))


def scope_name(source: Source, maker: Maker) -> str:
    """Dotted name of the function and classes around; empty at the top of a cell."""
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return ".".join([n.name for n in source.ancestors(maker.node) if isinstance(n, named)][::-1])


def place_of(maker: Maker, source: Source) -> Where:
    """The line of the call, or of the decorator, that compiles."""
    node = maker.node
    if isinstance(node, ast.FunctionDef):
        node = next(d for d in node.decorator_list if _jits(d))
    return whole_line(maker.file, node, scope_name(source, maker))

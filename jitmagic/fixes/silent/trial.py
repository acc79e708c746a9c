"""A corrected cell with its calls, run in a copy of the notebook's names: with jit, without, and compared."""

from __future__ import annotations

import ast
import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jitmagic.checking.watched import plainly
from jitmagic.fixes import adopt, prove, remake
from jitmagic.fixes.definitions import as_made, define, with_state
from jitmagic.fixes.definitions import find as find_function
from jitmagic.fixes.silent.text import calls_in
from jitmagic.options import JitOptions
from jitmagic.trial import quiet
from jitmagic.trial.permission import Again, Unsafe

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_MOST = 40
Watch = Callable[[dict[str, Any], Sequence[Any]], Any]


@dataclass
class Played:
    """What a program did: the results of the function, the traces it took, the last traced program."""

    results: list[Any] = field(default_factory=list)
    traces: int = 0
    traced: Any = None
    states: list[Any] = field(default_factory=list)
    """What `watch` gave after each call."""


def history(prover: Prover) -> list[str]:
    """Sources of the cells that ran after the function's own, those that may be run again; calls among them."""
    checker = prover.checker
    told = getattr(checker, "history", None)
    sources = list(told()) if callable(told) else []
    if prover.parts is not None:  # what of them may not run again is left out there
        return sources[:_MOST]
    known = [s.source for s in prover.samples if s.source]
    if known:
        sources = sources if any(s in sources for s in known) else list(known)
    return [s for s in sources if reduced(prover, s) is not None][:_MOST]


def later(prover: Prover) -> list[str]:
    """Sources of the cells that ran after the function's own, where that runs again as a whole."""
    told = getattr(prover.checker, "history", None)
    sources = list(told()) if callable(told) else []
    return [s for s in sources if reduced(prover, s) is not None][:_MOST]


def reduced(prover: Prover, source: str) -> ast.Module | None:
    """What of a source may run again: no plot, no file; None where its calls cannot do without."""
    try:
        tree = ast.parse(source)
        return Again(prover.checker.namespace, {prover.checker.name.rpartition(".")[2]}).program(tree)
    except (SyntaxError, Unsafe):
        return None


def call_sources(prover: Prover) -> list[str]:
    """Those of the history that call the function."""
    return [s for s in history(prover) if calls_in(ast.parse(s), prover.checker.name)]


def bound_by(source: str) -> set[str]:
    """Names that a source binds at its top level."""
    from jitmagic.source.cell import top_level_names

    return top_level_names(ast.parse(source))


def may_run_again(source: str, prover: Prover) -> bool:
    """Assignments and expressions whose calls make arrays or objects of the cell, and nothing else."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    plain = (ast.Assign, ast.AugAssign, ast.Expr, ast.AnnAssign, ast.For)
    judge = Again(prover.checker.namespace)
    return all(isinstance(s, plain) for s in tree.body) and all(map(judge.expression, tree.body))


def _plain(cell: str) -> str:
    try:
        ast.parse(cell)
    except SyntaxError:
        return ""
    return cell


@contextlib.contextmanager
def aside(prover: Prover) -> Iterator[None]:
    """Whatever happens inside leaves nothing behind. It begins without traced values that a call has left behind."""
    with contextlib.ExitStack() as stack:
        for sample in prover.samples[:1] or []:
            stack.enter_context(quiet.undone(prover.checker.reach(sample.args, sample.kwargs)))
        if prover.checker.seen.before_leak is not None:
            prover.checker.seen.before_leak.restore(only_tracers=True)
        stack.enter_context(quiet.held_back())
        stack.enter_context(plainly())
        stack.enter_context(prover.in_time())
        yield


def play(
    prover: Prover,
    cell: str,
    sources: Sequence[str],
    *,
    jit: bool | None = True,
    options: JitOptions | None = None,
    function: str = "",
    watch: Watch | None = None,
) -> Played:
    """Run a cell's definitions and then the sources, with the function compiled, plain, or (None) as the cell made
    it. `watch` looks at the namespace and the arguments after each call. Raises what they raise."""
    import jax

    name, played = function or prover.checker.name, Played()
    namespace = dict(prover.checker.namespace)
    if prover.parts is not None:
        from jitmagic.fixes.silent import programs

        put = functools.partial(_spied, prover, namespace, name, played, jit, options, watch)
        programs.run(prover, prover.parts.program(cell, sources), namespace, name, put)
        if not played.results:
            raise LookupError("nothing was called")
        return played
    with aside(prover), contextlib.ExitStack() as stack:
        namespace.update(prover.checker.namespace)
        file = define(cell, namespace)
        _bind_new(cell, prover.checker.cell.body, namespace)
        known = adopt.classes(namespace, prover.checker.namespace)
        adopt.namespace(namespace, known)
        remake.again(ast.parse(_plain(cell)), file, namespace, known)
        spy = _spied(prover, namespace, name, played, jit, options, watch, stack)
        for source in sources:
            tree = reduced(prover, source)
            exec(compile(source if tree is None else tree, "<jitmagic fix>", "exec"), namespace)
        if not played.results:  # the calls stand in the cell itself
            for sample in prover.samples:
                args, kwargs = adopt.adopted((sample.args, sample.kwargs), known)
                spy(*args, **kwargs)
        jax.effects_barrier()
    return played


def _spied(
    prover: Prover,
    namespace: dict[str, Any],
    name: str,
    played: Played,
    jit: bool | None,
    options: JitOptions | None,
    watch: Watch | None,
    stack: contextlib.ExitStack,
) -> Callable[..., Any]:
    """Put a form of the function in its place that is compiled or not, and notes its results."""
    import jax

    from jitmagic.tracing import foreign
    from jitmagic.tracing.compat import is_tracer

    raw, fn = as_made(namespace, name), find_function(namespace, name)
    target: Callable[..., Any] = fn if jit is not None else raw
    if jit is False and foreign.framework_of(fn):
        target = foreign.inner_function(fn)
    own = not prover.checker.settings.compile  # the cell compiles by itself
    stack.enter_context(jax.disable_jit() if own and jit is False else contextlib.nullcontext())
    if jit and own and raw is fn and not isinstance(fn, types.FunctionType):
        target = raw  # compiled by a framework
    elif jit:
        # Nothing of the user's is given away by a run that the user did not ask for.
        made = options if options is not None else prove.undonated(prover.checker.options)
        counted = _counted(fn, played)
        target = with_state(prover, counted, made, namespace) or made.trial(counted)

    def spy(*args: Any, **kwargs: Any) -> Any:
        if jit and played.traced is None:
            with contextlib.suppress(Exception):
                played.traced = target.trace(*args, **kwargs)  # type: ignore[attr-defined]
        out = target(*args, **kwargs)
        if not any(is_tracer(v) for v in jax.tree.leaves(out)):
            played.results.append(jax.block_until_ready(out))
            if watch is not None:
                played.states.append(watch(namespace, args))
        return out

    if isinstance(prover.checker.fn, types.FunctionType):
        vars(spy).update(vars(prover.checker.fn))  # `f.count`, which the cell has set
    spy.clear_cache = getattr(target, "clear_cache", lambda: None)  # type: ignore[attr-defined]
    _put(namespace, prover.checker.namespace, name, spy)
    return spy


def _bind_new(cell: str, old: str, namespace: dict[str, Any]) -> None:
    """Run what `define` leaves out: assignments that the user's cell has not."""
    known = {ast.dump(s) for s in ast.parse(_plain(old)).body}
    body = ast.parse(_plain(cell)).body
    new: list[ast.stmt] = [s for s in body if isinstance(s, ast.Assign) and ast.dump(s) not in known]
    exec(compile(ast.Module(new, []), "<jitmagic fix>", "exec"), namespace)


def _counted(fn: Callable[..., Any], played: Played) -> Callable[..., Any]:
    @functools.wraps(fn)
    def traced(*args: Any, **kwargs: Any) -> Any:
        played.traces += 1
        return fn(*args, **kwargs)

    return traced


def _put(namespace: dict[str, Any], old: dict[str, Any], name: str, value: Callable[..., Any]) -> None:
    head, _, method = name.partition(".")
    if not method:
        namespace[head] = value
    elif namespace[head] is old.get(head):
        raise LookupError(f"the cell does not define {head}")  # the user's own class is left alone
    else:

        def bound(self: Any, *args: Any, **kwargs: Any) -> Any:
            return value(self, *args, **kwargs)

        bound.clear_cache = getattr(value, "clear_cache", lambda: None)  # type: ignore[attr-defined]
        setattr(namespace[head], method, bound)


def same(a: Any, b: Any) -> bool:
    """The comparison of jit with the plain run finds nothing but other types; values of other types are compared."""
    import jax

    from jitmagic.measure.compare import compare

    one, other = jax.tree.leaves(a), jax.tree.leaves(b)
    if len(one) == len(other):
        pairs = [_of_one_type(x, y) for x, y in zip(one, other, strict=True)]
        if any(d.reason not in ("dtype", "type") for x, y in pairs for d in compare(x, y)):
            return False
    found = [d for d in compare(a, b) if d.reason not in ("dtype", "type")]
    if [d.reason for d in found] != ["structure"]:
        return not found
    # Classes of the cell are other objects in each of its runs.
    trees = [jax.tree.structure(v) for v in (a, b)]
    return str(trees[0]) == str(trees[1]) and same(one, other)


def _of_one_type(a: Any, b: Any) -> tuple[Any, Any]:
    """Two arrays in the type of the one that holds less, two numbers as they are."""
    import jax.numpy as jnp
    import numpy as np

    kinds = [getattr(v, "dtype", None) for v in (a, b)]
    if kinds[0] == kinds[1] or not all(k is not None and np.issubdtype(k, np.number) for k in kinds):
        return a, b
    floats = [k for k in kinds if k is not None and jnp.issubdtype(k, jnp.inexact)]
    if any(jnp.issubdtype(k, jnp.complexfloating) for k in floats):
        return a, b
    kind = min(floats or kinds, key=lambda k: k.itemsize)  # type: ignore[union-attr]
    return np.asarray(a).astype(kind), np.asarray(b).astype(kind)


def original(prover: Prover, sources: Sequence[str], *, jit: bool | None) -> Played:
    """The user's own cell and calls."""
    return play(prover, prover.checker.cell.body, sources, jit=jit)

"""A corrected cell run from top to bottom, its statements included, without what the user would notice."""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import types
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.checking.watched import plainly
from jitmagic.fixes import adopt
from jitmagic.fixes.rewrite.cells import masked
from jitmagic.source.cell import bound_names, top_level_names
from jitmagic.trial import quiet
from jitmagic.trial.permission import Again

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

MANY = 24
"""More calls than this: each loop around them makes a few turns only."""
TURNS = 3
_FEW, _NOTE = "__few__", "__note__"
_numbers = itertools.count(1)


def run(
    prover: Prover,
    source: str,
    namespace: dict[str, Any],
    name: str,
    put: Callable[[contextlib.ExitStack], Any],
) -> None:
    """Run the program in `namespace`, where `put` exchanges the function `name` as soon as it is defined.

    Raises what the program raises, and `Unsafe` where it may not run again.
    """
    assert prover.parts is not None
    tree = _prepared(prover, source, prover.parts.names, prover.parts.function)
    head = name.partition(".")[0]
    with contextlib.ExitStack() as stack, contextlib.closing(_running(prover, tree, namespace)) as ran:
        for statement in ran:
            if head in bound_names(statement):
                put(stack)


def results(prover: Prover, source: str, names: Collection[str], *, jit: bool) -> list[Any]:
    """What the calls of these functions give when a whole cell runs, compiled as the cell says or not at all.

    Raises as `run` does.
    """
    from jitmagic.fixes.silent import wholes

    tree = _prepared(prover, source, names, "")
    if not jit:
        tree = wholes.Unjitted().visit(tree)
    return _noted(prover, _Noted(names).visit(tree), {})


def shown(prover: Prover, source: str) -> list[Any]:
    """What a whole cell shows and binds at its top level when it runs: values of its expressions, what it prints,
    then the arrays and numbers that its names stand for, in the order of the names. Raises as `run` does."""
    import jax

    from jitmagic.fixes.silent import wholes

    tree = _prepared(prover, source, _functions(ast.parse(masked(source))), "")
    names = top_level_names(tree)
    namespace = dict(prover.checker.namespace)
    found = _noted(prover, _Shown().visit(tree), namespace)
    bound = {n: namespace[n] for n in sorted(names) if n in namespace}
    return found + [wholes.copied(v) for v in bound.values() if all(map(_is_value, jax.tree.leaves(v)))]


def _is_value(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, (bool, int, float, complex))


def _functions(tree: ast.Module) -> set[str]:
    """Everything that the cell defines: its calls are what the run is for."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {n.name for n in ast.walk(tree) if isinstance(n, kinds)}


def _noted(prover: Prover, tree: ast.Module, namespace: dict[str, Any]) -> list[Any]:
    import jax

    from jitmagic.fixes.silent import wholes
    from jitmagic.tracing.compat import is_tracer

    found: list[Any] = []

    def note(value: Any) -> Any:
        if not any(is_tracer(v) for v in jax.tree.leaves(value)):
            found.append(wholes.copied(value))
        return value

    namespace |= {**prover.checker.namespace, _NOTE: note}
    with contextlib.closing(_running(prover, ast.fix_missing_locations(tree), namespace)) as ran:
        for _ in ran:
            pass
    return found


def _running(prover: Prover, tree: ast.Module, namespace: dict[str, Any]) -> Generator[ast.stmt, None, None]:
    """Run the statements one by one, and give each back when it has run; nothing is left behind."""
    import jax

    file, text = f"<jitmagic program {next(_numbers)}>", ast.unparse(tree)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace[_FEW] = _few
    try:
        with _aside(prover, tree), prover.in_time():
            for statement in ast.parse(text).body:  # with the lines that they have there
                exec(compile(ast.Module([statement], []), file, "exec"), namespace)
                if isinstance(statement, ast.ClassDef):
                    adopt.namespace(namespace, adopt.classes(namespace, prover.checker.namespace))
                yield statement
            jax.effects_barrier()
    finally:
        linecache.cache.pop(file, None)


def _prepared(prover: Prover, source: str, names: Collection[str], whole: str) -> ast.Module:
    """What of the program may run again, with few turns of its loops where there are many."""
    tree = ast.parse(masked(source))
    tree = Again(prover.checker.namespace, names, whole, _bound_once(tree)).program(tree)
    if prover.checker.seen.count > MANY:
        _FewTurns(names).visit(tree)
    return ast.fix_missing_locations(tree)


class _Noted(ast.NodeTransformer):
    """`f(x)` as `__note__(f(x))`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if getattr(node.func, "attr", getattr(node.func, "id", "")) not in self.names:
            return node
        return _note(node)


class _Shown(ast.NodeTransformer):
    """Expressions that are statements, and what is printed, at the top level and in its loops."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "print":
            call.args = [a if isinstance(a, ast.Starred) else _note(a) for a in call.args]
        else:
            node.value = _note(call)
        return node


def _note(node: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(_NOTE, ast.Load()), [node], [])


def _bound_once(tree: ast.Module) -> frozenset[str]:
    stores = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    return frozenset(n for n, count in Counter(stores).items() if count == 1)


class _FewTurns(ast.NodeTransformer):
    """Loops around calls of the function stop after a few turns."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if any(
            getattr(n, "attr", getattr(n, "id", "")) in self.names for s in node.body for n in ast.walk(s)
        ):
            node.iter = ast.Call(ast.Name(_FEW, ast.Load()), [node.iter], [])
        return node


def _few(values: Iterable[Any]) -> Iterator[Any]:
    return itertools.islice(iter(values), TURNS)


@contextlib.contextmanager
def _aside(prover: Prover, tree: ast.Module) -> Iterator[None]:
    """What the program reaches by the notebook's names is put back, and nothing of it is shown."""
    from jitmagic.state import roots

    checker = prover.checker
    with contextlib.ExitStack() as stack:
        for sample in prover.samples[:1]:
            stack.enter_context(quiet.undone(checker.reach(sample.args, sample.kwargs)))
        stack.enter_context(quiet.undone(roots.reach(_as_function(tree, checker.namespace))))
        stack.enter_context(quiet.held_back())
        stack.enter_context(plainly())
        yield


def _as_function(tree: ast.Module, namespace: dict[str, Any]) -> types.FunctionType:
    """The program as one function without arguments, never called, so that one can ask what it reaches."""
    body = [s for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom))] or [ast.Pass()]
    source = "def program():\n" + "\n".join(
        f"    {line}" for s in body for line in ast.unparse(s).splitlines()
    )
    file = f"<jitmagic program {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    code = compile(source, file, "exec")
    inner = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return types.FunctionType(inner, namespace)

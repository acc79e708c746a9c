"""A corrected cell run from top to bottom, its statements included, without what the user would notice."""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jitmagic import quiet
from jitmagic.cell import bound_names
from jitmagic.fixes import adopt
from jitmagic.fixes.rewrite.cells import Cell
from jitmagic.fixes.silent.again import Again
from jitmagic.watched import plainly

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

MANY = 24
"""More calls than this: each loop around them makes a few turns only."""
TURNS = 3
_FEW = "__few__"
_numbers = itertools.count(1)


def run(
    prover: Prover,
    source: str,
    namespace: dict[str, Any],
    name: str,
    put: Callable[[contextlib.ExitStack], Any],
) -> None:
    """Run the program in `namespace`, where `put` exchanges the function `name` as soon as it is defined.

    Raises what the program raises, `Unsafe` where it may not run again, and TimeoutError where time is up.
    """
    import jax

    from jitmagic.beyond import OutOfTime, within

    tree, file = _prepared(prover, source), f"<jitmagic program {next(_numbers)}>"
    text = ast.unparse(tree)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    tree = ast.parse(text)  # with the lines that it has there
    namespace[_FEW] = _few
    head = name.partition(".")[0]
    try:
        with _aside(prover, tree, file), contextlib.ExitStack() as stack, within(prover.left()):
            for statement in tree.body:
                exec(compile(ast.Module([statement], []), file, "exec"), namespace)
                if isinstance(statement, ast.ClassDef):
                    adopt.namespace(namespace, adopt.classes(namespace, prover.checker.namespace))
                if head in bound_names(statement):
                    put(stack)
            jax.effects_barrier()
    except OutOfTime:
        prover.say_out_of_time()
        raise TimeoutError("the cell takes too long to be run again") from None
    finally:
        linecache.cache.pop(file, None)


def _prepared(prover: Prover, source: str) -> ast.Module:
    """What of the program may run again, with few turns of its loops where there are many."""
    assert prover.parts is not None
    tree = ast.parse(Cell(source).module.code)
    names = prover.parts.names
    again = Again(prover.checker.namespace, names, prover.parts.function, _bound_once(tree))
    tree = again.program(tree)
    if prover.checker.seen.count > MANY:
        _FewTurns(names).visit(tree)
    return ast.fix_missing_locations(tree)


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
def _aside(prover: Prover, tree: ast.Module, file: str) -> Iterator[None]:
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

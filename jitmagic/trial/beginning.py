"""The notebook as it was when a cell began, so that the cell can be run again from there, and what it is now, so that
nothing of that is seen afterwards."""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

from jitmagic.interrupts import deferred
from jitmagic.patches import unwarned
from jitmagic.source.cell import top_level_names
from jitmagic.source.tree import copied, nodes_of
from jitmagic.state import adapters, bystanders, ends, roots, snapshot
from jitmagic.state.contents import put_item
from jitmagic.state.entries import VariableEntry
from jitmagic.state.held import held_arrays
from jitmagic.state.values import MISSING, is_jax_array, is_user_module
from jitmagic.tracing import compat, unwinding
from jitmagic.trial import quiet

_numbers = itertools.count(1)
LARGE = 2**28
"""Bytes of an array that is not copied for a run that may use it up."""


class Beginning:
    """What a cell can reach, as it was before the cell; later cells add what they reach. Holds references, so it goes
    when the next cell of its kind begins."""

    def __init__(
        self, namespace: dict[str, object], tree: ast.Module, above: Sequence[ast.stmt] = ()
    ) -> None:
        self.namespace = namespace
        self.above = [*map(ast.dump, above)]
        """The statements above the magic's line, as text: they have run by now, and run no more."""
        self.names: dict[str, object] = {}
        """What the names stood for that the cells to be run again bind."""
        self.snapshots: list[snapshot.Snapshot] = []
        self._found: list[object] = []
        """What names in reach stood for."""
        self.compiled: list[object] = []
        """Functions of the user's own `jax.jit` in reach."""
        self.left: list[object] = []
        """What runs have given; with it goes what they have made and left in its middle."""
        self.add(tree)

    def add(self, tree: ast.Module) -> None:
        """One more cell that is to be run again from here on; call it before that cell runs."""
        for name in bound_anywhere(tree) - self.names.keys():
            self.names[name] = self.namespace.get(name, MISSING)
        self.reached(roots.reach(as_function(tree, self.namespace)))

    def reached(self, reach: roots.Reach) -> None:
        """What else the run reaches: arguments of calls that were kept."""
        self.compiled += [r.value for r in reach.roots if compat.is_jitted(r.value)]
        self._found += [r.value for r in reach.roots]
        known = {i for s in self.snapshots for i in s.known}
        self.snapshots.append(snapshot.take(reach, known))

    @property
    def holds_arrays(self) -> bool:
        """Arrays of jax's from before are in reach that a call could use up, and `spare` does not copy."""
        found = {str(number): value for number, value in enumerate(self._found)}
        alive = ((path, array) for path, array in held_arrays(found) if not array.is_deleted())
        return any(not path.isdigit() or array.nbytes > LARGE for path, array in alive)

    def spare(self) -> Callable[[], None]:
        """For the run that begins, the notebook's names stand for copies of such arrays: it may use them up. What is
        given back puts other copies in the place of those that it has used up."""
        found = {id(v): v for v in self._found if is_jax_array(v) and not v.is_deleted()}
        copies = {key: array.copy() for key, array in found.items() if array.nbytes <= LARGE}
        for name, value in list(self.namespace.items()):
            if id(value) in copies:
                self.namespace[name] = copies[id(value)]

        def renewed() -> None:
            used = {id(copy): found[key] for key, copy in copies.items() if copy.is_deleted()}
            for name, value in list(self.namespace.items()):
                if id(value) in used:
                    self.namespace[name] = used[id(value)].copy()

        return renewed

    @property
    def obstacle(self) -> str:
        """Why the cell cannot be run again from here; empty where it can."""
        if lost := next(filter(None, map(quiet.drains, self.snapshots)), None):
            return lost.what
        if name := bystanders.at_work():
            return f"a thread of yours is running ({name})"
        return ""

    @property
    def can_be_left(self) -> bool:
        """The cell's functions, or those that it calls, may be left in their middle, and do more when they go."""
        return any(ends.can_be_left(s.functions) for s in self.snapshots)

    def let_go(self) -> bool:
        """End unseen what runs have left that acts when it goes; whether there may be such."""
        if not self.can_be_left:
            return False
        if self.left:
            with deferred(), self.rewound(apart=False), quiet.held_back():
                self.left.clear()
                unwinding.end_circles(of_all=True)
        return True

    @contextlib.contextmanager
    def rewound(self, *, apart: bool = True) -> Iterator[dict[str, object]]:
        """The notebook's own names as they were at the beginning; afterwards all is as it is now. `apart`: no garbage
        from before goes meanwhile."""
        can_be_left = self.can_be_left
        with unwinding.kept_apart(can_be_left and apart):
            now_bound = dict(self.namespace)
            now = [s.again() for s in self.snapshots]
            drawn_from = [VariableEntry(state, path) for path, state in adapters.default_random_states()]
            """Unknown to these where the cell itself imports the framework."""
            new = compat.never_called(self.compiled)
            try:
                with deferred():
                    for s in reversed(
                        self.snapshots
                    ):  # what a later cell reaches may have been bound by then
                        s.restore()
                    for name, value in self.names.items():
                        put_item(self.namespace, name, value)  # type: ignore[arg-type]
                    if type(noted := now_bound.get("__annotations__")) is dict:  # which a run adds its own to
                        self.namespace["__annotations__"] = dict(noted)
                    for s in self.snapshots:
                        s.stand_in()
                with snapshot.in_force(now[-1]):
                    yield self.namespace
            finally:
                if can_be_left:
                    with quiet.held_back(apart=False):
                        for s in now:
                            s.restore()
                        unwinding.end_circles()
                with deferred():
                    for jitted in new:  # the user's own first call traces it
                        jitted.clear_cache()
                    for s in now:
                        s.restore()
                    for state in drawn_from:
                        state.restore(None)
                    for s in self.snapshots:
                        s.unshut()
                    for name in [n for n in self.namespace if n not in now_bound]:
                        del self.namespace[name]
                    for name, value in now_bound.items():
                        if self.namespace.get(name, MISSING) is not value:
                            self.namespace[name] = value
                    _put_in_order(self.namespace, list(now_bound))


def _put_in_order(namespace: dict[str, object], names: Sequence[str]) -> None:
    """The names stand in this order, as they did before some of them were taken out for a run."""
    moved = next((i for i, (a, b) in enumerate(zip(namespace, names, strict=False)) if a != b), len(names))
    for name in names[moved:]:
        if name in namespace:
            namespace[name] = namespace.pop(name)


def bound_anywhere(tree: ast.Module) -> set[str]:
    """Names of the notebook that a cell binds, at its top level or as `global` in a function."""
    shared = {name for n in nodes_of(tree) if isinstance(n, ast.Global) for name in n.names}
    return top_level_names(tree) | shared


class _OfFunctions(ast.NodeTransformer):
    """What may not stand in a function: `x: int = 3` of a global name becomes `x = 3`, and `import *` goes."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if node.names[0].name == "*" else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            return node
        plain = ast.Pass() if node.value is None else ast.Assign([node.target], node.value)
        return ast.copy_location(plain, node)

    def leave(self, node: ast.stmt) -> ast.stmt:
        """What has names of its own stays as it is."""
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = leave  # noqa: N815


def _imports_libraries(statement: ast.stmt) -> bool:
    """Nothing of the user's own is imported there that was imported before."""
    match statement:
        case ast.Import(names):
            return not any(is_user_module(sys.modules.get(n.name)) for n in names)
        case ast.ImportFrom(module):
            return not is_user_module(sys.modules.get(module or ""))
    return False


def as_function(tree: ast.Module, namespace: Mapping[str, object]) -> types.FunctionType:
    """The cell as one function without arguments, never called, so that one can ask what it reaches."""
    body = [s for s in tree.body if not _imports_libraries(s)] or [ast.Pass()]
    waits = any(isinstance(n, ast.Await | ast.AsyncFor | ast.AsyncWith) for n in nodes_of(tree))
    if any(isinstance(n, ast.AnnAssign | ast.ImportFrom) for n in nodes_of(tree)):
        body = [_OfFunctions().visit(copied(s)) for s in body]
    shared = f"    global {', '.join(sorted(top_level_names(tree)))}" if top_level_names(tree) else "    pass"
    head, file = (
        [f"{'async ' if waits else ''}def program():", shared],
        f"<jitmagic program {next(_numbers)}>",
    )

    def compiled(statements: Sequence[ast.stmt]) -> types.CodeType:
        lines = [f"    {line}" for s in statements for line in ast.unparse(s).splitlines()]
        source = "\n".join([*head, *lines])
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        with unwarned(SyntaxWarning):
            return compile(source, file, "exec")

    def is_python(statement: ast.stmt) -> bool:
        with contextlib.suppress(SyntaxError):
            return bool(compiled([statement]))
        return False

    try:
        code = compiled(body)
    except SyntaxError:  # `return` in a class, say: IPython runs the statements before it
        code = compiled([s for s in body if is_python(s)])
    inner = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return types.FunctionType(inner, namespace if isinstance(namespace, dict) else dict(namespace))

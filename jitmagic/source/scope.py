"""Which names a stretch of source reads and binds, which of them may be traced, and which live on after it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence

from jitmagic.source.edits import FunctionNode, Text
from jitmagic.source.tree import SCOPES, in_order
from jitmagic.source.tree import parameters_of as parameters_of

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STATIC_ATTRIBUTES = frozenset("shape ndim dtype size itemsize nbytes weak_type sharding".split())
_STATIC_CALLS = frozenset("len isinstance callable hasattr type issubclass id".split())


def parse(source: str | ast.AST) -> ast.AST:
    """The tree of statements or of one expression."""
    if isinstance(source, ast.AST):
        return source
    text = textwrap.dedent(source).strip()
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.parse(f"({text}\n)", mode="eval")


def loads(source: str | ast.AST) -> set[str]:
    """Names that the source reads from around it; parameters of functions inside do not count."""
    return set(_loads(parse(source)))


def _loads(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield from _free(node)
    elif isinstance(node, COMPREHENSIONS):
        inner = {n for g in node.generators for n in _stored(g.target)}
        for child in ast.iter_child_nodes(node):
            yield from (n for n in _loads(child) if n not in inner)
    else:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        for child in ast.iter_child_nodes(node):
            yield from _loads(child)


def _free(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    a, own = node.args, set(parameters_of(node))
    body = node.body if isinstance(node.body, list) else [node.body]
    declared = (x for s in body for x in ast.walk(s) if isinstance(x, (ast.Nonlocal, ast.Global)))
    own |= {n for s in body for n in _bound(s)} - {n for x in declared for n in x.names}
    read = {n for s in body for n in _loads(s)} - own
    defaults = {n for d in (*a.defaults, *a.kw_defaults) if d is not None for n in _loads(d)}
    decorators = {n for d in getattr(node, "decorator_list", ()) for n in _loads(d)}
    return read | defaults | decorators


def stores(source: str | ast.AST) -> list[str]:
    """Names that the source binds at its own level, in order."""
    return list(dict.fromkeys(_bound(parse(source))))


def _stored(node: ast.AST) -> Iterator[str]:
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            yield n.id


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, COMPREHENSIONS):
        yield from (t for n in ast.walk(node) if isinstance(n, ast.NamedExpr) for t in _stored(n.target))
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (a.asname or a.name.partition(".")[0] for a in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)


def exposed(source: str | ast.AST, bound: Collection[str] = ()) -> set[str]:
    """Names that are read before the source has surely bound them: what it needs from before."""
    tree = parse(source)
    body = tree.body if isinstance(tree, ast.Module) else [tree]
    return _exposed(body, set(bound))[0]


def _exposed(body: Iterable[ast.AST], bound: set[str]) -> tuple[set[str], set[str]]:
    need: set[str] = set()
    bound = set(bound)
    for node in body:
        if isinstance(node, ast.If):
            need |= loads(node.test) - bound
            first, then = _exposed(node.body, bound)
            second, other = _exposed(node.orelse, bound)
            need |= first | second
            bound |= then & other
        elif isinstance(node, (ast.For, ast.While)):
            head = node.iter if isinstance(node, ast.For) else node.test
            need |= loads(head) - bound
            inner = bound | (set(_stored(node.target)) if isinstance(node, ast.For) else set())
            need |= _exposed(node.body, inner)[0] | _exposed(node.orelse, bound)[0]
        elif isinstance(node, ast.With):
            for item in node.items:
                need |= loads(item.context_expr) - bound
                bound |= set(_stored(item)) if item.optional_vars else set()
            more, bound = _exposed(node.body, bound)
            need |= more
        elif isinstance(node, (ast.Try, ast.Match)):
            need |= loads(node) - bound
        else:
            need |= loads(node) - bound
            bound |= set(stores(node))
    return need, bound


def traced_in(source: str | ast.AST, traced: Collection[str]) -> bool:
    """Whether the value of an expression depends on one of the names, and not on shapes and types alone."""
    return _traced(parse(source), set(traced))


def _traced(node: ast.AST, traced: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in traced
    if isinstance(node, ast.Attribute) and node.attr in _STATIC_ATTRIBUTES:
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _STATIC_CALLS:
        return False
    if isinstance(node, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "shape":
        return False
    return any(_traced(child, traced) for child in ast.iter_child_nodes(node))


def traced_names(
    function: str | ast.AST, static: Collection[str] = (), jax: Collection[str] = ("jnp", "jax", "lax")
) -> set[str]:
    """Names inside a function that may hold traced values: its parameters and what is computed from them. `jax` are
    the notebook's names for jax and its modules."""
    tree = parse(function)
    traced = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} - set(static)
    while True:
        more = {name for name, value in _bindings(tree) if _traced(value, traced)} - set(static) - traced
        # What only jax makes is an array inside a trace, whatever it is made from.
        more |= {name for name, value in _bindings(tree) if _makes_array(value, jax)} - traced
        if not more:
            return traced
        traced |= more


def _makes_array(node: ast.AST, jax: Collection[str]) -> bool:
    if isinstance(node, ast.Tuple):
        return any(_makes_array(e, jax) for e in node.elts)
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and node.attr in _STATIC_ATTRIBUTES:
            return False
        node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name) and node.id in jax:
            return True
    return False


def _bindings(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for n in ast.walk(tree):
        if isinstance(n, ast.Assign):
            for target in n.targets:
                if isinstance(target, ast.Tuple) and isinstance(n.value, ast.Tuple):
                    if len(target.elts) == len(n.value.elts):
                        for t, v in zip(target.elts, n.value.elts, strict=True):
                            yield from ((name, v) for name in _stored(t))
                        continue
                yield from ((name, n.value) for name in _stored(target))
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                    yield target.value.id, n.value
        elif isinstance(n, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and n.value is not None:
            base = n.target.value if isinstance(n.target, ast.Subscript) else n.target
            if isinstance(base, ast.Name):
                yield base.id, n.value
        elif isinstance(n, (ast.For, ast.comprehension)):
            if not (isinstance(n.iter, ast.Call) and getattr(n.iter.func, "id", "") == "range"):
                yield from ((name, n.iter) for name in _stored(n.target))
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "append":
            if isinstance(n.func.value, ast.Name) and n.args:
                yield n.func.value.id, n.args[0]


# --- around a statement -------------------------------------------------------------------------------


def live_after(text: Text, statement: ast.stmt) -> set[str]:
    """Names that may be read after a statement: by what follows it, or by the next turn of a loop around it."""
    found: set[str] = set()
    node: ast.AST = statement
    while not isinstance(node, FunctionNode | ast.Module):
        if isinstance(node, ast.stmt):
            block, index = text.siblings(node)
            found |= exposed(body_of(block[index + 1 :]))
        parent = text.parents[node]
        if isinstance(parent, ast.For | ast.While) and node in parent.body:
            found |= _next_turn(parent)
        node = parent
    scope = text.function(statement)
    if scope is not None:
        apart = {scope, *text.within(statement, *_FUNCTIONS)}
        found |= {n for inner in text.own(scope, *_FUNCTIONS) if inner not in apart for n in loads(inner)}
        found |= outer_names(scope)
    return found


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _next_turn(loop: ast.For | ast.While) -> set[str]:
    """Names that a turn of the loop reads before it binds them."""
    body = ast.Module(loop.body, [])
    if isinstance(loop, ast.While):
        return exposed(body) | loads(loop.test)
    return exposed(body, set(_stored(loop.target)))


def bound_before(text: Text, statement: ast.stmt) -> set[str]:
    """Names of the innermost function that may be bound before a statement."""
    scope = text.function(statement)
    if scope is None:
        return set()
    above = {n for s in _statements_above(text, scope, statement) for n in stores(s)}
    return above | outer_names(scope) | set(parameters_of(scope))


def _statements_above(text: Text, scope: FunctionNode, statement: ast.stmt) -> Iterator[ast.AST]:
    """Statements above one, and what the heads of those around others bind."""
    for node in text.own(scope, ast.stmt):
        if node is scope or node.lineno >= statement.lineno:
            continue
        if isinstance(node, ast.For):
            yield node.target
        elif isinstance(node, ast.With):
            yield from (item.optional_vars for item in node.items if item.optional_vars is not None)
        elif isinstance(node, SCOPES) or not hasattr(node, "body"):
            yield node


def defaults_of(function: FunctionNode | ast.Lambda) -> dict[str, ast.expr]:
    """Defaults of a function's parameters."""
    a = function.args
    named = [*a.posonlyargs, *a.args][len(a.posonlyargs) + len(a.args) - len(a.defaults) :]
    found = {x.arg: d for x, d in zip(named, a.defaults, strict=True)}
    return found | {x.arg: d for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}


def assigned(function: ast.AST, name: str) -> ast.expr | None:
    """The expression of the only assignment to a local name; None where there are others, or it is a parameter."""
    found: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and name in [getattr(t, "id", "") for t in node.targets]:
            found.append(node.value)
        elif isinstance(node, ast.arg) and node.arg == name:
            return None
        elif isinstance(node, ast.AugAssign | ast.For | ast.comprehension | ast.AnnAssign | ast.NamedExpr):
            if any(n == name for n in _stored(node.target)):
                return None
        elif isinstance(node, ast.Assign) and any(n == name for t in node.targets for n in _stored(t)):
            return None
    return found[0] if len(found) == 1 else None


def local_names(function: FunctionNode) -> set[str]:
    """Names that a function binds for itself: its parameters, and what its body stores."""
    return {*parameters_of(function), *stores(body_of(function.body))} - outer_names(function)


def outer_names(function: FunctionNode) -> set[str]:
    """Names that a function declares `global` or `nonlocal`."""
    found = (n for n in in_order(function, own=True) if isinstance(n, ast.Global | ast.Nonlocal))
    return {name for n in found for name in n.names}


def body_of(statements: Sequence[ast.stmt]) -> ast.Module:
    """Statements as one tree, for what asks about names."""
    return ast.Module(list(statements), [])

"""A key of its own for each use of one: split off in front of a statement, folded with the number of an iteration, or
handed to each iteration of a loop of jax's."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.rules.base import root
from jitmagic.silent.keys import handed
from jitmagic.source import scope, signature
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode, in_brackets
from jitmagic.source.modules import argument_at, last_name
from jitmagic.source.passing import bound_by
from jitmagic.source.tree import Function

LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class KeyUse:
    """A place that uses a key up, and how it is given one."""

    node: ast.AST
    give: Callable[[str], object]


def share(
    spot: Spot, edits: Edits, holder: ast.AST, uses: Sequence[KeyUse], origin: str, local: str = ""
) -> None:
    """Each of these uses in a function, or at the top of a cell, gets a key of its own, made from `origin`; `local` is
    a variable there that may go on as the key."""
    counters: dict[ast.comprehension, str] = {}
    while True:
        uses = [_of_iteration(spot, edits, use, counters) for use in uses]
        inside = [_function_around(edits, use.node, holder) for use in uses]
        inner = max((f for f in inside if f is not None), key=edits.text.span, default=None)
        if inner is None:
            break
        own = [use for use, function in zip(uses, inside, strict=True) if function is inner]
        uses = [use for use in uses if use not in own] + _taken_along(spot, edits, inner, own)
    _split(spot, edits, holder, uses, origin, local)


def is_repeated(edits: Edits, node: ast.AST, holder: ast.AST) -> bool:
    """A loop in Python may run a node more than once for one run of what holds it."""
    inside = itertools.takewhile(lambda n: n is not holder, edits.text.ancestors(node))
    return any(isinstance(n, LOOPS) for n in inside)


# --- statements ---------------------------------------------------------------------------------------


def _split(
    spot: Spot, edits: Edits, holder: ast.AST, uses: Sequence[KeyUse], origin: str, local: str = ""
) -> None:
    """Uses that stand in no function within `holder` get parts of a key."""
    text = edits.text
    repeated = any(is_repeated(edits, use.node, holder) for use in uses)
    if len(uses) == 1 and not repeated:
        uses[0].give(origin)
        return
    if isinstance(holder, ast.Lambda):
        for number, use in enumerate(uses):
            use.give(spot.write("jax.random.fold_in($k, $n)", edits, k=origin, n=str(number)))
        return
    statements: dict[ast.stmt, list[KeyUse]] = {}
    names, taken = dict[ast.AST, str](), set[str]()
    for use in sorted(uses, key=lambda u: text.span(u.node)):
        statements.setdefault(text.statement(use.node), []).append(use)
        names[use.node] = _name(edits, use.node, len(uses), taken)
    first = next(iter(statements))
    rebound = isinstance(holder, FunctionNode) and origin in scope.stores(scope.body_of(holder.body))
    if not repeated and not rebound and all(s in text.siblings(first)[0] for s in statements):
        _split_before(spot, edits, first, [*names.values()], origin)
    else:
        local = local or _local(edits, holder, origin, taken)
        if local != origin:
            edits.before(_outermost(edits, first, holder), f"{local} = {origin}")
        for statement, found in statements.items():
            _split_before(spot, edits, statement, [local, *(names[u.node] for u in found)], local)
    for use in uses:
        use.give(names[use.node])


def _split_before(spot: Spot, edits: Edits, statement: ast.stmt, names: Sequence[str], key: str) -> None:
    count = f", {len(names)}" if len(names) > 2 else ""
    line = spot.write("$$names = jax.random.split($key$$count)", names=", ".join(names), key=key, count=count)
    edits.before(statement, line)


def _name(edits: Edits, node: ast.AST, count: int, taken: set[str]) -> str:
    """`key_w` for the key of `w = ...`, else `sub`."""
    statement = edits.text.statement(node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and count > 1 else None
    name = edits.fresh(*([f"key_{target.id}"] if isinstance(target, ast.Name) else []), "sub", taken=taken)
    taken.add(name)
    return name


def _local(edits: Edits, holder: ast.AST, origin: str, taken: set[str]) -> str:
    """A variable of the function's own that goes on as the key."""
    bound = not isinstance(holder, FunctionNode) or origin in scope.local_names(holder)
    return origin if origin.isidentifier() and bound else edits.fresh("key", "rng", "own_key", taken=taken)


def _outermost(edits: Edits, statement: ast.stmt, holder: ast.AST) -> ast.stmt:
    """The statement of the holder's own block that a statement stands in."""
    around = [statement, *edits.text.ancestors(statement)]
    return next(n for n in around if edits.text.parents[n] is holder and isinstance(n, ast.stmt))


# --- iterations in Python -----------------------------------------------------------------------------


def _of_iteration(spot: Spot, edits: Edits, use: KeyUse, counters: dict[ast.comprehension, str]) -> KeyUse:
    """A use in a comprehension as one of the comprehension, with the number of the iteration folded in."""
    for node in edits.text.ancestors(use.node):
        if isinstance(node, ast.stmt | ast.Lambda):
            return use
        if isinstance(node, scope.COMPREHENSIONS) and use.node is not node.generators[0].iter:
            for generator in node.generators:
                if generator not in counters:
                    counters[generator] = _counter(edits, generator, {*counters.values()})
            numbers = [counters[g] for g in node.generators]
            return _of_iteration(spot, edits, _folded(spot, edits, node, use, numbers), counters)
    return use


def _folded(spot: Spot, edits: Edits, around: ast.AST, use: KeyUse, numbers: Sequence[str]) -> KeyUse:
    def give(key: str) -> None:
        for number in numbers:
            key = spot.write("jax.random.fold_in($key, $n)", edits, key=key, n=number)
        use.give(key)

    return KeyUse(around, give)


def _counter(edits: Edits, generator: ast.comprehension, taken: set[str]) -> str:
    """The name that counts the iterations of a comprehension, put there where it has none."""
    over, target = generator.iter, generator.target
    called = getattr(over.func, "id", "") if isinstance(over, ast.Call) else ""
    counts = target.elts[0] if called == "enumerate" and isinstance(target, ast.Tuple) else target
    counted = called in ("range", "enumerate") and isinstance(counts, ast.Name)
    if counted and isinstance(counts, ast.Name) and counts.id != "_":
        return counts.id
    name = edits.fresh("i", "n", "number", taken=taken)
    if counted:
        edits.changes[edits.text.span(counts)] = name
        return name
    pattern = edits.code(target)
    if isinstance(target, ast.Tuple) and not in_brackets(pattern):
        pattern = f"({pattern})"
    edits.changes[edits.text.span(target)] = f"{name}, {pattern}"
    edits.replace(over, f"enumerate({edits.code(over)})")
    return name


# --- functions inside of the function -----------------------------------------------------------------


def _function_around(edits: Edits, node: ast.AST, holder: ast.AST) -> Function | None:
    """The innermost function around a node that stands in what holds it."""
    found = next((n for n in edits.text.ancestors(node) if n is holder or isinstance(n, Function)), None)
    return found if isinstance(found, Function) and found is not holder else None


def _taken_along(spot: Spot, edits: Edits, function: Function, uses: Sequence[KeyUse]) -> list[KeyUse]:
    """The uses in an inner function as those of what calls it, which gives each call or iteration its key."""

    def of_call(key: str) -> None:
        _split(spot, edits, function, uses, key)

    call, position = _caller(edits, function)
    full = spot.full(call) if call is not None else ""
    if call is None:
        return _called(spot, edits, function, uses)
    if full == "jax.lax.fori_loop" and position == 2:
        number = function.args.args[0].arg
        return [_folded(spot, edits, call, KeyUse(function, of_call), [number])]
    if full == "jax.lax.scan" and position == 0:
        return [_scanned(spot, edits, function, uses, call)]
    return [KeyUse(call, of_call)]


def _called(spot: Spot, edits: Edits, function: Function, uses: Sequence[KeyUse]) -> list[KeyUse]:
    """An inner function takes a key from each of its calls."""
    if isinstance(function, ast.Lambda):
        raise CannotEdit("it may be called anywhere")
    around = edits.text.outermost(function) or edits.text.tree
    calls = [c for c in edits.text.within(around, ast.Call) if edits.text.code(c.func) == function.name]
    own = edits.fresh("key", "rng", "own_key")
    keyword = signature.add_parameter(edits, function, own)
    _split(spot, edits, function, uses, own, own)

    def give(call: ast.Call, key: str) -> None:
        signature.pass_to(edits, call, {own: key}, keyword=keyword)

    return [KeyUse(c, partial(give, c)) for c in calls]


def _caller(edits: Edits, function: Function) -> tuple[ast.Call | None, int]:
    """The call that is given the function, and the function's place among its arguments."""
    text = edits.text
    around = text.within(text.outermost(function) or text.tree, ast.Call)
    for call in [text.parents[function]] if isinstance(function, ast.Lambda) else around:
        for position, given in enumerate(call.args if isinstance(call, ast.Call) else ()):
            if given is function or edits.text.code(given) == getattr(function, "name", None):
                assert isinstance(call, ast.Call)
                return call, position
    return None, 0


def _scanned(spot: Spot, edits: Edits, function: Function, uses: Sequence[KeyUse], call: ast.Call) -> KeyUse:
    """Each row of a scan has a key beside it."""
    row, rows, sub = function.args.args[1], argument_at(call, 2, "xs"), edits.fresh("sub", "subkey")
    length = argument_at(call, 3, "length")
    if (rows is None or isinstance(rows, ast.Constant)) and length is not None:
        edits.replace(row, sub)
        _split(spot, edits, function, uses, sub)

        def give(key: str) -> None:
            keys = spot.write("jax.random.split($key, $n)", edits, key=key, n=length)
            edits.replace(rows, keys) if rows is not None else edits.argument(call, f"xs={keys}")
    elif rows is not None and isinstance(function, FunctionNode):
        both = edits.fresh(f"{row.arg}_and_key")
        edits.before(signature.first_statement(function), f"{row.arg}, {sub} = {both}")
        edits.replace(row, both)
        _split(spot, edits, function, uses, sub)

        def give(key: str) -> None:
            many, pair = getattr(rows, "elts", [rows])[0], "($xs, jax.random.split($key, len($n)))"
            edits.replace(rows, spot.write(pair, edits, xs=rows, key=key, n=many))
    else:
        raise CannotEdit("its rows have no place for a key")
    return KeyUse(call, give)


# --- families ----------------------------------------------------------------------------------------

_NO_USE = frozenset("key_data clone shape print".split())


def reused_keys(spot: Spot) -> Iterator[Change]:
    """Every draw from a key that is used twice gets a key of its own."""
    functions = [f for f in spot.path if isinstance(f, Function)]
    for key in dict.fromkeys(spot.names if functions else ()):
        function = next((f for f in functions if root(key) in bound_by(f)), functions[-1])
        edits = spot.edits()
        if uses := _uses(spot, edits, function, key):
            share(spot, edits, function, uses, key)
            title = f"split `{key}` so that each draw has its own key"
            yield Change(title, edits, claim=Claim("other random"))


def _uses(spot: Spot, edits: Edits, function: Function, key: str) -> list[KeyUse]:
    """Arguments that hand the key to a call which uses it up, or makes others of it."""
    names = {key} | {
        s.targets[0].id for s in spot.text.within(function, ast.Assign)
        if ast.unparse(s.value) == key and isinstance(s.targets[0], ast.Name)
    }  # fmt: skip
    calls = spot.text.within(function, ast.Call)
    folds = [ast.unparse(c) for c in calls if last_name(c.func) == "fold_in"]
    found = []
    for call in calls:
        around = itertools.takewhile(lambda n: n is not function, spot.text.ancestors(call))
        if any(isinstance(n, Function) and root(key) in bound_by(n) for n in around):
            continue
        kept = last_name(call.func) in _NO_USE or folds.count(ast.unparse(call)) == 1
        for given in handed((*call.args, *(k.value for k in call.keywords))):
            if not kept and ast.unparse(given) in names and not _splits(spot, call, names):
                found.append(KeyUse(given, partial(edits.replace, given)))
    return found


def _splits(spot: Spot, call: ast.Call, names: set[str]) -> bool:
    """`key, sub = split(key)`: what is left of the key goes on under its name."""
    statement = spot.text.statement(call)
    bound = scope.stores(statement) if getattr(statement, "value", None) is call else []
    return not names.isdisjoint(bound)

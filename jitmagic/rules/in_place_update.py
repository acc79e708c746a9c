"""JM107 in-place-update: an array is changed in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail, root
from jitmagic.rules.classify import of_kind
from jitmagic.rules.parsed_text import ParsedText, only_stored, parse, stores_into
from jitmagic.rules.words import expression, quoted
from jitmagic.source import scope
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import SCOPES, nodes_of, parameters_of, updated_array

VIEWS = frozenset("reshape ravel view squeeze transpose swapaxes".split())
METHODS = {"+=": "add", "-=": "subtract", "*=": "multiply", "/=": "divide", "**=": "power"}


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """Assignments to elements of arrays, and updates of arguments that nobody gets to see."""
    for problem in of_kind(evidence, RULE.kind):
        yield _assignment(evidence, problem)
    source = parse(evidence.function)
    if source is not None and not evidence.problems:
        yield from _discarded(evidence, source)
        lost = [*_not_returned(evidence, source)]
        yield from lost
        yield from _for_the_caller(evidence, source)
        yield from () if lost else _in_memory(evidence, source)


def _assignment(evidence: Evidence, problem: Problem) -> Finding:
    target = _target(problem)
    names = culprits(evidence, problem)
    base = ast.unparse(target.value) if target is not None else ""
    names = tuple(sorted(names, key=lambda n: n != base))
    if base and base not in names:
        names = (base, *names)
    name = base or (names[0] if names else "x")
    index = ast.unparse(target.slice) if target is not None else "i"
    source = problem.where.source if problem.where else ""
    method = next((m for sign, m in METHODS.items() if sign in source), "set")
    return RULE.finding(
        evidence,
        f"{quoted(expression(problem) or source)} changes {quoted(name)} in place, "
        f"but the compiled `{evidence.function.name}` cannot change an array",
        where=problem.where,
        culprits=names,
        help=f"bind the changed array to the name again: `{name} = {name}.at[{index}].{method}(...)` "
        f"(of `jnp.asarray({name})` where it may be a NumPy array), and return it",
        detail=exception_detail(problem),
    )


def _target(problem: Problem) -> ast.Subscript | None:
    for text in (expression(problem), problem.where.source if problem.where else ""):
        try:
            statement = next(iter(ast.parse(text.strip()).body), None)
        except SyntaxError:
            continue
        one = getattr(statement, "value" if isinstance(statement, ast.Expr) else "target", None)
        for found in getattr(statement, "targets", [one]):
            if isinstance(found, ast.Subscript):
                return found
    return None


def _discarded(evidence: Evidence, source: ParsedText) -> Iterator[Finding]:
    """`x.at[i].set(v)` as a statement, in the function or in one that it calls: the new array is thrown away."""
    found = {
        (where.line, where.text): (where, base)
        for node in nodes_of(source.own())
        if isinstance(node, ast.Expr) and (base := updated_array(node.value))
        for where in (source.where(node.value),)
    }
    for fact in evidence.silent.dropped:
        if fact.array:
            found.setdefault((fact.where.line, fact.where.text), (fact.where, fact.array))
    for where, base in found.values():
        yield RULE.finding(
            evidence,
            f"{quoted(where.text)} gives a new array, which is thrown away: {quoted(base)} stays as it was",
            where=where,
            culprits=[base],
            severity="warning",
            help=f"bind the result: `{base} = {where.text}`",
        )


def _not_returned(evidence: Evidence, source: ParsedText) -> Iterator[Finding]:
    """A function that binds its parameters anew and returns nothing: all its work is left out."""
    node = source.own()
    if not isinstance(node, FunctionNode) or evidence.writes or "callback" in evidence.function.source:
        return
    inside = nodes_of(node)
    if any(isinstance(n, ast.Return) and n.value is not None or isinstance(n, ast.Yield) for n in inside):
        return
    parameters = {*parameters_of(node)}
    updates = [
        n for n in inside if isinstance(n, ast.Assign | ast.AugAssign | ast.Expr) and _updates(n) & parameters
    ]
    if updates and not _may_reach_the_caller(evidence, updates, parameters):
        last = max(updates, key=lambda n: n.lineno)
        names = sorted(_updates(last) & parameters)
        bound = "binds a new array" if scope.stores(last) else "changes a copy of what was passed"
        yield RULE.finding(
            evidence,
            f"{quoted(ast.unparse(last))} {bound} inside `{evidence.function.name}`; it is not returned, so "
            f"the caller's {quoted(names[0])} stays as it was and the compiled program does nothing",
            where=source.where(last),
            culprits=names,
            severity="warning",
            help=f"end `{evidence.function.name}` with `return {', '.join(names)}` and bind the result at "
            "the call",
        )


def _may_reach_the_caller(evidence: Evidence, updates: Sequence[ast.stmt], parameters: set[str]) -> bool:
    """What is stored in a `jax.Ref` is seen outside; before the first call, each item may be one of a `jax.Ref`."""
    if evidence.calls:
        return bool(evidence.silent.refs)
    return any({stores_into(n)} & parameters for n in updates)


def _for_the_caller(evidence: Evidence, source: ParsedText) -> Iterator[Finding]:
    """A list or dict of the caller's that the function only stores into."""
    node, function = source.own(), evidence.function.name
    written = dict.fromkeys(root(w.path) for w in evidence.writes if w.origin == "argument")
    seen = evidence.silent.refs
    for name in (n for n in written if n not in seen):
        for store in only_stored(node, name)[:1]:
            yield RULE.finding(
                evidence,
                f"{quoted(ast.unparse(store))} changes the {quoted(name)} of the caller: a compiled `{function}` "
                f"stores into a copy, and the caller's {quoted(name)} stays as it was",
                where=source.where(store),
                culprits=[name],
                severity="warning",
                help=f"return what is stored, and put it into {quoted(name)} where `{function}` is called",
            )


def _in_memory(evidence: Evidence, source: ParsedText) -> Iterator[Finding]:
    """What NumPy does in place with an argument, or with a view of one, and jax does not: `x.sort()`, `x += 1`,
    `for row in x: row -= 1`. Where a run has shown `x += 1`, state-write tells."""
    node, function = source.own(), evidence.function.name
    differs = any(d.reason == "values" and not d.compiler for d in evidence.differences)
    if evidence.jitted_by_user and not differs:
        return
    arrays = {x.path: x.path for c in evidence.calls for x in c.leaves if x.kind == "numpy" and x.shape}
    told = {root(w.path) for w in evidence.writes if w.origin == "argument"}
    inner = {id(n) for f in nodes_of(node) if isinstance(f, SCOPES) and f is not node for n in nodes_of(f)}
    own = [n for n in nodes_of(node) if isinstance(n, ast.stmt) and id(n) not in inner]
    for statement in sorted(own, key=lambda n: n.lineno):
        if not isinstance(statement, ast.AugAssign):
            for bound in _bound_anew(statement) - {name for name, _ in _bindings(statement)}:
                arrays.pop(bound, None)
        for bound, value in _bindings(statement):
            whole = arrays.get(_looked_at(value))
            if whole is not None:
                arrays[bound] = whole
            else:
                arrays.pop(bound, None)
        name, how = _changed(statement)
        if name not in arrays or (how != "sort" and arrays[name] == name and name in told):
            continue
        whole, text = arrays[name], ast.unparse(statement)
        does = (
            "gives a sorted copy, which is thrown away" if how == "sort" else f"binds a new array to `{name}`"
        )
        help = f"bind what is new: `{whole} = {whole}.at[...].set(...)`"
        if how == "sort":
            help = f"bind what is new: `{name} = jnp.sort({name})`"
        elif name == whole:
            help = f"return the new `{name}` and bind it where `{function}` is called, or begin with a copy"
        yield RULE.finding(
            evidence,
            f"{quoted(text)} changes NumPy's array in place, but {does} while jax traces "
            f"`{function}`: {quoted(whole)} stays as it was",
            where=source.where(statement),
            culprits=list(dict.fromkeys((name, whole))),
            severity="warning",
            help=help,
        )
        return


def _bound_anew(statement: ast.stmt) -> set[str]:
    """Names that a statement itself binds; those in its block have their turn."""
    if not hasattr(statement, "body") or isinstance(statement, SCOPES):
        return {*scope.stores(statement)}
    heads = [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.expr | ast.withitem)]
    return {name for head in heads for name in scope.stores(head)}


def _bindings(statement: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement binds, each with what it then stands for, or for a part of which."""
    if isinstance(statement, ast.Assign):
        pairs = [(t, statement.value) for t in statement.targets]
    elif isinstance(statement, ast.For):
        pairs = [*_in_turn(statement.target, statement.iter)]
    else:
        return
    for target, value in pairs:
        if isinstance(target, ast.Name):
            yield target.id, value


def _in_turn(target: ast.expr, over: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`row` of `x` in `for row in x`, `for i, row in enumerate(x)`, `for row, w in zip(x, ws)`."""
    called = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
    if called in ("enumerate", "zip") and isinstance(target, ast.Tuple):
        parts = [ast.Constant(0), *over.args[:1]] if called == "enumerate" else over.args  # type: ignore[attr-defined]
        yield from zip(target.elts, parts, strict=False)
    else:
        yield target, over


def _looked_at(node: ast.expr) -> str:
    """The array of which an expression is a view in NumPy, or nothing: `m` for `m[:, 0]` and `m.T`."""
    while True:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS:
            node = node.func.value
        elif (
            isinstance(node, ast.Subscript)
            or isinstance(node, ast.Attribute)
            and node.attr in ("T", "flat", "real")
        ):
            node = node.value
        else:
            return ""


def _changed(statement: ast.AST) -> tuple[str, str]:
    """Name and way of `name += …` and `name.sort()`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, "augmented"
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "sort":
        return ast.unparse(call.func.value), "sort"
    return "", ""


def _updates(node: ast.stmt) -> set[str]:
    """Names that a statement binds, and those into whose items it stores."""
    return {*scope.stores(node), stores_into(node)}


RULE = Rule("JM107", "in-place-update", "error", find)

"""What the function asks of the world, or draws at random, as an argument that each call passes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import drawn, given_keys, trial
from jitmagic.fixes.silent.text import (
    FunctionNode,
    Text,
    add_parameter,
    calls_in,
    pass_to,
    the,
)
from jitmagic.report import Finding, Fix
from jitmagic.source.expressions import dotted_name, last_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For hidden-rng, frozen-side-effect and items taken out: the key, or the expression, becomes an argument."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    line = text.line_of(finding)
    sources = trial.call_sources(prover)
    if function is None or not line or not sources:
        return
    if finding.kind == "state-write" and not any(
        _takes_out(n) for n in ast.walk(function) if _is_on(n, line)
    ):
        return
    if finding.kind == "hidden-rng":
        found = given_keys.propose(finding, evidence, prover, text, line, sources)
        if found is not None:
            yield from found
            return
    families = [_hoisted, drawn.propose] if finding.kind == "hidden-rng" else [_hoisted]
    draw = drawn.drawing(text, line, prover.checker.namespace)
    if draw is not None and drawn.is_repeated(text, draw):
        families.reverse()  # one number for all turns is not what was meant
    for family in families:
        fixes = list(family(finding, evidence, prover, line, sources))
        yield from fixes
        if fixes:
            return


_TAKERS = frozenset("pop popleft popitem get_nowait readline send".split())


def _is_on(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 0) == line


def _takes_out(node: ast.AST) -> bool:
    """`events.pop(0)`, `next(it)`: the value is wanted, not the change alone."""
    if not isinstance(node, ast.Call):
        return False
    return dotted_name(node.func) == "next" or getattr(node.func, "attr", "") in _TAKERS


# --- an expression as an argument


def _hoisted(
    finding: Finding, evidence: Evidence, prover: Prover, line: int, sources: Sequence[str]
) -> Iterator[Fix]:
    plain = Text(evidence.function.cell)
    function = plain.function(evidence.function.name)
    assert function is not None
    for node in _expressions(plain, function, finding, evidence, line):
        for static in (False, True):
            made = _with_parameter(evidence, node, sources)
            if made is None:
                continue
            cell, calls, name = made
            if finding.kind == "hidden-rng" and not static and not _varies(prover, cell, [calls[0]] * 2):
                yield from _made_once(prover, cell, calls, plain.code(node), name)
                return
            words = _proved(prover, cell, calls, sources, name if static else "")
            if words is None:
                continue
            options = prover.checker.options
            yield Fix(
                title=f"pass `{plain.code(node)}` as an argument at each call", applicability="unsafe",
                verified=True, evidence=words, cell=cell, calls=tuple(dict.fromkeys(calls)),
                static_argnames=(*options.static_argnames, name) if static else None,
            )  # fmt: skip
            return
    if _may_not_run_again(finding, evidence):
        yield from untried(finding, evidence, prover)


def _may_not_run_again(finding: Finding, evidence: Evidence) -> bool:
    """A file is read, or something taken from a generator: a run that nobody asked for leaves that alone."""
    asked = {e.what for e in (evidence.silent.effects if evidence.silent else ())}
    return finding.kind == "frozen-side-effect" and bool(asked & {"file", "iterator"})


def _varies(prover: Prover, cell: str, calls: Sequence[str]) -> bool:
    """The last two of these calls, which are the same, give other numbers; also where that cannot be seen."""
    with contextlib.suppress(Exception):
        first, second = trial.play(prover, cell, calls).results[-2:]
        return not trial.same(first, second)
    return True


def _made_once(prover: Prover, cell: str, calls: Sequence[str], code: str, name: str) -> Iterator[Fix]:
    """What is made anew from a fixed seed at each call, made once in front of them: a framework's module goes on."""
    passed = [s.replace(code, name) for s in calls]
    program = [f"{name} = {code}", *passed]
    with contextlib.suppress(Exception):
        got, plain = trial.play(prover, cell, program), trial.play(prover, cell, program, jit=False)
        if trial.same(plain.results, got.results) and _varies(prover, cell, [program[0], *passed[:1] * 2]):
            yield Fix(
                title=f"make `{name}` once and pass it as an argument", applicability="unsafe", verified=True,
                evidence=f"traced; the same with and without jit on {len(calls)} calls, and other numbers each time",
                cell=cell, calls=tuple(program),
            )  # fmt: skip


def untried(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """As an argument what may not be asked a second time: a queue, the user, another process."""
    text = Text(evidence.function.cell)
    function, line, sources = (
        text.function(evidence.function.name),
        text.line_of(finding),
        trial.call_sources(prover),
    )
    for node in (
        _expressions(text, function, finding, evidence, line)
        if function is not None and line and sources
        else ()
    ):
        made = _with_parameter(evidence, node, sources)
        if made is not None:
            yield Fix(
                title=f"pass `{text.code(node)}` as an argument at each call", applicability="unsafe", verified=False,
                evidence="not tried: it may wait, or change something outside", cell=made[0],
                calls=tuple(dict.fromkeys(made[1])),
            )  # fmt: skip
            return


def _expressions(
    text: Text, function: FunctionNode, finding: Finding, evidence: Evidence, line: int
) -> list[ast.expr]:
    """The asking expression and those around it that use nothing local but parameters, the largest first."""
    asked: list[ast.expr] = [
        n for n in ast.walk(function) if isinstance(n, ast.Call | ast.Subscript) and n.lineno == line
    ]
    names = {c.partition("(")[0] for c in finding.culprits}
    asked = [n for n in asked if _mentions(n, names)] or asked
    if not asked and not _same_each_time(finding, evidence):
        asked = _leading_to(text, function, line)
    if not asked:
        return []
    local = _local(function) - {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    start = min(asked, key=lambda n: text.span(n)[1] - text.span(n)[0])
    found: list[ast.expr] = []
    node: ast.AST = start
    while isinstance(node, ast.expr | ast.keyword):
        reads = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if isinstance(node, ast.expr) and not reads & local and not isinstance(text.parents[node], ast.Expr):
            found.append(node)
        node = text.parents[node]
    parameters = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    # Without a parameter in it an expression can be asked anywhere: such are better than the larger ones.
    free = [n for n in found if not {x.id for x in ast.walk(n) if isinstance(x, ast.Name)} & parameters]
    return [*reversed(free), *(n for n in found if n not in free)]


def _same_each_time(finding: Finding, evidence: Evidence) -> bool:
    """The draw is from a fixed key: to ask the helper for it again gives the same numbers."""
    facts = evidence.silent.random if evidence.silent else ()
    origins = {f.origin for f in facts if finding.span and f.where.source == finding.span.source}
    return bool(origins) and origins <= {"fixed", "captured"}


def _leading_to(text: Text, function: FunctionNode, line: int) -> list[ast.expr]:
    """Calls in the function of the helper of this cell that has the line, or of one that calls that helper."""
    helpers = [n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n is not function]
    inside = [n for n in helpers if n.lineno <= line <= (n.end_lineno or 0)]
    reached = {min(inside, key=lambda n: (n.end_lineno or 0) - n.lineno).name} if inside else set()
    while True:
        calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and last_name(n.func) in reached]
        more = {
            h.name
            for h in helpers
            for n in ast.walk(h)
            if isinstance(n, ast.Call) and last_name(n.func) in reached
        }
        if calls or more <= reached:
            return list(calls)
        reached |= more


def _mentions(node: ast.AST, names: set[str]) -> bool:
    found = {dotted_name(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}
    return any(f == n or f.startswith(n + ".") for f in found for n in names if n)


def _local(function: FunctionNode) -> set[str]:
    return {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {
        n.arg for n in ast.walk(function) if isinstance(n, ast.arg)
    }


def _with_parameter(
    evidence: Evidence, node: ast.expr, sources: Sequence[str]
) -> tuple[str, list[str], str] | None:
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    assert function is not None
    node = the(
        n
        for n in ast.walk(function)
        if isinstance(n, ast.expr) and _at(n) == _at(node) and type(n) is type(node)
    )
    statement, code = text.statement(node), text.code(node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is node else None
    if isinstance(target, ast.Name):
        name = (
            target.id
            if target.id not in {a.arg for a in function.args.args}
            else text.fresh(f"new_{target.id}")
        )
    else:
        name = text.fresh(*_named(node))
    try:
        keyword = add_parameter(text, function, name)
        if isinstance(target, ast.Name) and name == target.id:
            text.remove(statement)
        else:
            text.replace(node, name)
        cell = text.result()
        calls = [_call_with(s, evidence, function, code, name, keyword) for s in sources]
    except (SyntaxError, ValueError, LookupError):
        return None
    return cell, calls, name


def _call_with(
    source: str, evidence: Evidence, function: FunctionNode, code: str, name: str, keyword: bool
) -> str:
    """The calls with the expression as an argument, the function's parameters in it replaced by what is passed."""
    text = Text(source)
    order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    for call in calls_in(text.tree, evidence.function.name):
        given = _defaults(function)
        plain = order
        if "." in evidence.function.name and order[:1] == ["self"]:
            given |= {"self": call.func.value} if isinstance(call.func, ast.Attribute) else {}
            plain = order[1:]
        given |= dict(zip(plain, call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        pass_to(text, call, name, _filled(code, given), keyword=keyword)
    return text.result()


def _filled(code: str, given: dict[str, ast.expr]) -> str:
    """The expression with these in the place of its names. Raises ValueError where one must not run twice."""
    inner = Text(code)
    for n in ast.walk(inner.tree):
        if isinstance(n, ast.Name) and n.id in given:
            value = given[n.id]
            if any(isinstance(x, ast.Call) and not _makes_an_array(x) for x in ast.walk(value)):
                raise ValueError("the argument would be computed twice")
            made = ast.unparse(value)
            inner.replace(n, made if isinstance(value, (ast.Name, ast.Call, ast.Constant)) else f"({made})")
    return inner.result().strip()


def _makes_an_array(call: ast.Call) -> bool:
    """`jnp.ones(3)`: to write it twice gives the same twice."""
    return dotted_name(call.func).partition(".")[0] in ("jnp", "np", "jax", "float", "int", "len")


def _defaults(function: FunctionNode) -> dict[str, ast.expr]:
    """Parameters with plain defaults, and what a call passes that leaves them out."""
    a = function.args
    order = [*a.posonlyargs, *a.args]
    pairs = [*zip(order[len(order) - len(a.defaults) :], a.defaults, strict=True)]
    pairs += [(k, d) for k, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    return {k.arg: d for k, d in pairs if isinstance(d, ast.Constant | ast.Name | ast.UnaryOp)}


def _at(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


_WORDS = {"normal": "noise", "randn": "noise", "standard_normal": "noise", "gauss": "noise", "uniform": "u",
          "rand": "u", "time": "now", "perf_counter": "now", "now": "now", "choice": "chosen",
          "permutation": "order", "next": "item",
          "randint": "number", "integers": "number", "random": "u", "getenv": "setting", "environ": "setting",
          "open": "contents", "input": "answer"}  # fmt: skip


def _named(node: ast.expr) -> tuple[str, ...]:
    calls = [dotted_name(n.func).rpartition(".")[2] for n in ast.walk(node) if isinstance(n, ast.Call)]
    word = next((_WORDS[c] for c in calls if c in _WORDS), "value")
    return (word, "value")


def _proved(
    prover: Prover, cell: str, calls: Sequence[str], sources: Sequence[str], static: str
) -> str | None:
    """How the fix was proved, or None: the plain function's results in a row, or at least jit as without."""
    from dataclasses import replace

    options = prover.checker.options
    if static:
        options = replace(options, static_argnames=(*options.static_argnames, static))
    for some in (list(calls), list(calls)[:1]):
        with contextlib.suppress(Exception):
            got = trial.play(prover, cell, some, options=options).results
            wanted = trial.original(prover, list(sources)[: len(some)], jit=False).results
            if trial.same(wanted, got):
                number = f"{len(got)} call{'s' * (len(got) > 1)}"
                return f"traced; equal to the run without jit on {number}"
            if _repeats(prover, sources):
                continue  # what is asked gives the same again: then the results have to be the same
            plain = trial.play(prover, cell, some, jit=False, options=options).results
            if all(_alike(a, b) for a, b in zip(plain, got, strict=True)):
                return "traced; what is asked is an argument now, so each call asks anew"
    return None


def _repeats(prover: Prover, sources: Sequence[str]) -> bool:
    one = trial.original(prover, list(sources)[:1], jit=False).results
    return trial.same(one, trial.original(prover, list(sources)[:1], jit=False).results)


def _alike(a: Any, b: Any) -> bool:
    import jax

    one, two = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(one) == len(two) and all(
        getattr(x, "shape", ()) == getattr(y, "shape", ()) for x, y in zip(one, two, strict=True)
    )

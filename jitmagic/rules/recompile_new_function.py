"""JM404 recompile-new-function: a new function object is made and compiled for each call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, root, traced_calls
from jitmagic.rules.parsed_text import ParsedText, definitions, loaded_names, parse_cell
from jitmagic.rules.recompile import is_function, signature, without_address
from jitmagic.rules.words import quoted, short
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import statements, walk

COMPILERS = ("jax.jit", "jax.pjit", "jitmagic.jit", "jax.pmap", "equinox.filter_jit", "flax.nnx.jit")


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """Static functions that are new at each call, and `jax.jit` in a loop."""
    for path, text in new_functions(evidence).items():
        yield RULE.finding(
            evidence,
            f"{quoted(path)} is a new function object at each call (`{short(text, 50)}`), and "
            f"`{evidence.function.name}` is compiled again for each, though the text is the same",
            where=evidence.function.where,
            culprits=[path, root(path)],
            help=f"define the function once, before the calls, and pass that object for {quoted(path)}",
        )
    source = parse_cell(evidence.function)
    if source is not None:
        yield from _jit_in_loops(evidence, source)


def new_functions(evidence: Evidence) -> dict[str, str]:
    """Static leaves that differ between two traced calls by the function object alone, with their text."""
    calls = list(traced_calls(evidence))
    found: dict[str, str] = {}
    for i, later in enumerate(calls):
        for x in later:
            if not (x.static and is_function(x)):
                continue
            for earlier in calls[:i]:
                before = next((y for y in earlier if y.path == x.path), None)
                if (
                    before is not None
                    and without_address(before.value) == without_address(x.value)
                    and before.code == x.code
                    and signature(earlier, x.path) == signature(later, x.path)
                ):
                    found[x.path] = without_address(x.value) or x.python_type
    return found


def _jit_in_loops(evidence: Evidence, source: ParsedText) -> Iterator[Finding]:
    for function in definitions(source.tree):
        for loop in statements(function):
            if isinstance(loop, ast.For | ast.While):
                for call in _compiling_calls(source, loop):
                    yield _in_loop(evidence, source, function, loop, call)


def _compiling_calls(source: ParsedText, loop: ast.For | ast.While) -> Iterator[ast.Call]:
    """`jax.jit(...)` of a function made anew at each turn: a call, a lambda, or one defined in the loop."""
    inside = {n.name for n in walk(loop) if isinstance(n, FunctionNode)}
    for statement in loop.body:
        for name, call in source.calls(statement):
            made = call.args[0] if call.args else None
            new = isinstance(made, ast.Call | ast.Lambda) or (
                isinstance(made, ast.Name) and made.id in inside
            )
            if name in COMPILERS and new:
                yield call


def _in_loop(
    evidence: Evidence, source: ParsedText, function: FunctionNode, loop: ast.For | ast.While, call: ast.Call
) -> Finding:
    inside = [n.id for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    used = [n for n in loaded_names(call) if n in inside]
    others = [n for n in loaded_names(call) if n not in inside]
    return RULE.finding(
        evidence,
        f"{quoted(ast.unparse(call))} makes and compiles a new function in each iteration of the loop in "
        f"`{function.name}`",
        where=source.where(call),
        culprits=used or others or [function.name],
        help="call `jax.jit` once, before the loop, and pass "
        + (f"{quoted(used[0])} as an argument" if used else "what varies as arguments"),
    )


RULE = Rule("JM404", "recompile-new-function", "warning", find)

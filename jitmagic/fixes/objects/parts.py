"""What a function uses of an object, as arguments of its own: `f(loader)` as `f(next(iter(loader)))`."""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.calls import argument_of
from jitmagic.fixes.silent.text import FunctionNode, Text, calls_in
from jitmagic.fixes.silent.wholes import is_jit
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover
    from jitmagic.options import JitOptions

_TAKES = frozenset("next iter len list tuple float int bool sorted str".split())
_ARRAYS = ("asarray", "array")


@dataclass(frozen=True)
class Part:
    """One expression of the object alone: its source, the parameter it becomes, and its value in the call seen."""

    code: str
    name: str
    value: Any


def propose(finding: Finding, evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """The function with the object's values as parameters, and its calls with these values."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    sources = trial.call_sources(prover)
    if function is None or not sources or hasattr(value, "__next__"):
        return  # to ask an iterator would take something away
    from jitmagic.fixes.objects import tuples

    if isinstance(value, list) and (finding.kind == "unhashable-static" or _settings_alone(value, finding)):
        others = [
            c for c in finding.culprits if c != name and isinstance(tuples.given(evidence, prover, c), list)
        ]
        yield from tuples.of_lists(evidence, prover, [name, *others], sources)
        return
    parts = _parts(text, function, name, value, prover)
    if not parts and isinstance(value, dict) and finding.kind == "unhashable-static":
        yield from tuples.of_items(text, function, evidence, prover, name, sources)
    if not parts:
        return
    yield from passed(evidence, prover, name, parts)


def passed(
    evidence: Evidence, prover: Prover, name: str, parts: Sequence[Part], again: str = ""
) -> Iterator[Fix]:
    """The parts in place of the parameter, of which it is made `again` where that is given; static are texts and
    functions, and further settings where that is not enough."""
    sources = trial.call_sources(prover)
    own = not prover.checker.settings.compile
    cell = _rewritten(Text(evidence.function.cell), evidence.function.name, name, parts, own, again)
    calls = [_call(s, evidence, name, parts) for s in sources]
    if cell is None or calls == sources:
        return
    options = with_refused(without(prover.checker.options, name, evidence), evidence, prover, name)
    settings = tuple(p.name for p in parts if isinstance(p.value, (str, bool, int)) or callable(p.value))
    surely = tuple(p.name for p in parts if isinstance(p.value, str) or callable(p.value))
    numbers = tuple(p.name for p in parts if p.name in settings or isinstance(p.value, float))
    for static in dict.fromkeys((surely, settings, numbers)):
        made = replace(options, static_argnames=tuple(dict.fromkeys((*options.static_argnames, *static))))
        words = proved(prover, cell, sources, calls, made)
        if words:
            yield _fix(name, parts, static, words, cell, calls, made, evidence)
            return


def refused(evidence: Evidence, prover: Prover, name: str = "") -> tuple[str, ...]:
    """Other arguments that jax does not take either and that may be static: texts and functions."""
    import jax

    from jitmagic.tracing.search import is_jax_type, why_not_static

    sample, known = prover.samples[-1], prover.checker.options.static_parameters(prover.checker.fn)
    given = {**dict(zip(evidence.function.parameters, sample.args, strict=False)), **sample.kwargs}
    return tuple(
        n for n, value in given.items()
        if n not in (name, *known) and not all(map(is_jax_type, jax.tree.leaves(value)))
        and not why_not_static(value)
    )  # fmt: skip


def with_refused(options: JitOptions, evidence: Evidence, prover: Prover, name: str) -> JitOptions:
    """The options with those static too."""
    return replace(options, static_argnames=(*options.static_argnames, *refused(evidence, prover, name)))


def without(options: JitOptions, name: str, evidence: Evidence) -> JitOptions:
    """The same static arguments by name, this one left out: numbers would count other parameters."""
    order = evidence.function.parameters
    numbered = [order[n] for n in options.static_argnums if -len(order) <= n < len(order)]
    return options.static_by_name(n for n in (*options.static_argnames, *numbered) if n != name)


def _settings_alone(value: list[Any], finding: Finding) -> bool:
    """Text, functions and tuples of them: nothing that jax could trace. Numbers too, where it did and may not."""
    from jitmagic.tracing.search import why_not_static

    numbers = (bool, int, float, complex) if finding.kind == "invalid-jax-type" else ()
    return bool(value) and not any(isinstance(v, numbers) or why_not_static(v) for v in value)


def _fix(
    name: str, parts: Sequence[Part], static: Sequence[str], words: str, cell: str, calls: Sequence[str],
    options: Any, evidence: Evidence,
) -> Fix:  # fmt: skip
    used = ", ".join(f"`{p.code}`" for p in parts)
    cost = f"; each new {listed(static)} compiles again" if static else ""
    return Fix(
        title=f"pass {used} in place of `{name}`{cost}", applicability="unsafe", verified=True, evidence=words,
        cell=cell, calls=tuple(dict.fromkeys(calls)), static_argnames=_said(options, evidence),
        diff=diff(evidence.function.cell, cell),
    )  # fmt: skip


def _said(options: JitOptions, evidence: Evidence) -> tuple[str, ...] | None:
    """The whole list where there is or was one: an empty one says that nothing is static any more."""
    declared = evidence.options.static_argnames or evidence.options.static_argnums
    return options.static_argnames if declared or options.static_argnames else None


def proved(prover: Prover, cell: str, sources: list[str], calls: list[str], options: Any) -> str | None:
    """Words of proof where the corrected cell, with the calls replaced, gives what the user's gives without jit."""
    changed = dict(zip(sources, calls, strict=True))
    with contextlib.suppress(Exception):
        history = trial.history(prover)
        got = trial.play(prover, cell, [changed.get(s, s) for s in history], options=options)
        wanted = trial.original(prover, history, jit=False)
        if got.results and trial.same(wanted.results, got.results):
            number = len(got.results)
            return f"traced; equal to the run without jit on {number} call{'s' * (number > 1)}"
    return None


# --- what the function uses


def _parts(text: Text, function: FunctionNode, name: str, value: Any, prover: Prover) -> list[Part]:
    """Every use of the parameter as an expression that is an array or a setting; none where one is not."""
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
    uses.sort(key=lambda n: (n.lineno, n.col_offset))
    if not uses or any(not isinstance(n.ctx, ast.Load) for n in uses):
        return []
    found: dict[str, Part] = {}
    taken = set(text.names) - {name}
    for use in uses:
        node = _whole(text, use, name, value, prover)
        if node is None:
            return []
        code = text.code(node)
        if code not in found:
            wanted = _wanted(text, node)
            fresh = (
                wanted
                if wanted not in taken or _assigned_only(text, node)
                else text.fresh(wanted, f"{name}_{wanted}")
            )
            taken.add(fresh)
            found[code] = Part(code, fresh, _value(code, name, value, prover))
    return list(found.values())


def _whole(text: Text, use: ast.Name, name: str, value: Any, prover: Prover) -> ast.expr | None:
    """The smallest expression around the use that is an array, a number, text or a function."""
    node: ast.AST = use
    while True:
        parent = text.parents[node]
        if not isinstance(parent, ast.expr) or not _of_object_alone(parent, node, name):
            return None
        node = parent
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Store):
            return None
        called = text.parents[node]
        if isinstance(called, ast.Call) and called.func is node and isinstance(node, ast.Attribute):
            if not _own_function(value, node):
                continue  # a method: its result is wanted, not itself
        if usable(_value(text.code(node), name, value, prover)):
            return node


def _own_function(value: Any, node: ast.Attribute) -> bool:
    """A function that the object holds as an attribute of its own: an activation, say."""
    held = getattr(value, "__dict__", {}).get(node.attr)
    return isinstance(node.value, ast.Name) and callable(held)


def _of_object_alone(parent: ast.expr, node: ast.AST, name: str) -> bool:
    if isinstance(parent, ast.Attribute):
        return True
    if isinstance(parent, ast.Subscript):
        return parent.value is node and not _names(parent.slice)
    if not isinstance(parent, ast.Call):
        return False
    others = [a for a in (*parent.args, *(k.value for k in parent.keywords)) if a is not node]
    if any(_names(a) - {name} for a in others):
        return False
    if parent.func is node:
        return True
    function = parent.func
    return (
        isinstance(function, ast.Name) and function.id in _TAKES or getattr(function, "attr", "") in _ARRAYS
    )


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _value(code: str, name: str, value: Any, prover: Prover) -> Any:
    """The expression on a copy of the object; None where it fails."""
    with contextlib.suppress(Exception), trial.aside(prover):
        return eval(code, dict(prover.checker.namespace), {name: copy.deepcopy(value)})
    return None


def usable(value: Any) -> bool:
    """A text, a function, or a tree of numbers and arrays."""
    import jax
    import numpy as np

    if (
        value is None
        or isinstance(value, (str, bool))
        or type(value).__name__ in ("function", "PjitFunction")
    ):
        return value is not None
    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(
        isinstance(v, (int, float, complex, np.generic, np.ndarray, jax.Array)) for v in leaves
    )


def _assigned_only(text: Text, node: ast.expr) -> bool:
    """The whole of `name = expression`."""
    statement = text.parents[node]
    return (
        isinstance(statement, ast.Assign) and statement.value is node and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
    )  # fmt: skip


def _wanted(text: Text, node: ast.expr) -> str:
    if _assigned_only(text, node):
        return text.parents[node].targets[0].id  # type: ignore[attr-defined]
    last = [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    if isinstance(node, ast.Attribute):
        return node.attr
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ):
        return node.slice.value if node.slice.value.isidentifier() else "value"
    return last[0] if last and last[0].isidentifier() else "value"


# --- the cell and the calls


def _rewritten(
    text: Text, qualified: str, name: str, parts: Sequence[Part], own: bool = False, again: str = ""
) -> str | None:
    """The cell with the parts as parameters; a decorator is left to say what is static where the cell compiles by its
    `own`."""
    function = text.function(qualified)
    if function is None:
        return None
    a = function.args
    plain = [*a.posonlyargs, *a.args]
    given = [
        *plain[: len(plain) - len(a.defaults)],
        *(x for x, default in zip(a.kwonlyargs, a.kw_defaults, strict=True) if default is None),
    ]
    parameter = next((x for x in given if x.arg == name), None)
    if parameter is None:
        return None
    if not all(own and _only_compiles(d) for d in function.decorator_list):
        return None  # positions in its options would be wrong
    if a.vararg is not None and a.vararg.arg == name:
        return None
    text.replace(parameter, ", ".join(p.name for p in parts))
    if again:
        documented = ast.get_docstring(function) is not None and len(function.body) > 1
        text.before(function.body[documented], [f"{name} = {again}"])
        return text.result()
    names = {p.code: p.name for p in parts}
    for node in list(ast.walk(function)):
        if not isinstance(node, ast.expr) or isinstance(getattr(node, "ctx", ast.Load()), ast.Store):
            continue
        code = text.code(node)
        if code in names:
            if _assigned_only(text, node) and text.parents[node].targets[0].id == names[code]:  # type: ignore[attr-defined]
                text.remove(text.parents[node])  # type: ignore[arg-type]
            else:
                text.replace(node, names[code])
    return text.result()


def _only_compiles(decorator: ast.expr) -> bool:
    """`jit` with static arguments at most, which are written anew; donated ones by position would be others."""
    donated = any(isinstance(n, ast.keyword) and n.arg == "donate_argnums" for n in ast.walk(decorator))
    return any(map(is_jit, ast.walk(decorator))) and not donated


def _call(source: str, evidence: Evidence, name: str, parts: Sequence[Part]) -> str:
    """The call with the values of the object that it passes."""
    text = Text(source)
    for call in calls_in(text.tree, evidence.function.name):
        node = argument_of(call, evidence, name)
        if node is None:
            continue
        given = text.code(node)
        given = given if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) else f"({given})"
        new = [_entry(text, node, p, name) or _with(p.code, name, given) for p in parts]
        keyword = next((k for k in call.keywords if k.value is node), None)
        if keyword is not None:
            text.replace(keyword, ", ".join(f"{p.name}={e}" for p, e in zip(parts, new, strict=True)))
        else:
            text.replace(node, ", ".join(new))
    return text.result()


def _entry(text: Text, node: ast.expr, part: Part, name: str) -> str:
    """The value in a dict display for `name["key"]`."""
    wanted = ast.parse(part.code, mode="eval").body
    if not isinstance(wanted, ast.Subscript) or ast.unparse(wanted.value) != name:
        return ""
    entries: dict[str, ast.expr] = {}
    if isinstance(node, ast.Dict):
        entries = {ast.unparse(k): v for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and not node.args:
        entries = {repr(k.arg): k.value for k in node.keywords if k.arg}
    found = entries.get(ast.unparse(wanted.slice))
    return text.code(found) if found is not None else ""


def _with(code: str, name: str, given: str) -> str:
    inner = Text(code)
    for n in ast.walk(inner.tree):
        if isinstance(n, ast.Name) and n.id == name:
            inner.replace(n, given)
    return inner.result()

"""Values that a function reads from outside, as arguments that each call passes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import FunctionNode, Text, add_argument, add_parameter
from jitmagic.report import Finding, Fix
from jitmagic.rules.base import root
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For numbers and arrays of the notebook that change: `f(w)` as `f(w, lr)`."""
    sources = trial.call_sources(prover)
    yield from _defaults(finding, evidence, prover, sources)
    bound = [
        v for v in evidence.variables if v.type in ("array", "scalar") and v.origin in ("global", "closure")
    ]
    known = {v.path: v for v in bound if root(v.path) in prover.checker.namespace}
    paths = [c for c in finding.culprits if c in known and not known[c].written]
    if not sources or not paths:
        return
    roots = list(dict.fromkeys(map(root, paths)))
    for wanted in (paths, roots) if all(_is_tree(prover, r) for r in roots) else (paths,):
        with contextlib.suppress(ValueError):
            cell, calls = _rewritten(evidence, wanted, sources)
            words = _proved(prover, cell, sources, calls)
            if (
                Text(cell).function(evidence.function.name) is None
            ):  # the calls are of what another one has made
                calls = _among_all(prover, sources, calls)
            if words:
                yield Fix(
                    title=f"take {listed(wanted)} as an argument", applicability="unsafe",
                    verified=True, evidence=words, cell=cell, calls=tuple(calls),
                )  # fmt: skip
                return


def _defaults(finding: Finding, evidence: Evidence, prover: Prover, sources: Sequence[str]) -> Iterator[Fix]:
    """Calls that leave out a large array, which is then a constant, pass it: `f(x)` as `f(x, basis=BASIS)`."""
    function = Text(evidence.function.cell).function(evidence.function.name)
    left_out = {v.path for v in evidence.variables if v.origin == "default"} & set(finding.culprits)
    if function is None or not left_out or finding.kind != "large-constant":
        return
    a = function.args
    pairs = [*zip(reversed([*a.posonlyargs, *a.args]), reversed(a.defaults), strict=False)]
    pairs += [(k, d) for k, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    for parameter, default in pairs:
        if parameter.arg in left_out and isinstance(default, ast.Name | ast.Attribute):
            path = ast.unparse(default)
            calls = [
                add_argument(s, evidence.function.name, parameter.arg, path, keyword=True) for s in sources
            ]
            words = _proved(prover, evidence.function.cell, sources, calls)
            if words:
                yield Fix(
                    title=f"pass `{path}` at each call", applicability="safe", verified=True, evidence=words,
                    calls=tuple(calls),
                )  # fmt: skip


def _is_tree(prover: Prover, name: str) -> bool:
    """Arrays and numbers in dicts, lists and tuples: what a function can take as one argument."""
    import jax

    leaves = jax.tree.leaves(prover.checker.namespace.get(name))
    return bool(leaves) and all(hasattr(v, "dtype") or isinstance(v, (int, float, complex)) for v in leaves)


def _rewritten(evidence: Evidence, paths: Sequence[str], sources: Sequence[str]) -> tuple[str, list[str]]:
    """The cell whose function has a parameter for each path, and the calls that pass it. Raises ValueError."""
    name = evidence.function.name
    cell, calls = evidence.function.cell, list(sources)
    for path in paths:
        text = Text(cell)
        function = text.function(name) or _returned(text, name)
        wanted = ast.dump(ast.parse(path, mode="eval").body)
        if function is None:
            raise ValueError("the cell does not define it")
        own = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
        own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        reads = [n for n in ast.walk(function) if isinstance(n, ast.expr) and ast.dump(n) == wanted]
        parameter = _parameter(path)
        if not reads or parameter in own:
            raise ValueError("it reads it by another name, or has a name like that")
        for node in reads if parameter != path else ():
            text.replace(node, parameter)
        keyword = add_parameter(text, function, parameter)
        cell = text.result()
        calls = [add_argument(s, name, parameter, path, keyword=keyword) for s in calls]
    return cell, calls


def _returned(text: Text, name: str) -> FunctionNode | None:
    """The function of that name inside another one, where there is one such."""
    found = [n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.name == name]
    return found[0] if len(found) == 1 else None


def _parameter(path: str) -> str:
    """`lr` for `cfg['lr']` and `cfg.lr`. Raises ValueError where nothing in the path is a name."""
    node = ast.parse(path, mode="eval").body
    key = (
        node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else None
    )
    name = getattr(node, "attr", getattr(node, "id", key))
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError("it has no name")
    return name


def _proved(prover: Prover, cell: str, sources: Sequence[str], calls: Sequence[str]) -> str:
    history = trial.history(prover)
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, _among_all(prover, sources, calls))
        wanted = trial.original(prover, history, jit=False)
        if got.results and trial.same(wanted.results, got.results):
            number = len(got.results)
            return (
                f"traced; equal to the run without jit on {number} call{'s' * (number > 1)}, changes included"
            )
    return ""


def _among_all(prover: Prover, sources: Sequence[str], calls: Sequence[str]) -> list[str]:
    """The corrected calls in their places among all that ran."""
    changed = dict(zip(sources, calls, strict=True))
    return [changed.get(s, s) for s in trial.history(prover)]

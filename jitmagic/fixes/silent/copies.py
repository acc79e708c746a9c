"""Arguments that a function writes into: it takes a copy first, and the caller's stays as it was."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic import quiet
from jitmagic.evidence import Evidence
from jitmagic.fixes.silent.text import FunctionNode, Text, the
from jitmagic.report import Finding, Fix
from jitmagic.rules.base import root
from jitmagic.watched import plainly

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For a state-write to items of a dict or list argument: one line in front of the body."""
    own = [w for w in evidence.writes if w.origin == "argument" and w.path in finding.culprits]
    names = list(dict.fromkeys(root(w.path) for w in own))
    if not own or len(names) != 1 or not prover.samples:
        return
    cell = _copied(evidence.function.cell, evidence.function.name, names[0])
    if cell is not None and (words := _proved(prover, cell, [w.path for w in own])):
        yield Fix(
            title=f"work on a copy of {names[0]}",
            applicability="safe",
            verified=True,
            evidence=words,
            cell=cell,
        )


def _copied(cell: str, function: str, name: str) -> str | None:
    text = Text(cell)
    last = function.rpartition(".")[2]
    node = the(n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.name == last)
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1
    text.before(node.body[1] if documented else first, [f"{name} = {name}.copy()"])
    return text.result()


def _proved(prover: Prover, cell: str, paths: list[str]) -> str | None:
    """The result is the plain one, and the arguments are what they were."""
    from jitmagic.fixes.definitions import define, find
    from jitmagic.measure.compare import compare

    checker, sample = prover.checker, prover.samples[-1]
    namespace: dict[str, Any] = dict(checker.namespace)
    define(cell, namespace)
    fn = find(namespace, checker.name)
    wanted = prover.run_plain(sample)
    with quiet.undone(checker.reach(sample.args, sample.kwargs)) as before, quiet.held_back(), plainly():
        got = fn(*sample.args, **sample.kwargs)
        left = {w.path for w in before.changes()}
    if compare(wanted, got) or left & set(paths):
        return None
    return "run again without jit: the same result, and the argument is as it was before the call"

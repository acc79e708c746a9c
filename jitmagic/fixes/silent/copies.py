"""Arguments that a function writes into: it takes a copy first, or gives back what it only stores into."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.checking.watched import plainly
from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.calls import argument_of, replaced
from jitmagic.fixes.silent.text import FunctionNode, Text, calls_in, the
from jitmagic.report import Finding, Fix
from jitmagic.rules.base import root
from jitmagic.rules.source import only_stored
from jitmagic.source.tree import walk
from jitmagic.state.region import holds_state
from jitmagic.trial import quiet

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
            title=f"work on a copy of `{names[0]}`",
            applicability="safe",
            verified=True,
            evidence=words,
            cell=cell,
        )


def propose_for_caller(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For an argument of the caller's that jax copies (a list, dict or registered object), into which the function
    only stores: it is returned, beside the result if there is one, and bound again."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    name = root(next(iter(finding.culprits), ""))
    if function is None or not (
        only_stored(function, name) or _has_attributes_written(evidence, prover, name)
    ):
        return
    returns = [n for n in walk(function) if isinstance(n, ast.Return)]
    if any(getattr(n.value, "id", "") == name for n in returns):
        return  # it is given back already
    alone = all(n.value is None for n in returns)
    sources = trial.call_sources(prover)
    calls = [_bound_again(s, evidence, name, alone) for s in sources]
    for node in returns:
        value = text.code(node.value) if node.value is not None else "None"
        bare = isinstance(node.value, ast.Tuple) and not value.startswith("(")
        text.replace(node, f"return {name}" if alone else f"return {f'({value})' if bare else value}, {name}")
    if alone and not isinstance(function.body[-1], ast.Return):
        text.after(function.body[-1], [f"{' ' * function.body[-1].col_offset}return {name}"])
    if None in calls or not sources:
        return
    cell, new = text.result(), [c for c in calls if c is not None]
    if words := _given_back(prover, cell, sources, new, alone):
        beside = "" if alone else " beside the result"
        yield Fix(
            title=f"return `{name}`{beside}, and bind it again where `{evidence.function.name}` is called",
            applicability="unsafe", verified=True, evidence=words, cell=cell, calls=tuple(dict.fromkeys(new)),
        )  # fmt: skip


def _has_attributes_written(evidence: Evidence, prover: Prover, name: str) -> bool:
    """An argument that is an object of a class registered with jax, whose attributes the function binds anew."""
    import jax

    if name not in evidence.function.parameters or not prover.samples:
        return False
    sample = prover.samples[-1]
    value = {**dict(zip(evidence.function.parameters, sample.args, strict=False)), **sample.kwargs}.get(name)
    written = any(w.origin == "argument" and w.path.startswith(f"{name}.") for w in evidence.writes)
    if holds_state(value):
        return False  # the framework's own jit carries its variables back
    return written and not isinstance(value, (list, dict)) and not jax.tree_util.all_leaves([value])


def _bound_again(source: str, evidence: Evidence, name: str, alone: bool) -> str | None:
    """`result, log = f(log, x)` for `f(log, x)`, and `y, log = ...` for `y = f(log, x)`; `log = ...` where it is
    returned alone."""
    statement = ast.parse(source).body[-1]
    call = getattr(statement, "value", None)
    if not isinstance(call, ast.Call) or call not in calls_in(statement, evidence.function.name):
        return None
    argument = argument_of(call, evidence, name)
    if not isinstance(argument, ast.Name):
        return None
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    result = ast.unparse(targets[0]) if len(targets) == 1 else "result"
    text = Text(source)
    bound = argument.id if alone else f"{result}, {argument.id}"
    return text.replace(text.tree.body[-1], f"{bound} = {text.code(_value(text))}").result()


def _value(text: Text) -> ast.AST:
    return text.tree.body[-1].value  # type: ignore[attr-defined, no-any-return]


def _given_back(prover: Prover, cell: str, sources: list[str], calls: list[str], alone: bool) -> str | None:
    """The compiled function gives the old results, and at last what the plain one leaves in the argument."""
    import jax

    with contextlib.suppress(Exception):
        history = replaced(prover, sources, calls)
        got = trial.play(prover, cell, history).results
        plain = trial.play(
            prover, prover.checker.cell.body, trial.history(prover), jit=False, watch=_contents
        )
        last = jax.tree.leaves(got[-1] if alone else got[-1][1])
        filled = any(trial.same(given, last) for given in plain.states[-1])
        if filled and (alone or trial.same(plain.results, [r[0] for r in got])):
            return f"traced; equal to the run without jit on {len(got)} call{'s' * (len(got) > 1)}"
    return None


def _contents(namespace: dict[str, Any], args: Sequence[Any]) -> list[Any]:
    """What the arguments that jax takes apart hold after a call."""
    import jax

    return [jax.tree.leaves(a) for a in args if not jax.tree_util.all_leaves([a])]


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

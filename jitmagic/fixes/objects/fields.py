"""Settings among the fields of a class that jax knows already: declared static where the class declares them."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes import adopt
from jitmagic.fixes.objects import register
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent import classes, trial
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(evidence: Evidence, prover: Prover, value: Any) -> Iterator[Fix]:
    """The cell with the texts, flags and functions among an object's fields as its settings."""
    source, cell = evidence.function.cell, evidence.function.cell
    found: dict[str, list[str]] = {}
    for node in _nodes(value):
        found.setdefault(type(node).__name__, []).extend(_settings(node))
    for kind, fields in found.items():
        if fields:
            cell = _declared(cell, kind, list(dict.fromkeys(fields)), prover.checker.namespace) or cell
    if cell == source:
        return
    words = register.proved(prover, cell, trial.history(prover))
    if words:
        names = listed(list(dict.fromkeys(f for fields in found.values() for f in fields)))
        yield Fix(
            title=f"declare {names} static: a setting, and each new value compiles again", applicability="safe",
            verified=True, evidence=words, cell=cell, diff=diff(source, cell),
        )  # fmt: skip


def as_arrays(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`level: float` of a module of Equinox as a field that makes an array of it: each other number compiles anew."""
    from jitmagic.fixes.silent import hoisting, states

    path, cell = finding.culprits[0], evidence.function.cell
    name, text = path.rpartition(".")[2], Text(cell)
    jax, numpy = (states.alias(prover, module) for module in ("jax", "jax.numpy"))
    if evidence.framework != "equinox" or name == path or not jax or not numpy:
        return
    for node in (n for n in ast.walk(text.tree) if isinstance(n, ast.ClassDef)):
        made = _field(node, prover.checker.namespace)
        for part in (p for p in node.body if isinstance(p, ast.AnnAssign)):
            kind = ast.unparse(part.annotation) if ast.unparse(part.target) == name else ""
            if made is not None and kind in ("float", "int"):
                default = f"default={text.code(part.value)}, " if part.value is not None else ""
                text.replace(part, f"{name}: {jax}.Array = {made[0]}({default}converter={numpy}.asarray)")
    changed = text.result()
    words = hoisting.compared_whole(prover, changed, trial.later(prover)) if changed != cell else None
    if words:
        yield Fix(
            title=f"hold `{name}` as an array", applicability="safe", verified=True, evidence=words, cell=changed,
        )  # fmt: skip


def _nodes(value: Any) -> Iterator[Any]:
    """The object and those below it that jax takes apart."""
    from jitmagic.silent import pytrees

    yield from (node for _, node in pytrees.objects([("", "", value)]))


def _settings(node: Any) -> list[str]:
    """Fields that jax finds in the object and cannot trace."""
    import jax

    from jitmagic.silent import pytrees

    children = (pytrees.one_level(node) or ((), None))[0]
    held = adopt.fields(node)
    return [
        name
        for name, value in held.items()
        if any(value is child for child in children)
        and jax.tree.leaves(value)
        and not any(register.is_data(v, False) for v in jax.tree.leaves(value))
    ]


def _declared(cell: str, kind: str, names: Sequence[str], namespace: Mapping[str, Any]) -> str | None:
    """The class with these fields static, by the means of what it is made with; None where that is not known."""
    text = Text(cell)
    node = next((n for n in ast.walk(text.tree) if isinstance(n, ast.ClassDef) and n.name == kind), None)
    if node is None:
        return None
    if any(getattr(m, "name", "") == "tree_flatten" for m in node.body):
        children, aux = classes.parts_of(text, node)
        return classes.rewritten(text, node, [c for c in children if c not in names], [*aux, *names])
    made = _field(node, namespace)
    declared = {ast.unparse(n.target): n for n in node.body if isinstance(n, ast.AnnAssign)}
    if made is None or not set(names) <= set(declared):
        return None
    function, static = made
    for name in names:
        register.declare(text, declared[name], function, static)
    return text.result()


def _field(node: ast.ClassDef, namespace: Mapping[str, Any]) -> tuple[str, str] | None:
    """The function that declares a field of such a class, and what makes it static."""
    modules = {k: v.__name__ for k, v in namespace.items() if isinstance(v, types.ModuleType)}
    heads = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    for made in (*node.bases, *heads):
        head, _, last = ast.unparse(made).rpartition(".")
        root, _, rest = head.partition(".")
        module = ".".join(filter(None, (modules.get(root, root), rest)))
        if (module, last) == ("equinox", "Module"):
            return f"{head}.field", "static=True"
        if (module, last) == ("flax.struct", "dataclass"):
            return f"{head}.field", "pytree_node=False"
    return None

"""A static argument that has no hash: the class of this cell gets one, or the call passes a value that has one."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.objects import parts, tuples
from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.calls import with_changed
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Fix
from jitmagic.tracing.search import why_not_static

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


MOST = 8
"""Entries of an array that may be a shape."""


def propose(evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """`frozen=True` or a `__hash__` for the class of an object; `int(n)` for a number that is an array."""
    sources = trial.history(prover)
    template = _plain_form(value)
    if template:
        yield from called_with(evidence, prover, name, template)
        return
    found = _with_hash(evidence.function.cell, value)
    if found is None:
        return
    cell, title = found
    words = parts.proved(prover, cell, sources, sources, prover.checker.options)
    if words:
        yield Fix(
            title=f"{title}: its attributes must not change, and each new one compiles again",
            applicability="unsafe", verified=True, evidence=words, cell=cell, diff=diff(evidence.function.cell, cell),
        )  # fmt: skip


def _plain_form(value: Any) -> str:
    """How to write a hashable value for this one, or nothing."""
    import numpy as np

    if isinstance(value, set):
        return "frozenset({})"
    kind = np.dtype(value.dtype).kind if isinstance(value, np.ndarray) or hasattr(value, "weak_type") else ""
    if isinstance(value, tuple):
        return "{}"
    if kind and np.shape(value) == ():
        return {"i": "int({})", "u": "int({})", "f": "float({})", "b": "bool({})"}.get(kind, "")
    if kind in ("i", "u") and np.ndim(value) == 1 and np.size(value) <= MOST:
        return "tuple({}.tolist())"
    return ""


def as_parts(evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """A dict of settings or a slice as a tuple, a set as a frozen one, which have a hash; the function makes of it
    what it was."""
    form = next((f for kind, f in _FORMS.items() if isinstance(value, kind)), None)
    if form is None or (isinstance(value, dict) and any(map(why_not_static, value.values()))):
        return
    what, again, given = form
    text, options = Text(evidence.function.cell), prover.checker.options
    function = text.function(evidence.function.name)
    if function is None:
        return
    if again:
        documented = ast.get_docstring(function) is not None and len(function.body) > 1
        text.before(function.body[documented], [f"{name} = {again.format(name)}"])
    cell, sources = text.result(), trial.call_sources(prover)
    calls = [_with_argument(source, evidence, name, given) for source in sources]
    declared = name in options.static_parameters(prover.checker.fn)
    made = options
    if not declared:
        made = dataclasses.replace(options, static_argnames=(*options.static_argnames, name))
        made = parts.with_refused(made, evidence, prover, name)
    words = parts.proved(prover, cell, sources, calls, made)
    if words and calls != sources:
        yield Fix(
            title=f"pass {what.format(f'`{name}`')}, which has a hash, and make it static: each new one compiles again",
            applicability="unsafe", verified=True, evidence=words, cell=cell if again else None,
            calls=tuple(dict.fromkeys(calls)), static_argnames=None if declared else made.static_argnames,
            diff=diff(evidence.function.cell, cell),
        )  # fmt: skip


_FORMS = {
    dict: ("the items of {} as a tuple", "dict({})", "tuple({0}.items())"),
    slice: ("the bounds of {} as a tuple", "slice(*{})", "({0}.start, {0}.stop, {0}.step)"),
    set: ("a frozenset for {}", "", "frozenset({0})"),
}
"""What is passed, how the function makes the value of it again, and how the call writes it."""


def _with_argument(source: str, evidence: Evidence, name: str, form: str) -> str:
    """The call with this form of the argument; that of a slice which stands in it is what stands there."""

    def change(text: Text, node: ast.expr) -> None:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "slice" and len(node.args) > 1:
            text.replace(node, f"({', '.join(map(text.code, node.args))})")
        else:
            text.replace(node, form.format(names.wrapped(text.code(node))))

    return with_changed(source, evidence, [name], change)


def called_with(evidence: Evidence, prover: Prover, name: str, template: str) -> Iterator[Fix]:
    """The calls with the argument in another form: `list({})` makes a list of it."""

    def change(text: Text, node: ast.expr) -> None:
        text.replace(node, _listed(text, node) or template.format(text.code(node)))

    sources = trial.call_sources(prover)
    calls = [with_changed(s, evidence, [name], change) for s in sources]
    if calls == sources:
        return
    words = parts.proved(prover, evidence.function.cell, sources, calls, prover.checker.options)
    what = template.partition("(")[0].strip("{}") or "tuple"
    if words:
        cost = "" if what == "list" else ": each new one compiles again"
        yield Fix(
            title=f"pass {'an' if what == 'int' else 'a'} {what} for `{name}`{cost}",
            applicability="unsafe" if what == "tuple" else "safe", verified=True, evidence=words,
            calls=tuple(dict.fromkeys(calls)),
        )  # fmt: skip


def _listed(text: Text, node: ast.expr) -> str:
    """`(2, 3)` for `np.array([2, 3])`, and `((1, 2), 3)` for `([1, 2], 3)`."""
    if isinstance(node, ast.Tuple):
        return tuples.as_tuples(text.code(node))
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in ("array", "asarray"):
        return ""
    if len(node.args) != 1 or node.keywords or not isinstance(node.args[0], ast.List):
        return ""
    inside = text.code(node.args[0])[1:-1].strip().rstrip(",")
    return f"({inside},)" if len(node.args[0].elts) == 1 else f"({inside})"


def _with_hash(cell: str, value: Any) -> tuple[str, str] | None:
    """The cell in which the class of the object has a hash by what it holds, and what was done."""
    text, kind = Text(cell), type(value)
    node = next((n for n in text.tree.body if isinstance(n, ast.ClassDef) and n.name == kind.__name__), None)
    if node is None:
        return None
    if dataclasses.is_dataclass(kind):
        return _as_frozen(text, node, value)
    equal = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__eq__"), None)
    if equal is None:
        return None
    own = equal.args.args[0].arg
    read = {
        n.attr for n in ast.walk(equal) if isinstance(n, ast.Attribute) and getattr(n.value, "id", "") == own
    }
    compared = [f for f in vars(value) if f in read]
    if not compared:
        return None
    _hash_after(text, equal, own, {f: vars(value)[f] for f in compared})
    return text.result(), f"give `{kind.__name__}` a hash by what `__eq__` compares"


def _as_frozen(text: Text, node: ast.ClassDef, value: Any) -> tuple[str, str] | None:
    """`frozen=True`, and a hash of its own where a field is a list, dict or set."""
    held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.compare}
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
    if not fields:
        return None
    done = []
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        if ast.unparse(call.func if call else decorator).rpartition(".")[2] != "dataclass":
            continue
        inside = [text.code(k) for k in call.keywords if k.arg != "frozen"] if call else []
        function = text.code(call.func if call else decorator)
        frozen = f"{function}({', '.join([*inside, 'frozen=True'])})"
        if frozen != text.code(decorator):
            text.replace(decorator, frozen)
            done.append(f"make `{node.name}` a frozen dataclass")
    if any(isinstance(v, (list, dict, set)) for v in held.values()):
        _hash_after(text, fields[-1], "self", held)
        done.append("give it a hash by its fields" if done else f"give `{node.name}` a hash by its fields")
    return (text.result(), ", and ".join(done)) if done else None


def _hash_after(text: Text, node: ast.stmt, own: str, held: dict[str, Any]) -> None:
    parts = [_hashed(f"{own}.{name}", value) for name, value in held.items()]
    fields = ", ".join(parts) + ("," if len(parts) == 1 else "")
    pad = " " * node.col_offset
    lines = ["", f"def __hash__({own}):", f"    return hash(({fields}))"]
    text.after(node, [pad + line if line else "" for line in lines])


def _hashed(path: str, value: Any) -> str:
    """What stands for a field in the hash."""
    if isinstance(value, list):
        return f"tuple({path})"
    if isinstance(value, set):
        return f"frozenset({path})"
    return f"tuple(sorted({path}.items()))" if isinstance(value, dict) else path

"""A static argument that has no hash: the class of this cell gets one, or the call passes a value that has one."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.objects import parts
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.calls import argument_of
from jitmagic.fixes.silent.text import Text, calls_in
from jitmagic.report import Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """`frozen=True` or a `__hash__` for the class of an object; `int(n)` for a number that is an array."""
    sources = trial.history(prover)
    wrapper = _plain_form(value)
    if wrapper:
        yield from _called_with(evidence, prover, name, wrapper)
        return
    found = _with_hash(evidence.function.cell, value)
    if found is None:
        return
    cell, title = found
    words = parts._proved(prover, cell, sources, sources, prover.checker.options)
    if words:
        yield Fix(
            title=f"{title}: its attributes must not change, and each new one compiles again",
            applicability="unsafe", verified=True, evidence=words, cell=cell, diff=diff(evidence.function.cell, cell),
        )  # fmt: skip


def _plain_form(value: Any) -> str:
    """The function that makes a hashable value of this one, or nothing."""
    import numpy as np

    if isinstance(value, set):
        return "frozenset"
    if hasattr(value, "dtype") and np.shape(value) == ():
        return {"i": "int", "u": "int", "f": "float", "b": "bool"}.get(np.dtype(value.dtype).kind, "")
    return ""


def _called_with(evidence: Evidence, prover: Prover, name: str, wrapper: str) -> Iterator[Fix]:
    sources, calls = trial.call_sources(prover), []
    for source in sources:
        text = Text(source)
        for call in calls_in(text.tree, evidence.function.name):
            node = argument_of(call, evidence, name)
            if node is not None:
                text.replace(node, f"{wrapper}({text.code(node)})")
        calls.append(text.result())
    if calls == sources:
        return
    words = parts._proved(prover, evidence.function.cell, sources, calls, prover.checker.options)
    if words:
        yield Fix(
            title=f"pass `{wrapper}(...)` for `{name}`: each new one compiles again", applicability="safe",
            verified=True, evidence=words, calls=tuple(dict.fromkeys(calls)),
        )  # fmt: skip


def _with_hash(cell: str, value: Any) -> tuple[str, str] | None:
    """The cell in which the class of the object has a hash by what it holds, and what was done."""
    text, kind = Text(cell), type(value)
    node = next((n for n in text.tree.body if isinstance(n, ast.ClassDef) and n.name == kind.__name__), None)
    if node is None:
        return None
    if dataclasses.is_dataclass(kind):
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            if ast.unparse(call.func if call else decorator).rpartition(".")[2] != "dataclass":
                continue
            inside = [text.code(k) for k in call.keywords if k.arg != "frozen"] if call else []
            function = text.code(call.func if call else decorator)
            text.replace(decorator, f"{function}({', '.join([*inside, 'frozen=True'])})")
            return text.result(), f"make `{kind.__name__}` a frozen dataclass"
        return None
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
    fields = ", ".join(f"{own}.{f}" for f in compared) + ("," if len(compared) == 1 else "")
    pad = " " * equal.col_offset
    lines = ["", f"def __hash__({own}):", f"    return hash(({fields}))"]
    text.after(equal, [pad + line if line else "" for line in lines])
    return text.result(), f"give `{kind.__name__}` a hash by what `__eq__` compares"

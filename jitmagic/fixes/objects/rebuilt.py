"""An object or dict that the function hands on as a whole: its values are passed, and it is made of them again."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes import adopt
from jitmagic.fixes.objects import parts, register
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

MOST = 12
"""Values that may become parameters."""


def propose(evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """`def f(x, lr, kind): cfg = Config(lr=lr, kind=kind)`, and calls with `cfg.lr, cfg.kind`."""
    text = Text(evidence.function.cell)
    held = value if isinstance(value, dict) else adopt.fields(value)
    written = any(w.path.partition(".")[0].partition("[")[0] == name for w in evidence.writes)
    if not 0 < len(held) <= MOST or written or register.stores(evidence.function.cell, evidence, name):
        return
    if not all(isinstance(k, str) and k.isidentifier() and not k.startswith("_") for k in held):
        return
    made = list(_parts(text, name, value, held))
    maker = _maker(value, prover.checker.namespace)
    if not maker or not all(v is None or parts.usable(v) for v in held.values()):
        return
    yield from parts.passed(evidence, prover, name, made, again=_written(maker, held, made))


def _parts(text: Text, name: str, value: Any, held: Mapping[str, Any]) -> Iterator[parts.Part]:
    taken = set(text.names) - {name}
    for key, item in held.items():
        code = f'{name}["{key}"]' if isinstance(value, dict) else f"{name}.{key}"
        fresh = key if key not in taken else text.fresh(f"{name}_{key}", f"{name}_{key}")
        taken.add(fresh)
        yield parts.Part(code, fresh, item)


def _written(maker: str, held: Mapping[str, Any], made: Sequence[parts.Part]) -> str:
    pairs = list(zip(held, (p.name for p in made), strict=True))
    if maker == "dict":
        return "{" + ", ".join(f'"{key}": {name}' for key, name in pairs) + "}"
    return f"{maker}({', '.join(f'{key}={name}' for key, name in pairs)})"


def _maker(value: Any, namespace: Mapping[str, Any]) -> str:
    """How the notebook calls the class, where that takes every value by its name."""
    kind = type(value)
    if kind is dict:
        return "dict"
    try:
        inspect.signature(kind).bind(**adopt.fields(value))
    except (TypeError, ValueError):
        if not isinstance(value, types.SimpleNamespace):  # which tells no signature
            return ""
    named = next((n for n, v in namespace.items() if v is kind and not n.startswith("_")), "")
    modules = (n for n, v in namespace.items() if isinstance(v, types.ModuleType) and not n.startswith("_"))
    return named or next(
        (f"{n}.{kind.__name__}" for n in modules if getattr(namespace[n], kind.__name__, None) is kind), ""
    )

"""The equations of a traced program as short text, line by line."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn, Literal

from jitmagic import units
from jitmagic.measure.program import argument_names, walk
from jitmagic.tracing.compat import jaxpr_of, type_of

EQUATIONS = 8
WIDTH = 120
_TOLD = (
    "new_dtype",
    "axes",
    "axis",
    "dimension_numbers",
    "shape",
    "broadcast_dimensions",
    "permutation",
    "exponent",
)


def equations_by_line(closed_jaxpr: object, file: str) -> dict[int, str]:
    """The first equations of each line of `file`; names are consistent over all lines."""
    body = jaxpr_of(closed_jaxpr)
    names = argument_names(body)
    fresh = _letters(set(names.values()))
    found: dict[int, list[str]] = {}
    for operation in walk(closed_jaxpr, file):
        if operation.line is None:
            continue
        texts = found.setdefault(operation.line, [])
        if len(texts) <= EQUATIONS:
            texts.append(_text(operation.eqn, names, fresh))
    return {line: "\n".join(_cut(texts)) for line, texts in found.items()}


def _cut(texts: list[str]) -> list[str]:
    return texts if len(texts) <= EQUATIONS else [*texts[:EQUATIONS], "…"]


def _text(eqn: JaxprEqn, names: dict[Any, str], fresh: Iterator[str]) -> str:
    def name(atom: object) -> str:
        if isinstance(atom, Literal):
            return (
                str(np.asarray(atom.val)) if not getattr(atom.val, "ndim", 0) else f"constant {_type(atom)}"
            )
        return names.setdefault(atom, next(fresh)) if atom not in names else names[atom]

    inputs = " ".join(name(v) for v in eqn.invars)
    outputs = " ".join(f"{name(v)}:{_type(v)}" for v in eqn.outvars)
    told = " ".join(f"{k}={eqn.params[k]}" for k in _TOLD if eqn.params.get(k) not in (None, ()))
    text = f"{outputs} = {eqn.primitive.name}{f'[{told}]' if told else ''} {inputs}"
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def _type(atom: object) -> str:
    shape, dtype = type_of(atom)
    return units.array_type(units.short_dtype(dtype if dtype is not None else "?"), shape)


def _letters(taken: set[str]) -> Iterator[str]:
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            name = "".join(letters)
            if name not in taken:
                yield name

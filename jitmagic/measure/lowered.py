"""What became of each source line: its equations in the traced program as short text, and its instructions in the
optimised one, with the lines that it was fused with."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn, Literal

from jitmagic import units
from jitmagic.measure import hlo
from jitmagic.measure.program import argument_names, walk
from jitmagic.tracing.compat import jaxpr_of, type_of

INSTRUCTIONS = 8
WIDTH = 160
"""What is kept of a line's instructions."""

PARTNERS = 8
"""How many lines of the same fusions are told by number."""

_NOISE = re.compile(r", (?:metadata|backend_config|frontend_attributes)=\{.*$")
TRIVIAL = frozenset("parameter constant tuple get-tuple-element bitcast broadcast".split())
"""Instructions that cost nothing by themselves."""


@dataclass
class Lowered:
    """What became of one source line."""

    fusions: list[str] = field(default_factory=list)
    """Names of the fusions, or of single instructions (`dot`), in the order of the program."""
    instructions: list[str] = field(default_factory=list)


def lowered_lines(text: str, file: str) -> dict[int, Lowered]:
    """What became of each line of `file`, from the text of an optimised program."""
    program = hlo.read(text)
    fusions = {inner: i.name for i in program if i.opcode == "fusion" for inner in i.called}
    found: dict[int, Lowered] = {}
    for instruction in program:
        line = None if instruction.opcode in TRIVIAL else program.line(instruction, file)
        if line is None:
            continue
        lowered, fused = found.setdefault(line, Lowered()), instruction.opcode == "fusion"
        name = fusions.get(instruction.computation) or (instruction.name if fused else instruction.opcode)
        if name not in lowered.fusions:
            lowered.fusions.append(name)
        if not fused:
            kept = _NOISE.sub("", instruction.text).strip().removeprefix("ROOT ")
            lowered.instructions.append(kept[:WIDTH])
    return found


def lines_of_fusions(lines: dict[int, Lowered]) -> dict[str, list[int]]:
    """The lines whose operations lie in each fusion, in order."""
    found: dict[str, list[int]] = {}
    for line in sorted(lines):
        for name in dict.fromkeys(lines[line].fusions):
            if "fusion" in name:
                found.setdefault(name, []).append(line)
    return found


def fused_with(lines: dict[int, Lowered], fusions: dict[str, list[int]], line: int) -> tuple[list[int], int]:
    """The first few of the other lines in the fusions of this one, and how many more there are."""
    mine = [fusions[f] for f in lines[line].fusions if f in fusions] if line in lines else []
    others = sorted({*mine[0]}.union(*mine[1:]) - {line}) if len(mine) > 1 else []
    if len(mine) == 1:  # the usual case: no set of hundreds of lines for each of them
        first = [n for n in mine[0][: PARTNERS + 1] if n != line][:PARTNERS]
        return first, len(mine[0]) - 1 - len(first)
    return others[:PARTNERS], len(others[PARTNERS:])


# -- as traced

EQUATIONS = 8
EQUATION_WIDTH = 120
_TOLD = "new_dtype axes axis dimension_numbers shape broadcast_dimensions permutation exponent".split()


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
    return text if len(text) <= EQUATION_WIDTH else text[: EQUATION_WIDTH - 1] + "…"


def _type(atom: object) -> str:
    shape, dtype = type_of(atom)
    return units.array_type(units.short_dtype(dtype if dtype is not None else "?"), shape)


def _letters(taken: set[str]) -> Iterator[str]:
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            name = "".join(letters)
            if name not in taken:
                yield name

"""JM503 dtype-truncation: numbers of 64 bits are cut to 32."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from jitmagic.evidence import Difference, Evidence, Leaf
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail, root
from jitmagic.rules.captured import first_read
from jitmagic.rules.classify import of_kind
from jitmagic.rules.jit_differs_from_eager import last_return, type_test
from jitmagic.rules.parsed_text import first_use, loaded_names, parse
from jitmagic.rules.words import agree, listed, quoted, short

WIDE = ("int64", "uint64", "float64", "complex128")
LIMIT = 2**31


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding where values differ and numbers of more than 32 bits took part."""
    yield from _facts(evidence)
    wrong = [d for d in evidence.differences if d.reason == "values" and not d.compiler]
    if not wrong or type_test(evidence)[0]:
        return
    wide = [x for x in _leaves(evidence) if is_wide(x)]
    overflow = _beyond(wrong[0].eager)
    blamed = wide or [x for x in _leaves(evidence) if overflow and x.kind in ("scalar", "array", "numpy")]
    if not blamed:
        return
    names = list(dict.fromkeys(x.path for x in blamed))
    yield RULE.finding(
        evidence,
        _message(evidence, wrong[0], names, blamed if wide else []),
        where=wrong[0].where if wrong[0].wraps and not wide else _place(evidence, names),
        culprits=[*names, *map(root, names)],
        help=f"{SWITCH}, or "
        + (f"compute with NumPy and pass {listed(names[:3])} in 32 bits" if wide else "compute with floats"),
        detail=f"largest difference {wrong[0].worst:g}, allowed {wrong[0].allowed:g}",
    )


def _facts(evidence: Evidence) -> Iterator[Finding]:
    """Arguments and constants that lose digits, dtypes that are not given, literals that do not fit."""
    facts = evidence.silent.truncated
    if arrays := [t for t in facts if t.origin != "dtype"]:
        names = list(dict.fromkeys(n for t in arrays for n in t.names))
        first, read = arrays[0], [v for v in evidence.variables if v.path == names[0]]
        yield RULE.finding(
            evidence,
            f"{listed(names)} {agree(names, 'is', 'are')} cut from {first.before} to {first.after} on the way into "
            f"the compiled `{evidence.function.name}`, and {agree(names, 'its', 'their')} values do not fit",
            where=first_read(read) or _place(evidence, names),
            culprits=[*names, *map(root, names)],
            help=f"{SWITCH}, or compute with NumPy and pass {listed(names[:3])} in 32 bits",
        )
    for fact in facts:
        if fact.origin == "dtype":
            yield RULE.finding(
                evidence,
                f"{quoted(fact.where.text if fact.where else '')} asks for {fact.before} and gets {fact.after}: "
                "jax computes with 32 bits",
                where=fact.where,
                culprits=[*fact.names, fact.before],
                help=f"{SWITCH}, or write {fact.after}",
            )
    for problem in of_kind(evidence, RULE.kind):
        if problem.where is not None:
            text = _names(problem.where.text)
            # the names in jax's own message are those of jax's function
            names = [*text, *(n for n in culprits(evidence, problem) if not text or root(n) in text)]
            yield RULE.finding(
                evidence,
                f"an integer in {quoted(problem.where.source)} does not fit into 32 bits",
                where=problem.where,
                culprits=[*(root(n) for n in names if root(n) in evidence.function.parameters), *names],
                severity="error",
                help=f"{SWITCH}, or compute with floats",
                detail=exception_detail(problem),
            )


SWITCH = 'call `jax.config.update("jax_enable_x64", True)` at the top of the notebook'


def _names(text: str) -> list[str]:
    """Names in the text of an expression."""
    try:
        return loaded_names(ast.parse(text.strip()))
    except SyntaxError:
        return []


def is_wide(value: Leaf) -> bool:
    """Whether the leaf has 64 bits, or is a Python number that 32 cannot hold or round by whole units."""
    if value.static:
        return False
    return (
        value.loses_its_units
        or (value.kind == "numpy" and value.dtype in WIDE)
        or (value.kind == "scalar" and _beyond(value.value))
    )


def _message(evidence: Evidence, difference: Difference, names: list[str], wide: list[Leaf]) -> str:
    function = evidence.function.name
    values = (
        f" ({short(difference.jit, 40)} in place of {short(difference.eager, 40)})" if difference.jit else ""
    )
    if wide:
        dtype = f" ({wide[0].dtype})" if wide[0].kind == "numpy" else ""
        return (
            f"{listed(names)}{dtype} {agree(names, 'is', 'are')} cut to 32 bits on the way into the compiled "
            f"`{function}`, and its result differs from that without jit{values}"
        )
    return (
        f"the result of `{function}` from {listed(names)} does not fit into 32 bits: the compiled function "
        f"wraps around{values}"
    )


def _place(evidence: Evidence, names: list[str]):  # type: ignore[no-untyped-def]
    source = parse(evidence.function)
    used = first_use(source, root(names[0])) if source else None
    return used or last_return(evidence) or evidence.function.where


def _leaves(evidence: Evidence) -> list[Leaf]:
    return [x for call in evidence.calls for x in call.leaves if not x.static]


def _beyond(text: str) -> bool:
    """Whether the text holds an integer beyond 32 bits."""
    return any(abs(int(n)) >= LIMIT for n in re.findall(r"(?<![\w.])-?\d{10,}(?![\w.]*\d)", text))


RULE = Rule("JM503", "dtype-truncation", "warning", find)

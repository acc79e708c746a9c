"""JM403 recompile-weak-type: an argument is once a Python number and once an array."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, root
from jitmagic.rules.recompile import histories
from jitmagic.rules.words import agree, listed, quoted
from jitmagic.units import array_type


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for all leaves that differ between traces by nothing but the weak type."""
    names = [
        path
        for path, forms in histories(evidence).items()
        if any(
            a.weak_type != b.weak_type
            and (a.shape, a.static) == (b.shape, b.static)
            and (a.dtype == b.dtype or (a.shape == () and "scalar" in (a.kind, b.kind)))
            for a, b in combinations(forms, 2)
        )
    ]
    if not names:
        return
    forms = histories(evidence)[names[0]]
    first = next(x for x in forms if not x.weak_type)
    made = any(x.weak_type and x.kind == "array" for x in forms)
    weak = "an array made of a Python number (`jnp.array(1.0)`)" if made else "a Python number"
    yield RULE.finding(
        evidence,
        f"{listed(names)} {agree(names, 'is', 'are')} {weak} in one call and "
        f"`{array_type(first.dtype, first.shape)}` in another: `{evidence.function.name}` is compiled for both",
        where=evidence.function.where,
        culprits=[*names, *map(root, names)],
        help=f"pass {quoted(names[0])} as an array from the start: `jnp.{first.dtype or 'asarray'}(...)`",
    )


RULE = Rule("JM403", "recompile-weak-type", "warning", find)

"""JM402 recompile-shape: each new shape of an argument compiles again."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, root, traced_calls
from jitmagic.rules.recompile import histories
from jitmagic.rules.words import listed, quoted
from jitmagic.units import array_type

MANY = 3


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for all arrays that had three or more shapes over the calls that were traced."""
    shapes = {
        path: list(dict.fromkeys(x.shape for x in forms))
        for path, forms in histories(evidence).items()
        if not forms[0].static
    }
    many = [path for path, seen in shapes.items() if len(seen) >= MANY]
    if not many:
        yield from _structures(evidence)
        return
    seen = shapes[many[0]]
    dtypes = {x.shape: x.dtype for x in histories(evidence)[many[0]]}
    shown = ", ".join(array_type(dtypes[shape], shape) for shape in seen[:3])
    yield RULE.finding(
        evidence,
        f"{listed(many)} came in {len(seen)} shapes ({shown}, …), and `{evidence.function.name}` was compiled "
        "again for each",
        where=evidence.function.where,
        culprits=[*many, *map(root, many)],
        help=f"pad {listed(many)} to one size (or a few), pass the true length as an ordinary argument, and "
        "mask what lies beyond it",
    )


def _structures(evidence: Evidence) -> Iterator[Finding]:
    """Arguments that held another number of arrays, or under other names, at each traced call."""
    forms: dict[str, list[tuple[str, ...]]] = {}
    for leaves in traced_calls(evidence):
        for name in dict.fromkeys(x.argument for x in leaves if not x.static):
            forms.setdefault(name, []).append(tuple(x.path for x in leaves if x.argument == name))
    for name, seen in forms.items():
        if len(set(seen)) >= MANY:
            yield RULE.finding(
                evidence,
                f"{quoted(name)} held other arrays at each call ({len(set(seen))} structures so far), and "
                f"`{evidence.function.name}` was compiled again for each",
                where=evidence.function.where,
                culprits=[name],
                help=f"stack what {quoted(name)} holds into one array of fixed size, and mask what is not used",
            )


RULE = Rule("JM402", "recompile-shape", "warning", find)

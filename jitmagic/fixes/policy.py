"""Which of the corrections that hold are advised, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jitmagic.evidence import Evidence, Leaf
from jitmagic.fixes.change import Tag
from jitmagic.fixes.search import Proved
from jitmagic.report import Applicability, Finding

GRADES: tuple[Applicability, ...] = ("safe", "unsafe", "display")


def graded(
    found: Sequence[Proved], finding: Finding, evidence: Evidence
) -> list[tuple[Proved, Applicability]]:
    """The corrections with their grades, the best first.

    A size as it was in the calls seen is no advice where a static argument says it; data is shown as static, not
    advised, where something else does; an array is rewritten for, a flag or a text made static.
    """
    found = _without_guesses(found)
    others = [p for p in found if p.verdict.holds and not _made_static(p)]
    exact = any(p.is_safe for p in others)
    grades: list[tuple[Proved, Applicability]] = []
    for proved in found:
        grade: Applicability = "safe" if proved.is_safe else "unsafe"
        data = _data(proved, finding, evidence, others=bool(others), exact=exact)
        grades.append((proved, "display" if data else grade))
    flags = any(_flags(p, evidence) for p in found)
    rewritten_first = _about_arrays(finding, evidence) or (exact and not flags)

    def order(item: tuple[Proved, Applicability]) -> tuple[bool, bool, int]:
        proved, grade = item
        return grade == "display", rewritten_first and bool(_made_static(proved)), GRADES.index(grade)

    return sorted(grades, key=order)


def _made_static(proved: Proved) -> tuple[str, ...]:
    return tuple(name for step in proved.steps for name in step.static)


def _without_guesses(found: Sequence[Proved]) -> list[Proved]:
    """No size written down as seen where a static argument says it, no rewrite of what static arguments alone do."""
    alone = [set(_made_static(p)) for p in found if p.verdict.holds and all(s.edits is None for s in p.steps)]
    static = any(alone)
    return [
        p for p in found
        if not (static and Tag.AS_SEEN in p.tags)
        and not (any(s.edits for s in p.steps) and set(_made_static(p)) in [a for a in alone if a])
    ]  # fmt: skip


def _leaves(names: Collection[str], evidence: Evidence) -> list[Leaf]:
    return [x for call in evidence.calls for x in call.leaves if x.argument in names]


def _flags(proved: Proved, evidence: Evidence) -> bool:
    """It makes a flag or a text static, which is what static arguments are for."""
    leaves = _leaves(_made_static(proved), evidence)
    return bool(leaves) and all(x.python_type in ("bool", "str") for x in leaves)


def _about_arrays(finding: Finding, evidence: Evidence) -> bool:
    leaves = [x for call in evidence.calls for x in call.leaves if x.path in finding.culprits]
    return any(x.shape or x.kind in ("array", "numpy") for x in leaves)


def _data(proved: Proved, finding: Finding, evidence: Evidence, *, others: bool, exact: bool) -> bool:
    """It makes data static: a fraction, a number that is compared by size; where something `exact` does without, a
    whole number that changed between the calls, and the end of a `while`."""
    names = set(_made_static(proved))
    if not names:
        return False
    leaves = _leaves(names, evidence)
    asked = next(
        (p for p in evidence.problems if p.where and finding.span and p.where.line == finding.span.line), None
    )
    branches = asked is not None and asked.op == "bool" and asked.construct != "assert"
    if any(x.python_type == "float" for x in leaves) and (others or branches):
        return True
    values = {(x.path, x.value) for x in leaves if x.python_type == "int"}
    if exact and len(values) > len({path for path, _ in values}):
        return True
    counted = {
        x for p in evidence.problems if p.op in ("index", "int", "shape", "concrete") for x in p.leaves
    }
    if not others or names <= counted or not branches or asked is None or asked.where is None:
        return False
    return exact if asked.construct == "while" else any(sign in asked.where.text for sign in "<>")

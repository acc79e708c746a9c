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
    """The corrections with their grades, the best first; of those that say the same, the first.

    A size as it was in the calls seen is no advice where a static argument says it; data is shown as static, not
    advised, where something else does; an array is rewritten for, a flag or a text made static.
    """
    found = _without_guesses(found)
    others = [p for p in found if p.verdict.holds and not p.static]
    exact = any(p.is_safe for p in others)
    static = [set(p.static) for p in found if p.verdict.holds and p.static]
    fewest = min(static, key=len, default=set())
    grades: dict[object, tuple[Proved, Applicability]] = {}
    for proved in found:
        grade: Applicability = "safe" if proved.is_safe else "unsafe"
        data = _data(proved, finding, evidence, others=bool(others), exact=exact, fewest=fewest)
        said = proved.verdict.holds, frozenset(s.title for s in proved.steps)
        grades.setdefault(said, (proved, "display" if data else grade))
    flags = any(_flags(p, evidence) for p in found)
    rewritten_first = _about_arrays(finding, evidence) or (exact and not flags)

    def order(item: tuple[Proved, Applicability]) -> tuple[bool, bool, int, bool]:
        proved, grade = item
        static = rewritten_first and bool(proved.static)
        return grade == "display", static, GRADES.index(grade), not proved.is_simple

    return sorted(grades.values(), key=order)


def _without_guesses(found: Sequence[Proved]) -> list[Proved]:
    """No size written down as seen where a static argument says it, no rewrite of what options alone do, nothing
    static that can do without, and no variable where an array can stay one."""
    whole = [p for p in found if p.verdict.holds]
    plain = any(Tag.VARIABLE not in p.tags for p in whole)
    options = [p for p in whole if all(s.edits is None for s in p.steps)]
    alone = [set(p.static) for p in options if p.static]
    static = [set(p.static) for p in whole if p.static]

    def is_kept(proved: Proved) -> bool:
        mine, rewrites = set(proved.static), any(s.edits for s in proved.steps)
        guess = alone and Tag.AS_SEEN in proved.tags or plain and Tag.VARIABLE in proved.tags
        unstatic = options and any(s.unstatic is not None for s in proved.steps)
        more = any(other < mine for other in static)
        return not (guess or more or rewrites and (mine in alone or unstatic))

    return [p for p in found if is_kept(p)]


def _leaves(names: Collection[str], evidence: Evidence) -> list[Leaf]:
    return [x for call in evidence.calls for x in call.leaves if x.argument in names]


def _flags(proved: Proved, evidence: Evidence) -> bool:
    """It makes a flag or a text static, which is what static arguments are for."""
    leaves = _leaves(proved.static, evidence)
    return bool(leaves) and all(x.python_type in ("bool", "str") for x in leaves)


def _about_arrays(finding: Finding, evidence: Evidence) -> bool:
    leaves = [x for call in evidence.calls for x in call.leaves if x.path in finding.culprits]
    return any(x.shape or x.kind in ("array", "numpy") for x in leaves)


def _data(
    proved: Proved, finding: Finding, evidence: Evidence, *, others: bool, exact: bool, fewest: set[str]
) -> bool:
    """It makes data static: a fraction, a number that is compared by size; where something `exact` does without, a
    whole number that changed between the calls, and the end of a `while`."""
    names = set(proved.static)
    if any(x.python_type == "float" for x in _leaves(names - fewest, evidence)):
        return True  # another one does with less
    leaves, line = _leaves(names, evidence), finding.span and finding.span.line
    asked = next((p for p in evidence.problems if p.where and p.where.line == line), None)
    branches = asked is not None and asked.op == "bool" and asked.construct != "assert"
    if any(x.python_type == "float" for x in leaves) and (others or branches):
        return True
    values = {(x.path, x.value) for x in leaves if x.python_type == "int"}
    if exact and len(values) > len({path for path, _ in values}):
        return True
    sizes = (p for p in evidence.problems if p.op in ("index", "int", "shape", "concrete"))
    counted = {x for p in sizes for x in p.leaves}
    if not others or names <= counted or not branches or asked is None or asked.where is None:
        return False
    return exact if asked.construct == "while" else any(sign in asked.where.text for sign in "<>")

"""What a cell leaves behind with compiled functions, held against what it leaves without: writes that are lost and
random numbers that are frozen show there, at the second call at the latest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jitmagic.checking.subject import Subject
from jitmagic.evidence import Loss
from jitmagic.trial import budget
from jitmagic.trial.picture import Differences, Gap, Node, Painter
from jitmagic.trial.verify import Verifier, name_one_place

BUDGET = 1.0
"""Seconds that the run without jit may take."""
MORE = 2.0
"""Those that a run of compiled functions may take, where the user's calls were plain."""


def look(
    subjects: Sequence[Subject],
    verifier_until: Callable[[float], Verifier | None],
    names: Mapping[str, object],
) -> list[Subject]:
    """Note at each function the places that its calls leave otherwise than plain ones do; the functions that have
    some. Only what is known to be written, or to be read as it was, is held to be lost. Raises OutOfTime."""
    asked = [s for s in subjects if s.seen.count and _places(s)]
    compiled = all(s.settings.compile or s.original is not s.fn for s in asked)
    failed = compiled and any(c.outcome == "failed" for s in subjects for c in s.seen.calls)
    verifier = (
        verifier_until(budget.clock() + BUDGET + MORE * (not compiled)) if asked and not failed else None
    )
    if verifier is None or verifier.reruns.obstacle():
        return []
    plain = verifier.plain()
    if plain.error is not None or plain.tracers:
        return []
    left = Painter().names(names) if compiled else _compiled(verifier)
    gaps = _comparison().names(plain.state, left) if left is not None else []
    if any(_losses(s, gaps) for s in asked):  # what each run leaves otherwise is nobody's fault
        again = verifier.reruns.plain(verifier.reruns.original)
        unsteady = {g.path for g in _comparison().names(plain.state, again.state)}
        gaps = [g for g in gaps if g.path not in unsteady]
    for subject in asked:
        subject.seen.lost = _losses(subject, gaps)
    return [s for s in asked if s.seen.lost]


def _compiled(verifier: Verifier) -> Mapping[str, Node] | None:
    """What the cell would leave with compiled functions, but for those that can't be; None where that ends in an
    error."""
    reruns = verifier.reruns
    ran = reruns.under_magic(reruns.original, reruns.left_plain("")).ran
    return ran.state if ran.error is None else None


def _comparison() -> Differences:
    return Differences(more=True)


def _places(subject: Subject) -> list[str]:
    """What the function writes in Python, or draws from, and what it goes on reading as it was."""
    seen = subject.seen
    written = [w.path for w in seen.writes.values() if not w.settled]
    read = [v.path for v in seen.variables.values() if v.role != "dynamic" and (v.stale or v.type == "rng")]
    return list(dict.fromkeys((*written, *read)))


def _losses(subject: Subject, gaps: Sequence[Gap]) -> list[Loss]:
    stale = [v.path for v in subject.seen.variables.values() if v.stale]
    found = []
    for gap in gaps:
        place = next((p for p in _places(subject) if name_one_place(p, gap.path)), None)
        if place is None and stale and not gap.structure:
            place = stale[0]  # a result that was computed with an old value
        if place is not None:
            found.append(Loss(place, gap.path, gap.after, gap.before))
    return found

"""What a cell leaves behind with compiled functions, held against what it leaves without: writes that are lost and
random numbers that are frozen show there, at the second call at the latest. Where a function goes on with an old value,
what the cell shows and prints is held against it, too."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from jitmagic.checking.subject import Subject
from jitmagic.evidence import Loss, root
from jitmagic.state.values import is_leaf, is_number
from jitmagic.trial import budget
from jitmagic.trial.budget import OutOfTime
from jitmagic.trial.picture import Differences, Gap, Node, Painter
from jitmagic.trial.play import Ran
from jitmagic.trial.verify import Verifier, name_one_place

LEAST, SHARE = 1.0, 0.1
"""Seconds that the run without jit may take, and the share of the budget that is more where it looks longer."""
MORE = 2.0
"""Seconds more that a run of compiled functions may take, where the user's calls were plain."""


def look(
    subjects: Sequence[Subject],
    verifier_until: Callable[[float], Verifier | None],
    names: Mapping[str, object],
) -> list[Subject]:
    """Note at each function the places that its calls leave otherwise than plain ones do; the functions that have
    some. Only what is known to be written, or to be read as it was, is held to be lost; that there was no time for it
    is noted."""
    asked = [s for s in subjects if s.seen.count and _places(s)]
    try:
        return _look(asked, subjects, verifier_until, names)
    except OutOfTime:
        limit = f"{_limit(asked):g} s"
        for subject in asked:
            subject.seen.note(
                f"what is left behind was not compared: without jit it takes over {limit} (`--search` looks longer)"
            )
        return []


def _look(
    asked: Sequence[Subject],
    subjects: Sequence[Subject],
    verifier_until: Callable[[float], Verifier | None],
    names: Mapping[str, object],
) -> list[Subject]:
    compiled = all(s.settings.compile or s.original is not s.fn for s in asked)
    failed = compiled and any(c.outcome == "failed" for s in subjects for c in s.seen.calls)
    if not asked or failed:
        return []
    verifier = verifier_until(budget.clock() + _limit(asked) + MORE * (not compiled))
    if verifier is None or verifier.reruns.obstacle():
        return []
    try:
        return _compared(asked, verifier, compiled, names)
    finally:
        verifier.let_go()


def _compared(
    asked: Sequence[Subject], verifier: Verifier, compiled: bool, names: Mapping[str, object]
) -> list[Subject]:
    plain = verifier.plain()
    if plain.error is not None or plain.tracers:
        return []
    stale = any(v.stale for s in asked for v in s.seen.variables.values())
    left, reruns = Ran(state=Painter().names(names)), verifier.reruns
    if stale or not compiled:  # but for functions that can't be compiled
        left = reruns.under_magic(reruns.original, reruns.left_plain("")).ran
    gaps = _apart(plain, left) if left.error is None else []
    called = _as_told(names)
    if any(_losses(s, gaps, called) for s in asked):  # what each run leaves otherwise is nobody's fault
        unsteady = {g.path for g in _apart(plain, reruns.plain(reruns.original))}
        gaps = [g for g in gaps if g.path not in unsteady]
    for subject in asked:
        subject.seen.lost = _losses(subject, gaps, called)
    return [s for s in asked if s.seen.lost]


def _limit(asked: Sequence[Subject]) -> float:
    return max(LEAST, SHARE * asked[0].settings.budget)


def _pictures(ran: Ran) -> dict[str, Node]:
    """What a run has left, shown, and printed of numbers."""
    shown = {f"result {i}": node for i, node in enumerate(ran.shown, 1)}
    return {**ran.state, **shown, **ran.numbers}


def _apart(plain: Ran, other: Ran) -> list[Gap]:
    return Differences(more=True).names(_pictures(plain), _pictures(other))


def _places(subject: Subject) -> list[str]:
    """What the function writes in Python, or draws from, and what it goes on reading as it was."""
    seen = subject.seen
    written = [w.path for w in seen.writes.values() if not w.settled]
    read = [v.path for v in seen.variables.values() if v.role != "dynamic" and (v.stale or v.type == "rng")]
    return list(dict.fromkeys((*written, *read)))


def _as_told(names: Mapping[str, object]) -> Callable[[str], str]:
    """A place by the name that a difference there goes by: the first for what has several, `self` for a parameter."""
    firsts: dict[int, str] = {}
    held = [(k, v) for k, v in list(names.items()) if not is_leaf(v) and not is_number(v)]
    first = {k: firsts.setdefault(id(v), k) for k, v in held}

    def called(place: str) -> str:
        start = root(place)
        return first.get(start, start if start in names else "self") + place.removeprefix(start)

    return called


def _losses(subject: Subject, gaps: Sequence[Gap], called: Callable[[str], str]) -> list[Loss]:
    """The gaps that the function is to blame for, those first that it names itself. `called`: see `_as_told`."""
    stale, places = [v.path for v in subject.seen.variables.values() if v.stale], _places(subject)
    found = []
    for gap in gaps:
        named = [p for p in places if name_one_place(called(p), gap.path)]
        if not named and not gap.structure:
            named = stale[:1]  # a result that was computed with an old value
        if named:
            place = max(named, key=lambda p: _in_common(p, gap.path))
            found.append(Loss(place, gap.path, gap.after, gap.before))
    return sorted(found, key=lambda loss: -_in_common(loss.place, loss.path))


def _in_common(*paths: str) -> int:
    """How far paths lead to one place, whatever the object is called."""
    return len(os.path.commonprefix([p.removeprefix(root(p)) for p in paths]))

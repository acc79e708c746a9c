"""The one proof: a corrected cell, run whole under its magic from where the cell began, against the plain run.

It holds where everything that is shown, and everything that is reachable afterwards, is what the plain cell gives and
leaves (but for what the claim says), the finding is gone and nothing new is told, the text or the options changed, and
the new text was not there before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from jitmagic.evidence import Evidence
from jitmagic.kinds import OTHER_RESULTS, OWN_ERROR
from jitmagic.report import Finding
from jitmagic.source import cell as cells
from jitmagic.source.edits import masked
from jitmagic.source.tree import SCOPES, parsed
from jitmagic.tracing.messages import is_of_jax, shows_tracer
from jitmagic.trial.budget import OutOfTime
from jitmagic.trial.claims import Claim
from jitmagic.trial.picture import Differences, Gap, Node, numbers
from jitmagic.trial.play import Ran

GRAVE = ("error", "warning")
SAME = Claim()


@dataclass(frozen=True)
class Attempt:
    """One way to run the cell: its magic line and body, and the cells after it."""

    magic: str
    cell: str
    later: tuple[str, ...] = ()
    passed: tuple[tuple[str, str], ...] = ()
    """Parameters that calls from before do not know, and the expressions to pass for them."""

    @property
    def text(self) -> str:
        """The cell as it stands in the notebook."""
        return f"{self.magic}\n{self.cell}" if self.magic else self.cell


@dataclass(frozen=True)
class Examined:
    """A run of a cell under its magic, with what was found."""

    ran: Ran
    findings: tuple[Finding, ...]
    evidence: tuple[Evidence, ...] = ()
    """What the findings came from, function by function."""
    traces: int = 0
    """Of the functions that were taken."""
    equations: int = 0
    compilations: int = 0
    """Of all functions."""


class Reruns(Protocol):
    """Runs the cell again from where it began."""

    tested: Literal["cell", "calls"]
    """On what is run."""
    original: Attempt
    earlier: Collection[str]
    """Texts that stood in the cell before."""

    def obstacle(self) -> str:
        """Why the cell cannot be run again; empty where it can."""

    def plain(self, attempt: Attempt, *, briefly: bool = False) -> Ran:
        """Without the magic and without jit; `briefly`: in half of the time. Raises OutOfTime."""

    def equations(self) -> int:
        """How many the functions have as they are."""

    def left_plain(self, function: str) -> frozenset[str]:
        """Functions that run without jit where a correction for this one is tried."""

    def under_magic(self, attempt: Attempt, plain: Collection[str] = ()) -> Examined:
        """As the user would run it, but that some functions stay plain. Raises OutOfTime."""

    def let_go(self) -> bool:
        """End unseen what runs have left that acts when it goes; whether there may be such."""

    def given(self) -> Iterator[object]:
        """Objects from before that the calls are given."""

    def observe(self, cell: str, names: dict[str, object]) -> None:
        """A plain run of a form of the cell that calls these names on its way. Raises OutOfTime."""


@dataclass(frozen=True)
class Verdict:
    """Whether a change holds, and why in words. `tested` says on what: the whole cell, or nothing."""

    holds: bool
    words: str
    tested: Literal["cell", "calls", ""] = ""
    left: tuple[Finding, ...] = ()
    """What the corrected cell is told of that the cell was not: the next thing to mend."""
    evidence: tuple[Evidence, ...] = ()
    """What that was found in."""
    rest: str = ""
    """What else is left of the problem, which no correction is about."""
    failed: Ran | None = None
    """The run of the corrected cell, where that raised what is to be mended next."""
    against: Literal["plain cell", "itself"] = "plain cell"
    """What it was compared with: a cell that cannot run without jit either leaves only the corrected one."""


@dataclass
class Verifier:
    """Proves changes of one cell; the plain run is made once."""

    reruns: Reruns
    findings: Sequence[Finding]
    """Of the cell as it is, all of its functions."""
    _plain: Ran | None = None
    _before: Examined | None = None
    _known: dict[tuple[Attempt, frozenset[str]], Examined] = field(default_factory=dict)

    def let_go(self) -> bool:
        """Forget what runs have given, and end unseen what they have left that acts when it goes; whether there may be
        such."""
        self._known.clear()
        self._before = None
        return self.reruns.let_go()

    def plain(self) -> Ran:
        """The cell without jit."""
        if self._plain is None:
            self._plain = self.reruns.plain(self.reruns.original)
        return self._plain

    def obstacle(self) -> str:
        """Why nothing can be run again, which the plain run may be the first to show. Raises OutOfTime."""
        if not self.reruns.obstacle():
            try:
                self.plain()
            except OutOfTime:
                if not self.reruns.obstacle():
                    raise
        return self.reruns.obstacle()

    def verify(self, attempt: Attempt, finding: Finding, claim: Claim = SAME) -> Verdict:
        """The proof of a corrected cell. Raises OutOfTime."""
        tested = self.reruns.tested
        if attempt == self.reruns.original:
            return Verdict(False, "it changes nothing", tested)
        if attempt.text in self.reruns.earlier and attempt.text != self.reruns.original.text:
            return Verdict(False, "it leads back to an earlier text of the cell", tested)
        if obstacle := self.obstacle():
            return Verdict(False, f"the cell was not run again: {obstacle}")
        if tested == "calls" and attempt.later != self.reruns.original.later and not attempt.passed:
            return Verdict(False, "the later cells cannot be run again")
        plain, left_plain = self.plain(), self.reruns.left_plain(finding.function)
        try:
            found = self._known.get((attempt, left_plain)) or self.reruns.under_magic(attempt, left_plain)
        except (SyntaxError, ValueError) as exc:
            return Verdict(False, f"the corrected cell cannot be run: {exc}", tested)
        self._known[attempt, left_plain] = found
        grave = [f for f in found.findings if f.severity in GRAVE]
        new = tuple(f for f in grave if not any(is_same(f, g) for g in self.findings))
        gaps = self._apart(plain, found.ran, attempt, claim)
        forgotten = self._forgotten(gaps, found.ran, attempt, claim)
        if gaps and not forgotten:
            words, error = f"{gaps[0].path} would be {gaps[0].after}, not {gaps[0].before}", found.ran.error
            left = self._told_elsewhere(gaps, finding, found.findings) if error is None else ()
            if error is not None and not is_of_jax(error) and gaps[0].structure:
                own = [f for f in grave if f.kind != OWN_ERROR]
                left = tuple(f for f in own if not is_same(f, finding))
            if left:  # what is new may be what is left of this very problem
                left = (*(f for f in new if f not in left), *left)
            failed = None if left else found.ran
            return Verdict(False, words, tested, left, failed=failed if error is not None else None)
        told = any(is_same(f, finding) for f in (grave if finding.severity in GRAVE else found.findings))
        if told or (finding.kind == OWN_ERROR and found.ran.error is not None):  # as in the plain cell
            return Verdict(False, "it is still told", tested)
        if claim.fewer and not self._fewer(found, attempt, claim):
            return Verdict(False, f"there are no fewer {claim.fewer}", tested)
        if new:
            return Verdict(False, f"then {new[0].kind} is told", tested, new, found.evidence)
        if finding.kind == OTHER_RESULTS and not self._shows():
            return Verdict(False, "nothing that the cell shows or keeps is wrong as it is", tested)
        if self._differs_without_jit(attempt, found.ran, claim):
            words = "the compiled result then differs from the one without jit"
            return Verdict(False, words, tested, rest=words if self.keeps(attempt, claim) else "")
        if forgotten:
            return Verdict(False, forgotten, tested, rest=forgotten)
        against: Literal["plain cell", "itself"] = "itself" if _cannot_run(plain) else "plain cell"
        return Verdict(True, _words(claim, plain, tested), tested, against=against)

    def _forgotten(self, gaps: Sequence[Gap], ran: Ran, attempt: Attempt, claim: Claim) -> str:
        """What the functions do not remember any more, where that is all that differs, with what came of it."""
        kept = [g.path for g in gaps if not g.path.startswith("result ")]
        places = [next((n for n in claim.forgets if name_one_place(n, p)), "") for p in kept]
        if not gaps or not claim.forgets or not all(places):
            return ""
        if _results(self.reruns.plain(attempt), ran, SAME):
            return ""
        return f"`{'`, `'.join(dict.fromkeys(places or claim.forgets))}` stays as it was"

    def _differs_without_jit(self, attempt: Attempt, ran: Ran, claim: Claim) -> bool:
        """Where the corrected cell can run without jit too, in time, it gives the same then."""
        if claim.results in ("new", "other random") or attempt.cell == self.reruns.original.cell:
            return False
        try:
            plain = self.reruns.plain(attempt, briefly=True)
        except OutOfTime:  # `jax.disable_jit` is slow; with jit it gives what the cell does
            return False
        return plain.error is None and bool(_results(plain, ran, SAME))

    def keeps(self, attempt: Attempt, claim: Claim = SAME, before: Attempt | None = None) -> bool:
        """Without jit the corrected cell gives and leaves what the cell does, or the one `before`. Raises OutOfTime."""
        plain = self.plain() if before is None else self.reruns.plain(before)
        return not self._apart(plain, self.reruns.plain(attempt), attempt, claim)

    def _told_elsewhere(
        self, gaps: Sequence[Gap], finding: Finding, now: Sequence[Finding]
    ) -> tuple[Finding, ...]:
        """Other findings that the differences belong to, of the cell as it was or is now; none where one is not
        told of. A result may be wrong for whatever is still told."""
        others = [f for f in (*now, *self.findings) if f.severity in GRAVE and not is_same(f, finding)]
        still = next((f for f in others if f in now), None)
        about = [
            next((f for f in others if any(name_one_place(c, g.path) for c in f.culprits)), None)
            or (still if g.path.startswith("result ") and not g.structure else None)
            for g in gaps
        ]
        return tuple(dict.fromkeys(f for f in about if f is not None)) if None not in about else ()

    def _apart(self, plain: Ran, ran: Ran, attempt: Attempt, claim: Claim) -> list[Gap]:
        """How the corrected run differs from the plain one, beyond what the claim says."""
        of = self.reruns.original
        if _cannot_run(plain) and ran.error is None:  # the cell as it is cannot run without jit either
            of, plain = attempt, self.reruns.plain(attempt)
        wanted = "" if _cannot_run(plain) else plain.failed
        if wanted != ran.failed or wanted and not _say_the_same(plain.error, ran.error):
            return [Gap("the run", f"to end with {wanted or 'no error'}", ran.failed or "no error", True)]
        gaps = self._state(plain, ran, attempt, claim)
        if claim.results in ("new", "other random"):
            corrected = self.reruns.plain(attempt)
            gaps += _results(corrected, ran, SAME)
            return gaps or self._printed(corrected, ran, attempt)
        if claim.results != "covers" or not covers(plain, ran):
            gaps += _results(plain, ran, claim)
        if gaps or claim.results != "same":
            return gaps
        return self._printed(plain, ran, of)

    def _printed(self, plain: Ran, ran: Ran, attempt: Attempt) -> list[Gap]:
        """Numbers that are printed otherwise than in a plain run of the attempt, but for those that no run prints
        twice: times, say. Where more or fewer are printed, as while jax traces, nothing is told."""
        if not (gaps := _other_numbers(plain, ran)):
            return []
        unsteady = {g.path for g in _other_numbers(plain, self.reruns.plain(attempt))}
        return [g for g in gaps if g.path not in unsteady]

    def _state(self, plain: Ran, ran: Ran, attempt: Attempt, claim: Claim) -> list[Gap]:
        """Where what is left behind differs."""
        found = _comparison(claim).names(plain.state, ran.state)
        if claim.results in ("new", "covers"):
            # results are bound in other forms; what the functions write themselves is not
            bound = self._bound_otherwise(attempt)
            found = [g for g in found if not (g.path in bound and g.structure)]
        if claim.results == "other random":
            found = [g for g in found if not g.path.startswith("<")]
        found = [g for g in found if not any(re.match(rf"{re.escape(n)}\b", g.path) for n in claim.rebinds)]
        return found

    def _bound_otherwise(self, attempt: Attempt) -> set[str]:
        """The names that statements of the cells bind which are not in the cells as they are."""
        statements = [
            [s for cell in (a.cell, *a.later) for s in cells.simple_statements(parsed(masked(cell)))]
            for a in (self.reruns.original, attempt)
        ]
        known = set(map(ast.unparse, statements[0]))
        new = (s for s in statements[1] if not isinstance(s, SCOPES) and ast.unparse(s) not in known)
        return {name for s in new for name in cells.bound_names(s)}

    def _compiled(self) -> Examined:
        """The cell as it is, under its magic."""
        if self._before is None:
            self._before = self.reruns.under_magic(self.reruns.original)
        return self._before

    def _shows(self) -> bool:
        """That the cell as it is gives wrong results is seen: else nothing that is seen can prove them mended."""
        return bool(self._apart(self.plain(), self._compiled().ran, self.reruns.original, SAME))

    def _fewer(self, found: Examined, attempt: Attempt, claim: Claim) -> bool:
        if claim.fewer == "equations":  # to compile them once more may take long
            written_out = max(e.equations for e in self._known.values())
            return found.equations * 2 < (self.reruns.equations() or written_out)
        before = self._compiled()
        if before.ran.error is not None:  # it got nowhere: that the finding is gone has to do
            return True
        if claim.fewer == "traces":
            return found.traces < before.traces
        again = self.reruns.under_magic(attempt)  # what jax compiles once for all is compiled by now
        return again.compilations < before.compilations


def _cannot_run(plain: Ran) -> bool:
    """jax refuses the cell without jit too, or leaves traced values behind."""
    return plain.error is not None and is_of_jax(plain.error) or bool(plain.error is None and plain.tracers)


def _say_the_same(*errors: BaseException | None) -> bool:
    """The words of errors are the same, but for numbers, which may be rounded, and addresses."""
    return len({re.sub(r"0x[0-9a-f]+|[\d.]+", "", str(error)) for error in errors}) == 1


def _comparison(claim: Claim) -> Differences:
    values, finite = claim.results != "other random", claim.results == "where finite"
    return Differences(more=True, values=values, finite=finite)


def _results(plain: Ran, ran: Ran, claim: Claim) -> list[Gap]:
    if len(plain.shown) != len(ran.shown):
        return [Gap("the number of results", str(len(plain.shown)), str(len(ran.shown)), True)]
    comparison = _comparison(claim)
    for i, (a, b) in enumerate(zip(plain.shown, ran.shown, strict=True), 1):
        comparison.nodes(a, b, f"result {i}")
    return comparison.gaps


def _other_numbers(plain: Ran, ran: Ran) -> list[Gap]:
    """Numbers printed that differ, where both print as many, in whatever order."""
    wanted, given = plain.numbers, ran.numbers
    if len(wanted) != len(given) or shows_tracer(ran.printed):
        return []
    if not Differences().names(_in_order(wanted), _in_order(given)):
        return []
    return Differences().names(wanted, given)


def _in_order(numbers: dict[str, Node]) -> dict[str, Node]:
    return dict(zip(numbers, sorted(numbers.values(), key=lambda node: float(node.value)), strict=True))


def covers(plain: Ran, ran: Ran) -> bool:
    """Every number that the plain run shows is among those of the other, in order, or at the beginning of each axis of
    an array of the other."""
    wanted, given = _flat(plain.shown), _flat(ran.shown)
    if len(wanted) == len(given) and all(map(_begins, wanted, given)):
        return True
    at, wanted = 0, [a.ravel() for a in wanted]
    given = [a.ravel() for a in (*given, *_flat([*ran.state.values()]))]
    whole = np.concatenate(given) if given else np.zeros(0)
    for part in wanted:
        starts = range(at, len(whole) - len(part) + 1)
        fits = (i for i in starts if np.allclose(whole[i : i + len(part)], part, 2e-4, 1e-5, True))
        if (found := next(fits, None)) is None:
            return False
        at = found + len(part)
    return True


def _begins(part: np.ndarray, whole: np.ndarray) -> bool:
    """The array is what stands at the beginning of each axis of the other."""
    if part.ndim != whole.ndim or any(a > b for a, b in zip(part.shape, whole.shape, strict=True)):
        return False
    return np.allclose(whole[tuple(map(slice, part.shape))], part, 2e-4, 1e-5, True)


def _flat(nodes: Sequence[Node]) -> list[np.ndarray]:
    return [a.astype(complex) for node in nodes for a in numbers(node)]


def is_same(a: Finding, b: Finding) -> bool:
    """Two findings tell the same: the kind, and the place or the first culprit."""
    if a.kind != b.kind:
        return False
    places = [(f.span.source, f.span.column) if f.span is not None else None for f in (a, b)]
    same_place = places[0] is not None and places[0] == places[1]
    return same_place or (bool(a.culprits) and a.culprits[:1] == b.culprits[:1])


def name_one_place(culprit: str, path: str) -> bool:
    """A culprit (`self.n`, `log`) and the path of a difference (`cells[0].n`, `log[3]`) speak of one thing."""
    mine, its = (re.split(r"[.\[]", p) for p in (culprit, path))
    return mine[0] == its[0] or (mine[0] == "self" and len(mine) > 1 and mine[1] in its[1:])


def _words(claim: Claim, plain: Ran, tested: str) -> str:
    what = "the cell re-run" if tested == "cell" else "on the calls alone"
    if claim.words:
        return f"{what}: {claim.words}"
    if _cannot_run(plain):
        return f"{what}: same results with and without jit (the cell as it is cannot run without jit)"
    same = {
        "same": "same results and state", "covers": "its results hold those of the run without jit, same state",
        "new": "same results with and without jit", "where finite": "same results where they were finite, same state",
        "other random": "other random numbers, the rest the same",
    }  # fmt: skip
    beside = f" as with {plain.baseline}" if plain.baseline else ""
    return f"{what}: {same[claim.results]}{beside}"

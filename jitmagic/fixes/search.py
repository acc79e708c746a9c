"""The search for corrections: depth first, from the place of a finding through the changes offered for it, to a cell
that holds, or to what that cell leaves to mend."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jitmagic.correction import with_option
from jitmagic.evidence import Evidence
from jitmagic.fixes import families
from jitmagic.fixes.change import Change, Shape, Spot, Tag
from jitmagic.report import Finding, Fix
from jitmagic.rules.classify import kind_of
from jitmagic.source.edits import CannotEdit, Text
from jitmagic.source.modules import Modules
from jitmagic.tracing import locate
from jitmagic.trial.claims import Claim, joined
from jitmagic.trial.verify import Attempt, Verdict, Verifier

ROUNDS = 8
"""Changes that follow each other in one correction."""
ATTEMPTS = 40
FURTHER = 4
"""How many more are tried for a correction that is safe, once there is one."""


@dataclass(frozen=True)
class Proved:
    """Changes that together hold, or (`verdict.left`) mend a part."""

    steps: tuple[Change, ...]
    attempt: Attempt
    verdict: Verdict

    @property
    def tags(self) -> frozenset[Tag]:
        return frozenset(tag for step in self.steps for tag in step.tags)

    @property
    def claim(self) -> Claim:
        return joined([s.claim for s in self.steps])

    @property
    def is_safe(self) -> bool:
        """Same results, same state, and right for other values too."""
        exact = all(s.sure and not s.claim.lets_differ for s in self.steps)
        return self.verdict.holds and self.verdict.tested == "cell" and exact


@dataclass
class Search:
    """Looks for corrections of the findings of one function."""

    evidence: Evidence
    verifier: Verifier
    namespace: dict[str, Any]
    from_outside: Callable[[str], str]
    out_of_time: Callable[[], bool]
    progress: Callable[[str], None] = lambda title: None
    tried: dict[Attempt, Verdict] = field(default_factory=dict)
    trail: list[str] = field(default_factory=list)
    """What was tried and why it did not hold, for tests and for the curious."""
    _attempts: int = 0
    _limit: int = ATTEMPTS

    def corrections(self, finding: Finding) -> list[Proved]:
        """What mends a finding, in the order in which it is offered; first steps where nothing mends it whole."""
        self._attempts, self._limit = 0, ATTEMPTS
        whole: list[Proved] = []
        steps: list[Proved] = []
        spot = self._spot_of(finding, self.verifier.reruns.original)
        if spot is None:
            return []
        for family in families.of(finding.kind):
            for proved in self._follow_all(family, spot, (), finding):
                (whole if proved.verdict.holds else steps).append(proved)
                if proved.verdict.holds:
                    self._limit = min(self._limit, self._attempts + FURTHER)
                    break
            if any(p.is_safe for p in whole):
                break
        return whole or steps[:1]

    # -- one change after the other

    def _follow_all(
        self, family: families.Family, spot: Spot, steps: tuple[Change, ...], finding: Finding
    ) -> Iterator[Proved]:
        for change in _offered(family, spot):
            if self._spent():
                return
            yield from self._follow((*steps, change), spot, finding)

    def _follow(self, steps: tuple[Change, ...], spot: Spot, finding: Finding) -> Iterator[Proved]:
        try:
            attempt = self._applied(steps[-1], spot)
        except (SyntaxError, CannotEdit):
            return
        if attempt in self.tried or (Tag.ENDS in steps[-1].tags and self.verifier.plain().error is not None):
            return
        self._attempts += 1
        self.progress(steps[-1].title)
        claim = joined([s.claim for s in steps])
        verdict = self.tried[attempt] = self.verifier.verify(attempt, finding, claim)
        self.trail.append(f"{steps[-1].title}: {verdict.words}")
        if verdict.holds:
            yield Proved(steps, attempt, verdict)
            return
        further = self._next(verdict, attempt) if len(steps) < ROUNDS else None
        if further is not None and not _same_place(further, spot):
            found = False
            for family in families.of(further.kind):
                for proved in self._follow_all(family, further, steps, finding):
                    found |= proved.verdict.holds
                    yield proved
            if found:
                return
        if verdict.left:
            yield Proved(steps, attempt, verdict)

    def _spent(self) -> bool:
        return self._attempts >= self._limit or self.out_of_time()

    def _applied(self, change: Change, spot: Spot) -> Attempt:
        """The cell with one more change. Raises SyntaxError and CannotEdit."""
        before, line = spot.attempt, spot.attempt.magic
        cell = change.edits.result() if change.edits is not None else change.text or before.cell
        if change.edits is not None and (missing := spot.modules.imports_for(Text(cell).tree)):
            cell = "\n".join(missing) + "\n\n" + cell
        if change.static:
            line = with_option(line, "--static", list(dict.fromkeys((*spot.declared_static, *change.static))))
        if change.unstatic:
            line = with_option(with_option(line, "--static", change.static), "--static-argnums", ())
        if change.dyn:
            line = with_option(line, "--dyn", list(dict.fromkeys((*spot.declared_dyn, *change.dyn))))
        if change.functions:
            line = with_option(line, "-f", change.functions)
        return Attempt(line, cell, change.later if change.later is not None else before.later)

    # -- places

    def _next(self, verdict: Verdict, attempt: Attempt) -> Spot | None:
        """Where the corrected cell goes on to fail, or what it is told of now."""
        if verdict.error is not None:
            problem = locate.locate(verdict.error, prefer=verdict.file)
            where, above = problem.where, int(attempt.magic.startswith("%%"))
            if where is None or where.file != verdict.file:
                return None
            names = tuple(dict.fromkeys((*problem.locals, *problem.leaves)))
            return self._spot(
                attempt, kind_of(self.evidence, problem), where.line - above, where.column, where.end_line - above,
                where.end_column, names, f"{type(verdict.error).__name__}: {verdict.error}",
            )  # fmt: skip
        found = (self._spot_of(f, attempt) for f in verdict.left)
        return next((s for s in found if s is not None), None)

    def _spot_of(self, finding: Finding, attempt: Attempt) -> Spot | None:
        """The stretch of the cell that a finding is about; None where its line is not there."""
        span = finding.span
        if span is None or span.cell is not None:
            return None
        lines = attempt.cell.splitlines()
        for offset in (1, 0):  # with a magic line above, and without
            line = span.line - offset
            if 1 <= line <= len(lines) and lines[line - 1].strip() == span.source:
                break
        else:
            return None
        problem = next((p for p in self.evidence.problems if p.where and p.where.line == span.line), None)
        message = f"{problem.exception}: {problem.message}" if problem is not None else finding.detail
        names = (*finding.culprits, *(problem.locals if problem is not None else ()))
        return self._spot(
            attempt, finding.kind, line, span.column, span.end_line - offset, span.end_column, names, message
        )  # fmt: skip

    def _spot(
        self, attempt: Attempt, kind: str, line: int, column: int, end_line: int, end_column: int,
        names: tuple[str, ...], message: str,
    ) -> Spot:  # fmt: skip
        text, evidence = _text(attempt.cell), self.evidence
        leaves = [leaf for call in evidence.calls for leaf in call.leaves]
        others = {x.argument for x in leaves if x.kind != "scalar" or x.path != x.argument}
        return Spot(
            text, kind, line, column if end_column else -1, end_line, end_column, names,
            evidence.function.name, message,
            modules=Modules.of(self.namespace, text.tree), attempt=attempt, evidence=evidence,
            static=frozenset(evidence.options.static_argnames),
            defaults=frozenset(evidence.function.parameters) - {x.argument for x in leaves},
            scalars=tuple(dict.fromkeys(x.argument for x in leaves if x.argument not in others)),
            numpy_arguments=frozenset(x.path for x in leaves if x.kind == "numpy" and x.shape),
            from_outside=self.from_outside, probe=self._probe, outputs=self._outputs,
        )  # fmt: skip

    # -- what expressions are

    def _probe(self, cell: str) -> list[Shape]:
        found: list[Shape] = []
        self.verifier.reruns.observe(cell, {"__seen": lambda value: _noted(value, found)})
        return found

    def _outputs(self, cell: str) -> list[Any]:
        import jax

        found: list[Any] = []

        def ask(functions: Iterable[Callable[..., Any]], *operands: Any) -> Any:
            found[:] = [jax.eval_shape(f, *operands) for f in functions]
            raise StopIteration  # what comes after needs the result

        self.verifier.reruns.observe(cell, {"__outputs": ask})
        return found


def _offered(family: families.Family, spot: Spot) -> Iterator[Change]:
    """The changes of a family; one that cannot cope with a cell offers nothing more."""
    offered = iter(family(spot))
    while True:
        try:
            yield next(offered)
        except StopIteration:
            return
        except (CannotEdit, SyntaxError, RecursionError, LookupError, AttributeError, TypeError, ValueError):
            if families.RAISE:
                raise
            return


def _noted(value: Any, into: list[Shape]) -> Any:
    import jax

    leaves = jax.tree.leaves(value)
    into += [_shape_of(leaf) for leaf in itertools.islice(leaves, 8)]
    if not leaves:
        into.append(Shape((), "", type=type(value).__name__))
    return value


def _shape_of(leaf: Any) -> Shape:
    import numpy as np

    form, dtype = tuple(np.shape(leaf)), str(getattr(leaf, "dtype", type(leaf).__name__))
    whole = not form and dtype.startswith(("int", "uint"))
    return Shape(form, dtype, int(leaf) if whole else None, type(leaf).__module__.partition(".")[0])


@lru_cache(maxsize=64)
def _text(source: str) -> Text:
    return Text(source)


def _same_place(a: Spot, b: Spot) -> bool:
    return (a.text.source, a.line, a.column, a.kind) == (b.text.source, b.line, b.column, b.kind)


# --- as a fix -----------------------------------------------------------------------------------------


def fix_of(proved: Proved, original: Attempt, options: Any) -> Fix:
    """The changes as one fix of a report."""
    steps, attempt = proved.steps, proved.attempt
    titles = dict.fromkeys(f"{s.title} ({s.cost})" if s.cost else s.title for s in steps)
    static = [n for s in steps for n in s.static]
    dyn = [n for s in steps for n in s.dyn]
    cell = attempt.cell if attempt.cell != original.cell else None
    verdict, claim = proved.verdict, proved.claim
    first_step = "" if verdict.holds else f"a first step: {_left(verdict)}"
    return Fix(
        title="; ".join(titles), applicability="safe" if proved.is_safe else "unsafe", verified=verdict.holds,
        evidence=verdict.words if verdict.holds else first_step,
        static_argnames=(*options.static_argnames, *static) if static else None,
        dyn=(*(options.dyn or ()), *dyn) if dyn else None,
        cell=cell, calls=attempt.later if attempt.later != original.later else None,
        tested=verdict.tested or None, claim=claim.words or None,
        magic=attempt.magic if attempt.magic != original.magic else None,
        diff=diff(original.cell, attempt.cell) if cell is not None else None,
    )  # fmt: skip


def _left(verdict: Verdict) -> str:
    kinds = ", ".join(dict.fromkeys(f.kind for f in verdict.left))
    return f"{kinds} is left"


def diff(old: str, new: str) -> str:
    """What a corrected cell changes, as a unified diff."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "cell", "corrected", lineterm="")
    return "\n".join(lines)

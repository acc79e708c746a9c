"""The search for corrections: depth first, from the place of a finding through the changes offered for it, to a cell
that holds, or to what that cell leaves to mend."""

from __future__ import annotations

import ast
import contextlib
import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from typing import Any

from jitmagic.correction import option_of, with_functions, with_option
from jitmagic.evidence import Evidence
from jitmagic.fixes import families
from jitmagic.fixes.change import AttributeTypes, Change, Shape, Spot, Tag
from jitmagic.fixes.options import declarations
from jitmagic.kinds import ADVICE
from jitmagic.report import Finding, Fix
from jitmagic.rules.classify import kind_of
from jitmagic.source import cell as cells
from jitmagic.source import scope
from jitmagic.source.edits import CannotEdit, Text
from jitmagic.source.modules import Modules, last_name
from jitmagic.source.tree import SCOPES
from jitmagic.state import values
from jitmagic.tracing.leaves import is_hashable
from jitmagic.trial.budget import OutOfTime
from jitmagic.trial.claims import Claim, joined
from jitmagic.trial.verify import Attempt, Verdict, Verifier, is_same

ROUNDS = 8
"""Changes that follow each other in one correction."""
REPEATS = 3
"""Those of one family among them: a nest of loops, say."""
ATTEMPTS = 40
_STATIC = ("--static", "--static-argnums")
LATE = "there was no time (`--search` looks longer)"
_OTHERS = ("new", "other random")
"""Claims under which results are compared with those of the corrected cell alone."""
FURTHER = 4
"""How many more are tried for a correction that is safe, once there is one."""


@dataclass(frozen=True)
class Proved:
    """Changes that together hold, or (`verdict.left`) mend a part."""

    steps: tuple[Change, ...]
    attempt: Attempt
    verdict: Verdict

    @property
    def static(self) -> tuple[str, ...]:
        """What became static."""
        return tuple(name for step in self.steps for name in step.static)

    @property
    def alone_static(self) -> bool:
        """The text stays: more is static."""
        return all(s.edits is None and s.static for s in self.steps)

    @property
    def tags(self) -> frozenset[Tag]:
        return frozenset(tag for step in self.steps for tag in step.tags)

    @property
    def claim(self) -> Claim:
        return joined([s.claim for s in self.steps])

    @property
    def is_simple(self) -> bool:
        """One kind of change in the text, wherever it is needed."""
        return len({step.title for step in self.steps if step.edits is not None}) <= 1

    @property
    def is_safe(self) -> bool:
        """Same results, same state, and right for other values too."""
        exact = all(s.sure and not s.claim.lets_differ and Tag.AS_SEEN not in s.tags for s in self.steps)
        verdict = self.verdict
        return exact and verdict.holds and verdict.tested == "cell" and verdict.against == "plain cell"


@dataclass
class Search:
    """Looks for corrections of the findings of one function."""

    evidence: Evidence
    verifier: Verifier
    namespace: dict[str, Any]
    from_outside: Callable[[str], str]
    out_of_time: Callable[[], bool]
    own_jit: bool = False
    """The cell compiles by itself: options go into its own `jit`."""
    progress: Callable[[str], object] = lambda title: None
    """Told what is tried."""
    otherwise: Callable[[], Verifier] | None = None
    """Makes what tests on the calls alone, where a run of the whole cell shows that it can't be run again."""
    on_held: Callable[[Finding, list[Proved]], object] = lambda finding, held: None
    """Told of each correction that holds, with those before it."""
    tried: dict[Attempt, Verdict] = field(default_factory=dict)
    held: list[Proved] = field(default_factory=list)
    """What mended other findings, and may mend more."""
    trail: list[str] = field(default_factory=list)
    """What was tried and why it did not hold, for tests and for the curious."""
    _attempts: int = 0
    _limit: int = ATTEMPTS

    def corrections(self, finding: Finding) -> list[Proved]:
        """What mends a finding, in the order in which it is offered; first steps where nothing mends it whole."""
        advised = finding.kind in ADVICE  # what the calls alone would not show
        if self.otherwise is not None and not advised and self.verifier.obstacle():
            self.verifier, self.otherwise = self.otherwise(), None
        self._attempts, self._limit = 0, ATTEMPTS
        self.tried.clear()
        whole: list[Proved] = []
        steps: list[Proved] = []
        spot = self._spot_of(finding, self.verifier.reruns.original)
        if advised and self.verifier.reruns.tested == "calls":
            return self._untried(finding.kind, spot, "the cell cannot be run again")
        if shared := self.shared(finding):
            return shared
        with contextlib.suppress(OutOfTime):
            for family in self._asked(finding.kind, whole):
                for proved in self._follow_all(family, spot, (), finding):
                    (whole if proved.verdict.holds else steps).append(proved)
                    if proved.verdict.holds:
                        self.on_held(finding, whole)
                    if proved.verdict.holds and not proved.alone_static:
                        self._limit = min(self._limit, self._attempts + FURTHER)
                    if proved.verdict.holds and Tag.AS_SEEN not in proved.tags:
                        break
                if any(p.is_safe and not p.static and p.is_simple for p in whole):
                    break
            if all(p.alone_static for p in whole):
                others = [p for p in self.held if p not in whole]
                whole += [p for p in others if self.verifier.verify(p.attempt, finding, p.claim).holds]
        self.held += whole
        late = advised and not self.tried and self.out_of_time()
        return whole or steps[:1] or (self._untried(finding.kind, spot, LATE) if late else [])

    def shared(self, finding: Finding) -> list[Proved]:
        """A safe correction of another finding that mends this one too."""
        with contextlib.suppress(OutOfTime):
            for p in (p for p in self.held if p.is_safe):
                if self.verifier.verify(p.attempt, finding, p.claim).holds:
                    return [p]
        return []

    def _untried(self, kind: str, spot: Spot, why: str) -> list[Proved]:
        """The first change for a place, where it can't be tried."""
        verdict = Verdict(False, f"not tried: {why}")
        for change in (c for family in families.of(kind) for c in offered(family, spot)):
            if Tag.GUESS in change.tags:
                continue
            with contextlib.suppress(SyntaxError, LookupError, CannotEdit):
                return [Proved((change,), self._applied(change, spot), verdict)]
        return []

    def choices(self, family: families.Family, finding: Finding) -> Iterator[Proved]:
        """The changes of a family which hold, each by itself: one may be wanted where nothing has to be done."""
        original = self.verifier.reruns.original
        spot = self._spot_of(finding, original)
        with contextlib.suppress(OutOfTime):
            for change in offered(family, spot):
                with contextlib.suppress(SyntaxError, LookupError, CannotEdit):
                    attempt = self._applied(change, spot)
                    about = replace(finding, culprits=change.dyn, span=None)  # others may be told as before
                    verdict = self.verifier.verify(attempt, about, change.claim)
                    if verdict.holds:
                        yield Proved((change,), attempt, verdict)

    @staticmethod
    def _asked(kind: str, found: Sequence[Proved]) -> Iterator[families.Family]:
        """The families for a kind; the last ones only where nothing is found until then."""
        yield from families.of(kind)
        if not found:
            yield from families.last(kind)

    # -- one change after the other

    def _follow_all(
        self, family: families.Family, spot: Spot, steps: tuple[Change, ...], finding: Finding,
        chain: tuple[families.Family, ...] = (),
    ) -> Iterator[Proved]:  # fmt: skip
        for change in offered(family, spot):
            if self._spent():
                return
            yield from self._follow((*steps, change), spot, finding, (*chain, family))

    def _follow(
        self, steps: tuple[Change, ...], spot: Spot, finding: Finding, chain: tuple[families.Family, ...]
    ) -> Iterator[Proved]:
        try:
            attempt = self._applied(steps[-1], spot)
        except (SyntaxError, LookupError, CannotEdit):
            return
        if Tag.UNTRIED in steps[-1].tags:
            untried = Verdict(False, "not tried: it may wait, or change something outside")
            yield Proved(steps, attempt, untried)
            return
        if obstacle := self.verifier.obstacle():
            if Tag.GUESS in steps[-1].tags:
                return
            yield Proved(steps, attempt, Verdict(False, f"not tried: {obstacle}"))
            return
        if attempt in self.tried or not self._each_keeps(steps, spot.attempt, attempt):
            return
        self._attempts += 1
        self.progress(steps[-1].title)
        claim = joined([s.claim for s in steps])
        verdict = self.tried[attempt] = self.verifier.verify(attempt, finding, claim)
        self.trail.append(f"{steps[-1].title}: {verdict.words}")
        if verdict.holds:
            yield Proved(_lasting(steps, self.verifier.reruns.original.cell, attempt.cell), attempt, verdict)
            return
        further = self._next(verdict, attempt) if len(steps) < ROUNDS else None
        if further is not None and not _same_place(further, spot):
            found: list[Proved] = []
            for family in self._asked(further.kind, found):
                if chain.count(family) == REPEATS:
                    continue
                for proved in self._follow_all(family, further, steps, finding, chain):
                    found += [proved] if proved.verdict.holds else []
                    yield proved
            if found:
                return
            remaining = self._remaining(further, finding)
            if not verdict.left and remaining and self.verifier.keeps(attempt, claim):
                verdict = replace(verdict, left=remaining)
        if verdict.left or verdict.rest:
            yield Proved(steps, attempt, verdict)

    def _each_keeps(self, steps: tuple[Change, ...], before: Attempt, attempt: Attempt) -> bool:
        """What one change lets differ is no excuse for what another makes wrong: where results may be others, each
        change is held to its own claim, against the cell before it."""
        *earlier, last = steps
        if not earlier or not any(s.claim.results in _OTHERS for s in steps):
            return True
        try:
            if last.claim.results in _OTHERS:
                return self.verifier.keeps(before, joined([s.claim for s in earlier]))
            return self.verifier.keeps(attempt, last.claim, before)
        except OutOfTime:
            return False

    def _remaining(self, spot: Spot, finding: Finding) -> tuple[Finding, ...]:
        """Other findings of the cell that are about a place: what is left of it where the trace gets that far."""
        line = "".join(spot.text.lines[spot.line - 1 : spot.line]).strip()  # of this cell
        others = (f for f in self.verifier.findings if not is_same(f, finding))
        return tuple(f for f in others if f.span is not None and f.span.source == line)

    def _spent(self) -> bool:
        return self._attempts >= self._limit or self.out_of_time()

    def _applied(self, change: Change, spot: Spot) -> Attempt:
        """The cell with one more change. Raises SyntaxError and CannotEdit."""
        before, line = spot.attempt, spot.attempt.magic
        cell = written(change, spot)
        static = change.unstatic
        if change.static:
            kept = spot.declared_static if static is None else static
            static = tuple(dict.fromkeys((*kept, *change.static)))
        if static is not None and self.own_jit:
            cell = self.declared_in(cell, spot.function, static)
        elif static is not None:
            line = self._with_static(line, static)
        if change.donated is not None:
            line = with_option(with_option(line, "--donate-argnums", ()), "--donate", change.donated)
        if change.dyn and self.own_jit:
            raise CannotEdit("the cell's own jit knows no variables")
        if change.dyn:
            line = with_option(line, "--dyn", list(dict.fromkeys((*spot.declared_dyn, *change.dyn))))
        if change.functions:
            line = with_functions(line, change.functions)
        later = change.later if change.later is not None else before.later
        return Attempt(line, cell, later, (*before.passed, *change.passed))

    def _with_static(self, line: str, static: Sequence[str]) -> str:
        """The magic line with what is static by name; by number too where one of them has no name."""
        order, text = self.evidence.function.parameters, _text(self.verifier.reruns.original.cell)
        named, function = [n for n in static if "[" not in n], text.definition(self.evidence.function.name)
        first = len((*function.args.posonlyargs, *function.args.args)) if function is not None else 0
        others = [int(n.partition("[")[2].rstrip("]")) + first for n in static if "[" in n]
        numbers = [*map(order.index, named), *others] if others else []
        return with_option(with_option(line, "--static-argnums", [*map(str, numbers)]), "--static", named)

    def declared_in(self, cell: str, function: str, static: Sequence[str]) -> str:
        """The cell whose own `jit` declares what is static. Raises LookupError where that has no place there."""
        text = Text(cell)
        found = declarations.declaration_of(text, function)
        spec = {**found.given, "static_argnums": [], "static_argnames": list(static)}
        modules = Modules.of(self.namespace, text.tree)
        return with_imports(declarations.written(text, modules, found, spec).result(), modules)

    def _static_of(self, attempt: Attempt) -> tuple[str, ...]:
        """What is static by name in an attempt."""
        options = self.evidence.options
        names, numbers = options.static_argnames, options.static_argnums
        if self.own_jit and attempt != self.verifier.reruns.original:
            with contextlib.suppress(LookupError, SyntaxError):
                found = declarations.declaration_of(_text(attempt.cell), self.evidence.function.name)
                return tuple(found.parameters.chosen(found.given, "static"))
        elif attempt.magic != self.verifier.reruns.original.magic:
            names = option_of(attempt.magic, "--static")
            numbers = tuple(map(int, option_of(attempt.magic, "--static-argnums")))
        return self.evidence.function.chosen(names, numbers)

    # -- places

    def _next(self, verdict: Verdict, attempt: Attempt) -> Spot | None:
        """Where the corrected cell goes on to fail, or what it is told of now."""
        if (ran := verdict.failed) is not None:
            if type(ran.error).__module__.startswith("jitmagic."):  # a variable that is not there
                return None
            assert ran.problem is not None
            problem, where, above = ran.problem, ran.problem.where, int(attempt.magic.startswith("%%"))
            if where is None or where.file != ran.file:
                return None
            names = tuple(dict.fromkeys((*problem.locals, *problem.leaves)))
            return self.spot(
                attempt, kind_of(self.evidence, problem), where.line - above, where.column, where.end_line - above,
                where.end_column, names, f"{ran.failed}: {ran.error}",
            )  # fmt: skip
        if not verdict.left:
            return None
        first = verdict.left[0]
        known = (e for e in verdict.evidence if e.function.name == first.function)
        return replace(self, evidence=next(known, self.evidence))._spot_of(first, attempt)

    def _spot_of(self, finding: Finding, attempt: Attempt) -> Spot:
        """The stretch of the cell that a finding is about, else its function."""
        span = finding.span
        lines, offset = attempt.cell.splitlines(), 0
        for offset in (1, 0) if span is not None and span.cell is None else ():  # a magic line above, or none
            line = span.line - offset  # type: ignore[union-attr]
            if 1 <= line <= len(lines) and lines[line - 1].strip() == span.source:  # type: ignore[union-attr]
                break
        else:
            return self._spot_of_function(finding, attempt)
        assert span is not None
        problem = next((p for p in self.evidence.problems if p.where and p.where.line == span.line), None)
        message = f"{problem.exception}: {problem.message}" if problem is not None else finding.detail
        names = (*finding.culprits, *(problem.locals if problem is not None else ()))
        return self.spot(
            attempt, finding.kind, line, span.column, span.end_line - offset, span.end_column, names, message
        )  # fmt: skip

    def _spot_of_function(self, finding: Finding, attempt: Attempt) -> Spot:
        """For what is told of a line elsewhere: where the cell defines the function, or gives it its name; nowhere in
        the text (line 0) where it does neither, and only options can change."""
        text, name = _text(attempt.cell), self.evidence.function.name
        bound = [s for s in text.tree.body if name.partition(".")[0] in scope.stores(s)]
        found = text.definition(name) or next(iter(bound), None)
        line = found.lineno if found is not None else 0
        return self.spot(attempt, finding.kind, line, -1, line, 0, finding.culprits, finding.detail)

    def spot(
        self, attempt: Attempt, kind: str, line: int, column: int = -1, end_line: int = 0, end_column: int = 0,
        names: tuple[str, ...] = (), message: str = "",
    ) -> Spot:  # fmt: skip
        """A place in an attempt, with all that a family may ask."""
        text, evidence = _text(attempt.cell), self.evidence
        leaves = [leaf for call in evidence.calls for leaf in call.leaves]
        others = {x.argument for x in leaves if x.kind != "scalar" or x.path != x.argument}
        return Spot(
            text, kind, line, column if end_column else -1, end_line, end_column, names,
            evidence.function.name, message,
            modules=Modules.of(self.namespace, text.tree), attempt=attempt, evidence=evidence,
            declared_static=self._static_of(attempt),
            defaults=frozenset(evidence.function.parameters) - {x.argument for x in leaves},
            scalars=tuple(dict.fromkeys(x.argument for x in leaves if x.argument not in others)),
            numpy_arguments=frozenset(x.path for x in leaves if x.kind == "numpy" and x.shape),
            from_outside=self.from_outside, probe=self._probe, outputs=self._outputs, made=self._made,
        )  # fmt: skip

    # -- what expressions are

    def _probe(self, cell: str) -> list[Shape]:
        found: list[Shape] = []
        if self.verifier.obstacle():
            return found
        self.verifier.reruns.observe(cell, {"__seen__": lambda value: _noted(value, found)})
        return found

    def _outputs(self, cell: str) -> list[Any]:
        import jax

        found: list[Any] = []

        def ask(functions: Iterable[Callable[..., Any]], *operands: Any) -> Any:
            found[:] = [jax.eval_shape(f, *operands) for f in functions]
            raise StopIteration  # what comes after needs the result

        if not self.verifier.obstacle():
            self.verifier.reruns.observe(cell, {"__outputs__": ask})
        return found

    def _made(self, cell: str) -> dict[str, dict[str, AttributeTypes]]:
        found: list[Any] = []

        def note(kind: type) -> type:
            found.extend(v for v in self.verifier.reruns.given() if type(v).__name__ == kind.__name__)
            own = kind.__init__  # type: ignore[misc]

            @wraps(own)
            def noting(instance: Any, *args: Any, **kwargs: Any) -> None:
                own(instance, *args, **kwargs)
                if type(instance) is kind:
                    found.append(instance)

            kind.__init__ = noting  # type: ignore[misc]
            return kind

        try:
            self.verifier.reruns.observe(cell, {"__made__": note})
            return _attributes(found)
        finally:
            found.clear()  # the class knows the way here, for as long as it is remembered anywhere


def _lasting(steps: tuple[Change, ...], original: str, cell: str) -> tuple[Change, ...]:
    """The steps without those that undo each other: nothing of them is in the corrected cell."""
    kept, first, final = list[Change](), _lines(original), _lines(cell)
    before = first
    for step in steps:
        after = _lines(step.edits.result()) if step.edits is not None else before
        gone = not (after - before - first) & final and (before - after) & first <= final
        plain = Change(step.title, step.edits, cost=step.cost, sure=step.sure, tags=step.tags)
        if after == before or not gone or step != plain:
            kept.append(step)
        before = after
    return tuple(kept)


def _lines(cell: str) -> set[str]:
    return {line.strip() for line in cell.splitlines()}


def written(change: Change, spot: Spot) -> str:
    """The cell with a change of it, and with the imports that it needs."""
    if change.edits is None:
        return spot.text.source
    return with_imports(change.edits.result(), spot.modules)


def with_imports(cell: str, modules: Modules) -> str:
    """The cell below the imports that it misses."""
    missing = modules.imports_for(Text(cell).tree)
    return "\n".join([*missing, "", cell]) if missing else cell


def offered(family: families.Family, spot: Spot) -> Iterator[Change]:
    """The changes of a family; one that cannot cope with a cell offers nothing more."""
    changes = iter(family(spot))
    while True:
        try:
            yield next(changes)
        except StopIteration:
            return
        except (CannotEdit, LookupError):  # what it looks for is not there
            return
        except (SyntaxError, RecursionError, AttributeError, TypeError, ValueError):
            if families.RAISE:
                raise
            return


def _noted(value: Any, into: list[Shape]) -> Any:
    import jax

    leaves = jax.tree.leaves(value)
    into += [shape_of(leaf) for leaf in itertools.islice(leaves, 8)]
    if not leaves:
        into.append(Shape((), "", type=type(value).__name__))
    return value


def shape_of(leaf: Any) -> Shape:
    """Shape and dtype of a value, and what it is where it is a whole number or a text."""
    import numpy as np

    form, dtype = tuple(np.shape(leaf)), str(getattr(leaf, "dtype", _type_of(leaf)))
    whole = not form and dtype.startswith(("int", "uint"))
    text = leaf if isinstance(leaf, str) else ""
    return Shape(form, dtype, int(leaf) if whole else None, type(leaf).__module__.partition(".")[0], text)


def _attributes(objects: Iterable[Any]) -> dict[str, dict[str, AttributeTypes]]:
    """What the attributes of objects were, by class and name."""
    held: dict[str, dict[str, list[Any]]] = {}
    for instance in objects:
        for name, value in values.raw_attributes(instance).items():
            held.setdefault(type(instance).__name__, {}).setdefault(name, []).append(value)
    return {k: {name: _held(v) for name, v in fields.items()} for k, fields in held.items()}


def _held(found: Sequence[Any]) -> AttributeTypes:
    import jax

    leaves = jax.tree.leaves(list(found), is_leaf=lambda v: v is None)
    types = frozenset(type(v).__name__ for v in found)
    return AttributeTypes(frozenset(map(_type_of, leaves)), types, all(map(is_hashable, found)))


def _type_of(leaf: Any) -> str:
    """`array` for an array of any library, `function` for what is one."""
    if values.is_array(leaf):
        return "array"
    return "function" if callable(leaf) and hasattr(leaf, "__name__") else type(leaf).__name__


@lru_cache(maxsize=64)
def _text(source: str) -> Text:
    return Text(source)


def _same_place(a: Spot, b: Spot) -> bool:
    return (a.text.source, a.line, a.column, a.kind) == (b.text.source, b.line, b.column, b.kind)


# --- as a fix -----------------------------------------------------------------------------------------


def fix_of(proved: Proved, original: Attempt, function: str) -> Fix:
    """The changes as one fix of a report about this function."""
    steps, attempt = proved.steps, proved.attempt
    last = {s.cost: s for s in steps if s.cost}  # each cost is told once
    titles = dict.fromkeys(f"{s.title} ({s.cost})" if s in last.values() else s.title for s in steps)
    dyn = [n for s in steps for n in s.dyn]
    cell = attempt.cell if attempt.cell != original.cell else None
    verdict, claim = proved.verdict, proved.claim
    evidence = verdict.words if verdict.holds else _first_step(verdict)
    static, before = ([option_of(a.magic, f) for f in _STATIC] for a in (attempt, original))
    names, numbers = (static[0], tuple(map(int, static[1]))) if static != before else (None, None)
    return Fix(
        title="; ".join(titles), applicability="safe" if proved.is_safe else "unsafe", verified=verdict.holds,
        evidence=evidence, static_argnames=names, static_argnums=numbers,
        dyn=option_of(attempt.magic, "--dyn") if dyn else None,
        cell=cell, calls=_calls(attempt, original, function),
        tested=verdict.tested or None, claim=claim.words or None,
        magic=attempt.magic if attempt.magic != original.magic else None,
        diff=diff(original.cell, attempt.cell) if cell is not None else None,
    )  # fmt: skip


def _calls(attempt: Attempt, original: Attempt, function: str) -> tuple[str, ...] | None:
    """The calls of the later cells as they are now, in order, each a statement with what is new in front of it, in the
    same block; the whole cells where more than that is new."""
    if attempt.later == original.later:
        return None
    names = {function.rpartition(".")[2], *cells.top_level_names(_text(attempt.cell).tree)}
    found: list[str] = []
    for old, new in zip(original.later, attempt.later, strict=True):
        text, known = _text(new), [ast.unparse(s) for s in cells.simple_statements(_text(old).tree)]
        front: list[ast.stmt] = []
        for statement in cells.simple_statements(text.tree):
            code = ast.unparse(statement)
            called = () if isinstance(statement, SCOPES) else text.within(statement, ast.Call)
            if any(last_name(c.func) in names for c in called):
                found.append("\n".join(map(text.code, (*front, statement))))
                if any(text.parents[s] is not text.parents[statement] for s in front):
                    return attempt.later
                front = []
            elif code in known:
                known.remove(code)
            else:
                front.append(statement)
        if front:
            return attempt.later
    return tuple(found)


def _first_step(verdict: Verdict) -> str:
    kinds = list(dict.fromkeys(f.kind for f in verdict.left))
    left = f"{' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} left" if kinds else verdict.rest
    return f"a first step: {left}" if left else verdict.words


def diff(old: str, new: str) -> str:
    """What a corrected cell changes, as a unified diff."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "cell", "corrected", lineterm="")
    return "\n".join(lines)

"""What a rule is, and what every rule needs to make a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources

from jitmagic.evidence import Evidence, Function, Leaf, Problem, Where
from jitmagic.evidence import root as root
from jitmagic.report import Finding, Severity, Span


@dataclass(frozen=True)
class Thresholds:
    """Thresholds that the user may change. `large_constant` is in bytes."""

    large_constant: int = 1_000_000


@dataclass(frozen=True)
class Rule:
    """One kind of finding: `find` looks for it in evidence; its page is a file of `pages/`."""

    code: str
    kind: str
    severity: Severity
    find: Callable[[Evidence, Thresholds], Iterable[Finding]]

    @property
    def page(self) -> str:
        """The page behind `--explain`, in Markdown."""
        return (resources.files(__package__) / "pages" / f"{self.code}-{self.kind}.md").read_text("utf-8")

    def finding(
        self,
        evidence: Evidence,
        message: str,
        *,
        where: Where | None,
        culprits: Iterable[str] = (),
        severity: Severity | None = None,
        help: str = "",
        detail: str = "",
        shows: Where | None = None,
    ) -> Finding:
        """A finding of this kind about the function of `evidence`."""
        return Finding(
            code=self.code,
            kind=self.kind,
            severity=severity or self.severity,
            function=evidence.function.name,
            message=message,
            span=span(where, evidence.function),
            shows=span(shows, evidence.function),
            culprits=tuple(dict.fromkeys(c for c in culprits if c)),
            help=help,
            detail=detail,
        )


def span(where: Where | None, function: Function) -> Span | None:
    """The place as a report shows it; names the file only where it is not the function's own."""
    if where is None:
        return None
    other = where.file if where.file != function.file else None
    helper = _helper(where, function)
    return Span(where.line, where.column, where.end_line, where.end_column, where.source, other, helper)


def _helper(where: Where, function: Function) -> str:
    """The function that a place lies in, where that is another one with a name."""
    last = function.line + function.source.rstrip().count("\n")
    within = where.file == function.file and function.line <= where.line <= last
    parts = where.function.split(".")
    own = within or function.name.rpartition(".")[2] in parts or parts[-1].endswith(">")
    return "" if own else where.function


def covers(path: str, other: str) -> bool:
    """Whether `path` is `other` or leads to it: `model` covers `model.w`, `w` does not cover `w2`."""
    return other == path or (other.startswith(path) and other[len(path)] in ".[")


def leaf(evidence: Evidence, path: str) -> Leaf | None:
    """The newest leaf of that path among the calls seen, or None where it is no argument."""
    for call in reversed(evidence.calls):
        for candidate in call.leaves:
            if candidate.path == path:
                return candidate
    return None


def is_array(evidence: Evidence, path: str) -> bool:
    """Whether the leaf of that path (or a leaf below it) was an array in a call seen."""
    return any(
        x.kind in ("array", "numpy") and covers(path, x.path) for call in evidence.calls for x in call.leaves
    )


def culprits(evidence: Evidence, problem: Problem) -> tuple[str, ...]:
    """The names to blame, best first: parameters in the expression, other local names, argument leaves."""
    static = {x.path for call in evidence.calls for x in call.leaves if x.static}
    local = [n for n in problem.locals if n not in static]
    parameters = {*evidence.function.parameters, *(x.argument for c in evidence.calls for x in c.leaves)}
    named = [n for n in local if n in parameters]
    # A parameter that no culprit leaf comes from is a bystander of the expression.
    roots = {root(x) for x in problem.leaves}
    first = [n for n in named if n in roots or not roots]
    rest = [n for n in local if n not in named]
    names: list[str] = []
    for name in first:
        below = [x for x in problem.leaves if root(x) == name]
        names += below + [name] if len(below) == 1 else [name, *below]
    return tuple(dict.fromkeys([*names, *rest, *problem.leaves]))


def traced_calls(evidence: Evidence) -> Iterator[tuple[Leaf, ...]]:
    """Leaves of each call that made jax trace anew, in order."""
    return (call.leaves for call in evidence.calls if call.traced)


def exception_detail(problem: Problem) -> str:
    """What jax itself says, and the value that the recording run saw there."""
    said = ": ".join(x for x in (problem.exception, problem.message) if x).rstrip(".")
    seen = f"in a run without jit the value was {problem.value}" if problem.value else ""
    return "; ".join(x for x in (said, seen) if x)

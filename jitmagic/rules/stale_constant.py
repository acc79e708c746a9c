"""JM203 stale-constant: what was compiled in has changed since."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Variable
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.captured import constants, everything_is_constant, first_read, paths
from jitmagic.rules.words import agree, listed, quoted, short


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for all that changed; it also names what the notebook changes elsewhere."""
    stale = [v for v in evidence.variables if v.stale and v.role != "dynamic" and not _only_written(v)]
    if not stale:
        return
    numbers = [v for v in stale if v.type != "function"]
    for group in (numbers, [v for v in stale if v.type == "function"]):
        if group:
            yield _finding(evidence, group, _companions(evidence) if group is numbers else [])


def _only_written(variable: Variable) -> bool:
    """A global that the function does not read: a callback, say, keeps a value in it."""
    plain = variable.origin == "global" and variable.path.isidentifier()
    return plain and variable.type != "function" and not variable.reads


def _companions(evidence: Evidence) -> list[Variable]:
    """What would go stale next: rebound elsewhere, or the other inputs of a function that has none."""
    alone = everything_is_constant(evidence)
    return [v for v in constants(evidence, "array", "scalar") if v.rebound or (alone and v.type == "array")]


def _finding(evidence: Evidence, stale: list[Variable], companions: list[Variable]) -> Finding:
    names, function = paths(stale), evidence.function.name
    functions = stale[0].type == "function"
    word = (
        agree(names, "was redefined", "were redefined")
        if functions
        else agree(names, "has changed", "have changed")
    )
    changes = [
        f"{quoted(v.path)} was {short(v.before, 40)} and is {short(v.after, 40)}"
        for v in stale
        if v.before and v.after and not v.after.startswith(v.before) and not functions
    ]
    told = f" ({'; '.join(changes[:3])})" if changes else ""
    keyword = "a static argument" if functions else agree(names, "an argument", "arguments")
    dynamic = (
        "" if functions else f", or declare {agree(names, 'it', 'them')} dynamic (`--dyn {','.join(names)}`)"
    )
    return RULE.finding(
        evidence,
        f"{listed(names)} {word} since `{function}` was compiled{told}; the compiled `{function}` still uses "
        f"what {agree(names, 'it', 'they')} {agree(names, 'was', 'were')} then",
        where=first_read(stale),
        culprits=[*names, *paths(companions)],
        help=f"pass {listed(names)} as {keyword}{dynamic}",
    )


RULE = Rule("JM203", "stale-constant", "warning", find)

"""Fixes that hold for a function's calls, put to the proof on the whole cell."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from jitmagic.correction import with_calls, with_options
from jitmagic.evidence import Evidence
from jitmagic.report import Finding, Fix
from jitmagic.source.edits import Text
from jitmagic.trial.claims import Claim
from jitmagic.trial.verify import SAME, Attempt, Verifier

ON_CALLS = "tested on the calls alone"


def tested(finding: Finding, evidence: Evidence, verifier: Verifier | None) -> Finding:
    """The finding with the fixes that hold for the whole cell, or were tested on the calls alone. Raises OutOfTime."""
    if verifier is None or not finding.fixes:
        return on_calls(finding, "") if finding.fixes else finding
    found = [_tested(x, finding, evidence, verifier) for x in finding.fixes]
    return replace(finding, fixes=tuple(x for x in found if x is not None))


def on_calls(finding: Finding, why: str) -> Finding:
    """The finding with fixes that no whole run has proved, for this reason."""
    return replace(finding, fixes=tuple(_on_calls(x, why) if x.tested is None else x for x in finding.fixes))


def _on_calls(fix: Fix, why: str) -> Fix:
    if not fix.verified:
        return fix
    words = f"{ON_CALLS}: {why}" if why else ON_CALLS
    grade = "unsafe" if fix.applicability == "safe" and why else fix.applicability
    return replace(fix, tested="calls", applicability=grade, evidence=f"{fix.evidence}; {words}")


def _tested(fix: Fix, finding: Finding, evidence: Evidence, verifier: Verifier) -> Fix | None:
    if not fix.verified or fix.tested is not None:
        return fix
    attempt = attempt_of(fix, evidence.function.name, verifier.reruns.original)
    if attempt is None:
        return _on_calls(fix, "its calls have no place in the cells that ran")
    claim = claim_of(fix, finding, verifier.reruns.original)
    verdict = verifier.verify(attempt, finding, claim)
    magic = attempt.magic if attempt.magic != verifier.reruns.original.magic else None
    grade = "unsafe" if fix.applicability == "safe" and claim != SAME else fix.applicability
    if verdict.holds:
        words = claim.words or None
        return replace(
            fix, tested="cell", evidence=verdict.words, magic=magic, claim=words, applicability=grade
        )
    if verdict.left:
        left = ", ".join(dict.fromkeys(f.kind for f in verdict.left))
        words = f"a first step: then {left} is left"
        grade = "unsafe" if fix.applicability == "safe" else fix.applicability
        return replace(fix, verified=False, applicability=grade, evidence=words, magic=magic)
    return None if verdict.tested else _on_calls(fix, verdict.words)


def attempt_of(fix: Fix, function: str, original: Attempt) -> Attempt | None:
    """The cell with a fix, as it would be run; None where its calls find no place."""
    later = _later(fix, function, original)
    if later is None:
        return None
    magic = with_calls(with_options(original.magic, fix), fix)
    if fix.cell is not None and "donate_arg" in fix.cell and "donate_arg" not in original.cell:
        magic = re.sub(r"\s+--donate(-argnums)?[ =]\S+", "", magic)  # it stands in the cell now
    return Attempt(magic, fix.cell if fix.cell is not None else original.cell, later)


def _later(fix: Fix, function: str, original: Attempt) -> tuple[str, ...] | None:
    """The later cells with the calls as the fix has them: all of them, those that call the function, or one for
    each different one."""
    if not fix.calls:
        return original.later
    if len(fix.calls) == len(original.later):
        return fix.calls
    name = function.rpartition(".")[2]
    calling = [s for s in original.later if re.search(rf"\b{re.escape(name)}\b", s) and _calls(s, function)]
    prelude = [c for c in fix.calls if not _calls(c, function)]
    body = [c for c in fix.calls if _calls(c, function)]
    distinct = list(dict.fromkeys(calling))
    if len(body) == len(calling):
        new = iter(body)
        found = [next(new) if s in calling else s for s in original.later]
    elif len(body) == len(distinct):
        found = [body[distinct.index(s)] if s in calling else s for s in original.later]
    else:
        return None
    return (*(c for c in prelude if c not in found), *found)


def _calls(source: str, function: str) -> bool:
    try:
        return bool(Text(source).calls(function))
    except SyntaxError:
        return False


_DEFINES = (ast.FunctionDef, ast.ClassDef)


def _tree(source: str) -> ast.Module:
    try:
        return Text(source).tree
    except SyntaxError:
        return ast.Module([], [])


_WORDS: Sequence[tuple[str, str]] = (
    ("other random", r"other (random )?numbers|new key|\bkeys?\b|draws? (with|from)|random"),
    ("new", r"\breturn|as an argument|pass .* to the compiled|at each call|leave .* out of what|bind (it|them) again"
            r"|work on a copy|\bcopy\b|\bpad"),
    ("where finite", r"gradient|guard|not a number|\bnan\b|infinit|where it is defined"),
    ("covers", r"64 bits|which have the range|which has the range|as a float|integers?|\btuple\b|NamedTuple|Partial"
               r"|frozen|register"),
)  # fmt: skip


def claim_of(fix: Fix, finding: Finding, original: Attempt) -> Claim:
    """What a fix of the older kind lets differ, which only its words say."""
    if finding.kind == "nan":
        return Claim("where finite")
    words = f"{fix.title} {fix.evidence}"
    if finding.kind == "in-place-update" and finding.severity == "warning" and "bind" not in words:
        return Claim("new", "the update that was thrown away is kept")
    if finding.kind == "in-place-update" and "bind" in words:
        return Claim("new", f"`{finding.culprits[0]}` is bound to what was lost", rebinds=finding.culprits)
    if "copy" in words:
        programs = [s for text in (original.cell, *original.later) for s in _tree(text).body]
        given = {
            n.id
            for s in programs
            if not isinstance(s, _DEFINES)
            for n in ast.walk(s)
            if isinstance(n, ast.Name)
        }
        return Claim("same", "the caller's own objects stay as they are", rebinds=tuple(given))
    if fix.applicability == "safe":
        return SAME
    found = next((name for name, pattern in _WORDS if re.search(pattern, words, re.I)), "same")
    return Claim(found)  # type: ignore[arg-type]

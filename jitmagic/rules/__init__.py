"""From evidence to findings: one file for each kind, with its page in `pages/`.

A rule looks at an `Evidence` and never at jax, so this package can be imported without it.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.select import select

_files = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
RULES: tuple[Rule, ...] = tuple(
    sorted((f.RULE for f in _files if hasattr(f, "RULE")), key=lambda rule: rule.code)
)
"""All rules by code, one from each file that has one."""


def run(evidence: Evidence, settings: Thresholds | None = None) -> tuple[Finding, ...]:
    """What all rules find, one finding for each cause, by line and then by severity; without fixes."""
    chosen = settings or Thresholds()
    return select(f for rule in RULES for f in rule.find(evidence, chosen))


def page(code_or_kind: str) -> str:
    """The Markdown page of a rule, by code (`JM101`) or kind (`tracer-bool`), in any case.

    Raises ValueError for other names, with the nearest one in its message.
    """
    wanted = code_or_kind.strip().lower().replace("_", "-")
    names = {name.lower(): rule for rule in RULES for name in (rule.code, rule.kind)}
    if wanted in names:
        return names[wanted].page
    spelled = {name.lower(): name for rule in RULES for name in (rule.code, rule.kind)}
    alike = {n: difflib.SequenceMatcher(None, wanted, n).ratio() for n in sorted(names)}
    near = max(alike, key=alike.__getitem__)
    codes = f"codes go from {RULES[0].code} to {RULES[-1].code}"
    hint = f"did you mean {spelled[near]}?" if alike[near] > 0.5 else codes
    raise ValueError(f"no rule is called {code_or_kind!r} ({hint})")


__all__ = ["RULES", "Rule", "Thresholds", "page", "run"]

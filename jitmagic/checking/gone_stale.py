"""What is told of functions that `jitmagic.jit` has made: constants of theirs that have changed since."""

from __future__ import annotations

import gc
import re
from dataclasses import replace

from jitmagic.evidence import Evidence, Variable
from jitmagic.report import Finding
from jitmagic.rules import Thresholds, stale_constant
from jitmagic.state import made
from jitmagic.state.definition import function_facts
from jitmagic.state.frozen import METHOD
from jitmagic.state.reads import reads_of, seen_from_cell


def findings() -> tuple[Finding, ...]:
    """A stale-constant finding for each function that goes on with values of before."""
    found: list[Finding] = []
    if any(one.changed() for one in made.known()):
        gc.collect()  # of functions that were bound anew there is nothing to tell
    for one in made.known():
        if changes := one.changed():
            function = function_facts(one.subject.fn, getattr(one.subject.fn, "__name__", "the function"))
            variables = tuple(_variable(one, *change) for change in changes)
            found += stale_constant.find(Evidence(function, variables=variables), Thresholds())
    return tuple(replace(f, help=re.sub(r"`--dyn (.*?)`", r'`dyn_vars="\1"`', f.help)) for f in found)


def _variable(one: made.Made, path: str, before: str, after: str) -> Variable:
    reach = one.subject.reach()
    root = next((r for r in reach.roots if r.path == path), None)
    is_function = before == METHOD or (root is not None and callable(root.value))
    return Variable(
        path, "global", "function" if is_function else "object", stale=True, before=before, after=after,
        reads=seen_from_cell(path, reads_of(path, reach.functions), reach.functions),
    )  # fmt: skip

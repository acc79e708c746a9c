"""Cells run as a notebook runs them, and the rewrites that they are offered."""

from __future__ import annotations

import ast
import functools
import gc
import itertools
import linecache
from collections.abc import Sequence
from typing import Any

import jax
import pytest

from jitmagic import rules
from jitmagic.checking import corrections as concluded
from jitmagic.checking import subject
from jitmagic.checking.checker import Checker
from jitmagic.checking.conclusions import evidence_of
from jitmagic.checking.request import Run
from jitmagic.checking.rerun import verifier_of, verifier_on_calls
from jitmagic.checking.watched import Watched
from jitmagic.fixes import families, policy
from jitmagic.fixes.change import Spot
from jitmagic.fixes.search import Search, fix_of, offered, written
from jitmagic.notebook.magics import JitMagics
from jitmagic.options import JitOptions
from jitmagic.report import Fix
from jitmagic.settings import CellSource, Settings
from jitmagic.source.edits import Text, masked
from jitmagic.source.modules import Modules
from jitmagic.source.tree import parsed
from jitmagic.trial import budget
from jitmagic.trial.beginning import Beginning

SETUP = "import functools\nimport math\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _what_is_left_is_not_looked_through() -> None:
    """What the cells before have left, caches of jax's above all, is not looked through with each cell."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _failures_of_ours_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "RAISE", True)
    monkeypatch.setattr(families, "RAISE", True)


def watched(
    cell: str,
    calls: Sequence[str],
    name: str = "f",
    setup: str = "",
    static: Sequence[str] = (),
    **options: Any,
) -> tuple[Checker, dict[str, Any]]:
    """The checker of a cell's function after these calls, failing ones included, and the namespace; `options` are
    those of `jax.jit`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(SETUP + setup, namespace)
    beginning = Beginning(namespace, parsed(masked(cell)))
    file, text = f"<ipython-input-{next(_numbers)}-fixes>", "\n" + cell
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), namespace)
    made = JitOptions.of(**({"static_argnames": tuple(static)} if static else {}), **options)
    lists = {
        "--static": made.static_argnames, "--static-argnums": made.static_argnums,
        "--donate": made.donate_argnames, "--donate-argnums": made.donate_argnums,
    }  # fmt: skip
    flags = [f" {flag} {','.join(map(str, values))}" for flag, values in lists.items() if values]
    magic = f"%%jit -f {name}" + "".join(flags)
    source = CellSource(f"{magic}\n{cell}", cell, magic=magic)
    head, _, method = name.partition(".")
    fn = vars(namespace[head])[method] if method else namespace[head]
    checker = Checker(
        fn, name, namespace=namespace, settings=Settings(time=False), cell=source,
        options=made,
    )  # fmt: skip
    if method:
        setattr(namespace[head], method, Watched(fn, checker))
    else:
        namespace[head] = Watched(fn, checker)
    request_of = JitMagics(shell=None).request_of
    run = Run(request_of(magic), source, (name,), {name: checker}, beginning=beginning)
    checker.verifier = lambda deadline: verifier_of(run, namespace, request_of, deadline)
    checker.verifier_on_calls = lambda deadline: verifier_on_calls(
        run, checker, namespace, request_of, deadline
    )
    ran = run.later
    checker.call_source = lambda: (ran[-1], None)
    for call in calls:
        beginning.add(ast.parse(call))
        ran.append(call)
        try:
            exec(call, namespace)
        except Exception:  # the diagnosis is what is wanted
            pass
    return checker, namespace


def fixes_of(cell: str, calls: Sequence[str], name: str = "f", setup: str = "") -> list[Fix]:
    """The rewrites that hold, for each finding of the cell."""
    checker, _ = watched(cell, calls, name, setup)
    search = searching(checker)
    evidence, original = search.evidence, search.verifier.reruns.original
    found = [f for f in rules.run(evidence) if f.severity != "note"]
    proved = [p for f in found for p, _ in policy.graded(search.corrections(f), f, evidence)]
    return [fix_of(p, original, name) for p in proved if p.verdict.holds]


def searching(checker: Checker) -> Search:
    """The search for corrections of a function, on the whole cell."""
    deadline = budget.clock() + checker.settings.budget
    verifier = checker.verifier(deadline)
    assert verifier is not None
    return Search(
        evidence_of(checker),
        verifier,
        checker.namespace,
        checker.from_outside,
        lambda: budget.clock() > deadline,
    )


def corrections(
    cell: str, calls: Sequence[str], name: str = "f", setup: str = "", static: Sequence[str] = ()
) -> list[tuple[str, Fix]]:
    """Kind of the finding and the fix, for each fix of each error and warning, as a report has them. Plain data, so
    that the tests of one cell share them."""
    wide = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    return list(_corrections(cell, tuple(calls), name, setup, tuple(static), wide))


@functools.cache
def _corrections(
    cell: str, calls: tuple[str, ...], name: str, setup: str, static: tuple[str, ...], wide: bool
) -> tuple[tuple[str, Fix], ...]:
    checker, _ = watched(cell, calls, name, setup, static)
    deadline = budget.clock() + checker.settings.budget
    found = [
        f
        for f in concluded.findings_of(checker, deadline, checker.verifier(deadline))
        if f.severity != "note"
    ]
    nothing = (Fix(title="none", applicability="display"),)
    return tuple((f.kind, fix) for f in found for fix in f.fixes or nothing)


def first_offered(cell: str, place: Sequence[int], names: Sequence[str], modules: dict[str, str]) -> str:
    """The cell with the first change that is offered for a branch on a traced value there."""
    text = Text(cell)
    known = Modules({**Modules.of({}, text.tree).names, **modules})
    spot = Spot(text, "tracer-bool", *place, tuple(names), modules=known)
    return next(written(c, spot) for family in families.of("tracer-bool") for c in offered(family, spot))


def findings_of(cell: str, calls: Sequence[str], name: str = "f", setup: str = "") -> list[str]:
    """Kinds of the errors and warnings that the cell has."""
    checker, _ = watched(cell, calls, name, setup)
    return [f.kind for f in rules.run(evidence_of(checker)) if f.severity != "note"]

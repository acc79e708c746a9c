"""The time for finding and proving fixes is limited, and the report says what was not tried."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from jitmagic.checking import corrections
from jitmagic.checking.conclusions import evidence_of, told_of
from jitmagic.trial import budget
from jitmagic.trial.verify import Attempt, Verdict, Verifier
from tests.conftest import Notebook
from tests.fixes.conftest import watched
from tests.silent.cells import told

HOPELESS = (
    "def f(x, y):\n"
    + "".join(f"    if x[{i}] > y:\n        x = str(x) if y > {i} else x\n" for i in range(6))
    + "    return len(str(x))\n"
)
CALLS = ("f(jnp.arange(8.0), 3.0)",)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that are tried."""
    tried: list[str] = []
    original: Callable[..., Verdict] = Verifier.verify

    def verify(self: Verifier, attempt: Attempt, *args: Any) -> Verdict:
        tried.append(attempt.cell)
        return original(self, attempt, *args)

    monkeypatch.setattr(Verifier, "verify", verify)
    return tried


def _notes(checker: Any) -> list[str]:
    return [n for n in checker.seen.notes if n.startswith("not all fixes were tried")]


def test_the_search_ends_with_the_budget_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, trials: list[str]
) -> None:
    ticks = itertools.count()
    checker, _ = watched(HOPELESS, CALLS)
    monkeypatch.setattr(budget, "clock", lambda: float(next(ticks)))  # a second for each look at the clock
    found = told(checker)
    assert len(trials) <= checker.settings.budget
    (note,) = _notes(checker)
    assert note.startswith("not all fixes were tried within 10 s: some are missing for ")
    assert all(f"{f.kind} in line {f.span.line}" in note for f in found if f.span and not f.fixes)


def test_with_time_enough_nothing_is_missing(monkeypatch: pytest.MonkeyPatch, trials: list[str]) -> None:
    checker, _ = watched("def f(x):\n    return x if x > 0 else -x\n", ("f(-2.0)",))
    monkeypatch.setattr(budget, "clock", lambda: 0.0)
    (found,) = told(checker)
    assert found.fixes and trials and not _notes(checker)


def test_a_run_that_does_not_end_is_ended() -> None:
    checker, _ = watched("def f(x):\n    return x if x > 0 else -x\n", ("f(-2.0)",))
    deadline = budget.clock() + 0.3
    verifier = checker.verifier(deadline)
    assert verifier is not None
    endless = replace(verifier.reruns.original, later=("while True:\n    pass",))
    verifier.reruns.original = endless
    found = told_of(checker)
    fixed = corrections.proposed(found, evidence_of(checker), checker, deadline, verifier)
    assert [(x.verified, x.evidence) for f in fixed for x in f.fixes] == [
        (False, "not tried: without jit it takes too long")
    ]
    assert len(fixed) == len(found) and any("without jit it takes too long" in n for n in checker.seen.notes)


def test_functions_of_one_report_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []
    monkeypatch.setattr(budget, "clock", lambda: 100.0)
    monkeypatch.setattr(
        corrections,
        "proposed",
        lambda found, e, c, deadline=None, *others: (given.append(deadline), found)[1],
    )
    checkers = [watched("def f(x):\n    return x if x > 0 else -x\n", ("f(1.0)",))[0] for _ in range(2)]
    corrections.report_of(checkers)
    assert given[-2:] == [110.0, 110.0]


def test_the_search_is_told_of_while_it_goes_on(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitmagic.notebook import progress

    stages: list[str] = []

    @contextlib.contextmanager
    def shown(what: str, *others: Any) -> Iterator[None]:
        stages.append(what)
        yield

    monkeypatch.setattr(progress, "shown", shown)
    notebook.run("%%jit -q --no-time\ndef f(x):\n    return x if x > 0 else -x\nf(1.0)")
    assert notebook.report().findings[0].fixes
    assert "f: looking for corrections" in stages

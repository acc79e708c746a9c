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
from jitmagic.checking.rerun import CellReruns
from jitmagic.tracing import stages
from jitmagic.trial import budget
from jitmagic.trial.play import Ran
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


def test_what_is_slow_to_compile_is_not_compiled_again_to_be_compared_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[Attempt] = []
    under_magic = CellReruns.under_magic
    note = lambda self, attempt, *others: (compiled.append(attempt), under_magic(self, attempt, *others))[1]  # noqa: E731
    monkeypatch.setattr(CellReruns, "under_magic", note)
    checker, _ = watched(
        "def f(x):\n    for t in np.linspace(0.0, 1.0, 50):\n        x = x + jnp.sin(t) * x\n    return x\n",
        ("f(jnp.ones(2))",),
    )
    found = told(checker)[0]
    verifier = checker.verifier(budget.clock() + 10)
    assert found.kind == "unrolled-loop" and verifier is not None
    assert compiled and verifier.reruns.original not in compiled


def test_a_loop_that_a_correction_writes_out_is_not_compiled() -> None:
    checker, _ = watched(
        "def f(x, n):\n    for t in range(n):\n        x = jnp.sin(x) + t\n    return x\n",
        ("f(jnp.ones(2), 50)",),
    )
    verifier = checker.verifier(budget.clock() + 10)
    assert verifier is not None
    original = verifier.reruns.original
    with stages.counted() as counted:
        verdict = verifier.verify(
            replace(original, magic=f"{original.magic} --static n"), told_of(checker)[0]
        )
    assert not verdict.holds and [f.kind for f in verdict.left] == ["unrolled-loop"]
    assert not [e for e in counted.events if e[0] == stages.COMPILE and "f" in e[1:]]


def test_a_correction_whose_cell_is_slow_without_jit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    checker, _ = watched("def f(x):\n    return x if x > 0 else -x\n", ("f(-2.0)",))
    plain = CellReruns.plain

    def slow(self: CellReruns, attempt: Attempt, *, briefly: bool = False) -> Ran:
        if briefly:
            raise budget.OutOfTime
        return plain(self, attempt)

    monkeypatch.setattr(CellReruns, "plain", slow)
    assert [(x.verified, x.applicability) for f in told(checker) for x in f.fixes][0] == (True, "safe")


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

"""The search for corrections as its user sees it: what is tried, and what an interrupt leaves."""

from __future__ import annotations

from typing import Any

import pytest

from jitmagic.checking import corrections
from jitmagic.notebook.session import current
from jitmagic.trial.verify import Verifier

TWO = """\
%%jit
def f(x, n):
    if x > 0:
        x = -x
    return x + jnp.zeros(n)
f(1.0, 3)
"""


def test_an_interrupt_ends_the_search_and_keeps_what_was_found(notebook, monkeypatch):
    verify, calls = Verifier.verify, []

    def interrupted(self, attempt, finding, claim):
        calls.append(finding.kind)
        if len(set(calls)) > 1:
            raise KeyboardInterrupt
        return verify(self, attempt, finding, claim)

    monkeypatch.setattr(Verifier, "verify", interrupted)
    notebook.error(TWO)
    report = notebook.report()
    assert [bool(f.fixes) for f in report.findings] == [True, False]
    assert any("because of an interrupt" in note for note in report.functions[0].notes)


def test_the_search_says_what_it_tries(notebook, monkeypatch):
    from jitmagic.notebook import progress

    said = []
    monkeypatch.setattr(progress._Line, "say", lambda self, now: said.append(now))
    notebook.error(TWO.replace("\ndef", "\ndef", 1))
    assert any("jnp.where" in title for title in said)


def test_a_cell_that_takes_too_long_without_jit_is_tested_on_its_calls(
    notebook: Any,
) -> None:
    notebook.ok("%config JitMagics.budget = 6.0")
    notebook.run(
        "%%jit -q --no-time\ndef f(x):\n    return x if x > 0 else -x\nfailed = False\n"
        "try: f(1.0)\nexcept TypeError: failed = True\nwhile not failed: pass"
    )
    (found,) = (f for f in notebook.report().findings if f.severity == "error")
    assert [(x.verified, x.tested, x.applicability) for x in found.fixes[:1]] == [(True, "calls", "unsafe")]
    assert "without jit it takes too long" in str(notebook.report().functions[0].notes)
    notebook.ok("%config JitMagics.budget = 10.0")


CHOICES = {
    # cell: the magic lines that are offered, the largest constant first
    "w, b = jnp.ones((3, 2)), jnp.ones(2)\ndef f(x):\n    return x @ w + b\nf(jnp.ones(3))":
        ["%%jit --dyn w --no-time", "%%jit --dyn b --no-time"],
    "p = {'w': jnp.ones((3, 2)), 'b': [jnp.ones(2)]}\ndef f(x):\n    return x @ p['w'] + p['b'][0]\nf(jnp.ones(3))":
        ["%%jit --dyn p --no-time"],
    "w, n = jnp.ones(3), jnp.array(3)\ndef f(x):\n    return (x * w).reshape(int(n))\nf(jnp.ones(3))":
        ["%%jit --dyn w --no-time"],  # `n` decides a shape
    "import numpy as np\nw = np.ones(3)\ndef f(x):\n    return x * w\nf(1.0)\nw = w + 1\nf(1.0)": [],  # a warning
    "rate = 0.1\ndef f(x):\n    return x * rate\nf(1.0)": ["%%jit --dyn rate --no-time"],
    "w = jnp.ones(3)\ndef f(x):\n    return x * w\nf(1.0)\nimport socket; socket.socket().close()": [],  # can't be run again
}  # fmt: skip


@pytest.mark.parametrize("cell", CHOICES)
def test_a_note_on_constants_offers_each_as_a_dynamic_variable(
    cell: str, notebook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corrections, "CHOOSING_S", 60.0)
    notebook.ok(f"%%jit --no-time\n{cell}")
    session = current()
    known = corrections.with_choices(notebook.report(), list(session.last.checkers.values()))
    offered = [fix for f in known.findings if f.severity == "note" for fix in f.fixes]
    assert [fix.magic for fix in offered] == CHOICES[cell]
    assert all(fix.verified and fix.applicability == "safe" and fix.cell is None for fix in offered)
    for fix in offered:
        notebook.ok(f"{fix.magic}\n{cell}")
        dynamic = {s.path for s in notebook.report().functions[0].state if s.role == "dynamic"}
        assert dynamic and not notebook.kinds("error", "warning")

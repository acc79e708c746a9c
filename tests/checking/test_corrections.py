"""The search for corrections as its user sees it: what is tried, and what an interrupt leaves."""

from __future__ import annotations

from typing import Any

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

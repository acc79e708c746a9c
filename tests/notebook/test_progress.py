"""The line of a long stage: nothing for a short one, the seconds for a long one, and nothing left over."""

from __future__ import annotations

import _thread
import io
import sys
import threading
import time

import pytest

from jitmagic.notebook import progress

LOUD = (lambda: False, print)
"""Not quiet, and a board that takes the line in a kernel, which the terminal here is not."""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress, "AFTER_S", 0.02)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    monkeypatch.setattr(progress, "_in_kernel", lambda: False)
    return Terminal()


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


def test_a_long_stage_is_told_and_taken_away(terminal, monkeypatch):
    monkeypatch.setattr(
        sys, "stderr", terminal
    )  # not in the fixture: pytest changes it again before the test
    with progress.shown("f: compiling", *LOUD, " (38 s last time)"):
        wait_for(lambda: terminal.getvalue().count("\r") > 2)
    text = terminal.getvalue()
    assert text.startswith("\r\x1b[2Kf: compiling, 0 s (38 s last time)") and text.endswith("\r\x1b[2K")
    with progress.shown("f: running", *LOUD):
        wait_for(lambda: "running" in terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_a_long_line_is_cut_to_the_width_of_the_window(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    with progress.shown("f: looking", *LOUD) as say:
        say("choose with `jnp.where` in place of `if`")
        wait_for(lambda: "choose" in terminal.getvalue())
    lines = [line for line in terminal.getvalue().split("\r\x1b[2K") if "choose" in line]
    assert lines and all(len(line) == 39 and line.endswith("…, 0 s") for line in lines)


def test_a_short_stage_and_a_quiet_one_are_not(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "AFTER_S", 60)
    with progress.shown("f: compiling", *LOUD):
        pass
    with progress.shown("f: compiling", lambda: True, print):
        time.sleep(0.02)
    assert terminal.getvalue() == ""


def test_one_thread_for_all_of_them_that_is_not_among_the_users(terminal, monkeypatch):
    ticker, users = progress._Ticker(), threading.enumerate()
    monkeypatch.setattr(progress, "_ticker", ticker)
    started, starts = [], _thread.start_new_thread
    monkeypatch.setattr(_thread, "start_new_thread", lambda *args: (started.append(args), starts(*args))[1])
    for _ in range(3):
        with progress.shown("f", *LOUD):
            assert threading.enumerate() == users
    assert len(started) == 1


FAILING = "%%jit --no-time\ndef f(x, n):\n    return -x if x > 0 else x + n\nf(1.0, 3)"


def test_the_first_word_comes_before_anything_is_looked_for(notebook, monkeypatch):
    from jitmagic.checking import failures
    from jitmagic.notebook.display import Display

    order = []
    steps = ((Display, "news"), (failures, "_look_further"), (Display, "show_pending"))
    for holder, name in steps:
        step = getattr(holder, name)

        def noted(*args, name=name, step=step, **kwargs):
            order.append(name)
            return step(*args, **kwargs)

        monkeypatch.setattr(holder, name, noted)
    notebook.error(FAILING)
    assert order == ["news", "_look_further", "news", "show_pending"]


def test_in_a_terminal_the_verdict_stands_there_before_the_search(notebook, monkeypatch):
    from jitmagic.checking import corrections
    from jitmagic.notebook import display

    monkeypatch.setattr(display, "in_terminal", lambda: True)
    report_of = corrections.report_of

    def searched(*args, **kwargs):
        print("-- the search --")
        return report_of(*args, **kwargs)

    monkeypatch.setattr(corrections, "report_of", searched)
    notebook.error(FAILING)
    before, after = notebook.text.split("-- the search --")
    assert "✗ f  can't be compiled: line 3 branches on a traced value\n" in before and "--> in" not in before
    assert "✗ f" not in after and "error[JM101]" in after and "fix:" in after


INTERRUPTED = """%%jit
def f(x):
    return x + 1
def g(x):
    return -x if x > 0 else x
f(1.0)
try: g(1.0)
except TypeError: pass
raise KeyboardInterrupt"""


def test_a_cell_that_is_interrupted_waits_for_nothing_and_keeps_what_is_known(notebook, monkeypatch):
    from jitmagic.checking import corrections, left_behind

    monkeypatch.setattr(corrections, "report_of", None)  # neither the search, nor a run of the cell
    monkeypatch.setattr(left_behind, "look", None)
    notebook.error(INTERRUPTED)
    shown = notebook.outputs[-1].data["text/plain"]
    assert "✓ f  compiled in" in shown
    assert "✗ g  can't be compiled: line 5 branches on a traced value\n" in shown
    assert "not timed: it was interrupted" in shown
    assert "the run without jit was left out: it was interrupted" in shown


SHOWN_FIRST = {
    "the cell itself": "%%jit --no-time\ndef f(x):\n    return x * gain\ngain = 2.0\nf(1.0)",
    "a later cell": "gain = 3.0\nf(1.0)",
}


def test_in_a_terminal_what_is_told_stands_above_the_value(notebook, monkeypatch):
    from IPython.core.displayhook import DisplayHook

    told = []
    monkeypatch.setattr(notebook.shell.display_pub, "publish", lambda *args, **kwargs: told.append("report"))
    monkeypatch.setattr(DisplayHook, "write_output_prompt", lambda self: told.append("value"))
    for name, cell in SHOWN_FIRST.items():
        notebook.shell.run_cell(cell).raise_error()
        assert told[-1] == "value" and told.count("value") == 1 and "report" in told, (name, told)
        told.clear()

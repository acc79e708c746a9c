"""The line of a long stage: nothing for a short one, the seconds for a long one, and nothing left over."""

from __future__ import annotations

import io
import sys
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
    assert text.startswith("\rf: compiling, 0 s (38 s last time)") and text.endswith("\r\x1b[2K")
    with progress.shown("f: running", *LOUD):
        wait_for(lambda: "running" in terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_a_short_stage_and_a_quiet_one_are_not(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "AFTER_S", 60)
    with progress.shown("f: compiling", *LOUD):
        pass
    with progress.shown("f: compiling", lambda: True, print):
        time.sleep(0.02)
    assert terminal.getvalue() == ""


def test_one_thread_for_all_of_them(terminal):
    threads = set()
    for _ in range(3):
        with progress.shown("f", *LOUD):
            threads.add(progress._ticker.thread)
    assert len(threads) == 1

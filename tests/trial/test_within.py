"""A run that ends with its time leaves the interpreter as it was."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import time

import pytest

from jitmagic.trial.budget import OutOfTime, within


def test_a_run_that_takes_too_long_ends() -> None:
    with pytest.raises(OutOfTime), within(0.05):
        while True:
            pass


def test_one_that_was_caught_does_not_come_again() -> None:
    caught = []
    with within(0.05):
        try:
            while True:
                pass
        except BaseException as exc:
            caught.append(type(exc))
    for _ in range(10_000):
        pass
    assert [issubclass(c, OutOfTime) for c in caught] == [True]


def ran(source: str) -> str:
    """What a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_interrupt_leaves_nothing_that_ends_what_comes_later() -> None:
    source = """
        import random, signal, sys, threading, time
        from jitmagic.trial import budget
        random.seed(0)
        def work(seconds):
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
        def limited():
            with budget.within(random.choice((0.01, 0.1))), budget.within(random.choice((0.005, 0.1))):
                work(random.random() * 0.02)
        signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
        interrupts = 0
        for _ in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + random.random() * 0.03)
                for _ in range(20):
                    try:
                        limited()
                    except budget.OutOfTime:
                        pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
        work(0.3)
        watching = threading.enumerate()[1:]
        for thread in watching:
            thread.join(20)
        print(interrupts > 20, any(t.is_alive() for t in watching))
    """
    assert ran(source) == "True False\n"


def test_what_runs_when_the_block_was_left_without_a_word_is_not_ended() -> None:
    block = within(0.02)
    with contextlib.suppress(KeyboardInterrupt):
        _left(block)
    time.sleep(0.1)
    assert not block.fired


def _left(block: within) -> None:
    block.__enter__()
    raise KeyboardInterrupt  # before the `with` statement has taken note


def test_profilers_work_afterwards() -> None:
    source = """
        import cProfile, time
        from jitmagic.trial.budget import OutOfTime, within
        def f(): return 1
        with within(60):
            f()
        try:
            with within(0.05):
                time.sleep(0.2)
        except OutOfTime:
            pass
        profile = cProfile.Profile()
        profile.enable()
        f()
        profile.disable()
        print("profiled")
    """
    assert ran(source) == "profiled\n"


@pytest.mark.parametrize(
    ("load", "cores", "factor"), [(0.5, 2, 1.0), (3.0, 2, 1.5), (40.0, 2, 2.0), (3.0, None, 2.0)]
)
def test_a_busy_machine_gets_more_time(monkeypatch, load, cores, factor):
    from jitmagic import settings

    monkeypatch.setattr(settings.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(settings.os, "cpu_count", lambda: cores)
    assert settings.patience() == factor


def test_where_the_load_is_not_told_nothing_is_added(monkeypatch):
    from jitmagic import settings

    monkeypatch.delattr(settings.os, "getloadavg")
    assert settings.patience() == 1.0

"""A run that ends with its time leaves the interpreter as it was."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from jitmagic.checking.plain_runs import OutOfTime, within


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
    assert caught == [OutOfTime]


def test_profilers_work_afterwards() -> None:
    source = """
        import cProfile, time
        from jitmagic.checking.plain_runs import OutOfTime, within
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
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "profiled\n", ran.stderr


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

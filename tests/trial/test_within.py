"""A run that ends with its time leaves the interpreter as it was."""

from __future__ import annotations

import contextlib
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from jitmagic import work
from jitmagic.interrupts import deferred
from jitmagic.state import ends
from jitmagic.trial import quiet
from jitmagic.trial.budget import OutOfTime, within


def test_a_run_that_takes_too_long_ends() -> None:
    with pytest.raises(OutOfTime), within(0.05):
        while True:
            pass


@pytest.mark.parametrize("kind", ["__del__", "gc", "finalize", "a weak reference", "a weak set"])
def test_nothing_is_raised_where_python_would_drop_it(monkeypatch, kind) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    def work(*told: object) -> None:
        for _ in range(200):
            time.sleep(0.001)

    class Thing:
        pass

    class Held:
        def __del__(self) -> None:
            work()

    class Slow(weakref.WeakSet[Thing]):
        def __init__(self) -> None:
            super().__init__()
            remove = self._remove  # type: ignore[has-type]
            self._remove = lambda ref: (work(), remove(ref))

    with pytest.raises(OutOfTime), within(0.05):
        if kind == "gc":
            gc.callbacks.append(work)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(work)
        elif kind == "__del__":
            Held()
        else:
            thing, kept, refs = Thing(), Slow(), []
            if kind == "finalize":
                weakref.finalize(thing, work)
            elif kind == "a weak set":
                kept.add(thing)
            else:
                refs.append(weakref.ref(thing, work))
            del thing
        while True:
            pass
    assert dropped == []


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


def test_what_is_told_when_a_slice_of_a_wait_ends_is_heard() -> None:
    """A wait in a run of ours is in slices; what comes just between two of them is heard too."""
    condition, slept = threading.Condition(), threading.Event()
    restore = condition._acquire_restore  # type: ignore[attr-defined]

    def restored(saved: object) -> None:
        slept.set()  # a wait has ended, and does not hold the lock yet
        teller.join(5)
        restore(saved)

    def tell() -> None:
        slept.wait(0.3)
        with condition:
            condition.notify_all()

    teller = threading.Thread(target=tell)
    condition._acquire_restore = restored  # type: ignore[attr-defined]
    with condition:
        teller.start()
        with quiet.held_back():
            assert condition.wait(3)


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
    ("passed", "used", "seconds"),
    [
        (1.0, 1.0, 1.0),  # the machine is ours
        (4.0, 2.0, 2.0),  # others have half of it
        (1.0, 8.0, 1.0),  # eight cores at work are no faster clock
        (8.0, 0.0, 2.0),  # a wait for a device ends too
    ],
)
def test_a_busy_machine_gets_more_time(monkeypatch, passed, used, seconds):
    now = [100.0, 50.0]
    monkeypatch.setattr(work.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(work.time, "process_time", lambda: now[1])
    clock = work.WorkClock()
    start = clock()
    now[:] = [100.0 + passed, 50.0 + used]
    assert clock() - start == seconds


def test_what_a_run_holds_that_is_broken_off_ends_in_it() -> None:
    """A context manager that was just about to be left ends while what it does is held back, and put back after."""
    ended: list[bool] = []

    @contextlib.contextmanager
    def opened() -> Iterator[None]:
        try:
            yield
        finally:
            ended.append(quiet.is_held())

    def run() -> None:
        manager = opened()

        def break_off() -> object:  # a function of which a frame holds what is around it, names or none
            raise OutOfTime(manager)

        manager.__enter__()
        break_off()

    with pytest.raises(OutOfTime) as kept, quiet.held_back():
        try:
            run()
        except OutOfTime as exc:
            exc.args = ()
            raise
    assert kept.value is not None
    assert ended == [True]


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")
@pytest.mark.parametrize("deep", [1, 2, 4])
def test_an_interrupt_within_blocks_that_put_it_off_comes_once_at_the_outermost_end(deep):
    before, heard, steps = signal.getsignal(signal.SIGINT), [], []
    signal.signal(signal.SIGINT, lambda *a: heard.append(len(steps)))
    own = signal.getsignal(signal.SIGINT)
    try:
        with contextlib.ExitStack() as outer:
            outer.enter_context(deferred())
            for _ in range(deep):
                with deferred():
                    signal.raise_signal(signal.SIGINT)
                steps.append("inner")
        assert (heard, steps) == ([deep], ["inner"] * deep) and signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_word_of_a_sessions_last_cell_outlives_it(notebook):
    notebook.ok("%%jitcheck -q\ndef f(x): return x * 2\ny = f(1.0)")
    notebook.ok("import weakref\nr = weakref.ref(jnp)\n%unload_ext jitmagic")
    assert ends.asked() == ""

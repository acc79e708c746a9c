"""What goes when a run of ours has failed, and what comes while one is under way: nothing of it lasts."""

from __future__ import annotations

import signal
import sys
import time
import types
import warnings

import pytest

from tests.conftest import Notebook

CHECK = "%%jitcheck -q\n"
GENERATOR = """
n, ended = [0], []
def gen(k=3):
    try:
        for i in range(k): yield i + 1.0
    finally:
        n[0] += 1
        ended.append(k)
"""
HOLDS = {
    "a name": "g = gen(); v = next(g)",
    "two names": "g = gen(); v = first(g)",
    "a list": "gs = [gen(), gen()]; v = sum(next(g) for g in gs)",
    "an iterator of Python's": "g = zip(gen(), range(3)); v = next(g)[0]",
    "a context manager": "c = contextlib.contextmanager(gen)(); v = c.__enter__()",
}
FIRST = "import contextlib\ndef first(g): return next(g)"
FAILS = {
    "a number is asked for": "return float(x.sum()) * v",
    "a branch": "if x.sum() > 0: return x * v\n    return x",
    "in a helper": "return x * int(jnp.sum(x) * first(gen()) + v)",
}


@pytest.fixture
def failed_before(notebook: Notebook):
    """The frames of the first trace that fails in a process live on, on jax 0.7.2."""
    notebook.ok(f"import jax.numpy as jnp{GENERATOR}")
    notebook.ok(f"{CHECK}def f(x):\n    g = gen(); v = next(g)\n    return float(x.sum())\nf(jnp.ones(3))")


@pytest.mark.usefixtures("failed_before")
@pytest.mark.parametrize("magic", [CHECK, "%%jitcheck\n"], ids=["quiet", "with trials"])
@pytest.mark.parametrize("fails", FAILS)
@pytest.mark.parametrize("holds", HOLDS)
def test_generators_of_a_failing_trace_end_in_it(notebook: Notebook, bare, holds, fails, magic):
    cell = f"import jax.numpy as jnp\n{FIRST}{GENERATOR}def f(x):\n    {HOLDS[holds]}\n    {FAILS[fails]}\ny = f(jnp.ones(3))"
    notebook.ok(cell)
    plainly = list(notebook.ns["ended"]), list(notebook.ns["n"])
    notebook.ok(magic + cell)
    notebook.report()
    assert (notebook.ns["ended"], notebook.ns["n"]) == plainly


def test_a_generator_of_the_users_goes_on(notebook: Notebook):
    notebook.ok(f"import jax.numpy as jnp{GENERATOR}G = gen(9)\nnext(G)")
    notebook.ok(f"{CHECK}def f(x):\n    g = G\n    return float(x.sum())\ny = f(jnp.ones(3))")
    assert notebook.ns["ended"] == [] and next(notebook.ns["G"]) == 2.0
    notebook.ns["G"].close()


def test_a_generator_that_a_trial_begins_anew_ends_in_it(notebook: Notebook):
    notebook.ok("import jax.numpy as jnp")
    notebook.run(
        f"%%jit{GENERATOR}G = gen(9)\nnext(G)\ndef f(x):\n    g = G\n    return float(x.sum())\nf(jnp.ones(3))"
    )
    assert notebook.report().findings and notebook.ns["ended"] == []


COROUTINES = {"kept": "kept.append(tick())", "handed on": "asyncio.ensure_future(tick())"}


@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jitcheck -q"])
@pytest.mark.parametrize("what", COROUTINES)
def test_nothing_is_said_of_coroutines_that_a_run_of_ours_makes(notebook: Notebook, what, magic):
    notebook.ok("import asyncio\nkept = []\nasync def tick(): pass")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        notebook.ok(
            f"{magic}\ndef f(x):\n    {COROUTINES[what]}\n    return float(x) if x > 0 else x\n"
            "async def main(): return f(1.0)\ny = asyncio.new_event_loop().run_until_complete(main())"
        )
        notebook.report()
    for coroutine in notebook.ns["kept"]:
        coroutine.close()
    assert not [w for w in told if "never awaited" in str(w.message)]


@pytest.fixture
def module():
    made = sys.modules["made_in_a_test"] = types.ModuleType("made_in_a_test")
    made.n, made.kept = 0, []
    yield made
    del sys.modules["made_in_a_test"]


MODULES = {
    "by its name": "m = sys.modules['made_in_a_test']",
    "in a loop": "m = next(m for k, m in list(sys.modules.items()) if k == 'made_in_a_test')",
    "by getattr": "m = getattr(sys, 'modules')['made_in_a_test']",
}


@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jitcheck -q", "%%jit"])
@pytest.mark.parametrize("how", MODULES)
def test_a_module_that_is_found_is_changed_once(notebook: Notebook, module, how, magic):
    notebook.ok("import sys")
    notebook.ok(
        f"{magic}\ndef f(x):\n    {MODULES[how]}\n    m.n += 1\n    m.kept.append(m.n)\n    return x\ny = f(1.0)"
    )
    notebook.report()
    assert (module.n, module.kept) == (1, [1])


FRAMES = {
    "the caller's": "sys._getframe(1).f_globals['seen'].append(1)",
    "by inspect": "inspect.currentframe().f_back.f_globals['seen'].append(1)",
    "of all objects": "next(o for o in gc.get_objects() if type(o) is Kept).n.append(1)",
}


@pytest.mark.parametrize("how", FRAMES)
def test_what_is_found_by_frames_and_among_all_objects_is_changed_once(notebook: Notebook, how):
    notebook.ok("import gc, inspect, sys\nclass Kept:\n    n = seen = []\nkept, seen = Kept(), Kept.seen")
    notebook.ok(f"%%jitcheck\ndef note(): {FRAMES[how]}\ndef f(x):\n    note()\n    return x\ny = f(1.0)")
    assert notebook.ns["seen"] == [1]
    assert any("was not traced beforehand: " in n for f in notebook.report().functions for n in f.notes)


INTERRUPTS = {
    "a timer": "threading.Timer(0.1, _thread.interrupt_main).start()",
    "a thread": "threading.Thread(target=stop).start()",
}


@pytest.mark.parametrize("how", INTERRUPTS)
def test_a_cell_that_interrupts_itself_does_it_once(notebook: Notebook, how):
    """Trials of corrections run it again."""
    notebook.ok(
        f"{CHECK}import _thread, threading, time\nseen = []\ndef stop():\n    time.sleep(0.1)\n    _thread.interrupt_main()\n"
        f"def f(x):\n    seen.append(1)\n    time.sleep(0.5)\n    return x\n{INTERRUPTS[how]}\n"
        "try: f(1.0)\nexcept KeyboardInterrupt: told = 1"
    )
    assert notebook.ns["told"] == 1
    report = notebook.report()
    time.sleep(0.3)
    assert "interrupt_main" in str(report)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer of the system's")
@pytest.mark.parametrize("raises", ["", "raise TimeoutError"])
@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jitcheck -q", "%jitcheck on\n"])
def test_an_alarm_of_the_users_times_their_own_call(notebook: Notebook, magic, raises):
    """It neither rings in a run of ours, which would keep it to itself, nor while one is under way."""
    notebook.ok("import signal, time\nrung = []")
    cell = (
        f"def ring(*given):\n    rung.append(1)\n    {raises or 'pass'}\nbefore = signal.signal(signal.SIGALRM, ring)\n"
        "def f(x):\n    time.sleep(0.3)\n    return x\nsignal.setitimer(signal.ITIMER_REAL, 0.2)\n"
        "try: y = f(1.0)\nexcept TimeoutError: y = None\nsignal.signal(signal.SIGALRM, before)"
    )
    if magic.startswith("%jit"):
        notebook.ok(magic)
        magic = ""
    notebook.ok(f"{magic}\n{cell}")
    notebook.report()
    assert notebook.ns["rung"] == [1] and notebook.ns["y"] == (None if raises else 1.0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

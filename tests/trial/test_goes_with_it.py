"""What goes when a run of ours has failed, and what comes while one is under way: nothing of it lasts."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator

import pytest

from jitmagic.state import snapshot
from jitmagic.state.roots import reach
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


@pytest.fixture(autouse=True)
def _all_is_looked_through(bare: Notebook) -> Iterator[None]:
    """As in a notebook, where nothing is kept out of sight. IPython, which collects garbage as it clears the notebook,
    need not look through all that the tests have imported."""
    gc.unfreeze()
    yield
    gc.collect(1)
    gc.freeze()


@pytest.mark.parametrize(
    ("holds", "fails", "magic"),
    [
        *((holds, "a number is asked for", "%%jitcheck\n") for holds in HOLDS),
        *(("a name", fails, CHECK) for fails in FAILS),
    ],
)
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


def test_trials_leave_the_order_of_the_names(notebook: Notebook):
    notebook.ok("import jax.numpy as jnp\na = 1\nb = 2\nc = 3")
    notebook.ok("%%jitcheck\na = 3\ndef f(x): return float(x.sum()) * a\nb = f(jnp.ones(3))")
    assert "tracer-array-conversion" in notebook.kinds()
    assert [n for n in notebook.ns if n in ("a", "b", "c", "f")] == ["a", "b", "c", "f"]


def test_trials_leave_the_order_of_names_that_the_cell_makes(notebook: Notebook):
    cell = (
        "import math\ndef small(x): return float(x.sum())\nbig = lambda x: small(x) * 2\nz = big(jnp.ones(3))"
    )
    notebook.ok("before = 1")
    notebook.ok(f"%%jitcheck\n{cell}")
    assert "tracer-array-conversion" in notebook.kinds()
    wanted = ["before", "math", "small", "big", "z"]
    assert [n for n in notebook.ns if n in wanted] == wanted


@pytest.mark.parametrize("magic", ["%jitcheck", "%jit --no-time -f f"])
def test_what_stands_above_the_magic_runs_once(notebook: Notebook, magic):
    notebook.ok(
        "import numpy as np\nlog, kept, it, rows = [], {}, iter(range(99)), np.zeros(2)\nclass K: v = 0"
    )
    notebook.run(
        "log.append(1); kept['a'] = kept.get('a', 0) + 1; m = next(it); rows[0] += 1; K.v += 1\n"
        f"{magic}\ndef f(x): return float(x.sum()) * m\nf(jnp.ones(2))"
    )
    assert "tracer-array-conversion" in notebook.kinds()
    assert notebook.ok("log, kept, next(it), rows[0], K.v") == ([1], {"a": 1}, 1, 1.0, 1)


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_trials_leave_the_annotations_of_the_notebook(notebook: Notebook, future):
    seen = []
    for magic in ("", "%%jitcheck\n"):
        notebook.ns.pop("__annotations__", None)
        notebook.ok(
            f"{magic}{future}v: float = 1.0\ndef f(x: int): return float(x.sum()) * v\ny = f(jnp.ones(2))"
        )
        notebook.report()
        seen.append(notebook.ok("dict(globals().get('__annotations__', {})), f.__annotations__"))
    assert seen[0] == seen[1]


KEPT = {
    "in a list": ("kept = []", "g = chunks(x); next(g); kept.append(g)"),
    "in an object": ("class P: pass\nkept = P()", "kept.g = chunks(x); next(kept.g)"),
    "in a dict, zipped": ("kept = {}", "g = zip(chunks(x), chunks(x)); next(g); kept[x.shape] = g"),
    "in a circle": ("class P: pass\nkept = P()", "p = P(); p.me, p.g, kept.p = p, chunks(x), p; next(p.g)"),
    "of a method": (
        "class P:\n    def __init__(self): self.g = self.run(); next(self.g)\n    def run(self): yield from chunks(1.0)\nkept = []",
        "kept.append(P())",
    ),
    "a context": ("import contextlib\nkept = contextlib.ExitStack()", "kept.enter_context(contextlib.contextmanager(chunks)(x))"),
    "a coroutine": (
        "import types\n@types.coroutine\ndef pause(): yield 1\nasync def co():\n    try: await pause()\n"
        "    finally: ended.append('co')\nkept = []",
        "c = co(); c.send(None); kept.append(c)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("traces", "magic"), [(True, CHECK), (False, "%%jitcheck\n")], ids=["traces, quiet", "fails, with trials"]
)
@pytest.mark.parametrize("where", KEPT)
def test_generators_that_a_run_of_ours_leaves_to_the_user_end_unseen(
    notebook: Notebook, where, traces, magic
):
    begin, keeps = KEPT[where]
    cell = (
        "ended = []\ndef chunks(x):\n    try:\n        for i in range(3): yield x * i\n    finally: ended.append('g')\n"
        f"{begin}\ndef f(x):\n    {keeps}\n    return {'x' if traces else 'float(x.sum())'}\nx = jnp.ones(3)\ny = f(x)"
    )
    notebook.ok("import gc, jax.numpy as jnp")
    notebook.ok(magic + cell)
    notebook.report()
    notebook.ok("gc.collect()")
    assert notebook.ns["ended"] == []
    for coroutine in notebook.ns["kept"] if where == "a coroutine" else ():
        coroutine.close()
    notebook.ok("del kept\ngc.collect()")


LOG: list[object] = []
TABLE: dict[str, object] = {}


def writes() -> None:
    LOG.append(1)
    TABLE["n"] = 1


@pytest.mark.parametrize("first", [True, False], ids=["the first thread", "another one"])
def test_what_others_write_is_put_back_where_no_other_thread_can_be_the_writer(first):
    """What is looked at in a thread of a pool others of it are about to call, too; no frame tells of them yet."""
    LOG.clear()
    TABLE.clear()

    def look() -> None:
        before = snapshot.take(reach(writes))
        writes()
        before.restore()

    if first:
        look()
    else:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert (len(LOG), len(TABLE)) == ((0, 0) if first else (1, 1))


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

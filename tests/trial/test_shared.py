"""What other threads fill while a function takes from it: nothing is lost, and nobody waits for ever."""

from __future__ import annotations

import time

import jax
import pytest

from jitmagic.checking import corrections
from tests.conftest import Notebook

FILLED = {
    "by a function": (
        "q = queue.Queue(maxsize=2)\ndef fill():\n    for i in range(5): q.put(i)\n"
        "t = threading.Thread(target=fill, daemon=True)\nt.start()",
        "q.get()",
    ),
    "by a method": (
        "class Loader:\n    def __init__(self):\n        self.q = queue.Queue(maxsize=2)\n"
        "        self.t = threading.Thread(target=self.run, daemon=True)\n        self.t.start()\n"
        "    def run(self):\n        for i in range(5): self.q.put(i)\nloader = Loader()",
        "loader.q.get()",
    ),
    "by a thread of its own class": (
        "class Loader(threading.Thread):\n    def __init__(self, q):\n        super().__init__(daemon=True)\n"
        "        self.q = q\n    def run(self):\n        for i in range(5): self.q.put(i)\n"
        "q = queue.Queue(maxsize=2)\nloader = Loader(q)\nloader.start()",
        "q.get(timeout=5)",
    ),
    "by a pool": (
        "pool = futures.ThreadPoolExecutor(2)\ndef late(i):\n    time.sleep(0.02 * i)\n    return i\n"
        "jobs = [pool.submit(late, i) for i in range(5)]",
        "jobs.pop(0).result()",
    ),
    "by a pool of the other kind": (
        "pool = ThreadPool(2)\ndef late(i):\n    time.sleep(0.02 * i)\n    return i\n"
        "jobs = [pool.apply_async(late, (i,)) for i in range(5)]",
        "jobs.pop(0).get()",
    ),
}
IMPORTS = "import queue, threading, time\nfrom concurrent import futures\nfrom multiprocessing.pool import ThreadPool\n"


@pytest.mark.parametrize("within", [False, True], ids=["in an earlier cell", "in the cell"])
@pytest.mark.parametrize("how", FILLED)
def test_what_another_thread_fills_is_taken_once(notebook: Notebook, how: str, within: bool):
    setup, take = FILLED[how]
    cell = f"def f(x):\n    return x + {take}\ntaken = [float(f(0.0)) for i in range(5)]"
    notebook.ok(IMPORTS + ("" if within else setup))
    notebook.ok("%%jitcheck\n" + (setup + "\n" if within else "") + cell)
    assert notebook.ns["taken"] == [0, 1, 2, 3, 4]
    if "pool" in notebook.ns:
        notebook.ok("pool.terminate() if hasattr(pool, 'terminate') else pool.shutdown()")


def test_what_is_done_when_a_fix_is_tried_is_done(notebook: Notebook):
    """The result of a job that has ended since the cell began."""
    notebook.ok(
        IMPORTS + "pool = futures.ThreadPoolExecutor(1)\njob = pool.submit(lambda: time.sleep(0.05) or 2.0)"
    )
    notebook.ok(
        "%%jitcheck\ndef f(x):\n    s = job.result()\n    if x > 0: return x * s\n    return x\ny = f(1.0)"
    )
    assert float(notebook.ns["y"]) == 2.0 and notebook.ns["job"].done()
    notebook.ok("pool.shutdown()")


def test_a_queue_that_nobody_else_knows_is_put_back(notebook: Notebook):
    notebook.ok(IMPORTS + "q = queue.Queue()\nfor i in range(3): q.put(i)")
    notebook.ok("%%jitcheck\ndef f(x):\n    return x + q.get()\ny = f(0.0)")
    assert notebook.ns["q"].qsize() == 2 and "was not traced" not in notebook.text


def test_a_thread_that_has_ended_shares_nothing(notebook: Notebook):
    notebook.ok(
        IMPORTS + "q = queue.Queue()\nt = threading.Thread(target=lambda: q.put(1.0))\nt.start()\nt.join()"
    )
    deadline = time.monotonic() + 5
    while notebook.ns["t"].is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    notebook.ok("%%jitcheck\ndef f(x):\n    return x + q.get()\ny = f(0.0)")
    assert float(notebook.ns["y"]) == 1.0 and "was not traced" not in notebook.text


CALLED = {
    "by a pool": "with futures.ThreadPoolExecutor(3) as pool: y = list(pool.map(f, range(1, 7)))",
    "by threads": "y = [0] * 6\ndef go(i): y[i] = f(i + 1)\n"
    "ts = [threading.Thread(target=go, args=(i,)) for i in range(6)]\n[t.start() for t in ts]\n[t.join() for t in ts]",
    "by a pool of the other kind": "with ThreadPool(3) as pool: y = pool.map(f, range(1, 7))",
}


@pytest.mark.parametrize("how", CALLED)
def test_first_calls_in_several_threads_leave_no_traced_value(notebook: Notebook, how: str):
    notebook.ok(IMPORTS + "seen, held = [], {}\nx = jnp.arange(3.0)")
    for _ in range(3):
        cell = (
            "def f(i):\n    seen.append(i)\n    held['last'] = i\n    return jnp.sum(x * i)\n" + CALLED[how]
        )
        notebook.ok("%%jit --no-time -f f\n" + cell)
        assert [float(v) for v in notebook.ns["y"]] == [3.0 * i for i in range(1, 7)]
        left = [*notebook.ns["seen"], *notebook.ns["held"].values()]
        assert not [v for v in left if isinstance(v, jax.core.Tracer)]


BOTH = {
    "a list": ("kept = []", "kept.append({} + x.sum())", "kept"),
    "a dict": ("kept = {{}}", "kept['{name}'] = {} + x.sum()", "kept.values()"),
    "a global": ("kept, n = None, 0", "global n; n += 1; x = x + {} * 0", "[kept, n]"),
}


@pytest.mark.parametrize("what", BOTH)
def test_functions_that_are_traced_at_once_are_told_of_what_they_do_themselves(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, what: str
):
    monkeypatch.setattr(corrections.Search, "corrections", lambda *args: [])  # each would run the cell again
    made, does, values = BOTH[what]
    names = [f"f{i}" for i in range(4)]
    functions = "".join(
        f"def {n}(x):\n    {does.format(i, name=n)}\n    return x * {i}\n" for i, n in enumerate(names)
    )
    for _ in range(3):
        notebook.ok(f"{IMPORTS}{made.format()}\nx = jnp.arange(4.0)")
        notebook.ok(
            f"%%jit -q --no-time\n{functions}with futures.ThreadPoolExecutor(4) as pool:\n"
            f"    jobs = [pool.submit(k, x) for _ in range(2) for k in ({', '.join(names)})]\n"
            "y = [float(j.result().sum()) for j in jobs]"
        )
        assert notebook.ns["y"] == [6.0 * i for i in range(4)] * 2
        for finding in notebook.report().findings:
            others = [n for n in names if f"'{n}'" in finding.message and n != finding.function]
            assert not others and "removes" not in finding.message
            assert finding.span is None or finding.span.line == 3 + 3 * names.index(finding.function)
        assert not [v for v in notebook.ok(values) if isinstance(v, jax.core.Tracer)]


def test_functions_that_wait_for_one_another_are_traced(notebook: Notebook):
    notebook.ok(IMPORTS + "met = threading.Barrier(2, timeout=20)")
    notebook.ok(
        "%%jit -q --no-time\ndef f(x):\n    met.wait()\n    return x + 1\ndef g(x):\n    met.wait()\n    return x + 2\n"
        "with futures.ThreadPoolExecutor(2) as pool: y = [float(j.result()) for j in [pool.submit(k, 1.0) for k in (f, g)]]"
    )
    assert notebook.ns["y"] == [2.0, 3.0]


GUARDED = {
    "a handler of logs": "import logging\nlog = logging.getLogger('mine')\nlog.addHandler(logging.StreamHandler())\n",
    "a cached property": "import functools\nclass M:\n    @functools.cached_property\n    def w(self): return 2.0\nm = M()\n",
}


@pytest.mark.parametrize("what", GUARDED)
def test_what_has_a_lock_for_itself_is_nobody_elses(notebook: Notebook, what: str):
    """Beside a pool that does nothing."""
    notebook.ok(IMPORTS + "pool = futures.ThreadPoolExecutor(1)\npool.submit(int).result()\n" + GUARDED[what])
    use = "log.info('x')" if "log" in GUARDED[what] else "x = x * m.w"
    notebook.ok(f"%%jitcheck\ndef f(x):\n    {use}\n    return x\ny = f(1.0)")
    assert "was not traced" not in notebook.text
    notebook.ok("pool.shutdown()")


FLAGS = {
    "a global": (
        "running = True\nn = 0",
        "global n\n    while running: n += 1; time.sleep(0.005)",
        "running",
    ),
    "an attribute": (
        "class W: pass\nw = W()\nw.running = True\nw.n = 0",
        "while w.running: w.n += 1; time.sleep(0.005)",
        "w.running",
    ),
    "of a class": (
        "class W: running, n = True, 0",
        "while W.running: W.n += 1; time.sleep(0.005)",
        "W.running",
    ),
}


@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jitcheck -q"])
@pytest.mark.parametrize("flag", FLAGS)
def test_what_the_cell_sets_while_a_thread_runs_stays(notebook: Notebook, flag: str, magic: str):
    """A thread runs a checked function: what the cell binds meanwhile is not ours to put back."""
    made, loop, running = FLAGS[flag]
    notebook.ok(
        f"{magic}\nimport threading, time\n{made}\ndef work():\n    {loop}\n"
        "t = threading.Thread(target=work, daemon=True)\nt.start()\ntime.sleep(0.1)\n"
        f"{running} = False\nt.join(5)\nended = not t.is_alive()"
    )
    assert notebook.ns["ended"] and notebook.ok(running) is False


def test_what_a_thread_counts_while_the_cell_runs_stays(notebook: Notebook):
    notebook.ok(
        "import threading, time\nn = 0\nstop = False\ndef count():\n    global n\n"
        "    while not stop: n += 1; time.sleep(0.001)\nt = threading.Thread(target=count, daemon=True)\nt.start()"
    )
    notebook.ok(
        "%%jitcheck -q\ndef f(x):\n    for i in range(20): x = x + n * 0; time.sleep(0.005)\n    return x\n"
        "before = n\ny = f(1.0)\nafter = n"
    )
    notebook.ok("stop = True\nt.join()")
    assert notebook.ns["after"] - notebook.ns["before"] >= 20


def test_nobody_waits_for_a_thread_that_has_ended(notebook: Notebook):
    """One that fails in a run of ours would be waited for until the time is up."""
    begun = time.monotonic()
    notebook.ok(
        "%%jitcheck -q\nimport queue, threading\nclass Loader:\n    n, started = 3, 0\n    def __iter__(self):\n"
        "        self.started += 1\n        q = queue.Queue(2)\n        def work():\n"
        "            for i in range(self.n): q.put(float(i))\n            q.put(None)\n"
        "        threading.Thread(target=work, daemon=True).start()\n"
        "        while (b := q.get()) is not None: yield b\n"
        "loader = Loader()\ndef epoch(w):\n    for b in loader: w = w + b\n    return w\ny = epoch(1.0)"
    )
    assert float(notebook.ns["y"]) == 4.0 and notebook.ns["loader"].started == 1
    assert time.monotonic() - begun < 60  # hangs otherwise, as far as the user is concerned

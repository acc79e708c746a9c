"""Never in the way: a cell computes, prints and raises under the magics what it does without them."""

from __future__ import annotations

import builtins
import random
import signal
import sys
import threading
import traceback
import types
import warnings
from typing import Any

import jax
import numpy as np
import pytest

from jitmagic import interrupts, patches
from jitmagic.checking import hearing
from jitmagic.trial import permission, quiet
from tests.notebook.test_arrival import session

JITS = "%%jit -q --no-time"
TIMED = "%%jit -q -n 2 -r 2"
CHECKS = "%%jitcheck -q"

# A function, what is known once the cell has run, and its value under `%%jitcheck` and under `%%jit`, which traces.
STATE = [
    ("n = 0\ndef f(x):\n    global n\n    n += 1\n    return x + n", "n", 1),
    ("seen = []\ndef f(x):\n    seen.append(1)\n    return x", "len(seen)", 1),
    ("it = iter([1.0, 2.0, 3.0])\ndef f(x):\n    return x + next(it)", "list(it)", [2.0, 3.0]),
    ("it = (i for i in range(4))\ndef f(x):\n    return x + next(it)", "list(it)", [1, 2, 3]),
    ("import csv\nr = csv.reader(['1', '2', '3'])\ndef f(x):\n    return x + float(next(r)[0])", "list(r)", [["2"], ["3"]]),
    ("import io\nb = io.StringIO()\ndef f(x):\n    b.write('a')\n    return x", "b.getvalue()", "a"),
    ("h = open(path, 'w')\ndef f(x):\n    h.write('a')\n    return x", "h.close() or open(path).read()", "a"),
    ("def f(x):\n    with open(path, 'a') as h: h.write('a')\n    return x", "open(path).read()", "a"),
    ("h = open(read)\ndef f(x):\n    return x + float(h.readline())", "h.read()", "2\n3\n"),
    ("import queue\nq = queue.Queue(); q.put(1); q.put(2)\ndef f(x):\n    return x + q.get()", "q.qsize()", 1),
    ("import os\ndef f(x):\n    os.environ['JM'] = os.environ.get('JM', '') + 'a'\n    return x", "os.environ.pop('JM')", "a"),
    ("import types\nm = types.ModuleType('m'); m.n = 0\ndef f(x):\n    m.n += 1\n    return x", "m.n", 1),
    ("w = np.zeros(400_000)\ndef f(x):\n    w[0] += 1\n    return x", "w[0]", 1.0),
    ("def f(x):\n    return x + np.random.rand()", "np.random.rand()", 0.7151893663724195),
]  # fmt: skip


@pytest.mark.parametrize("magic", [JITS, CHECKS])
@pytest.mark.parametrize(("cell", "after", "expected"), STATE)
def test_what_a_function_changes_is_changed_once(notebook, tmp_path, magic, cell, after, expected):
    (tmp_path / "read").write_text("1\n2\n3\n")
    notebook.ns |= {"path": str(tmp_path / "written"), "read": str(tmp_path / "read")}
    notebook.ok("np.random.seed(0)")
    notebook.ok(f"{magic}\n{cell}\nf(1.0)")
    assert notebook.ok(after) == expected


def test_timing_changes_nothing_either(notebook, tmp_path):
    notebook.ns["path"] = str(tmp_path / "written")
    notebook.ok(
        f"{TIMED}\nseen, it = [], (i for i in range(9))\ndef f(x):\n    seen.append(1)\n    return x\n"
        "def g(x):\n    with open(path, 'a') as h: h.write('a')\n    return x\n"
        "def h(x):\n    return x + next(it)\nf(1.0); g(1.0); h(1.0)"
    )
    assert notebook.ok("len(seen), open(path).read(), next(it)") == (1, "a", 1)


CALLBACKS = [
    "def f(x):\n    jax.debug.callback(lambda v: note(), x)\n    return x",
    "from jax.experimental import io_callback\ndef f(x):\n    io_callback(lambda v: note(), None, x)\n    return x",
]


@pytest.mark.parametrize("magic", [JITS, CHECKS])
@pytest.mark.parametrize("cell", CALLBACKS)
def test_callbacks_fire_as_often_as_without_us(notebook, magic, cell):
    calls: list[int] = []
    notebook.ns["note"] = lambda: calls.append(1)
    notebook.ok(f"{magic}\n{cell}\nf(1.0); f(2.0); jax.effects_barrier()")
    assert len(calls) == 2


def test_a_decorator_of_the_cell_stays_a_function_of_python(notebook):
    notebook.ok(
        "%%jit --no-time -q\n"
        "def twice(fn):\n    return lambda *args: 2 * fn(*args)\n"
        "def times(n):\n    return lambda fn: lambda *args: n * fn(*args)\n"
        "@twice\n@times(3)\ndef f(x):\n    return x + 1\ny = float(f(1.0))"
    )
    assert notebook.ns["y"] == 12.0
    (found,) = notebook.report().functions
    assert (found.name, found.verdict, found.compiles) == ("f", "ok", 1)


def test_a_callback_by_name_stays_a_function_of_the_host(notebook):
    notebook.ok(
        "%%jit -q --no-time\ndef host(v):\n    return np.sin(v) + float(v)\n"
        "def f(x):\n    return jax.pure_callback(host, jax.ShapeDtypeStruct((), 'float32'), x)\ny = float(f(1.0))"
    )
    assert type(notebook.ns["host"]).__name__ == "function" and notebook.ns["y"] == pytest.approx(1.84147)


WORKER = (
    "import queue, threading, weakref, _thread\nfrom concurrent.futures import Future, ThreadPoolExecutor\n"
    "import ipywidgets\nq, out = queue.Queue(), []\nclass Held:\n    pass\n"
    "def worker(*event):\n    while (item := q.get()) is not None:\n"
    "        out.append(float(jnp.sum(item)))\n        q.task_done()\n"
)
FEED = "for i in range(3):\n    q.put(jnp.arange(3.0) + i)\nq.put(None)\n"
RUN_BY_OTHERS = {
    "a thread": "t = threading.Thread(target=worker)\nt.start()\nt.join()",
    "a timer": "t = threading.Timer(0.01, worker)\nt.start()\nt.join()",
    "a bare thread": "_thread.start_new_thread(worker, ())\nwhile len(out) < 3:\n    pass",
    "an executor": "with ThreadPoolExecutor(1) as pool:\n    pool.submit(worker)",
    "a slider": "s = ipywidgets.IntSlider()\ns.observe(worker, 'value')\ns.value = 3",
    "a future": "f = Future()\nf.add_done_callback(worker)\nf.set_result(1)",
    "an object's end": "held = Held()\nend = weakref.finalize(held, worker)\ndel held",
}


@pytest.mark.parametrize("run", RUN_BY_OTHERS.values(), ids=RUN_BY_OTHERS)
def test_what_others_run_and_whose_result_nobody_gets_stays_a_function_of_python(notebook, run):
    notebook.ok(f"%%jit --no-time\n{WORKER}{FEED}{run}")
    assert "nothing is compiled: worker is a decorator, or called by others than you" in notebook.text
    assert notebook.ns["out"] == [3.0, 6.0, 9.0]
    notebook.ok(f"%%jit -q --no-time\n{WORKER}")
    notebook.ok(FEED + run)
    assert notebook.ns["out"] == [3.0, 6.0, 9.0]


def test_what_the_magic_names_is_compiled_wherever_it_runs(notebook):
    notebook.ok("import threading\n%jit -q --no-time -f f\ndef f(x):\n    return x * 2")
    notebook.ok("t = threading.Thread(target=f, args=(3.0,))\nt.start()\nt.join()")
    (found,) = notebook.report().functions
    assert found.compiles == 1


def test_what_an_executor_is_given_with_its_arguments_is_compiled(notebook):
    notebook.ok(
        "%%jit -q --no-time\nfrom concurrent.futures import ThreadPoolExecutor\ndef f(x):\n    return x * 2\n"
        "with ThreadPoolExecutor(1) as pool:\n    y = float(pool.submit(f, 3.0).result())"
    )
    (found,) = notebook.report().functions
    assert notebook.ns["y"] == 6.0 and found.compiles == 1


PAIR = "class Pair:\n    def __init__(self, x, tag):\n        self.x, self.tag = x, tag\n"
APART = (
    "def flatten(v):\n    return (v.x,), v.tag\n"
    "def unflatten(tag, children):\n    return Pair(children[0], tag)\n"
)
REGISTER = "jax.tree_util.register_pytree_node(Pair, flatten, unflatten)\n"
USE = "y = float(jax.jit(lambda pair: pair.x * 2)(Pair(2.0, 'a')))"


@pytest.mark.parametrize("magic", ["%%jit -q --no-time\n", "%%jitcheck -q\n"])
@pytest.mark.parametrize("cells", [[PAIR + APART + REGISTER + USE], [PAIR + APART, REGISTER + USE]])
def test_what_takes_a_class_apart_stays_a_function_of_python(notebook, magic, cells):
    for first, cell in enumerate(cells):
        notebook.ok(cell if first else magic + cell)
    assert notebook.ns["y"] == 4.0 and notebook.kinds() == []
    assert type(notebook.ns["flatten"]).__name__ == "function"


CLIP = """@partial(jax.custom_vjp, nondiff_argnums=(1,))
def clip(x, flag):
    return x if flag else -x
def forward(x, flag):
    return (x if flag else -x), None
def backward(flag, kept, g):
    return (2 * g if flag else g,)
clip.defvjp(forward, backward)
"""


@pytest.mark.parametrize("magic", ["%%jit -q --no-time\n", "%%jitcheck -q\n"])
def test_rules_of_a_derivative_get_what_is_not_differentiated_as_it_is(notebook, magic):
    notebook.ok("from functools import partial")
    notebook.ok(
        f"{magic}{CLIP}y = [float(jax.grad(clip)(1.0, flag)) for flag in (True, False)], float(clip(3.0, False))"
    )
    assert notebook.ns["y"] == ([2.0, 1.0], -3.0)
    assert notebook.kinds("error", "warning") == []


def test_a_decorator_of_an_earlier_cell_is_the_users_again(notebook):
    notebook.ok("%%jit -q --no-time\ndef times(n):\n    return lambda fn: lambda x: n * fn(x)")
    notebook.ok("%%jit -q --no-time\n@times(3)\ndef f(x):\n    return x + 1\ny = float(f(1.0))")
    assert notebook.ns["y"] == 6.0 and notebook.kinds("error", "warning") == []


def test_a_function_for_other_hosts_is_not_compiled(notebook):
    notebook.ns["colocated_python"] = lambda fn: fn
    notebook.ok(
        "%%jit -q --no-time\ndef f(x):\n    return float(x)\nf = colocated_python(f)\ny = f(jnp.ones(()))"
    )
    assert notebook.ns["y"] == 1.0 and notebook.report().functions == ()


STORES = [
    "def f(r, x):\n    r[...] = r[...] + x\nf(r, 1.0)",
    "def f(r, x):\n    r[0][...] += x\nf([r], 1.0)",
    "def f(r, x):\n    r[...] += x\ndef g(x):\n    f(r, x)\ng(1.0)",
]


@pytest.mark.parametrize("magic", ["%%jit -q --no-time\n", "%%jitcheck -q\n"])
@pytest.mark.parametrize("cell", STORES)
def test_what_is_stored_in_a_ref_reaches_the_caller(notebook, magic, cell):
    if not hasattr(notebook.ns["jax"], "new_ref"):
        pytest.skip("this jax has no references")
    notebook.ok("r = jax.new_ref(jnp.zeros(2))")
    notebook.ok(magic + cell)
    assert notebook.ok("r[...].tolist()") == [1.0, 1.0]
    assert notebook.kinds("error", "warning") == []


@pytest.mark.parametrize("magic", ["%%jit -q --no-time\n", "%%jitcheck -q\n"])
def test_a_kernel_of_pallas_is_quiet(notebook, magic):
    notebook.ok("from jax.experimental import pallas as pl")
    notebook.ok(
        f"{magic}def kernel(x_ref, y_ref):\n    y_ref[...] = x_ref[...] + 1\n@jax.jit\ndef f(x):\n"
        "    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)\n"
        "y = f(jnp.zeros(2)).tolist()"
    )
    assert notebook.ns["y"] == [1.0, 1.0] and notebook.kinds("error", "warning") == []


@pytest.mark.skipif(not hasattr(jax, "reshard"), reason="this jax has no sums in parts")
def test_parts_of_a_sum_on_several_devices_are_not_looked_at():
    lines = session(
        "import jax, jax.numpy as jnp\njax.config.update('jax_num_cpu_devices', 2)\n%load_ext jitmagic",
        "jax.set_mesh(jax.make_mesh((2,), ('X',)))\na = jax.reshard(jnp.ones((2, 2)), jax.P(None, 'X'))",
        "%%jit -q --no-time\n@jax.shard_map(in_specs=jax.P(None, 'X'), out_specs=jax.P(None, None, unreduced={'X'}))\n"
        "def f(a):\n    return jax.lax.pcast(a @ a.T, 'X', to='unreduced')\nc = f(a)",
        "r = %jitcheck -o\nprint([n for f in r.functions for n in f.notes])",
    )
    assert lines[-1] == "['nothing was compared: each device holds a part of a sum that was not made yet']"


def test_rates_are_measured_outside_of_the_users_mesh():
    lines = session(
        "import jax, jax.numpy as jnp\njax.config.update('jax_num_cpu_devices', 2)\n%load_ext jitmagic",
        "jax.set_mesh(jax.make_mesh((2,), ('X',)))",
        "%%jit -q -n 1 -r 1\ndef f(x):\n    return x @ x\nf(jnp.ones((8, 8)))",
        "r = %jitcheck -o\nprint([(f.cost.bound is not None, f.notes) for f in r.functions])",
        "s = %jitcheck --session -o",
        "print({c.origin for c in s.session.compilations if c.function.startswith('_peak')})",
    )
    assert lines[-2:] == ["[(True, ())]", "{'check'}"]


@pytest.mark.parametrize("magic", [JITS, CHECKS])
@pytest.mark.parametrize("name", ["input", "open", "print", "next"])
@pytest.mark.parametrize("call", ["", "f(1.0)"])
def test_the_users_own_function_is_not_taken_for_one_of_pythons(notebook, magic, name, call):
    notebook.ok(f"def {name}(x):\n    return x * 2")
    notebook.ok(f"{magic}\ndef f(x):\n    y = {name}(x)\n    return y + 1\n{call}")
    assert notebook.kinds("error", "warning") == []
    notebook.ok(f"del {name}")


def test_pythons_own_function_is_told_before_any_call(notebook):
    notebook.ok(f"{CHECKS}\ndef f(x):\n    y = input(x)\n    return y + 1")
    assert notebook.kinds("warning") == ["frozen-side-effect"]


PRINTS = [
    ("import logging, sys\nlog = logging.getLogger('robust')\nlog.addHandler(logging.StreamHandler(sys.stdout))",
     "log.warning('once')"),
    ("pass", "print('once')"),
    ("import sys", "sys.stderr.write('once\\n')"),
    ("from IPython.display import display", "display({'text/plain': 'once'}, raw=True)"),
]  # fmt: skip


@pytest.mark.parametrize("magic", [JITS, CHECKS])
@pytest.mark.parametrize(("first", "statement"), PRINTS)
def test_what_a_function_tells_is_told_once(notebook, magic, first, statement):
    notebook.ok(f"{magic}\n{first}\ndef f(x):\n    {statement}\n    return x\ny = f(1.0)")
    assert notebook.text.count("once") + sum("once" in str(o.data) for o in notebook.outputs) == 1


@pytest.mark.parametrize("magic", [JITS, CHECKS])
def test_a_warning_is_recorded_once(notebook, magic):
    notebook.ok(
        f"{magic}\nimport warnings\ndef f(x):\n    warnings.warn('once')\n    return x\n"
        "with warnings.catch_warnings(record=True) as told:\n    warnings.simplefilter('always')\n    y = f(1.0)"
    )
    assert [str(w.message) for w in notebook.ns["told"]] == ["once"]


def test_a_question_to_the_user_is_asked_once(notebook, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt="": asked.append(prompt) or "2")
    notebook.ok(f"{JITS}\ndef f(x):\n    return x * float(input('n?'))\ny = f(1.0)")
    assert asked == ["n?"]
    assert "asks for input" in str(notebook.report())


def test_other_threads_go_on_printing(notebook):
    notebook.ok(
        "import threading, time\nstop = threading.Event()\ndef talk():\n    n = 0\n    while not stop.is_set():\n"
        "        print('tick', n); n += 1; stop.wait(0.01)\n    return n"
    )
    notebook.ok(
        f"{JITS} -f f\ncount = []\nt = threading.Thread(target=lambda: count.append(talk())); t.start()\n"
        "def f(x):\n    for _ in range(30): x = jnp.sin(x)\n    return x\nf(1.0); stop.set(); t.join()"
    )
    assert notebook.text.count("tick") == notebook.ns["count"][0]


def test_first_calls_from_many_threads(notebook):
    before = sys.stdout, sys.stderr, list(warnings.filters)
    notebook.ok(
        f"{CHECKS} -f f\nfrom concurrent.futures import ThreadPoolExecutor\ndef f(x):\n    return x * 2\n"
        "with ThreadPoolExecutor(4) as pool:\n    a = [float(v) for v in pool.map(f, range(6))]"
    )
    notebook.ok(
        "%%jit -q --no-time -f f\ndef f(x):\n    return x * 2\n"
        "with ThreadPoolExecutor(4) as pool:\n    b = [float(v) for v in pool.map(f, range(6))]"
    )
    assert notebook.ns["a"] == notebook.ns["b"] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert (sys.stdout, sys.stderr, list(warnings.filters)) == before


def test_disable_jit_is_heeded(notebook):
    notebook.ok(
        "%%jit -q --no-time\ndef f(x):\n    return x if x > 0 else -x\nwith jax.disable_jit():\n    y = [f(-1.0), f(2.0)]"
    )
    assert notebook.ns["y"] == [1.0, 2.0]
    assert notebook.report().functions[0].traces == 0


def test_the_traceback_of_a_one_line_function_can_be_shown(notebook):
    notebook.ok("%%jit -q --no-time\ndef g(x): return x\ng(1.0)")
    notebook.error("def f(x): raise ValueError('mine')\nf(1.0)")
    assert "Unexpected exception formatting" not in notebook.text and "ValueError: mine" in notebook.text
    import ast

    assert not hasattr(ast.Load(), "lineno") and not hasattr(ast.parse("a").body[0].value.ctx, "lineno")


def test_an_exception_that_refuses_attributes_is_the_users_own(notebook):
    error = notebook.error(
        f"{CHECKS}\nclass E(Exception):\n    def __setattr__(self, k, v): raise RuntimeError('frozen')\n"
        "def f(x): raise E('a')\nf(1.0)"
    )
    assert type(error).__name__ == "E"


@pytest.mark.parametrize("magic", [JITS, CHECKS])
def test_a_function_is_copied_and_pickled_as_functions_are(notebook, monkeypatch, magic):
    monkeypatch.setitem(sys.modules, "__main__", notebook.shell.user_module)
    notebook.ok(
        f"{magic}\nimport copy, pickle\ndef f(x, y=2.0):\n    return x + y\nf(1.0)\n"
        "class Holder: pass\nh = Holder(); h.f = f"
    )
    assert notebook.ok("copy.copy(f) is f and copy.deepcopy(h).f is f and pickle.loads(pickle.dumps(f)) is f")
    assert notebook.ok("f.__defaults__, f.__code__.co_argcount") == ((2.0,), 2)


def test_a_front_end_that_refuses_the_report_costs_one_line(notebook, monkeypatch):
    from jitmagic import render
    from jitmagic.checking import subject

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise RuntimeError("no display\nhere")

    monkeypatch.setattr(subject, "RAISE", False)
    monkeypatch.setattr(render.Report, "_repr_mimebundle_", refuse)
    monkeypatch.setattr("IPython.display.display", refuse)
    assert notebook.ok("%%jit --no-time\ndef f(x):\n    return x + 1\ny = f(1.0)\nfloat(y)") == 2.0
    [line] = [x for x in notebook.text.splitlines() if "Out[" not in x and x.strip()]
    assert line == "jitmagic: the report itself failed (RuntimeError: no display here)"


def test_a_directory_that_is_not_there_is_told_before_anything_runs(notebook):
    error = notebook.error("%%jit --save /nowhere/at/all/report.html\nran = True\ndef f(x): return x")
    assert "no such directory" in str(error) and "ran" not in notebook.ns


def test_failures_of_ours_beside_the_cell_leave_its_functions_alone(notebook, monkeypatch):
    from jitmagic.checking import subject
    from jitmagic.checking.watching import Watching

    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("\x1b[31mours")

    monkeypatch.setattr(subject, "RAISE", False)
    monkeypatch.setattr(Watching, "watch", broken)
    assert notebook.ok("%%jit\ndef f(x):\n    return x + 1\ny = f(1.0)\ny") == 2.0
    assert (
        "itself failed (RuntimeError: \\x1b[31mours)" in notebook.text
        and type(notebook.ns["f"]).__name__ == "function"
    )


WIDE = [
    "def f(x, n):\n    for _ in range(n): x = x + 1\n    return x\nf(1.0, 3)",
    "def f(x):\n    if x.sum() > 0:\n        return float(x[0])\n    return x[x > 0]\nf(jnp.ones(3))",
    "kept = []\ndef f(x):\n    kept.append(x)\n    return x * np.random.rand()\nf(1.0)",
    "def f(x):\n    raise ValueError(x)\nf(1.0)",
    "def f(x):\n    raise KeyboardInterrupt\nf(1.0)",
    "def f(x):\n    raise SystemExit\nf(1.0)",
    "def f(x):\n    x[0] = 1\n    return x\nf(jnp.ones(3))",
    "def f(x):\n    print(x, file=__import__('sys').stderr)\n    return jnp.log(x)\nf(jnp.zeros(2))",
]


def _world(shell: Any) -> dict[str, Any]:
    """Everything that runs of ours replace while they last."""
    import jax

    modules = [
        m
        for m in sys.modules
        if m.partition(".")[0] in ("jax", "numpy", "random", "time", "builtins", "warnings")
    ]
    modules += ["io", "os", "logging", "socket", "subprocess", "getpass", "IPython.core.interactiveshell"]
    found: dict[str, Any] = {
        f"{m}.{k}": id(v) for m in modules for k, v in vars(sys.modules[m]).items() if callable(v)
    }
    for kind in (jax.core.Tracer, warnings.catch_warnings):
        found |= {f"{kind.__name__}.{k}": id(v) for k, v in vars(kind).items()}
    config = {k: str(v) for k, v in jax.config.values.items()} | {
        k: str(getattr(jax.config, k))
        for k in ("jax_disable_jit", "jax_traceback_filtering", "jax_check_tracer_leaks", "jax_debug_nans")
    }
    return found | {
        "config": config, "streams": (sys.stdout, sys.stderr), "filters": list(warnings.filters),
        "publish": "publish" in vars(shell.display_pub), "handler": signal.getsignal(signal.SIGINT),
        "random": (random.getstate(), str(np.random.get_state())), "errors": np.geterr(),
    }  # fmt: skip


def test_nothing_stays_patched(notebook):
    notebook.ok("np.random.seed(0)")
    before = _world(notebook.shell)
    for cell in WIDE:
        notebook.ok("np.random.seed(0)")
        notebook.run(f"{CHECKS}\n{cell}")
    notebook.ok("np.random.seed(0)")
    after = _world(notebook.shell)
    assert {k for k in before if k in after and before[k] != after[k]} == set()
    assert not patches.any_left() and not quiet.is_held()


class TestInterrupts:
    def test_one_that_comes_during_clean_up_waits_for_its_end(self):
        done = []
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            done.append(True)
        assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_what_one_has_cut_short_is_put_right_before_the_next_cell(self, notebook):
        stdout, input_ = sys.stdout, input
        abandoned = quiet.held_back(apart=False)
        abandoned.__enter__()
        assert quiet.is_held()
        with permission.allowing(
            "*"
        ):  # this function is as the user's, and the shell none of the libraries known
            notebook.shell.run_cell("pass").raise_error()
        assert not quiet.is_held()
        assert sys.stdout is stdout and input is input_
        abandoned.__exit__(None, None, None)
        assert sys.stdout is stdout

    def test_in_another_thread_there_is_nothing_to_defer(self):
        out = []

        def work() -> None:
            with interrupts.deferred():
                out.append(1)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert out == [1]


def test_patches_may_leave_in_any_order():
    class Holder:
        a = 1

    first, second = patches.replaced(Holder, a=2, b=5), patches.replaced(Holder, a=3)
    first.__enter__()
    second.__enter__()
    assert Holder.a == 3
    first.__exit__(None, None, None)
    assert Holder.a == 3 and not hasattr(Holder, "b")
    second.__exit__(None, None, None)
    assert Holder.a == 1 and not patches.any_left()


class Restless:
    """An object whose every attribute raises an error."""

    def __getattr__(self, name):
        raise RuntimeError(name)


ODD = {
    "more arguments than there are, in the panel": ("%%jit -w", "return x * 2", "f(1.0, 2.0)"),
    "an object that raises for every attribute, in the panel": ("%%jit -w", "raise KeyError(x)", "f(odd)"),
    "a call without brackets": ("%%jit", "return x * 2", ";f 1"),
    "several arguments without brackets": ("%%jit", "return x * 2", ",f 1"),
    "a date to differentiate by": ("%%jit --grad x", "return x", "f(np.datetime64('2020-01-01'))"),
    "a number that no array holds, mapped": ("%%jit --vmap x", "return x", "f(2**70)"),
    "a masked array to differentiate by": ("%%jit --grad x", "return x", "f(np.ma.masked_array([1.0], [True]))"),
    "a list that holds itself": ("%%jit", "return x[0]", "f(ring)"),
    "a list that holds itself, looked at": ("%%jitcheck", "return x[0]", "f(ring)"),
    "a dict that holds itself": ("%%jitcheck", "return x['a']", "f(loop)"),
    "what holds itself is returned": ("%%jitcheck", "return loop", "f(1.0)"),
    "what holds itself is returned, compiled": ("%%jit", "return loop", "f(1.0)"),
    "what holds itself is read": ("%%jitcheck", "return x + loop['a'] + ring[0]", "f(1.0)"),
    "what holds itself is stored": ("%%jitcheck", "d = [x]; d += [d, (d, 3)]; box.d = d; return x", "f(1.0)"),
    "what holds itself is stored, compiled": ("%%jit --dyn box", "d = [x]; d += [d, (d, 3)]; box.d = d; return x", "f(1.0)"),
    "calls without an end": ("%%jitcheck", "return f(x) + 1", "f(1.0)"),
    "calls without an end, of two": ("%%jitcheck", "return g(x) + 1\ndef g(x):\n    return f(x)", "g(1.0)"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_users_give_is_no_failure_of_ours(notebook, name):
    magic, body, call = ODD[name]
    ring, loop = [1.0], {"a": 1.0}
    ring.append(ring)
    loop["b"] = loop
    notebook.ns.update(ring=ring, loop=loop, odd=Restless(), box=types.SimpleNamespace(d=None))
    notebook.run(f"{magic}\ndef f(x):\n    {body}\n{call}")
    text = notebook.text + str(notebook.report())
    assert "itself failed" not in text and "jitmagic/" not in text
    assert notebook.ok("def depth(n):\n    return n and depth(n - 1)\ndepth(500)") == 0


def test_an_interrupt_that_comes_while_we_listen_is_the_users(notebook, monkeypatch):
    def asked(frame):
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(hearing, "inside_diagnosed", asked)
    error = notebook.error(
        "%%jitcheck -q\ndef f(x):\n    for i in range(10**8):\n        x = x + 0\n    return x\nf(1)"
    )
    assert isinstance(error, KeyboardInterrupt)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert not any("jitmagic/" in file for file in files)


RAISES = {
    "at once": "raise KeyboardInterrupt",
    "with a word, in a handler": "try:\n        {}['k']\n    except KeyError:\n        raise KeyboardInterrupt('enough') from None",
    "again": "try:\n        raise KeyboardInterrupt\n    except KeyboardInterrupt:\n        x = 0\n        raise",
    "in a helper": "jax.tree_util.tree_map(stop, [x])",
}


@pytest.mark.parametrize("name", RAISES)
@pytest.mark.parametrize("magic", ["%%jitcheck -q", "%%jitcheck --rerun"])
def test_an_interrupt_that_the_users_code_raises_comes_once(notebook, magic, name, monkeypatch):
    sent = []
    monkeypatch.setattr(interrupts, "raise_soon", lambda: sent.append(1))
    notebook.ok("def stop(x):\n    raise KeyboardInterrupt")
    error = notebook.error(f"{magic}\ndef f(x):\n    {RAISES[name]}\nf(1.0)")
    assert isinstance(error, KeyboardInterrupt) and not sent


@pytest.mark.parametrize(
    "end", ["class A:\n    return 3", "class A:\n    from math import *", "class B:\n    yield 2"]
)
@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jit"])
def test_a_cell_that_ends_in_what_is_not_python_has_its_fixes(notebook, magic, end):
    """IPython has run the statements before."""
    cell = f"{magic}\ndef f(x):\n    if x > 0:\n        return x\n    return x * 2\ntry:\n    f(1.0)\nexcept Exception:\n    pass\n{end}"
    assert isinstance(notebook.error(cell), SyntaxError)
    assert "itself failed" not in notebook.text and notebook.report().findings[0].kind == "tracer-bool"


@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jit --no-time", "%jitcheck f(2.0)"])
def test_a_stream_in_place_of_stdout_has_no_more_than_write_and_flush(notebook, magic, monkeypatch):
    class Tee:
        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    define, tee = "def f(x):\n    return x * 2\nf(1.0)", Tee()
    if not magic.startswith("%%"):
        notebook.ok(define)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", tee)
        result = notebook.shell.run_cell(f"{magic}\n{define}" if magic.startswith("%%") else magic)
    assert result.success and "Traceback" not in tee.text and notebook.report().verdict == "ok"


def test_what_stands_in_for_print_is_told_of_the_users_words_alone(notebook, monkeypatch):
    said = []
    monkeypatch.setattr(builtins, "print", lambda *args, **kwargs: said.append(args))
    notebook.ok("%%jitcheck\ndef f(x):\n    print('f')\n    return x")
    assert not said and "f: checked at the first call" in notebook.text
    notebook.ok("%jitcheck -q f(2.0)\ny = f(1.0)")
    assert said == [("f",)]

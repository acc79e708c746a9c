"""A run that nobody asked for makes those calls alone that are known to leave nothing behind, and says which stood
in its way."""

from __future__ import annotations

import functools
import io
import itertools
import math
import operator
import os
import random
import subprocess
import sys
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.trial.permission import allowing, obstacle

MAGICS = ("%%jit -q --no-time", "%%jitcheck -q")
LIBRARY = """
SENT = []
def send(v=1): SENT.append(v)
class Store:
    n = 0
    def __setitem__(self, key, value): SENT.append(value)
    def put(self, value): SENT.append(value)
    def __call__(self): SENT.append(1)
STORE = Store()
def make():
    exec("def made(v): send(v)", globals())
    return made
"""


class Own:
    def __call__(self): ...


class Base(subprocess.Popen): ...


HARMLESS = (
    jnp.sum, jax.vmap, jax.jit(lambda x: x), jnp.ones(3).at[0].set, jax.random.normal, jax.config.update, jax.debug.print,
    np.add, np.add.at, np.linalg.norm, np.random.rand, np.random.default_rng(0).normal, np.vectorize(len), np.ones(3).fill,
    print, open, getattr, type, super, dict.fromkeys, Own.__init_subclass__, np.ndarray.sum, [].append, "".join, iter([1]).__next__, ValueError, map, object(),
    math.sin, operator.add, itertools.count, functools.partial(math.sin, 1), random.gauss, time.time, time.perf_counter,
    io.StringIO("a").write, sys.stdout.write, os.getcwd, os.environ.get, os.path.join, Own, Own(), Own().__call__, lambda: 0,
)  # fmt: skip
OTHERS = {
    "builtins.input": input, "builtins.eval": eval, "builtins.exec": exec, "os.system": os.system, "os.fork": os.fork, "os.makedirs": os.makedirs,
    "subprocess.run": subprocess.run, "subprocess.Popen": Base, "numpy.save": np.save, "numpy.ndarray.tofile": np.ones(3).tofile, "numpy.ndarray.dump": np.ndarray.dump,
    "jax.clear_caches": jax.clear_caches, "pytest.main": functools.partial(pytest.main, []),
}  # fmt: skip


def name_of(called):
    return getattr(called, "__qualname__", type(called).__name__)


@pytest.mark.parametrize("called", HARMLESS, ids=name_of)
def test_what_is_known_may_be_called(called):
    assert obstacle(called) == ""


def test_what_python_calls_at_an_objects_end_is_no_call_of_the_users():
    assert obstacle(weakref.finalize.__call__) == ""  # Python 3.11 tells of it below whatever frame runs then
    assert obstacle(weakref.finalize.__init__) == obstacle(weakref.finalize) == "weakref.finalize"


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_known_is_named(name):
    found = obstacle(OTHERS[name])
    root, _, last = name.rpartition(".")
    assert found.split(".")[0].lstrip("_") == root.split(".")[0] and found.endswith(last)
    with allowing([f"{found.split('.')[0]}.*"]):
        assert obstacle(OTHERS[name]) == ""
    with allowing(["other.*"]):
        assert obstacle(OTHERS[name]) == found


@pytest.fixture
def cell(notebook, tmp_path):
    """Runs a cell after a library of which nothing is known was imported: what the library was sent, what is noted."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "unknownlib.py").write_text(LIBRARY)
    sys.path.insert(0, str(folder))
    notebook.ok("import dataclasses, functools, logging, math, random, re, time, unknownlib as lib\nn = []")

    def run(text):
        result = notebook.run(text)
        assert type(result.error_in_exec).__name__ in ("NoneType", "TracerBoolConversionError")
        report = notebook.report()
        assert obstacle(print) == "" and sys.getprofile() is None
        if sys.version_info >= (3, 12):
            assert sys.monitoring.get_tool(4) is None
        return len(notebook.ns["lib"].SENT), [n for f in report.functions for n in f.notes], report

    yield run
    sys.path.remove(str(folder))
    sys.modules.pop("unknownlib")


BODIES = {
    "a function": ("lib.send()", "calls `unknownlib.send`"),
    "a method": ("lib.STORE.put(1)", "calls `unknownlib.Store.put`"),
    "an object that is called": ("lib.STORE()", "calls `unknownlib.Store"),
    "handed on": ("list(map(lambda v: lib.send(v), [1]))", "calls `unknownlib.send`"),
    "in a loop": ("for g in [math.sin] * 20 + [lib.send]: g(1)", "calls `unknownlib.send`"),
    "of a class": ("class A(lib.Store): pass\n    A().put(1)", "calls `unknownlib.Store"),
    "caught": ("try: lib.send()\n    except Exception: n.append(1)", "calls `unknownlib.send`"),
    "an item": ("store['a'] = 1", "changes `store`"),
}  # fmt: skip


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("name", BODIES)
def test_what_is_not_known_is_called_once(cell, notebook, name, magic):
    body, told = BODIES[name]
    notebook.ok("store = lib.STORE")
    sent, notes, _ = cell(f"{magic}\ndef f(x):\n    {body}\n    return x * 2\nr = f(1.0)")
    assert sent == 1 and notebook.ns["n"] == [], notes
    assert any(told in n and "`--rerun` allows it" in n for n in notes), notes


@pytest.mark.parametrize("config", ["", "unknownlib.*", "other.*"])
def test_the_user_may_allow_it(cell, notebook, config):
    flag = "" if config else "--rerun"
    notebook.ok(f"%config JitMagics.rerun = {[config] if config else []}")
    sent, notes, _ = cell(
        f"%%jit -q --no-time {flag}\ndef f(x):\n    lib.send()\n    return x * 2\nr = f(1.0)"
    )
    assert (sent, bool(notes)) == ((1, True) if config == "other.*" else (2, False)), notes


ORDINARY = (
    "print(x); y = f'{x}'; n.append(1); n.sort(); d = dict(a=1); d.update(b=2)",
    "y = np.random.rand() + random.random() + np.asarray([1.0]).sum(); time.time(); time.perf_counter()",
    "p = dataclasses.make_dataclass('P', ['a'])(1); dataclasses.replace(p, a=2); re.sub('a', 'b', 'ab')",
    "jax.debug.callback if 0 else jax.tree.map(lambda v: v + 1, {'a': x}); jax.lax.fori_loop(0, 3, lambda i, c: c * 2, x)",
    "from tqdm import tqdm\n    for i in tqdm(range(3)): math.sqrt(i)",
    "logging.getLogger('jm').info('a'); functools.reduce(lambda a, b: a + b, [1, 2]); sorted({3, 1}, key=lambda v: -v)",
    "jnp.linalg.slogdet(jnp.eye(2) * x)[1]; jnp.linalg.qr(jnp.eye(2)).Q",
)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("body", ORDINARY)
def test_ordinary_code_is_compared(cell, magic, body):
    if "tqdm" in body:
        pytest.importorskip("tqdm")
    _, notes, report = cell(f"{magic}\ndef f(x):\n    {body}\n    return x * 2\nr = f(1.0)")
    assert notes == [] and report.functions[0].verdict == "ok"


BRANCH = "def f(x):\n    if x > 0:\n        return x\n    return -x\n"


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize(
    ("before", "tested"), [("", "cell"), ("lib.send()", "calls"), ("@lib.send", None)], ids=str
)
def test_a_fix_says_on_what_it_was_tested(cell, magic, before, tested):
    if before.startswith("@"):  # the function itself does what is not known
        text = f"{magic}\n" + BRANCH.replace("    if", "    lib.send()\n    if", 1) + "f(1.0)"
    else:
        text = f"{magic}\n{BRANCH}{before}\nf(1.0)"
    sent, _, report = cell(text)
    assert sent == bool(before)
    found = [(x.tested, x.verified) for f in report.findings for x in f.fixes]
    if tested:
        assert found and set(found) == {(tested, True)}
    elif magic.startswith("%%jit "):
        assert found == [(None, False)]


def test_classes_that_a_trial_makes_are_registered_nowhere(cell, notebook):
    notebook.ok(
        "subs = []\nclass Base:\n    def __init_subclass__(cls, **how): subs.append(cls.__name__)\n"
        "def known(g):\n    subs.append(g.__name__)\n    return g"
    )
    _, _, report = cell(f"%%jitcheck -q\nclass A(Base): w = 2.0\n@known\n{BRANCH}f(1.0)")
    assert [x.tested for f in report.findings for x in f.fixes][:1] == ["cell"]
    assert notebook.ns["subs"] == ["A", "f"]
    assert len(notebook.ns["Base"].__subclasses__()) == 1


def test_asking_for_a_report_changes_nothing(cell, notebook):
    notebook.ok("log, it = [], iter(range(9))")
    cell(f"%%jitcheck -q\ndef note(g):\n    log.append(next(it))\n    return g\n@note\n{BRANCH}f(1.0)")
    for _ in range(2):
        notebook.ok("%jitcheck -o")
    assert notebook.ns["log"] == [0] and next(notebook.ns["it"]) == 1


def test_python_ends_in_silence_after_a_run_of_ours():
    run = "import gc\nfrom jitmagic.trial import quiet\nwith quiet.held_back(): gc.collect()"
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_code_that_a_library_makes_is_not_the_users(cell, notebook):
    notebook.ok("made = lib.make()")
    sent, notes, _ = cell("%%jit -q --no-time\ndef f(x):\n    made(1)\n    return x * 2\nr = f(1.0)")
    assert sent == 1 and "calls `unknownlib.made`" in notes[0], notes


def test_loggers_of_libraries_stand_in_nobodys_way(notebook):
    """All loggers know their registry, and with it those of every library, of classes of its own."""
    notebook.ok("import logging\nimport nbformat\nlogger = logging.getLogger('jm')")
    odd = type("OddLogger", (notebook.ns["logging"].Logger,), {"__module__": "nbformat"})
    registry = notebook.ns["logger"].manager.loggerDict
    registry["jm.odd"] = odd("jm.odd")
    try:
        notebook.run("%%jit -q --no-time\ndef f(x):\n    logger.info('%s', f'{x:.1f}')\n    return x\nf(1.0)")
    finally:
        del registry["jm.odd"]
    report = notebook.report()
    assert not any("OddLogger" in note or "jm.odd" in note for f in report.functions for note in f.notes)
    assert any(fix.verified for finding in report.findings for fix in finding.fixes)

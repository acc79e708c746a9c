"""What can't be run once more is told at its line: a compiled function does it while jax traces, and then no more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jitmagic.report import Finding
from tests.conftest import Notebook

DONE = {
    "a file that is open": ("log = open(path, 'w')", "log.write('a')"),
    "a file as an argument": ("log = open(path, 'w')", "print('a', file=log)"),
    "a table in a file": ("import csv\nrows = csv.writer(open(path, 'w'))", "rows.writerow([1])"),
    "a database": (
        "import sqlite3\nbase = sqlite3.connect(':memory:')",
        "base.execute('create table t (a)')",
    ),
    "a directory": ("import os", "os.makedirs(path)"),
    "a path of a new object": ("import pathlib", "pathlib.Path(path).touch()"),
    "a process": ("import subprocess", "subprocess.Popen(['true']).wait()"),
    "an object of a library": ("from unittest.mock import Mock\nsend = Mock()", "send(1)"),
    "what a library keeps": ("import ipywidgets\nbar = ipywidgets.IntProgress()", "bar.value += 1"),
}
SHAPES = {
    "in the function": "def f(x):\n    {line}\n    return x * 2\n",
    "in a helper": "def tell():\n    {line}\ndef f(x):\n    tell()\n    return x * 2\n",
    "in a branch": "def f(x, loud=True):\n    if loud:\n        {line}\n    return x * 2\n",
}


def told(notebook: Notebook) -> list[Finding]:
    return [f for f in notebook.report().findings if f.kind == "frozen-side-effect"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", DONE)
def test_what_is_done_once_is_told_at_its_line(notebook: Notebook, tmp_path: Path, what: str, shape: str):
    setup, line = DONE[what]
    notebook.ok(f"path = {str(tmp_path / 'a')!r}\n{setup}")
    notebook.ok("%%jit --no-time\n" + SHAPES[shape].format(line=line) + "f(1.0)")
    [finding] = told(notebook)
    assert finding.severity == "warning" and finding.span and finding.span.source == line
    assert "later calls leave it out" in finding.message


FIGURE = """
class _Core:
    def __init__(self):
        self.lines, self.n = open(os.devnull), 0
class Figure:
    def __init__(self):
        self._core = _Core()
    def add_line(self, n):
        self._core.n += n
"""


@pytest.mark.parametrize("held", ["fig", "plot.fig", "figs[0]"])
def test_a_part_of_an_object_of_a_library_is_told_as_the_object(notebook, tmp_path, monkeypatch, held):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "lib_of_figures.py").write_text("import os\n" + FIGURE)
    monkeypatch.syspath_prepend(str(packages))
    notebook.ok(
        "import lib_of_figures, types\nfig = lib_of_figures.Figure()\nclass Plot: pass\nplot = Plot()\n"
        "plot.fig, figs = fig, [fig]"
    )
    notebook.ok(f"%%jit --no-time\ndef f(x):\n    {held}.add_line(x.ndim + 1)\n    return x * 2\nf(1.0)")
    [finding] = told(notebook)
    assert finding.severity == "warning" and finding.span and "add_line" in finding.span.source
    monkeypatch.delitem(sys.modules, "lib_of_figures")


def test_what_a_queue_is_given_is_told_where_the_cell_asks_what_is_alive(notebook: Notebook):
    notebook.ok(
        "%%jit --no-time\nimport queue, weakref\nseen, q = weakref.WeakSet(), queue.SimpleQueue()\n"
        "def f(x):\n    q.put(1)\n    return x * 2\nf(1.0)"
    )
    assert [f.span.source for f in told(notebook) if f.span] == ["q.put(1)"]


OF_PYTHON = {
    "a semaphore": ("sem = threading.Semaphore(9)", "sem.acquire()", "sem"),
    "an event": ("e = threading.Event()", "e.set()", "e"),
    "a stack of ends": ("s = contextlib.ExitStack()", "s.callback(print)", "s"),
    "a dict of weak keys": ("w = weakref.WeakKeyDictionary(); w[K] = 0", "w[K] += 1", "w"),
    "a dict of weak values": ("w = weakref.WeakValueDictionary()", "w[len(w)] = K", "w"),
    "an attribute": ("k = K(); k.sem = threading.Semaphore(9)", "k.sem.acquire()", "k.sem"),
}


@pytest.mark.parametrize("what", OF_PYTHON)
def test_what_an_object_of_pythons_keeps_for_itself_is_told_as_the_object(notebook: Notebook, what: str):
    setup, line, path = OF_PYTHON[what]
    notebook.ok(f"import contextlib, threading, weakref\nclass K: pass\n{setup}")
    notebook.ok(f"%%jit --no-time\ndef f(x):\n    {line}\n    return x * 2\nfor _ in range(3): f(1.0)")
    [finding] = [f for f in notebook.report().findings if f.kind == "state-write"]
    when = "once, and" if what == "an event" else "only while jax traces it"
    assert f"`f` changes `{path}`: that happens {when}" in finding.message and "--dyn" not in finding.help


@pytest.mark.parametrize("line", ["log.isEnabledFor(10)", "str(here / 'x')", "third.limit_denominator(9)"])
def test_what_an_object_of_pythons_remembers_is_no_change(notebook: Notebook, line: str):
    notebook.ok(
        "import fractions, logging, pathlib\nlog, here = logging.getLogger('jm'), pathlib.Path('a')\n"
        "third = fractions.Fraction(1, 3)"
    )
    notebook.ok(f"%%jit --no-time\ndef f(x):\n    {line}\n    return x * 2\nf(1.0)")
    assert notebook.kinds("error", "warning") == []


def test_in_ones_own_jit(notebook: Notebook, tmp_path: Path):
    notebook.ok(f"log = open({str(tmp_path / 'a')!r}, 'w')")
    notebook.ok("%%jitcheck\n@jax.jit\ndef f(x):\n    log.write('a')\n    return x * 2\nf(1.0)")
    assert [f.span.source for f in told(notebook) if f.span] == ["log.write('a')"]


def test_without_jit_nothing_is_left_out(notebook: Notebook, tmp_path: Path):
    notebook.ok(f"log = open({str(tmp_path / 'a')!r}, 'w')")
    notebook.ok("%%jitcheck\ndef f(x):\n    log.write('a')\n    return x * 2\nf(1.0)")
    assert not told(notebook)


@pytest.mark.parametrize(("line", "severity"), [("k = send(1)", ""), ("send(1)", "warning")])
def test_what_is_called_for_its_value_may_do_nothing_else(
    notebook: Notebook, tmp_path: Path, line: str, severity: str
):
    """Of a library of which nothing is known."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "unheard_of.py").write_text("def send(x):\n    return x\n")
    notebook.ok(
        f"import sys\nsys.path.append({str(tmp_path / 'site-packages')!r})\nfrom unheard_of import send"
    )
    notebook.ok(f"%%jit --no-time\ndef f(x):\n    {line}\n    return x * 2\nf(1.0)")
    assert [(f.severity, f.span and f.span.source) for f in told(notebook)] == [(severity, line)] * bool(
        severity
    )


@pytest.mark.parametrize("line", ["k = len(numbers)", "k = log.getvalue()", "k = np.sqrt(2.0)"])
def test_what_can_be_run_once_more_is_not_told(notebook: Notebook, line: str):
    notebook.ok("import io\nlog = io.StringIO('a')\nnumbers = [1, 2]")
    notebook.ok(f"%%jit --no-time\ndef f(x):\n    {line}\n    return x * 2\nf(1.0)")
    assert not told(notebook)


INSIDE = {
    "a function that gives away": (
        "@functools.partial(jax.jit, donate_argnums=0)\ndef step(w): return w * 2",
        "step(jnp.zeros(3) + x)",
    ),
    "a memory of a method": (
        "class T:\n    @functools.lru_cache\n    def tab(self, n): return n * 2\nt = T()",
        "x * t.tab(3)",
    ),
    "a memory in a dict": ("held = {'g': functools.lru_cache(lambda n: n + 1)}", "x * held['g'](3)"),
}


@pytest.mark.parametrize("what", INSIDE)
def test_what_a_trace_has_inside_is_not_left_out(notebook: Notebook, what: str):
    setup, value = INSIDE[what]
    notebook.ok(f"import functools\n{setup}")
    notebook.ok(f"%%jit\ndef f(x):\n    return {value}\nf(1.0)")
    assert not told(notebook) and "only while jax traces" not in notebook.text


def test_what_may_be_run_again_is_left_out_all_the_same(notebook: Notebook, tmp_path: Path):
    notebook.ok(f"log = open({str(tmp_path / 'a')!r}, 'w')")
    notebook.ok("%%jit --rerun --no-time\ndef f(x):\n    log.write('a')\n    return x * 2\nf(1.0)")
    assert [f.span.source for f in told(notebook) if f.span] == ["log.write('a')"]


def test_beside_a_file_a_librarys_answer_is_not_left_out(notebook: Notebook, tmp_path: Path):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "unheard_too.py").write_text(
        "class Words:\n    def encode(self, text):\n        return len(text)\n"
    )
    notebook.ok(f"import sys\nsys.path.append({str(tmp_path / 'site-packages')!r})\nimport unheard_too")
    notebook.ok(f"words = unheard_too.Words()\nlog = open({str(tmp_path / 'a')!r}, 'w')")
    cell = "def f(x):\n    n = words.encode('abc')\n    log.write('a')\n    return x * n\nf(1.0)"
    notebook.ok(f"%%jit --no-time\n{cell}")
    assert [f.span.source for f in told(notebook) if f.span] == ["log.write('a')"]


def test_a_function_that_no_search_finds_is_told_where_it_writes(notebook: Notebook, tmp_path: Path):
    notebook.ok(f"import types\nlog = open({str(tmp_path / 'a')!r}, 'w')\nheld = types.SimpleNamespace()")
    notebook.ok("def tell():\n    log.write('a')\nsetattr(held, 'te' + 'll', tell)")
    notebook.ok("%%jit --no-time\ndef f(x):\n    getattr(held, 'te' + 'll')()\n    return x * 2\nf(1.0)")
    [finding] = told(notebook)
    assert finding.span and finding.span.source == "log.write('a')"


SETTINGS = {
    "of NumPy's errors": "np.seterr(divide='warn')",
    "of printing": "np.set_printoptions(precision=8)",
    "of jax": "jax.config.update('jax_default_matmul_precision', None)",
    "of warnings": "warnings.simplefilter('default', ImportWarning)",
    "a variable of the environment": "os.environ['JITMAGIC_TEST'] = '1'",
    "more of them": "os.environ.update(JITMAGIC_TEST='1')",
    "within another block": "with jax.named_scope('a'): np.seterr(divide='warn')",
    "of a logger": "logging.getLogger('users.own').setLevel(10)",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", SETTINGS)
def test_a_setting_of_the_process_is_told_at_its_line(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, what: str, shape: str
):
    monkeypatch.setenv("JITMAGIC_TEST", "1")
    notebook.ok("import logging, os, warnings")
    notebook.ok("%%jit --no-time\n" + SHAPES[shape].format(line=SETTINGS[what]) + "f(1.0)")
    [finding] = told(notebook)
    assert finding.severity == "warning" and finding.span and finding.span.source == SETTINGS[what]
    assert "changes a setting" in finding.message and not finding.fixes


PUT_BACK = {
    "warnings": "with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n        x = x * 1",
    "errors": "with np.errstate(divide='ignore'):\n        np.seterr(over='ignore')\n        x = x * 1",
    "read alone": "x = x * len(os.environ.get('HOME', ''))",
}


@pytest.mark.parametrize("what", PUT_BACK)
def test_a_setting_that_is_put_back_is_not_told(notebook: Notebook, what: str):
    notebook.ok("import os, warnings")
    notebook.ok(f"%%jit --no-time\ndef f(x):\n    {PUT_BACK[what]}\n    return x * 2\nf(1.0)")
    assert not [f for f in told(notebook) if "changes a setting" in f.message]

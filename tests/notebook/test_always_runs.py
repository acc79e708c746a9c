"""A cell runs as without a magic line, whatever is in it: values, prints and errors are its own."""

from __future__ import annotations

import pytest

CELLS = [
    "1 + 1", "x = 3", "import math\nmath.pi", "from math import *\ntau", "if True:\n    from math import *\n    k: int = 2\ntau, k", "global q\nq = 1\nq", "x: int = 3\nx", "x: int\ny = 2", "x = y = 2; x", "1;",
    "# only a comment", "'''a text'''", "print('a'); 'b'", "for i in range(3): print(i)", "with open('/dev/null') as h: h.read()",
    "x = [1]\nx.append(2)\nx", "del missing", "assert False, 'no'", "raise ValueError('mine')", "raise KeyboardInterrupt",
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    print(e)", "if (n := 3) > 2:\n    z: float = n / 2\nz",
    "class A:\n    k: int = 2\nA.k", "class A:\n    def m(self): return 4\nA().m()", "class A(ValueError): pass\nraise A('own')",
    "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\nP()", "from enum import Enum\nclass E(Enum):\n    a = 1\nE.a.value",
    "def gen():\n    yield 1\n    yield 2\nlist(gen())", "async def g(): return 4\nawait g()", "import asyncio\nawait asyncio.sleep(0)\n7",
    "%pwd\n5", "%%capture out\nprint(3)", "%%writefile /dev/null\ntext", "%no_such_magic", "def f(:\n    pass", "return 3", "yield 1", "await_ = 1\nbreak",
]  # fmt: skip
CALLING = [
    "def f(x): return x.undefined\nf(3)", "def f(): return 'text'\nf()", "def f(s): return s.upper()\nf('a')", "def f(d): return {**d, 'b': 2}\nf({'a': 1})",
    "def f(n): return 1 if n < 2 else n * f(n - 1)\nf(5)", "def f(*a, **k): return len(a), sorted(k)\nf(1, 2, z=3)", "def f(x):\n    print('told')\n    return x\nf(2)",
    "def f(x): raise KeyError('k')\ntry:\n    f(1)\nexcept KeyError as e:\n    print('caught', e)", "def f(d): return sorted(map(str, d))\nf({1: 2, 'a': 3})",
    "global_ = 1\ndef setup():\n    global global_\n    global_ += 1\nsetup()\nglobal_", "def main():\n    print('ran')\nif __name__: main()",
    "def f(x): return x\nit = iter([1, 2, 3])\nlist(map(f, it)), list(it)", "def f(x): return x\nimport types\nisinstance(f, types.FunctionType), f.__name__",
    "def f(g): return next(g)\nit = iter([5, 6])\nf(it), next(it)", "class Stop(BaseException): pass\ndef f(x): raise Stop('mine')\nf(1)",
]  # fmt: skip
"""These call what `%%jit` would compile, which is another function."""
ROWS = [(m, c) for c in CELLS for m in ("%%jit", "%%jitcheck")] + [("%%jitcheck", c) for c in CALLING]


@pytest.mark.parametrize(("magic", "cell"), ROWS)
def test_a_cell_runs_as_without_the_magic(notebook, magic, cell):
    def seen(source: str) -> tuple[object, ...]:
        result = notebook.run(source)
        error = result.error_in_exec or result.error_before_exec
        printed = "" if error else notebook.text
        return repr(result.result), type(error).__name__, getattr(error, "msg", str(error)), printed

    plain = seen(cell)
    assert seen(f"{magic} -q\n{cell}") == plain


@pytest.mark.parametrize("cell", [c for c in CELLS if "%" not in c and "raise" not in c])
def test_what_is_said_of_a_cell_without_a_function_is_one_line(notebook, cell):
    if notebook.run(cell).success:
        plain = notebook.text
        notebook.ok(f"%%jit\n{cell}")
        [said] = [
            x
            for x in notebook.text.splitlines()
            if x not in plain.splitlines() and "Out[" not in x and x.strip()
        ]
        assert said.startswith("nothing is compiled: the cell defines no function, and runs as it is")


UNDER_JIT = [
    ("500 terms", "def f(x):\n    return " + " + ".join(["x"] * 500) + "\nfloat(f(1.0))", 500.0),
    ("an exception that is no Exception", "class Stop(BaseException): pass\ntimes = []\ndef f(x):\n    times.append(1)\n    raise Stop\ntry:\n    f(1.0)\nexcept Stop:\n    got = 'mine'\ngot", "mine"),
    ("an iterator given to map", "def f(x):\n    return x\nit = iter([1, 2, 3])\nlen(list(map(f, it))), list(it)", (3, [])),
    ("half an iterator", "def f(x):\n    return x\nit = iter([1, 2, 3])\nint(next(map(f, it))), list(it)", (1, [2, 3])),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "value"), [row[1:] for row in UNDER_JIT], ids=[row[0] for row in UNDER_JIT])
@pytest.mark.parametrize("magic", ["%%jit", "%%jitcheck"])
def test_what_was_in_the_way_once(notebook, magic, cell, value):
    assert notebook.ok(f"{magic} -q\n{cell}") == value
    assert "itself failed" not in notebook.text


@pytest.mark.parametrize(("magic", "raised"), [("%%jit", "ValueError"), ("%%jitcheck", "")])
def test_keys_that_jax_cannot_sort_raise_what_jax_raises(notebook, magic, raised):
    cell = "raised = ''\ntry:\n    f({1: 2.0, 'a': 3.0})\nexcept Exception as e:\n    raised = type(e).__name__\nraised"
    assert notebook.ok(f"{magic} -q\ndef f(x):\n    return x\n{cell}") == raised
    assert "itself failed" not in str(notebook.report())


@pytest.mark.parametrize("magic", ["%%jit -q --no-time", "%%jitcheck -q"])
def test_after_unloading_nothing_is_told(notebook, magic):
    notebook.ok(f"{magic}\ndef f(x):\n    return x + 1\nf(1.0)")
    notebook.ok("%unload_ext jitmagic")
    assert notebook.ok("float(sum(f(jnp.ones(n)).sum() for n in (2, 3)))") == 10.0
    shown, value = notebook.text.split()
    assert shown.startswith("Out[") and value == "10.0" and not notebook.outputs


def test_an_interrupt_of_the_report_is_one_line(notebook, monkeypatch):
    from jitmagic.checking import conclusions

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conclusions, "assemble", interrupted)
    assert notebook.ok("%%jitcheck\ndef f(x):\n    return x + 1\nf(1.0)") == 2.0
    assert "jitmagic: the report was interrupted" in notebook.text and "Traceback" not in notebook.text


ENDLESS = "def f(x):\n    while not isinstance(x, jax.core.Tracer): pass\n    return x + 1\n"


def test_the_run_without_jit_ends_with_its_time(notebook):
    notebook.ok("%config JitMagics.budget = 0.3")
    assert float(notebook.ok(f"%%jit -q --no-time\n{ENDLESS}f(1.0)")) == 2.0
    [f] = notebook.report().functions
    assert f.notes == ("the run without jit was left out: it took more than 300 ms",)


def test_runs_that_the_users_code_ends_are_left_out(notebook):
    notebook.run(
        "%%jitcheck -q\ndef f(x):\n    if float(x) > 0:\n        raise SystemExit(3)\n    return x\nf(1.0)"
    )
    notes = [n for f in notebook.report().functions for n in f.notes]
    assert notes and all(n.endswith(": it raises SystemExit") for n in notes)

"""`%jitcheck --memory`: each array that is alive, what keeps it, and that the advice lets go of it."""

from __future__ import annotations

import re

import pytest

SIZE = 4 * 12_347
"""No other array of the tests has it."""
MADE = "jnp.zeros(12_347)"


def kept(notebook):
    """Arrays of that size: (path, kept by)."""
    memory = notebook.ok("%jitcheck --memory -o").memory
    return [(a.path, a.kept_by) for a in memory.arrays if a.bytes == SIZE]


KEPT = {
    "a name": (f"big = {MADE}", ("big", "name"), "del big"),
    "an entry": (f"model = {{'w': [{MADE}]}}", ("model['w'][0]", "name"), "model = None"),
    "an attribute": (f"class M: pass\nm = M()\nm.w = {MADE}", ("m.w", "name"), "m = None"),
    "a closure": (
        f"def make():\n    x = {MADE}\n    return lambda: x\nfn = make()",
        ("", "elsewhere"),
        "fn = None",
    ),
}


@pytest.mark.parametrize(("cell", "told", "delete"), KEPT.values(), ids=KEPT)
def test_an_array_is_told_with_what_keeps_it(notebook, cell, told, delete):
    notebook.ok(cell)
    assert kept(notebook) == [told]
    notebook.ok(delete)
    assert kept(notebook) == []


def advice(notebook, kind):
    """The code that the page tells for this kind."""
    from jitmagic.render import memory

    notebook.ok("%jitcheck --memory")
    return re.search(r"`(.*?)`", memory.DELETE[kind])[1]


def test_the_last_error_lets_go_of_its_arrays(notebook):
    notebook.error(f"def f():\n    x = {MADE}\n    raise ValueError('no')\nf()")
    assert kept(notebook) == [("x in f", "traceback")]
    notebook.ok(advice(notebook, "traceback"))
    assert kept(notebook) == []


def test_outputs_let_go_of_their_arrays(notebook):
    notebook.shell.run_cell(MADE, store_history=True)
    (found,) = kept(notebook)
    assert found[1] == "output"
    notebook.ok(advice(notebook, "output"))
    assert kept(notebook) == []


def test_calls_that_are_kept_are_let_go_of_by_the_next_cell(notebook):
    notebook.ok(f"%%jitcheck -q\ndef f(x):\n    return x.sum()\nf({MADE})")
    assert [by for _, by in kept(notebook)] == ["check"]
    notebook.ok("del f")
    notebook.ok("%%jitcheck -q\ndef g(x):\n    return x\ng(1)")
    assert kept(notebook) == []


def test_the_page_says_what_a_device_does_not_tell(notebook):
    notebook.ok(f"big = {MADE}")
    report = notebook.ok("%jitcheck --memory -o")
    text = str(report)
    assert "49 kB" in text and "big" in text and "the device keeps no memory statistics" in text
    assert report.to_dict()["memory"]["limit"] is None


def test_it_belongs_to_jitcheck(notebook):
    notebook.run("%%jit --memory\nx = 1")
    assert "--memory belongs to %jitcheck" in notebook.text

"""Calls that do not fit into memory: which arrays, whose, and what would fit."""

from __future__ import annotations

import traceback

import jax
import jax.numpy as jnp
import pytest

from jitmagic.checking import exhausted
from jitmagic.checking.checker import Checker
from jitmagic.measure import peak
from jitmagic.tracing import messages

GB = 10**9
GRAM = "def gram(x):\n    k = jnp.outer(x, x)\n    return k.sum() + (k * 2).max()\n"
GRADIENT = """\
def loss(w, x):
    def body(h, _):
        return jnp.tanh(h @ w), None
    h, _ = jax.lax.scan(body, x, length=4_000_000)
    return h.sum()
def step(w, x):
    return w - jax.grad(loss)(w, x)
"""
CELLS = {
    "without jit": (
        f"%%jitcheck -q\n{GRAM}gram(jnp.ones(4_000_000)).block_until_ready()", "gram",
        ["`gram` does not fit into memory", "20 GB are free", "line 4 holds most", "a value of line 3 (float32[4000000,4000000], 64 TB)"],
        "31,250 rows instead of 4,000,000 in `x`",
    ),
    "a gradient through a scan": (
        f"%%jit -q -f step\n{GRADIENT}float(step(jnp.ones((8, 8)), jnp.ones((20000, 8))).sum())", "step",
        ["line 5 holds most", "(float32[4000000,20000,8], 2.6 TB)"], "`jax.checkpoint` around the body of `jax.lax.scan`: 2.6 TB",
    ),
}  # fmt: skip


@pytest.fixture
def twenty_gb(monkeypatch):
    monkeypatch.setattr(peak, "free_bytes", lambda: 20 * GB)


@pytest.mark.parametrize(("cell", "name", "told", "way"), CELLS.values(), ids=CELLS)
def test_the_arrays_are_named_with_what_would_take_less(notebook, twenty_gb, cell, name, told, way):
    notebook.error(cell)
    report = notebook.report()
    (finding,) = [f for f in report.findings if f.kind == "out-of-memory"]
    assert [part for part in told if part not in finding.message] == [], finding.message
    assert way in finding.help, finding.help
    assert [f.verdict for f in report.functions if f.name == name] == ["fails"]


def test_a_result_that_nobody_reads_ends_no_process(notebook, twenty_gb):
    notebook.run(  # a jax that knows at once raises here
        "%%jit -q\ndef outer(x):\n    return jnp.outer(x, x) + 1\nout = outer(jnp.ones(4_000_000))"
    )
    assert notebook.kinds() == ["out-of-memory"]
    assert notebook.ok(
        "%jitcheck --memory -o"
    ).memory.arrays  # `out` is none of them, and its memory is not read


def test_what_no_function_of_the_magic_asks_for(notebook, twenty_gb):
    notebook.error("cache = jnp.ones(60_000_000)\nbig = jnp.zeros((4_000_000, 3_000_000))")
    (finding,) = notebook.report().findings
    assert (
        "for `big = jnp.zeros((4_000_000, 3_000_000))`, or for what it reads: 48 TB could not be had"
        in finding.message
    )
    assert "holds `cache` (240 MB) besides" in finding.message


def test_the_statement_that_reads_a_result_is_named(notebook, twenty_gb):
    make = "out = jax.jit(lambda x: jnp.outer(x, x) + 1)(jnp.ones(4_000_000))"
    error = notebook.error(f"{make}\nout.block_until_ready()")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
    (finding,) = notebook.report().findings
    assert f"for `{make[:60] if 1 in lines else 'out.block_until_ready()'}" in finding.message


def explained(fn, *args, names):
    checker = Checker(fn, "f", namespace=names)
    checker.seen.exhausted_by = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 24000 bytes.")
    exhausted.explain(checker, jax.jit(fn).trace(*args), args, {})
    return checker.seen.exhausted


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ("Out of memory allocating 24000 bytes.", 24000),
        ("Out of memory while trying to allocate 24000 bytes.", 24000),
        ("Out of memory while trying to allocate 149.01GiB with allocator GPU_0_bfc", int(149.01 * 2**30)),
        ("Out of memory while trying to allocate 1.5MiB.", int(1.5 * 2**20)),
        ("Out of memory while trying to allocate 512B.", 512),
        ("Out of memory", None),
    ],
)
def test_how_much_was_asked_for_is_read_in_every_unit(told, asked):
    assert messages.bytes_asked(RuntimeError(f"RESOURCE_EXHAUSTED: {told}")) == asked


def test_what_else_the_notebook_holds_and_what_a_donation_saves(monkeypatch):
    monkeypatch.setattr(peak, "free_bytes", lambda: 20_000)
    kept = {"cache": [jnp.ones(9000)], "tiny": jnp.ones(3)}
    found = explained(lambda x: x * 2, jnp.ones(6000), names=kept)
    assert found.asked == 24000 and [(a.name, a.bytes) for a in found.others] == [("cache[0]", 36000)]
    assert [(r.words, r.bytes) for r in found.remedies][0] == ("`x` donated", 24000)


def test_a_program_that_is_not_the_cause_is_not_blamed(monkeypatch):
    monkeypatch.setattr(peak, "free_bytes", lambda: 10**7)
    assert explained(lambda x: x * 2, jnp.ones(6000), names={}) is None

"""Functions that only `jax.grad`, `jax.vmap`, a loop of jax or a library calls."""

from __future__ import annotations

import pytest

WITH_VALUES = {
    "grad": "out = str(jax.grad(f)(jnp.ones(3)))",
    "value_and_grad": "out = str(jax.value_and_grad(f)(jnp.ones(3))[0])",
    "vmap": "out = str(jax.vmap(f)(jnp.ones((2, 3))).shape)",
    "vmap of grad": "out = str(jax.vmap(jax.grad(f))(jnp.ones((2, 3))).shape)",
    "grad of vmap": "out = str(jax.grad(lambda x: jax.vmap(f)(x).sum())(jnp.ones((2, 3))).shape)",
    "along another axis": "out = str(jax.vmap(f, in_axes=1)(jnp.ones((3, 2))).shape)",
    "hessian": "out = str(jax.hessian(f)(jnp.ones(3)).shape)",
    "jvp": "out = str(jax.jvp(f, (jnp.ones(3),), (jnp.ones(3),))[0])",
    "training": "w = jnp.ones(3)\nfor _ in range(3):\n    w = w - 0.1 * jax.grad(f)(w)\nout = str(w)",
}
BUILDS = {
    "scan": "out = str(jax.lax.scan(lambda c, x: (f(c) + c, x), jnp.ones(3), jnp.ones(2))[1].shape)",
    "jit": "out = str(jax.jit(lambda x: f(x))(jnp.ones(3)))",
    "grad in jit": "out = str(jax.jit(lambda x: jax.grad(f)(x))(jnp.ones(3)))",
    "named axis": "out = str(jax.vmap(lambda x: f(x) + jax.lax.psum(x.sum(), 'i'), axis_name='i')(jnp.ones((2, 3))).shape)",
}


def _result(notebook, cell: str) -> str:
    notebook.ok(cell)
    return notebook.ok("out")


@pytest.mark.parametrize("called", WITH_VALUES)
@pytest.mark.parametrize("magic", ["%%jitcheck -q", "%%jit -q --no-time"])
def test_what_is_called_in_a_transformation_is_looked_at(notebook, called, magic):
    """By its own source and with the shapes that it sees there."""
    cell = f"k = 2.0\ndef f(x):\n    if x.ndim != 1:\n        raise ValueError(x.ndim)\n    return (x * k).sum()\n{WITH_VALUES[called]}"
    plain = _result(notebook, cell)
    assert _result(notebook, f"{magic}\n{cell}") == plain
    report = notebook.report()
    assert report.functions[0].verdict == "ok" and report.findings[0].kind == "captured-scalar", notebook.text
    assert not notebook.kinds("error", "warning")


@pytest.mark.parametrize("called", WITH_VALUES)
def test_what_would_fail_when_compiled_is_told(notebook, called):
    cell = f"def f(x):\n    return x.sum() if x.sum() > 0 else -x.sum()\n{WITH_VALUES[called]}"
    if "vmap" in called or "another" in called:  # jax itself fails
        cell = f"out = ''\n{cell.replace('out = str', 'try: out = str')}\nexcept jax.errors.TracerBoolConversionError: pass"
    plain = _result(notebook, cell)
    assert _result(notebook, f"%%jitcheck -q\n{cell}") == plain
    assert notebook.kinds("error") == ["tracer-bool"]
    found = notebook.report().findings[0]
    assert found.span is not None and "if x.sum() > 0" in found.span.source and "x" in found.culprits


@pytest.mark.parametrize("called", BUILDS)
@pytest.mark.parametrize("magic", ["%%jitcheck -q -f f", "%%jit -q --no-time -f f"])
def test_where_there_are_no_values_nothing_is_made_up(notebook, called, magic):
    cell = f"def f(x):\n    return (x * 2.0).sum()\n{BUILDS[called]}"
    plain = _result(notebook, cell)
    assert _result(notebook, f"{magic}\n{cell}") == plain
    assert not notebook.kinds("error", "warning")


HELD = {
    "an attribute": ("class S: pass\ns = S()", "s.w = w", "s.w"),
    "an item": ("s = {}", "s['w'] = w", "s['w']"),
    "a global": ("s = 0.0", "global s\n    s = w", "s"),
}


@pytest.mark.parametrize("held", HELD)
def test_traced_values_of_others_are_not_taken_for_ours(notebook, held):
    """The caller has put one where the function reads it: there is no call to make by itself."""
    made, store, read = HELD[held]
    cell = f"{made}\ndef loss(w):\n    {store}\n    return inner(2.0)\ndef inner(x):\n    return {read} * x\nout = str(jax.grad(loss)(3.0))"
    plain = _result(notebook, cell)
    assert _result(notebook, f"%%jitcheck -q -f inner\n{cell}") == plain
    assert not notebook.kinds("error", "warning"), notebook.text


WRITES = {
    "an item": ("c = {'n': 0}", "c['n'] += 1", "c['n']"),
    "a list": ("log = []", "log.append(1)", "len(log)"),
    "a global": ("n = 0", "global n\n    n += 1", "n"),
    "an attribute": ("class S: n = 0\ns = S()", "s.n += 1", "s.n"),
}


@pytest.mark.parametrize("written", WRITES)
@pytest.mark.parametrize("called", ["grad", "vmap", "hessian"])
def test_what_a_compiled_one_no_longer_writes_is_told(notebook, written, called):
    made, write, seen = WRITES[written]
    twice = f"{WITH_VALUES[called]}\n{WITH_VALUES[called]}"
    notebook.ok(f"%%jit -q --no-time\n{made}\ndef f(x):\n    {write}\n    return (x * 2).sum()\n{twice}")
    assert notebook.ok(seen) == 1 and "state-write" in notebook.kinds("error", "warning"), notebook.text


@pytest.mark.parametrize("called", ["grad", "vmap", "along another axis"])
def test_values_that_have_changed_since_are_told(notebook, called):
    once = WITH_VALUES[called]
    notebook.ok(f"%%jit -q --no-time\nk = 2.0\ndef f(x):\n    return (x * k).sum()\n{once}\nk = 3.0\n{once}")
    assert notebook.kinds("error", "warning") == ["stale-constant"]
    assert notebook.report().findings[0].fixes[0].verified


def test_what_it_prints_there_is_told(notebook):
    notebook.ok(
        "%%jit -q --no-time\ndef f(x):\n    print('once')\n    return x.sum()\nfor _ in range(3): jax.grad(f)(jnp.ones(2))"
    )
    assert notebook.kinds("note") == ["trace-time-print"]


NOTHING_TO_SEE = {
    "none of them": "print(jax.vmap(f)(jnp.ones((0, 3))).shape)",
    "each compilation is told": "with jax.log_compiles(): print(jax.vmap(f)(jnp.ones((2, 5)) * 1).shape)",
    "a key is used once": "with jax.debug_key_reuse(True): print(jax.vmap(draw)(jax.random.split(jax.random.key(0), 3)))",
}


@pytest.mark.parametrize("called", NOTHING_TO_SEE)
def test_to_look_for_the_values_is_seen_by_nobody(notebook, called):
    cell = f"def f(x): return x * 2\ndef draw(k): return jax.random.normal(k)\n{NOTHING_TO_SEE[called]}"
    notebook.ok(f"%%jitcheck -q\n{cell}")
    assert "slice" not in notebook.text
    assert not any("failed" in note for function in notebook.report().functions for note in function.notes)

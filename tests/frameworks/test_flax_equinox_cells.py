"""Flax and Equinox under the magics: good cells stay quiet, and what their own `jit` takes as static is told."""

from __future__ import annotations

from typing import Any

import pytest

eqx = pytest.importorskip("equinox")
nnx = pytest.importorskip("flax.nnx")


def test_the_definition_of_a_split_module_is_a_setting(notebook: Any) -> None:
    notebook.ok(
        "from flax import nnx\n"
        "parts = dict(zip(('definition', 'weights'), nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(1)))))"
    )
    notebook.ok(
        "%%jit -q --no-time\ndef score(weights, x):\n    return nnx.merge(parts['definition'], weights)(x).sum()\n"
        "score(parts['weights'], jnp.ones(3)); score(parts['weights'], jnp.zeros(3))"
    )
    assert notebook.report().functions[0].traces == 1 and not notebook.kinds("warning", "error")


def test_variables_of_a_module_that_nnx_jit_takes_are_inputs(notebook: Any) -> None:
    notebook.ok(
        """%%jitcheck -q
from flax import nnx
class Running(nnx.Module):
    def __init__(self): self.total = nnx.Variable(jnp.zeros(2))
    def add(self, x): self.total[...] += x
running = Running()
@nnx.jit
def add(running, x):
    running.add(x)
    return running.total[...].sum()
first, second = add(running, jnp.ones(2)), add(running, jnp.ones(2))
"""
    )
    assert (notebook.ns["first"], notebook.ns["second"]) == (2, 4)
    assert not notebook.kinds("warning", "error")


def test_filter_jit_takes_python_numbers_as_static(notebook: Any) -> None:
    notebook.ok(
        """%%jitcheck -q
import equinox as eqx
@eqx.filter_jit
def cooled(x, temperature, flat=False):
    return x / temperature
for temperature in (4, 2, 1):
    cooled(jnp.ones(2), temperature)
"""
    )
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.culprits, found.span.line) == ("recompile-static", ("temperature",), 4)


def test_settings_in_a_module_of_equinox_become_static_fields(notebook: Any) -> None:
    notebook.run(
        """%%jit -q --no-time -f gain
import equinox as eqx
class Filter(eqx.Module):
    cutoff: float
    shape: str
    def at(self, f):
        return f / (f + self.cutoff) if self.shape == 'high' else self.cutoff / (f + self.cutoff)
def gain(unit, f):
    return jnp.log(unit.at(f))
"""
    )
    notebook.error("gain(Filter(2.0, 'high'), jnp.ones(2))")
    [found] = [f for f in notebook.report().findings if f.severity == "error"]
    assert found.kind == "invalid-jax-type" and all(f.verified for f in found.fixes)
    assert "    shape: str = eqx.field(static=True)\n" in found.fixes[0].cell
    assert "@eqx.filter_jit\ndef gain" in found.fixes[1].cell


def test_a_module_made_from_a_fixed_seed_at_each_call_is_made_once(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(
        """%%jitcheck -q
from flax import nnx
@nnx.jit
def jittered(x):
    noise = nnx.Dropout(0.5, rngs=nnx.Rngs(3))
    return noise(x).sum()
"""
    )
    notebook.ok("jittered(jnp.ones(64))")
    [found] = [f for f in notebook.report().findings if f.kind == "hidden-rng"]
    assert [f.calls[0] for f in found.fixes if f.verified] == ["noise = nnx.Dropout(0.5, rngs=nnx.Rngs(3))"]
    notebook.ok("%config JitMagics.budget = 10")

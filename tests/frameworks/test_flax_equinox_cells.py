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

"""State that objects of plain classes keep, and functions that they compile for themselves."""

from __future__ import annotations

from typing import Any

import pytest

REGRESSOR = """%%jitcheck -q
class Regressor:
    def __init__(self, n):
        self.w = jnp.zeros(n)
        self.predict = jax.jit(self._predict)
    def _predict(self, x):
        return x @ self.w
    def shift(self, by):
        self.w = self.w + by
reg = Regressor(2)
reg.predict(jnp.ones(2))
"""


def test_what_an_object_has_compiled_for_itself_is_watched(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(f"{REGRESSOR}reg.shift(1.0)")
    assert notebook.kinds("error", "warning") == []
    notebook.ok("reg.predict(jnp.ones(2))")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.span.line) == ("stale-constant", 7) and "reg.w" in found.culprits
    [fix] = [f for f in found.fixes if f.verified]
    notebook.ok(f"{fix.cell}\nreg.predict(jnp.ones(2))\nreg.shift(1.0)\ny = reg.predict(jnp.ones(2))")
    assert notebook.ns["y"] == 4
    notebook.ok("%config JitMagics.budget = 10")


def test_settings_stay_on_the_object_whose_containers_are_taken_and_returned(notebook: Any) -> None:
    optax = pytest.importorskip("optax")
    assert optax
    notebook.ok(
        """%%jitcheck -q
import functools, optax
class Agent:
    def __init__(self):
        self.params, self.tx = {'w': jnp.zeros(2)}, optax.sgd(0.1, momentum=0.9)
        self.n, self.steps = 2, 0
        self.state = self.tx.init(self.params)
    def loss(self, p, x):
        return ((p['w'] - x) ** 2).sum()
    @functools.partial(jax.jit, static_argnums=0)
    def learn(self, x):
        value, grads = jax.value_and_grad(self.loss)(self.params, x)
        updates, self.state = self.tx.update(grads, self.state)
        self.params = optax.apply_updates(self.params, updates)
        self.steps += 1
        return value * jnp.ones(self.n).mean()
agent = Agent()
"""
    )
    for _ in range(2):
        notebook.run("agent.learn(jnp.ones(2))")
    found = [f for f in notebook.report().findings if f.severity != "note"]
    assert "leaked-tracer" in {f.kind for f in found}
    fix = next(f for f in found if f.kind == "leaked-tracer").fixes[0]
    assert fix.verified and "self.tx.update(grads, state)" in fix.cell and "self.loss" in fix.cell
    assert "jnp.ones(self.n)" in fix.cell and "steps += 1" in fix.cell

"""State of frameworks, and of the notebook, under a `jax.jit` that does not know it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("brainpy")

TANK = """%%jitcheck -q
import brainstate, brainpy as bp, brainpy.math as bm
class Inner:
    def __init__(self):
        self.level = bm.Variable(jnp.zeros(2))
class Tank:
    def __init__(self):
        self.inner = Inner()
    def fill(self, rain):
        self.inner.level.value = self.inner.level + rain
        return self.inner.level.sum()
tank = Tank()
@{jit}
def day(rain):
    return tank.fill(rain{more})
"""


@pytest.mark.parametrize("more", ["", " + bm.random.rand()"])
def test_variables_that_a_plain_jit_loses_are_told_and_its_own_jit_proved(notebook: Any, more: str) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.run(TANK.format(jit="jax.jit", more=more))
    for _ in range(2):
        notebook.run("day(1.0)")
    found = [f for f in notebook.report().findings if f.severity != "note"]
    written = next(f for f in found if f.kind == "state-write")
    assert (written.span.line, written.culprits[0]) == (10, "tank.inner.level")
    for finding in found:
        fix = finding.fixes[0]
        assert fix.verified and "@bm.jit\ndef day" in fix.cell
    notebook.ok("brainstate.random.seed(1)\n%config JitMagics.budget = 10")


def test_a_method_of_brainpy_under_a_plain_jit_is_diagnosed(notebook: Any) -> None:
    notebook.ok(
        "%%jitcheck -q\nimport brainpy as bp, brainpy.math as bm\nclass Sum(bp.DynamicalSystem):\n"
        "    def __init__(self):\n        super().__init__()\n        self.all = bm.Variable(bm.zeros(2))\n"
        "    def update(self, x):\n        self.all.value = self.all + x\n        return self.all.value\n"
        "total = Sum()\nadd = jax.jit(total.update)"
    )
    notebook.ok("add(1.0)")
    [found] = [f for f in notebook.report().findings if f.severity == "warning"]
    assert (found.kind, found.function, found.span.line) == ("state-write", "Sum.update", 8)
    assert found.fixes[0].cell and "add = bm.jit(total.update)" in found.fixes[0].cell


def test_a_variable_that_has_two_paths_is_no_frozen_value(notebook: Any) -> None:
    notebook.ok(TANK.format(jit="bm.jit", more=""))
    notebook.ok(
        "%%jitcheck -q\nlevels = {'level': tank.inner.level}\n@bm.jit\ndef drain(rain):\n    y = tank.fill(rain)\n"
        "    for level in levels.values():\n        level.value = level - 0.5\n    return y\ndrain(1.0); drain(1.0)"
    )
    assert notebook.kinds("warning", "error") == []


def test_a_dict_that_is_bound_anew_is_taken_and_returned(notebook: Any) -> None:
    notebook.ok("weights = {'w': jnp.zeros(2), 'b': jnp.zeros(())}")
    notebook.ok(
        "%%jit -q --no-time -f fit\ndef fit(x):\n    global weights\n    loss = ((weights['w'] - x) ** 2).sum()\n"
        "    weights = {'w': weights['w'] + 0.1 * x, 'b': weights['b'] + 1}\n    return loss"
    )
    notebook.ok("fit(jnp.ones(2))")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert found.kind == "leaked-tracer" and found.fixes[0].verified


def test_what_lies_in_a_dict_that_a_method_binds_anew_is_not_declared(notebook: Any) -> None:
    notebook.ok(
        "%%jit -q --no-time -f Fit.step\nclass Fit:\n    def __init__(self):\n        self.w = {'a': jnp.zeros(2)}\n"
        "    def step(self, x):\n        self.w = {'a': self.w['a'] + x}\n        return self.w['a'].sum()"
    )
    notebook.run("fit = Fit(); fit.step(1.0)")
    assert all(x.tested == "cell" for f in notebook.report().findings for x in f.fixes if x.verified)


def test_what_an_optimizer_writes_is_shown_where_it_is_called(notebook: Any) -> None:
    notebook.ok(
        """%%jitcheck -q
import brainpy as bp, brainpy.math as bm
net = bp.dnn.Dense(2, 1, mode=bm.training_mode)
opt = bp.optim.SGD(lr=0.1, train_vars=net.train_vars().unique())
slope = bm.grad(lambda x: (net(x) ** 2).sum(), grad_vars=net.train_vars().unique())
@jax.jit
def fit(x):
    opt.update(slope(x))
fit(jnp.ones((1, 2)))
"""
    )
    found = [f for f in notebook.report().findings if f.kind == "state-write"]
    assert [f.span.line for f in found] == [8]

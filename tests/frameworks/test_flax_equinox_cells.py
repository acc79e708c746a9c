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


def test_settings_in_a_module_of_another_cell_are_left_to_its_own_jit(notebook: Any) -> None:
    notebook.ok("import equinox as eqx\nclass Gain(eqx.Module):\n    by: float\n    name: str")
    notebook.run("%%jit -q --no-time -f gain\ndef gain(unit, f):\n    return unit.by * f")
    notebook.error("gain(Gain(2.0, 'high'), jnp.ones(2))")
    [found] = [f for f in notebook.report().findings if f.severity == "error"]
    assert found.fixes[0].verified and "@eqx.filter_jit\ndef gain" in found.fixes[0].cell


def test_a_module_made_from_a_fixed_seed_at_each_call_is_told(notebook: Any) -> None:
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
    assert found.span.line == 5


MODEL = """%%jitcheck -q
from flax import nnx
import optax
model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
@nnx.jit
def fit(x):
    def loss_of(model): return (model(x) ** 2).sum()
    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss
"""


def test_objects_of_flax_that_a_jit_of_its_own_reads_by_name_become_arguments(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(MODEL)
    notebook.error("fit(jnp.ones(3))")
    [found] = [f for f in notebook.report().findings if f.severity == "error"]
    [fix] = [f for f in found.fixes if f.verified]
    assert (found.kind, found.culprits[0], found.span.line) == ("state-write", "model", 9)
    assert (
        "def fit(x, model, optimizer):" in fix.cell and fix.calls[0] == "fit(jnp.ones(3), model, optimizer)"
    )
    notebook.ok("%config JitMagics.budget = 10")


def test_a_setting_of_a_module_that_changes_is_followed_through_its_own_jit(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(
        """%%jit -q --no-time -f predict
from flax import nnx
class Gated(nnx.Module):
    def __init__(self): self.gate, self.w = True, nnx.Param(jnp.ones(2))
    def __call__(self, x): return x * self.w if self.gate else x
gated = Gated()
def predict(x): return gated(x).sum() + 3.0
"""
    )
    for line in (
        "predict(jnp.arange(2.0) * 2)",
        "gated.gate = False; gated.w[...] = jnp.zeros(2)",
        "predict(jnp.ones(2))",
    ):
        notebook.ok(line)
    [found] = [f for f in notebook.report().findings if f.kind == "stale-constant"]
    [fix] = [f for f in found.fixes if f.verified]
    assert fix.dyn == ("gated.w", "gated.gate") and "jnp.where(self.gate, x * self.w, x)" in fix.cell
    notebook.ok("%config JitMagics.budget = 10")


def test_an_array_among_the_settings_of_what_is_returned_becomes_a_child(notebook: Any) -> None:
    notebook.ok(
        """%%jit -q --no-time -f move
import flax
@flax.struct.dataclass
class Robot:
    at: jax.Array
    walls: jax.Array = flax.struct.field(pytree_node=False)
def move(robot, step): return robot.replace(at=jnp.where(robot.walls[robot.at + step], robot.at, robot.at + step))
"""
    )
    notebook.ok("move(Robot(jnp.array(0), jnp.array([True, False])), 1).at")
    notebook.error("move(Robot(jnp.array(0), jnp.array([True, True])), 1).at")
    [found] = [f for f in notebook.report().findings if f.severity == "error"]
    [fix] = found.fixes
    assert found.kind == "array-in-aux-data" and fix.verified and "    walls: jax.Array\n" in fix.cell


def test_steps_that_return_nothing_change_the_objects_that_flax_carries_back(notebook: Any) -> None:
    notebook.ok(
        f"""{MODEL}
total = nnx.metrics.Average('loss')
@nnx.jit
def step(model, optimizer, total, x):
    loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
    total.update(loss=loss)
    optimizer.update(model, grads)
"""
    )
    notebook.ok("step(model, optimizer, total, jnp.ones(3)); step(model, optimizer, total, jnp.ones(3))")
    assert notebook.kinds("error", "warning") == []


def test_the_state_of_a_split_module_that_is_returned_is_no_change_of_the_caller(notebook: Any) -> None:
    notebook.ok(
        f"""{MODEL}
definition, state = nnx.split((model, optimizer))
@jax.jit
def step(state, x):
    model, optimizer = nnx.merge(definition, state)
    loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
    optimizer.update(model, grads)
    state = nnx.state((model, optimizer))
    return state, loss
for _ in range(3):
    state, loss = step(state, jnp.ones(3))
"""
    )
    assert notebook.kinds("error", "warning") == []


def test_variables_that_a_jit_of_flax_puts_back_as_they_were_are_not_changed(notebook: Any) -> None:
    notebook.ok(f"{MODEL}\ndef score(model, x):\n    return nnx.jit(lambda m, x: m(x).sum())(model, x)")
    notebook.ok("score(model, jnp.ones(3)); score(model, jnp.ones(3)); score(model, jnp.ones(3))")
    assert notebook.kinds("error", "warning") == ["recompile-new-function"]


def test_a_list_in_a_module_of_equinox_that_a_compiled_call_fills_is_told(notebook: Any) -> None:
    notebook.ok(
        """%%jitcheck -q
import equinox as eqx
class Recorder(eqx.Module):
    seen: list
    def __call__(self, x):
        self.seen.append(x.mean())
        return x * 2
recorder = Recorder([])
@eqx.filter_jit
def apply(recorder, x):
    return recorder(x)
apply(recorder, jnp.ones(2)); apply(recorder, jnp.ones(2))
"""
    )
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.span.line) == ("state-write", 6) and "recorder" in found.culprits


def test_what_flax_notes_in_its_modules_is_no_variable(notebook: Any) -> None:
    notebook.ok("from flax import nnx\nmodel = nnx.Linear(3, 1, rngs=nnx.Rngs(0))")
    notebook.ok("%%jit -q --no-time\ndef f(x):\n    return model(x)\nf(jnp.ones((2, 3)))")
    paths = {v.path for v in notebook.report().functions[0].state}
    assert {"model.kernel", "model.bias"} <= paths
    assert not [p for p in paths if "_pytree__" in p]


COUNTING = """%%jitcheck -q
from flax import nnx
class Encoder(nnx.Module):
    def __init__(self, rngs):
        self.proj, self.ready = nnx.Linear(3, 3, rngs=rngs), False
        self.seen = 0
    def __call__(self, x):
        self.ready = True
        {}
        return self.proj(x).sum()
encoder = Encoder(nnx.Rngs(0))
@nnx.jit
def encode(encoder, x):
    return encoder(x)
"""


def test_a_number_that_a_module_of_flax_counts_up_compiles_anew(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(COUNTING.format("self.seen += 1"))
    for _ in range(4):
        notebook.ok("encode(encoder, jnp.ones(3))")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.span.line) == ("recompile-static", 9) and "encoder.seen" in found.culprits
    [fix] = [f for f in found.fixes if f.verified]
    assert "self.seen = nnx.Variable(jnp.array(0))" in fix.cell and "self.seen.value += 1" in fix.cell
    notebook.ok("%config JitMagics.budget = 10")


def test_a_flag_that_a_module_of_flax_sets_once_is_no_warning(notebook: Any) -> None:
    notebook.ok(COUNTING.format("pass"))
    for _ in range(3):
        notebook.ok("encode(encoder, jnp.ones(3))")
    assert notebook.kinds("warning", "error") == []


def test_a_number_in_a_field_of_equinox_becomes_an_array(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(
        """%%jitcheck -q
import equinox as eqx
class Wave(eqx.Module):
    phase: jax.Array
    level: float = 1.0
@eqx.filter_jit
def total(wave, x):
    return (wave.level * jnp.sin(x + wave.phase)).sum()
wave = Wave(jnp.array(0.5))
"""
    )
    for _ in range(4):
        notebook.ok("total(wave, jnp.ones(2))")
        notebook.ok("wave = eqx.tree_at(lambda w: w.level, wave, wave.level + 0.1)")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert found.kind == "recompile-static" and [f.verified for f in found.fixes] == [True]
    assert "level: jax.Array = eqx.field(default=1.0, converter=jnp.asarray)" in found.fixes[0].cell
    notebook.ok("%config JitMagics.budget = 10")


def test_a_module_that_a_plain_jit_takes_is_not_returned_but_compiled_by_flax(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(
        """%%jitcheck -q
from flax import nnx
class Total(nnx.Module):
    def __init__(self): self.all = nnx.Variable(jnp.zeros(2))
    def add(self, x): self.all[...] += x
total = Total()
@jax.jit
def add(total, x):
    total.add(x)
    return total.all[...].sum()
"""
    )
    notebook.ok("add(total, jnp.ones(2))")
    notebook.ok("add(total, jnp.ones(2))")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert [f.verified and "@nnx.jit" in f.cell for f in found.fixes] == [True]
    notebook.ok("%config JitMagics.budget = 10")


def test_what_mends_a_module_and_its_optimizer_is_the_first_choice_for_both(notebook: Any) -> None:
    pytest.importorskip("optax")
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(
        """%%jitcheck -q
from flax import nnx
import optax
net = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
opt = nnx.Optimizer(net, optax.sgd(0.1), wrt=nnx.Param)
@jax.jit
def step(net, opt, x):
    loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(net)
    opt.update(net, grads)
    return loss
for _ in range(3):
    step(net, opt, jnp.ones((3, 2)))
"""
    )
    found = [f for f in notebook.report().findings if f.severity != "note"]
    assert [(f.span.line, f.fixes[0].applicability) for f in found] == [(9, "safe")] * 2
    assert all("@nnx.jit" in f.fixes[0].cell and "return loss\n" in f.fixes[0].cell for f in found)
    notebook.ok("%config JitMagics.budget = 10")


def test_a_number_for_a_filtering_jit_is_passed_as_an_array(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok("%%jitcheck -q\nimport equinox as eqx\n@eqx.filter_jit\ndef cooled(x, t):\n    return x / t")
    for t in (4.0, 2.0, 1.0):
        notebook.ok(f"cooled(jnp.ones(2), {t})")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    [fix] = [f for f in found.fixes if f.verified]
    assert fix.calls[0] == "cooled(jnp.ones(2), jnp.asarray(4.0))"
    notebook.ok("%config JitMagics.budget = 10")

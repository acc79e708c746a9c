from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import pytest

from jitmagic.state import adapters, paths
from jitmagic.state.below import leaves_below
from jitmagic.state.paths import Scope, resolve
from jitmagic.state.roots import reach


def fake(module, name, **members):
    return type(name, (), {"__module__": module, **members})


def _get(self):
    self.reads += 1
    return self._value


def _set(self, value):
    raise RuntimeError("the framework refuses a write here")


class _Base:
    pass


def variable(module="brainpy.fake", name="Variable", value=None):
    obj = fake(module, name, value=property(_get, _set))()
    obj._value, obj.reads = jnp.ones(2) if value is None else value, 0
    return obj


@pytest.mark.parametrize("module", ["brainpy.fake", "brainstate._state", "flax.nnx.variablelib"])
def test_read_and_write_past_the_framework(module):
    v = variable(module)
    assert adapters.is_variable(v)
    found = adapters.adapter_for(v)
    found.write(v, jnp.zeros(3))
    assert found.read(v).shape == (3,) and v.reads == 0


def test_nnx_raw_value():
    cls = fake("flax.nnx.variablelib", "Param", value=property(_get, _set))
    user = type("Mine", (cls,), {"__module__": "__main__"})
    v = user()
    v.raw_value = jnp.ones(1)
    assert adapters.is_variable(v)
    adapters.adapter_for(v).write(v, 5.0)
    assert v.raw_value == 5.0


def test_what_is_no_variable():
    module = fake("flax.nnx.module", "Module")
    model = type("Model", (module,), {"__module__": "__main__"})()
    model.value = 1.0
    wrapper = variable(name="Array")
    for obj in (model, wrapper, 1.0, jnp.ones(1), types.SimpleNamespace(value=1), None):
        assert not adapters.is_variable(obj)
    assert not adapters.adapter_for(wrapper).is_state


def test_random_states():
    assert adapters.adapter_for(variable(name="RandomState")).is_rng
    assert adapters.adapter_for(variable("flax.nnx.rnglib", "RngKey")).is_rng
    assert not adapters.adapter_for(variable()).is_rng


def test_leaves_go_through_the_adapter():
    model = types.SimpleNamespace(v=variable(), a=variable(name="Array"), w=1.0)
    places = leaves_below(resolve("m", Scope({"m": model})))
    assert [(p.path, p.is_variable) for p in places] == [("m.v", True), ("m.a", True), ("m.w", False)]
    places[0].put(jnp.zeros(5))
    assert model.v._value.shape == (5,) and places[0].holder() is model.v


def test_reached_variables(cell):
    ns = cell("def f(x):\n    return x + v.value + a.value")
    ns |= {"v": variable(), "a": variable(name="Array")}
    assert [(x.path, x.is_variable, x.is_array) for x in reach(ns["f"]).leaves()] == [
        ("v", True, True),
        ("a", False, True),
    ]


def test_place_of_follows_the_object():
    v = variable()
    place = paths.place_of(v)
    place.put(3.0)
    assert v._value == place.get() == 3.0
    with pytest.raises(TypeError):
        paths.place_of(1.0)


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this jax has no Ref")
def test_ref():
    ref = jax.new_ref(jnp.zeros(2))
    found = adapters.adapter_for(ref)
    found.write(ref, jnp.ones(2))
    assert adapters.is_variable(ref) and found.read(ref).sum() == 2

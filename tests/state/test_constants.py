from __future__ import annotations

import jax
import jax.extend.core as xc
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.state.constants import variables
from jitmagic.state.frozen import freeze
from jitmagic.state.roots import reach


def baked(jaxpr):
    found = {id(c): c for c in getattr(jaxpr, "consts", ())}
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        found |= {id(v.val): v.val for v in eqn.invars if isinstance(v, xc.Literal) and np.ndim(v.val)}
        for p in eqn.params.values():
            for q in p if isinstance(p, tuple | list) else [p]:
                if hasattr(q, "eqns") or hasattr(getattr(q, "jaxpr", None), "eqns"):
                    found |= {id(c): c for c in baked(q)}
    return list(found.values())


def known(fn, *args, dyn=(), **kw):
    constants = baked(jax.jit(lambda *a: fn(*a)).trace(*args).jaxpr)
    return {v.path: v for v in variables(reach(fn, **kw), constants, dyn=dyn)}


def test_every_variable_of_top(top):
    found = known(top["top"], jnp.ones(4), dyn=["l"])
    arrays = {p for p, v in found.items() if v.type == "array"}
    assert arrays == {
        "w",
        "l.w",
        "l.sub[0].k",
        "params['layer1'][0]",
        "params['layer1'][1]['b']",
        "nw",
        "nw64",
        "k",
        "part.args[0]",
        "c",
    }
    assert all(found[p].in_jaxpr for p in arrays)
    assert {p for p, v in found.items() if v.type == "scalar"} == {"depth", "scale", "l.alpha", "l.kind"}
    assert {p for p, v in found.items() if v.type == "function"} == {"helper", "deflt", "clos"}
    w, scale = found["l.w"], found["scale"]
    assert (w.shape, w.dtype, w.bytes, w.role, w.declared) == ((4, 4), "float32", 64, "dynamic", True)
    assert (scale.value, scale.dtype, scale.role, scale.origin) == ("2.0", "float", "constant", "helper")
    assert [r.source for r in scale.reads] == ["return x @ w * scale"]


def test_zero_dimensional_and_unread(cell):
    ns = cell("b = jnp.float32(.1)\nw = jnp.ones(2)\nunused = jnp.ones(5)\ndef f():\n    return w * b")
    found = known(ns["f"])
    assert set(found) == {"b", "w"} and found["b"].in_jaxpr and found["b"].shape == ()


def test_read_but_not_baked(cell):
    ns = cell("w = np.ones(3)\ndef f(x):\n    return x * w.shape[0]")
    assert not known(ns["f"], 1.0)["w"].in_jaxpr


def test_computed_arrays_get_no_name(cell):
    ns = cell("w = np.arange(3.)\ndef f(x):\n    return x * np.sin(w)")
    found = known(ns["f"], jnp.ones(3))
    assert set(found) == {"w"} and not found["w"].in_jaxpr


def test_matched_by_memory_and_value(cell):
    ns = cell(
        "table = [1., 2., 3., 4., 5., 6., 7., 8., 9.]\nnw = np.arange(9.) + .25\nv = np.ones((4, 9), 'f4')\n"
        "def f(x):\n    return x * jnp.array(table) + nw + v[2]"
    )
    found = known(ns["f"], jnp.ones(9))
    assert found["nw"].in_jaxpr and found["v"].in_jaxpr and found["table"].type == "object"


def test_unnamed_attribute_is_still_found(cell):
    ns = cell(
        "class M:\n    def __init__(self): self.hidden = jnp.ones(3)\nm = M()\nname = 'hidden'\n"
        "def f(x):\n    return x + getattr(m, name)"
    )
    assert known(ns["f"], jnp.ones(3))["m.hidden"].in_jaxpr


def test_receiver_attributes_and_pytree_arguments(cell):
    ns = cell(
        "class M:\n    def __init__(self): self.w, self.n = jnp.ones(3), 2\n"
        "    def f(self, p):\n        return p['a'] * self.w * self.n"
    )
    m, p = ns["M"](), {"a": jnp.ones(3), "b": 1.0}
    constants = baked(jax.jit(m.f).trace(p).jaxpr)
    found = {v.path for v in variables(reach(ns["M"].f, receiver=m, args=(m, p)), constants)}
    assert found == {"self.w", "self.n"}


def test_roles_and_random_states(cell):
    ns = cell(
        "mode = 'relu'\nrng = np.random.default_rng(0)\nw = 1.0\ndef f(x):\n    return x + w if mode else rng"
    )
    found = known(ns["f"], 1.0)
    assert found["mode"].role == "constant" and found["rng"].type == "rng" and found["mode"].type == "scalar"


CHANGES = """\
a = 1.0; n = 3; mode = "relu"; w = jnp.ones(3); nw = np.ones(3); big = np.zeros(300_000); cfg = {"lr": .1}
table = list(range(20))
class L:
    def __init__(self): self.w = 1.0
l = L()
def make():
    c = 1.0
    def set_c(v):
        nonlocal c
        c = v
    return (lambda x: x * c), set_c
clos, set_c = make()
helper = lambda x: x
def f(x):
    return a + n + len(mode) + w + nw + big[0] + cfg["lr"] + table[0] + l.w + clos(x) + helper(x)
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("a = 2.0", [("a", "1.0", "2.0")]),
        ("n = 3.0", [("n", "3", "3.0")]),
        ("mode = 'tanh'", [("mode", "'relu'", "'tanh'")]),
        ("w = w - 1", [("w", "f32[3]", "f32[3] with other values")]),
        ("nw[1] = 9", [("nw", "f64[3]", "f64[3] with other values")]),
        ("big[:] = 1", [("big", "f64[300000]", "f64[300000] with other values")]),
        ("cfg['lr'] = 1.0", [("cfg['lr']", "0.1", "1.0")]),
        ("cfg = {'lr': 1.0}", [("cfg['lr']", "0.1", "1.0")]),
        ("l = L(); l.w = 2.0", [("l.w", "1.0", "2.0")]),
        ("set_c(7.0)", [("c", "1.0", "7.0")]),
        ("table[3] = 0", [("table", "list of 20", "list of 20 with other values")]),
        ("helper = lambda x: -x", [("helper", "<lambda>", "another <lambda>")]),
        ("del a", [("a", "1.0", "gone")]),
        ("a = float('1.0'); w = jnp.ones(3); nw = np.ones(3); helper = lambda x: x; l = L()", []),
        ("other = 1", []),
    ],
)
def test_frozen_values_that_change(cell, change, expected):
    ns = cell(CHANGES)
    frozen = freeze(reach(ns["f"]))
    assert frozen.changed() == []
    exec(change, ns)
    assert frozen.changed() == expected
    frozen.forget([path for path, *_ in expected])
    assert frozen.changed() == []


def test_named_tuples_of_functions_are_compared_by_what_they_do(cell):
    ns = cell(
        "from typing import NamedTuple\n"
        "class Opt(NamedTuple):\n    init: object\n    update: object\n"
        "def sgd(lr):\n    def scale(g): return -lr * g\n"
        "    return Opt(lambda p: (), lambda g, s: (scale(g), s))\n"
        "opt = sgd(0.1)\ndef f(g):\n    return opt.update(g, ())\n"
    )
    frozen = freeze(reach(ns["f"]))
    exec("opt = sgd(0.1)", ns)
    assert frozen.changed() == []
    exec("opt = sgd(0.2)", ns)
    assert frozen.changed() == [("opt.update", "sgd.<lambda>", "another sgd.<lambda>")]


def test_an_optimiser_of_a_library_is_compared_by_what_it_does(cell):
    pytest.importorskip("optax")
    ns = cell("import optax\nopt = optax.adam(0.1)\ndef f(g, s):\n    return opt.update(g, s)\n")
    frozen = freeze(reach(ns["f"]))
    exec("opt = optax.adam(0.1)", ns)
    assert frozen.changed() == []
    exec("opt = optax.adam(0.2)", ns)
    assert [path for path, *_ in frozen.changed()] == ["opt.update"]


def test_freeze_of_some_variables(cell):
    ns = cell(CHANGES)
    found = [v for v in known(ns["f"], jnp.ones(3)).values() if v.path == "a"]
    frozen = freeze(reach(ns["f"]), found)
    ns["n"] = 9
    assert frozen.changed() == []
    ns["a"] = 9.0
    assert [path for path, *_ in frozen.changed()] == ["a"]


def test_frozen_keeps_no_large_array_alive(cell):
    import gc
    import weakref

    ns = cell("w = jnp.ones(300_000)\ndef f(x):\n    return x + w")
    frozen, ref = freeze(reach(ns["f"])), weakref.ref(ns["w"])
    ns["w"] = jnp.zeros(300_000)
    gc.collect()
    assert ref() is None and len(frozen.changed()) == 1


def test_iterators_are_objects_that_can_be_bound_anew(cell):
    ns = cell("batches = iter([1.0, 2.0])\ndef f(x):\n    return x * next(batches)")
    found = known(ns["f"], 1.0)
    assert found["batches"].type == "object"
    assert found["batches"].reads[0].source == "return x * next(batches)"
    frozen = freeze(reach(ns["f"]))
    next(ns["batches"])
    assert frozen.changed() == []
    ns["batches"] = iter([3.0])
    assert [path for path, *_ in frozen.changed()] == ["batches"]


def test_keys_of_an_enum_have_names_of_their_own(cell):
    ns = cell(
        "import enum\nclass W(enum.Enum):\n    A = 1\n    B = 2\nT = {W.A: 1.0, W.B: 2.0}\n"
        "def f(x):\n    return x * T[W.A] + T[W.B]\n"
    )
    frozen = freeze(reach(ns["f"]))
    exec("T[W.B] = 3.0", ns)
    assert frozen.changed() == [("T[W.B]", "2.0", "3.0")]


def test_a_dataclass_has_the_names_that_its_objects_have(cell):
    ns = cell(
        "from dataclasses import dataclass\n@dataclass(frozen=True, order=True)\nclass P:\n    mass: float = 0.8\n"
        "    drag: float = 0.1\n    def force(self, v):\n        return self.mass - self.drag * v\np = P()\n"
        "def f(v):\n    return p.force(v)\n"
    )
    assert sorted(leaf.path for leaf in reach(ns["f"]).leaves()) == ["p.drag", "p.mass"]

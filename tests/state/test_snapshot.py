from __future__ import annotations

import random
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.state import iterators
from jitmagic.state.entries import sample
from jitmagic.state.roots import reach
from jitmagic.state.snapshot import take
from jitmagic.state.values import short

STATE = """\
import collections, functools, random
log = []; memo = {1: 1}; counter = 0; tags = {1}; last_two = collections.deque(maxlen=2); last_two.append(0)
small = np.zeros(3); rng = np.random.default_rng(0)
class Net:
    made = 0
    def __init__(self): self.w, self.last, self.hist = jnp.ones(3), None, []
    def __call__(self, x):
        self.last = x * self.w
        self.new = x
        self.hist.append(x)
        Net.made += 1
        return x + self.w
class Slots:
    __slots__ = ("v",)
net = Net(); slots = Slots(); slots.v = 1.0
def remember(x, seen=[]):
    seen.append(1)
    return x
@functools.lru_cache
def eye(n):
    return jnp.eye(n) * 2
def make():
    a = 1.0
    def change(x):
        nonlocal a
        a = x
    return change
change = make()
def f(x):
    global counter, fresh
    counter += 1
    fresh = x
    log.append(x * 2)
    memo["a"] = x
    memo[1] = 2
    tags.add(2)
    last_two.append(x)
    small[0] = 5
    rng.normal(); np.random.normal(); random.random()
    slots.v = x
    f.calls = 1
    change(x)
    remember(x)
    return net(x) + eye(3)[0]
"""
WRITTEN = {
    "counter": ("changed", False),
    "fresh": ("bound", True),
    "log[0]": ("added", True),
    "memo['a']": ("added", True),
    "memo[1]": ("changed", False),
    "tags": ("added", False),
    "last_two[1]": ("added", True),
    "small": ("changed", False),
    "rng": ("changed", False),
    "np.random": ("changed", False),
    "random": ("changed", False),
    "slots.v": ("changed", True),
    "f.calls": ("bound", False),
    "a": ("changed", True),
    "seen[0]": ("added", False),
    "net.last": ("changed", True),
    "net.new": ("bound", True),
    "net.hist[0]": ("added", True),
    "Net.made": ("changed", False),
    "eye": ("added", True),
}


def trace(ns, *args):
    return jax.jit(lambda *a: ns["f"](*a)).trace(*args)


def test_every_kind_of_write_is_seen_and_undone(cell):
    ns = cell(STATE)
    before = take(reach(ns["f"]))
    states = np.random.get_state()[1].tolist(), random.getstate()
    trace(ns, jnp.ones(3))
    writes = {w.path: w for w in before.changes()}
    assert {p: (w.action, w.tracer) for p, w in writes.items()} == WRITTEN
    assert writes["log[0]"].where.source == "log.append(x * 2)" and writes["log[0]"].after == "traced f32[3]"
    assert writes["net.hist[0]"].where.source == "self.hist.append(x)"
    assert writes["counter"].before == "0" and writes["counter"].after == "1"
    before.restore()
    assert before.changes() == [] and before.unrestorable == {}
    assert "fresh" not in ns and ns["memo"] == {1: 1} and ns["log"] == [] and ns["tags"] == {1}
    assert "new" not in vars(ns["net"]) and list(ns["last_two"]) == [0] and ns["small"][0] == 0
    assert states == (np.random.get_state()[1].tolist(), random.getstate())


def test_only_tracers_are_put_back(cell):
    ns = cell(STATE)
    before = take(reach(ns["f"]))
    trace(ns, jnp.ones(3))
    before.restore(only_tracers=True)
    left = {w.path: w.tracer for w in before.changes()}
    assert left == {p: False for p, (_, tracer) in WRITTEN.items() if not tracer}


def test_restores_every_time(cell):
    ns = cell("it = iter([1, 2, 3])\nlog = []\ndef f(x):\n    log.append(next(it))\n    return x * log[-1]")
    before = take(reach(ns["f"]))
    for _ in range(3):
        assert ns["f"](1.0) == 1.0
        before.restore()


def test_mutable_arguments_and_receiver(cell):
    ns = cell(
        "class M:\n    epoch = 0\n    def f(self, box):\n        self.epoch += 1\n"
        "        box['y'] = self.epoch"
    )
    m, box = ns["M"](), {"x": 1}
    before = take(reach(ns["M"].f, receiver=m, args=(m, box)))
    m.f(box)
    assert [(w.path, w.action) for w in before.changes()] == [("self.epoch", "bound"), ("box['y']", "added")]
    assert before.changes()[0].where.source == "self.epoch += 1"
    before.restore()
    assert box == {"x": 1} and vars(m) == {}


def test_a_list_bound_anew_and_changed(cell):
    ns = cell("log = [1, 2, 3]\ndef f(x):\n    global log\n    del log[1]\n    log = [x]")
    old = ns["log"]
    before = take(reach(ns["f"]))
    ns["f"](5)
    before.restore()
    assert ns["log"] is old and old == [1, 2, 3]


def test_names_made_through_globals(cell):
    ns = cell("def f(x):\n    globals()['made'] = x")
    before = take(reach(ns["f"]))
    ns["f"](1)
    assert [w.path for w in before.changes()] == ["made"]
    before.restore()
    assert "made" not in ns


def test_generators_are_noted(cell):
    ns = cell("gen = (i for i in range(3))\ndef f(x):\n    return x + next(gen)")
    before = take(reach(ns["f"]))
    assert before.unrestorable == {"gen": "a generator"} and before.changes() == []
    ns["f"](1)
    assert [w.path for w in before.changes()] == ["gen"]


READ = [
    "big.sum() + big[0, 0]",
    "jnp.dot(big.T, big) + np.sum(big)",
    "sum(len(row) for row in big)",
    "big.shape[0] * big",
]
WRITTEN_INTO = [
    "fill(big)",
    "np.add(big, 1, out=big)",
    "big.fill(1)",
    "np.copyto(big, 1.0)",
    "other(big)",
    "alias(big)[0]",
]


@pytest.mark.parametrize("body", READ + WRITTEN_INTO)
def test_large_arrays_are_copied_unless_they_are_only_read(cell, body):
    ns = cell(
        "big = np.zeros((1500, 100))\ndef fill(a):\n    a[...] = 1\ndef other(a):\n    b = a\n    b += 1\n"
        f"def alias(a):\n    a.sort()\n    return a\ndef f(x):\n    return {body}"
    )
    [entry] = [e for e in take(reach(ns["f"]))._entries if getattr(e, "array", None) is ns["big"]]
    assert (entry.copy is None) == (body in READ)
    before = take(reach(ns["f"]))
    ns["f"](1.0)
    before.restore()
    assert not ns["big"].any()


def test_large_arrays_that_the_function_writes_into_are_copied(cell):
    ns = cell("big = np.zeros((1500, 100))\ndef f(x):\n    big[...] = x")
    before = take(reach(ns["f"]))
    ns["f"](1.0)
    before.restore()
    assert ns["big"][0, 0] == 0.0 and not before.drained


def test_one_too_large_to_copy_is_told_beforehand(cell):
    ns = cell("big = np.zeros(1 << 27, np.uint8)\ndef f(x):\n    big[...] = x")
    assert list(take(reach(ns["f"])).drained) == ["big"]


def test_what_inner_functions_write_to_modules(cell):
    ns = cell("import math\nmath.jm = 0\ndef f(x):\n    def g(): math.jm = x\n    g()")
    before = take(reach(ns["f"]))
    ns["f"](1)
    before.restore()
    assert vars(ns["math"]).pop("jm") == 0


def test_frozen_and_hostile_objects(cell):
    ns = cell("""\
import dataclasses
@dataclasses.dataclass(frozen=True)
class F:
    w: float
class H:
    def __setattr__(self, n, v): raise RuntimeError
    def __eq__(self, o): raise RuntimeError
    def __repr__(self): raise RuntimeError
    def __bool__(self): raise RuntimeError
    __hash__ = None
a, h = F(1.0), H()
def f(x):
    object.__setattr__(a, "w", x)
    h.__dict__["k"] = h
""")
    before = take(reach(ns["f"]))
    ns["f"](2.0)
    assert [w.path for w in before.changes()] == ["a.w", "h.k"]
    before.restore()
    assert ns["a"].w == 1.0 and "k" not in vars(ns["h"])


def test_variables_of_frameworks(cell):
    ns = cell("""\
class Variable:
    def __init__(self, v): self._value = v
    @property
    def value(self): return self._value
    @value.setter
    def value(self, v): raise RuntimeError
Variable.__module__ = "brainpy.fake"
v = Variable(1.0)
def f(x): v._value = x
""")
    before = take(reach(ns["f"]))
    ns["f"](2.0)
    assert [w.path for w in before.changes()] == ["v"]
    before.restore()
    assert ns["v"].value == 1.0


def test_equal_scalars_are_no_change(cell):
    ns = cell(
        "a, n = 1000.5, float('nan')\ndef f(x):\n    global a, n\n    a, n = float('1000.5'), float('nan')"
    )
    before = take(reach(ns["f"]))
    ns["f"](1)
    assert before.changes() == []


def test_deep_and_cyclic_structures(cell):
    ns = cell(
        "deep = top = []\nfor _ in range(5000):\n    deep.append([]); deep = deep[0]\n"
        "top.append(top)\ndef f(x): return top, x"
    )
    assert take(reach(ns["f"])).changes() == []


ITERATORS = {
    "list": lambda: iter([1, 2, 3]),
    "tuple": lambda: iter((1, 2)),
    "range": lambda: iter(range(4)),
    "text": lambda: iter("abc"),
    "array": lambda: iter(np.arange(6).reshape(3, 2).tolist()),
    "dict": lambda: iter({1: 2, 3: 4}),
    "items": lambda: iter({1: 2}.items()),
    "reversed": lambda: reversed([1, 2]),
    "zip": lambda: zip([1, 2], iter([3, 4]), strict=False),
    "enumerate": lambda: enumerate(iter([5, 6])),
    "map": lambda: map(str, [1, 2]),
    "chain": lambda: iter(sum([[1], [2]], [])),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_iterators_are_put_back(cell, name):
    ns = cell("def f(x): return next(it)")
    ns["it"] = ITERATORS[name]()
    expected = list(ITERATORS[name]())
    before = take(reach(ns["f"]))
    assert ns["f"](0) == expected[0]
    assert [w.path for w in before.changes()] == ["it"]
    before.restore()
    assert list(ns["it"]) == expected


def test_a_used_up_iterator_is_replaced(cell):
    ns = cell("it = iter([1])\ndef f(x): return [next(it, None), next(it, None)]")
    before = take(reach(ns["f"]))
    ns["f"](0)
    before.restore()
    assert list(ns["it"]) == [1]


def test_copies_are_independent():
    for make in ITERATORS.values():
        it = make()
        copied = iterators.copied(it)
        assert list(copied) == list(make()) == list(it)
    assert iterators.copied(x for x in [1]) is None


def test_sample_of_a_large_array_sees_its_end():
    a = np.zeros(200_000)
    before = sample(a)
    a[:] = 1
    assert sample(a) != before and sample(np.zeros(200_000)) == before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (jnp.ones((10, 3)), "f32[10,3]"),
        (np.arange(3), "i64[3]"),
        (np.ones(2, "?"), "bool[2]"),
        (1.5, "1.5"),
        ("x" * 99, "'" + "x" * 38 + "…"),
        (np.float32(2), "2.0"),
        (object(), "object"),
        ({}, "dict of 0"),
        (None, "None"),
        (jnp.ones(2, jnp.bfloat16), "bf16[2]"),
        pytest.param(1 << 99999, "int of 100000 bits", id="long"),
    ],
)
def test_short(value, text):
    assert short(value) == text


@pytest.mark.parametrize(
    ("made", "wait", "wake"),
    [
        ("threading.Event()", "held.wait(20)", "held.set()"),
        ("threading.Condition()", "with held: held.wait(20)", "with held: held.notify_all()"),
        ("queue.Queue()", "held.get(timeout=20)", "held.put(1)"),
    ],
)
def test_who_begins_to_wait_meanwhile_is_woken(cell, made, wait, wake):
    ns = cell(
        f"import queue, threading\nheld = {made}\ndef f(): return held\n"
        f"def waits():\n    {wait}\ndef wakes():\n    {wake}\n"
    )
    before = take(reach(ns["f"]))
    thread = threading.Thread(target=ns["waits"], daemon=True)
    thread.start()
    conditions = [c for c in (ns["held"], *vars(ns["held"]).values()) if isinstance(c, threading.Condition)]
    while not any(c._waiters for c in conditions):
        time.sleep(0.01)
    before.restore()
    ns["wakes"]()
    thread.join(10)
    assert not thread.is_alive()

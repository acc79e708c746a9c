from __future__ import annotations

import collections
import dataclasses
import types

import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.state.below import leaves_below
from jitmagic.state.paths import Path, PathError, Scope, Step, parse, resolve, split_paths
from jitmagic.state.roots import reach


class Hostile:
    """An object that must not be asked for anything."""

    def __init__(self):
        self.w = jnp.ones(2)

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = object.__hash__

    @property
    def trap(self):
        raise RuntimeError("a property was called")


@dataclasses.dataclass(frozen=True)
class Frozen:
    w: object


class Slots:
    __slots__ = ("w",)


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize("text", ["w", "l.w", "params['layer1'][0]", "a.b['x'].c[-1]", "d[(1, 'a')]"])
def test_canonical_spelling(text):
    assert str(parse(text)) == text
    assert str(parse(f" {text} ".replace("'", '"'))) == text


def test_steps():
    assert parse("p['a'].b") == Path("p", (Step("item", "a"), Step("attribute", "b")))


@pytest.mark.parametrize(
    "text", ["", "f(x)", "a + b", "x[1:2]", "x[i]", "1", "a.", "f().w", "import x", "x[[1]]"]
)
def test_what_is_no_path(text):
    with pytest.raises(PathError) as e:
        parse(text)
    assert "\n" not in str(e.value)


def test_split():
    assert split_paths("w, params['a,b'], l.w") == ["w", "params['a,b']", "l.w"]
    assert split_paths("d[1, 2],") == ["d[1, 2]"]
    assert split_paths("  ") == []


def test_split_names_the_bad_part():
    with pytest.raises(PathError, match="missing"):
        split_paths("w,,b")


def scope(**names):
    return Scope(names)


def test_put_follows_the_name():
    ns = {"l": types.SimpleNamespace(w=1.0)}
    place = resolve("l.w", Scope(ns))
    ns["l"] = other = types.SimpleNamespace(w=2.0)
    assert place.get() == 2.0 and place.holder() is other
    place.put(3.0)
    assert other.w == 3.0
    assert (place.kind, place.key, place.origin) == ("attribute", "w", "attribute")


def test_put_delete_exists_of_each_kind():
    slots = Slots()
    slots.w = 1.0
    ns = {
        "x": 1.0,
        "d": {"k": 1.0},
        "v": [1.0],
        "f": Frozen(1.0),
        "s": slots,
        "n": types.SimpleNamespace(w=1.0),
    }
    for text in ("x", "d['k']", "v[0]", "f.w", "s.w", "n.w"):
        place = resolve(text, Scope(ns))
        place.put(7.0)
        assert place.get() == 7.0, text
        place.delete()
        assert not place.exists(), text


def test_closure_cell_before_global(cell):
    ns = cell("""\
w = 1.0
def make():
    w = 2.0
    return lambda x: x * w
f = make()
""")
    place = resolve("w", Scope(ns, lambda: reach(ns["f"]).functions))
    assert (place.get(), place.kind) == (2.0, "closure")
    place.put(3.0)
    assert ns["f"](1.0) == 3.0


def test_receiver_comes_first():
    obj = types.SimpleNamespace(w=4.0)
    assert resolve("self.w", Scope({"self": 1}, None, obj)).get() == 4.0
    assert resolve("me.w", Scope({}, None, obj, "me")).get() == 4.0


def test_closure_of_a_helper(cell):
    ns = cell("""\
def make():
    a = 2.0
    return lambda x: x * a
helper = make()
def f(x):
    return helper(x)
""")
    assert resolve("a", Scope(ns, lambda: reach(ns["f"]).functions)).get() == 2.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("l.q", "`l.q`: `l` has no attribute `q`; it has w, b"),
        ("nothing.x", "there is no variable `nothing`"),
        ("d['z']", "`d` has no item 'z'; it has 'a'"),
        ("v[9]", "`v` has 1 items and no number 9"),
        ("h.trap", "`trap` is a property"),
    ],
)
def test_missing_steps(text, says):
    ns = {"l": types.SimpleNamespace(w=1, b=2), "d": {"a": 1}, "v": [1], "h": Hostile()}
    with pytest.raises(PathError) as e:
        resolve(text, Scope(ns))
    assert says in str(e.value)


def test_tuples_are_replaced_whole():
    ns = {"t": (1.0, 2.0), "p": Pair(1.0, jnp.ones(2))}
    for text in ("t[0]", "p.a"):
        with pytest.raises(PathError, match="whole tuple"):
            resolve(text, Scope(ns)).put(3.0)
    assert [p.path for p in leaves_below(resolve("p", Scope(ns)))] == ["p"]


def test_leaves_in_order_and_without_cycles():
    loop = {"w": np.ones(2), "text": "no", "flag": True, "deep": [1.0, {"b": jnp.ones(1)}], "f": print}
    loop["self"] = loop
    slots = Slots()
    slots.w = 2
    ns = {"m": types.SimpleNamespace(d=loop, s=slots, z=Frozen(3j), t=(1.0, 2.0), mixed=(slots, 5.0))}
    found = leaves_below(resolve("m", Scope(ns)))
    assert [p.path for p in found] == [
        "m.d['w']",
        "m.d['deep'][0]",
        "m.d['deep'][1]['b']",
        "m.s.w",
        "m.z.w",
        "m.t",
    ]
    assert [p.path for p in leaves_below(resolve("m", Scope(ns)), limit=2)] == ["m.d['w']", "m.d['deep'][0]"]


def test_a_bool_counts_only_by_its_own_name():
    ns = {"m": types.SimpleNamespace(flag=True, w=1.0)}
    assert [p.path for p in leaves_below(resolve("m", Scope(ns)))] == ["m.w"]
    assert [p.path for p in leaves_below(resolve("m.flag", Scope(ns)))] == ["m.flag"]


def test_hostile_objects_are_not_asked():
    assert [p.path for p in leaves_below(resolve("h", Scope({"h": Hostile()})))] == ["h.w"]

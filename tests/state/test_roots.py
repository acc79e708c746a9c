from __future__ import annotations

import functools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.state.reads import reads_of, writes_of
from jitmagic.state.roots import reach


def paths(r, **kw):
    return [leaf.path for leaf in r.leaves(**kw)]


def test_every_path_of_top(top):
    r = reach(top["top"])
    assert paths(r) == [
        "depth",
        "helper",
        "w",
        "scale",
        "l.w",
        "l.alpha",
        "l.sub[0].k",
        "l.kind",
        "params['layer1'][0]",
        "params['layer1'][1]['b']",
        "nw",
        "nw64",
        "deflt",
        "k",
        "part.args[0]",
        "clos",
        "c",
    ]
    origins = {leaf.path: leaf.origin for leaf in r.leaves()}
    assert origins["scale"] == "helper" and origins["w"] == "global" and origins["k"] == "default"
    assert origins["l.w"] == "attribute" and origins["params['layer1'][0]"] == "global"
    assert "l.unused" in paths(r, used_only=False)
    assert r.functions[0].__name__ == "top" and {f.__name__ for f in r.functions} >= {
        "helper",
        "inner",
        "__call__",
    }
    assert {name for name, *_ in r.modules_used} == {"jax.lax.scan", "jax.vmap"}


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("l.w", ["self.w"]),
        ("scale", ["scale"]),
        ("l.sub[0].k", ["self.sub[0].k"]),
        ("c", ["c"]),
        ("l", ["l"]),
        ("params['layer1'][1]['b']", ['params["layer1"][1]["b"]']),
        ("part.args[0]", ["part"]),
    ],
)
def test_where_paths_are_read(top, path, texts):
    r = reach(top["top"])
    assert [w.text for w in reads_of(path, r.functions)] == texts


def test_spans_are_characters(cell):
    ns = cell('def f(x):\n    é = "ü"; return é, x * größe\ngröße = 2.0')
    (where,) = reads_of("größe", reach(ns["f"]).functions)
    assert (where.line, where.column, where.end_column, where.text) == (2, 27, 32, "größe")
    assert where.source == 'é = "ü"; return é, x * größe' and where.function == "f"


def test_methods_and_receivers(top):
    ns = top
    assert paths(reach(ns["l"].other)) == ["self.unused"]
    assert paths(reach(ns["L"].other, receiver=ns["l"], args=(ns["l"], 1.0))) == ["self.unused"]
    assert "self.alpha" in paths(reach(ns["l"]))


def test_property_is_followed_and_not_called(cell):
    ns = cell("""\
class M:
    def __init__(self): self.raw, self.spare = 2.0, 3.0
    @property
    def rate(self):
        calls.append(1)
        return self.raw
calls = []
m = M()
def f(x):
    return x * m.rate
""")
    assert "m.raw" in paths(reach(ns["f"])) and "m.spare" not in paths(reach(ns["f"])) and ns["calls"] == []


def test_only_the_keys_read(cell):
    ns = cell(
        "cfg = {'lr': .1, 'other': 3}\nrest = {'a': 1.}\ndef f(x):\n"
        "    return x * cfg['lr'] + sum(rest.values())"
    )
    assert paths(reach(ns["f"])) == ["cfg['lr']", "rest['a']"]


def test_whole_objects_given_to_a_library(cell):
    ns = cell(
        "class P:\n    def __init__(self): self.a = 1.0\np = P()\ndef f(x):\n    return jax.tree.leaves(p), x"
    )
    assert paths(reach(ns["f"])) == ["p.a"]


def test_local_names_and_comprehensions_hide_globals(cell):
    ns = cell(
        "w = v = u = 1.0\ndef f(x):\n    w = x\n    g = lambda u: u\n    return [v for v in [w]], g(x), v"
    )
    assert paths(reach(ns["f"])) == ["v"]


def test_wrappers_are_unwrapped(cell):
    ns = cell("""\
import functools
a = b = c = d = e = 1.0
def wrap(f):
    @functools.wraps(f)
    def inner(*args):
        return f(*args) * e
    return inner
one = jax.jit(jax.vmap(lambda x: x * a))
@functools.partial(jax.jit, static_argnums=1)
def two(x, n): return x * b
three = wrap(lambda x: x * c)
class M:
    @staticmethod
    @jax.jit
    def four(x): return x * d
def f(x): return one(x) + two(x, 1) + three(x) + M.four(x)
""")
    assert set("abcde") <= set(paths(reach(ns["f"])))


def test_custom_rules_are_reached(cell):
    ns = cell("""\
k = 2.0
@jax.custom_vjp
def g(x): return x
def fwd(x): return x, None
def bwd(_, t): return (t * k,)
g.defvjp(fwd, bwd)
def f(x): return g(x)
""")
    assert "k" in paths(reach(ns["f"]))


def test_constructors_are_reached_only_where_called(cell):
    ns = cell(
        "a = 1.0\nclass M:\n    def __init__(self): self.z = a\nm = M()\n"
        "def f(x): return m, x\ndef g(x): return M().z"
    )
    assert "a" not in paths(reach(ns["f"])) and "a" in paths(reach(ns["g"]))


def test_user_modules_are_walked_and_library_modules_noted(cell, tmp_path, monkeypatch):
    (tmp_path / "my_config_xyz.py").write_text(
        "lr = 0.1\nother = 5\nfactor = 3.0\ndef scaled(x):\n    return x * factor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    ns = cell(
        "import my_config_xyz as config\nfrom time import time\ndef f(x):\n"
        "    return x * config.lr + config.scaled(x) + np.random.normal() + time()"
    )
    r = reach(ns["f"])
    sys.modules.pop("my_config_xyz")
    assert set(paths(r)) >= {"config.lr", "factor"} and "config.other" not in paths(r)
    assert {"config.lr", "np.random.normal", "time.time"} <= {name for name, *_ in r.modules_used}


def test_a_large_namespace_is_not_walked(cell):
    class Counting(dict):
        looked = 0

        def get(self, *args):
            Counting.looked += 1
            return super().get(*args)

    ns = cell("def f(x):\n    return x * w")
    big = Counting({f"n{i}": i for i in range(10_000)} | ns | {"w": 1.0})
    f = types.FunctionType(ns["f"].__code__, big)
    assert paths(reach(f)) == ["w"] and Counting.looked < 20


def test_without_source():
    ns = {"w": 1.0, "l": types.SimpleNamespace(k=2.0), "np": np}
    exec("def f(x):\n    return [x * w for _ in (1,)], l.k, np.pi\n", ns)
    assert sorted(paths(reach(ns["f"]))) == ["l.k", "w"] and reads_of("w", [ns["f"]]) == ()


def test_hostile_objects(cell):
    ns = cell("""\
class H:
    def __init__(self): self.__dict__["w"] = 1.0
    def __getattr__(self, n): raise RuntimeError
    def __repr__(self): raise RuntimeError
    def __eq__(self, o): raise RuntimeError
    def __hash__(self): raise RuntimeError
    def __bool__(self): raise RuntimeError
    def __len__(self): raise RuntimeError
    __class__ = property(lambda self: 1 / 0)
h = H()
def f(x): return x * h.w
""")
    assert paths(reach(ns["f"])) == ["h.w"]


def test_values_include_containers(cell):
    ns = cell("params = {'a': [jnp.ones(2)]}\ndef f(x): return x + params['a'][0]")
    found = {r.path: r.value for r in reach(ns["f"]).values()}
    assert found["params"] is ns["params"] and found["params['a']"] is ns["params"]["a"]


WRITES = """\
counter = 0; log = []; memo = {}; it = iter([1]); seen = {}
class Net:
    def __init__(self): self.n, self.hist, self.w = 0, [], {}
    def __call__(self, x):
        self.n += 1
        self.hist.append(
            x)
        self.w["k"] = x
        setattr(self, "last", x)
        return x
net = Net()
def f(x):
    global counter
    counter = counter + 1
    if x is not None: log.append(x)
    memo[x] = x
    for k in range(2):
        seen.update(a=next(it))
    del memo["z"]
    return net(x)
"""


@pytest.mark.parametrize(
    ("path", "sources"),
    [
        ("counter", ["counter = counter + 1"]),
        ("log[3]", ["if x is not None: log.append(x)"]),
        ("memo[3]", ["memo[x] = x"]),
        ("memo['z']", ['del memo["z"]']),
        ("net.n", ["self.n += 1"]),
        ("net.hist[0]", ["self.hist.append("]),
        ("net.w['k']", ['self.w["k"] = x']),
        ("it", ["seen.update(a=next(it))"]),
        ("seen", ["seen.update(a=next(it))"]),
        ("self.n", ["self.n += 1"]),
    ],
)
def test_where_paths_are_written(cell, path, sources):
    r = reach(cell(WRITES)["f"])
    assert [w.source for w in writes_of(path, r.functions)] == sources


def test_nonlocal_and_local_lists(cell):
    ns = cell("""\
def outer(x0):
    seen = []
    def step(x, _):
        seen.append(x)
        return x, None
    return step
def setup():
    a = 1.0
    def use(v): return a * v
    def set_a(v):
        nonlocal a
        a = v
    return use, set_a
use, set_a = setup()
""")
    assert [w.text for w in writes_of("seen", [ns["outer"]])] == ["seen.append(x)"]
    assert [w.text for w in writes_of("a", [ns["set_a"]])] == ["a = v"]


def test_cached_functions_are_noted(cell):
    ns = cell("import functools\n@functools.lru_cache\ndef g(n): return n\ndef f(x): return g(3)")
    assert [name for name, _ in reach(ns["f"]).caches] == ["g"]


def test_partial_target():
    def f(p, x):
        return p + x

    r = reach(functools.partial(f, jnp.ones(3)))
    assert [leaf.path for leaf in r.leaves()] == ["partial.args[0]"]
    assert isinstance(r.leaves()[0].value, jax.Array)


@pytest.mark.parametrize("taking", ["seen.clear()", "seen.pop()", "seen.remove(1)"])
def test_what_is_there_comes_from_what_adds_it(cell, taking):
    ns = cell(
        f"seen = [1]\ndef inner(x):\n    seen.append(x)\ndef f(x):\n    {taking}\n    inner(x)\ndef g():\n    {taking}\n"
    )
    assert writes_of("seen[0]", [ns["f"], ns["inner"]])[0].text == "seen.append(x)"
    assert [w.text for w in writes_of("seen[0]", [ns["g"]])] == [taking]

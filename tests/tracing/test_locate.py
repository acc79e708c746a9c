"""Op, span, construct, callee and names of real errors of jax, with and without jax's own frames."""

from __future__ import annotations

import ast
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cells import cell, function

from jitmagic.evidence import Problem
from jitmagic.tracing.compat import full_tracebacks
from jitmagic.tracing.locate import is_user_file, locate

X = jnp.arange(1.0, 5.0)
N = 3


def problem_of(fn: Any, *args: Any, **options: Any) -> Problem:
    try:
        jax.block_until_ready(jax.jit(fn, **options)(*args))
    except Exception as exc:
        return locate(exc)
    raise AssertionError("it traced")


# source, arguments, op, span, construct, callee, names, leaves
CASES = [
    ("def f(x):\n    if x < 3:\n        return x", (2.0,), "bool", "x < 3", "if", "", ("x",), ("x",)),
    ("def f(x, b):\n    if b:\n        return x", (X, True), "bool", "b", "if", "", ("b",), ("b",)),
    ("def f(x):\n    while x.sum() < 9:\n        x = x * 2", (X,), "bool", "x.sum() < 9", "while", "", ("x",), ("x",)),
    ("def f(x):\n    return 1 if x > 0 else 2", (2.0,), "bool", "x > 0", "ifexp", "", ("x",), ("x",)),
    ("def f(x, n):\n    if n.ndim == 0 and x:\n        return n", (1, N), "bool", "x", "and", "", ("x",), ("x",)),
    ("def f(x, n):\n    return x or n", (1, N), "bool", "x", "or", "", ("x",), ("x",)),
    ("def f(x):\n    return not jnp.all(x)", (X,), "bool", "jnp.all(x)", "not", "jnp.all", ("x",), ("x",)),
    ("def f(x):\n    v = x > 0\n    if not jnp.all(v):\n        raise ValueError", (X,), "bool", "jnp.all(v)", "if",
     "jnp.all", ("v",), ("x",)),
    ("def f(k):\n    assert 0 <= k < 5", (N,), "bool", "0 <= k < 5", "compare", "", ("k",), ("k",)),
    ("def f(k):\n    assert k > 1, 'no'", (N,), "bool", "k > 1", "assert", "", ("k",), ("k",)),
    ("def f(k):\n    return k in (1, 2)", (N,), "bool", "k in (1, 2)", "in", "", ("k",), ("k",)),
    ("def f(x):\n    return [i for i in (1, 2) if x > i]", (N,), "bool", "x > i", "comprehension", "", ("x",), ("x",)),
    ("def f(x):\n    return any(x > 0)", (X,), "bool", "any(x > 0)", "call", "any", ("x",), ("x",)),
    ("def f(x, y):\n    return max(x, y)", (1, 2), "bool", "max(x, y)", "call", "max", ("x", "y"), ("x", "y")),
    ("def f(x):\n    match x:\n        case 0: return x\n        case _ if x > 1: return x", (N,), "bool", None, "match",
     "", ("x",), ("x",)),
    ("def f(n):\n    for i in range(n): pass", (N,), "index", "range(n)", "range", "range", ("n",), ("n",)),
    ("def f(x, k):\n    return [jnp.sin, jnp.cos][k](x)", (X, 1), "index", "[jnp.sin, jnp.cos][k]", "subscript", "",
     ("k",), ("k",)),
    ("def f(x):\n    return int(x)", (2.0,), "int", "int(x)", "call", "int", ("x",), ("x",)),
    ("def f(x):\n    return float(x)", (2.0,), "float", "float(x)", "call", "float", ("x",), ("x",)),
    ("def f(x):\n    return complex(x)", (2.0,), "complex", "complex(x)", "call", "complex", ("x",), ("x",)),
    ("def f(x):\n    return x.sum().item()", (X,), "item", "x.sum().item()", "call", ".item", ("x",), ("x",)),
    ("def f(x):\n    return x.tolist()", (X,), "tolist", "x.tolist()", "call", "x.tolist", ("x",), ("x",)),
    ("def f(v):\n    return math.sqrt(v[0] ** 2 + 1)", (X,), "float", "math.sqrt(v[0] ** 2 + 1)", "call", "math.sqrt",
     ("v",), ("v",)),
    ("def f(x):\n    return np.cos(x)", (X,), "array", "np.cos(x)", "call", "np.cos", ("x",), ("x",)),
    ("def f(x):\n    return np.asarray(~jnp.isnan(x))", (X,), "array", "np.asarray(~jnp.isnan(x))", "call",
     "np.asarray", ("x",), ("x",)),
    ("def f(x):\n    log = []\n    h = x + 1\n    log.append(np.histogram(h, bins=4)[0])", (X,), "array",
     "np.histogram(h, bins=4)", "call", "np.histogram", ("h",), ("x",)),
    ("def f(x, m):\n    return x[m == 1].mean()", (X, jnp.arange(4)), "boolean-mask", "x[m == 1]", "subscript", "",
     ("m", "x"), ()),
    ("def f(x, s):\n    return x[s:s + 2]", (X, 1), "slice", "x[s:s + 2]", "slice", "", ("s", "x"), None),
    ("def f(x, s):\n    return x.at[:s].set(0)", (X, 1), "slice", "x.at[:s].set(0)", "call", ".set", ("s", "x"), None),
    ("def f(n):\n    return jnp.zeros(n)", (N,), "shape", "jnp.zeros(n)", "call", "jnp.zeros", ("n",), ("n",)),
    ("def f(n):\n    return jnp.arange(n)", (N,), "shape", "jnp.arange(n)", "call", "jnp.arange", ("n",), ("n",)),
    ("def f(n):\n    return jnp.linspace(0, 1, n)", (N,), "shape", "jnp.linspace(0, 1, n)", "call", "jnp.linspace",
     ("n",), ("n",)),
    ("def f(x):\n    m = jnp.prod(jnp.array(x.shape))\n    return x.reshape(m)", (X,), "shape", "x.reshape(m)", "call",
     "x.reshape", ("m",), ()),
    ("def f(m, r, n):\n    return jax.ops.segment_sum(m, r, num_segments=n)", (X, jnp.arange(4), 4), "shape",
     "jax.ops.segment_sum(m, r, num_segments=n)", "call", "jax.ops.segment_sum", ("n",), ("n",)),
    ("def f(x):\n    return jnp.nonzero(x)", (X,), "boolean-mask", "jnp.nonzero(x)", "call", "jnp.nonzero", ("x",), ("x",)),
    ("def f(x):\n    return jnp.where(x > 0)", (X,), "boolean-mask", "jnp.where(x > 0)", "call", "jnp.where", ("x",), ("x",)),
    ("def f(x):\n    return jnp.unique(x)", (X,), "boolean-mask", "jnp.unique(x)", "call", "jnp.unique", ("x",), ("x",)),
    ("def f(x, n):\n    return jnp.repeat(x, n)", (X, 2), "shape", "jnp.repeat(x, n)", "call", "jnp.repeat",
     ("n",), ("n",)),
    ("def f(k, n):\n    return jax.random.choice(k, 5, (n,))", (jax.random.key(0), 2), "shape",
     "jax.random.choice(k, 5, (n,))", "call", "jax.random.choice", ("n",), ("n",)),
    ("def f(x, n):\n    return jnp.tile(x, (n, 1))", (X, 2), "shape", "jnp.tile(x, (n, 1))", "call", "jnp.tile",
     ("n",), ("n",)),
    ("def f(k):\n    return {1: 2}[k]", (N,), "hash", "{1: 2}[k]", "subscript", "", ("k",), ()),
    ("@functools.lru_cache\ndef g(a):\n    return a\ndef f(k):\n    return g(k) + 1", (N,), "hash", "g(k)", "call", "g",
     ("k",), ()),
    ("def f(w):\n    print(f'now {w:.3f}')", (2.0,), "format", "f'now {w:.3f}'", "fstring", "", ("w",), ()),
    ("def f(w):\n    return '%.2f' % w", (2.0,), "format", "'%.2f' % w", "other", "", ("w",), ("w",)),
    ("def f(x):\n    x[0] = 1.0", (X,), "setitem", "x[0]", "assign", "", ("x",), ()),
    ("def f(grid, cells, mass):\n    grid[cells] += mass", (X, jnp.arange(2), 2.0), "setitem", "grid[cells]", "augassign",
     "", ("grid", "cells", "mass"), ()),
    ("def f(x):\n    buf = np.zeros(4)\n    buf[0] = x[1]", (X,), "setitem", "buf[0]", "assign", "", ("buf", "x"), ("x",)),
    ("def f(x):\n    def g(c, v):\n        if c > 0:\n            c = c + v\n        return c, v\n"
     "    return jax.lax.scan(g, 0.0, x)", (X,), "bool", "c > 0", "if", "", ("c",), ()),
    ("def f(x):\n    @jax.jit\n    def g(y):\n        return 1 if y > 0 else 2\n    return g(x)", (2.0,), "bool", "y > 0",
     "ifexp", "", ("y",), ("x",)),
    ("def f(x):\n    @jax.jit\n    def g(y, k):\n        return 1 if y['a'] > k else 2\n    def h(z):\n        return g({'a': z}, k=1)\n    return h(x + 1)", (2.0,), "bool", "y['a'] > k",
     "ifexp", "", ("y",), ("x",)),
    ("def f(x):\n    return jax.vmap(lambda t: t if t > 0 else -t)(x)", (X,), "bool", "t > 0", "ifexp", "", ("t",), ()),
    ("def f(x):\n    def go(v):\n        return not jnp.allclose(v, 1.0)\n    return jax.lax.while_loop(go, jnp.sqrt, x)",
     (9.0,), "bool", "jnp.allclose(v, 1.0)", "not", "jnp.allclose", ("v",), ()),
    ("def f(x):\n    return jax.lax.fori_loop(0, 3, lambda i, c: c if i > 1 else c, x)", (2.0,), "bool", "i > 1", "ifexp",
     "", ("i",), ()),
    ("def f(n, r):\n    return jax.lax.cond(n > 1, lambda: (r, n), lambda: r)", (N, X), "carry",
     "jax.lax.cond(n > 1, lambda: (r, n), lambda: r)", "call", "jax.lax.cond", ("r", "n"), ()),
    ("def f(n, r):\n    def g(_):\n        return n, jnp.sum(r)\n    return jax.lax.cond(n > 1, g, lambda _: (n, 0), None)", (N, X),
     "carry", "jax.lax.cond(n > 1, g, lambda _: (n, 0), None)", "call", "jax.lax.cond", ("r", "n"), ()),
    ("def f(x):\n    def g(n_pos, v):\n        return n_pos + jnp.where(v > 0, 0.5, 1.0), v\n"
     "    return jax.lax.scan(g, jnp.int32(0), x)[0]", (X,), "carry", "jax.lax.scan(g, jnp.int32(0), x)", "call",
     "jax.lax.scan", ("n_pos", "x"), ()),
    ("def f(n, r):\n    def g(i, s):\n        first, second = s\n        return first, jnp.ones(2)\n"
     "    return jax.lax.fori_loop(0, 3, g, (r, 0.0))", (N, X), "carry",
     "jax.lax.fori_loop(0, 3, g, (r, 0.0))", "call", "jax.lax.fori_loop", ("second", "s[1]", "s"), ()),
    ("def f(n, r):\n    def g(i, s):\n        first, second = s\n        return first, jnp.ones(2)\n"
     "    return jax.lax.fori_loop(0, n, g, (r, 0.0))", (N, X), "carry",
     "jax.lax.fori_loop(0, n, g, (r, 0.0))", "call", "jax.lax.fori_loop", ("second", "s[1]", "s"), ()),
    ("def f(n, r):\n    def g(loop_carry, _):\n        return (loop_carry[0], jnp.ones(2)), None\n"
     "    return jax.lax.scan(g, (r, 0.0), None, 3)", (N, X), "carry",
     "jax.lax.scan(g, (r, 0.0), None, 3)", "call", "jax.lax.scan", ("loop_carry[1]", "loop_carry"), ()),
    ("def f(x):\n    seen = []\n    def g(c, _):\n        c = c * 2\n        seen.append(c)\n        return c, None\n"
     "    jax.lax.scan(g, x, None, length=2)\n    return jnp.stack(seen)", (2.0,), "leak", "seen.append(c)", "call", "",
     ("seen",), ()),
    ("class Log:\n    seen = []\n    def note(self, v):\n        self.seen.append(v)\n\ndef f(x):\n    log = Log()\n"
     "    def g(c, _):\n        log.note(c * 2)\n        return c * 2, None\n"
     "    jax.lax.scan(g, x, None, length=2)\n    return jnp.stack(log.seen)", (2.0,), "leak", "self.seen.append(v)", "call", "",
     ("log.seen",), ()),
    ("def f(x):\n    raise ValueError('mine')", (X,), "user", "raise ValueError('mine')", "other", "", (), ()),
]  # fmt: skip


@pytest.mark.parametrize("frames", ["all", "filtered"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[2]}-{c[4]}-{c[3]}")
def test_place_and_names(case: Any, frames: str) -> None:
    source, args, op, span, construct, callee, names, leaves = case
    fn = function(source)
    if frames == "all":
        with full_tracebacks():
            problem = problem_of(fn, *args)
    else:
        problem = problem_of(fn, *args)
    assert problem.where is not None
    found = (problem.op, problem.construct)
    assert found == (op, construct), problem
    if span is not None:
        assert problem.where.text == span
    assert problem.callee == callee
    if names is not None:
        assert problem.locals[: len(names)] == names
    if leaves is not None and frames == "all":
        assert problem.leaves == leaves
    assert problem.where.source in source


def test_columns_are_characters_after_other_scripts() -> None:
    problem = problem_of(function("def f(x):\n    é = 'žluťoučký'; y = 3 if x > 0 else 4"), 2.0)
    line = "    é = 'žluťoučký'; y = 3 if x > 0 else 4"
    assert problem.where is not None
    assert line[problem.where.column : problem.where.end_column] == "x > 0" == problem.where.text


def test_multi_line_expression_keeps_its_first_line() -> None:
    problem = problem_of(function("def f(n):\n    return jnp.zeros(\n        (n, 2),\n    )"), N)
    assert problem.where is not None
    assert problem.where.source == "return jnp.zeros("
    assert (problem.where.line, problem.where.end_line) == (7, 9)


def test_duplicated_loop_condition_takes_the_right_operand() -> None:
    fn = function("def f(x):\n    i = 0\n    while i < 1 or (i < 2 and x):\n        i += 1")
    problem = problem_of(fn, N)
    assert problem.where is not None and problem.where.text == "x"


def test_a_cell_with_magics_still_has_a_tree() -> None:
    text = "%%jit -q\n!ls\ndef f(x):\n    %time 3\n    if x:\n        pass\n"
    from jitmagic.source.tree import tolerant_tree

    tree = tolerant_tree(text)
    assert tree is not None
    assert [n.lineno for n in ast.walk(tree) if isinstance(n, ast.If)] == [5]


class Plain:
    pass


@pytest.mark.parametrize(
    ("args", "kwargs", "op", "leaves"),
    [
        ((X, "s"), {}, "invalid-type", ("n",)),
        ((X, {"a": [Plain()]}), {}, "invalid-type", ("n['a'][0]",)),
        ((X, [1]), {"static_argnums": 1}, "unhashable", ()),
        ((X, X), {"static_argnums": 1}, "unhashable", ()),
        ((X, 1), {"static_argnums": 2}, "static-spec", ()),
        ((X, 1), {"static_argnames": "q"}, "static-spec", ("q",)),
    ],
)
def test_binding_errors_name_arguments_and_no_place(args: Any, kwargs: Any, op: str, leaves: Any) -> None:
    problem = problem_of(function("def f(x, n):\n    return x"), *args, **kwargs)
    assert (problem.op, problem.leaves, problem.where) == (op, leaves, None)


def test_donated_and_aux_data() -> None:
    gone = jnp.ones(3)
    gone.delete()
    assert problem_of(lambda x: x + 1, gone).op == "donated"
    names = cell(
        "@jax.tree_util.register_pytree_node_class\nclass A:\n"
        "    def __init__(self, a, b): self.a, self.b = a, b\n"
        "    def tree_flatten(self): return (self.a,), self.b\n"
        "    @classmethod\n    def tree_unflatten(cls, aux, kids): return cls(kids[0], aux)\n"
    )
    jitted = jax.jit(lambda s: s.a)
    jitted(names["A"](X, np.ones(3)))
    with pytest.raises(ValueError) as caught:
        jitted(names["A"](X, np.zeros(3)))
    assert locate(caught.value).op == "aux-data"


def test_a_traced_static_of_an_inner_jit() -> None:
    source = (
        "@functools.partial(jax.jit, static_argnums=1)\ndef g(x, k):\n    return x * k\n"
        "def f(x, k):\n    return g(x, k)"
    )
    problem = problem_of(function(source), X, 2)
    assert problem.op == "unhashable"
    assert problem.where is not None and problem.where.text == "g(x, k)"
    assert (problem.locals, problem.leaves) == (("k",), ("k",))


@pytest.mark.parametrize("call", ["np.copyto(x, y)", "np.maximum.at(x, 0, y)", "np.put(x, 0, y)"])
def test_numpy_that_writes_into_a_traced_array(call: str) -> None:
    problem = problem_of(function(f"def f(x, y):\n    {call}\n    return x"), X, X)
    assert (problem.op, problem.locals[0]) == ("setitem", "x")


def test_prefer_takes_the_frame_of_the_given_file() -> None:
    helper = cell("def g(x):\n    return float(x)")
    outer = cell("def f(x):\n    return g(x) + 1")
    outer["g"] = helper["g"]
    with pytest.raises(TypeError) as caught:
        jax.jit(outer["f"])(2.0)
    inner = locate(caught.value).where
    chosen = locate(caught.value, prefer=outer["f"].__code__.co_filename).where
    assert inner is not None and inner.text == "float(x)"
    assert chosen is not None and chosen.text == "g(x)"


def test_attribute_paths_are_names() -> None:
    names = cell("class M:\n    pass\ndef f(m, x):\n    m.w = x\n    return float(m.w)")
    with pytest.raises(TypeError) as caught:
        jax.jit(lambda x: names["f"](names["M"](), x))(2.0)
    assert locate(caught.value).locals == ("m.w",)


def test_the_arrays_of_an_expression_that_fails_by_itself() -> None:
    fn = function("def f(x):\n    p = {'w': jnp.ones((10, 3))}\n    return (lambda y: y)(x) @ p['w']")
    try:
        jax.jit(fn)(X)
    except TypeError as exc:
        assert locate(exc).forms == (("x", f"f32[{','.join(map(str, X.shape))}]"), ("p['w']", "f32[10,3]"))


def test_what_is_user_code() -> None:
    assert is_user_file(function("def f(x):\n    return x").__code__.co_filename)
    assert is_user_file(__file__)
    assert not is_user_file(jax.__file__)
    assert not is_user_file(np.__file__)
    assert not is_user_file(ast.__file__)
    assert not is_user_file("<frozen importlib._bootstrap>")
    assert not is_user_file("bit_generator.pyx")


def test_what_is_installed_into_a_directory_of_ones_own_is_no_code_of_the_users(tmp_path, monkeypatch):
    """As by `pip install --target`; what lies beside the notebook stays the user's."""
    for name in ("installed", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text("x = 1\n")
        monkeypatch.syspath_prepend(str(tmp_path / name))
    (tmp_path / "installed" / "module-1.0.dist-info").mkdir()
    assert not is_user_file(str(tmp_path / "installed" / "module.py"))
    assert is_user_file(str(tmp_path / "mine" / "module.py"))


BODIES = {
    "a lambda that hands on": ("", "lambda i, s: grow(s, 2.0)"),
    "a partial": ("", "functools.partial(lambda k, i, s: grow(s, k), 2.0)"),
    "a partial with a name": ("step = functools.partial(grown, k=2.0)", "step"),
    "a method": ("", "Net().step"),
    "a method of an object": ("net = Net()", "net.step"),
    "a static method": ("", "Net.fixed"),
    "a compiled function": ("step = jax.jit(lambda i, s: grow(s, 2.0))", "step"),
    "an object that is called": ("call = Call()", "call"),
    "three deep": ("again = lambda i, t: Net().step(i, t)", "lambda i, u: again(i, u)"),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_line_of_a_body_is_found_through_what_only_hands_its_state_on(name: str) -> None:
    made, body = BODIES[name]
    problem = problem_of(
        function(
            "import functools\ndef grow(state, k):\n    first, second = state\n    second = second * k * jnp.ones(3)\n"
            "    return first, second\n\ndef grown(i, s, k):\n    return grow(s, k)\n\nclass Net:\n    def step(self, i, s):\n"
            "        return grow(s, 2.0)\n\n    @staticmethod\n    def fixed(i, s):\n        return grow(s, 2.0)\n\nclass Call:\n    def __call__(self, i, s):\n        return grow(s, 2.0)\n\n"
            f"{made}\ndef f(x, n):\n    return jax.lax.fori_loop(0, n, {body}, (x, 0.0))"
        ),
        X,
        N,
    )
    assert problem.op == "carry"
    assert problem.locals[0] == "second"
    assert problem.inside is not None and problem.inside.source == "second = second * k * jnp.ones(3)"


def test_what_a_body_changes_before_it_hands_it_on_is_the_bodys() -> None:
    source = (
        "def clip(low, high):\n    return jnp.minimum(low, high)\n\ndef f(x, n):\n    def body(i, s):\n        wide = s * jnp.ones(3)\n"
        "        return clip(s, wide)\n    return jax.lax.fori_loop(0, n, body, 0.0)"
    )
    problem = problem_of(function(source), X, N)
    assert problem.inside is not None and problem.inside.source == "return clip(s, wide)"


def test_a_body_that_closes_over_what_is_bound_later_is_found() -> None:
    source = (
        "def f(x, n):\n    def body(i, s):\n        return late(s) if i is None else s * jnp.ones(3)\n"
        "    out = jax.lax.fori_loop(0, n, body, 0.0)\n    late = jnp.sin\n    return out"
    )
    problem = problem_of(function(source), X, N)
    assert (problem.op, problem.locals[0]) == ("carry", "s") and problem.inside is not None

"""Not finite, cut to 32 bits, lost on the way through a pytree, written out turn by turn."""

from __future__ import annotations

import pytest

from tests.silent.cells import facts, finding, lines

NAN = [
    ("def f(x):\n    p = x / 2\n    return jnp.log(p)\n", "f(-1.0)", "return jnp.log(p)"),
    ("def f(x):\n    n = jnp.sum(x)\n    y = x / n\n    return y + 1\n", "f(jnp.zeros(2))", "y = x / n"),
    ("def loss(w):\n    return jnp.where(w > 0, jnp.log(w), 0.0)\ndef f(w):\n    return jax.grad(loss)(w)\n", "f(0.0)", "return jnp.where(w > 0, jnp.log(w), 0.0)"),
    ("def f(x):\n    e = jnp.exp(x)\n    return e / (1 + e)\n", "f(200.0)", "e = jnp.exp(x)"),
    ("def f(x):\n    def step(c, _):\n        c = c * 1e30\n        return c, c\n    return jax.lax.scan(step, x, None, length=4)[0]\n", "f(1.0)", "c = c * 1e30"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "call", "line"), NAN)
def test_the_first_operation_that_is_not_finite(cell: str, call: str, line: str) -> None:
    assert lines(facts(cell, call).not_finite) == [line]


@pytest.mark.parametrize(
    ("cell", "call"),
    [
        ("def f(x):\n    return jax.nn.softmax(jnp.where(x > 0, x, -jnp.inf))\n", "f(jnp.arange(3.0))"),
        ("def f(x):\n    return jnp.minimum(jnp.inf, jnp.where(x > 5, x, jnp.inf))\n", "f(jnp.arange(3.0))"),
        ("def f(x):\n    return x + 1\n", "f(jnp.array([jnp.nan, 1.0]))"),
        ("def f(x):\n    return jnp.where(x > 0, x, jnp.nan) * 2\n", "f(jnp.arange(3.0))"),
        ("def f(x):\n    return jnp.where(x > 0, jnp.log(x), 0.0)\n", "f(0.0)"),
    ],
)
def test_infinities_that_are_meant_and_nan_that_is_given(cell: str, call: str) -> None:
    assert facts(cell, call).not_finite == ()


def test_arguments_that_do_not_fit_into_32_bits() -> None:
    cell = "def f(a, b, c, d):\n    return a[0] + b[0] + c[0] + d\n"
    found = facts(cell, "f(np.array([2**32 + 5]), np.array([1.5]), np.array([2.0**24 + 1]), 3)").truncated
    assert sorted(t.names for t in found) == [("a",), ("c",)]


def test_round_numbers_and_python_floats_lose_nothing_that_counts() -> None:
    cell = "def f(a, b):\n    return a[0] / b\n"
    assert facts(cell, "f(np.array([1.5e11, 5.79e10]), 299792458.0)").truncated == ()
    assert len(facts(cell, "f(np.array([299792458.0]), 1e300)").truncated) == 2
    assert facts(cell, "f(np.array([1.0, 1e-60]), 2.0)").truncated == ()


def test_arrays_from_outside_count_where_the_program_holds_what_is_left_of_them() -> None:
    cell = "K = np.array([2**32 + 5])\n\ndef g(i):\n    return K[i] % 1000\n\ndef f(x):\n    return x + {}\n"
    found = facts(cell.format("jnp.asarray(K)"), "f(1)").truncated
    assert [(t.names, t.before, t.origin) for t in found] == [(("K",), "int64", "constant")]
    assert facts(cell.format("g(0)"), "f(1)").truncated == ()


@pytest.mark.parametrize("wide", ["jnp.float64", "WIDE", "OWN", "PLACE.wide"])
def test_a_dtype_that_is_asked_for_and_not_given(wide: str) -> None:
    cell = (
        "WIDE = jnp.float64\nOWN = np.dtype('float64')\nclass PLACE:\n    wide = np.float64\nHALF = np.float16\nW = np.ones(3)\n"
        f"def f(x):\n    y = jnp.zeros(3, dtype={wide}) + jnp.asarray(W, HALF) + jnp.asarray(W, float)\n"
        "    return y + x.astype(np.float32)\n"
    )
    found = facts(cell, "f(jnp.ones(3))").truncated
    assert [(t.before, t.after) for t in found] == [("float64", "float32")]


def test_loops_written_out() -> None:
    cell = "def f(x):\n    for i in range(40):\n        x = x + jnp.sin(x) * i\n    for _ in range(3):\n        x = x + 1\n    return x\n"
    (found,) = facts(cell, "f(1.0)").unrolled
    assert (found.where.source, found.turns, found.names) == ("for i in range(40):", 40, ("i",))


def test_a_loop_in_lax_is_not_written_out() -> None:
    cell = "def f(x):\n    return jax.lax.fori_loop(0, 500, lambda i, s: s + jnp.sin(s), x)\n"
    assert facts(cell, "f(1.0)").unrolled == ()


PYTREE = """\
@jax.tree_util.register_pytree_node_class
class P:
    def __init__(self, a, k=1):
        self.a, self.k = a, k

    def tree_flatten(self):
        return {flat}

    @classmethod
    def tree_unflatten(cls, aux, children):
        return {made}

def f(p, x):
    return p.a * x ** p.k
"""


def test_a_field_that_tree_flatten_forgets() -> None:
    cell = PYTREE.format(flat="(self.a,), None", made="cls(*children)")
    found = finding("lossy-pytree", cell, "f(P(2.0, k=3), 2.0)")
    assert found.span is not None and found.span.source == "return (self.a,), None"
    assert found.culprits[:2] == ("p", "P")
    assert found.fixes and found.fixes[0].verified and "self.k" in (found.fixes[0].cell or "")


def test_a_complete_pytree_loses_nothing() -> None:
    cell = PYTREE.format(flat="(self.a,), (self.k,)", made="cls(*children, *aux)")
    assert facts(cell, "f(P(2.0, k=3), 2.0)").lossy == ()


def test_a_field_that_the_functions_of_a_registration_forget() -> None:
    cell = (
        "class P:\n    def __init__(self, a):\n        self.a, self.k = a, 1.0\n\n"
        "def flat(p):\n    return (p.a,), None\n\ndef made(aux, children):\n    return P(*children)\n\n"
        "jax.tree_util.register_pytree_node(P, flat, made)\n\ndef f(p):\n    return p.a * p.k\n"
    )
    found = finding("lossy-pytree", cell, "p = P(2.0)\np.k = 3.0\nf(p)")
    assert found.span is not None and found.span.source == "return (p.a,), None"
    assert found.fixes and found.fixes[0].verified and "return (p.a,), (p.k,)" in (found.fixes[0].cell or "")


def test_an_array_among_the_settings() -> None:
    cell = PYTREE.format(flat="(self.k,), (self.a,)", made="cls(*aux, *children)")
    found = finding("array-in-aux-data", cell, "f(P(jnp.ones(2), 3.0), 2.0)", "f(P(jnp.zeros(2), 3.0), 2.0)")
    assert found.culprits[0] == "a"
    assert found.fixes and found.fixes[0].verified


CURVE = """
@jax.tree_util.register_pytree_node_class
class Curve:
    def __init__(self, knots):
        self.knots, self.slope, self.bend = knots, jnp.ones(2), jnp.eye(2)

    def tree_flatten(self):
        return (self.knots, self.slope, self.bend), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        knots, slope, bend = children
        curve = cls(knots)
        {put}
        return curve

def f(c, x):
    return x * c.slope @ c.bend * c.knots.sum()
"""


def test_children_that_do_not_come_back_are_found_before_they_have_changed() -> None:
    found = finding("lossy-pytree", CURVE.format(put="pass"), "f(Curve(jnp.arange(3.)), 2.0)")
    assert found.culprits == ("slope", "bend", "Curve", "c") and "does not put them back" in found.message
    assert found.span is not None and found.span.source == "return curve"


def test_children_that_come_back_are_not_lost() -> None:
    cell = CURVE.format(put="curve.slope, curve.bend = slope, bend")
    assert facts(cell, "f(Curve(jnp.arange(3.)), 2.0)").lossy == ()


def test_a_class_that_refuses_other_values_is_left_alone() -> None:
    cell = CURVE.format(put="assert bend[0, 1] == 0")
    assert facts(cell, "f(Curve(jnp.arange(3.)), 2.0)").lossy == ()


def test_all_arrays_among_the_settings_are_named() -> None:
    cell = CURVE.format(put="pass").replace(
        "(self.knots, self.slope, self.bend), None", "(), (self.knots, self.slope, self.bend)"
    )
    cell = cell.replace("= children", "= aux")
    (fact,) = facts(cell, "f(Curve(jnp.arange(3.)), 2.0)").arrays_in_aux
    assert (fact.field, *fact.others) == ("knots", "slope", "bend")


@pytest.mark.parametrize(
    ("cell", "call", "words"),
    [
        ("def f(t, i):\n    return t[i] + 1\n", "f(np.ones(3), 5)", "index out of bounds"),
        ("def f(n, d):\n    return n % d\n", "f(3, 0)", "division by zero"),
    ],
)
def test_python_raises_where_the_program_goes_on(cell: str, call: str, words: str) -> None:
    found = finding("jit-differs-from-eager", cell, call)
    assert words in found.message and found.severity == "error"
    assert found.span is not None and found.span.source == cell.splitlines()[1].strip()

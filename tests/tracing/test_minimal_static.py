"""The static search: the smallest set, its spelling, the number of traces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from cells import cell, function

from jitmagic.tracing.minimal_static import smallest_static
from jitmagic.tracing.stages import counted

X = jnp.ones(3)
KINDS = {
    1: "def f(x, n):\n    return sum(x * i for i in range(n))",
    2: "def f(x, n, flag):\n    if flag: x = x + 1\n    return sum(x * i for i in range(n))",
    3: "def f(x, n, flag, m):\n    if flag: x = x + 1\n    return sum(x * i for i in range(n)) + jnp.zeros(m).sum()",
}
VALUES: dict[str, Any] = {"n": 3, "flag": True, "m": 2}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_leaves_take_at_most_2k_traces(k: int, known: bool) -> None:
    names = list(VALUES)[:k]
    fn = function(KINDS[k])
    with counted() as counts:
        found = smallest_static(fn, (X, *(VALUES[n] for n in names)), {}, suspects=names if known else ())
        jax.block_until_ready(jax.jit(fn, static_argnames=found.argnames)(X, *(VALUES[n] for n in names)))
    assert set(found.argnames) == set(found.leaves or ()) == set(names)
    assert found.traces <= 2 * k
    assert counts.traces("f") <= 2 * k + 1


@pytest.mark.parametrize(
    ("source", "args", "kwargs", "leaves", "argnames", "argnums"),
    [
        ("def f(x, s):\n    return x if s == 'a' else -x", (X, "a"), {}, ("s",), ("s",), ()),
        ("def f(x, g):\n    return g(x)", (X, jnp.sin), {}, ("g",), ("g",), ()),
        ("def f(x, *n):\n    return jnp.zeros(n)", (X, 2, 3), {}, ("n[0]", "n[1]"), (), (1, 2)),
        ("def f(x, **o):\n    return x if o['flag'] else -x", (X,), {"flag": True}, ("flag",), ("flag",), ()),
        ("def f(x, dims):\n    return jnp.zeros(dims)", (X, (2, 3)), {}, ("dims",), ("dims",), ()),
        (
            "def f(x, n, flag):\n    return x if flag else jnp.zeros(n)",
            (X, 3, True),
            {},
            ("flag",),
            ("flag",),
            (),
        ),
    ],
)
def test_spelling(
    source: str, args: Any, kwargs: Any, leaves: tuple[str, ...], argnames: Any, argnums: Any
) -> None:
    fn = function(source)
    found = smallest_static(fn, args, kwargs)
    assert (found.leaves, found.argnames, tuple(sorted(found.argnums))) == (leaves, argnames, argnums)
    jax.jit(fn, static_argnames=found.argnames, static_argnums=found.argnums or None).trace(*args, **kwargs)


def test_declared_ones_are_in_the_whole_list() -> None:
    found = smallest_static(
        function("def f(n, m):\n    return jnp.zeros(n * m)"), (2, 3), {}, static_argnames=["n"]
    )
    assert set(found.argnames) == {"n", "m"} and found.leaves == ("m",)


class Loader:
    def __init__(self) -> None:
        self.n = 3


@pytest.mark.parametrize(
    ("source", "value", "reason"),
    [
        ("def f(x, n):\n    return x[n > 1]", X, None),
        ("def f(x, n):\n    return jnp.zeros(n)", jnp.int32(3), "an array"),
        ("def f(x, n):\n    return jnp.zeros(n)", [2, 3], "a list: pass a tuple"),
        ("def f(x, n):\n    return jnp.zeros(n.n)", Loader(), "an object that can change"),
    ],
)
def test_never_static(source: str, value: Any, reason: str | None) -> None:
    found = smallest_static(function(source), (X, value), {})
    assert found.leaves is None and found.argnames == ()
    assert dict(found.refused).get("n") == reason


def test_errors_on_the_way_name_the_users_leaves() -> None:
    found = smallest_static(function(KINDS[2]), (X,), {"n": 3, "flag": True})
    assert [(p.op, p.leaves) for p in found.errors] == [("bool", ("flag",)), ("index", ("n",))]


def test_helpers_jitted_by_the_user_are_not_poisoned() -> None:
    names = cell("@jax.jit\ndef g(v):\n    return v * 2\ndef f(x, n):\n    return g(x) + jnp.zeros(n)")
    assert smallest_static(names["f"], (X, 3), {}).leaves == ("n",)
    assert (names["f"](X, 3) == 2).all() and (names["g"](X) == 2).all()

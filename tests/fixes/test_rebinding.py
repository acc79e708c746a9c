"""Stores as rebindings: what NumPy changes in place, arrays of jax become."""

from __future__ import annotations

import ast
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.fixes.change import Shape, Spot
from jitmagic.fixes.search import shape_of
from jitmagic.fixes.stores.rebinding import rebinding, rebound, stores_of
from jitmagic.source.edits import Text
from jitmagic.source.modules import Modules

MODULES = Modules({"np": "numpy", "J": "jax.numpy", "maximum": "jax.numpy.maximum"})

STATEMENTS = (
    "x[0] = v", "x[-1, 1:] = v * 2", "x[i] += y", "x[i, j] -= v - 1", "x[i][j] *= v", "x[i][1:] /= 2", "x[0][j] **= 2",
    "x[i] //= 2", "x[0] %= v", "x[1:][0] = y", "x[:, 1][0] = v", "x[..., 0] = 7", "x[None, 0] = v", "x[(0, 1)] = v",
    "x[[0, 2]] = v", "x[0] = [1, 2, 3]", "x[:, 0] = 1, 2, 3", "x[:] = x[::-1]",
    "x[0] = x[1] = y + 1", "s = x[0, 0] = v * 2", "x[0, 0], x[1, 1] = v, v + 1", "x[0, 0], z[1] = v, v + 1",
    "x[0, 0], s = v, v + 1", "x[0, 0], x[0, 1] = z[:2]", "[x[0, 0], z[0]] = z[1:]",
    "x[x > v] = 0", "x[x > v] -= 1", "x[~(x > v)] *= x[~(x > v)]", "x[(x > v) & (x < 7)] = z[0]", "x[z > 1] = 0.0",
    "x[z > 1] += y", "x[i][y > 1] = 0", "x[z > 1, 0] *= -1", "x[:, z > 1] = v", "x[z > 1, 1:] = 0", "x[0, z > 1] += z[0]",
    "x[x[:, 0] > 4, 1] = x[x[:, 0] > 4, 1] * 2", "x[z > 1, :2] = y[:2]", "x[x < 3] **= 2", "x[0] = np.maximum(x[0], v)", "x[0] = maximum(v, x[0])",
    "x.T[0] = z", "x.T[0][1] = v", "x.transpose()[0] += 1", "x.ravel()[4] = v", "x.flat[2:4] = v",
    "x.reshape(-1)[3] *= v", "np.swapaxes(x, 0, 1)[0] = z", "x[1:].T[0] = v", "x.squeeze()[0] = v", "c.real[0] = v",
    "c.imag[:] += 1", "d['w'][0] = v", "d['w'][1] += d['w'][0]", "d['n']['b'][j] = v", "o.w[0] -= v", "o.d['w'][j] = v",
    "np.add.at(x, 0, y)", "np.subtract.at(x, (i, j), v)", "np.maximum.at(z, [0, 1], v)", "np.add.at(x[0], 1, v)",
    "np.fill_diagonal(x, v)", "np.copyto(x, y)", "np.copyto(z, y, where=y > 1)", "np.putmask(z, z > 1, y)",
    "np.put(z, 1, v)", "np.add(z, y, out=z)", "np.divide(z, y, out=z, where=y > 1)", "np.multiply(z, 2, out=x[0])",
    "x.fill(v)", "z.sort()", "z[::-1].sort()", "x[0].fill(v)", "x.clip(1, 3, out=x)",
    "x[0] = (\n    y  # one\n    + 1\n)", "x[0, 0] = (v if i else\n           0)", "x[\n    0\n] += v  # first", "(x[0]) = v",
)  # fmt: skip


def spot(cell: str) -> Spot:
    return Spot(Text(cell), "", 1, modules=MODULES, probe=probe)


def probe(cell: str) -> list[Shape]:
    seen: list[Shape] = []

    def note(value: Any) -> Any:
        seen.append(shape_of(value))
        return value

    exec(cell, {**names(np), "__seen__": note})
    return seen


def names(by: Any) -> dict[str, Any]:
    def array(values: Any) -> Any:
        return by.array(np.array(values, np.float32))

    class Object:
        w, d = array([1, 2, 3]), {"w": array([1, 2, 3])}

    x = array([[4, 2, 9], [7, 1, 3], [0, 8, 5]])
    d = {"w": array([1, 2, 3]), "n": {"b": array([4, 5])}}
    return {
        "x": x, "y": array([1, 2, 3]), "z": array([3, 1, 2]), "c": by.array(np.array([1 + 2j, 3j], np.complex64)),
        "d": d, "o": Object(), "v": by.float32(2.5), "i": 1, "j": 0, "np": np, "J": jnp, "maximum": by.maximum,
        "jax": __import__("jax"),
    }  # fmt: skip


def values(namespace: dict[str, Any]) -> dict[str, Any]:
    own = {"o.w": namespace["o"].w, "o.d": namespace["o"].d["w"]}
    own |= {"d.w": namespace["d"]["w"], "d.n": namespace["d"]["n"]["b"], "s": namespace.get("s", 0)}
    return own | {k: namespace[k] for k in "xyzc"}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_arrays_of_jax_become_what_numpy_changes(statement: str) -> None:
    found = stores_of(spot(statement), ast.parse(statement).body[0])
    assert found is not None
    plain, new = names(np), names(jnp)
    exec(statement, plain)
    exec(found.code, new)
    for name, value in values(plain).items():
        np.testing.assert_allclose(values(new)[name], value, err_msg=f"{name}: {found.code}")
    if "#" in statement and "(\n" in statement:
        assert "# one" in found.code


@pytest.mark.parametrize(
    "statement",
    [
        "x = 1",
        "x += y",
        "d['w'] = v",
        "x.append(v)",
        "J.sort(x)",
        "f(x)[0] = v",
        "*x[0], y = z",
        "J.add(x, y, out=x)",
    ],
)
def test_nothing_is_changed_in_place(statement: str) -> None:
    assert stores_of(spot(statement), ast.parse(statement).body[0]) is None


def test_one_name_and_its_value() -> None:
    cell = "x[0], x[1] = a, b\nx[0], y[1] = a, b\nx[0] = x[1] = g()\n"
    one, several, headed = ast.parse(cell).body
    assert rebinding(spot(cell), one) == ("x", "x.at[0].set(a).at[1].set(b)")
    assert rebinding(spot(cell), several) is None and rebinding(spot(cell), headed) is None


def test_stores_in_blocks_become_statements() -> None:
    cell = "if a:\n    x[0] = 1  # one\n    if b: x[1] -= c\ndef g():\n    x[2] = 0\n"
    text = Text(cell)
    new = rebound(Spot(text, "", 1, modules=MODULES), text.tree.body)
    assert new == (
        "if a:\n    x = x.at[0].set(1)  # one\n    if b: x = x.at[1].subtract(c)\ndef g():\n    x[2] = 0\n"
    )


def test_wrapped_arrays_may_be_those_of_numpy() -> None:
    found = stores_of(spot("m.T[0] = v"), ast.parse("m.T[0] = v").body[0], {"m"})
    assert found is not None and found.code == "m = J.asarray(m).T.at[0].set(v).T"

"""Generated functions with data-dependent branches: a rewrite gives the function's own results, or there is none."""

from __future__ import annotations

import ast
import contextlib
import random
import textwrap
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.fixes.branches import branching, conditional
from jitmagic.fixes.change import Family, Spot
from jitmagic.source.edits import CannotEdit, Text
from jitmagic.source.modules import Modules
from tests.fixes.conftest import first_offered, fixes_of

INPUTS = [(a, b) for a in (-2.5, -1.0, 0.0, 0.7, 3.0) for b in (-1.0, 0.0, 2.0)]


class _Writer:
    """Writes a function of `a` and `b` whose branches depend on them; every name is bound before it is read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, names: list[str]) -> str:
        pick, r = self.random.choice, self.random
        forms = [
            "{0} + {1}",
            "{0} * 0.5 - {1}",
            "jnp.sin({0})",
            "-{0}",
            "{1}",
            "{0} - 1.5",
            "jnp.abs({0}) + 0.25",
        ]
        return pick(forms).format(pick(names), pick(names)) if r.random() < 0.9 else f"{r.uniform(-2, 2):.2f}"

    def test(self, names: list[str]) -> str:
        pick = self.random.choice
        simple = f"{pick(names)} {pick(['<', '>', '<=', '>='])} {pick([*names, '0.5', '-1.0'])}"
        other = f"{pick(names)} > {pick(['0.0', '1.0'])}"
        forms = [
            simple,
            f"{simple} and {other}",
            f"{simple} or {other}",
            f"not {simple}",
            f"-1.0 < {pick(names)} <= 2.0",
        ]
        return pick(forms)

    def block(self, names: list[str], depth: int, returns: bool) -> list[str]:
        r, lines = self.random, []
        names = list(names)
        for _ in range(r.randint(1, 2)):
            kind = r.random()
            if kind < 0.45 or depth == 0:
                target = r.choice([*names, "t"])
                sign = r.choice(["=", "=", "+=", "*="]) if target in names else "="
                lines.append(f"{target} {sign} {self.value(names)}")
                names = names if target in names else [*names, target]
            elif kind < 0.6 and len(names) > 1:
                x, y = r.sample(names, 2)
                lines.append(f"{x}, {y} = {y}, {x}")
            else:
                lines += self.branch(names, depth - 1, r.random() < 0.4)
        if returns:
            lines.append(f"return {self.value(names)}")
        return lines

    def branch(self, names: list[str], depth: int, returns: bool) -> list[str]:
        inner = self.block(names, depth, returns)
        lines = [f"if {self.test(names)}:", *("    " + x for x in inner)]
        if self.random.random() < 0.5:
            lines += ["else:", *("    " + x for x in self.block(names, depth, False))]
        return lines

    def loop(self, names: list[str]) -> list[str]:
        """A loop whose end depends on the values, after at most six turns."""
        r = self.random
        leave = self.test(names)
        turn = [f"{r.choice(names)} = {self.value(names)}", f"a = a * {r.choice(['0.5', '0.25'])}"]
        if r.random() < 0.5:
            turn += self.branch([*names, "k"], 0, False)
        kind = r.randint(0, 3)
        if kind == 0:
            return [f"while {leave} and k < 6:", *("    " + x for x in (*turn, "k = k + 1"))]
        if kind == 1:
            return [
                "while k < 6:",
                *("    " + x for x in turn),
                f"    if {leave}:",
                "        break",
                "    k = k + 1",
            ]
        if kind == 2:
            return ["for i in range(6):", *("    " + x for x in turn), f"    if {leave}:", "        break"]
        return ["for i in range(4):", f"    if {leave}:", "        continue", *("    " + x for x in turn)]

    def looping(self) -> str:
        """A function with a loop, a branch behind it, and a way out before it."""
        early = [f"if {self.test(['a', 'b'])}:", f"    return {self.value(['a', 'b'])}"]
        body = ["k = 0.0", "c = a - b", *self.loop(["a", "b", "c"])]
        if self.random.random() < 0.4:
            body = [*early, *body]
        body += [*self.branch(["a", "b"], 1, self.random.random() < 0.4), "return a + b * c + k"]
        return "def f(a, b):\n" + textwrap.indent("\n".join(body), "    ") + "\n"

    def function(self) -> str:
        body = [*self.branch(["a", "b"], 2, self.random.random() < 0.5), *self.block(["a", "b"], 1, False)]
        lines = [
            "c = a - b",
            *body,
            f"return {self.random.choice(['a', 'a + b', 'c * b + a', 'a if b > a else c'])}",
        ]
        return "def f(a, b):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


class _WiderWriter(_Writer):
    """Tuples, dicts, attributes, loops and texts of several lines too."""

    def block(self, names: list[str], depth: int, returns: bool) -> list[str]:
        forms = [
            ["p = {{'u': {0}, 'v': {1}}}", "{n} = p['u'] - p['v']"],
            ["q = ({0}, {1})", "{n} = q[0] * 0.5 + q[1]  # mixed"],
            ["s = 0.0", "for j in range(2):", "    s += {0} + j", "{n} = s"],
            ["self.v = self.v * 0.5 + {0}"],
            ["a, b = ({0},", "    {1})"],
            ["# note", "z = w = {0}", "{n} = z + w"],
        ]
        lines = super().block(names, depth, returns)
        if self.random.random() < 0.5:
            holes = {"n": self.random.choice(names)}
            given = [self.value(names), self.value(names)]
            lines = [line.format(*given, **holes) for line in self.random.choice(forms)] + lines
        return lines

    def function(self) -> str:
        own = (
            super()
            .function()
            .replace("    c = a - b\n", "    c = a - b\n    self = S()\n    self.v = a\n", 1)
        )
        head, _, last = own.rstrip().rpartition("return ")
        return f"{head}return ({last}) + self.v\n"


def _run(cell: str, jit: bool) -> list[Any]:
    namespace: dict[str, Any] = {"jax": jax, "jnp": jnp}
    exec(cell, namespace)
    f = jax.jit(namespace["f"]) if jit else namespace["f"]
    return [f(jnp.float32(a), jnp.float32(b)) for a, b in INPUTS]


@pytest.mark.parametrize("seed", range(8))
def test_rewritten_function_equals_the_original_everywhere(seed: int) -> None:
    cell = _Writer(seed).function()
    wanted = _run(cell, jit=False)
    # The proof sees one call only; the other inputs take other branches.
    for fix in fixes_of(cell, ["f(jnp.float32(0.7), jnp.float32(2.0))"]):
        np.testing.assert_allclose(
            _run(fix.cell or "", jit=True), wanted, rtol=1e-4, atol=1e-5, err_msg=fix.cell or ""
        )


@pytest.mark.parametrize("seed", range(6))
def test_rewritten_loop_equals_the_original_everywhere(seed: int) -> None:
    cell = _Writer(1000 + seed).looping()
    wanted = _run(cell, jit=False)
    for fix in fixes_of(cell, ["f(jnp.float32(3.0), jnp.float32(-1.0))"]):
        np.testing.assert_allclose(
            _run(fix.cell or "", jit=True), wanted, rtol=1e-4, atol=1e-5, err_msg=fix.cell or ""
        )


@pytest.mark.parametrize("family", [branching.selecting, branching.branching])
def test_every_step_gives_the_values_of_the_branches(family: Family) -> None:
    for seed in range(12):
        cell = _WiderWriter(seed).function()
        wanted = _values(cell)
        for _ in range(9):
            places = [n for n in ast.walk(ast.parse(cell)) if isinstance(n, ast.If | ast.IfExp)]
            changed = (c for p in places for c in _changed(cell, p, family))
            if (cell := next(changed, "")) == "":
                break
            np.testing.assert_allclose(_values(cell), wanted, rtol=1e-3, atol=1e-3, err_msg=cell)


def _changed(cell: str, place: ast.If | ast.IfExp, family: Family) -> Iterator[str]:
    t, families = place.test, [family, branching.selecting, branching.branching]
    modules = Modules({"jnp": "jax.numpy", "jax": "jax"})
    spot = Spot(
        Text(cell), "tracer-bool", t.lineno, t.col_offset, t.end_lineno or 0, t.end_col_offset or 0, ("a", "b"), "f",
        modules=modules,
    )  # fmt: skip
    for one in families if isinstance(place, ast.If) else [conditional.choosing_expressions]:
        with contextlib.suppress(CannotEdit):
            yield from (change.edits.result() for change in one(spot) if change.edits is not None)


def _values(cell: str) -> list[float]:
    """What the function gives with its branches in Python."""
    namespace: dict[str, Any] = {"jax": jax, "jnp": jnp, "S": type("S", (), {})}
    exec(cell, namespace)
    with jax.disable_jit():
        return [float(namespace["f"](np.float32(a), np.float32(b))) for a, b in INPUTS[::2]]


def test_most_generated_functions_are_corrected() -> None:
    fixed = sum(
        bool(fixes_of(_Writer(s).function(), ["f(jnp.float32(0.7), jnp.float32(2.0))"]))
        for s in range(106, 112)
    )
    assert fixed >= 3


def test_condition_is_read_before_a_branch_changes_what_it_reads() -> None:
    cell = "def f(x, y):\n    if x > y:\n        x = y\n        y = x + 1\n    return x, y\n"
    new = first_offered(cell, (2, 7, 2, 12), ("x", "y"), {"jnp": "jax.numpy", "jax": "jax"})
    assert new.splitlines()[1] == "    condition = x > y"

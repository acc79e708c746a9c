"""Tests of a type as ones that a traced value passes like the value it stands for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.source.pattern import Pattern

TITLE = "test in a way that holds while jax traces, too"
_TESTS = [
    *((Pattern(test), False) for test in (
        "isinstance($x, $t)", "type($x) is $t", "$t is type($x)", "type($x) == $t", "$t == type($x)", "type($x) in $t",
    )),
    *((Pattern(test), True) for test in ("type($x) is not $t", "type($x) != $t", "type($x) not in $t")),
    (Pattern("isscalar($x)"), False),
]  # fmt: skip
"""Tests of a type, and whether they deny it."""
_FLOAT = "jnp.issubdtype(jnp.result_type($x), jnp.floating)"
_INTEGER = "jnp.issubdtype(jnp.result_type($x), jnp.integer)"
_NUMBER = "jnp.ndim($x) == 0"
_OF_NUMBERS = {
    frozenset(("float",)): f"({_NUMBER} and {_FLOAT})", frozenset(("int",)): f"({_NUMBER} and {_INTEGER})",
    frozenset(("int", "float")): _NUMBER, frozenset(("int", "float", "complex")): _NUMBER, frozenset(): _NUMBER,
}  # fmt: skip
"""What tells Python's numbers from arrays while jax traces, too."""
_OTHERS = ("isinstance($x, jax.Array)", "isinstance($x, (jax.Array, $$t))", _FLOAT, _INTEGER, _NUMBER)


def type_tests(spot: Spot) -> Iterator[Change]:
    """The tests of types on the line, or those that the trace is known to answer differently."""
    sources = {t.where.source for t in spot.silent.tests if t.where is not None}
    lines = [n for n, line in enumerate(spot.text.lines, 1) if n == spot.line or line.strip() in sources]
    for line in lines:
        for form in ("", *_OTHERS):
            edits = spot.edits()
            for test, name, kinds, denied in tested(spot, line):
                if template := form or _OF_NUMBERS.get(frozenset(kinds), ""):
                    new = spot.write(template, x=name, t=", ".join(kinds) or "float")
                    edits.replace(test, f"not {new}" if denied else new)
            if edits:
                yield Change(TITLE, edits)


def tested(spot: Spot, line: int) -> Iterator[tuple[ast.expr, ast.expr, list[str], bool]]:
    """The tests of types that begin on a line: what is tested, for which types, and whether these are denied."""
    for node in spot.text.on_line(line, ast.expr):
        for pattern, denied in _TESTS:
            if (found := pattern.match(node, spot.modules)) is not None:
                kinds = [found.expr("t")] if "t" in found.holes else []
                parts = [
                    e
                    for k in kinds
                    for e in (k.elts if isinstance(k, ast.Tuple | ast.List | ast.Set) else [k])
                ]
                yield found.node, found.expr("x"), [spot.code(p) for p in parts], denied
                break

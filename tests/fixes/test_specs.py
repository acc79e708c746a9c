"""Declarations of arguments that do not fit: what they may have meant, and cells that compile by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from jitmagic.fixes.specs import FIELDS, Parameters, corrections

F = Parameters(("x", "rows", "cols"), ("mode",))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"static_argnums": [3]}, {"static_argnames": ["mode"]}),
        ({"static_argnums": [4]}, {"static_argnames": ["mode"]}),
        ({"static_argnums": [1, -5]}, {"static_argnums": [1]}),
        ({"static_argnames": ["rows, cols"]}, {"static_argnames": ["rows", "cols"]}),
        ({"static_argnames": ["row"]}, {"static_argnames": ["rows"]}),
        ({"static_argnums": [1], "donate_argnums": [0, 1]}, {"static_argnums": [1], "donate_argnums": [0]}),
    ],
)
def test_what_a_declaration_may_have_meant(given: dict[str, Any], meant: dict[str, Any]) -> None:
    first = next(corrections({k: given.get(k, []) for k in FIELDS}, F))
    assert {k: v for k, v in first.items() if v} == meant


@pytest.mark.parametrize(
    ("decorator", "corrected"),
    [
        ("@partial(jax.jit, static_argnums=(1,))", '@partial(jax.jit, static_argnames="n")'),
        ('@partial(jax.jit, static_argnames="m")', '@partial(jax.jit, static_argnames="n")'),
    ],
)
def test_own_decorator_is_corrected_and_run(notebook: Any, decorator: str, corrected: str) -> None:
    notebook.ok("from functools import partial")
    cell = f"{decorator}\ndef f(x, *, n):\n    return x * jnp.ones(n)\n"
    notebook.run("%%jitcheck -q\n" + cell)
    notebook.run("f(2.0, n=3)")
    report = notebook.run("%jitcheck -o").result
    fixes = [x for f in report.findings if f.kind == "bad-static-spec" for x in f.fixes]
    assert [x.cell for x in fixes if x.verified] == [cell.replace(decorator, corrected)]

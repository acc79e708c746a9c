"""Declarations of arguments that do not fit: what they may have meant, how that is written, and run by later calls."""

from __future__ import annotations

from typing import Any

import pytest

from jitmagic.correction import corrected
from jitmagic.fixes.options.declarations import (
    FIELDS,
    Parameters,
    corrections,
    declarations,
    others,
    title,
    written,
)
from jitmagic.source.edits import Text
from jitmagic.source.modules import Modules
from tests.silent.cells import finding

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


CELL = "def f(x, rows, cols):\n    return x\n"


@pytest.mark.parametrize(
    ("declared", "tried"),
    [
        ("jit(f, static_argnums=(2, 3))",
         ["jit(f, static_argnums=(2,))"]),
        ("jit(f, static_argnums=[3], inline=True)",
         ["jit(f, static_argnums=[2], inline=True)", "jit(f, inline=True)"]),
        ("jit(f, static_argnames='cow')",
         ["jit(f, static_argnames='rows')", "jit(f, static_argnames='cols')", "jit(f, static_argnames='x')", "jit(f)"]),
        ("jit(f, static_argnames=['rows'], donate_argnums=1)",
         ["jit(f, static_argnames=['rows'])"]),
        ("jit(f, static_argnums=NUMBERS)", []),
        ("vmap(f, static_argnums=5)", None),
    ],
)  # fmt: skip
def test_what_is_tried_is_written_as_it_was(declared: str, tried: list[str] | None) -> None:
    cell = f"{CELL}g = {declared}\n"
    text = Text(cell)
    made = [
        [written(text, Modules(), d, s).result() for s in others(d.given, corrections(d.given, d.parameters))]
        for d in declarations(text)
    ]
    assert made == ([] if tried is None else [[f"{CELL}g = {t}\n" for t in tried]])


def test_settings_of_a_dict_become_arguments_of_the_cells_own_jit(notebook: Any) -> None:
    notebook.ok("from functools import partial")
    body = "def f(x, c):\n    return x.reshape(c['n'], -1) * c['k']\n"
    notebook.run(f"%%jitcheck -q\n@partial(jax.jit, static_argnums=(1,))\n{body}")
    notebook.run("f(jnp.ones(4), {'n': 2, 'k': 0.5})")
    fix = next(x for f in notebook.report().findings if f.kind == "unhashable-static" for x in f.fixes)
    assert fix.verified and fix.calls == ("f(jnp.ones(4), 2, 0.5)",)
    assert str(fix.cell).startswith('@partial(jax.jit, static_argnames="n")\ndef f(x, n, k):\n')


def test_static_object_of_arrays_is_registered_in_place_of_that(notebook: Any) -> None:
    notebook.ok("import dataclasses\nfrom functools import partial")
    body = "@dataclasses.dataclass\nclass Model:\n    params: dict\n\n"
    method = "    def of(self, x):\n        return x * self.params['w']\n"
    notebook.run(f"%%jitcheck -q\n{body}    @partial(jax.jit, static_argnums=0)\n{method}")
    notebook.run("Model({'w': jnp.ones(2)}).of(2.0)")
    (fix,) = (x for f in notebook.report().findings if f.kind == "unhashable-static" for x in f.fixes)
    assert fix.verified and fix.cell == f"@jax.tree_util.register_dataclass\n{body}    @jax.jit\n{method}"


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("static_argnames='row'", "declare `rows` static"),
        ("donate_argnums=4", "declare `cols` donated"),
        ("donate_argnames='other'", "declare nothing donated"),
        ("static_argnums=(1, 3), donate_argnums=(1,)", "declare `rows` and `cols` static, nothing donated"),
    ],
)
def test_the_title_says_what_changes(declared: str, wanted: str) -> None:
    (found,) = declarations(Text(f"{CELL}g = jit(f, {declared})\n"))
    spec = next(others(found.given, corrections(found.given, found.parameters)))
    assert title(found.parameters, found.given, spec) == wanted


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


def test_a_misspelt_donation_is_corrected_in_the_magic_line() -> None:
    cell, call = "def f(total, x):\n    return total + x\n", "f(jnp.zeros(2), 1.0)"
    (fix,) = finding("bad-static-spec", cell, call, donate_argnames="totals").fixes
    assert fix.verified and fix.cell is None and fix.magic == "%%jit -f f --donate total"


def test_one_of_many_arguments_is_static_by_its_number(notebook):
    cell = "def f(x, *ops):\n    for name in ops:\n        x = getattr(jnp, name)(x)\n    return x\nf(jnp.ones(3), 'sin', 'cos')"
    notebook.error(f"%%jit --no-time\n{cell}")
    (fix,) = [x for f in notebook.report().findings for x in f.fixes if x.verified]
    line = corrected(f"%%jit --no-time\n{cell}", fix).split("\n")[0]
    assert "--static-argnums 1,2" in line
    notebook.ok(f"{line}\n{cell}")
    assert notebook.report().verdict == "ok"


@pytest.mark.parametrize("rest", ["return x", "if x.sum() > 0:\n        return x\n    return -x"])
def test_settings_among_many_arguments_are_never_static_by_the_name_of_all(notebook, rest):
    cell = f"def f(x, *ops):\n    for name in ops:\n        x = getattr(jnp, name)(x)\n    {rest}\nf(jnp.ones(3), 'sin', 'cos')"
    notebook.error(f"%%jit -q --no-time\n{cell}")
    fixes = [x for f in notebook.report().findings for x in f.fixes]
    assert fixes and all("ops" not in (x.static_argnames or ()) for x in fixes)

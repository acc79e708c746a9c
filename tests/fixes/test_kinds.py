"""Every kind of correction on cells as people write them: proved, in good form, final."""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

import jax
import pytest

from jitmagic.fixes.options import declarations
from jitmagic.fixes.search import with_imports
from jitmagic.report import Fix
from jitmagic.source.edits import Text
from jitmagic.source.modules import Modules
from tests.fixes.cells import CASES, Case
from tests.fixes.conftest import corrections


def _first(case: Case) -> Fix:
    for kind, fix in corrections(case.cell, case.calls, case.name, case.setup, case.static):
        if kind == case.kind and (fix.verified or not case.proved) and fix.applicability != "display":
            if case.contains in "\n".join((fix.magic or "", fix.cell or "", *(fix.calls or ()))):
                return fix
    raise AssertionError(
        [str(f) for _, f in corrections(case.cell, case.calls, case.name, case.setup, case.static)]
    )


@pytest.mark.parametrize("name", CASES)
def test_correction_is_proved(name: str) -> None:
    case = CASES[name]
    fix = _first(case)
    assert fix.cell is None or (fix.diff and fix.cell != case.cell)
    words = re.sub(r"`[^`]*`", "", fix.title)
    assert re.findall(r"\b[a-zA-Z]+(?:[._]\w+)+|\bjnp\b", words) == [], "code stands in backticks"


@pytest.mark.parametrize(
    "name",
    [
        "class of another cell",
        "function picked first",
        "segments",
        "functions that jax does not have",
    ],
)
def test_what_costs_something_is_not_called_safe(name: str) -> None:
    fix = _first(CASES[name])
    assert fix.applicability == "unsafe"
    assert any(
        word in fix.title
        for word in ("in place of", "clamped", "as in the calls seen", "one compilation", "no gradient")
    )


def test_slice_as_an_argument_is_static_by_itself_or_by_its_bounds() -> None:
    fixes = corrections("def f(x, cut):\n    return x[cut].sum()\n", ("f(jnp.arange(6.0), slice(1, 3))",))
    ((kind, fix),) = fixes
    assert (kind, fix.static_argnames, fix.verified) == ("invalid-jax-type", ("cut",), True)
    assert sys.version_info >= (3, 12) or fix.calls == ("f(jnp.arange(6.0), (1, 3))",)


def test_part_of_an_image_is_counted_by_the_mask_of_each_axis() -> None:
    cell = "def f(x, d):\n    p = x[:d[0], :d[1]]\n    return p.sum(axis=0).max() + len(p)\n"
    ((_, fix),) = corrections(cell, ("f(jnp.ones((3, 4)), jnp.array([2, 3]))",))
    rows = "jnp.max(jnp.sum(x, axis=0, where=live[:, None]), where=live2, initial=-jnp.inf)"
    assert fix.verified and f"return {rows} + jnp.sum(live)\n" in (fix.cell or "")


@pytest.mark.parametrize("asked", ["max()", "mean()", "shape[0]", "sum() + jnp.sort(x)[0]"])
def test_zeros_stand_for_what_is_cut_off_where_they_change_nothing_for_any_data(asked: str) -> None:
    cell = f"def head(x, n):\n    return x[:n]\n\ndef f(x, n):\n    return head(x, n[0]).{asked}\n"
    fixes = corrections(cell, ("f(jnp.arange(4.0), jnp.array([2]))",))
    assert [fix.title for _, fix in fixes] == ["none"]


def test_no_rewrite_stands_beside_the_static_argument_that_it_needs() -> None:
    cell = "def f(x, ratio):\n    k = int(x.size * ratio)\n    return jax.lax.top_k(x, k)[0]\n"
    fixes = corrections(cell, ("f(jnp.arange(8.0), 0.25)",))
    assert [(fix.static_argnames, fix.cell) for _, fix in fixes] == [(("ratio",), None)]


def test_empty_list_says_that_nothing_is_static_any_more() -> None:
    fixes = corrections("def f(x, c):\n    return x * c['s']\n", ("f(1.0, {'s': 0.5})",), static=("c",))
    assert {f.static_argnames for kind, f in fixes if kind == "unhashable-static"} == {()}
    assert fixes[0][1].applicability == "safe" and fixes[0][1].cell is None


def test_function_that_is_returned_is_told_without_a_correction() -> None:
    cell = (
        "def f(x, y):\n    slope = x @ y\n    def g(t):\n        return slope * t + y\n    return g, slope\n"
    )
    assert [f.title for _, f in corrections(cell, ("f(jnp.ones(2), jnp.ones(2))",))] == ["none"]


def test_object_that_the_function_writes_into_is_not_registered() -> None:
    cell = (
        "class Mean:\n    def __init__(self):\n        self.m = jnp.zeros(2)\n\n"
        "    def add(self, x):\n        self.m = 0.9 * self.m + x\n        return self.m\n"
    )
    fixes = corrections(cell, ("m = Mean()", "m.add(jnp.ones(2))"), "Mean.add")
    assert fixes and all(f.cell is None and f.dyn == ("self.m",) for _, f in fixes)


READ = {
    "state that goes on": "class Mean:\n    m = 0.0\n    def of(self, x):\n        self.m = 0.9 * self.m + x\n"
    "        return self.m.sum()\n\nmean = Mean()\n\ndef f(x):\n    return mean.of(x)\n",
    "attribute that the caller reads": "class Mean:\n    m = 0.0\n    def of(self, x):\n        self.m = x\n        return x\n\n"
    "mean = Mean()\n\ndef f(x):\n    return mean.of(x) + mean.m\n",
    "log whose length counts": "log = []\n\ndef f(x):\n    log.append(x)\n    return x + len(log)\n",
    "log that a helper reads": "log = [1.0]\n\ndef g(x):\n    return x * log[0]\n\ndef f(x):\n    log.append(x)\n    return g(x)\n",
    "entry that is read first": "log = {'x': 0.0}\n\ndef f(x):\n    y = x + log['x']\n    log['x'] = y\n    return y\n",
    "log that makes its own entry": "log = [1.0]\n\ndef f(x):\n    log.append(log[-1] + x)\n    return x\n",
    "time since the trace": "import time\n\ndef f(x):\n    t = time.time()\n    print(time.time() - t, x)\n    return x\n",
}


@pytest.mark.parametrize("name", READ)
def test_what_the_trace_reads_is_not_handed_out_by_a_callback(name: str) -> None:
    assert not any("callback" in (f.cell or "") for _, f in corrections(READ[name], ("f(jnp.ones(2))",)))


def test_text_of_a_value_that_changes_is_printed_where_it_is_made() -> None:
    cell = "def f(x):\n    text = f'{x:.1f}'\n    x = 2 * x\n    print(text)\n    return x\n"
    assert not any(f.cell for _, f in corrections(cell, ("f(1.0)",)))


def test_static_of_an_inner_function_is_made_static_outside() -> None:
    cell = (
        "import functools\n@functools.partial(jax.jit, static_argnames='n')\ndef rows(x, *, n):\n"
        "    return jnp.stack([x] * n)\n\ndef f(x, n):\n    return rows(2 * x, n=n).sum()\n"
    )
    ((kind, fix),) = corrections(cell, ("f(1.0, 3)",))
    assert (kind, fix.static_argnames, fix.verified) == ("unhashable-static", ("n",), True)


def test_the_argument_that_was_meant_is_made_static() -> None:
    cell = "def f(ws, x, n):\n    return x.reshape(n, -1) @ ws['w']\n"
    fixes = corrections(cell, ("f({'w': jnp.eye(2)}, jnp.ones(4), 2)",), static=("ws",))
    (fix,) = (f for kind, f in fixes if kind == "unhashable-static")
    assert (fix.static_argnames, fix.static_argnums, fix.verified) == (("n",), (), True)


@pytest.mark.parametrize(
    "made", ["np.random.default_rng(0)", "np.random.RandomState(0)", "__import__('random').Random(0)"]
)
def test_random_generator_is_never_made_static(made: str) -> None:
    fixes = corrections("def f(x, g):\n    return x * g.random()\n", (f"f(1.0, {made})",))
    assert [f.static_argnames for _, f in fixes] == [None] * len(fixes)


def test_iterator_is_never_asked_for_a_proof() -> None:
    cell = "def f(rows, w):\n    return (next(rows) * w).sum()\n"
    setup = "asked = []\ndef gen():\n    while True:\n        asked.append(1)\n        yield np.ones(3)\nrows = gen()\n"
    fixes = corrections(cell, ("f(rows, 2.0)", "assert not asked"), "f", setup)
    assert not any(f.verified for _, f in fixes)
    (looped,) = (f for _, f in corrections("def f(rows):\n    return sum(r.sum() for r in rows)\n",
                                           ("f(zip(x, x))",), "f", "x = [np.ones(2)]\n"))  # fmt: skip
    assert looped.calls == ("f(list(zip(x, x)))",)


def test_function_of_another_file_is_shown_with_its_correction(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text(  # type: ignore[attr-defined]
        "def halved(x, low):\n    while x > low:\n        x = x / 2\n    return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    cell = "def f(x):\n    return theirs.halved(x, 1.0)\n"
    fixes = [f for _, f in corrections(cell, ("f(8.0)",), setup="import theirs\n") if f.diff]
    assert [(f.applicability, f.verified, f.cell) for f in fixes] == [("display", False, None)]
    assert "theirs.py" in fixes[0].title
    assert "+    x = jax.lax.while_loop(lambda x: x > low, lambda x: x / 2, x)" in str(fixes[0].diff)


STATIC = {
    "@jax.jit": "@functools.partial(jax.jit, static_argnames=\"n\")",
    "@functools.partial(jax.jit, static_argnames='mode')":
        "@functools.partial(jax.jit, static_argnames=('mode', 'n'))",
}  # fmt: skip


@pytest.mark.parametrize("decorator", STATIC)
def test_static_arguments_are_written_into_the_cells_own_jit(decorator: str) -> None:
    cell = f"{decorator}\ndef f(x, n, mode):\n    return jnp.zeros(n) + x\n"
    names = ["n"] if decorator == "@jax.jit" else ["mode", "n"]
    notebook = {"functools": functools, "jax": jax, "jnp": jax.numpy}
    assert _declared(cell, names, notebook) == cell.replace(decorator, STATIC[decorator])


def _declared(cell: str, static: list[str], names: dict[str, Any]) -> str:
    text, modules = Text(cell), Modules.of(names)
    found = declarations.declaration_of(text, "f")
    spec = {**found.given, "static_argnums": [], "static_argnames": static}
    return with_imports(declarations.written(text, modules, found, spec).result(), modules)


def test_what_static_arguments_need_is_imported() -> None:
    cell = "@jax.jit\ndef f(n):\n    return n\n"
    names: list[dict[str, Any]] = [{}, {"functools": functools}, {"partial": functools.partial}]
    heads = {_declared(cell, ["n"], {"jax": jax, **n}).partition("def")[0] for n in names}
    assert heads == {
        'import functools\n\n@functools.partial(jax.jit, static_argnames="n")\n',
        '@functools.partial(jax.jit, static_argnames="n")\n',
        '@partial(jax.jit, static_argnames="n")\n',
    }


def test_size_is_not_written_down_where_a_static_argument_says_it() -> None:
    fixes = corrections("def f(n):\n    return jnp.zeros((n, 2))\n", ("f(3)",))
    assert [(f.static_argnames, f.cell) for _, f in fixes] == [(("n",), None)]


def test_method_that_the_cell_compiles_is_corrected_in_its_class() -> None:
    cell = (
        "class Gain:\n    def __init__(self, k):\n        self.k = k\n\n"
        "    def of(self, x):\n        if x > 1:\n            x = 1.0\n        return self.k * x\n\n"
        "gain = Gain(3.0)\ng = jax.jit(gain.of)\n"
    )
    fix = corrections(cell, ("g(2.0)",), "g")[0][1]
    assert fix.verified and "x = jnp.where(x > 1, 1.0, x)" in str(fix.cell)


@pytest.mark.parametrize(("name", "call"), [("step", "step(3.0)"), ("twice", "twice(3.0)")])
def test_function_that_a_function_returned_is_corrected_where_it_is_written(name: str, call: str) -> None:
    cell = (
        "def made(dt):\n    def step(x):\n        if x > 2:\n            x = 0.0\n        return x + dt\n    return step\n\n"
        "step = made(0.5)\n\ndef twice(x):\n    return step(step(x))\n"
    )
    fix = next(f for _, f in corrections(cell, (call,), name) if f.cell)
    assert fix.verified and "x = jnp.where(x > 2, 0.0, x)" in str(fix.cell)


def test_float_that_a_branch_depends_on_is_not_advised_as_static() -> None:
    cell = "def f(x):\n    return jnp.ones(len('one' if x > 1 else 'three'))\n"  # nothing else helps
    fixes = corrections(cell, ("f(2.0)",))
    assert [(f.static_argnames, f.applicability) for _, f in fixes] == [(("x",), "display")]


def test_place_that_changes_from_call_to_call_is_not_advised_as_static() -> None:
    cell = "def f(x, i, w):\n    return jnp.sum(x[i:i + w] ** 2) / w\n"
    first, second = (
        f for _, f in corrections(cell, ("f(jnp.arange(9.0), 2, 3)", "f(jnp.arange(9.0), 5, 3)"))
    )
    assert first.cell and first.applicability == "safe" and not first.static_argnames
    assert second.static_argnames == ("i", "w") and second.applicability == "display"


def test_order_that_a_branch_and_a_loop_need_may_be_static() -> None:
    cell = "def f(x, m):\n    if m > 1:\n        x = x[None]\n    for _ in range(m):\n        x = x * 2\n    return x\n"
    fixes = corrections(cell, ("f(jnp.ones(2), 2)", "f(jnp.ones(2), 1)"))
    assert {f.applicability for _, f in fixes if f.static_argnames == ("m",)} == {"unsafe"}


def test_branch_that_gets_another_form_is_not_called_safe() -> None:
    cell = "def f(x):\n    if x > 1:\n        return [x]\n    return x\n"
    rewritten = [f for _, f in corrections(cell, ("f(2.0)",)) if f.cell]
    assert [f.applicability for f in rewritten] == ["unsafe"] and "another form" in rewritten[0].title


FIELDS = {
    "equinox": ("eqx.Module", "", "eqx.field(static=True)"),
    "flax.struct": ("", "@struct.dataclass\n", "struct.field(pytree_node=False)"),
}


@pytest.mark.parametrize("package", FIELDS)
def test_setting_among_the_fields_of_a_framework_class_is_declared_static(package: str) -> None:
    pytest.importorskip(package)
    base, decorator, declared = FIELDS[package]
    cell = (
        f"{decorator}class Net{f'({base})' if base else ''}:\n    w: jax.Array\n    act: object\n    name: str = 'net'\n\n"
        "def f(nets, x):\n    for net in nets:\n        x = net.act(net.w * x)\n    return x\n"
    )
    setup = "import equinox as eqx\n" if package == "equinox" else "from flax import struct\n"
    fixes = corrections(cell, ("f([Net(1.0, jnp.tanh), Net(2.0, jnp.sin)], jnp.ones(2))",), "f", setup)
    fix = next(f for kind, f in fixes if kind == "invalid-jax-type" and f.verified)
    assert fix.cell is not None and f"    act: object = {declared}\n" in fix.cell
    assert "    name: str = " + declared.replace("(", "(default='net', ") + "\n" in fix.cell


def test_a_correction_that_leaves_random_numbers_frozen_is_not_proved(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(
        "%%jit -q --no-time\ndef shaken(x):\n    step = np.random.uniform(size=2)\n"
        "    if x.sum() > 0:\n        step = -step\n    return x + step"
    )
    for _ in range(2):
        notebook.run("shaken(jnp.ones(2))")
    fixes = [f for x in notebook.report().findings if x.kind == "tracer-bool" for f in x.fixes]
    assert not any(f.verified for f in fixes if "np.random" in (f.cell or ""))
    notebook.ok("%config JitMagics.budget = 10")


def test_a_correction_is_not_proved_on_calls_between_which_the_notebook_changed(notebook: Any) -> None:
    notebook.ok("scale = 2.0")
    notebook.ok(
        "%%jit -q --no-time\ndef f(x, n):\n    for i in range(n):\n        x = x * scale\n    return x"
    )

    def fixes() -> list[Fix]:
        return [f for x in notebook.report().findings if x.kind == "tracer-int" for f in x.fixes]

    notebook.run("f(1.0, 3)")
    assert any(f.verified for f in fixes())
    notebook.ok("scale = 3.0")
    notebook.run("f(1.0, 3)")
    assert not any(f.verified for f in fixes())


def test_number_that_is_stored_is_not_made_static() -> None:
    case = CASES["function, count and a buffer of data"]
    fixes = [f for _, f in corrections(case.cell, case.calls)]
    assert fixes and not any("x" in (f.static_argnames or ()) for f in fixes)


def test_data_is_not_advised_as_static_where_a_rewrite_mends_all() -> None:
    case = CASES["text, number of NumPy's and a list outside"]
    found = [f for kind, f in corrections(case.cell, case.calls) if kind == case.kind and f.verified]
    assert {f.static_argnames for f in found if f.applicability != "display"} == {("unit",)}


@pytest.mark.parametrize(
    "lookup",
    ["w[f'w{i}']", "w['w' + str(i)]", "getattr(Table, f'w{i}')", "[key := 'w{}'.format(i), w[key]][1]"],
)
def test_number_in_a_name_that_is_looked_up_is_made_static(lookup: str) -> None:
    cell = f"class Table:\n    w0, w1 = 1.0, 2.0\n\ndef f(x, i, w):\n    return x * {lookup}\n"
    found = corrections(cell, ["f(1.0, 1, {'w0': 1.0, 'w1': 2.0})"])
    assert [(kind, f.static_argnames) for kind, f in found] == [("tracer-format", ("i",))]

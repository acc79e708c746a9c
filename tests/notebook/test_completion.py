"""What Tab offers on a magic line."""

from __future__ import annotations

import pytest
from IPython.core import completer
from IPython.core.completer import provisionalcompleter

from jitmagic.notebook import completion

WHOLE_CELL = hasattr(completer, "CompletionContext")
of_cell = pytest.mark.skipif(not WHOLE_CELL, reason="this IPython tells the line alone, and not the cell")

BODY = """
class Model:
    def step(self, alpha):
        return self.w * alpha + l.w + self.twice()
    def twice(self):
        return self.rng
def f(beta, gamma=1):
    return beta * p['a']
"""


@pytest.fixture
def offered(notebook, monkeypatch):
    monkeypatch.setattr(notebook.shell.Completer, "use_jedi", False)
    notebook.ok("class L: pass\nl = L(); l.w = jnp.ones(2); l.inner = L(); l.inner.v = 1.0; l._hidden = 1")
    notebook.ok("p = {'a': jnp.ones(2), 'b': [L(), {'c': 1}]}; p['b'][0].deep = 2\ndef known(x): return x")

    def complete(line, body=BODY):
        with provisionalcompleter():
            found = list(notebook.shell.Completer.completions(line + body, len(line)))
        return {line[: c.start] + c.text for c in found}

    return complete


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%%jit --sta", {"%%jit --static", "%%jit --static-argnums"}),
        ("%%jit -q --don", {"%%jit -q --donate", "%%jit -q --donate-argnums"}),
        pytest.param("%%jit --static be", {"%%jit --static beta"}, marks=of_cell),
        pytest.param("%%jit --static beta,ga", {"%%jit --static beta,gamma"}, marks=of_cell),
        pytest.param("%%jit -f Mo", {"%%jit -f Model.step", "%%jit -f Model.twice"}, marks=of_cell),
        ("%%jit -f kno", {"%%jit -f known"}),
        ("%%jit --dyn au", {"%%jit --dyn auto"}),
        ("%%jit --dyn l.", {"%%jit --dyn l.w", "%%jit --dyn l.inner"}),
        ("%%jit -d p,l.inner.", {"%%jit -d p,l.inner.v"}),
        pytest.param("%%jit --dyn self.", {"%%jit --dyn self.w", "%%jit --dyn self.rng"}, marks=of_cell),
        ("%%jit --dyn p[", {"%%jit --dyn p['a']", "%%jit --dyn p['b']"}),
        ("%%jit --dyn p['b'][0].", {"%%jit --dyn p['b'][0].deep"}),
        ("%%jit --device cp", {"%%jit --device cpu", "%%jit --device cpu:0"}),
        ("%jitcheck --explain JM20", {f"%jitcheck --explain JM20{i}" for i in (1, 2, 3, 4, 5, 6, 7)}),
    ],
)
def test_offers(offered, line, expected):
    assert offered(line) == expected


def test_before_there_is_a_cell_the_names_of_the_notebook_are_offered(offered):
    assert offered("%%jit --dyn ", "") == {"%%jit --dyn auto", "%%jit --dyn l", "%%jit --dyn p"}


@of_cell
def test_a_module_is_no_variable(notebook, offered):
    notebook.ok("import random")
    assert offered("%%jit --dyn ", "\ndef f(x): return jnp.sin(x) * p + random.random()") == {
        "%%jit --dyn auto",
        "%%jit --dyn p",
    }
    error = notebook.error("%%jit --dyn randum\ndef f(x): return x")
    assert "binds 'randum'" in str(error) and "did you mean" not in str(error)


def test_unloaded_nothing_is_offered(notebook, offered):
    notebook.ok("%unload_ext jitmagic")
    assert "%%jit --static" not in offered("%%jit --sta")


def test_on_and_off(offered):
    assert {"%jitcheck on", "%jitcheck off"} <= offered("%jitcheck o", "\n")


@pytest.mark.parametrize("start", ["nowhere.", "l.w[", "p[0].", "l[", "self."])
def test_paths_that_lead_nowhere_offer_nothing(notebook, offered, start):
    assert completion._paths(start, "def f(x): ...", notebook.ns) == []


def test_no_code_of_the_user_runs(notebook, offered):
    notebook.ok(
        "class Loud:\n    def __getattr__(self, name):\n        raise SystemError\n"
        "    @property\n    def value(self):\n        raise SystemError\nloud = Loud(); loud.x = 1"
    )
    assert offered("%%jit --dyn loud.") == {"%%jit --dyn loud.x"}


@of_cell
def test_each_says_what_it_is(notebook, offered):
    def types(line, body=BODY):
        with provisionalcompleter():
            return {c.text: c.type for c in notebook.shell.Completer.completions(line + body, len(line))}

    assert types("%%jit --dyn l.") == {"l.w": "f32[2]", "l.inner": "L"}
    assert types("%%jit --dyn p['a").get("p['a']") == "f32[2]"
    assert types("%jitcheck --explain JM10", "")["JM101"] == "tracer-bool"
    assert types("%%jit --static al")["alpha"] == "argument"
    assert types("%%jit --dy")["--dyn"] == "PATHS"

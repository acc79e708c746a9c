"""Calls that stand in the function's own cell: the corrected cell holds them, and what the cell does besides is done once."""

from __future__ import annotations

import pathlib
import textwrap
from dataclasses import dataclass

import pytest

from jitmagic.fixes import families
from jitmagic.report import Fix
from tests.conftest import Notebook


@pytest.fixture(autouse=True)
def _failures_of_ours_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "RAISE", True)


@dataclass(frozen=True)
class Case:
    """A cell with its calls under `magic`, and lines of the corrected one."""

    kind: str
    cell: str
    wanted: tuple[str, ...]
    magic: str = "%%jit -q --no-time"
    setup: str = ""


CASES = {
    "numbers of NumPy": Case(
        "hidden-rng",
        """
        def f(x):
            return x + np.random.normal(size=x.shape)

        x = jnp.ones(3)
        y = f(x)
        print(f(x), y)
        """,
        ("def f(x, noise):", "y = f(x, np.random.normal(size=x.shape))",
         "print(f(x, np.random.normal(size=x.shape)), y)"),
    ),
    "a key in a loop": Case(
        "hidden-rng",
        """
        def f(x):
            key = jax.random.key(7)
            return x + jax.random.normal(key, x.shape)

        for i in range(3):
            print(f(jnp.ones(3)))  # noise
        """,
        ("def f(x, key):", "key = jax.random.key(7)\nfor i in range(3):",
         "    key, sub = jax.random.split(key)\n    print(f(jnp.ones(3), sub))  # noise"),
    ),
    "a key through a caller": Case(
        "hidden-rng",
        """
        def f(x, rate=0.5):
            keep = jax.random.bernoulli(jax.random.PRNGKey(0), rate, x.shape)
            return jnp.where(keep, x, 0.0)

        def train(x, steps):
            for _ in range(steps):
                x = f(x, rate=0.9)
            return x

        x = train(jnp.ones(4), 3)
        """,
        ("def train(x, steps, key):", "        x = f(x, rate=0.9, key=sub)",
         "x = train(jnp.ones(4), 3, jax.random.PRNGKey(0))"),
        "%%jit -q --no-time -f f",
    ),
    "a key of the notebook, in a comprehension": Case(
        "hidden-rng",
        """
        def f(x):
            return x + jax.random.normal(key, x.shape)
        ys = [f(x) for x in (jnp.ones(2), jnp.zeros(2))]
        """,
        ("def f(x, key):",
         "ys = [f(x, jax.random.fold_in(jax.random.fold_in(key, 0), i)) for i, x in enumerate((jnp.ones(2), "),
        setup="key = jax.random.key(0)",
    ),
    "items of an iterator": Case(
        "frozen-side-effect",
        """
        def f(w):
            x = next(batches)
            return w + x.sum()
        w = jnp.float32(0)
        for i in range(3):
            w = f(w)
        """,
        ("def f(w, x):", "    w = f(w, next(batches))"),
        setup="batches = iter([jnp.ones(3) * i for i in range(9)])",
    ),
    "a weak start": Case(
        "recompile-weak-type",
        """
        def f(t, x):
            return t + x

        t = 0.0
        for i in range(3):
            t = f(t, jnp.float32(i))
        """,
        ("t = jnp.float32(0.0)", "    t = f(t, jnp.float32(i))"),
    ),
    "a number beside an array": Case(
        "recompile-weak-type",
        """
        def f(x, s):
            return x * s
        a = f(jnp.ones(2), 1.0)
        b = f(jnp.ones(2), jnp.float32(2.0))
        """,
        ("a = f(jnp.ones(2), jnp.float32(1.0))", "b = f(jnp.ones(2), jnp.float32(2.0))"),
    ),
    "a lambda at each call": Case(
        "recompile-new-function",
        """
        def f(x, g):
            return g(x)
        for i in range(3):
            y = f(jnp.ones(2), lambda v: v * 2)
        """,
        ("g = lambda v: v * 2\nfor i in range(3):", "    y = f(jnp.ones(2), g)"),
        "%%jit -q --no-time -s g",
    ),
    "a donated array": Case(
        "donated-reuse",
        """
        def f(x, g):
            return x - g
        x = jnp.ones(3)
        y = f(x, 0.1)
        print(x + y)
        """,
        ("y = f(jnp.copy(x), 0.1)", "print(x + y)"),
        "%%jit -q --no-time --donate x",
    ),
    "a text that is bound anew": Case(
        "stale-constant",
        """
        def f(x):
            return getattr(jnp, act)(x)
        a = f(jnp.ones(2))
        act = "cos"
        b = f(jnp.ones(2))
        """,
        ("def f(x, act):", "a = f(jnp.ones(2), act)", "b = f(jnp.ones(2), act)"),
        setup="act = 'sin'",
    ),
    "a helper that is redefined": Case(
        "stale-constant",
        """
        def f(x):
            return act(x)
        a = f(jnp.ones(2))
        act = lambda x: x * 3
        b = f(jnp.ones(2))
        """,
        ("def f(x, act):", "a = f(jnp.ones(2), act)", "b = f(jnp.ones(2), act)"),
        setup="act = lambda x: x * 2",
    ),
    "a global that changes": Case(
        "stale-constant",
        """
        lr = 0.1
        @jax.jit
        def f(w):
            return w - lr * w
        w = f(jnp.ones(3))
        lr = 0.5
        w = f(w)
        """,
        ("def f(w, lr):", "w = f(jnp.ones(3), lr)", "w = f(w, lr)"),
        "%%jitcheck -q",
    ),
    "an entry of a dict that changes": Case(
        "stale-constant",
        """
        cfg = {"lr": 0.1}
        @jax.jit
        def f(w):
            return w - cfg["lr"] * w
        w = f(jnp.ones(3))
        cfg["lr"] = 0.5
        w = f(w)
        """,
        ("def f(w, lr):\n    return w - lr * w", "w = f(w, cfg['lr'])"),
        "%%jitcheck -q",
    ),
    "a global that is written": Case(
        "leaked-tracer",
        """
        total = jnp.zeros(())
        @jax.jit
        def f(x):
            global total
            total = total + x.sum()
            return x * 2
        for i in range(3):
            y = f(jnp.ones(3))
        """,
        ("@jax.jit\ndef _f(x, total):", "    return x * 2, total", "    out, total = _f(x, total)\n    return out"),
        "%%jitcheck -q",
    ),
    "an attribute that is written": Case(
        "unregistered-pytree",
        '''
        class Counter:
            def __init__(self):
                self.n = jnp.zeros(())
                self.scale = 2.0

            @jax.jit
            def step(self, x):
                """Counts."""
                self.n += x
                return self.n * self.scale

        c = Counter()
        for i in range(3):
            print(c.step(1.0))
        ''',
        ("@jax.jit\ndef _step(x, n, scale):\n    n += x\n    return n * scale, n\n",
         '    def step(self, x):\n        """Counts."""\n        out, self.n = _step(x, self.n, self.scale)\n'),
        "%%jitcheck -q",
    ),
    "an attribute that is read and changes": Case(
        "stale-constant",
        """
        class Filter:
            def __init__(self):
                self.gain = jnp.ones(2)
                self.sizes = (2, 1)

            @functools.partial(jax.jit, static_argnums=0)
            def step(self, x, offset=1.0):
                y = jnp.tanh(self.gain * x)
                return y * self.sizes[0] + offset

        m = Filter()
        for i in range(3):
            print(m.step(jnp.ones(2)))
            m.gain = m.gain + 1.0
        """,
        ("@functools.partial(jax.jit, static_argnums=0)\ndef _step(self, x, offset, gain):\n    y = jnp.tanh(gain * x)\n",
         "    def step(self, x, offset=1.0):\n        return _step(self, x, offset, self.gain)\n"),
        "%%jitcheck -q", setup="import functools",
    ),
    "a dict with text": Case(
        "invalid-jax-type",
        """
        def f(batch):
            return batch['x'] * 2
        y = f({'x': jnp.ones(2), 'name': 'a'})
        """,
        ("def f(x):", "y = f(jnp.ones(2))"),
    ),
    "a function that a factory jits": Case(
        "tracer-int",
        """
        def make(a):
            @jax.jit
            def inner(x, n):
                for _ in range(n):
                    x = a * x
                return x
            return inner

        step = make(0.5)
        y = step(jnp.ones(2), 3)
        """,
        ("x = jax.lax.fori_loop(0, n, lambda _, x: a * x, x)", "y = step(jnp.ones(2), 3)"),
        "%%jitcheck -q",
    ),
    "an array that is changed in place": Case(
        "in-place-update",
        """
        def f(u):
            u[1:-1] = 0.5 * (u[2:] + u[:-2])
        u = np.arange(6.0)
        f(u)
        print(u)
        """,
        ("    return u", "u = f(u)\nprint(u)"),
    ),
}  # fmt: skip


def _fixes(notebook: Notebook, case: Case, body: str, magic: str) -> list[tuple[str, Fix]]:
    """Kind of the finding and the fix, for every fix that holds; `none` where a finding has none."""
    if case.setup:
        notebook.ok(case.setup)
    notebook.run(f"{magic}\n{body}")
    found = [f for f in notebook.report().findings if f.severity != "note"]
    return [(f.kind, x) for f in found for x in f.fixes or (Fix(title="none", applicability="display"),)]


@pytest.mark.parametrize("name", CASES)
def test_the_corrected_cell_holds_its_calls_and_is_clean(notebook: Notebook, name: str) -> None:
    case = CASES[name]
    body = textwrap.dedent(case.cell).lstrip("\n")
    fix = next(x for kind, x in _fixes(notebook, case, body, case.magic) if kind == case.kind and x.verified)
    assert fix.cell is not None and fix.calls is None
    assert [w for w in case.wanted if w not in fix.cell] == []
    magic = case.magic
    if fix.static_argnames:
        magic += f" -s {','.join(fix.static_argnames)}"
    assert [k for k, _ in _fixes(notebook, case, fix.cell, magic) if k == case.kind] == []


def test_what_the_cell_does_besides_is_done_once(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    notebook.ok("hist = []\nstate = {'n': 0}")
    notebook.ok("def note(v):\n    with open(str(place), 'a') as file:\n        file.write('x')")
    notebook.ns["place"] = place = tmp_path / "log"
    report = notebook.ok(
        "%%jit -o --no-time -f f\n"
        "def f(x):\n    return x + np.random.normal(size=x.shape)\n"
        "for i in range(3):\n"
        "    y = f(jnp.ones(3))\n"
        "    hist.append(float(y[0]))\n"
        "    state['n'] += 1\n"
        "    note(y)\n"
        "    print('turn', i)\n"
        "with open(str(place), 'a') as file:\n    file.write('end')\n"
    )
    (found,) = (f for f in report.findings if f.kind == "hidden-rng")
    assert (
        found.fixes and found.fixes[0].verified and "f(jnp.ones(3), np.random" in (found.fixes[0].cell or "")
    )
    assert place.read_text() == "xxxend"
    assert len(notebook.ns["hist"]) == 3 and notebook.ns["state"] == {"n": 3}
    assert notebook.text.count("turn 0") == 1


def test_a_long_loop_is_run_whole(notebook: Notebook) -> None:
    report = notebook.ok(
        "%%jit -o --no-time\ndef f(w):\n    return w + np.random.normal(size=w.shape)\n"
        "w = jnp.ones(3)\nfor i in range(100):\n    w = f(w)\n"
    )
    (found,) = (f for f in report.findings if f.kind == "hidden-rng")
    assert found.fixes[0].evidence == "the cell re-run: other random numbers, the rest the same"


def test_calls_of_the_magic_line_are_corrected_too(notebook: Notebook) -> None:
    report = notebook.ok(
        "%%jit -o --no-time f(jnp.ones(2)); f(jnp.ones(2))\ndef f(x):\n    return x + np.random.normal()\n"
    )
    (found,) = (f for f in report.findings if f.kind == "hidden-rng")
    fix = found.fixes[0]
    assert fix.cell == "def f(x, noise):\n    return x + noise\n"
    assert fix.calls == ("f(jnp.ones(2), np.random.normal())",) * 2


def test_a_magic_line_of_the_cell_is_no_obstacle_unless_it_calls(notebook: Notebook) -> None:
    body = "def f(x):\n    return x + np.random.normal()\n{}\ny = f(1.0)\n"
    report = notebook.ok("%%jit -o --no-time\n" + body.format("%pwd"))
    assert "%pwd\ny = f(1.0, np.random.normal())" in report.findings[0].fixes[0].cell


def test_what_later_cells_do_besides_is_done_once(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    notebook.ns["place"] = place = tmp_path / "log"
    notebook.ok("def note(v):\n    with open(str(place), 'a') as file:\n        file.write('x')")
    notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x + np.random.normal(size=x.shape)")
    notebook.ok("y = jnp.ones(3)\nnote(f(y))\nnote(y)")
    notebook.ok("note(f(y))")
    (found,) = (f for f in notebook.report().findings if f.kind == "hidden-rng")
    assert found.fixes[0].verified and place.read_text() == "xxx"
    assert found.fixes[0].calls == ("note(f(y, np.random.normal(size=y.shape)))",) * 2


def test_a_program_that_runs_from_its_beginning_leaves_nothing_behind(notebook: Notebook) -> None:
    import sys

    out = sys.stdout
    notebook.ok("items = []\nflag = [0]")
    notebook.run(
        "%%jit -q --no-time\ndef f(x):\n    return x + np.random.normal()\n"
        "items.append(f(1.0))\nflag[0] += 1\nassert flag[0] == 1, 'only once'\ny = f(2.0)\n"
    )
    report = notebook.report()
    assert [f.kind for f in report.findings if f.fixes and f.fixes[0].verified] == ["hidden-rng"]
    assert len(notebook.ns["items"]) == 1 and notebook.ns["flag"] == [1] and sys.stdout is out


@pytest.mark.parametrize("start", ["jax.random.key(0)", "jax.random.PRNGKey(0)"])
def test_state_that_later_cells_have_lost_is_carried(notebook: Notebook, start: str) -> None:
    notebook.ok(f"key = {start}")
    notebook.run(
        "%%jitcheck -q\n@jax.jit\ndef f(x):\n    global key\n    key, sub = jax.random.split(key)\n"
        "    return x + jax.random.normal(sub)"
    )
    notebook.ok("f(1.0)")
    notebook.ok("f(1.0)")
    (fix,) = (x for f in notebook.report().findings if f.kind == "leaked-tracer" for x in f.fixes)
    assert fix.verified and fix.cell and "out, key = _f(x, key)" in fix.cell


def test_state_of_a_method_that_is_compiled_by_another_name(notebook: Notebook) -> None:
    notebook.run(
        "%%jitcheck -q\nclass M:\n    def __init__(self):\n        self.n = jnp.zeros(2)\n\n    def add(self, x):\n"
        "        self.n = self.n + x\n        return 2 * self.n\n\nm = M()\nadd = jax.jit(m.add)"
    )
    notebook.ok("add(1.0)")
    notebook.ok("add(1.0)")
    (fix,) = (x for f in notebook.report().findings if f.kind == "leaked-tracer" for x in f.fixes)
    assert fix.verified and fix.cell and fix.cell.endswith("m = M()\nadd = m.add")
    assert "        out, self.n = _add(x, self.n)\n" in fix.cell


def test_an_entry_that_a_factory_closed_over_is_passed(notebook: Notebook) -> None:
    notebook.run(
        "%%jitcheck -q\ndef make(hp):\n    @jax.jit\n    def f(w):\n        return w * hp['lr']\n    return f\n\n"
        "hp = {'lr': 2.0}\nf = make(hp)"
    )
    for source in ("f(1.0)", "hp['lr'] = 3.0", "f(1.0)"):
        notebook.ok(source)
    (fix,) = (x for f in notebook.report().findings if f.kind == "stale-constant" for x in f.fixes)
    assert fix.verified and fix.cell and "    def f(w, lr):\n        return w * lr\n" in fix.cell
    assert fix.calls == ("f(1.0, hp['lr'])",) * 2

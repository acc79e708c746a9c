"""What a compiled function goes on with though it has changed, of kinds that are not looked into."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

IMPORTS = (
    "import array, datetime, decimal, fractions, logging, pathlib, re, types, jax.numpy as jnp, numpy as np\n"
    "import scipy.interpolate, scipy.sparse, scipy.stats"
)
KINDS = {
    "a fraction": ("k = fractions.Fraction(1, 2)", "float(k)", "k = fractions.Fraction(3, 1)", "k = fractions.Fraction(2, 4)"),
    "a time": ("k = datetime.timedelta(seconds=2)", "k.total_seconds()", "k = datetime.timedelta(hours=1)", "k = datetime.timedelta(0, 2)"),
    "a decimal": ("k = decimal.Decimal('0.5')", "float(k)", "k = decimal.Decimal(3)", "k = decimal.Decimal('0.50')"),
    "a path": ("k = pathlib.Path('ab')", "len(str(k))", "k = k / 'cd'", "k = pathlib.Path('./ab')"),
    "a range": ("k = range(3)", "sum(k)", "k = range(10)", "k = range(0, 3, 1)"),
    "bytes that change": ("k = bytearray(b'abc')", "k[0]", "k[0] = 1", "k[0] = k[0]"),
    "an array of Python's": ("k = array.array('d', [1.0, 2.0])", "k[1]", "k[1] = 5.0", "k = array.array('d', [1.0, 2.0])"),
    "a sparse matrix": ("k = scipy.sparse.eye(3).tocsr()", "k.toarray()", "k.data *= 2", "k = k.copy()"),
    "a sparse matrix, another one": ("k = scipy.sparse.eye(3).tocsr()", "k.toarray()", "k = k * 5", "k.toarray()"),
    "an interpolation": ("k = scipy.interpolate.interp1d([0, 1], [0.0, 5.0])", "float(k(0.5))",
                         "k = scipy.interpolate.interp1d([0, 1], [0.0, 9.0])", "k = scipy.interpolate.interp1d([0, 1], [0.0, 5.0])"),
    "in an object": ("k = types.SimpleNamespace(part=fractions.Fraction(1, 2))", "float(k.part)",
                     "k.part = fractions.Fraction(3)", "k.part = fractions.Fraction(1, 2)"),
    "in an object of one's own": ("class K: pass\nk = K(); k.S = scipy.sparse.eye(3).tocsr()", "k.S.toarray()", "k.S.data[1] = 7", "k.S.data[1] = 1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", [True, False], ids=["another", "equal"])
def test_what_is_not_looked_into_is_told_when_it_is_another_one(notebook: Notebook, kind, changed):
    begin, read, other, equal = KINDS[kind]
    notebook.ok(IMPORTS)
    notebook.ok(
        f"%%jit -q\n{begin}\ndef f(x): return x * {read}\nx = jnp.ones(3)\na = f(x)\n{other if changed else equal}\nb = f(x)"
    )
    (function,) = notebook.report().functions
    assert ("stale-constant" in notebook.kinds()) == changed
    assert (function.verdict == "wrong") == changed


STEADY = {
    "a logger": "k = logging.getLogger('test')\ndef f(x): k.debug('f'); return x * 2",
    "a pattern": "k = re.compile('a')\ndef f(x): return x * len(k.findall('aa'))",
    "a distribution": "k = scipy.stats.norm(0, 1)\ndef f(x): return x * k.mean()",
    "a generator": "k = np.random.default_rng(0)\ndef f(x): return x * 2 if k else x",
    "a type": "k = np.dtype('float32')\ndef f(x): return x.astype(k)",
    "an exception": "k = ValueError('no')\ndef f(x): return x * len(k.args)",
}


@pytest.mark.parametrize("what", STEADY)
def test_what_stays_the_same_is_not_told(notebook: Notebook, what):
    notebook.ok(IMPORTS)
    notebook.ok(f"%%jit -q\n{STEADY[what]}\nx = jnp.ones(3)\nfor i in range(4): f(x)")
    assert "stale-constant" not in notebook.kinds()


MODULES = {
    "flax.nnx, evaluated": (
        "from flax import nnx\nm = nnx.Sequential(nnx.Linear(3, 3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1)))",
        "m.eval()", "m.layers[1].deterministic",
    ),
    "flax.nnx, a rate": ("from flax import nnx\nm = nnx.LayerNorm(3, rngs=nnx.Rngs(0))", "m.epsilon = 1.0", "m.epsilon"),
    "flax.nnx, in a module of one's own": (
        "from flax import nnx\nclass N(nnx.Module):\n    def __init__(self): self.do = nnx.Dropout(0.5, rngs=nnx.Rngs(1))\n"
        "    def __call__(self, x): return self.do(x)\nm = N()",
        "m.eval()", "m.do.deterministic",
    ),
    "equinox": (
        "import equinox as eqx\nclass N(eqx.Module):\n    do: eqx.nn.Dropout\n"
        "    def __call__(self, x): return self.do(x, key=jax.random.key(0))\nm = N(eqx.nn.Dropout(0.5))",
        "m = eqx.nn.inference_mode(m)", "m.do.inference",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", MODULES)
def test_settings_that_only_the_framework_reads(notebook: Notebook, which):
    begin, change, path = MODULES[which]
    notebook.ok("import jax, jax.numpy as jnp")
    notebook.ok(f"%%jit -q\n{begin}\nx = jnp.arange(3.0)\ndef f(x): return m(x)\nf(x); f(x)")
    assert "stale-constant" not in notebook.kinds()
    notebook.ok(f"{change}\nf(x)")
    found = [f.message for f in notebook.report().findings if f.kind == "stale-constant"]
    assert found and f"`{path}`" in found[0]

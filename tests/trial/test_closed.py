"""What nothing opens or sets back again: no run of ours closes a buffer of the user's, nor leaves a setting of jax."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

READS = {
    "a buffer, closed": (
        "bufs = [io.StringIO('a') for _ in range(3)]",
        "b = bufs.pop(); v = b.read(); b.close()",
        "[b.closed for b in bufs]",
    ),
    "a buffer, with": (
        "bufs = [io.BytesIO(b'a') for _ in range(3)]",
        "with bufs.pop() as b: v = b.read()",
        "[b.closed for b in bufs]",
    ),
    "a view": (
        "views = [memoryview(bytearray(b'abcd'))[i:] for i in range(4)]",
        "with views.pop() as m: v = len(m)",
        "[bytes(m) for m in views]",
    ),
    "what an exit closes": (
        "buf, st = io.StringIO(), contextlib.ExitStack(); st.callback(buf.close)",
        "buf.write('x'); v = buf.getvalue(); st.close()",
        "(v, buf.closed)",
    ),
}


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "traces"])
@pytest.mark.parametrize("what", READS)
def test_buffers(notebook: Notebook, what, fails):
    begin, uses, shown = READS[what]
    cell = (
        f"import contextlib, io, jax.numpy as jnp\n{begin}\ndef f(x):\n    global v\n    {uses}\n"
        f"    return {'float(x.sum())' if fails else 'x + 1'}\ny = f(jnp.ones(3))"
    )
    notebook.ok(cell)
    plain = eval(shown, notebook.ns)
    notebook.ok("%%jitcheck\n" + cell)
    notebook.report()
    assert eval(shown, notebook.ns) == plain


SETTINGS = {
    "x64": "jax.enable_x64(True)",
    "no jit": "jax.disable_jit()",
    "NaN": "jax.debug_nans(True)",
    "promotion": "jax.numpy_rank_promotion('raise')",
    "precision": "jax.default_matmul_precision('float32')",
    "keys": "jax.default_prng_impl('rbg')",
    "mesh": "jax.sharding.Mesh(np.array(jax.devices()[:1]), ('a',))",
}
ASKED = (
    "jax_enable_x64 jax_disable_jit jax_debug_nans jax_numpy_rank_promotion jax_default_matmul_precision "
    "jax_default_prng_impl"
).split()
LEFT = {
    "set and put back around what fails": (
        "c = {}; c.__enter__()\n    s = float(x.sum())\n    c.__exit__(None, None, None)\n    return s",
        "",
    ),
    "kept open": ("st.enter_context({}); return x * 2", "st.close()"),
    "begun in one function": ("begin({}); s = float(x.sum()); end(); return s", ""),
}


def test_a_setting_that_a_cell_has_entered_is_left_by_a_later_one(notebook: Notebook):
    notebook.ok("import jax, jax.numpy as jnp, io, logging")
    before = dict(notebook.ns["jax"].config.values)
    notebook.ok(
        "%%jitcheck\nlog = logging.getLogger('of the cell'); log.addHandler(logging.StreamHandler(io.StringIO()))\n"
        "entered = jax.debug_nans(True); entered.__enter__()\n"
        "def f(x):\n    y = x * 2\n    return float((x * y).sum())\ny = f(jnp.ones(3))"
    )
    notebook.ok("entered.__exit__(None, None, None)")
    assert dict(notebook.ns["jax"].config.values) == before


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("what", SETTINGS)
def test_settings_of_jax(notebook: Notebook, what, left):
    setting = SETTINGS[what]
    if what == "x64":
        setting = "(jax.enable_x64 if hasattr(jax, 'enable_x64') else jax.experimental.enable_x64)(True)"
    body, end = LEFT[left]
    cell = (
        "import contextlib, jax, jax.experimental, jax.numpy as jnp, numpy as np\nst, opened = contextlib.ExitStack(), []\n"
        "def begin(c): opened.append(c); c.__enter__()\ndef end(): opened.pop().__exit__(None, None, None)\n"
        f"def f(x):\n    {body.format(setting)}\ny = f(jnp.ones(2)); {end}"
    )
    meshes = "len(__import__('jax._src.mesh', fromlist=['mesh']).thread_resources.stack)"
    now = f"[getattr(jax.config, name) for name in {ASKED}] + [str(jnp.arange(2.).dtype), {meshes}]"
    notebook.ok("import jax, jax.numpy as jnp")
    before = eval(now, notebook.ns)
    notebook.ok("%%jitcheck\n" + cell)
    notebook.report()
    assert eval(now, notebook.ns) == before


SHARED = {
    "bp.share": (
        "bp.share.save(i=0)",
        "bp.share.save(i=bp.share['i'] + 1); bp.share['late'] = 3; k = bp.share['i']",
        "(bp.share['i'], bp.share['late'])",
    ),
    "environ.set": (
        "bs.environ.set(n=1)",
        "bs.environ.set(n=bs.environ.get('n') + 1, dt=0.3); k = bs.environ.get('n')",
        "(bs.environ.get('n'), bs.environ.get('dt'))",
    ),
    "what environ.set was given": (
        "bs.environ.set(hist=[], table={'k': 0, 'below': {'rows': []}}, array=np.zeros(1))",
        "bs.environ.get('table')['below']['rows'].append(1); bs.environ.get('hist').append(1); bs.environ.get('table')['k'] += 1; bs.environ.get('array')[0] += 1; k = 2.0",
        "(bs.environ.get('hist'), bs.environ.get('table'), bs.environ.get('array').tolist())",
    ),
    "environ.context": (
        "stack = contextlib.ExitStack()",
        "stack.enter_context(bs.environ.context(fit=2.0)); k = bs.environ.get('fit')",
        "(bs.environ.get('fit'), stack.close(), bs.environ.get('fit', None))",
    ),
}


@pytest.mark.parametrize("what", SHARED)
def test_settings_of_frameworks(notebook: Notebook, what):
    pytest.importorskip("brainpy")
    begin, uses, shown = SHARED[what]
    cell = (
        f"import contextlib, brainpy as bp, brainstate as bs, jax.numpy as jnp, numpy as np\n{begin}\n"
        f"def f(x):\n    {uses}\n    return x * k if x.sum() > 0 else x\ny = float(f(jnp.ones(3))[0])"
    )
    notebook.ok(cell)
    plain = notebook.ns["y"], eval(shown, notebook.ns)
    notebook.ok("%%jitcheck\n" + cell)
    notebook.report()
    assert (notebook.ns["y"], eval(shown, notebook.ns)) == plain

"""Where nobody but the user can write into the notebook: Colab, simulated by the package that its kernels hold."""

from __future__ import annotations

import sys
import types

import pytest

from jitmagic.notebook.running import Notebook

CELL = "%%jit --fix --no-time\ndef f(x):\n    if x > 0:\n        return x\n    return -x\n"
TO_COPY = "the corrected cell, to copy:"


@pytest.fixture
def colab(notebook, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(Notebook, "is_live", lambda self: True)
    put = []
    monkeypatch.setattr(notebook.shell, "set_next_input", lambda text, replace=False: put.append(text))
    notebook.put = put
    return notebook


def test_the_corrected_cell_of_a_failed_one_is_there_to_copy(colab):
    colab.error(CELL + "\nf(2.0)")
    [shown] = [o.data for o in colab.outputs if o.data["text/plain"].startswith(TO_COPY)]
    corrected = shown["text/plain"].removeprefix(TO_COPY).lstrip()
    assert corrected == colab.put[0] and corrected.startswith("%%jit --no-time\n")
    assert "user-select:all" in shown["text/html"] and "jnp.where" in shown["text/html"]
    colab.ok(corrected)


def test_that_of_a_cell_that_works_comes_below(colab):
    colab.ok("w = jnp.ones(3)")
    colab.ok("%%jit --fix --no-time\ndef f(x):\n    return x + np.random.rand()\nf(2.0)")
    assert colab.put and not any(o.data["text/plain"].startswith(TO_COPY) for o in colab.outputs)


def test_nothing_waits_for_an_answer_and_the_rest_is_as_elsewhere(colab):
    colab.error(CELL.replace(" --fix", "") + "\nf(2.0)")
    assert not any(o.data["text/plain"].startswith(TO_COPY) for o in colab.outputs)
    assert any("JM101" in o.data["text/plain"] for o in colab.outputs)

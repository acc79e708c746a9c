"""What only a method, a context variable or a module's own `__getattr__` leads to: a run of ours leaves no trace in it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

MAGICS = ("%%jit -q", "%%jitcheck -q")
LISTENERS = {
    "a list": ("subs = [seen.append]", "for call in subs:\n        call(1)"),
    "a dict": ("subs = {'step': seen.append}", "subs['step'](1)"),
    "a tuple of methods": ("subs = (seen.extend,)", "subs[0]([1])"),
    "an attribute": ("import types\nsubs = types.SimpleNamespace(call=seen.append)", "subs.call(1)"),
}


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("name", LISTENERS)
def test_listeners_are_called_as_often_as_without_the_magic(notebook: Any, name: str, magic: str) -> None:
    made, call = LISTENERS[name]
    notebook.ok(f"seen = []\n{made}")
    notebook.ok(f"{magic}\ndef f(x):\n    {call}\n    return x * 2\nf(jnp.ones(1))")
    assert notebook.ns["seen"] == [1]


@pytest.mark.parametrize("magic", MAGICS)
def test_what_a_context_variable_holds(notebook: Any, magic: str) -> None:
    notebook.ok("import contextvars\nheld = contextvars.ContextVar('held')\n_ = held.set([])")
    notebook.ok(f"{magic}\ndef f(x):\n    held.get().append(1)\n    return x * 2\nf(jnp.ones(1))")
    assert notebook.ok("held.get()") == [1]


@pytest.mark.parametrize("magic", MAGICS)
def test_a_module_that_makes_its_attributes_is_asked_by_the_user_alone(
    notebook: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, magic: str
) -> None:
    (tmp_path / "lazy_module.py").write_text(
        "n = 0\ndef __getattr__(k):\n    if k != 'thing':\n        raise AttributeError(k)\n    global n\n    n += 1\n    return n\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    notebook.ok("import lazy_module")
    value = notebook.ok(f"{magic}\ndef f(x):\n    return x * lazy_module.thing\nfloat(f(jnp.ones(1))[0])")
    assert (value, notebook.ns["lazy_module"].n) == (1.0, 1)
    del sys.modules["lazy_module"]

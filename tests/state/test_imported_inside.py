"""Modules of the user's that a function imports itself, whatever name they have in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

MODULE = "count = 0\nlog = []\nsettings = {'gain': 2.0}\n"
WRITES = {
    "import": ("import {m}", "{m}.count += 1", "{m}.count"),
    "alias": ("import {m} as own", "own.log.append(1)", "{m}.log"),
    "from": ("from {m} import log as seen", "seen.append(1)", "{m}.log"),
    "item": ("from {m} import settings", "settings['gain'] += 1", "{m}.settings['gain']"),
    "of a package": ("import package_{m}.part as own", "own.log.append(1)", "package_{m}.part.log"),
}
READS = {
    "import": ("import {m}", "{m}.settings['gain']"),
    "alias": ("import {m} as own", "own.settings['gain']"),
    "from": ("from {m} import settings as s", "s['gain']"),
}


@pytest.fixture
def module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[str]:
    """The name of a module that nothing has imported yet."""
    name = "users_own_state"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"package_{name}").mkdir()
    (tmp_path / f"package_{name}" / "__init__.py").write_text("")
    (tmp_path / f"package_{name}" / "part.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for known in [m for m in sys.modules if name in m]:
        del sys.modules[known]


@pytest.mark.parametrize("known", [False, True], ids=["for the first time", "known"])
@pytest.mark.parametrize("shape", WRITES)
def test_a_write_is_told_at_its_line(notebook: Any, module: str, shape: str, known: bool) -> None:
    imports, writes, path = (part.format(m=module) for part in WRITES[shape])
    if known:
        notebook.ok(f"import {module} as elsewhere, package_{module}.part")
    notebook.ok(
        f"%%jit -q --no-time\ndef f(x):\n    {imports}\n    {writes}\n    return x * 2\nf(1.0), f(2.0)"
    )
    found = [f for f in notebook.report().findings if f.kind == "state-write" and f.severity != "note"]
    wanted = path if "package" in path or not known else path.replace(module, "elsewhere")
    assert [f.culprits[0] for f in found] == [wanted]
    assert found[0].span is not None and found[0].span.source == writes


@pytest.mark.parametrize("shape", READS)
def test_a_constant_that_has_changed_is_told_at_its_line(notebook: Any, module: str, shape: str) -> None:
    imports, reads = (part.format(m=module) for part in READS[shape])
    notebook.ok(f"%%jit -q --no-time\ndef f(x):\n    {imports}\n    return x * {reads}\nf(1.0)")
    assert notebook.report().functions[0].state[0].path == f"{module}.settings['gain']"
    sys.modules[module].settings["gain"] = 5.0
    notebook.ok("f(1.0)")
    (stale,) = [f for f in notebook.report().findings if f.kind == "stale-constant"]
    assert stale.span is not None and stale.span.line == 4


@pytest.mark.parametrize("imports", ["import numpy", "from numpy import random as r", "import random"])
def test_numbers_drawn_from_a_library_are_told(notebook: Any, imports: str) -> None:
    draw = {"import numpy": "numpy.random.normal", "import random": "random.random"}.get(imports, "r.normal")
    notebook.ok(f"%%jit -q --no-time\ndef f(x):\n    {imports}\n    return x + {draw}()\nf(1.0), f(2.0)")
    (drawn,) = [f for f in notebook.report().findings if f.kind == "hidden-rng"]
    assert drawn.span is not None and drawn.span.line == 4


def test_our_own_stand_ins_are_no_changes_of_a_module(notebook: Any) -> None:
    notebook.ns.update(os=__import__("os"))
    notebook.error(
        "%%jit -q --no-time\ndef f(x):\n    os.environ['JITMAGIC_TEST'] = '1'\n    if x > 0:\n        return x\n    return -x\nf(1.0)"
    )
    told = [f.message for f in notebook.report().findings if f.kind == "state-write"]
    assert not any("os.nice" in text or "os.close" in text for text in told)


@pytest.mark.parametrize("inner", ["def g(seen):\n        seen.append(1)", "g = lambda seen: seen.append(1)"])
def test_another_name_of_the_same_text_is_no_module(notebook: Any, module: str, inner: str) -> None:
    notebook.ok(
        f"%%jit -q --no-time\ndef f(x):\n    import {module} as seen\n    {inner}\n    g([])\n    return x * len(seen.log + [1])\nf(1.0)"
    )
    assert not [f for f in notebook.report().findings if f.kind == "state-write"]

"""What calls would leave with jit and leave without: an error under both magics, with the place and both values."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jitmagic.checking import left_behind

CELLS = {
    "a count": ("total = 0\ndef f(x):\n    global total\n    total = total + 1\n    return x * total\n", "`total` is 1 with jit, and 3 without jit"),
    "a list": ("log = []\ndef f(x):\n    log.append(2)\n    return x * 2\n", "`log` has 1 item with jit, and 3 items without jit"),
    "an entry": ("d = {'n': 0}\ndef f(x):\n    d['n'] += 2\n    return x\n", "`d['n']` is 2 with jit, and 6 without jit"),
    "an attribute": ("class C:\n    k = 0\nc = C()\ndef f(x):\n    c.k = c.k + 1\n    return x\n", "`c.k` is 1 with jit, and 3 without jit"),
    "one of two names": ("d = {'n': 0}\nseen = d\ndef f(x):\n    seen['n'] += 2\n    return x\n", "`d['n']` is 2 with jit, and 6 without jit"),
    "a deque": ("import collections\nq = collections.deque(maxlen=2)\ndef f(x):\n    q.append(1)\n    return x\n", "`q` has 1 item with jit, and 2 items without jit"),
}  # fmt: skip


@pytest.mark.parametrize("magic", ["%%jit -q --no-time", "%%jitcheck -q"])
@pytest.mark.parametrize("name", CELLS)
def test_a_lost_write_is_wrong(notebook: Any, name: str, magic: str) -> None:
    cell, words = CELLS[name]
    notebook.ok(f"{magic} -f f\n{cell}for i in range(3): f(jnp.ones(2))")
    report = notebook.report()
    assert report.verdict == "wrong" and report.functions[0].timing.speedup is None
    (error,) = (f for f in report.findings if f.severity == "error")
    assert error.message.endswith(words)


AGENTS = """\
class Agent:
    def __init__(self):
        self.n, self.m = 0, 0.0
    def step(self, x):
        self.n += 1
        self.m = 0.5 * self.m + 1.0
        return x * self.n
{held}
for i in range(3):
    for a in {each}:
        a.step(jnp.ones(2))
"""


@pytest.mark.parametrize(
    ("held", "each", "place"),
    [
        ("agents = [Agent(), Agent()]", "agents", "agents[0].m"),
        ("world = {'all': (Agent(),)}", "world['all']", "world['all'][0].m"),
        ("class World: pass\nworld = World()\nworld.one = Agent()", "[world.one]", "world.one.m"),
    ],
)
def test_what_an_object_loses_is_wrong_wherever_it_is_kept(
    notebook: Any, held: str, each: str, place: str
) -> None:
    cell = AGENTS.format(held=held, each=each)
    notebook.ok(f"%%jit -q --no-time -f Agent.step --dyn self.n\n{cell}")
    (error,) = (f for f in notebook.report().findings if f.severity == "error")
    assert f"`{place}` is " in error.message and error.culprits[0] == "self.m"


def test_what_a_module_of_the_users_own_loses_is_wrong(
    notebook: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    (tmp_path / "tallies.py").write_text("count, log = 0, []\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tallies", raising=False)
    cell = "import tallies as t\ndef f(x):\n    t.count += 1\n    t.log.append(2)\n    return x\nfor i in range(3): f(1.0)"
    for first in (1, 4):  # imported before or not, what a run of ours starts from is where the cell began
        notebook.ok(f"%%jit -q --no-time -f f\n{cell}")
        told = [f.message for f in notebook.report().findings if f.severity == "error"]
        assert told[0].endswith(f"`t.count` is {first} with jit, and {first + 2} without jit")
        assert notebook.ns["t"].count == first and len(notebook.ns["t"].log) == first
        notebook.ns["t"].count, notebook.ns["t"].log[:] = 3, [2, 2, 2]


def test_what_there_was_no_time_for_is_said(notebook: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(left_behind, "LEAST", 0.001)
    monkeypatch.setattr(left_behind, "SHARE", 0.0)
    monkeypatch.setattr(left_behind, "MORE", 0.0)
    cell, _ = CELLS["a count"]
    notebook.ok(f"%%jitcheck -q -f f\n{cell}for i in range(2_000): f(jnp.ones(2))")
    report = notebook.report()
    assert report.verdict != "wrong" and [f.kind for f in report.findings if f.severity == "warning"] == [
        "state-write"
    ]
    (note,) = (n for n in report.functions[0].notes if "left behind" in n)
    assert note.startswith(
        "what is left behind was not compared: without jit it takes over 0.001 s (`--search`"
    )


def test_the_place_that_the_function_writes_is_told_before_what_comes_of_it(notebook: Any) -> None:
    notebook.ok(
        "%%jit -q --no-time -f f\nclass C:\n    a, k = 0, 0\nc = C()\ndef f(x):\n    c.k = c.k + 1\n    return x\n"
        "for i in range(3):\n    f(1.0)\n    c.a = c.a + c.k"
    )
    (error,) = (f for f in notebook.report().findings if f.severity == "error")
    assert error.message.endswith("`c.k` is 1 with jit, and 3 without jit")


STALE = "k, xs = {0}\n{1}def f(x):\n    return x * k\nprint('at', f(1.5), 3)\nk = {2}\nxs.append(f(1.5))\nprint('at', xs.pop(), 3)"


@pytest.mark.parametrize("magic", ["%%jit -q --no-time -f f\n{0}", "%%jitcheck -q\n{0}"])
def test_an_old_value_is_wrong_where_a_result_shows_it(notebook: Any, magic: str) -> None:
    jitted = "@jax.jit\n" if "check" in magic else ""
    notebook.ok(magic.format(STALE.format("2.0, []", jitted, "4.0")))
    (error,) = (f for f in notebook.report().findings if f.severity == "error")
    assert error.kind == "stale-constant" and error.message.endswith(
        "; printed number 3 is 3 with jit, and 6 without jit"
    )
    notebook.ok(magic.format(STALE.format("2.0, []", jitted, "2.0000001")))
    assert notebook.report().functions[0].verdict == "ok"


@pytest.mark.parametrize("magic", ["%%jit -q --no-time", "%%jitcheck -q"])
def test_what_is_written_once_is_not_wrong(notebook: Any, magic: str) -> None:
    notebook.ok(
        f"{magic}\nmemo = {{}}\ndef f(x):\n    if 'k' not in memo: memo['k'] = 3.0\n    return x * memo['k']\n"
        "for i in range(3): f(jnp.ones(2))"
    )
    assert report_of(notebook) == "ok"


def report_of(notebook: Any) -> str:
    return str(notebook.report().functions[0].verdict)


def test_a_function_that_cannot_be_compiled_does_not_hide_what_another_loses(notebook: Any) -> None:
    notebook.ok(
        "%%jitcheck -q\nn = 0\ndef f(x):\n    global n\n    n = n + 1\n    return x\n"
        "def g(x):\n    return x if x > 0 else -x\nfor i in range(2): f(1.0); g(1.0)"
    )
    wrong, fails = notebook.report().functions
    assert (wrong.verdict, fails.verdict) == ("wrong", "fails")
    fixes = {f.function: f.fixes[0] for f in notebook.report().findings if f.severity == "error"}
    assert fixes["f"].verified and fixes["f"].dyn == ("n",) and fixes["g"].verified


def test_a_write_that_another_correction_forgets_is_no_correction(notebook: Any) -> None:
    notebook.ok(
        "%%jitcheck -q\nn, log = 0, []\ndef f(x):\n    global n\n    n = n + 1\n    log.append(1)\n    return x * n\n"
        "for i in range(3):\n    y = f(jnp.ones(2))"
    )
    fixes = [x for f in notebook.report().findings for x in f.fixes if x.verified]
    assert fixes and all("log" in f"{x.dyn} {x.cell}".replace("log.append(1)", "") for x in fixes)

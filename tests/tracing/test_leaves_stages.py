"""Names of leaves, the key of a call, counts and stages, and what compat reads of a jaxpr."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.tracing import compat
from jitmagic.tracing.leaves import call_leaves, is_restless, map_leaves, named_leaves, signature_key
from jitmagic.tracing.stages import counted, equation_count, run_stages

X = jnp.arange(3.0)


def _f(x: Any, cfg: Any = None, *args: Any, **kw: Any) -> Any:
    return x


def test_paths() -> None:
    call = (X, {"deep": [1, 2]}, 3.0, (4, 5)), {"flag": True}
    paths = [p for p, _ in named_leaves(_f, *call)]
    assert paths == ["x", "cfg['deep'][0]", "cfg['deep'][1]", "args[0]", "args[1][0]", "args[1][1]", "flag"]
    assert [p for p, _ in named_leaves(max, (1, 2), {})] == ["args[0]", "args[1]"]


def test_map_leaves_keeps_the_form_of_the_call() -> None:
    def f(b: Any, a: Any, *rest: Any) -> Any:
        return b

    seen: dict[str, Any] = {}
    args, kwargs = map_leaves(f, (1,), {"a": {"z": 2, "y": 3}}, lambda p, v: seen.setdefault(p, v * 10))
    assert (args, kwargs) == ((10,), {"a": {"z": 20, "y": 30}})
    assert seen == {"b": 10, "a['y']": 30, "a['z']": 20}


def test_call_leaves() -> None:
    leaves = call_leaves(_f, (X, np.ones(2), 3), {}, static_argnums=(1,))
    assert [(x.path, x.kind, x.static, x.hashable) for x in leaves] == [
        ("x", "array", False, False), ("cfg", "numpy", True, False), ("args[0]", "scalar", False, True),
    ]  # fmt: skip
    assert leaves[2].weak_type and leaves[2].dtype == "int32" and leaves[2].value == "3"


CALLS: list[Any] = [
    ((X, 1), {}), ((X, 2), {}), ((X + 1, 1), {}), ((jnp.ones(4), 1), {}), ((X.astype(int), 1), {}), ((1.0, 1), {}),
    ((jnp.float32(1.0), 1), {}), ((X,), {"n": 1}), (([X], 1), {}), (((X,), 1), {}),
]  # fmt: skip


@pytest.mark.parametrize("other", range(1, len(CALLS)))
def test_the_key_changes_when_jit_traces_anew(other: int) -> None:
    traces = []

    def f(x: Any, n: Any) -> Any:
        traces.append(1)
        return x

    jitted = jax.jit(f, static_argnames="n")
    keys = []
    for args, kwargs in (CALLS[0], CALLS[other]):
        jitted(*args, **kwargs)
        keys.append(signature_key(f, args, kwargs, static_argnames=("n",)))
    assert (keys[0] != keys[1]) == (len(traces) == 2)


def test_stages_and_counts() -> None:
    def named(x: Any) -> Any:
        return jnp.tanh(x) * 2

    jitted = jax.jit(named)
    with counted() as counts:
        staged = run_stages(jitted, (X,), {})
        jitted(X)
    assert (counts.traces("named"), counts.compiles("named")) == (1, 1)
    assert staged.stages.trace_s and staged.stages.lower_s and staged.stages.compile_s
    with counted() as later:
        jitted(X)
    assert (later.traces("named"), later.compiles("named")) == (0, 0)
    assert equation_count(staged.traced.jaxpr) == 2


def test_equations_of_inner_programs_count() -> None:
    flat = jax.make_jaxpr(lambda x: x * 2 + 1)(1.0)
    looped = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * 2 + 1, x))(1.0)
    assert equation_count(flat) == 2 and equation_count(looped) > 3


def test_constants_of_inner_programs_keep_their_identity() -> None:
    w, v = jnp.arange(5.0), jnp.arange(4.0)
    inner = jax.jit(lambda x: x + v)
    jaxpr = jax.make_jaxpr(
        lambda x: (inner(x), jax.lax.scan(lambda c, _: (c + w.sum(), None), x[0], None, 2))
    )(v)
    found = {id(c) for c in compat.constants_of(jaxpr)}
    assert id(w) in found and id(v) in found


def test_a_constant_that_is_only_returned_is_found() -> None:
    w = jnp.arange(5.0)
    assert [id(c) for c in compat.constants_of(jax.make_jaxpr(lambda x: (x, w))(1.0))] == [id(w)]


def test_a_frame_tells_that_jit_is_tracing_and_not_scan() -> None:
    found: list[bool] = []

    def f(x: Any) -> Any:
        frame: Any = sys._getframe()
        seen = False
        while frame is not None:
            seen, frame = seen or compat.traces_jit(frame.f_code), frame.f_back
        found.append(seen)
        return x

    jax.jit(f)(1.0)
    jax.lax.scan(lambda c, _: (f(c), None), 1.0, None, length=2)
    jax.vmap(f)(jnp.ones(2))
    assert found[0] and not any(found[1:])


def test_trace_state_and_tracers() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append((compat.trace_state_clean(), compat.is_tracer(x)))
        return x

    jax.jit(f)(1.0)
    assert kept[0] == (False, True)
    assert compat.trace_state_clean()
    assert not compat.is_tracer(X)


def test_tracebacks_setting_is_put_back() -> None:
    before = jax.config.jax_traceback_filtering
    with pytest.raises(RuntimeError), compat.full_tracebacks():
        assert jax.config.jax_traceback_filtering == "off"
        raise RuntimeError
    assert jax.config.jax_traceback_filtering == before


def test_frames_of_an_equation() -> None:
    eqn = compat.jaxpr_of(jax.make_jaxpr(lambda x: jnp.sin(x))(1.0)).eqns[0]
    assert any(code.co_filename == __file__ for code, _ in compat.eqn_frames(eqn))
    inner = jax.jit(lambda x: x * 2)
    eqn = compat.jaxpr_of(jax.make_jaxpr(lambda x: inner(x))(1.0)).eqns[0]
    assert [compat.traced_file(j) for j in compat.subjaxprs(eqn)] == [__file__]


def test_a_leak_is_found_without_a_search_for_what_keeps_it_alive() -> None:
    from jax._src import core

    kept: list[Any] = []
    before = core.leaked_tracer_error
    with pytest.raises(Exception, match="Leaked") as caught, compat.checking_leaks():
        jax.jit(lambda x: kept.append(x + 1))(1.0)
    assert "is referred to by" not in str(caught.value) and core.leaked_tracer_error is before


QUIET = {
    "a field": "def __hash__(self): return hash(self.n)",
    "a constant beside": "def __hash__(self): return hash((self.n, SALT))",
    "a function that tells": "def __hash__(self): return plain(self.n)",
    "a method that tells": "def __hash__(self): return self.key()\n    def key(self): return hash(tuple(x for x in self.n))",
    "the base's": "def __hash__(self): return super().__hash__()",
    "itself": "def __hash__(self): return hash(self.below) if self.below else 0",
}
RESTLESS = {
    "an attribute": "def __hash__(self):\n        self.n += 1\n        return 1",
    "a global": "def __hash__(self):\n        global SALT\n        SALT += 1\n        return 1",
    "a list": "def __hash__(self):\n        log.append(1)\n        return 1",
    "a method": "def __hash__(self): return self.key()\n    def key(self):\n        log[0] = 1\n        return 1",
    "a property": "def __hash__(self): return self.key\n    @property\n    def key(self):\n        log[0] = 1\n        return 1",
    "a function": "def __hash__(self): return counting()",
    "a closure": "def __hash__(self): return inner()",
    "a comprehension": "def __hash__(self): return len([log.append(i) for i in range(2)])",
    "an object": "def __hash__(self): return caller()",
}


@pytest.mark.parametrize(("name", "restless"), [*((n, False) for n in QUIET), *((n, True) for n in RESTLESS)])
def test_special_methods_that_do_more_than_tell(name, restless):
    body = {**QUIET, **RESTLESS}[name]
    text = (
        "SALT, log = 3, [0]\ndef plain(x): return hash(x)\ndef counting():\n    log[0] += 1\n    return 1\n"
        "class Caller:\n    def __call__(self):\n        log[0] = 1\n        return 1\ncaller = Caller()\n"
        "def made():\n    def inner():\n        log.append(1)\n        return 1\n    class A:\n        n = below = ()\n"
        f"        {body.replace(chr(10), chr(10) + '    ')}\n    return A\nA = made()\n"
    )
    file = f"<ipython-input-{name}>"
    ns: dict[str, Any] = {}
    exec(compile(text, file, "exec"), ns)
    assert is_restless(ns["A"], "__hash__") is restless
    assert ns["log"] == [0]


def test_special_methods_of_libraries_are_asked():
    made = dataclasses.make_dataclass("Made", ["n"], frozen=True)
    assert not any(is_restless(c, n) for c in (made, int, jax.Array, tuple) for n in ("__hash__", "__repr__"))

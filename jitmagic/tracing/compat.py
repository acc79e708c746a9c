"""Every name of jax that is not public, and every branch on a version of jax.

Each function says why the name is needed and what happens where it is missing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.extend.core
import numpy as np
from jax.extend.core import JaxprEqn

from jitmagic import patches
from jitmagic.raw import is_a

JAX_DIRECTORY = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep

Tracer: type = jax.core.Tracer
Trace: type = jax.core.Trace
_traces: Any = (
    jax.extend.core
    if hasattr(jax.extend.core, "set_current_trace")
    else importlib.import_module("jax._src.core")  # private until jax 0.10
)
set_current_trace = _traces.set_current_trace


class TypedTracer(Tracer):  # type: ignore[misc, valid-type]
    """A tracer that is made with its type, as all are from jax 0.10 on."""

    __slots__ = () if "aval" in Tracer.__slots__ else ("_aval",)  # type: ignore[attr-defined]

    if "aval" not in Tracer.__slots__:  # type: ignore[attr-defined]

        def __init__(self, trace: Any, aval: Any) -> None:
            super().__init__(trace)
            self._aval = aval

        @property
        def aval(self) -> Any:
            return self._aval


def is_tracer(value: object) -> bool:
    """`value` stands for a traced value."""
    return issubclass(type(value), Tracer)


def nodes_of_trees() -> Mapping[type, Any]:
    """The classes that are nodes of trees, with `to_iter` and `from_iter`. Private; empty without the name."""
    return getattr(importlib.import_module("jax._src.tree_util"), "_registry", {})


def traceback_filtering() -> types.ModuleType | None:
    """The module that takes frames of jax's out of tracebacks, wherever an error leaves one of its functions; whether
    one further out will is asked of `_is_under_reraiser(error)`, which reads all frames that are running. Private: the
    public setting `jax_traceback_filtering` is asked for after that. None where it is not there, and all stays slow."""
    module = sys.modules.get("jax._src.traceback_util")
    return module if hasattr(module, "_is_under_reraiser") else None


def array_class() -> Any:
    """The class of arrays that have a value. Private; None without the name."""
    return getattr(importlib.import_module("jax._src.array"), "ArrayImpl", None)


def code_that_fetches() -> tuple[types.CodeType, ...]:
    """The Python code by which the value of an array comes to the host: that of `x.item()`, and of what `float(x)`,
    `print(x)` and the like all ask for. Its first argument is the array.

    Private: the latter is `_value`. Without the name nothing of it is heard.
    """
    array = array_class()
    asked = (getattr(vars(array).get("_value"), "fget", None), getattr(array, "item", None)) if array else ()
    plain = (inspect.unwrap(function) for function in asked if callable(function))
    return tuple(f.__code__ for f in plain if isinstance(f, types.FunctionType))


def is_ref(value: object) -> bool:
    """`value` is a mutable array of jax's (`jax.Ref`), traced or not: what is stored in it, its owner sees."""
    refs: type | None = getattr(jax, "Ref", None)
    return refs is not None and (is_a(value, refs) or is_tracer(value) and isinstance(value, refs))


def is_unreduced(value: object) -> bool:
    """Each device holds a part of a sum that was not made yet: there are no values to look at."""
    return bool(getattr(getattr(getattr(value, "sharding", None), "spec", None), "unreduced", None))


def trace_state_clean() -> bool:
    """No trace of jax's is under way in this thread. Without the private name: True."""
    return bool(outside_check()())


def outside_check() -> Callable[[], bool]:
    """The function behind `trace_state_clean`, for code that calls it often."""
    from jax._src import core

    found: Callable[[], bool] = getattr(core, "trace_state_clean", lambda: True)
    return found


def jit_options(jitted: object) -> dict[str, Any]:
    """Static and donated arguments that a `jax.jit` object was made with; empty where jax does not tell.

    There is no public way to ask; the cell's own `@partial(jax.jit, static_argnums=...)` would be lost.
    """
    info = getattr(jitted, "_jit_info", None)
    keys = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused", "inline")
    return {k: v for k in keys if (v := getattr(info, k, None))}


def jaxpr_of(closed: object) -> Any:
    """The open jaxpr; from jax 0.11 on a jaxpr carries its constants itself."""
    return getattr(closed, "jaxpr", closed)


_PLAIN = frozenset((type(None), bool, int, float, str, dict, set, frozenset))
"""Types of parameters that are no programs: to ask one for an attribute that it lacks takes a microsecond."""


def type_of(atom: object) -> tuple[tuple[int, ...], np.dtype | None]:
    """Shape and dtype of a variable or a literal of a program; `()` and None where it has none."""
    aval = getattr(atom, "aval", None)
    return getattr(aval, "shape", ()), getattr(aval, "dtype", None)


def subjaxprs(eqn: JaxprEqn) -> Iterator[Any]:
    """The jaxprs among an equation's parameters: bodies of loops, branches, inner functions."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if type(item) not in _PLAIN and (
                hasattr(item, "eqns") or hasattr(getattr(item, "jaxpr", None), "eqns")
            ):
                yield item


def every_equation(closed: object) -> Iterator[JaxprEqn]:
    """Every equation of a traced program, those of inner programs included."""
    for eqn in jaxpr_of(closed).eqns:
        yield eqn
        for inner in subjaxprs(eqn):
            yield from every_equation(inner)


def jit_is_off() -> bool:
    """The user has said `jax.disable_jit()`: functions run as they are."""
    return bool(jax.config.jax_disable_jit)  # type: ignore[attr-defined]


def calls_back(closed: object) -> str:
    """`io_callback` or `debug_callback`, where a traced program has one: each run of it is seen outside.

    `pure_callback` may run any number of times, and what `jax.debug.print` prints can be held back.
    """
    names = (str(eqn.primitive) for eqn in every_equation(closed))
    return next((name for name in names if name in ("io_callback", "debug_callback")), "")


def constants_of(closed: object) -> list[Any]:
    """Arrays that a traced program holds, inner programs included, each object once.

    jax keeps them beside the jaxpr (`consts`) or, with simplified constants, inside as literals:
    both are read.
    """
    found: dict[int, object] = {}

    def collect(jaxpr: object) -> None:
        for constant in getattr(jaxpr, "consts", ()) or ():
            found.setdefault(id(constant), constant)
        for eqn in jaxpr_of(jaxpr).eqns:
            for var in eqn.invars:
                value = getattr(var, "val", None)
                if value is not None and (np.ndim(value) > 0 or hasattr(value, "addressable_shards")):
                    found.setdefault(id(value), value)
            for inner in subjaxprs(eqn):
                collect(inner)
        for var in jaxpr_of(jaxpr).outvars:
            value = getattr(var, "val", None)
            if value is not None and np.ndim(value) > 0:
                found.setdefault(id(value), value)

    collect(closed)
    return list(found.values())


def is_jitted(value: object) -> bool:
    """Whether `value` is a function compiled by jax.jit."""
    if not callable(value) or issubclass(type(value), type):
        return False
    return all(inspect.getattr_static(value, name, None) is not None for name in ("lower", "clear_cache"))


def jitted_call(frame: types.FrameType) -> tuple[object, tuple[object, ...], dict[str, object]] | None:
    """The function and the values of a call of `jax.jit`'s that was on its way in this frame; None for other frames.

    Private: the name of jax's function that is called where no program is known, and of its variables."""
    seen = frame.f_locals
    if frame.f_code.co_name != "cache_miss" or any(name not in seen for name in ("fun", "args", "kwargs")):
        return None
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((seen["args"], seen["kwargs"]))):
        return None
    return seen["fun"], tuple(seen["args"]), dict(seen["kwargs"])


def begins_with(jitted: object) -> types.FunctionType | None:
    """What Python runs of a call of `jax.jit`'s that jax has no program for; None of other functions.

    Private: `_cache_miss` of jaxlib's object, whose result is a tuple with the user's result in front."""
    found = getattr(jitted, "_cache_miss", None) if type(jitted).__name__ == "PjitFunction" else None
    return found if isinstance(found, types.FunctionType) else None


def origin_of(tracer: Any) -> str:
    """What jax says about where a traced value comes from: "depends on the value of the argument n"; else ''.

    Private: `_origin_msg` is what jax adds to most of its errors; a `TypeError` about a size comes without.
    """
    try:
        return str(tracer._origin_msg())
    except Exception:
        return ""


def current_trace() -> object:
    """The trace that primitives are bound under at the moment."""
    with _traces.take_current_trace() as trace:
        return trace


def builds_program(trace: object) -> bool:
    """Whether what runs under `trace` becomes part of a program (jit, scan, cond), grad and vmap in it included.

    Private: `parent_trace` is the only link from a trace to the one around it. Without it: True.
    """
    while trace is not None:
        name = type(trace).__name__
        if name == "EvalTrace":
            return False
        if "Jaxpr" in name or not hasattr(trace, "parent_trace"):
            return True
        trace = trace.parent_trace
    return False


def is_outermost(trace: object) -> bool:
    """Whether what `trace` makes is evaluated at once: nothing else is being traced around it.

    Private: `parent_trace`, as above. Without it: False."""
    return type(getattr(trace, "parent_trace", None)).__name__ == "EvalTrace"


@contextlib.contextmanager
def full_tracebacks() -> Iterator[None]:
    """Exceptions raised inside keep every frame, in this thread alone.

    Private: the state object is the only way to set this for one thread. Without it, frames may be missing.
    """
    filtering = getattr(importlib.import_module("jax._src.config"), "traceback_filtering", None)
    with filtering("off") if callable(filtering) else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """What is traced inside is not what jax remembers for the user's own calls (bodies of loops, checkpoints), which
    then would not run them; and keys that are used inside count as unused.

    Private: a setting for one thread, on which what jax remembers depends, and no program does. Without the name what
    a body of the user's prints is held back for good.
    """
    config = importlib.import_module("jax._src.config")
    setting = getattr(config, "hlo_source_file_canonicalization_regex", None)
    looks_at_keys = bool(jax.config.jax_debug_key_reuse)  # type: ignore[attr-defined]
    with setting("(?!)") if callable(setting) else contextlib.nullcontext():
        with jax.debug_key_reuse(False) if looks_at_keys else contextlib.nullcontext():
            yield


patches.around_runs.append(_apart)


def settings_of_thread() -> list[tuple[Any, object]]:
    """What `with jax.enable_x64(True)` and its like set for this thread alone, each setting with its value.

    Private: the objects behind the public contexts, without which what such a context has set in a run of ours, and not
    put back, stays."""
    config = sys.modules.get("jax._src.config")
    names = vars(config) if config is not None else {}
    return [(v, v.get_local()) for v in _of_threads(len(names), len(names.get("config_states", ())))]


@functools.lru_cache(1)
def _of_threads(names: int, states: int) -> list[Any]:
    """The objects behind them, while there are as many names and states."""
    config = sys.modules.get("jax._src.config")
    every = [*vars(config).values(), *getattr(config, "config_states", {}).values()] if config else []
    ours = [id(getattr(config, name, None)) for name in _OURS]
    found = {id(v): v for v in every if hasattr(type(v), "set_local")}
    return [v for i, v in found.items() if i not in ours]


_OURS = ("traceback_filtering", "hlo_source_file_canonicalization_regex")


def put_settings_of_thread(old: list[tuple[Any, object]]) -> None:
    """The way back. Private: as there; what jax does where such a setting changes is done, too."""
    for setting, value in old:
        if setting.get_local() is value:
            continue
        setting.set_local(value)
        follow = getattr(setting, "_update_thread_local_hook", None)
        if follow is not None:
            unset = getattr(getattr(sys.modules["jax._src.config"], "config_ext", None), "unset", None)
            follow(None if value is unset else value)


def meshes_entered() -> list[object]:
    """What `with mesh:` has entered in this thread. Private: jax tells only of the innermost."""
    return list(getattr(_entered(), "stack", ()))


def put_meshes_entered(old: list[object]) -> None:
    """The way back. Private: as there; the settings that come with it are put back with the others."""
    entered = _entered()
    if old and entered.stack != old:
        entered.stack[:], entered.env = old, old[-1]


def _entered() -> Any:
    return getattr(sys.modules.get("jax._src.mesh"), "thread_resources", None)


def _is_ours(fn: object) -> bool:
    return type(fn).__module__.startswith("jitmagic.")


def never_called(functions: Iterable[object]) -> list[Any]:
    """Those of the compiled functions that no call has compiled yet. Private: jax tells by `_cache_size` alone."""
    asked = [(fn, getattr(fn, "_cache_size", None)) for fn in functions if is_jitted(fn) and not _is_ours(fn)]
    return [fn for fn, size in asked if callable(size) and not size()]


@contextlib.contextmanager
def checking_leaks() -> Iterator[None]:
    """`jax.checking_leaks`, whose error then does not say what keeps each tracer alive.

    Private: `core.leaked_tracer_error` asks the garbage collector for the referrers of every leaked tracer in
    turn, which takes minutes where a trace of a thousand operations leaks. Without the name, that is waited for.
    """
    core: Any = importlib.import_module("jax._src.core")
    told = getattr(core, "leaked_tracer_error", None)

    def briefly(name: str, trace: object, tracers: list[Any]) -> Exception:
        first = "\n\n".join(f"{t}{t._origin_msg()}" for t in tracers[:3])
        return Exception(f"Leaked {name} {trace}. Leaked tracer(s):\n\n{first}\n")

    patched = {"leaked_tracer_error": patches.here(briefly, told)} if told is not None else {}
    with patches.replaced(core, **patched), jax.checking_leaks():
        yield


def raw_frames(traceback: Any) -> list[tuple[Any, int]]:
    """(code object, instruction offset) of every frame of a jaxlib traceback within its trace, innermost first."""
    # Private: the traceback is a jaxlib object; `summarize` of jax.extend gives text without an end column.
    try:
        codes, offsets = traceback.raw_frames()
        frames = list(zip(codes, offsets, strict=True))
    except Exception:
        return []
    # until jax 0.10 what stands around the trace is in there too
    around = (i for i, (code, _) in enumerate(frames) if code.co_name == "trace_to_jaxpr_dynamic")
    return frames[: next(around, None)]


def eqn_frames(eqn: object) -> list[tuple[types.CodeType, int]]:
    """(code object, instruction offset) of the frames in which an equation arose, innermost first."""
    return raw_frames(getattr(getattr(eqn, "source_info", None), "traceback", None))


def primal_of(tracer: object) -> tuple[object, object]:
    """What a tracer of vmap or grad stands on: (inner value, batch axis or None); (None, None) for others.

    The attribute names are private: no public way leads from such a tracer to what it wraps.
    """
    slots = {name for kind in type(tracer).__mro__ for name in getattr(kind, "__slots__", ())}
    if "batch_dim" in slots:
        return getattr(tracer, "val", None), getattr(tracer, "batch_dim", None)
    if "primal" in slots:
        return getattr(tracer, "primal", None), None
    return None, None


def call_wrapped(fun: Any) -> Callable[..., object]:
    """The callable of a function handed to a custom rule: jax wraps it in a `WrappedFun`, or not."""
    return getattr(fun, "call_wrapped", fun)


def traced_file(closed: object) -> str:
    """File of the function that a jaxpr was traced from; '<unknown>' where jax does not say."""
    # Private: `debug_info.func_src_info` is the text "name at file:line".
    info = getattr(getattr(jaxpr_of(closed), "debug_info", None), "func_src_info", None)
    return str(info).partition(" at ")[2].rpartition(":")[0] or "<unknown>"


def eval_jaxpr(closed: object, args: Sequence[object]) -> list[Any]:
    """Interpret a (closed) jaxpr under the current trace."""
    return list(jax.core.eval_jaxpr(jaxpr_of(closed), getattr(closed, "consts", ()) or (), *args))


def run_equation(eqn: Any, args: Iterable[object]) -> list[Any]:
    """Results of one equation's operation on these values, under the current trace."""
    params = eqn.primitive.get_bind_params(eqn.params)
    # until jax 0.10 inner programs stood in front of the values
    inner, params = params if isinstance(params, tuple) else ((), params)
    result = eqn.primitive.bind(*inner, *args, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def program_of(closed: object) -> Callable[..., list[Any]]:
    """A traced program as a function of its inputs."""

    def program(*args: object) -> list[Any]:
        return eval_jaxpr(closed, args)

    return program


def value_behind(tracer: object) -> jax.Array | None:
    """The value that `jax.grad` and the like, or `jax.vmap` (there the first of those mapped), trace a call with; None
    where there is none, as in a program that is being built, and where to take one of several keys is to use them.

    Private: traced values have no public way to what they stand for. Without the names: None.
    """
    if not is_tracer(tracer):
        return tracer if is_a(tracer, jax.Array) else jax.numpy.asarray(tracer)
    value = value_behind(getattr(tracer, name)) if (name := _BEHIND.get(type(tracer).__name__)) else None
    axis = getattr(tracer, "batch_dim", None)
    if value is None or axis is None:
        return value
    takes_from_keys = bool(getattr(jax.config, "jax_debug_key_reuse", False))
    if type(axis) is not int or takes_from_keys or not value.shape[axis]:
        return None
    return value[(slice(None),) * axis + (0,)]


_BEHIND = {"JVPTracer": "primal", "LinearizeTracer": "primal", "BatchTracer": "val"}


@contextlib.contextmanager
def outside_of_traces() -> Iterator[None]:
    """What runs in here runs as if no trace were under way; for where none `builds_program`.

    Private: before jax 0.10, `vmap` without the name of an axis leaves an environment of names, if an empty one.
    """
    trace: Any = current_trace()
    while hasattr(trace, "parent_trace"):
        trace = trace.parent_trace
    core = importlib.import_module("jax._src.core")
    context: Any = getattr(core, "trace_ctx", None)
    top = getattr(core, "top_axis_env", None)
    names = getattr(context, "axis_env", None)
    empty = top is not None and names == top
    with set_current_trace(trace):
        if empty:
            context.set_axis_env(top)
        try:
            yield
        finally:
            if empty:
                context.set_axis_env(names)


@contextlib.contextmanager
def failed_traces_let_go() -> Iterator[None]:
    """A trace in here that fails does not live on, with all that it has as constants.

    Private: jax has Python tell it when a traced value of a constant goes, which Python remembers together with the
    trace; that holds the value. Without the names such a trace lives as long as the process.
    """
    remembered: Mapping[weakref.finalize, Any] = getattr(weakref.finalize, "_registry", {})
    earlier = set(remembered)
    try:
        yield
    finally:
        for told in [f for f in tuple(remembered) if f not in earlier]:
            if getattr(getattr(remembered.get(told), "func", None), "__name__", "") == "finalize_const":
                told.detach()


def trace_of(tracer: object) -> object:
    """The trace that a tracer belongs to. Private: no public way tells whose tracer a value is."""
    return getattr(tracer, "_trace", None)


def traces_jit(code: types.CodeType) -> bool:
    """A frame of this code is a plain `jax.jit` at its trace; scan and cond run at once what they trace.

    Private: nothing public tells whether a compilation is under way. Without these names a change of state
    inside another compilation is refused later, where it would leave a tracer.
    """
    return code.co_filename.endswith("pjit.py") and code.co_name in _JIT_TRACES


_JIT_TRACES = "_infer_params _infer_params_impl _infer_params_internal _trace_for_jit trace_for_jit".split()


def trace_call(frame: types.FrameType | None) -> tuple[object, object, object, dict[str, object]] | None:
    """(function, options, args, kwargs) of the `jax.jit` trace that ends under `frame`; None where unknown.

    Private: the event of a trace tells the name alone, so the frame of jax's that made it is read. Options
    have `static_argnums` and `static_argnames`.
    """
    for _ in range(12):
        if frame is None:
            return None
        if frame.f_code.co_name in ("_trace_for_jit", "_infer_params_internal"):  # the latter until jax 0.10
            held = frame.f_locals
            if all(name in held for name in ("fun", "ji", "args", "kwargs")):
                return held["fun"], held["ji"], held["args"], held["kwargs"]
            return None
        frame = frame.f_back
    return None


Answer = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""`answer(jitted, function, args, kwargs)`: the results of the call, or NotImplemented."""


@contextlib.contextmanager
def answering_jitted(answer: Answer) -> Iterator[None]:
    """While the block runs, a call of a compiled function that jax has to look at (one with tracers, say) is first
    offered to `answer`.

    Private: jax looks at the arguments of such a call (`_infer_params`) and binds its program as one operation
    (`_run_python_pjit`), which takes three times what the call itself takes; there is no public way in between.
    Without these names, or where they work otherwise than here (tried once), calls go the long way.
    """
    if not _can_answer():
        yield
        return
    with _answering(answer):
        yield


@contextlib.contextmanager
def _answering(answer: Answer) -> Iterator[None]:
    pjit: Any = importlib.import_module("jax._src.pjit")
    made: dict[tuple[int, int], Any] = {}

    def offered(fun: Any, info: Any, args: Any, kwargs: Any) -> Any:
        if not _may_be_answered(fun, info):
            return NotImplemented
        key = (id(fun), id(info))
        if key not in made:
            made[key] = pjit._cpp_pjit(fun, info)  # which keeps both alive
        out = answer(made[key], fun, args, kwargs)
        return out if out is NotImplemented else _Answered(out)

    if hasattr(pjit, "_python_pjit_helper"):  # one function for both, until jax 0.10
        patched = _helper_that_answers(pjit._python_pjit_helper, offered)
    else:
        patched = _halves_that_answer(pjit._infer_params, pjit._run_python_pjit, offered)
    before = {name: getattr(pjit, name) for name in patched}
    vars(pjit).update(patched)
    try:
        yield
    finally:
        vars(pjit).update(before)


def _helper_that_answers(helper: Any, offered: Any) -> dict[str, Any]:
    def python_pjit_helper(fun: Any, info: Any, /, *args: Any, **kwargs: Any) -> object:
        found = offered(fun, info, args, kwargs)
        return helper(fun, info, *args, **kwargs) if found is NotImplemented else found.results()

    return {"_python_pjit_helper": python_pjit_helper}


def _halves_that_answer(infer: Any, run: Any, offered: Any) -> dict[str, Any]:
    def infer_params(fun: Any, info: Any, args: Any, kwargs: Any) -> object:
        if sys._getframe(1).f_code.co_name != "cache_miss":  # `lower` and `trace` ask too
            return infer(fun, info, args, kwargs)
        found = offered(fun, info, args, kwargs)
        return infer(fun, info, args, kwargs) if found is NotImplemented else (found, [])

    def run_python_pjit(found: object, flat: object, fun: object, args: object, kwargs: object) -> object:
        return found.results() if isinstance(found, _Answered) else run(found, flat, fun, args, kwargs)

    return {"_infer_params": infer_params, "_run_python_pjit": run_python_pjit}


def _may_be_answered(fun: Any, info: Any) -> bool:
    return not (info.donate_argnums or info.donate_argnames) and hasattr(fun, "__code__")


class _Answered:
    """Stands for a program without effects, which jax's shortcuts then leave alone."""

    effects = consts = ()

    def __init__(self, out: object) -> None:
        self.out = out

    def results(self) -> tuple[Any, ...]:
        """What jax's own functions return for a call that is done."""
        return self.out, [], jax.tree.structure(()), [], self, None, None, []


@functools.cache
def _can_answer() -> bool:
    seen: list[Any] = []
    outside = current_trace()

    def answer(jitted: Any, fun: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        if fun is not double or not is_tracer(args[0]):
            return NotImplemented
        with set_current_trace(outside):
            seen.append(jitted(2.0, **kwargs))
        return "answered"

    def double(x: Any, *, n: int) -> object:
        return x * n

    def asked(x: object) -> object:
        seen.append(jitted(x, n=3))
        return x

    try:
        jitted = jax.jit(double, static_argnames="n")
        with _answering(answer):
            jax.make_jaxpr(asked)(1.0)
        return [float(seen[0]), seen[1]] == [6.0, "answered"]
    except Exception:
        return False


def started_backend() -> str:
    """The platform that jax computes on; empty as long as nothing has made jax look for devices.

    Private: the public question starts the devices, after which their number can no longer be set. Without the
    name they are taken to have started.
    """
    bridge: Any = importlib.import_module("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: True)
    return jax.default_backend() if started() else ""


@functools.cache
def virtual_devices(count: int) -> tuple[object, ...]:
    """`count` devices of a CPU client of their own, to compile for; empty where this jaxlib cannot make one.

    Private: `jax_num_cpu_devices` works only before the first use of jax, and a notebook asks later. Programs
    are compiled for these devices and never run on them.
    """
    try:
        from jax._src.lib import xla_client

        return tuple(xla_client.make_cpu_client(num_devices=count).devices())
    except Exception:
        return ()


class ProfilerBusy(Exception):
    """Another tool holds the profiler."""


class NoProfiler(Exception):
    """This jax lacks the names that a profile needs."""


def profiled(run: Callable[[], object]) -> jax.profiler.ProfileData:
    """What happened while `run()` ran, its operations with their times. Raises ProfilerBusy and NoProfiler.

    `jax.profiler.trace` keeps its lock for good where another tool (`tensorboard`, a server) holds the profiler, so
    that the user's own trace would fail later; the session below it does not, and writes no files.
    """
    try:
        from jax._src.lib import _profiler

        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        if hasattr(options, "raise_error_on_start_failure"):
            options.raise_error_on_start_failure = True
        make, data = _profiler.ProfilerSession, jax.profiler.ProfileData
    except (ImportError, AttributeError) as exc:
        raise NoProfiler from exc
    try:
        session = make(options)
    except RuntimeError as exc:
        raise ProfilerBusy from exc
    try:
        run()
    finally:
        try:
            seen = session.stop()
        except RuntimeError as exc:  # where that is told at the end only
            raise ProfilerBusy from exc
    return data.from_serialized_xspace(seen)

"""`jitmagic.jit`: Python state as hidden inputs and outputs of a `jax.jit` function.

The dynamic variables of a function are read in front of each call, passed to one flat `jax.jit` function,
and those that the function writes come back as further results and are written in place. The wrapper that
does so is generated as source, with the variables spelled out (`_g0['l'].w`), because nothing else comes
within a few percent of hand-written code: see docs/state.md for the way of a call and its measurements.

Each trace says what it writes (a `Plan`). Traces that write differently give results of different length, so
that a call knows which plan its result belongs to.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from jitmagic.evidence import Write
from jitmagic.options import JitOptions
from jitmagic.state import adapters, codegen, guards, paths, plan, region, snapshot, values
from jitmagic.state.declared import Declared, Subject, flatten
from jitmagic.state.paths import Place
from jitmagic.state.values import MISSING

__all__ = ["StaleConstantWarning", "StateError", "Stateful", "StatefulMethod", "compile_function", "jit"]

_tracing = threading.RLock()  # a trace puts tracers into shared variables, so there is one at a time


class StateError(RuntimeError):
    """A stateful function was called where its state can't be followed; the state is as before."""


class StaleConstantWarning(UserWarning):
    """A value that was baked into a compiled function has changed since."""


class _NeedsState(BaseException):
    """A stateful function inside the trace of another one reads variables that this one has to know too."""

    def __init__(self, owner: Stateful, places: Sequence[Place]) -> None:
        super().__init__("internal: variables of an inner function")
        self.owner, self.places = owner, places


class _NotPrepared(BaseException):
    """jax traces on a call of the generated wrapper, which has not looked where it is called."""

    def __init__(self, owner: Stateful) -> None:
        super().__init__("internal: a trace that was not prepared")
        self.owner = owner


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[Stateful, Any]] = []
        """Functions whose traces are under way in this thread, with the traces, outermost first."""
        self.prepared: Stateful | None = None
        """The function whose next trace in this thread was asked for by `_call`, `_inside` or a stage."""

    @contextlib.contextmanager
    def expecting(self, owner: Stateful | None) -> Iterator[None]:
        """While this holds, `owner` may be traced, once."""
        before, self.prepared = self.prepared, owner
        try:
            yield
        finally:
            self.prepared = before


_active = _Active()


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    dyn_vars: Any = None,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    device: Any = None,
    backend: str | None = None,
    keep_unused: bool = False,
    inline: bool = False,
) -> Any:
    """Compile `fn` with `jax.jit`, with Python state as dynamic variables.

    Args:
        fn: a function, method, or object with `__call__`; without it, a decorator is returned.
        dyn_vars: what may change between calls: path strings (`"w, l.b, params['w']"`), arrays, framework
            variables, objects that hold them, or a (nested) list, tuple or dict of these; `"auto"` for
            every array the function reaches. Without it, framework variables are dynamic by themselves.
        static_argnums: as in `jax.jit`; so are the others. `donate_argnames` takes state paths as well.

    Returns:
        `jax.jit(fn)` itself where there are no dynamic variables, else a function with the same signature
        and with `lower`, `trace`, `eval_shape` and `clear_cache`.

    Raises:
        ValueError: a path does not lead to an array or number, or `fn` does not read a given array.
    """
    options = JitOptions.of(
        static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
        donate_argnames=donate_argnames, device=device, backend=backend, keep_unused=keep_unused, inline=inline,
    )  # fmt: skip
    if fn is None:
        return functools.partial(compile_function, dyn_vars=dyn_vars, options=options, warn=True)
    return compile_function(fn, dyn_vars, options, warn=True)


def compile_function(
    fn: Callable[..., Any],
    dyn_vars: Any,
    options: JitOptions,
    namespace: dict[str, Any] | None = None,
    *,
    as_in_jax: bool = False,
    warn: bool = False,
) -> Any:
    """`jit` with its options as one value; `namespace` is where names are looked up besides `fn`'s own.

    Under a magic, `self` is an ordinary argument of a method unless a path begins with it or it holds
    framework variables: `as_in_jax` keeps it so. `warn` has frozen values watched: a magic does that itself.
    """
    if isinstance(fn, (staticmethod, classmethod)):
        if warn and dyn_vars is None:
            return options.jit(fn)  # jax refuses it and says what to do
        return type(fn)(
            compile_function(fn.__func__, dyn_vars, options, namespace, as_in_jax=True, warn=warn)
        )
    first = receiver_name(fn)
    if first is not None and _takes_receiver(fn, dyn_vars, first, as_in_jax):
        return StatefulMethod(fn, dyn_vars, options, first, namespace, warn=warn)
    subject = Subject(fn, namespace)
    if dyn_vars is None or (isinstance(dyn_vars, str) and dyn_vars == "auto"):
        declared = Declared(dyn_vars, subject)
        if not declared.leaves(subject) and not _may_get_variables(subject, declared):
            return options.jit(fn)
    return Stateful(subject, dyn_vars, options, warn=warn).call


def _may_get_variables(subject: Subject, declared: Declared) -> bool:
    """A function that it calls has variables of its own, or names that it reads are not bound yet."""
    reach = subject.reach()
    if reach.stateful:
        return True
    if not adapters.any_installed() and not declared.auto:
        return False
    if any(root.value is MISSING for root in reach.roots):
        return True
    return adapters.any_installed() and _may_build(reach)


def _may_build(reach: Any) -> bool:
    """An object of the user's whose classes know a framework: it may build its variables at the first call."""
    return any(adapters.is_module_class(cls) for cls in reach.classes)


def receiver_name(fn: Callable[..., Any]) -> str | None:
    """Name of the first parameter (`self`) of a function, or None."""
    if not isinstance(fn, types.FunctionType):
        return None
    try:
        return next(iter(inspect.signature(fn).parameters), None)
    except (TypeError, ValueError):
        return None


def _takes_receiver(fn: Callable[..., Any], dyn_vars: Any, first: str, as_in_jax: bool) -> bool:
    """`fn` is the plain function of a method, whose receiver is an object of Python's and no argument of jax's."""
    texts = [p for p in flatten(dyn_vars) if isinstance(p, str)]
    named = any(paths.parse(p).root == first for t in texts if t != "auto" for p in paths.split_paths(t))
    owner = fn.__qualname__.rpartition(".")[0]
    in_class = bool(owner) and not owner.endswith("<locals>")
    return in_class and (named or (first == "self" and not as_in_jax))


def holds_variables(held: Sequence[Any]) -> bool:
    """Framework variables lie in one of these objects."""
    return adapters.any_installed() and any(map(region.holds_state, held))


class Stateful:
    """One function with its dynamic variables; `call` is what the user gets.

    With `receiver` (a weak reference) it is a method of that object, and `call` takes the object first."""

    def __init__(
        self,
        subject: Subject,
        dyn_vars: Any,
        options: JitOptions,
        *,
        warn: bool = False,
        receiver: Callable[[], Any] | None = None,
    ) -> None:
        self.fn, self.namespace, self.receiver_as = subject.fn, subject.namespace, subject.receiver_as
        self.options, self.receiver, self.name = options, receiver, subject.name
        self.declared = Declared(dyn_vars, subject)
        self.adopted: list[Place] = []
        self.warn = warn
        self.places: list[Place] = []
        self.plans: dict[int, plan.Plan] = {}
        self.written: list[int] | None = None
        self.nested: tuple[Callable[[], Any], Any] | None = None
        """The trace of a last call inside another program, and the `jax.jit` function for that trace."""
        self.parameters = codegen.parameters_of(self.bound())
        self.cells = codegen.cells_of(self.fn, self.parameters)
        self.guards: guards.Guards | None = None
        self.touched: dict[str, Write] = {}
        """What traces changed as a side effect, by path: no frozen values."""
        self.call = self._public()
        found = self._leaves()
        self._check_options(found)
        self._build(found)

    def bound(self) -> Callable[..., Any]:
        """The user's function without its receiver."""
        return self.fn if self.receiver is None else types.MethodType(self.fn, self._self())

    def subject(self) -> Subject:
        """The function as paths and reads are looked up for it."""
        if self.receiver is None:
            return Subject(self.fn, self.namespace)
        return Subject(self.fn, self.namespace, self._self(), self.receiver_as)

    def _self(self) -> Any:
        assert self.receiver is not None
        found = self.receiver()
        if found is None:
            raise StateError(f"the object whose method {self.name} is does not exist any more")
        return found

    # -- the variables

    def _leaves(self) -> list[Place]:
        from jitmagic.state.declared import unique

        found = self._weak(self.declared.leaves(self.subject()))
        return unique([*found, *(p for p in self.adopted if p.exists())]) if self.adopted else found

    def _weak(self, found: Sequence[Place]) -> list[Place]:
        """Places that do not keep the receiver alive."""
        return list(found) if self.receiver is None else region.weaken(found, self._self())

    def read(self) -> tuple[Any, ...]:
        """Current values of the dynamic variables, in order."""
        return tuple(p.get() for p in self.places)

    def _current(self) -> tuple[Any, ...]:
        """The values now, after looking the variables up anew where their structure has changed."""
        found = self._leaves()
        if [p.path for p in found] != [p.path for p in self.places]:
            self._build(found)
        else:
            self.places = found
        return self.read()

    def knows(self, slot: tuple[Any, ...]) -> bool:
        """Is what lies there one of the variables?"""
        return any(region.slot_of(p) == slot for p in self.places)

    def names(self, reach: Any) -> dict[str, str]:
        """Path of each dynamic variable, by the paths that `reach` knows it by."""
        slots = {region.slot_of(p): p.path for p in self.places}
        found = ((leaf.path, slots.get(region.slot_of(leaf.place))) for leaf in reach.leaves(used_only=False))
        return {path: name for path, name in found if name is not None}

    # -- compiling

    def _build(self, places: list[Place]) -> None:
        """A new `jax.jit` function for these variables."""
        self.places, self.plans, self.written, self.nested = places, {}, None, None
        self.tree = region.Tree(places, self._tops())
        given = self.options.donate_argnames
        self.donated = [i for i, p in enumerate(places) if paths.at_or_below(p.path, given)]
        self.compiled = self._jitted()
        codegen.become(self.call, codegen.generic(self._call, self.name, self.cells))

    def _check_options(self, found: Sequence[Place]) -> None:
        """Names and numbers that the function does not have are an error now, as in `jax.jit`."""
        state = {p.path for p in (*found, *self._tops())}
        above = tuple(n for n in self.options.donate_argnames if not self._is_state(n, state))
        replace(self.options, donate_argnames=above).jit(self.bound())

    @staticmethod
    def _is_state(name: str, state: Collection[str]) -> bool:
        return any(paths.at_or_below(p, [name]) or paths.at_or_below(name, [p]) for p in state)

    def _jitted(self) -> Any:
        count = len(self.places)
        traced = codegen.with_state(self.parameters, count, self._traced, self.name)
        return self.options.shifted(count, self.parameters, self.donated).jit(traced)

    def _tops(self) -> list[Place]:
        return self._weak([p for p in self.declared.tops(self.subject()) if p.adapter is None])

    def _traced(self, state: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What jax traces: `fn` with the traced state in place, then the state as it was."""
        from jitmagic.tracing import compat

        if _active.prepared is not self:
            raise _NotPrepared(self)
        with _tracing, adapters.unheard(), _active.expecting(None):
            subject = self.subject()
            reach = subject.reach()
            before = snapshot.take(reach)
            around = self._weak([r.place for r in reach.roots]) if adapters.any_installed() else []
            tree = region.Tree(self.places, self._tops())
            held = region.Region(tree, around, appearing=self.declared.everything)
            _active.stack.append((self, compat.current_trace()))
            done = False
            try:
                for place, value in zip(self.places, state, strict=True):
                    place.put(value)
                held.seed()
                with adapters.entered(held.objects()):
                    out = self.bound()(*args, **kwargs)
                result = self._outcome(out, state, held)
                known = self.names(reach)
                self.touched |= {w.path: w for w in before.changes() if w.path not in known}
                done = True
                return result
            except Exception as exc:
                self._name_variables(exc)
                raise
            finally:
                _active.stack.pop()

                def put_back() -> None:
                    leave = done and not held.appeared
                    held.restore(leave_effects=leave)
                    before.restore(only_tracers=done)
                    held.restore(leave_effects=leave)

                _surely(put_back)

    def _name_variables(self, exc: Exception) -> None:
        """Say which variable is meant where jax names an argument that is not the user's."""
        for number in sorted({int(n) for n in re.findall(r"\b_dyn(\d+)\b", str(exc))}):
            note = (
                f"_dyn{number} is {self.places[number].path}, a dynamic variable of {self.name}: what decides a "
                f"shape or a branch in Python has to be a constant or a static argument"
            )
            if note not in getattr(exc, "__notes__", ()):
                exc.add_note(note)

    def _outcome(self, out: Any, state: Sequence[Any], held: region.Region) -> tuple[Any, ...]:
        """The function's result and what it wrote, in the form that tells this trace's plan."""
        from jitmagic.tracing.compat import is_tracer

        planner = plan.Planner(is_tracer)
        slots = {region.slot_of(p): i for i, p in enumerate(self.places)}
        keep = [(self.places[i], state[i], i) for i in self.donated]
        try:
            ops = planner.plan(held, slots, keep)
        except plan.CannotFollow as exc:
            raise StateError(
                f"{self.name} writes {exc} as an object that hides its arrays, so their new values can't be put "
                f"back after a compiled call; keep them in attributes, dicts or lists"
            ) from None
        made = plan.Plan(ops, len(planner.outputs), self._structure_changed())
        size = self._register(made)
        return (out, *planner.outputs, *[None] * (size - 1 - made.outputs))

    def _structure_changed(self) -> bool:
        try:
            return [p.path for p in self._leaves()] != [p.path for p in self.places]
        except ValueError:
            return True

    def _register(self, made: plan.Plan) -> int:
        """The length that results of this plan have."""
        same = next((p for p in self.plans.values() if p.identity() == made.identity()), None)
        if same is not None:
            return same.size
        made.size = max([made.outputs + 1, *(n + 1 for n in self.plans)]) if self.plans else made.outputs + 1
        self.plans[made.size] = made
        leaves = {op.leaf for p in self.plans.values() for op in p.ops if op.leaf is not None}
        self.written = sorted(leaves)
        return made.size

    # -- calls that the generated wrapper does not handle

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """A call before the wrapper is known, inside a trace, or after the variables have changed in structure."""
        from jitmagic.tracing.compat import trace_state_clean

        args = self._without_receiver(args)
        if not trace_state_clean():
            return self._inside(args, kwargs)
        with _tracing:
            for _ in range(50):
                state = self._current()
                try:
                    with _active.expecting(self):
                        result = self.compiled(*state, *args, **kwargs)
                except _NeedsState as need:
                    self._adopt(need)
                    continue
                except BaseException as exc:
                    self._tell_what_is_gone(exc, state)
                    raise
                if self.donated or not self._raced(result, state):
                    return self._finish(result, state)
        raise StateError(f"{self.name} needs other variables at every trace")

    def _raced(self, result: Sequence[Any], state: Sequence[Any]) -> bool:
        """Another thread has written, since they were read, variables that this result replaces."""
        leaves = (op.leaf for op in self.plans[len(result)].ops if op.leaf is not None)
        return any(self.places[i].same_object and self.places[i].look() is not state[i] for i in leaves)

    def _without_receiver(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args if self.receiver is None else args[1:]

    def _adopt(self, need: _NeedsState) -> None:
        if need.owner is not self:
            raise need
        known = {p.path for p in self.adopted}
        self.adopted += [p for p in need.places if p.path not in known]

    def _finish(self, result: Sequence[Any], state: Sequence[Any]) -> Any:
        made = self.plans[len(result)]
        codegen.writes[0] += 1
        plan.apply(made.ops, result[1 : 1 + made.outputs])
        if made.structural:
            self._build(self._leaves())
        else:
            self._specialise()
        return result[0]

    def _specialise(self) -> None:
        """Generate the wrapper for what is known to be read and written now."""
        if self.warn and self.guards is None:
            tops = [p.path for p in (*self.places, *self._tops())]
            known = self.names(self.subject().reach())
            self.guards = guards.Guards(self.subject(), (*tops, *known, *self.touched))
            self._weak([g.place for g in self.guards.all])
        codegen.become(self.call, codegen.specialised(self))

    def stale(self) -> None:
        """A guard of the wrapper failed: tell what changed, once, and go on without watching it."""
        if self.guards is not None:
            for path, before, after in self.guards.changed():
                warn_stale(path, before, after, self.name)
        self._specialise()

    def retry(self, exc: BaseException, state: Sequence[Any]) -> bool:
        """After an exception: was the state another thread's traced values, or did an inner function need more?"""
        from jitmagic.tracing.compat import is_tracer, trace_state_clean

        self._tell_what_is_gone(exc, state)
        if isinstance(exc, _NeedsState) and exc.owner is self:
            self._adopt(exc)
            return True
        if isinstance(exc, _NotPrepared) and exc.owner is self:
            return True
        return isinstance(exc, Exception) and trace_state_clean() and any(map(is_tracer, state))

    def _tell_what_is_gone(self, exc: BaseException, state: Sequence[Any]) -> None:
        """A donated value can't be put back after an interrupt: say so, in the exception itself."""
        held = [(self.places[i].path, state[i]) for i in self.donated if hasattr(state[i], "is_deleted")]
        gone = [path for path, value in held if value.is_deleted()]
        if gone:
            exc.add_note(
                f"{', '.join(gone)}: donated to a call of {self.name} that did not finish, so the old value is gone "
                f"and there is no new one. assign it anew before the next call"
            )

    # -- inside a trace of jax's

    def _inside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call inside grad, vmap, scan, another jit or another stateful function."""
        with _tracing:
            self._current()
            state = tuple(adapters.read_openly(p) for p in self.places)
            self._require_known(state)
            compiled = self._jitted_here()
            with _active.expecting(self):
                result = compiled(*state, *args, **kwargs)
            made = self.plans[len(result)]
            outputs = [self._settled(v, i, made, state) for i, v in enumerate(result[1 : 1 + made.outputs])]
            with adapters.openly():
                plan.apply(made.ops, outputs)
            return result[0]

    def _jitted_here(self) -> Any:
        """The `jax.jit` function for this call: what it freezes may be a traced value of the trace around it, also one
        that can't be seen from here, so a program made inside another one serves in that trace alone."""
        from jitmagic.tracing import compat

        trace = compat.current_trace()
        if not compat.builds_program(trace):
            return self._jitted() if self._freezes_tracers() else self.compiled
        if self.nested is None or self.nested[0]() is not trace:
            self.nested = weakref.ref(trace), self._jitted()
        return self.nested[1]

    def _freezes_tracers(self) -> bool:
        """What is constant for this function is a traced value of grad or vmap around it."""
        dynamic = {region.slot_of(p) for p in self.places}
        leaves = self.subject().reach().leaves(used_only=False)
        return any(
            values.contains_tracer(leaf.value) and region.slot_of(leaf.place) not in dynamic
            for leaf in leaves
        )

    def _require_known(self, state: Sequence[Any]) -> None:
        """Every variable is known to the functions being compiled around; StateError or _NeedsState if not."""
        from jitmagic.tracing.compat import is_tracer

        missing = [p for p, v in zip(self.places, state, strict=True) if not _has_tracer(v, is_tracer)]
        outer = _enclosing_jit()
        if outer is None or not missing:
            return
        if isinstance(outer, Stateful):
            missing = [p for p in missing if not outer.knows(region.slot_of(p))]
            if missing:
                raise _NeedsState(outer, missing)
            return
        self._refuse(missing[0].path, "was called inside a function compiled by jax.jit")

    def _settled(self, value: Any, index: int, made: plan.Plan, state: Sequence[Any]) -> Any:
        """A new value in a form that stays valid after the innermost transformation."""
        import jax

        from jitmagic.tracing import compat

        if not compat.is_tracer(value):
            return value
        traces = {id(trace) for _, trace in _active.stack}
        traces |= {id(compat.trace_of(v)) for v in jax.tree.leaves(tuple(state)) if compat.is_tracer(v)}
        for candidate in (value, jax.lax.stop_gradient(value)):
            if not compat.is_tracer(candidate) or id(compat.trace_of(candidate)) in traces:
                return candidate
        path = next((op.place.path for op in made.ops if _uses(op.recipe, index)), "a variable")
        return self._refuse(
            path, "was called inside a transformation of jax's that does not know this variable"
        )

    def _refuse(self, path: str, where: str) -> Any:
        raise StateError(
            f"{self.name} uses the dynamic variable {path}, but it {where}: a change of the variable would be "
            f"lost. compile the outer function with jitmagic.jit(..., dyn_vars={path!r}) instead, or pass the "
            f"value as an argument and return it"
        )

    # -- what the user sees

    def _public(self) -> Any:
        call = codegen.generic(self._call, self.name, self.cells)
        own = ("__dict__",) if isinstance(self.fn, types.FunctionType) else ()
        functools.update_wrapper(call, self.fn, updated=own)
        call.lower = self._staged("lower")  # type: ignore[attr-defined]
        call.trace = self._staged("trace")  # type: ignore[attr-defined]
        call.eval_shape = lambda *a, **k: self._staged("eval_shape")(*a, **k)[0]  # type: ignore[attr-defined]
        call.clear_cache = self.clear_cache  # type: ignore[attr-defined]
        call._cache_size = lambda: self.compiled._cache_size()  # type: ignore[attr-defined]
        call.__jitmagic__ = self  # type: ignore[attr-defined]
        return call

    def _staged(self, stage: str) -> Callable[..., Any]:
        def staged(*args: Any, **kwargs: Any) -> Any:
            with _tracing:
                for _ in range(50):
                    state = self._current()
                    try:
                        with _active.expecting(self):
                            return getattr(self.compiled, stage)(*state, *args, **kwargs)
                    except _NeedsState as need:
                        self._adopt(need)
            raise StateError(f"{self.name} needs other variables at every trace")

        return staged

    def clear_cache(self) -> None:
        """As `jax.jit(fn).clear_cache`: the next call traces anew, with the frozen values of then."""
        self.guards = None
        self.compiled.clear_cache()
        self._build(self._leaves())


def _uses(recipe: plan.Recipe | None, index: int) -> bool:
    if recipe is None:
        return False
    if recipe.kind == "out":
        return bool(recipe.value == index)
    return recipe.kind != "object" and any(_uses(p, index) for _, p in recipe.parts)


def _has_tracer(value: Any, is_tracer: Callable[[Any], bool]) -> bool:
    import jax

    return any(map(is_tracer, jax.tree.leaves(value)))


def _surely(undo: Callable[[], Any]) -> None:
    """Undo, whatever interrupts it meanwhile; the interrupt comes afterwards."""
    try:
        undo()
    except KeyboardInterrupt:
        undo()
        raise


def _enclosing_jit() -> Any:
    """The innermost function whose compilation is under way: a `Stateful`, True for one of jax's, None."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is Stateful._traced.__code__:
            return frame.f_locals["self"]
        # the trace of a plain jax.jit; scan and cond run at once what they trace
        if code.co_filename.endswith("pjit.py") and code.co_name in _JIT_TRACES:
            return _ours_around(frame) or True
        frame = frame.f_back  # type: ignore[assignment]
    return None


_JIT_TRACES = (
    "_infer_params",
    "_infer_params_impl",
    "_infer_params_internal",
    "_trace_for_jit",
    "trace_for_jit",
)


def _ours_around(frame: Any) -> Any:
    """A stateful function being traced around a plain jax.jit: it can be made to know the variables."""
    while frame is not None:
        if frame.f_code is Stateful._traced.__code__:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


class StatefulMethod:
    """A method whose receiver holds the dynamic variables: one compiled function per instance."""

    def __init__(
        self,
        fn: Callable[..., Any],
        dyn_vars: Any,
        options: JitOptions,
        receiver_as: str,
        namespace: dict[str, Any] | None = None,
        *,
        warn: bool = False,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn, self.dyn_vars, self.options = fn, dyn_vars, options
        self.receiver_as, self.namespace, self.warn = receiver_as, namespace, warn
        self._instances: dict[int, tuple[Callable[[], Any], Any]] = {}
        self._plain: Any = None
        self.__jitmagic__ = None  # whose variables depends on the instance

    def of(self, receiver: Any) -> Any:
        """The compiled function of one instance, without its first parameter."""
        held = self._instances.get(id(receiver))
        if held is not None and held[0]() is receiver:
            return types.MethodType(held[1], receiver)
        call = self._compile(receiver)
        if call is not self._plain:
            self._instances[id(receiver)] = (self._reference(receiver), call)
        return types.MethodType(call, receiver)

    def _compile(self, receiver: Any) -> Any:
        subject = Subject(self.fn, self.namespace, receiver, self.receiver_as)
        if self.dyn_vars is None and _is_pytree(receiver) and not region.holds_state(receiver):
            self._plain = self._plain or self.options.jit(self.fn)
            return self._plain
        return Stateful(
            subject,
            self.dyn_vars,
            self._without_receiver(),
            warn=self.warn,
            receiver=self._reference(receiver),
        ).call

    def _reference(self, receiver: Any) -> Callable[[], Any]:
        key = id(receiver)
        try:
            return weakref.ref(receiver, lambda _: self._instances.pop(key, None))
        except TypeError:  # slots without __weakref__
            return lambda: receiver

    def _without_receiver(self) -> JitOptions:
        def less(numbers: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(n - 1 if n > 0 else n for n in numbers if n != 0)

        o = self.options
        return replace(
            o,
            static_argnums=less(o.static_argnums),
            donate_argnums=less(o.donate_argnums),
            static_argnames=tuple(n for n in o.static_argnames if n != self.receiver_as),
        )

    def __get__(self, receiver: Any, owner: type | None = None) -> Any:
        if receiver is None:
            return self
        held = self._instances.get(id(receiver))
        if held is not None and held[0]() is receiver:
            return types.MethodType(held[1], receiver)
        return self.of(receiver)

    def __call__(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        return self.of(receiver)(*args, **kwargs)

    def lower(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(...).lower`, for one instance."""
        return self.of(receiver).lower(*args, **kwargs)

    def trace(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(...).trace`, for one instance."""
        return self.of(receiver).trace(*args, **kwargs)

    def eval_shape(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(...).eval_shape`, for one instance."""
        return self.of(receiver).eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget what was compiled, for every instance."""
        self._instances.clear()

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self.fn.__qualname__} is compiled with state of its instances and can't be pickled or copied by "
            f"itself; pickle the instances, or the plain function ({self.fn.__name__}.__wrapped__)"
        )


def _is_pytree(value: Any) -> bool:
    import jax

    return not jax.tree_util.all_leaves([value])


def warn_stale(path: str, before: str, after: str, name: str) -> None:
    """Tell once that a frozen value has changed."""
    warnings.warn(
        f"{name} was compiled with {path} = {before}; it is {after} now, and {name} goes on with the old value. "
        f"declare it dynamic (dyn_vars={path!r}) or pass it as an argument",
        StaleConstantWarning,
        stacklevel=4,
    )

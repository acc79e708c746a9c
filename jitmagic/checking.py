"""The pipeline, on one page: from a call to evidence, from evidence to a report.

a call that jax has not compiled for
  -> snapshot, one real trace, tracers put back      (state, tracing)
  -> constants named, lowered, compiled              (state, tracing)
  -> one run without jit, compared; timing           (measure)
  -> or, where the trace failed: where and why       (tracing)
  => Evidence => rules => fixes => Report
"""

from __future__ import annotations

import inspect
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jitmagic import errors, quiet, report
from jitmagic import evidence as ev
from jitmagic.facts import function_facts, has_parameters
from jitmagic.options import JitOptions
from jitmagic.seen import Sample, Seen
from jitmagic.settings import CellSource, Settings
from jitmagic.watched import Shim, plainly, unwrap_jitted

MAX_SAMPLES = 8
MAX_SAMPLE_BYTES = 64_000_000


class Checker:
    """Everything about one function: how it is compiled, what was seen, what follows from it."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        *,
        options: JitOptions | None = None,
        dyn: str | None = None,
        namespace: dict[str, Any] | None = None,
        settings: Settings | None = None,
        cell: CellSource | None = None,
        on_news: Callable[[Checker], None] | None = None,
        progress: Callable[[str], Any] | None = None,
    ) -> None:
        inner, own = unwrap_jitted(fn)
        self.fn = inner
        self.name = name or str(getattr(inner, "__qualname__", type(inner).__name__))
        self.options = options if options is not None and options != JitOptions() else own or JitOptions()
        self._short = getattr(inner, "__name__", type(inner).__name__)
        self._compiled_before = 0
        self.dyn, self.settings = dyn, settings or Settings()
        self.namespace = namespace if namespace is not None else getattr(inner, "__globals__", {})
        self.cell = cell or CellSource()
        self.seen = Seen()
        self.shim = Shim(inner)
        self.on_news = on_news or (lambda checker: None)
        self.progress = progress
        self.call_source: Callable[[], tuple[str, str | None]] = lambda: ("", None)
        self.is_rebound: Callable[[str], bool] = lambda path: False
        self._compiled: Any = None
        self._run: Any = None
        self._frozen: Any = None
        self._findings: tuple[tuple[Any, ...], tuple[report.Finding, ...]] | None = None

    # -- the compiled form

    def compiled_for(self, args: Sequence[Any]) -> Any:
        """The compiled function for a call with these arguments."""
        from jitmagic.compiled import StatefulMethod, compile_function, holds_variables

        if self._compiled is None:
            fn = self.shim.function()
            as_in_jax = self.dyn is None and not holds_variables(args[:1])
            self._compiled = compile_function(fn, self.dyn, self.options, self.namespace, as_in_jax=as_in_jax)
        if isinstance(self._compiled, StatefulMethod) and args:
            return self._compiled.of(args[0])
        return self._compiled

    def rest(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments without the receiver, where that is not an argument of the compiled function."""
        from jitmagic.compiled import StatefulMethod

        return args[1:] if isinstance(self._compiled, StatefulMethod) else args

    def receiver(self, args: Sequence[Any]) -> Any:
        """The object that `self.x` paths start from, or None."""
        is_method = "." in self.name and args and has_parameters(self.fn)
        return args[0] if is_method else None

    def clear_cache(self) -> None:
        """The next call traces and compiles anew."""
        self._compiled = self._run = self._frozen = None

    # -- the user's calls

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of the user's: its result or its own exception, whatever our diagnosis does."""
        __tracebackhide__ = True
        if not self.settings.compile:
            return self._call_plain(args, kwargs)
        traced, frozen = self.shim.traced, self._frozen
        stale = frozen.changed() if frozen is not None else None
        if stale:
            self._guarded(self._stale, stale)
        try:
            if self._run is not None:
                out = self._run(*args, **kwargs)
            else:
                out = self._slow_call(args, kwargs)
        except Exception as exc:
            self.seen.count += 1
            if _outside_traces():
                self._guarded(self._failed, exc, args, kwargs)
            raise
        self.seen.count += 1
        if (stale or self.shim.traced != traced) and _outside_traces():
            self._guarded(self._after, args, kwargs, self.shim.traced - traced)
        return out

    def _slow_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call before the compiled function is known, or of a method, which has one for each object."""
        __tracebackhide__ = True
        from jitmagic.compiled import StatefulMethod

        if self.seen.count == 0 and _outside_traces():
            out = self._first_call(args, kwargs)
        else:
            out = self.compiled_for(args)(*self.rest(args), **kwargs)
        if not isinstance(self._compiled, StatefulMethod):
            self._run = self._compiled
        return out

    def _after(self, args: tuple[Any, ...], kwargs: dict[str, Any], traces: int) -> None:
        """A call after which there is something new to tell."""
        if traces and self.seen.count > 1:
            self._traced_again(args, kwargs)
        self.on_news(self)

    def _call_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Under `%%jitcheck`: diagnose a call that is new, then run the user's own function."""
        from jitmagic.tracing.leaves import signature_key

        self.seen.count += 1
        key = None
        try:
            key = signature_key(self.fn, args, kwargs)
        except Exception:  # unhashable or strange arguments: every call is new then, up to the sample limit
            pass
        known = self.__dict__.setdefault("_keys", set())
        if _outside_traces() and key not in known and len(known) < MAX_SAMPLES:
            known.add(key)
            self._guarded(self.diagnose, args, kwargs)
            self._guarded(self.on_news, self)
        with plainly():
            return self.fn(*args, **kwargs)

    def _guarded(self, step: Callable[..., None], *args: Any) -> None:
        """A step of ours: where it fails, the user gets one line and goes on."""
        try:
            step(*args)
        except Exception as exc:
            self.failed_inside("the diagnosis", exc)

    def failed_inside(self, what: str, exc: Exception) -> None:
        """Note a failure of our own in one line."""
        if _DEBUG:
            raise exc
        text = " ".join(str(exc).split())[:200]
        self.seen.note(f"{what} itself failed ({type(exc).__name__}: {text})")

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace, lower and compile in stages; run without jit and compiled; compare; time."""
        target = self.compiled_for(args)
        staged = self._trace(target, args, kwargs)
        if self.settings.trace_only:
            self._remember(args, kwargs, traced=True)
            return staged.traced.out_info
        eager = self._run_without_jit(args, kwargs)
        inputs = self._inputs(args, kwargs)
        self._keep(args, kwargs)
        out = target(*self.rest(args), **kwargs)
        self._remember(args, kwargs, traced=True)
        self._guarded(self._compare, eager, out, staged, inputs)
        if self.settings.time:
            self._guarded(self._time, target, args, kwargs, eager)
        return out

    def _traced_again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A later call made jax trace: look at that trace, which jax has cached."""
        from jitmagic.tracing import stages

        self.seen.traces = self.shim.traced
        self.seen.compiles = stages.compiled_so_far(self._short) - self._compiled_before
        self._keep(args, kwargs)
        self._remember(args, kwargs, traced=True)
        staged = self.compiled_for(args).trace(*self.rest(args), **kwargs)
        self._look_at(staged, args, kwargs)

    # -- the trace

    def _trace(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from jitmagic.state import snapshot
        from jitmagic.tracing import stages

        stages.listen()
        self._compiled_before = stages.compiled_so_far(self._short) - self.seen.compiles
        reach = self.reach(args, kwargs)
        before = snapshot.take(reach)
        try:
            with quiet.overheard() as printed:
                staged = stages.run_stages(
                    target,
                    self.rest(args),
                    kwargs,
                    compile=not self.settings.trace_only,
                    progress=self.progress,
                )
            self._guarded(self._wrote, before.changes())
        except BaseException:
            self._guarded(self._wrote, before.changes())
            before.restore()
            raise
        finally:
            self.seen.printed = self.seen.printed or printed()
            before.restore(only_tracers=True)
        self.seen.traces = self.shim.traced
        self.seen.compiles = stages.compiled_so_far(self._short) - self._compiled_before
        self.seen.stages = staged.stages
        self._guarded(self._look_at, staged.traced, args, kwargs, reach)
        self._guarded(self._cost, staged)
        return staged

    def reach(self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Everything the function can read without taking it as an argument."""
        from jitmagic.state import roots

        return roots.reach(self.fn, receiver=self.receiver(args), args=args, kwargs=kwargs or {})

    def _look_at(self, traced: Any, args: Any, kwargs: Any, reach: Any = None) -> None:
        """Name what the traced program has as constants, and remember it to see changes."""
        from jitmagic.state import constants
        from jitmagic.tracing import compat, stages

        reach = reach if reach is not None else self.reach(args, kwargs)
        jaxpr = traced.jaxpr
        dyn = self._dynamic_paths(args)
        written = self._written_paths(args)
        declared = self.dyn is not None and self.dyn != "auto"
        for v in constants.variables(reach, compat.constants_of(jaxpr), dyn=dyn):
            old = self.seen.variables.get(v.path)
            self.seen.variables[v.path] = replace(
                v,
                stale=bool(old and old.stale),
                written=v.written or v.path in written,
                declared=v.role == "dynamic" and declared,
                rebound=v.role == "constant" and self.is_rebound(v.path),
            )
        self.seen.equations = stages.equation_count(jaxpr)
        self.seen.dynamic_inputs = len(compat.jaxpr_of(jaxpr).invars)
        self._frozen = constants.freeze(
            reach, [v for v in self.seen.variables.values() if v.role == "constant"]
        )

    def _dynamic_paths(self, args: Sequence[Any]) -> tuple[str, ...]:
        stateful = getattr(self.compiled_for(args), "__jitmagic__", None)
        return tuple(p.path for p in stateful.places) if stateful is not None else ()

    def _written_paths(self, args: Sequence[Any]) -> set[str]:
        stateful = getattr(self.compiled_for(args), "__jitmagic__", None)
        return {stateful.places[i].path for i in stateful.written or ()} if stateful is not None else set()

    def _wrote(self, writes: Sequence[ev.Write]) -> None:
        for write in writes:
            self.seen.writes.setdefault(write.path, write)

    def _stale(self, changed: Sequence[tuple[str, str, str]]) -> None:
        for path, before, after in changed:
            old = self.seen.variables.get(path)
            if old is not None:
                self.seen.variables[path] = replace(old, stale=True, before=before, after=after)
        self._frozen.forget([path for path, *_ in changed])

    # -- results and time

    def _run_without_jit(self, args: Any, kwargs: Any) -> _Eager:
        start = time.perf_counter()
        try:
            value = quiet.rehearse(self.fn, args, kwargs, self.reach(args, kwargs))
        except Exception as exc:
            self.seen.note(f"the run without jit failed ({type(exc).__name__}), so nothing was compared")
            return _Eager(None, None, exc)
        return _Eager(value, time.perf_counter() - start, None)

    def _inputs(self, args: Any, kwargs: Any) -> list[Any]:
        """Leaves that the traced program takes for this call, dynamic variables first."""
        import jax

        stateful = getattr(self.compiled_for(args), "__jitmagic__", None)
        state = stateful.read() if stateful is not None else ()
        static = self.options.static_parameters(self.fn)
        names = list(inspect.signature(self.fn).parameters) if static else []
        skipped = len(args) - len(self.rest(args))
        given = [v for i, v in enumerate(args) if i >= skipped and not (i < len(names) and names[i] in static)]
        named = {k: v for k, v in kwargs.items() if k not in static}
        return [*state, *jax.tree.leaves((given, named))]

    def _compare(self, eager: _Eager, out: Any, staged: Any, inputs: list[Any]) -> None:
        import jax

        from jitmagic.measure import compare, reference

        if eager.error is not None:
            return
        jaxpr = staged.traced.jaxpr
        program = reference.Program(jaxpr, inputs, self.settings.budget / 4)
        self.seen.differences = list(
            compare.compare(
                eager.value, out,
                reference=reference.Leading(program, len(jax.tree.leaves(out))),
                terms=reference.largest_reduction(jaxpr),
            )
        )  # fmt: skip

    def _time(self, target: Any, args: Any, kwargs: Any, eager: _Eager) -> None:
        from jitmagic.measure import timing
        from jitmagic.state import snapshot

        if self.options.donate_argnames or self.options.donate_argnums:
            self.seen.timing = report.Timing(left_out="not timed: a call gives its donated arguments away")
            return
        rest, reach = self.rest(args), self.reach(args, kwargs)
        before = snapshot.take(reach)

        def plain() -> Any:
            with plainly():
                return self.fn(*args, **kwargs)

        stages = self.seen.stages
        total = sum(s or 0.0 for s in (stages.trace_s, stages.lower_s, stages.compile_s))
        with quiet.undone(reach), quiet.held_back():
            timed = timing.time_pair(
                None if eager.error is not None else plain,
                lambda: target(*rest, **kwargs),
                restore=before.restore,
                loops=self.settings.loops,
                repeats=self.settings.repeats,
                budget_s=self.settings.budget,
                device=_device(),
                compile_s=total,
                eager_once_s=eager.seconds,
            )
        self.seen.timing = replace(timed, constant_folded=self.seen.folded, digits=self.settings.digits)

    def _cost(self, staged: Any) -> None:
        from jitmagic.measure import cost, folding

        file = getattr(getattr(self.fn, "__code__", None), "co_filename", "")
        self.seen.cost = cost.total_cost(staged.traced.jaxpr, staged.compiled)
        self.seen.lines = cost.line_costs(staged.traced.jaxpr, file)
        self.seen.folded = staged.compiled is not None and folding.folded(staged.traced.jaxpr, staged.compiled)

    # -- calls on record

    def _remember(self, args: Any, kwargs: Any, *, traced: bool, outcome: Any = "ok") -> None:
        from jitmagic.tracing.leaves import call_leaves

        source, cell = self.call_source()
        leaves = call_leaves(
            self.fn, args, kwargs,
            static_argnums=self.options.static_argnums, static_argnames=self.options.static_argnames,
        )  # fmt: skip
        self.seen.calls.append(ev.Call(leaves, outcome, traced, source, cell))

    def _keep(self, args: Any, kwargs: Any) -> None:
        """Keep a call to try fixes on, unless it is too large or there are many already."""
        import jax

        leaves = jax.tree.leaves((args, kwargs))
        size = sum(getattr(v, "nbytes", 0) for v in leaves)
        if len(self.seen.samples) < MAX_SAMPLES and size <= MAX_SAMPLE_BYTES:
            self.seen.samples.append(Sample(args, dict(kwargs), *self.call_source()))
        elif size > MAX_SAMPLE_BYTES:
            self.seen.note("fixes were not tried on calls with more than 64 MB of arguments")

    # -- a call that failed

    def _failed(self, exc: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        from jitmagic.diagnosis import diagnose_failure

        self._keep(args, kwargs)
        self._remember(args, kwargs, traced=False, outcome="failed")
        diagnose_failure(self, exc, args, kwargs)
        self.seen.traces = self.shim.traced
        where = self.seen.problems[-1].where if self.seen.problems else None
        errors.shorten(exc, self.findings, where.line if where is not None else None)
        self.on_news(self)

    def diagnose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Trace one call without running anything on real values but our own rehearsals."""
        self._keep(args, kwargs)
        settings, self.settings = self.settings, replace(self.settings, trace_only=True)
        try:
            with quiet.held_back():
                target = self.compiled_for(args)
                staged = self._trace(target, args, kwargs)
            self._remember(args, kwargs, traced=True)
            del staged
        except Exception as exc:
            from jitmagic.diagnosis import diagnose_failure

            self._remember(args, kwargs, traced=False, outcome="failed")
            diagnose_failure(self, exc, args, kwargs)
        finally:
            self.settings = settings

    # -- what follows

    def evidence(self) -> ev.Evidence:
        """Everything seen so far, frozen."""
        s = self.seen
        return ev.Evidence(
            function=function_facts(self.fn, self.name, self.cell.body),
            options=ev.Options(
                static_argnames=self.options.static_argnames,
                static_argnums=self.options.static_argnums,
                donate_argnames=self.options.donate_argnames,
                donate_argnums=self.options.donate_argnums,
                dyn=tuple(self.dyn.split(",")) if self.dyn else None,
            ),
            calls=tuple(s.calls), problems=tuple(s.problems), variables=tuple(s.variables.values()),
            writes=tuple(s.writes.values()), differences=tuple(s.differences), traces=s.traces,
            compiles=s.compiles, equations=s.equations, dynamic_inputs=s.dynamic_inputs, printed=s.printed,
            static_verified=s.static_verified, notes=tuple(s.notes),
        )  # fmt: skip

    def findings(self) -> tuple[report.Finding, ...]:
        """The findings with their fixes; computed again only where something new was seen."""
        from jitmagic import fixes, rules

        evidence = self.evidence()
        key = (evidence, len(self.seen.samples))
        if self._findings is None or self._findings[0] != key:
            settings = rules.Settings(large_constant=self.settings.large_constant)
            found = rules.run(evidence, settings)
            try:
                found = fixes.propose(found, evidence, self)
            except Exception as exc:
                self.seen.note(f"the search for fixes failed ({type(exc).__name__}: {exc})"[:200])
                if _DEBUG:
                    raise
            self._findings = key, found
        return self._findings[1]

    def function_report(self) -> report.FunctionReport:
        """The function's own part of a report."""
        s = self.seen
        verdict: report.Verdict = "untraced"
        if s.calls:
            verdict = "fails" if any(c.outcome == "failed" for c in s.calls) else "ok"
        return report.FunctionReport(
            name=self.name, verdict=verdict, calls=s.count, traces=s.traces, compiles=s.compiles,
            state=tuple(_state(v) for v in s.variables.values()), stages=s.stages, timing=s.timing,
            cost=s.cost, lines=s.lines, signature=_signature(self.fn), notes=tuple(s.notes),
        )  # fmt: skip


@dataclass(frozen=True)
class _Eager:
    value: Any
    seconds: float | None
    error: Exception | None


_DEBUG = False  # tests set it: a failure of ours is then raised, not noted


def _outside_traces() -> bool:
    from jitmagic.tracing.compat import trace_state_clean

    return trace_state_clean()


def _device() -> str:
    import jax

    return jax.default_backend()


def _signature(fn: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(fn))[:200]
    except (TypeError, ValueError):
        return ""


def _state(v: ev.Variable) -> report.State:
    return report.State(
        path=v.path, role=v.role, declared=v.declared, origin=v.origin, type=v.type, shape=v.shape, dtype=v.dtype,
        bytes=v.bytes, lines=tuple(dict.fromkeys(w.line for w in v.reads)), written=v.written, stale=v.stale,
        value=v.value,
    )  # fmt: skip


def assemble(
    checkers: Sequence[Checker], cell: CellSource | None = None, notes: Sequence[str] = ()
) -> report.Report:
    """One report about several functions."""
    import jax

    import jitmagic

    cell = cell or (checkers[0].cell if checkers else CellSource())
    findings = tuple(f for c in checkers for f in c.findings())
    return report.Report(
        functions=tuple(c.function_report() for c in checkers),
        findings=findings,
        backend=jax.default_backend(),
        versions=report.Versions(jitmagic.__version__, jax.__version__, platform.python_version()),
        cell=report.CellText(cell.text, cell.name, cell.id, cell.magic),
        notes=tuple(notes),
    )


class _Check:
    """`jitmagic.check`, and `jitmagic.check.options(...)` for a call with options."""

    def __init__(
        self, options: JitOptions | None = None, dyn: str | None = None, settings: Settings | None = None
    ):
        self._options, self._dyn, self._settings = options, dyn, settings

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> report.Report:
        """Diagnose one call of `fn` and return the `Report`; the call itself is not made.

        Nothing is compiled and every variable is put back. Exceptions of `fn` become findings.
        """
        fn = getattr(fn, "_checker", None).fn if hasattr(fn, "_checker") else fn  # type: ignore[union-attr]
        checker = Checker(
            fn, options=self._options, dyn=self._dyn, settings=self._settings or Settings(compile=False)
        )
        checker.seen.count = 1
        checker.diagnose(args, kwargs)
        return assemble([checker])

    def options(
        self, *, dyn_vars: Any = None, settings: Settings | None = None, **jit_options: Any
    ) -> _Check:
        """The same check with options of `jax.jit` and dynamic variables."""
        return _Check(JitOptions.of(**jit_options), dyn_vars, settings)


check = _Check()

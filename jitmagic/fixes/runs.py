"""Runs of a function on a kept call, plain or compiled, that leave nothing behind."""

from __future__ import annotations

import ast
import functools
import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.checking.watched import plainly
from jitmagic.fixes import adopt, prove
from jitmagic.fixes.around import arrays_undone, copied, noting, with_values, without_tracers
from jitmagic.fixes.definitions import with_state
from jitmagic.fixes.rewrite.cells import Cell
from jitmagic.state import roots
from jitmagic.trial import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jitmagic.checking.seen import Sample
    from jitmagic.fixes.prove import Prover

NONE: adopt.Classes = {}


class Runs:
    """Runs forms of one function; their results are copies."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.checker = prover, prover.checker
        self.trying: Callable[..., Any] | None = None
        """The corrected function, where it has copies of the notebook's objects as its own."""
        self._going_on = False
        self._noted: list[frozenset[str]] | None = None
        body = ast.parse(Cell(self.checker.cell.body).module.code).body
        self._classes = frozenset(d.name for d in body if isinstance(d, ast.ClassDef))

    def plain(self, fn: Callable[..., Any], target: adopt.Classes = NONE) -> Callable[[Sample], Any]:
        """A run of `fn` on a kept call that leaves nothing behind; its result is a copy."""
        import jax

        def run(sample: Sample) -> Any:
            args, kwargs = adopt.adopted((sample.args, sample.kwargs), target)
            with self.aside(sample, (args, kwargs)), self.prover.in_time():
                out = jax.block_until_ready(with_values(fn(*args, **kwargs)))
                jax.effects_barrier()
                return self._copied(out, sample)

        return run

    @contextmanager
    def aside(self, sample: Sample, call: tuple[Any, Any] | None = None) -> Iterator[None]:
        """What happens inside leaves nothing behind. `call`: the arguments, where they may be copies of those kept."""
        reach = self.checker.reach(sample.args, sample.kwargs)
        copies = [roots.reach(self.trying)] if self.trying is not None else []
        if call is not None and (call[0] is not sample.args or call[1] is not sample.kwargs):
            copies.append(self.checker.reach(*call))
        with ExitStack() as stack:
            stack.enter_context(without_tracers(self.checker.namespace))
            if not self._going_on:
                stack.enter_context(quiet.undone(reach))
            for own in copies:
                stack.enter_context(quiet.undone(own))
            stack.enter_context(arrays_undone(sample))
            if self._noted is not None:
                stack.enter_context(noting([reach, *copies], self._noted))
            stack.enter_context(quiet.held_back())
            stack.enter_context(plainly())
            yield

    def traced(
        self, jitted: Callable[..., Any], sample: Sample, target: adopt.Classes, printed: io.StringIO
    ) -> Any:
        """The result of a compiled function on a kept call; what is printed while it is traced goes into `printed`."""
        import jax

        from jitmagic.tracing.compat import checking_leaks

        args, kwargs = adopt.adopted((sample.args, sample.kwargs), target)
        with (
            self.aside(sample, (args, kwargs)), redirect_stdout(printed), checking_leaks(), self.prover.in_time()
        ):  # fmt: skip
            out = jax.block_until_ready(jitted(*args, **kwargs))
            jax.effects_barrier()
            return self._copied(out, sample)

    def _copied(self, out: Any, sample: Sample) -> Any:
        return copied(self._with_variables(adopt.taken_apart(out, self._classes), sample))

    def _with_variables(self, out: Any, sample: Sample) -> Any:
        """The result with what the run left in the variables of frameworks, where the function has any."""
        import numpy as np

        stateful: Any = self.checker.stateful(sample.args) if self.checker.settings.compile else None
        places = getattr(stateful, "places", ())
        known = [p.adapter is not None and not p.adapter.is_rng for p in places]
        if not any(known):
            return out
        values = [v for v, own in zip(stateful.read(), known, strict=True) if own]
        return out, [np.array(v) if hasattr(v, "shape") else v for v in values]

    def compiled(
        self,
        fn: Callable[..., Any],
        namespace: dict[str, Any],
        static: Sequence[str],
        more: Sequence[str] = (),
    ) -> Callable[..., Any]:
        """A corrected function compiled as the user's is, with these arguments static and `more` dynamic too."""
        options = prove.undonated(self.checker.options)
        if static:
            options = replace(
                options, static_argnames=tuple(dict.fromkeys([*options.static_argnames, *static]))
            )
        stateful = with_state(self.prover, fn, options, namespace, more)
        if stateful is not None:
            return stateful
        fresh = functools.wraps(fn)(lambda *args, **kwargs: fn(*args, **kwargs))
        # no trace of the user's own function
        fresh.__name__ = f"{getattr(fn, '__name__', 'function')} rewritten"
        return options.trial(fresh)

    def writes(
        self, run: Callable[[Sample], Any], samples: Sequence[Sample] | None = None
    ) -> list[frozenset[str]]:
        """Paths outside the function that a run of each kept call changes."""
        self._noted = []
        for sample in self.prover.samples if samples is None else samples:
            run(sample)
        noted, self._noted = self._noted, None
        return noted

    def in_a_row(self, run: Callable[[Sample], Any]) -> list[Any] | None:
        """Results of the kept calls, the state between them left as it is and put back in the end; None where one of
        them fails."""
        first = self.prover.samples[0]
        with quiet.undone(self.checker.reach(first.args, first.kwargs)):
            self._going_on = True
            try:
                return [run(s) for s in self.prover.samples]
            except Exception:
                return None
            finally:
                self._going_on = False

"""What lies behind the first problem of a call, and what a plain run shows that no trace can.

A trace that fails shows nothing of what comes after. Where the search has found arguments that, made static, let
the function trace, that trace is looked at as any other. And the plain run, which the user's own call makes, shows
a result that is not finite, and arguments that the function writes into.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from jitmagic.checking.compared import Eager, compare_results
from jitmagic.checking.shim import Shim
from jitmagic.checking.subject import Subject, leaves_of
from jitmagic.evidence import Write
from jitmagic.measure import peak
from jitmagic.report import PLAIN_RUN
from jitmagic.rules.base import root
from jitmagic.state import snapshot
from jitmagic.state.definition import function_facts
from jitmagic.state.entries import sample
from jitmagic.state.values import is_a, is_jax_array
from jitmagic.tracing import compat, trees
from jitmagic.tracing.foreign import CARRIES_VARIABLES, CARRIES_WRITES
from jitmagic.tracing.leaves import bound_arguments, ref_paths
from jitmagic.tracing.minimal_static import StaticSearch
from jitmagic.trial import quiet
from jitmagic.trial.budget import OutOfTime, within
from jitmagic.trial.whose_run import plainly

MOST_COPIED = 2**30
"""Bytes of arguments that are copied to time a call that gives some of them away."""


@dataclass
class Look:
    """A traced call whose result is still to come."""

    traced: Any
    inputs: list[object]


class Began:
    """Where a run of a call begins that is made when the cell has ended."""

    def __init__(self, subject: Subject, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self.given = args, kwargs
        self.before = snapshot.take(subject.reach(args, kwargs))
        self.digests = [(a, _digest(a)) for a in self.before.sampled]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """All is as it was then, and afterwards as it is now. Raises Refused where that can't be."""
        with quiet.back_at(self.before):
            if any(v.is_deleted() for v in leaves_of(self.given) if is_jax_array(v)):
                raise quiet.Refused("another call was given its arguments to use up (donated)")
            if any(_digest(a) != then for a, then in self.digests):
                raise quiet.Refused("the cell has changed a large array of NumPy since")
            yield


def _digest(array: np.ndarray) -> object:
    """Tells whether a large array was written into."""
    if array.dtype.hasobject or isinstance(array, np.memmap) or array.nbytes > MOST_COPIED:
        return sample(array)
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def look(
    subject: Subject, args: tuple[object, ...], kwargs: dict[str, object], began: Began | None
) -> Look | None:
    """Trace a failed call with the arguments static that the search found; add what that trace shows."""
    search = subject.seen.search
    if search is None or not search.leaves or subject.dyn is not None:
        return None
    with began.again() if began is not None else contextlib.nullcontext():
        return _look(subject, search, args, kwargs)


def _look(
    subject: Subject, search: StaticSearch, args: tuple[object, ...], kwargs: dict[str, object]
) -> Look | None:
    own = subject.options
    subject.options = replace(own, static_argnames=search.argnames, static_argnums=search.argnums)
    reach = subject.reach(args, kwargs)
    try:
        with quiet.undone(reach, traced=True) as before, quiet.held_back():
            fresh = Shim(subject.fn).function()  # what jax has cached for the user's own stays as it is
            traced = subject.options.jit(fresh).trace(*args, **kwargs)
            for write in before.changes():
                subject.seen.writes.setdefault(write.path, write)
        subject.observe(traced, args, kwargs, reach)
        return Look(traced, subject.inputs(args, kwargs))
    except Exception:  # the static arguments were tried on shapes alone; jax's own trace may still say no
        return None
    finally:
        subject.options = own


class OwnRun:
    """The user's own call under `%%jitcheck`, after its diagnosis: what is handed in, to see what it has become."""

    def __init__(self, subject: Subject, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self.subject, self.args, self.kwargs = subject, args, kwargs
        self.before: snapshot.Snapshot | None = None
        if subject.original is subject.fn:
            self.before = subject.guarded(lambda: snapshot.take(subject.reach(args, kwargs)))

    def look_at(self, out: object) -> None:
        """Look at the arguments, and at the result when the cell has ended; tell where there is something new."""
        subject = self.subject
        seen, subject.looked = subject.looked, None
        known = subject.seen.known
        if subject.original is subject.fn:
            changes = self.before.changes() if self.before is not None else ()
            note_argument_writes(subject, changes, self.args, self.kwargs, out)
            if seen is not None:
                leaves = subject.lasting(leaves_of(out))

                def observe(seconds: float) -> None:
                    if (look := seen()) is not None:
                        subject.observe_result(look.traced, look.inputs, leaves)

                subject.later("looking closer", observe, (self.args, self.kwargs, leaves))
        elif seen is not None and not subject.options.donates:
            began, kept = Began(subject, self.args, self.kwargs), subject.lasting(out)

            def run(seconds: float) -> None:
                rehearse(subject, began, seen(), kept, seconds)

            subject.later("comparing", run, (began.given, kept))
        if subject.seen.known != known:
            subject.on_news(subject)


def only_compiled(subject: Subject, jaxpr: object) -> str:
    """Why this program does not run once more operation by operation; '' where it may."""
    too_large = peak.too_large(jaxpr)
    subject.seen.too_large = subject.seen.too_large or too_large
    called = compat.calls_back(jaxpr)
    return f"it calls back to Python ({called}), as often as it runs" if called else too_large


def rehearse(subject: Subject, began: Began, seen: Look | None, compiled: object, seconds: float) -> None:
    """Run the call once without jit, undone afterwards and within so many seconds, and look at what it does.

    `compiled` is what the user's own compiled function gave, None where it was not called.
    """
    if seen is not None and (reason := only_compiled(subject, seen.traced.jaxpr)):
        subject.seen.note(f"{PLAIN_RUN}was left out: {reason}")
        if compiled is not None:
            subject.observe_result(seen.traced, seen.inputs, compiled)
        return
    args, kwargs = began.given
    try:
        with (
            began.again(), quiet.undone(subject.reach(args, kwargs)) as before, quiet.held_back(), plainly()
        ):  # fmt: skip
            with within(seconds):
                value = subject.fn(*args, **kwargs)
            changes = before.changes()
            if subject.framework not in CARRIES_WRITES:
                note_argument_writes(subject, changes, args, kwargs, value)
            if seen is not None:
                _look_at_result(subject, seen, value, compiled)
            subject.seen.settle(changes)
    except OutOfTime:
        subject.seen.note(f"{PLAIN_RUN}was stopped after {seconds:.2g} s")
    except Exception as exc:
        if obstacle := quiet.obstacle(exc):
            subject.tell_of(obstacle, args, kwargs)
        subject.seen.note(quiet.not_run(exc, "its result was not looked at"))
        quiet.let_go(exc, subject.reach(args, kwargs))


_NUMBERS = frozenset("-0123456789")
"""What the short text of a number begins with."""


def look_at_changes(
    subject: Subject,
    before: snapshot.Snapshot,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    out: object,
) -> None:
    """What a run without jit has changed: arguments of the caller, and what a run after the trace leaves alone."""
    changes = before.changes()
    note_argument_writes(subject, changes, args, kwargs, out)
    subject.seen.settle(changes)


def settle(subject: Subject) -> None:
    """Tell of what a function has written which of it a further run leaves alone: a memo, what is made at first use."""
    seen = subject.seen
    if not seen.samples or all(w.tracer for w in seen.writes.values()):
        return
    sample = seen.samples[-1]
    reach = subject.reach(sample.args, sample.kwargs)
    with quiet.undone(reach) as before, quiet.held_back(), plainly():
        subject.fn(*sample.args, **sample.kwargs)
        seen.settle(before.changes())


def note_argument_writes(
    subject: Subject,
    changes: Sequence[Write],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    out: object,
) -> None:
    """Attributes and items of arguments that a plain run has changed and a compiled one would not: `out` is what the
    run returned. Of a compiled function that returns nothing, a rule tells of items from the source."""
    if not changes:
        return
    parameters = list(function_facts(subject.fn, subject.name).parameters)
    given = bound_arguments(subject.fn, args, kwargs)
    in_place = {name for name, _, value in given if is_a(value, np.ndarray)}
    """NumPy's arrays: the compiled function gets a copy of each, whether it is a result or not."""
    if subject.receiver(args) is not None and not _is_taken_apart(subject, args[0]):
        parameters = parameters[1:]
    compiled = subject.settings.compile
    if compiled or subject.jitted_by_user or subject.framework:
        returned = {name for name, _, value in given if _is_returned(value, out)} - in_place
        parameters = [name for name in parameters if name not in returned]
    refs = ref_paths(subject.fn, args, kwargs)
    for write in subject.users_own(changes, subject.reach(args, kwargs)):
        if subject.framework in CARRIES_VARIABLES and write.after[:1] not in _NUMBERS:
            continue
        bound = write.path in parameters and write.action not in ("added", "removed")
        bound = bound and write.path not in in_place
        told = root(write.path) in parameters and not bound and write.path not in refs and not write.tracer
        if told and (write.origin == "attribute" or out is not None or not compiled):
            subject.seen.writes.setdefault(write.path, replace(write, origin="argument"))


def _is_returned(value: object, out: object) -> bool:
    """The argument itself is a result or part of one, or all arrays that it holds now are."""
    if any(value is part for part in (out, *(out if isinstance(out, tuple | list) else ()))):
        return True
    if isinstance(value, jax.Array):
        return False
    held, given_out = ({id(v) for v in trees.leaves(x) if isinstance(v, jax.Array)} for x in (value, out))
    return bool(held) and held <= given_out


def _is_taken_apart(subject: Subject, receiver: object) -> bool:
    """The object of a method is an argument like any other: jax makes a copy of it for the compiled function."""
    carried = not subject.jitted_by_user and subject.stateful([receiver]) is not None
    return not carried and not jax.tree_util.all_leaves([receiver])


def _look_at_result(subject: Subject, seen: Look, value: object, compiled: object) -> None:
    """Where the plain result stopped being finite; beside it the compiled one, where the user compiles it himself."""
    subject.observe_result(seen.traced, seen.inputs, value)
    if subject.jitted_by_user and not subject.options.donates:
        _compare(subject, seen, value, compiled)


def _compare(subject: Subject, seen: Look, value: object, compiled: object) -> None:
    """What the user's own `jax.jit` makes of the call, beside the plain result."""
    program = seen.traced.jaxpr
    if compiled is None:
        if getattr(program, "effects", None):
            return  # a second run would be seen outside
        compiled = jax.jit(jaxpr_as_fun(program))(*seen.inputs)
    leaves, out = trees.leaves(value), trees.leaves(compiled)
    if len(leaves) == len(out):
        compare_results(subject, Eager(leaves, None, None), out, seen.traced.jaxpr, seen.inputs)

"""One look at a traced call for all that goes wrong without an error."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from jitmagic.evidence import Silent, root
from jitmagic.silent import dropped, in_program, in_source, keys, pytrees, widths, written_out
from jitmagic.silent.code import Code, codes
from jitmagic.silent.known import passed_known
from jitmagic.source.tree import uncollected
from jitmagic.state.definition import source_file
from jitmagic.tracing.foreign import CARRIES_VARIABLES

if TYPE_CHECKING:
    from jitmagic.checking.subject import Subject

T = TypeVar("T")
_FAILURES: list[BaseException] = []
"""Failures of single looks, the newest last; for tests."""


def collect(
    subject: Subject,
    traced: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    reach: Any,
) -> Silent:
    """The silent facts of one traced call; with `traced` None, those of source and arguments alone.

    Nothing of the user's is run but `tree_flatten` and `tree_unflatten` of arguments. A look that fails is
    left out, and the others go on.
    """
    from jitmagic.tracing.leaves import bound_arguments

    every = codes(reach.functions)
    found = _of_source(subject, reach, every)
    objects = _tried(lambda: pytrees.objects(bound_arguments(subject.fn, args, kwargs)))
    read = None if reach.any_attribute else set(reach.attributes)
    found = replace(
        found,
        truncated=(
            *_tried(lambda: widths.arguments(_dynamic_leaves(subject, args, kwargs))),
            *found.truncated,
        ),
        lossy=_tried(lambda: (x for name, o in objects if (x := pytrees.lossy(name, o, read)))),
        arrays_in_aux=_tried(lambda: (x for name, o in objects if (x := pytrees.array_in_aux(name, o)))),
        refs=_tried(lambda: _seen_by_the_caller(subject, args, kwargs)),
    )
    return found if traced is None else _of_program(subject, traced, args, kwargs, reach, every, found)


def _seen_by_the_caller(subject: Subject, args: Any, kwargs: Any) -> Iterator[str]:
    """Arguments that hold mutable arrays of jax's, or variables that flax's own jit carries back."""
    from jitmagic.state.region import holds_state
    from jitmagic.tracing.leaves import bound_arguments, ref_paths

    objects, rest, named = subject.lifted(args, kwargs)
    yield from (str(at[0]) for at in objects)
    yield from map(root, ref_paths(subject.fn, rest, named))
    if subject.framework in CARRIES_VARIABLES:
        yield from (
            name for name, _, value in bound_arguments(subject.fn, args, kwargs) if holds_state(value)
        )


def _dynamic_leaves(subject: Subject, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    from jitmagic.tracing.leaves import named_leaves

    static = subject.options.static_parameters(subject.fn)
    _, args, kwargs = subject.lifted(args, kwargs)
    return [(path, v) for path, v in named_leaves(subject.fn, args, kwargs) if root(path) not in static]


def merge(old: Silent | None, new: Silent) -> Silent:
    """Facts of several traces together, each once."""
    if old is None:
        return new
    fields = {
        name: tuple(dict.fromkeys([*getattr(old, name), *getattr(new, name)]))
        for name in vars(new)
        if name != "program"
    }
    return replace(new, program=old.program or new.program, **fields)


def _of_source(subject: Subject, reach: Any, every: Sequence[Code]) -> Silent:
    back = in_source.callback_functions(every)
    run = [c for c in every if c.fn not in back]
    static = subject.options.static_parameters(subject.fn)
    own = getattr(inspect.unwrap(subject.fn), "__code__", None)

    def untraced(code: Code) -> Iterable[str]:
        """Parameters of a function that are no traced values."""
        if code.fn.__code__ is own:
            return static
        return passed_known(code, run, lambda c: static if c.fn.__code__ is own else ())

    def seen(fact: Any) -> Any:
        """A fact of a helper in another cell stands where this cell calls the helper."""
        from jitmagic.state.reads import seen_from_cell

        first = seen_from_cell("", (fact.where,), reach.functions)[0]
        return fact if first == fact.where else replace(fact, where=first, names=(*fact.names, first.text))

    return Silent(
        random=_tried(lambda: (seen(x) for c in run for x in in_source.random(c))),
        effects=_tried(lambda: (seen(x) for c in run for x in in_source.effects(c))),
        prints=_tried(lambda: (x for c in run for x in in_source.prints(c, untraced))),
        truncated=_tried(lambda: (x for c in run for x in widths.dtypes(c))),
        tests=_tried(lambda: (x for c in run for x in in_source.type_tests(c, static))),
    )


def _of_program(
    subject: Subject, traced: Any, args: Any, kwargs: Any, reach: Any, every: Sequence[Code], found: Silent
) -> Silent:
    closed = traced.jaxpr
    used = next(iter(_tried(lambda: [in_program.keys_of(closed)])), in_program.Keys())
    names = {id(leaf.value): leaf.path for leaf in _tried(reach.leaves)}
    paths = input_paths(subject, closed, args, kwargs)
    file = source_file(subject.fn)
    return replace(
        found,
        program=True,
        keys=_tried(lambda: keys.reused(used, paths)),
        random=(*found.random, *_tried(lambda: keys.fixed(used, names, file))),
        unrolled=_tried(lambda: written_out.unrolled(closed)),
        dropped=_tried(lambda: dropped.dropped(closed, every)),
    )


def input_paths(subject: Subject, closed: Any, args: Any, kwargs: Any) -> list[str]:
    """Paths of the program's inputs, dynamic variables first; empty where they cannot be matched."""
    from jitmagic.tracing.compat import jaxpr_of
    from jitmagic.tracing.leaves import call_leaves

    dynamic, (_, args, kwargs) = subject.dynamic_paths(args), subject.lifted(args, kwargs)
    leaves = call_leaves(subject.fn, args, kwargs, **subject.taken_as_static())
    paths = [*dynamic, *(x.path for x in leaves if not x.static)]
    return paths if len(paths) == len(jaxpr_of(closed).invars) else []


def not_finite(
    subject: Subject, traced: Any, inputs: Sequence[Any], value: Any, budget_s: float = 2.0
) -> Silent:
    """The operation that made the NaN or infinity in `value`, the result of that call for those inputs (leaves,
    dynamic variables first); no fact where it is finite, or where the inputs are not."""
    from jitmagic.measure.reference import CannotEvaluate
    from jitmagic.silent import finite
    from jitmagic.tracing.compat import jaxpr_of

    if finite.is_finite(value) or len(inputs) != len(jaxpr_of(traced.jaxpr).invars):
        return Silent()
    try:
        fact = finite.first_not_finite(traced.jaxpr, inputs, budget_s)
    except CannotEvaluate as exc:
        subject.seen.note(f"where the result stopped being finite was not looked for: {exc}")
        return Silent()
    return Silent(not_finite=(fact,) if fact is not None else ())


def observe(
    subject: Subject, traced: Any, args: Sequence[Any], kwargs: Mapping[str, Any], reach: Any
) -> None:
    """Add the silent facts of a traced call (`traced` None: of one that failed) to what was seen."""
    with uncollected():
        found = collect(subject, traced, args, kwargs, reach)
    subject.seen.silent = merge(subject.seen.silent, found)


def observe_result(subject: Subject, traced: Any, inputs: Sequence[Any], value: Any) -> None:
    """Add where a result stopped being finite to what was seen."""
    subject.seen.silent = merge(subject.seen.silent, not_finite(subject, traced, inputs, value))


def _tried(look: Callable[[], Iterable[T]]) -> tuple[T, ...]:
    found: list[T] = []
    try:
        found.extend(_limited(look()))
    except Exception as exc:
        _FAILURES[:] = [*_FAILURES[-9:], exc]
    return tuple(dict.fromkeys(found)) if all(map(_hashable, found)) else tuple(found)


def _limited(found: Iterable[T], seconds: float = 2.0, most: int = 200) -> Iterator[T]:
    end = time.monotonic() + seconds
    for number, item in enumerate(found):
        if number >= most or time.monotonic() > end:
            return
        yield item


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True

"""One look at a call for all that goes wrong without an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any, TypeVar

from jitmagic import work
from jitmagic.evidence import HiddenRandom, LossyPytree, SideEffect, Silent, root
from jitmagic.silent import (
    donations,
    dropped,
    finite,
    in_program,
    in_source,
    keys,
    outside_indices,
    pytrees,
    widths,
    written_out,
)
from jitmagic.silent.code import Code, codes
from jitmagic.silent.known import passed_known
from jitmagic.state.definition import source_file
from jitmagic.state.reached import Reach
from jitmagic.state.reads import seen_from_cell
from jitmagic.state.region import holds_state
from jitmagic.tracing import trees
from jitmagic.tracing.compat import constants_of, jaxpr_of
from jitmagic.tracing.leaves import bound_arguments, call_leaves, is_hashable, named_leaves, ref_paths

T = TypeVar("T")
Placed = TypeVar("Placed", HiddenRandom, SideEffect)
_FAILURES: list[BaseException] = []
"""Failures of single looks, the newest last; for tests."""


@dataclass(frozen=True)
class CallInView:
    """One call of a function, and what is known of its arguments."""

    fn: Callable[..., object]
    args: Sequence[object]
    kwargs: dict[str, object]
    reach: Reach
    """What the function reads besides its arguments."""
    plain: tuple[tuple[object, ...], dict[str, object]]
    """The arguments without the frameworks' objects among them, which are state."""
    state: tuple[str, ...]
    """Paths of those objects."""
    carried_back: bool
    """The framework's own jit carries variables among the arguments back."""
    static: frozenset[str]
    """Names of the static parameters."""
    donated: frozenset[str]
    """Names of the donated ones."""
    rebound: Mapping[str, str]
    """Parameters that a loop of the cell binds anew to results, with the statement that does so."""
    static_as: dict[str, Any]
    """The same, as keywords of `call_leaves`."""
    traced: Any = None
    """What jax made of the call; None where it was not traced."""
    dynamic: tuple[str, ...] = ()
    """Paths of the variables that the program takes in front of the arguments."""
    tracers_printed: Sequence[tuple[CodeType, int]] = ()
    """Where the user's code printed traced values: code, and the instruction in it."""
    answered: Sequence[tuple[CodeType, int]] = ()
    """Where it took an error of jax's tracing for an answer: code, and the line."""


def collect(call: CallInView) -> Silent:
    """The silent facts of one call; of one that was not traced, those of source and arguments alone.

    Nothing of the user's is run but `tree_flatten` and `tree_unflatten` of arguments. A look that fails is left out,
    and the others go on.
    """

    def lossy() -> Iterator[LossyPytree]:
        for name, value in objects:
            with trees.unnoticed(value):
                found = pytrees.lossy(name, value, read)
            if found:
                yield found

    every = codes(call.reach.functions)
    found = _of_source(call.fn, call.reach.functions, every, call.static, call.tracers_printed, call.answered)
    objects = _tried(lambda: pytrees.objects(bound_arguments(call.fn, call.args, call.kwargs)))
    read = None if call.reach.any_attribute else set(call.reach.attributes)
    found = replace(
        found,
        truncated=(*_tried(lambda: widths.arguments(_dynamic_leaves(call))), *found.truncated),
        lossy=_tried(lossy),
        arrays_in_aux=_tried(lambda: (x for name, o in objects if (x := pytrees.array_in_aux(name, o)))),
        refs=_tried(lambda: _seen_by_the_caller(call)),
    )
    return found if call.traced is None else _of_program(call, every, found)


def _seen_by_the_caller(call: CallInView) -> Iterator[str]:
    """Arguments that hold mutable arrays of jax's, or variables that a framework's own jit carries back."""
    yield from call.state
    yield from map(root, ref_paths(call.fn, *call.plain))
    if call.carried_back:
        yield from (
            name for name, _, value in bound_arguments(call.fn, call.args, call.kwargs) if holds_state(value)
        )


def _dynamic_leaves(call: CallInView) -> list[tuple[str, object]]:
    return [(path, v) for path, v in named_leaves(call.fn, *call.plain) if root(path) not in call.static]


def before_calls(
    fn: Callable[..., object], functions: Sequence[FunctionType], static: Collection[str]
) -> Silent:
    """What the source of a function that was never called, and of those that it reaches, tells."""
    return _of_source(fn, functions, codes(functions), static)


def _of_source(
    fn: Callable[..., object],
    functions: Sequence[FunctionType],
    every: Sequence[Code],
    static: Collection[str],
    heard: Sequence[tuple[CodeType, int]] = (),
    answered: Sequence[tuple[CodeType, int]] = (),
) -> Silent:
    back = in_source.callback_functions(every)
    run = [c for c in every if c.fn not in back]
    own = getattr(inspect.unwrap(fn), "__code__", None)

    def untraced(code: Code) -> Iterable[str]:
        """Parameters of a function that are no traced values."""
        if code.fn.__code__ is own:
            return static
        return passed_known(code, run, lambda c: static if c.fn.__code__ is own else ())

    def seen(fact: Placed) -> Placed:
        """A fact of a helper in another cell stands where this cell calls the helper."""
        first = seen_from_cell("", (fact.where,), functions)[0]
        return fact if first == fact.where else replace(fact, where=first, names=(*fact.names, first.text))

    return Silent(
        random=_tried(lambda: (seen(x) for c in run for x in in_source.random(c))),
        effects=_tried(lambda: (seen(x) for c in run for x in in_source.effects(c))),
        prints=_tried(lambda: (x for c in run for x in in_source.prints(c, untraced, heard))),
        truncated=_tried(lambda: (x for c in run for x in widths.dtypes(c))),
        tests=_tried(lambda: (x for c in run for x in in_source.type_tests(c, static, answered))),
    )


def _of_program(call: CallInView, every: Sequence[Code], found: Silent) -> Silent:
    closed = call.traced.jaxpr
    used = next(iter(_tried(lambda: [in_program.keys_of(closed)])), in_program.Keys())
    outside = [(leaf.path, leaf.value) for leaf in _tried(call.reach.leaves)]
    names = {id(value): path for path, value in outside}
    paths = _input_paths(call)
    file = source_file(call.fn)
    return replace(
        found,
        program=True,
        truncated=(*found.truncated, *_tried(lambda: widths.constants(outside, constants_of(closed)))),
        keys=_tried(lambda: keys.reused(used, paths)),
        random=(*found.random, *_tried(lambda: keys.fixed(used, names, file))),
        unrolled=_tried(lambda: written_out.unrolled(closed)),
        dropped=_tried(lambda: dropped.dropped(closed, every)),
        donations=_tried(
            lambda: donations.unusable(closed, paths, call.donated) if call.donated and paths else ()
        ),
        not_donated=_tried(
            lambda: donations.not_donated(closed, paths, call.rebound) if call.rebound and paths else ()
        ),
    )


def _input_paths(call: CallInView) -> list[str]:
    """Paths of the program's inputs, dynamic variables first; empty where they cannot be matched."""
    leaves = call_leaves(call.fn, *call.plain, **call.static_as)
    paths = [*call.dynamic, *(x.path for x in leaves if not x.static)]
    return paths if len(paths) == len(jaxpr_of(call.traced.jaxpr).invars) else []


def not_finite(traced: Any, inputs: Sequence[object], value: object, budget_s: float = 2.0) -> Silent:
    """The operation that made the NaN or infinity in `value`, the result of a traced call for those inputs (leaves,
    dynamic variables first); no fact where it is finite, or where the inputs are not. Raises CannotEvaluate."""
    if finite.is_finite(value) or len(inputs) != len(jaxpr_of(traced.jaxpr).invars):
        return Silent()
    fact = finite.first_not_finite(traced.jaxpr, inputs, budget_s)
    return Silent(not_finite=(fact,) if fact is not None else ())


def indices_outside(traced: Any, inputs: Sequence[Any]) -> Silent:
    """Indices outside of their arrays in a traced call for those inputs (leaves, dynamic variables first)."""
    if len(inputs) != len(jaxpr_of(traced.jaxpr).invars):
        return Silent()
    return Silent(out_of_bounds=_tried(lambda: outside_indices.out_of_bounds(traced.jaxpr, inputs)))


def _tried(look: Callable[[], Iterable[T]]) -> tuple[T, ...]:
    found: list[T] = []
    try:
        found.extend(_limited(look()))
    except Exception as exc:
        _FAILURES[:] = [*_FAILURES[-9:], exc]
    return tuple(dict.fromkeys(found)) if all(map(is_hashable, found)) else tuple(found)


def _limited(found: Iterable[T], seconds: float = 2.0, most: int = 200) -> Iterator[T]:
    end = work.clock() + seconds
    for number, item in enumerate(found):
        if number >= most or work.clock() > end:
            return
        yield item

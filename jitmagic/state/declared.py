"""From what a user declares as dynamic to the places of the variables."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jitmagic.options import parameters_of
from jitmagic.state import adapters, paths, roots, values
from jitmagic.state.below import Below, variables_in
from jitmagic.state.paths import Place
from jitmagic.state.reached import Reach
from jitmagic.state.region import slot_of
from jitmagic.state.wrappers import unwrap


@dataclass(frozen=True)
class Inspected:
    """A function whose variables are looked for: `receiver` is what its first parameter stands for, `given` are
    objects among its arguments, by path."""

    fn: Callable[..., object]
    namespace: dict[str, object] | None = None
    receiver: object = None
    receiver_as: str = "self"
    given: Mapping[str, object] = field(default_factory=dict)

    def scope(self) -> paths.Scope:
        """Where its paths are looked up."""
        bound, function = unwrap(self.fn)
        receiver = bound if self.receiver is None else self.receiver
        if values.is_users_function(function):
            own = function.__globals__
        else:  # what a library calls was named where the user is
            own = self.namespace if self.namespace is not None else vars(sys.modules["__main__"])
        functions = functools.partial(_functions, function, receiver) if function is not None else None
        return paths.Scope(own, functions, receiver, self.receiver_as)

    def reach(self) -> Reach:
        """Everything it can read."""
        return self._reach

    @functools.cached_property
    def _reach(self) -> Reach:
        return roots.reach(self.fn, receiver=self.receiver, kwargs=self.given)

    @property
    def name(self) -> str:
        """Its name for messages."""
        return str(getattr(self.fn, "__name__", type(self.fn).__name__))


def _functions(fn: object, receiver: object) -> Sequence[types.FunctionType]:
    return roots.reach(fn, receiver=receiver).functions


def arguments_of(fn: Callable[..., object], dyn_vars: object, receiver: str | None) -> frozenset[str]:
    """The parameters that are declared by name, but for the `receiver`: objects that calls pass there are state."""
    texts = [t for v in flatten(dyn_vars) if isinstance(v, str) for t in paths.split_paths(v)]
    return frozenset(p.name for p in parameters_of(fn) or () if p.name in texts and p.name != receiver)


class Declared:
    """The declaration, settled: paths stay text, values given have become the places they are read from."""

    def __init__(self, dyn_vars: object, subject: Inspected) -> None:
        receiver = subject.receiver_as if subject.receiver is not None else None
        self.arguments = arguments_of(subject.fn, dyn_vars, receiver)
        """Parameters: what calls pass for them is looked at at each call."""
        self.everything = dyn_vars is None
        self.auto = any(v == "auto" for v in flatten(dyn_vars) if isinstance(v, str))
        self._items: list[str | Place] = []
        reach = None
        for item in flatten(dyn_vars):
            if isinstance(item, str):
                self._items += [t for t in paths.split_paths(item) if t not in ("auto", *self.arguments)]
            elif adapters.is_variable(item):
                self._items.append(paths.place_of(item))
            else:
                reach = reach or subject.reach()
                self._items.append(_read_from(item, reach, subject))

    def tops(self, subject: Inspected) -> list[Place]:
        """The places declared, whatever they hold."""
        if not self._items:
            return []
        scope = subject.scope()
        return [paths.resolve(t, scope) if isinstance(t, str) else t for t in self._items]

    def leaves(self, subject: Inspected, look: Callable[[], Below] = Below) -> list[Place]:
        """The places of all dynamic variables, each holding one array or number, in a stable order.

        `look` makes what looks below each of the declared ones. Raises ValueError for a path that leads to none."""
        found: list[Place] = []
        if self.everything:
            if adapters.any_installed():
                reach = subject.reach()
                # a library's module reads its own attributes, which no code of the user names
                found += [leaf.place for leaf in reach.leaves(used_only=False) if leaf.is_variable]
        if self.auto:
            found += [
                leaf.place for leaf in subject.reach().leaves() if leaf.is_array and is_place(leaf.place)
            ]
        for top in self.tops(subject):
            found += _below(top, look())
        return unique(found)


def is_place(place: Place) -> bool:
    """The place can be written to: defaults of parameters can't."""
    return place.origin != "default"


def _below(top: Place, below: Below) -> list[Place]:
    if top.adapter is not None:
        return [top]
    below.look(top)
    if not below.leaves and not values.is_function(top.get()) and not _is_empty(top.get()):
        kind = type(top.get()).__name__
        raise paths.PathError(
            f"nothing in {top.path!r} can be dynamic: it is a {kind}, which holds no array or number"
        )
    return below.leaves


def _is_empty(value: object) -> bool:
    # A container that is filled at the first call, a model that builds itself.
    if values.is_a(value, list | dict | set | collections.deque):
        return True
    return not (values.is_leaf(value) or values.is_a(value, values.FUNCTIONS)) and values.is_walkable(value)


def _read_from(item: object, reach: Reach, subject: Inspected) -> Place:
    for root in reach.values():
        if root.value is item and root.place is not None:
            return root.place
    if adapters.any_installed() and variables_in(item):
        return Place(f"<{type(item).__name__} {id(item):#x}>", "global", "global", "v", holder={"v": item})
    what = values.short(item)
    raise ValueError(
        f"{subject.name} does not read the {what} given in dyn_vars; name the path it is read from"
    )


def flatten(dyn_vars: object) -> Iterator[object]:
    """The leaves of a nested list, tuple or dict of dynamic variables."""
    if type(dyn_vars) is dict:
        dyn_vars = tuple(dyn_vars.values())
    if type(dyn_vars) in (list, tuple, set, frozenset):
        for v in dyn_vars:  # type: ignore[attr-defined]
            yield from flatten(v)
    elif dyn_vars is not None:
        yield dyn_vars


def unique(places: Sequence[Place]) -> list[Place]:
    """Each variable once, whatever paths lead to it."""
    out: dict[object, Place] = {}
    for p in places:
        out.setdefault(slot_of(p), p)
    return list(out.values())

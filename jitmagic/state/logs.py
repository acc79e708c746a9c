"""Lists, deques and sets that a function only adds to: what it adds comes out of the compiled function.

While a function is traced, a stand-in notes what is added. It tells of anything else that is done with the list: then
its items and its length are what the program depends on."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from jitmagic.state.active import TraceAgain
from jitmagic.state.paths import Place

_ADDING = ("append", "extend", "add", "update", "__iadd__", "__ior__")
_OF_ALL = frozenset(
    "__new__ __init__ __class__ __getattribute__ __setattr__ __delattr__ __doc__ __init_subclass__ __subclasshook__ "
    "__dir__ __hash__ __class_getitem__ __getstate__ __sizeof__".split()
)


class IsRead(TraceAgain):
    """A function reads what it was taken only to add to."""


class _StandIn:
    """Notes what is added; everything else raises `IsRead`."""

    noted: list[object]
    owner: Any
    path: str

    def _add(self, item: object) -> None:
        self.noted.append(item)

    def _add_all(self, items: Iterable[object]) -> object:
        self.noted.extend(items)
        return self

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        self.owner.read_logs.add(self.path)
        raise IsRead(self.owner)


def _made_of(base: type) -> type:
    names = {n for n in dir(base) if n not in _OF_ALL}
    body: dict[str, object] = dict.fromkeys(names, _StandIn._refuse)
    adding: dict[str, object] = {"append": _StandIn._add, "add": _StandIn._add}
    body |= {n: adding.get(n, _StandIn._add_all) for n in names.intersection(_ADDING)}
    made = type(f"Noted{base.__name__}", (_StandIn, base), body)
    _tell_jax(made)
    return made


def _tell_jax(cls: type) -> None:
    import jax

    jax.tree_util.register_pytree_node(cls, lambda value: value._refuse(), lambda aux, children: children)


@functools.cache
def _stand_ins() -> dict[type, type]:
    return {base: _made_of(base) for base in (list, collections.deque, set)}


def can_be_noted(value: object) -> bool:
    """A plain list, deque or set."""
    return type(value) in (list, collections.deque, set)


class Notes:
    """What a function adds to some lists, deques and sets while it is traced."""

    def __init__(self, owner: object, places: Sequence[Place]) -> None:
        self._all = [(place, place.get(), self._stand_in(owner, place)) for place in places]

    @staticmethod
    def _stand_in(owner: object, place: Place) -> _StandIn:
        made: Any = _stand_ins()[type(place.get())]()
        made.noted, made.owner, made.path = [], owner, place.path
        return made

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """While this holds, the stand-ins are in the places of the lists."""
        for place, _, stand_in in self._all:
            place.put(stand_in)
        try:
            yield
        finally:
            for place, held, stand_in in self._all:
                if place.look() is stand_in:
                    place.put(held)

    def added(self) -> Iterator[tuple[Place, Collection[object]]]:
        """What was added to which."""
        return ((place, stand_in.noted) for place, _, stand_in in self._all if stand_in.noted)

"""Containers that are put back hold what they held, in its order, as the objects that they are."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from jitmagic.state.contents import put_item, put_items, put_members, put_sequence
from jitmagic.state.values import MISSING, whole


class Ordered(collections.OrderedDict[Any, Any]):
    """A subclass whose own methods must not be called."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError

    def clear(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("now", [{}, {"b": 1}, {"c": 3, "a": 1}, {"a": 0, "x": 9, "b": 2, "c": 3}])
def test_a_dict_has_its_items_in_their_order(kind: Any, now: dict[str, int]) -> None:
    wanted = {"a": 1, "b": 2, "c": 3}
    holder = kind(now)
    put_items(holder, wanted)
    assert list(holder.items()) == list(wanted.items())
    if kind is collections.OrderedDict:  # the links between its items are whole
        assert list(reversed(holder)) == ["c", "b", "a"]
        holder.move_to_end("a")
        assert list(holder) == ["b", "c", "a"] and holder.popitem() == ("a", 1)


def test_methods_of_the_users_are_not_called() -> None:
    holder = Ordered()
    put_item(holder, "a", 1)
    put_items(holder, {"b": 2, "a": 1})
    assert list(holder.items()) == [("b", 2), ("a", 1)] and isinstance(holder, Ordered)
    put_item(holder, "b", MISSING)
    put_item(holder, "b", MISSING)
    assert list(holder) == ["a"]


@pytest.mark.parametrize("wanted", [[], [1], [1, 2, 3], [0, 1, 2, 3, 4]])
def test_a_bounded_deque_holds_the_last(wanted: list[int]) -> None:
    holder = collections.deque([7, 1, 2], maxlen=3)
    put_sequence(holder, wanted)
    assert list(holder) == wanted[-3:] and holder.maxlen == 3


def test_what_is_the_same_stays_where_it_is() -> None:
    """Other threads may have their hands on the rest: nothing is emptied and filled again."""
    touched = []

    class Watched(list[Any]):
        def clear(self) -> None:
            touched.append("clear")

    holder, items = Watched([1, 2, 3]), {4, 5}
    put_sequence(holder, [1, 9, 3])
    put_members(items, {5, 6})
    assert holder == [1, 9, 3] and items == {5, 6} and touched == []


@pytest.mark.parametrize("writes", [0, 1, 3])
def test_what_another_thread_writes_meanwhile_is_read_once_more(writes: int) -> None:
    left = iter([RuntimeError("dictionary changed size during iteration")] * writes)

    def read() -> list[int]:
        if (error := next(left, None)) is not None:
            raise error
        return [1, 2]

    assert whole(read) == [1, 2]

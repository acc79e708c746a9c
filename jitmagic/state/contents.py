"""The items of the user's dicts, lists, deques and sets as they are stored: read and put back past methods of their
own, and only where they differ, so that order, links and what others write meanwhile stay."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

from jitmagic.state.values import MISSING, class_attribute, is_a, is_traced_key, whole

Key = tuple[str, Any]
"""Where something lies in its holder: the kind of the place (`item`, `attribute`, `inside`), and its key there."""
CONTENTS: Key = ("contents", None)
"""The key of all that is in a list, deque or set, where items came or went."""
INSIDE: Key = ("inside", None)
"""The key of the value in a framework's variable."""


def dict_type(holder: dict[object, object]) -> Any:
    """The class of Python's own that stores the items: an `OrderedDict` keeps links between them."""
    return collections.OrderedDict if is_a(holder, collections.OrderedDict) else dict


def items_of(holder: dict[object, object]) -> dict[object, object]:
    """Keys and values in their order; without traced keys, of which one whose trace has ended can't be hashed."""
    iterates = class_attribute(type(holder), "__iter__")
    if iterates and iterates[0] is dict and not any(map(is_traced_key, held := dict.copy(holder))):
        return held  # neither a method of the holder's own nor the hash of a key was asked for
    try:
        items = whole(lambda: list(dict_type(holder).items(holder)))
    except (KeyError, TypeError):  # the hash of a key is another one by now, or there is none
        items = whole(lambda: list(dict.items(holder)))
    return {k: v for k, v in items if not is_traced_key(k)}


def put_item(holder: dict[object, object], key: object, value: object) -> None:
    """Store or, where the value is MISSING, delete one item."""
    if value is not MISSING:
        dict_type(holder).__setitem__(holder, key, value)
    elif dict.__contains__(holder, key):
        dict_type(holder).__delitem__(holder, key)


def put_items(holder: dict[object, object], wanted: dict[object, object]) -> None:
    """Make these the items, in this order."""
    now = items_of(holder)
    if same_items(now, wanted):
        return
    for key in now.keys() - wanted.keys():
        put_item(holder, key, MISSING)
    for key, value in wanted.items():
        if dict.get(holder, key, MISSING) is not value:
            put_item(holder, key, value)
    put_in_order(holder, wanted)


def same_items(a: dict[object, object], b: dict[object, object]) -> bool:
    """The same objects under the same keys in the same order; no key is asked for its hash."""
    pairs = zip(a.items(), b.items(), strict=False)
    return len(a) == len(b) and all(k is j and v is w for (k, v), (j, w) in pairs)


def put_in_order(holder: dict[Any, Any], wanted: Iterable[object]) -> None:
    """Bring the items into the order of these keys, which are all of them."""
    late = _apart(list(items_of(holder)), list(wanted))[0]
    for key in list(wanted)[late:]:
        if is_a(holder, collections.OrderedDict):
            collections.OrderedDict.move_to_end(holder, key)  # type: ignore[arg-type]
        else:
            dict.__setitem__(holder, key, dict.pop(holder, key))


def sequence_of(holder: list[object] | collections.deque[object]) -> list[object]:
    """The items of a list or deque."""
    if is_a(holder, list):
        return list.copy(holder)  # type: ignore[arg-type]
    return whole(lambda: list(collections.deque.__iter__(holder)))  # type: ignore[arg-type]


def put_sequence(holder: list[object] | collections.deque[object], wanted: list[object]) -> None:
    """Make these the items, of which a bounded deque holds the last; those at both ends that are there stay
    untouched."""
    if (most := getattr(holder, "maxlen", None)) is not None:
        wanted = wanted[max(0, len(wanted) - most) :]
    now = sequence_of(holder)
    start, end = _apart(now, wanted)
    new = wanted[start : len(wanted) - end]
    if is_a(holder, list):
        list.__setitem__(holder, slice(start, len(now) - end), new)  # type: ignore[arg-type,index]
        return
    deque: Any = collections.deque
    for _ in range(len(now) - end - start):
        deque.__delitem__(holder, start)
    for value in reversed(new):
        deque.insert(holder, start, value)


def put_members(holder: set[object], wanted: set[object]) -> None:
    """Make these the members."""
    untraced(holder)
    for value in set.difference(holder, wanted):
        set.discard(holder, value)
    for value in set.difference(wanted, holder):
        set.add(holder, value)


def untraced(holder: set[object]) -> None:
    """Take traced members out: one whose trace has ended can't be compared, nor taken out by itself."""
    members = whole(lambda: list(set.__iter__(holder)))
    kept = [m for m in members if not is_traced_key(m)]
    if len(kept) < len(members):
        set.clear(holder)
        set.update(holder, kept)


def refill(holder: list[object] | collections.deque[object] | set[object], items: Iterable[object]) -> None:
    """Make these the items or members, and nothing else."""
    if is_a(holder, set):
        put_members(holder, set(items))  # type: ignore[arg-type]
    else:
        put_sequence(holder, list(items))  # type: ignore[arg-type]


def without(now: list[object], old: list[object], wrong: Callable[[Key, object], bool]) -> list[object]:
    """The items of now, where what is new and wrong is as it was, or left out where there was none."""
    kept = []
    for i, value in enumerate(now):
        before = old[i] if i < len(old) else MISSING
        value = before if value is not before and wrong(("item", i), value) else value
        kept += [] if value is MISSING else [value]
    return kept


def _apart(a: list[object], b: list[object]) -> tuple[int, int]:
    """How many items are the same objects at the beginning, and at the end."""
    shorter = min(len(a), len(b))
    start = next((i for i in range(shorter) if a[i] is not b[i]), shorter)
    end = next((i for i in range(shorter - start) if a[-1 - i] is not b[-1 - i]), shorter - start)
    return start, end

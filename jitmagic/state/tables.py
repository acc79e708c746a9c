"""Tables of pandas that a run changes: their very memory, with what was in it, and which of it they were made of.

That others share the memory of a table (a file, an array, another table) is part of what it is: nothing is put back
by making another one. Private: pandas has no public way to it; a table that is not as this knows it can't be put back.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitmagic.state.entries import LARGEST, Kept, Numpy, Only, Origin
from jitmagic.state.values import MISSING, module_of, mro, own_dict

MOST_CELLS = 20_000
"""Cells of a table that are looked into."""
_OF_MANAGER = """blocks axes _blknos _blklocs _known_consolidated _is_consolidated _interleaved_dtype
    _dtypes_cache""".split()
_OF_ARRAY = ("_ndarray", "_dtype")
"""What arrays of pandas keep beside their attributes."""


def kind_of(value: object) -> str:
    """`DataFrame`, `Series` or `Index` for such an object, one of a class of the user's too; '' for others."""
    if "pandas" not in sys.modules:
        return ""
    return next((c.__name__ for c in mro(type(value)) if _is_of_pandas(c)), "")


def _is_of_pandas(cls: type) -> bool:
    return cls.__name__ in ("DataFrame", "Series", "Index") and module_of(cls).partition(".")[0] == "pandas"


def _plain(table: Any) -> Any:
    """The same data in a table of pandas' own class: the user's have constructors that may count."""
    return next(c for c in mro(type(table)) if _is_of_pandas(c))(table)


def entry_of(table: Any, path: str, origin: Origin) -> Frame | None:
    """The entry of a DataFrame or a Series; None for one that is too large, or made in another way."""
    size = int(np.sum(_plain(table).memory_usage(deep=False)))
    try:
        return Frame(table, path, origin) if size <= LARGEST else None
    except AttributeError:
        return None


def held(table: Any) -> list[object]:
    """What stands in its cells, and its attributes."""
    plain = _plain(table)
    columns = [plain] if kind_of(table) == "Series" else [plain.iloc[:, i] for i in range(plain.shape[1])]
    cells = (cell for c in columns if c.dtype == object for cell in c.array)
    return [*_around_data(table).values(), *itertools.islice(cells, MOST_CELLS)]


def _parts(array: Any) -> Iterator[tuple[Any, str, Any]]:
    """An array of numpy's; of an array of pandas', all that it is made of: what has it, its name there, and it."""
    if isinstance(array, np.ndarray):
        yield None, "", array
    elif module_of(type(array)).partition(".")[0] == "pandas":
        for name in dict.fromkeys((*_OF_ARRAY, *(own_dict(array) or ()))):
            if (part := getattr(array, name, MISSING)) is not MISSING:
                yield array, name, part
                yield from _parts(part)


def _around_data(table: Any) -> dict[str, object]:
    """The attributes of a table: `attrs`, flags, its name and what users add."""
    return {k: v for k, v in (own_dict(table) or {}).items() if k not in ("_mgr", "_item_cache")}


@dataclass(frozen=True)
class _Picture:
    """What a table shows."""

    copy: Any
    around: dict[str, object]
    """The very attributes, whose contents are put back by themselves."""

    def is_like(self, other: _Picture) -> bool:
        """They show the same."""
        axes = zip(self.copy.axes, other.copy.axes, strict=True)
        same = all(i.equals(j) and i.names == j.names for i, j in axes)
        named = self.around.keys() == other.around.keys()
        named = named and all(v is other.around[k] for k, v in self.around.items())
        try:
            return bool(same and named and self.copy.equals(other.copy))
        except Exception:  # what cells hold may not be comparable
            return False


class _Memory:
    """What a table is made of: the very objects, and what stood in the arrays."""

    def __init__(self, table: Any) -> None:
        self.manager: Any = table._mgr
        of_class = type(self.manager)  # some keep no places, and make them up
        kept = [n for n in _OF_MANAGER if not isinstance(getattr(of_class, n, None), property)]
        self.fields = {n: _own(getattr(self.manager, n)) for n in kept if hasattr(self.manager, n)}
        self.blocks = [(b, b.values, b.mgr_locs) for b in self.manager.blocks]
        self.parts = [part for _, array, _ in self.blocks for part in _parts(array)]
        self.arrays = [Numpy(part, "", LARGEST) for _, _, part in self.parts if isinstance(part, np.ndarray)]
        self.names = [(axis, axis.names) for axis in self.manager.axes]
        self.cached = _own((own_dict(table) or {}).get("_item_cache"))

    def put_into(self, table: Any) -> None:
        """Make the table of it again."""
        held = own_dict(table) or {}
        held["_mgr"] = self.manager
        if self.cached is not None:
            held["_item_cache"] = _own(self.cached)
        for block, array, places in self.blocks:
            if block.values is not array:
                block.values = array
            if block.mgr_locs is not places:
                block.mgr_locs = places
        for holder, name, part in self.parts:
            if holder is not None and getattr(holder, name, MISSING) is not part:
                setattr(holder, name, part)
        for array in self.arrays:
            array.restore(None)
        for name, was in self.fields.items():
            setattr(self.manager, name, _own(was))
        for axis, names in self.names:
            if axis.names != names:
                axis.names = names


def _own(value: Any) -> Any:
    """A copy of what is changed in place, lists and tables of places."""
    return value.copy() if isinstance(value, list | dict | np.ndarray) else value


class Frame(Kept):
    """The entry of a DataFrame or a Series."""

    def __init__(self, table: Any, path: str, origin: Origin) -> None:
        super().__init__(
            table,
            path,
            origin,
            lambda t: _Picture(_plain(t).copy(), _around_data(t)),
            self._put,
            _Picture.is_like,
        )
        self.memory = _Memory(table)

    def in_arrays(self, is_so: Callable[[np.ndarray], bool]) -> bool:
        """It is so of one of the arrays that hold the numbers."""
        return any(is_so(part.array) for part in self.memory.arrays)

    def _put(self, table: Any, old: _Picture) -> None:
        self.memory.put_into(table)
        held = own_dict(table) or {}
        for name in _around_data(table).keys() - old.around.keys():
            del held[name]
        held.update(old.around)

    def restore(self, only: Only) -> None:
        if not only:  # what looks the same may be made of something else
            self._put(self.holder, self.old)

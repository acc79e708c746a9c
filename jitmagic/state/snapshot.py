"""What a run changes: remember everything a function reaches, tell what is different now, and put it back.

Bindings and the structure of containers and objects are kept by reference, so a snapshot costs time in
proportion to the number of objects, not to the size of the arrays: numpy arrays are copied where the function may
write into them, of large ones that it only reads a sample is kept.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dis
import functools
import gc
import itertools
import logging
import mmap
import operator
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

from jitmagic import raw
from jitmagic.evidence import Where, Write
from jitmagic.interrupts import deferred
from jitmagic.source.tree import looks_for_garbage
from jitmagic.state import adapters, bystanders, ends, iterators, outside, roots, shut, tables, values
from jitmagic.state.adapters import adapter_for, gives_away
from jitmagic.state.entries import (
    LARGEST,
    MEGABYTE,
    Action,
    Binding,
    Cache,
    Change,
    Entry,
    Iterator_,
    Kept,
    Keyed,
    Numpy,
    Only,
    Origin,
    VariableEntry,
    is_special,
    origin_of,
    parts,
    random_state,
    suspended,
)  # fmt: skip
from jitmagic.state.paths import PathError, Place
from jitmagic.state.reached import Function, Reach, Root
from jitmagic.state.reads import handed_to, reads_of, seen_from_cell, writes_of
from jitmagic.state.untouched import only_reads
from jitmagic.state.uses import facts_of
from jitmagic.state.values import MISSING, contains_tracer, is_a, short
from jitmagic.tracing import compat, trees
from jitmagic.tracing.libraries import HARMLESS

LIMIT = 20_000
DEPTH = 1000
TOO_MUCH = "more than is remembered"
_ELSEWHERE = "something that another thread of yours uses"
MEMORY = "a memory that can only be emptied"
_LAST = 2 * DEPTH
"""The depth of what is looked at without what lies below."""
LONGEST = 2_000_000
_WRITES = 200


def take(reach: Reach, known: Collection[int] = ()) -> Snapshot:
    """Remember everything that `reach` leads to, mutable arguments and random states included; not what is `known`
    by identity."""
    taken = Snapshot(reach, known)
    for fn in [f for main in reach.functions[:1] for f in _found_late.get(main, ())]:
        taken.late.append(Snapshot(roots.reach(fn), taken.known))
    for cls in reach.classes:  # those that jax takes apart, at each call of what it has compiled
        functions = trees.node_functions(cls)
        for called in (cls, *functions) if functions else ():
            taken.late.append(Snapshot(roots.reach(called), taken.known))
            taken.late[-1].observes = True
    return taken


class Snapshot:
    """Everything a function reaches, as it was. Keeps references, so drop it when the run is over."""

    def __init__(self, reach: Reach, known: Collection[int] = (), also: Iterable[object] = ()) -> None:
        self.reach, self._known = reach, known
        self.functions = reach.functions
        self.bound = [root.value for root in reach.roots]
        """What names stood for."""
        self._codes: set[int] | None = None
        self.unrestorable: dict[str, str] = {}
        """Paths of what cannot be put back, and what it is: generators, connections, files that are written."""
        self.drained: dict[str, str] = {}
        """Of these, the paths of what a run of these functions may change, with the full names of the classes."""
        self.donating: dict[str, str] = {}
        """Functions that give away what they are called with, outside of a trace."""
        self.late: list[Snapshot] = []
        """What functions reach that no search has found, from where a run came to them."""
        self._of_libraries: Snapshot | None = None
        """One of these, of what libraries keep for all their callers."""
        self.noticed = ends.asked()
        """Path of something that the user may see living on for this, or the name that asks for such things."""
        self.observes = False
        """Of what is called from outside of all that is looked at: nothing is told of it."""
        self._entries: list[Entry] = []
        self._settings = outside.process()
        self._seen: dict[int, object] = {}
        self._todo: collections.deque[tuple[Place, object, int]] = collections.deque()
        self._unnamed: collections.deque[tuple[Place, object, int]] = collections.deque()
        """What only attributes lead to that no code of the user's names."""
        self._elsewhere, self._names_elsewhere = bystanders.reached(reach.functions)
        self._named = True
        self._shared: set[int] = set()
        """Entries, by `id`, of what other threads change too: traced values alone are taken out of it."""
        self._is_shared = bystanders.is_guarded if bystanders.are_there() else lambda value: False
        for root in reach.roots:
            self._root(root.place, root.origin)
        self._surroundings(reach)
        for value in also:
            self._todo.append((Place("<held>", "global", "global", "held", holder={"held": value}), value, 0))
        while (self._todo or self._unnamed) and len(self._seen) < LIMIT:
            self._named = self._named and bool(self._todo)
            self._visit(*(self._todo or self._unnamed).popleft())
        left = {p.path.partition("[")[0]: p for p, v, _ in self._todo if self._named and not _is_atom(v)}
        for name, place in left.items():
            self._lose(name, TOO_MUCH, place.look())
        for name, cached in reach.caches:
            if name and id(cached) not in self._seen:
                self._lose(name, MEMORY, cached)

    def _root(self, place: Place, origin: str) -> None:
        if origin not in ("argument", "default"):
            self._entries.append(binding := Binding(place, origin_of(place)))
            if self._is_bound_elsewhere(place):
                self._shared.add(id(binding))
                if not self._reads(place):
                    self._lose(place.path, _ELSEWHERE, place.look())
        self._todo.append((place, place.look(), 0))

    def _is_bound_elsewhere(self, place: Place) -> bool:
        """Code of the user's in another thread may bind it meanwhile."""
        if place.parent is None:
            return place.kind == "global" and place.key in self._names_elsewhere
        return bool(self._elsewhere) and id(place.parent.look()) in self._elsewhere

    def _surroundings(self, reach: Reach) -> None:
        for name in reach.remade:
            self._lose(name, "what an object is", object())
        for fn in reach.functions:
            self._entries.append(Keyed(fn, fn.__name__, "attribute", "attribute"))
            self._entries.append(
                Kept(
                    fn,
                    f"{fn.__name__}.__defaults__",
                    "attribute",
                    _made_of,
                    _make_of,
                    _same_parts,
                    by_value=True,
                )
            )
            held = Place(fn.__name__, "global", "global", "fn", holder={"fn": fn})
            self._fields(held, fn, 1)
            kept = {**fn.__dict__, "__kwdefaults__": fn.__kwdefaults__}
            self._todo += [(held.below("attribute", k), v, 1) for k, v in kept.items()]
        for cls in reach.classes:
            self._class(cls)
        for namespace in reach.namespaces:
            self._entries.append(names := Keyed(namespace, "", "name", "global"))
            if self._names_elsewhere:
                self._shared.add(id(names))
                self._lose("globals()", _ELSEWHERE, namespace)
            named = [(n, v) for n, v in namespace.items() if not is_special(n)]
            self._unnamed += [(Place(n, "global", "global", n, holder=namespace), v, 1) for n, v in named]
        self._entries += [_Unimported(*found) for found in reach.unimported]
        for name, generator in iterators.global_random_states():
            self._entries.append(random_state(generator, name))
        for place, value in _of_modules(reach.functions):
            if is_a(value, types.ModuleType) or is_a(value, type):
                self._entries.append(Keyed(value, place.path, "attribute", "attribute"))
            else:
                self._todo.append((place, value, 1))

    def _class(self, cls: type) -> None:
        """A class of the user's: its attributes, and what lies in them."""
        if id(cls) in self._seen:
            return
        self._seen[id(cls)] = cls
        if any(
            values.class_dict(cls).get("__del__") is fn for fn in self.functions
        ):  # such an object is made
            self._lose(f"{cls.__name__}()", "an object that does something when it goes", cls)
        path = cls.__qualname__.rpartition("<locals>.")[2]
        self._entries += [Keyed(cls, path, "attribute", "attribute"), _Subclasses(cls)]
        held = Place(path, "global", "global", "cls", holder={"cls": cls})
        self._fields(held, cls, 1)
        own = [(k, v) for k, v in values.class_dict(cls).items() if not is_special(k) and _is_data(v)]
        self._todo += [(held.below("attribute", k), v, 1) for k, v in own]
        for base in (*values.mro(cls)[1:], *values.mro(type(cls))):
            if values.is_user_class(base):
                self._class(base)
        if "__subclasses__" in self.reach.attributes:
            derived: type
            for derived in type.__subclasses__(cls):
                self._class(derived)

    def _visit(self, place: Place, value: Any, depth: int) -> None:
        if is_a(value, _BOUND):  # `log.append` under a name of its own
            value = value.__self__
        if values.module_of(type(value)) == _WATCHED:  # the attributes are those of what it stands for
            for name in self.reach.fields.intersection(functools.WRAPPER_ASSIGNMENTS):  # and these its own
                write = functools.partial(_named_so, name)
                read = operator.attrgetter(name)
                path = f"{place.path}.{name}"
                self._entries.append(Kept(value, path, "attribute", read, write, _same_field, by_value=True))
            value = value.plain_function
        if _is_atom(value) or id(value) in self._known:
            return
        if id(value) in self._seen:
            if is_a(value, functools._lru_cache_wrapper):
                self._memory(place, value)
            elif _stands_in(value):
                self._position(place, value)
            return
        if is_a(value, type):
            return self._class(value)
        self._seen[id(value)] = value
        self._fields(place, value, depth)
        if not self.noticed and (ends.is_noticed(value) or (is_a(value, ends.WEAK) and _is_users(place))):
            self.noticed = place.path
        if id(value) in self._elsewhere or self._is_shared(value):  # what changes it is the other thread, too
            if self._reads(place, _looking(value), own=True):
                below = ((place.below(*step), child, depth + 1) for *step, child in _children(value))
                self._todo += itertools.islice((b for b in below if not _is_atom(b[1])), LIMIT)
                return
            self._lose(place.path, _ELSEWHERE, value)
            first = len(self._entries)
            self._look_into(place, value, depth)
            self._shared.update(map(id, self._entries[first:]))
            return
        self._look_into(place, value, depth)

    def _fields(self, place: Place, value: Any, depth: int) -> None:
        """What the functions store into that lies in no `__dict__` and no slot: `error.args`, a function's name."""
        cls = type(value)
        for name in () if is_a(value, np.ndarray) else self.reach.fields:
            owner, field = values.class_attribute(cls, name) or (cls, MISSING)
            of_slot = is_a(field, types.MemberDescriptorType) and "__slots__" in values.class_dict(owner)
            if not is_a(field, types.GetSetDescriptorType | types.MemberDescriptorType) or of_slot:
                continue
            with contextlib.suppress(AttributeError, TypeError):  # it has none
                read, write = functools.partial(_field, field), field.__set__
                path = f"{place.path}.{name}"
                entry = Kept(value, path, "attribute", read, write, _same_field, by_value=True)
                if _same_field(read(value), entry.old):  # else it is made anew each time: `C.__dict__`
                    self._entries.append(entry)
                    self._follow([entry.old], place, depth)

    def _look_into(self, place: Place, value: Any, depth: int) -> None:
        if is_a(value, logging.Manager):
            return  # of the loggers of every library; it only gains names
        if (
            type(place.key) is str  # a key of the user's may compare in its own way
            and place.key == "_waiters"
            and place.parent is not None
            and is_a(place.parent.look(), threading.Condition)
        ):
            return  # who is not told there any more waits for ever; what waits in a run of ours takes itself out
        if type(value) not in _PLAIN and self._is_special(place, value, depth):
            return
        self._note_donation(place.path, value)
        if is_a(value, BaseException) and not _is_handled(value):
            self._entries.append(_Raised(value, place.path))
        is_handler = is_a(value, logging.Handler)  # none is called in a run of ours
        if _is_foreign(type(value)) and not is_handler and not self._reads(place):
            self._lose(place.path, f"a {type(value).__name__}", value)
        known = is_a(value, _CONTAINERS) or _is_open(value)
        steps = values.class_attribute(type(value), "__next__") is not None
        if steps and not (known and values.is_user_class(type(value))):  # a library's reads a file, say
            self._lose(place.path, "an iterator", value)
        elif known:
            if depth < DEPTH or depth == _LAST:
                self._structure(value, place, depth)
            elif depth < _LAST:
                self._lose(place.path, TOO_MUCH, value)
        elif not _is_lasting(type(value)):
            self._follow(values.referents(value), place, depth)
            self.unrestorable.setdefault(place.path, f"a {type(value).__name__}")
            if _root(type(value)) in sys.stdlib_module_names:
                self._lose(place.path, f"a {type(value).__name__}", value)

    def _note_donation(self, path: str, value: Any, donated: bool = False) -> None:
        if gives_away(value, donated):
            self.donating[path] = f"{value.__module__}.{getattr(value, '__qualname__', '')}"

    def _is_special(self, place: Place, value: Any, depth: int) -> bool:
        """It is no plain container or object, and is taken care of."""
        path, origin = place.path, origin_of(place)
        if iterators.random_state(value) is not None and values.is_user_class(type(value)):
            self._structure(value, place, depth)  # of a class of the user's
        if is_a(value, np.ndarray):
            self._numpy(value, place, depth)
        elif adapter_for(value) is not None:
            self._entries.append(VariableEntry(value, path))
        elif (entry := outside.entry_of(value, path, origin)) is not None:
            self._entries.append(entry)
            if outside.is_in_memory(value) and self._may_close:
                self._lose(path, "a buffer that may be closed", value)
            if outside.is_locked(value):
                self._lose(path, "a lock that is taken", value)
            if isinstance(entry, tables.Frame) and entry.in_arrays(_is_file) and not self._reads(place):
                self._lose(path, _IN_FILE, value)
            below = entry.old.values() if isinstance(entry, Keyed) else outside.held(value)
            self._follow(below, place, depth)
        elif tables.kind_of(value) and not self._reads(place):
            self._lose(path, TOO_MUCH, value)
        elif iterators.is_iterator(value):
            self._iterator(value, place, depth)
        elif outside.is_file(value):
            self._file(value, place)
        elif is_a(value, contextvars.ContextVar):
            self._entries.append(outside.context(value, path, origin))
            self._follow([value.get(MISSING)], place, depth)
        elif compat.is_jitted(value):
            self._note_donation(
                path, value, any(option.startswith("donate") for option in compat.jit_options(value))
            )
            self._entries.append(Keyed(value, path, "attribute", "attribute"))  # `step.calls += 1`
            return False
        elif is_a(value, functools._lru_cache_wrapper):
            self._memory(place, value)
        elif what := outside.lost(type(value)):
            self._lose(path, what, value)
        elif is_a(value, _HOLDERS):
            target = values.referents(value)
            if is_a(value, memoryview) and self._may_close:
                self._lose(path, "a view that may be released", value)
            if is_a(value, weakref.ref | memoryview):
                with contextlib.suppress(ValueError):  # released
                    target = [value() if is_a(value, weakref.ref) else value.obj]
            elif is_a(value, Function):  # the names that it uses are no part of it
                names = id(value.__globals__), id(getattr(value, "__builtins__", None))
                target = [part for part in target if id(part) not in names]
            self._follow(target, place, depth)
        elif is_a(value, BaseException):
            self._follow(value.args, place, depth)
            return False
        else:
            return False
        return True

    def _follow(self, found: Iterable[object], place: Place, depth: int) -> None:
        """What no path leads to, by the path of what holds it."""
        for value in found:
            held = Place(place.path, place.origin, "global", "held", holder={"held": value})
            self._todo.append((held, value, depth + 1))

    def _lose(self, path: str, what: str, value: object) -> None:
        self.unrestorable.setdefault(path, what)
        if self._named:
            self.drained.setdefault(path, f"{values.module_of(type(value))}.{type(value).__qualname__}")

    def _numpy(self, array: np.ndarray, place: Place, depth: int) -> None:
        is_file = _is_file(array)
        looked_at = array.flags.writeable and (array.nbytes > MEGABYTE or is_file)
        known = looked_at and not shut.is_written(array) and shut.can_be_shut(array)
        written = looked_at and not (known and self._reads(place))
        self._entries.append(Numpy(array, place.path, LARGEST if written else MEGABYTE))
        if written and (is_file or array.nbytes > LARGEST):
            self._lose(place.path, _IN_FILE, array)
        if array.dtype.hasobject:
            self._follow(array.reshape(-1).tolist()[:LIMIT], place, depth)
        if type(array) is not np.ndarray and values.own_dict(array) is not None:
            self._structure(array, place, depth)

    def _reads(self, place: Place, methods: frozenset[str] | None = None, *, own: bool = False) -> bool:
        try:
            return only_reads(place.path, self.functions, methods, own=own)
        except Exception:
            return False

    def _iterator(self, value: Any, place: Place, depth: int) -> None:
        if is_a(value, types.GeneratorType):
            self._entries.append(suspended(value, place))
            self._lose(place.path, "a generator", value)
            return
        self._position(place, value)
        self._follow(values.referents(value), place, depth)

    def _position(self, place: Place, iterator: Any) -> None:
        entry = Iterator_(iterator, place)
        if entry.copy is None or not _is_rebindable(place, iterator):
            self._lose(place.path, "an iterator", iterator)
        else:
            self._entries.append(entry)

    def _file(self, file: Any, place: Place) -> None:
        if file.closed or outside.is_standard(file):
            return
        entry = outside.file(file, place.path, origin_of(place))
        self._entries.append(entry)
        if entry.old is None or not self._reads(place, outside.READING):
            self._lose(place.path, "a file that is more than read, or a stream", file)

    @functools.cached_property
    def _may_close(self) -> bool:
        """The functions close something, which nothing opens again."""
        codes = [code for fn in self.functions for code in values.codes_in(fn.__code__)]
        return any(
            not _CLOSING.isdisjoint((*code.co_names, *(i.opname for i in dis.get_instructions(code))))
            for code in codes
        )

    def _memory(self, place: Place, cached: Any) -> None:
        if _is_rebindable(place, cached):
            self._entries.append(Cache(cached, place))
        else:
            self._lose(place.path, MEMORY, cached)

    def _structure(self, value: Any, place: Place, depth: int) -> None:
        path = place.path
        if is_a(value, dict | list | set | collections.deque) and raw.length(value) > LONGEST:
            if not self._reads(place):
                self._lose(path, "a container that is too long", value)
            return
        if is_a(value, set) and "pop" in self.reach.attributes and not self._reads(place):
            self._lose(
                path, "a set that is taken from", value
            )  # which of its members comes next is not put back
        self._entries += parts(value, path, attributes=_is_open(value))
        own_settings = _root(type(value)) == "logging"  # and no streams below
        below = _LAST if own_settings else depth + 1
        room, user = LIMIT - len(self._seen), values.is_user_class(type(value))
        for (kind, key, child), _ in zip(_children(value), range(room), strict=False):
            if is_a(child, _BOUND):  # `subscribers = [log.append]`
                child = child.__self__  # type: ignore[attr-defined]
            if not _is_atom(child) and (id(child) not in self._seen or _stands_in(child)):
                named = kind == "item" or not user or self.reach.any_attribute or key in self.reach.attributes
                (self._todo if named else self._unnamed).append((place.below(kind, key), child, below))  # type: ignore[arg-type]
        if _is_more_than(value, room):  # whoever is said to read it may change what is in it
            self._lose(path, TOO_MUCH, value)
        if is_a(value, dict | set | frozenset):
            self._follow(itertools.islice(_members(value), room), place, below - 1)
        if is_a(value, types.MethodType | functools.partial):
            held = [value.__self__] if is_a(value, types.MethodType) else [value.func]
            if is_a(value, types.MethodType) and not is_a(
                value.__func__, Function
            ):  # `net.load` with a memory
                held.append(value.__func__)
            self._follow(held, place, below - 1)

    def stand_in(self) -> None:
        """Give the run that comes iterators and memories of its own: the user's stay untouched."""
        memo: dict[int, object] = {}
        with deferred():
            for entry in itertools.chain(self._entries, *(s._entries for s in self.late)):
                entry.stand_in(memo)

    def renew(self) -> None:
        """Put everything back for one more run."""
        self.restore()
        self.stand_in()

    def unshut(self) -> None:
        """Large arrays can be written again."""
        for entry in itertools.chain(self._entries, *(s._entries for s in self.late)):
            if isinstance(entry, Numpy):
                shut.unshut(entry.array, entry)

    @property
    def objects(self) -> list[object]:
        """The mutable objects that are remembered."""
        return list(self._seen.values())

    def remember(self, container: Any) -> None:
        """Put back, too, what is in it now, the attributes of the objects in it, and so on for some levels."""
        if self._of_libraries is None:
            self._of_libraries = Snapshot(Reach(), self.known)
            self._of_libraries.observes = True
            self.late.append(self._of_libraries)
        kept, level, first = self._of_libraries, [container], len(self._of_libraries._entries)
        for _ in range(_LEVELS_SHARED):
            below: list[Any] = []
            for value in level:
                if not _is_atom(value) and not is_a(value, _OF_CODE) and not kept.holds(value):
                    kept._seen[id(value)] = value
                    weak = outside.entry_of(value, "", "global") if is_a(value, _WEAK) else None
                    if weak is not None:
                        kept._entries.append(weak)
                    elif is_a(value, np.ndarray):
                        kept._entries.append(Numpy(value, _OF_LIBRARY))
                    else:
                        kept._entries += parts(value, _OF_LIBRARY, attributes=_is_open(value))
                    inside = outside.held(value) if weak else (child for *_, child in _children(value))
                    below += itertools.islice(inside, _MOST_SHARED)
            level = below
        if bystanders.at_work():  # whose calls may change it, too
            kept._shared.update(map(id, kept._entries[first:]))

    def holds(self, value: object) -> bool:
        """It is put back already."""
        here = id(value) in self._seen or id(value) in self._known
        return here or any(late.holds(value) for late in self.late)

    @property
    def known(self) -> set[int]:
        """What is put back by identity: here, or by a snapshot that was there before."""
        return {*self._seen, *self._known}.union(*(s.known for s in self.late))

    @property
    def sampled(self) -> list[np.ndarray]:
        """The arrays that are too large to be put back, and can be written."""
        entries = (e for e in self._entries if isinstance(e, Numpy) and e.copy is None)
        return [e.array for e in entries if e.writeable]

    def again(self) -> Snapshot:
        """The same things as they are now, and what has come to be reached since."""
        now = Snapshot(self.reach, self._known, self.objects)
        now.late = [s.again() for s in self.late if s is not self._of_libraries]
        for value in self._of_libraries.objects if self._of_libraries else ():
            now.remember(value)
        return now

    def has(self, value: object) -> bool:
        """Was this object there before?"""
        return id(value) in self._seen

    def is_memory(self, path: str) -> bool:
        """What stands there only keeps what was computed, or is too much to tell."""
        return self.unrestorable.get(path) in (MEMORY, TOO_MUCH)

    def knows(self, code: types.CodeType) -> bool:
        """It holds what this code reaches."""
        if self._codes is None:
            self._codes = {id(c) for f in self.functions for c in values.codes_in(f.__code__)}
        return id(code) in self._codes or any(s.knows(code) for s in self.late)

    def changes(self, besides: Iterable[object] = ()) -> list[Write]:
        """What is different now, at most a few hundred writes; not those of functions that only observe. A path that
        changed twice is told once, and the frameworks' variables in `besides` by no path."""
        found: dict[str, Write] = {}
        known = {id(v) for v in besides}
        late = (s for s in self.late if not (s.observes or any(fn in _observers for fn in s.functions[:1])))
        for entry in itertools.chain(self._entries, *(s._entries for s in late)):
            if isinstance(entry, Kept) and id(entry.holder) in known:
                continue
            for path, origin, action, old, new in _guarded(entry.changes):
                if id(entry) in self._shared and not contains_tracer(new):
                    continue
                if path not in found and len(found) < _WRITES:
                    found[path] = self._write(path, origin, action, old, new)
        return list(found.values())

    def _write(self, path: str, origin: Origin, action: Action, old: object, new: object) -> Write:
        where = first_write(path, self.functions)
        return Write(path, origin, action, contains_tracer(new), where, short(old), short(new))

    def restore(self, *, only_tracers: bool = False) -> None:
        """Put everything back; with `only_tracers`, just the places that hold a tracer now."""
        with deferred():
            late = (s._entries for s in reversed(self.late))  # the first of them knows how it was at first
            shared = self._shared.union(*(s._shared for s in self.late))
            for entry in itertools.chain(*late, self._entries, self._settings):
                try:
                    entry.restore(_is_traced if only_tracers or id(entry) in shared else None)
                except Exception as exc:  # one thing that cannot be put back must not keep the others
                    self.unrestorable.setdefault(entry.path, type(exc).__name__)


_in_force: list[Snapshot] = []
"""What the runs of ours that are under way put back."""


@contextlib.contextmanager
def in_force(before: Snapshot) -> Iterator[None]:
    """While this holds, what runs of ours come to, and no search has found, is remembered there too."""
    _in_force.append(before)
    try:
        yield
    finally:
        _in_force.remove(before)


def about_to_trace(places: Iterable[Place]) -> None:
    """A trace puts traced values there: what runs of ours are under way, and do not know of it, remember it before."""
    known = {i for s in _in_force for i in s.known}
    new = [p for p in places if id(p.holder()) not in known] if _in_force else []
    if new:
        late = Snapshot(Reach([Root(p.path, p, "argument") for p in new]), known)
        late._entries += [Binding(p, origin_of(p)) for p in new]
        for before in _in_force:
            before.late.append(late)


def was_there(value: object) -> bool:
    """A name of what runs of ours reach stood for it before the run that is under way."""
    return any(held is value for before in _in_force for held in before.bound)


def look_at_call(frame: types.FrameType) -> list[Snapshot] | None:
    """A function of the user's begins in a run of ours. Where no search has found it, for a library calls it, what it
    reaches is remembered before its first line. None where it was found."""
    code, caller = frame.f_code, frame.f_back
    while caller is not None and caller.f_globals.get("__name__") == _WATCHED:
        caller = caller.f_back
    by = str(caller.f_globals.get("__name__", "")) if caller is not None else ""
    if not _in_force or by.startswith(_SEARCHED):
        return []
    made_by_us = code.co_name == "<module>" or code.co_filename.startswith("<jitmagic ")
    if made_by_us or any(s.knows(code) for s in _in_force):
        return None
    known = {i for s in _in_force for i in s.known}
    found = [f for f in gc.get_referrers(code) if is_a(f, Function) and f.__globals__ is frame.f_globals]
    made = code.co_name in _MAKERS  # its first argument is new, and stays what the run makes of it
    given = {name: frame.f_locals[name] for name in code.co_varnames[made : code.co_argcount]}
    if not any(
        s.knows(f.f_code) for f in frames(caller) for s in _in_force
    ):  # jax tells that it has compiled, say
        _observers.update(found)
    late = [take(roots.reach(fn, kwargs=given), known) for fn in found]
    for one in late:
        one.stand_in()
    for before in _in_force:
        before.late += late
        for main in before.functions[:1]:
            _found_late.setdefault(main, weakref.WeakSet()).update(found)
    return late


def look_at_library(frame: types.FrameType) -> bool:
    """Code of a library around jax begins in a run of ours: of what its module keeps for all who call it, what the
    code names is remembered before its first line: a stack of handlers, the counts of traces. Whether there is any."""
    kept = list(_kept_for_all(frame.f_code, frame.f_globals))
    for before in _in_force:
        for value in kept:
            if not before.holds(value):
                before.remember(value)
    return bool(kept)


def _kept_for_all(code: types.CodeType, names: dict[str, Any]) -> Iterator[Any]:
    found: list[Any] = [names.get(name) for name in code.co_names]
    package = str(names.get("__name__", "")).partition(".")[0]
    for module in [v for v in found if is_a(v, types.ModuleType) and _root_of(v) == package]:
        found += [vars(module).get(name) for name in code.co_names]
    environments = [shared for _, shared in adapters.environments()]
    found += [value.settings for value in found if any(value is shared for shared in environments)]
    for value in found:
        if is_a(value, _SHARED_BY_ALL) and len(value) <= _MOST_SHARED:
            yield value


def _root_of(module: types.ModuleType) -> str:
    return module.__name__.partition(".")[0]


_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_SHARED_BY_ALL = (list, dict, set, collections.deque, *_WEAK)
_OF_CODE = (type, types.ModuleType, *values.FUNCTIONS)
_MOST_SHARED, _LEVELS_SHARED = 1000, 6
_OF_LIBRARY = "<kept by a library>"


def frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """A frame and those around it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


_found_late: weakref.WeakKeyDictionary[Function, weakref.WeakSet[Function]] = weakref.WeakKeyDictionary()
"""What functions were found to come to: Python 3.11 tells nothing of it where a run is timed."""
_observers: weakref.WeakSet[Function] = weakref.WeakSet()
"""Those that were called from outside of all that is looked at."""
_MAKERS = frozenset(("__init__", "__new__", "__post_init__", "__setstate__"))
_SEARCHED = ("jitmagic.checking.", "jitmagic.measure.")
"""What is called from there was searched."""
_WATCHED = "jitmagic.checking.watched"
"""Calls what the user has called."""


def _made_of(fn: types.FunctionType) -> tuple[Any, ...]:
    return fn.__code__, fn.__defaults__, fn.__kwdefaults__, fn.__doc__, fn.__name__, fn.__qualname__


def _same_parts(now: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    return all(map(operator.is_, now, old))


def _make_of(fn: types.FunctionType, old: tuple[Any, ...]) -> None:
    fn.__code__, fn.__defaults__, fn.__kwdefaults__, fn.__doc__, fn.__name__, fn.__qualname__ = old


def _named_so(name: str, watched: object, value: object) -> None:
    object.__setattr__(watched, name, value)


def _field(field: Any, value: object) -> object:
    return field.__get__(value, type(value))


def _same_field(a: object, b: object) -> bool:
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(map(_same_field, a, b))  # type: ignore[arg-type]
    return a is b or (type(a) is type(b) and type(a) in values.SCALARS and (a == b or a != a))


def _is_traced(key: object, value: object) -> bool:
    return contains_tracer(value)


def first_write(path: str, functions: Iterable[Function]) -> Where | None:
    """The statement that probably made a change; where none is seen to, the first read."""
    functions = tuple(functions)
    return written_at(path, functions) or _first(path, functions, reads_of)


def written_at(path: str, functions: Iterable[Function]) -> Where | None:
    """The best static write, else a call made for what it does; of a helper in another file, the place in the cell
    that leads there."""
    functions = tuple(functions)
    return _first(path, functions, writes_of, handed_to)


def _first(
    path: str, functions: tuple[Function, ...], *kinds: Callable[..., tuple[Where, ...]]
) -> Where | None:
    for places in kinds:
        try:
            found = seen_from_cell(path, places(path, functions), functions)
        except Exception:
            continue
        if found:
            return found[0]
    return None


class _Raised(Entry):
    """Where an exception of the user's was raised, and while which others: one that is raised again gains the frames
    of that, with all that they know."""

    def __init__(self, error: BaseException, path: str) -> None:
        self.path, self.error = path, error
        self.old = [vars(BaseException)[name].__get__(error) for name in _OF_EXCEPTIONS]

    def restore(self, only: Only) -> None:
        if not only and not _is_handled(self.error):
            for name, old in zip(_OF_EXCEPTIONS, self.old, strict=True):
                vars(BaseException)[name].__set__(self.error, old)


def _is_handled(error: BaseException) -> bool:
    """It is on its way: its frames are those of now."""
    found = sys.exc_info()[1]
    for _ in range(_LAST):
        if found is None or found is error:
            break
        found = found.__context__
    return found is error


_OF_EXCEPTIONS = ("__traceback__", "__cause__", "__context__", "__suppress_context__")


class _Subclasses(Entry):
    """What a run of ours derives from a class of the user's holds itself, and is among its `__subclasses__()` until
    Python looks for such circles."""

    def __init__(self, cls: type) -> None:
        self.path, self.cls, self.old = cls.__name__, cls, len(type.__subclasses__(cls))

    def restore(self, only: Only) -> None:
        if not only and len(type.__subclasses__(self.cls)) > self.old and looks_for_garbage():
            gc.collect()


class _Unimported(Entry):
    """A module that a function is the first to import: what it writes there then. The module itself is put back with
    all that a run of ours imports."""

    def __init__(self, path: str, fn: Function) -> None:
        self.path, self.fn = path, fn

    def changes(self) -> Iterator[Change]:
        module = Place(self.path, "global", "global", self.path, holder=sys.modules)
        if not values.is_user_module(module.look()):
            return
        for steps, uses in facts_of(self.fn).imported[self.path].items():
            written = next((u for u in uses if u.action != "read"), None)
            if steps and written is not None:
                at = functools.reduce(lambda at, step: at.below(step.kind, step.key), steps, module)
                yield (
                    at.path,
                    "attribute",
                    "bound" if written.action == "write" else "changed",
                    MISSING,
                    at.look(),
                )


def _of_modules(functions: Iterable[Function]) -> Iterator[tuple[Place, object]]:
    """The user's own modules that these functions name, and of other modules what they write there."""
    found: dict[int, tuple[Place, object]] = {}
    for fn in functions:
        codes = tuple(values.codes_in(fn.__code__))
        imported = set().union(*map(_imported, codes))
        names = dict.fromkeys(n for code in codes for n in code.co_names)
        if not _ANY_MODULE.isdisjoint(
            [*names, *(c for code in codes for c in code.co_consts if is_a(c, str))]
        ):
            reached = [n for n, m in list(sys.modules.items()) if values.is_user_module(m)]
            imported.update(reached)
            names |= dict.fromkeys(reached)
        for name in names:
            holder = fn.__globals__ if name in fn.__globals__ and name not in imported else sys.modules
            module = holder.get(name)
            if not is_a(module, types.ModuleType):
                continue
            place = Place(name, "global", "global", name, holder=holder)
            if values.is_user_module(module):
                found.setdefault(id(module), (place, module))
                own = [(k, v) for k, v in vars(module).items() if not is_special(k) and _is_data(v)]
                found |= {id(v): (place.below("attribute", k), v) for k, v in own if holder is sys.modules}
            facts = facts_of(fn)
            for steps, uses in (
                (facts.imported if name in facts.imported else facts.free).get(name, {}).items()
            ):
                if all(u.action == "read" for u in uses):
                    continue
                at = place
                for step in (*steps, None):
                    value = at.look()
                    found.setdefault(id(value), (at, value))
                    if step is None or not is_a(value, types.ModuleType | type):
                        break
                    at = at.below("attribute", step.key)
                    if is_a(value, type) and not _is_data(at.look()):
                        break
    yield from found.values()


_CLOSING = frozenset("close detach release __exit__ BEFORE_WITH LOAD_SPECIAL".split())
"""Names of what closes, and instructions of a `with`, which may."""

_ANY_MODULE = frozenset(("modules", "import_module"))
"""Names with which a function reaches modules that it does not name: `sys.modules[name]`."""


def _imported(code: types.CodeType) -> set[str]:
    """The modules that a function imports itself."""
    if dis.opmap["IMPORT_NAME"] not in code.co_code[::2]:
        return set()
    return {i.argval for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME"}


def _is_data(value: object) -> bool:
    if is_a(value, functools._lru_cache_wrapper) or (is_a(value, type) and values.is_user_class(value)):
        return True
    if is_a(value, staticmethod | classmethod | functools.partialmethod | property):
        return any(is_a(part, functools._lru_cache_wrapper) for part in values.referents(value))
    cls = type(value)
    return not callable(value) and (not hasattr(cls, "__get__") or values.is_user_class(cls))


_HOLDERS = (
    weakref.ref,
    memoryview,
    types.MappingProxyType,
    Function,
    slice,
    staticmethod,
    classmethod,
    functools.partialmethod,
    property,
)
"""What holds other things, and has no path to them."""
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
_PLAIN = frozenset((dict, list, tuple, set))
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque, types.MethodType, functools.partial)
_SHUT = frozenset("jitmagic IPython ipykernel traitlets jax jaxlib numpy zmq typing types re enum".split())
"""Whose objects are no state of the user's."""
_KNOWN = _SHUT | HARMLESS | frozenset(sys.stdlib_module_names) | {""}
_LASTING = _SHUT | {"builtins", "operator", "_operator", "_struct"}


def _is_users(place: Place) -> bool:
    """A name, a plain container or an object of the user's holds it, and no object of a library."""
    if place.key == "held":
        return False
    with contextlib.suppress(PathError):
        holder = place.holder()
        of_python = is_a(holder, (*_CONTAINERS, types.CellType, types.ModuleType, type, *values.FUNCTIONS))
        return of_python or values.is_user_class(type(holder))
    return False


def _is_more_than(value: Any, room: int) -> bool:
    """A container of more things, some of which can be changed."""
    if not is_a(value, raw.CONTAINERS) or raw.length(value) <= room:
        return False
    inside = values.whole(lambda: raw.inside(value))
    return not set(map(type, inside)) <= set(values.SCALARS) and not all(map(_is_atom, inside))


def _members(value: Any) -> Iterator[object]:
    """The keys of a dict, what is in a set, that may be changed; asked as a user's own class can't."""
    kind = next(k for k in (dict, set, frozenset) if is_a(value, k))
    found: list[object] = values.whole(lambda: list(kind.__iter__(value)))
    few_kinds = set(map(type, found)) <= set(values.SCALARS)
    return iter(()) if few_kinds else (v for v in found if not _is_atom(v))


def _is_atom(value: Any) -> bool:
    if is_a(value, np.ndarray):
        return False
    if is_a(
        value, Function
    ):  # one of Python's own may keep something for the user's, as `singledispatch` does
        return not value.__closure__ or not values.is_of_python(value.__code__.co_filename)
    if type(value) is tuple and len(value) < 20:
        return all(type(v) in values.SCALARS for v in value)
    if is_a(value, type):
        return not values.is_user_class(value)
    atoms = (types.ModuleType, types.CodeType, types.CellType, *values.FUNCTIONS)
    return value is MISSING or values.is_leaf(value) or is_a(value, atoms)


def _root(cls: type) -> str:
    return values.module_of(cls).partition(".")[0]


def _is_foreign(cls: type) -> bool:
    """Of a library of which nothing is known: to change an object of its may change more."""
    return _root(cls).lstrip("_") not in _KNOWN and not values.is_user_class(cls)


def _looking(value: object) -> frozenset[str] | None:
    """Methods of an object that leave it as it is; None where those of the user's and of arrays tell themselves."""
    if is_a(value, np.ndarray) or values.is_user_class(type(value)):
        return None
    return _LOOKING | {"get"} if is_a(value, dict) else _LOOKING


_LOOKING = frozenset(
    """__contains__ __len__ cancelled copy count difference done empty exception full index intersection is_alive
    is_set isdisjoint issubset issuperset items join keys locked qsize ready result running successful union values
    wait""".split()
)


def _is_file(array: np.ndarray) -> bool:
    """What is written into it is written into a file, or is seen by other processes."""
    holder: Any = array
    while is_a(holder, np.ndarray) and holder.base is not None:
        holder = holder.base
    while is_a(holder, memoryview):
        holder = holder.obj
    return is_a(holder, mmap.mmap) or is_a(holder, np.memmap)


_IN_FILE = "an array that is too large, or a file"


def _is_open(value: object) -> bool:
    """An object whose attributes are all there is of it."""
    if values.own_dict(value) is None and not values.slots(type(value)):
        return False
    root = _root(type(value))
    return (
        values.is_walkable(value)
        or root in ("numpy", "pandas")
        or (root in sys.stdlib_module_names and root not in _SHUT)
    )


def _children(value: object) -> Iterator[values.Child]:
    yield from values.children(value)
    if not values.is_walkable(value) and _is_open(value):
        yield from (("attribute", k, v) for k, v in values.raw_attributes(value).items())


_lasting: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _is_lasting(cls: type) -> bool:
    """Its objects never change: they are compared by value, or are parts of a library that keep no state."""
    if cls not in _lasting:
        hashed = cls.__hash__ not in (None, object.__hash__)
        _lasting[cls] = hashed or _root(cls) in _LASTING
    return _lasting[cls]


def _stands_in(value: object) -> bool:
    """A run of ours gets one of its own, and has to find that wherever it looks."""
    return is_a(value, functools._lru_cache_wrapper) or iterators.is_iterator(value)


def _is_rebindable(place: Place, value: object) -> bool:
    """Something else can be put at the place, where the function then finds it."""
    if place.look() is not value:
        return False
    if place.parent is None:
        return place.kind == "closure" or "__builtins__" in place.holder()
    return not is_a(place.holder(), tuple)


def _guarded(changes: Callable[[], Iterator[Change]]) -> list[Change]:
    try:
        return list(changes())
    except (Exception, PathError):
        return []

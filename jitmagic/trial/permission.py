"""Which calls a run that nobody asked for may make: those alone that are known to leave nothing behind.

While such a run goes on, each call that the user's own code makes is looked at before it is made
(`sys.monitoring`; `sys.setprofile` on Python 3.11). The user's own runs are not listened to.
"""

from __future__ import annotations

import contextlib
import dis
import fnmatch
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence

from jitmagic.listeners import free_tool
from jitmagic.state import outside, snapshot, values, wrappers
from jitmagic.tracing.libraries import HARMLESS, LIBRARIES

_NAMES = frozenset(
    """IPython.core.display.display IPython.core.display_functions.display
    IPython.core.interactiveshell._modified_open importlib._bootstrap
    os.DirEntry os.ScandirIterator os.access os.chdir os.cpu_count os.environ os._Environ os.fspath os.getcwd
    os.getenv os.getpid os.getppid os.listdir os.lstat os.putenv os.scandir os.stat os.stat_result os.unsetenv
    os.urandom os.walk sys.exc_info sys.exit sys.getrecursionlimit sys.getrefcount sys.getsizeof
    traitlets.traitlets.TraitType.__get__ sys.intern sys.is_finalizing sys.setrecursionlimit""".split()
)
"""Functions and classes of packages that do more than that, which make values or change what is put back."""
_NEVER = frozenset(
    """__import__ breakpoint checkpoints clear_caches distributed dump eval exec exit fromfile help input
    install_import_hook memmap profiler quit reset_option save_checkpoint savetxt savez savez_compressed
    serialization set_complex set_environment set_float set_host_device_count set_int set_mesh set_option
    set_platform set_start_method spawn start_server start_trace stop_trace to_clipboard to_feather to_hdf to_orc
    to_parquet to_sql tofile trace_context
    calendar.setfirstweekday codecs.register codecs.register_error codecs.unregister copyreg.add_extension
    copyreg.constructor copyreg.pickle copyreg.remove_extension csv.field_size_limit csv.register_dialect
    csv.unregister_dialect gc.freeze gc.get_objects gc.get_referrers gc.set_debug gc.set_threshold
    inspect.currentframe inspect.getouterframes inspect.stack logging.addLevelName logging.basicConfig
    logging.captureWarnings logging.disable logging.setLogRecordFactory logging.setLoggerClass mimetypes.add_type
    numpy.save numpy.setbufsize numpy.seterrcall thread.interrupt_main thread.stack_size threading.setprofile
    threading.settrace time.tzset tqdm.std.tqdm.pandas weakref.finalize""".split()
)
"""Names, of whatever module or whole, that leave something behind, wait, or cannot be followed."""
_OF_FILES = outside.READING | {"close", "closed", "open", "__enter__", "__exit__", "__iter__", "__next__"}
Refuse = Callable[[str], None]


class _Allowed:
    """What the user allows besides: patterns of full names, for the run that is under way."""

    patterns: tuple[str, ...] = ()


_allowed = _Allowed()


@contextlib.contextmanager
def allowing(patterns: Sequence[str]) -> Iterator[None]:
    """While this holds, calls and objects whose full names (`mylib.send`) fit a pattern may be had again."""
    before, _allowed.patterns = _allowed.patterns, tuple(patterns)
    try:
        yield
    finally:
        _allowed.patterns = before


def is_allowed(name: str = "") -> bool:
    """The user allows this name; without one: everything."""
    return any(p == "*" or name and fnmatch.fnmatchcase(name, p) for p in _allowed.patterns)


def obstacle(called: object, first: object = None) -> str:
    """The full name of what is called where that may not be called unasked, '' where it may; `first` is its first
    argument."""
    if values.is_a(called, types.MethodType):
        called, first = called.__func__, called.__self__  # type: ignore[attr-defined]
        if outside.is_standard(first):
            return ""
    if values.is_a(called, functools.partial):
        return obstacle(called.func, *called.args[:1])  # type: ignore[attr-defined]
    if values.is_a(called, types.FunctionType):
        return _of_code(called.__code__, called.__globals__, first)  # type: ignore[attr-defined]
    if values.is_a(called, type):
        return next(filter(None, map(_of_class, values.mro(called))), "")  # type: ignore[arg-type]
    if not values.is_a(called, (*values.FUNCTIONS, types.WrapperDescriptorType, types.MethodWrapperType)):
        return _of_instance(called)
    holder = getattr(called, "__objclass__", None) or getattr(called, "__self__", None)
    if holder is None or values.is_a(holder, types.ModuleType):
        return _judged(f"{getattr(called, '__module__', None) or 'builtins'}.{called.__qualname__}")  # type: ignore[attr-defined]
    own = getattr(called, "__self__", first)
    cls = holder if values.is_a(holder, type) else type(holder)
    name: str = called.__name__  # type: ignore[attr-defined]
    theirs = (c for c in values.mro(cls) if not values.is_user_class(c))
    cls = next((c for c in theirs if name in values.class_dict(c)), cls)
    fine = outside.is_standard(own) or outside.is_in_memory(own)
    return "" if fine else _judged(f"{values.module_of(cls)}.{cls.__qualname__}.{name}")


def decorator(called: object) -> str:
    """The full name of what a library has put around a function of the user's and may not be called unasked; '' where
    there is nothing of the kind."""
    for _ in range(_LAYERS):
        plain = values.is_a(called, types.FunctionType | types.MethodType | functools.partial)
        if plain or not values.is_user_class(type(called)):
            if called is not None and (name := obstacle(called)):
                return name
        called = wrappers.inner(called)
    return ""


def _of_code(code: types.CodeType, names: dict[str, object], first: object = None) -> str:
    module = str(names.get("__name__", ""))
    if module.startswith("namedtuple_"):  # what `collections` makes for a named tuple: its `__new__`
        return ""
    if _is_users(code, names) or code.co_filename.startswith(values.GENERATED):
        return ""
    name = f"{module}.{code.co_qualname.removesuffix('.__init__')}"  # as the class is called
    return name if _registers(code, first) and not is_allowed(name) else _judged(name)


def _unknown(code: types.CodeType, names: dict[str, object]) -> str:
    """The full name of a function of a library of which nothing is known; '' for others, for what a module does as it
    is imported, and for what runs whenever Python comes to it."""
    module = str(names.get("__name__", ""))
    made = module.startswith("namedtuple_") or code.co_filename.startswith(values.GENERATED)
    if made or code.co_name in ("<module>", "__del__") or _is_library(module) or module in ("", "__main__"):
        return ""
    return _judged(f"{module}.{code.co_qualname}")


def _registers(code: types.CodeType, first: object) -> bool:
    """It keeps what it is given for good: other than for a class that the run has made, that stays."""
    if not code.co_name.startswith("register") or "." in code.co_qualname:
        return False
    return not values.is_a(first, type) or snapshot.was_there(first)


def _is_users(code: types.CodeType, names: dict[str, object]) -> bool:
    """The code is the user's, and not what a library has made for itself: the `__init__` of a dataclass of its own, the
    `__new__` of a named tuple."""
    if code.co_filename != "<string>":
        return values.is_user_file(code.co_filename)
    name = str(names.get("__name__", ""))
    if name == "__main__" or name.startswith("namedtuple_"):
        return name == "__main__"
    return name not in sys.modules or values.is_user_module(sys.modules[name])


def _of_class(cls: type) -> str:
    name = f"{values.module_of(cls)}.{cls.__qualname__}"
    if not values.is_user_class(cls):
        return _judged(name)
    return _judged(f"{name}.__del__") if "__del__" in values.class_dict(cls) else ""


def _of_instance(value: object) -> str:
    """Functions of libraries written in C are objects with names of their own; of others, the class that knows how it
    is called."""
    if not values.is_user_class(type(value)):
        module, name = (str(getattr(value, n, "")) for n in ("__module__", "__qualname__"))
        if name and _is_library(module):
            return _judged(f"{module}.{name}")
    return _of_class(next((c for c in values.mro(type(value)) if "__call__" in values.class_dict(c)), object))


def _judged(name: str) -> str:
    name = name.replace("posix.", "os.", 1) if name.startswith("posix.") else name
    return "" if _is_harmless(name) or is_allowed(name) else name


def _is_library(module: str) -> bool:
    return module.partition(".")[0].lstrip("_") in HARMLESS


@functools.cache
def _is_harmless(name: str) -> bool:
    parts = name.split(".")
    if not _NEVER.isdisjoint((name, name.lstrip("_"), *parts)):  # `_csv.register_dialect`
        return False
    if parts[0] == "_io":
        return parts[-1] in _OF_FILES or len(parts) == 2 and parts[1] in ("StringIO", "BytesIO")
    if _is_library(name):
        return True
    return any(".".join(parts[:n]) in _NAMES for n in (2, 3, 4))


def changes_others(frame: types.FrameType) -> bool:
    """It runs a module that is imported for the first time, and does more there than to bind names: sets attributes
    or items, or calls something whose result it does not keep."""
    if (
        not getattr(frame.f_globals.get("__spec__"), "_initializing", False)
        or frame.f_code.co_name != "<module>"
    ):
        return False
    steps = [op for op in dis.get_instructions(frame.f_code) if op.opname not in ("CACHE", "NOP", "PRECALL")]
    for first, second, third in zip(steps, steps[1:], steps[2:], strict=False):
        if third.opname in ("STORE_ATTR", "DELETE_ATTR", "DELETE_SUBSCR"):
            return True
        if third.opname == "STORE_SUBSCR" and first.argval != "__annotations__":
            return True
        if second.opname.startswith("CALL") and third.opname == "POP_TOP":
            return True
    return False


class Watch:
    """Looks at each call that the user's code makes, in every thread, and has `refuse` told of those that may not be
    made; `refuse` raises where the run is one of ours. `begins` is told of the user's code that begins, and says
    whether to tell it again. Functions among the `doors` are refused whoever calls them. A run that is `timed` was
    looked at before: only calls at new places are looked at."""

    def __init__(
        self,
        refuse: Refuse,
        begins: Callable[[types.FrameType], bool],
        doors: Sequence[types.FunctionType] = (),
        *,
        timed: bool = False,
    ) -> None:
        self.refuse, self.begins, self.most = refuse, begins, 1 if timed else _MOST
        self.doors = {id(f.__code__): f"{f.__module__}.{f.__qualname__}" for f in doors}
        """Their full names, by the `id` of their code."""
        self.files_of_doors = {f.__code__.co_filename for f in doors}
        self.files = _of_libraries - self.files_of_doors
        """Files of code which nothing is asked about. Not by the `id` of code, for Python audits each `id`."""
        self.tool: int | None = None
        self.codes: dict[int, tuple[types.CodeType, bool]] = {}
        """Code that has run, by its `id`, and whether it is the user's."""
        self.others: set[int] = set()
        """The `id` of code in it that is not."""
        self.keeping: set[int] = set()
        """Of that, code which the next run of ours has to be told of again."""
        self.unknown: dict[int, str] = {}
        """Of that, full names of functions of which nothing is known."""
        self.begun: set[int] = set()
        """The `id` of code of theirs that `begins` need not be told of again."""
        self.fine: dict[int, object] = {}
        """What may be called whatever its arguments are, by its `id`."""
        self.times: dict[tuple[int, int], tuple[object, int]] = {}
        """What was called last at a place, and how often in turn."""
        self.familiar = 0
        """Calls in turn of what was called before."""
        self.before: Callable[..., object] | None = None
        self.profiles = False

    def start(self) -> None:
        """Begin to look."""
        if sys.version_info >= (3, 12) and (tool := free_tool()) is not None:
            self.tool, events = tool, sys.monitoring.events
            sys.monitoring.register_callback(tool, events.PY_START, self._started)
            sys.monitoring.register_callback(tool, events.CALL, self._called)
            sys.monitoring.set_events(tool, events.PY_START)
        elif self.most > 1:
            self.before, self.profiles = sys.getprofile(), True
            sys.setprofile(self._profile)

    def join(self) -> None:
        """Look at this thread too, which a run of ours has started: Python 3.11 tells of each thread by itself."""
        if self.profiles:
            sys.setprofile(self._profile)

    def stop(self) -> None:
        """Leave everything as it was."""
        if sys.version_info >= (3, 12) and self.tool is not None:
            sys.monitoring.set_events(self.tool, 0)
            for code, users in self.codes.values():
                if users:
                    sys.monitoring.set_local_events(self.tool, code, 0)
            for event in (sys.monitoring.events.PY_START, sys.monitoring.events.CALL):
                sys.monitoring.register_callback(self.tool, event, None)
            sys.monitoring.free_tool_id(self.tool)
            self.tool = None
        elif self.profiles:
            self.profiles = False
            sys.setprofile(self.before)
        self.forget()

    def forget(self) -> None:
        """Let go of what was called: it may be the run's own, and hold what ends with it, or traced values."""
        self.fine.clear()
        self.times.clear()

    def _is_users(self, frame: types.FrameType) -> bool:
        code = frame.f_code
        if code.co_filename in self.files:
            return False
        known = self.codes.get(id(code))
        if known is None:
            known = self.codes[id(code)] = code, _is_users(code, frame.f_globals)
            if not known[1]:
                self.others.add(id(code))
                if name := _unknown(code, frame.f_globals):
                    self.unknown[id(code)] = name
                library = str(frame.f_globals.get("__name__")).partition(".")[0]
                if library in _KEEPING:
                    if snapshot.look_at_library(frame):
                        self.keeping.add(id(code))
                elif library in HARMLESS and values.is_library_file(code.co_filename):
                    _of_libraries.add(code.co_filename)
                    self.files = _of_libraries - self.files_of_doors
        return known[1]

    def _is_for_user(self, frame: types.FrameType) -> bool:
        """The user's code has it run, by an operator, an attribute, a `with` or through Python's library; what others
        come to call is their affair."""
        caller = frame.f_back
        while caller is not None and not self._is_users(caller):
            library = str(caller.f_globals.get("__name__", "")).partition(".")[0]
            if library not in _PASSING:
                return False
            caller = caller.f_back
        return caller is not None

    def _look(self, called: object, first: object = None) -> None:
        asked = called
        if type(called) is types.BuiltinMethodType:  # one for each object: what they have in common is known
            first = called.__self__
            method = getattr(type(first), called.__name__, None)
            asked = called = method if type(method) is types.MethodDescriptorType else called
        elif type(called) is types.MethodType:  # and so is this
            called = called.__func__
        if type(first) is types.FunctionType and self.fine.get(id(first)) is not first:  # it is handed on
            if name := decorator(first):
                self.refuse(name)
            self.fine[id(first)] = first
        if self.fine.get(id(called)) is called:
            self.familiar += 1
            return
        self.familiar = 0
        if not obstacle(called):
            self.fine[id(called)] = called
        elif name := obstacle(asked, first):
            self.refuse(name)

    if sys.version_info >= (3, 12):

        def _started(self, code: types.CodeType, offset: int) -> object:
            if code.co_filename in self.files:
                return sys.monitoring.DISABLE
            if id(code) in self.doors:
                self.refuse(self.doors[id(code)])
                return None
            frame = sys._getframe(1)
            if self._is_users(frame):
                sys.monitoring.set_local_events(self.tool or 0, code, sys.monitoring.events.CALL)
                if self.begins(frame):
                    return None
            elif id(code) in self.unknown:
                if self._is_for_user(frame):
                    self.refuse(self.unknown[id(code)])
                return None
            return None if id(code) in self.keeping else sys.monitoring.DISABLE

        def _called(self, code: types.CodeType, offset: int, called: object, first: object) -> object:
            self._look(called, first)
            place = id(code), offset
            last, times = self.times.get(place, (called, 0))
            times = times + 1 if last is called else 1
            self.times[place] = called, times
            return sys.monitoring.DISABLE if times >= self.most else None

    def _profile(self, frame: types.FrameType, event: str, called: object) -> None:
        # Nearly all calls are those of libraries, and the first line of each kind is all that they cost.
        if event == "c_call":
            if frame.f_code.co_filename in self.files:
                return
            caller: types.FrameType | None = frame
        elif event == "call":
            code, caller = frame.f_code, frame.f_back
            if code.co_filename in self.files and (caller is None or caller.f_code.co_filename in self.files):
                return
            if id(code) in self.doors:
                self.refuse(self.doors[id(code)])
            if id(code) not in self.others and self._is_users(frame) and id(code) not in self.begun:
                if not self.begins(frame):
                    self.begun.add(id(code))
            elif id(code) in self.unknown and self._is_for_user(frame):
                self.refuse(self.unknown[id(code)])
        else:
            return
        if caller is None or id(caller.f_code) in self.others or not self._is_users(caller):
            return
        if self.familiar > _FAMILIAR:
            sys.setprofile(None)
        elif event == "c_call":
            self._look(called)
        elif self.fine.get(id(code)) is code:
            self.familiar += 1
        elif not _of_code(code, frame.f_globals):
            self.fine[id(code)], self.familiar = code, 0
        else:
            implied = code.co_name.startswith("__") and code.co_name not in ("__init__", "__call__")
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if not implied and (name := _of_code(code, frame.f_globals, first)):
                self.refuse(name)


_of_libraries: set[str] = set()
"""Files of libraries that change nothing for others: what was found out of them in one run holds in all."""
_KEEPING = LIBRARIES | {"tqdm"}
"""Libraries whose functions change what is put back, what they keep for all their callers included."""
_PASSING = frozenset(
    """abc bisect collections contextlib copy dataclasses enum functools heapq operator statistics string types
    typing""".split()
)
"""Parts of Python's library that call what they are given, and nothing of others' by themselves."""
_LAYERS = 20
"""Decorators of one function that are looked through."""
_MOST = 100
"""Calls of the same thing in turn at one place, after which no more are looked at there."""
_FAMILIAR = 20_000
"""Calls in turn of what was called before, after which Python 3.11 looks at no more: each costs a microsecond there."""

"""What the source of the functions reached asks of the world outside while jax traces."""

from __future__ import annotations

import ast
import collections.abc
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from jitmagic.evidence import HiddenRandom, Printed, SideEffect, TypeTest
from jitmagic.silent.code import CALLBACKS, MISSING, Code, names_in
from jitmagic.silent.known import known_names, read_values
from jitmagic.source.modules import dotted, last_name
from jitmagic.source.tree import walk
from jitmagic.state.values import codes_in, own_dict
from jitmagic.tracing.probing import suppressing
from jitmagic.tracing.sites import site_of

CLOCK = frozenset(
    "time.time time.time_ns time.perf_counter time.perf_counter_ns time.monotonic time.monotonic_ns "
    "time.process_time time.process_time_ns time.thread_time time.localtime time.gmtime time.ctime time.strftime "
    "time.clock_gettime datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow "
    "datetime.date.today".split()
)
WAITS = frozenset(("time.sleep",))
ENVIRONMENT = frozenset("os.getenv os._Environ.get os._Environ.copy os.getenvb".split())
FILES = frozenset(
    "builtins.open io.open _io.open os.listdir os.scandir os.stat os.path.exists os.path.isfile os.path.isdir "
    "os.path.getmtime os.path.getsize os.getcwd numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile "
    "numpy.memmap numpy.save numpy.savez numpy.savetxt json.load pickle.load csv.reader glob.glob "
    "jax.numpy.load".split()
)
PATH_METHODS = frozenset(
    "read_text read_bytes open exists is_file is_dir iterdir glob rglob stat write_text".split()
)
PROCESS = frozenset(
    "os.getpid os.system os.popen subprocess.run subprocess.check_output subprocess.getoutput socket.gethostname "
    "urllib.request.urlopen requests.get".split()
)
SETTINGS = frozenset(
    "numpy.seterr numpy.seterrcall numpy.setbufsize numpy.set_printoptions decimal.setcontext "
    "_decimal.setcontext warnings.simplefilter warnings.filterwarnings "
    "warnings.resetwarnings os.chdir os.putenv os.unsetenv os._Environ.update os._Environ.setdefault os._Environ.pop "
    "sys.setrecursionlimit logging.Logger.setLevel logging.disable logging.basicConfig "
    "jax._src.config.Config.update scipy.special.seterr pandas.set_option".split()
)
ASKED_SETTINGS = frozenset(
    ".ContextVar.get numpy.geterr numpy.getbufsize numpy.get_printoptions "
    "pandas.get_option decimal.getcontext _decimal.getcontext sys.getrecursionlimit "
    "matplotlib.RcParams.get".split()
)
"""What is asked there may be set anew; a method written in C names no module."""
IDS = frozenset("uuid.uuid1 uuid.uuid4 os.urandom".split())
SAMPLING = ("numpy.random.", "random.", "secrets.", "_random.")
NOT_SAMPLING = frozenset(
    "numpy.random.default_rng numpy.random.RandomState numpy.random.Generator numpy.random.PCG64 "
    "numpy.random.SeedSequence random.Random numpy.random.seed random.seed "
    "numpy.random.get_state numpy.random.set_state random.getstate random.setstate".split()
)
PRINTERS = frozenset(
    "builtins.print pprint.pprint pprint.pp sys.stdout.write IPython.core.display_functions.display".split()
)
BARS = frozenset("tqdm trange tqdm_notebook tnrange tqdm_asyncio tasrange".split())
_SHOWING = frozenset(
    """IPython.core.display.display IPython.core.display_functions.display IPython.display.display
    matplotlib.pyplot.show""".split()
)
LOG_METHODS = frozenset("debug info warning warn error critical exception log".split())


def effects(code: Code) -> Iterator[SideEffect]:
    """Questions to the clock, the environment, files, iterators and the user."""
    skipped = code.called_back
    for node in code.nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Call):
            yield from _asks(code, node)
        elif isinstance(node, ast.Subscript | ast.Compare):
            yield from _looks_into(code, node)
        elif isinstance(node, ast.For) and _is_iterator(code, node.iter):
            yield SideEffect(
                "iterator", (ast.unparse(node.iter),), code.where(node, head=True), ast.unparse(node.iter)
            )


def _asks(code: Code, call: ast.Call) -> Iterator[SideEffect]:
    name = _PLATFORM.sub(lambda m: "os.path." if m[2] == "path." else "os.", code.full_name(call.func))
    asked, where = dotted(call.func), code.where(call)
    if name in SETTINGS or not name and getattr(call.func, "attr", "") == "setLevel":  # of `getLogger(...)`
        if not _is_put_back(code, call):
            text = asked or ast.unparse(call.func)
            yield SideEffect("setting", (text,), where, text)
        return
    if not name or (name.startswith("jax.") and name not in FILES):
        return
    if name in CLOCK or name in WAITS:
        yield SideEffect("clock" if name in CLOCK else "wait", (asked, asked.split(".")[0]), where, asked)
    elif name in ENVIRONMENT:
        variable = [
            a.value for a in call.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]
        yield SideEffect("environment", (asked, *variable), where, asked)
    elif name in ASKED_SETTINGS:
        yield SideEffect("asked setting", (asked,), where, asked)
    elif name in FILES:
        outside = [n for n in _outside(code, call.args) if n != asked]
        yield SideEffect("file", (asked, *outside), where, asked)
    elif (
        name.startswith("pathlib.")
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in PATH_METHODS
    ):
        yield SideEffect("file", (dotted(call.func.value) or asked, asked), where, asked)
    elif name == "builtins.input" or asked == "input" and code.is_builtin("input"):
        yield SideEffect("input", ("input",), where, asked)
    elif name in PROCESS or name in IDS:
        yield SideEffect("process" if name in PROCESS else "id", (asked,), where, asked)
    elif name == "builtins.next" and call.args and (source := _taken_from(code, call.args[0])):
        yield SideEffect("iterator", (source,), where, f"next({source})")
    elif name.startswith(("queue.", "_queue.")) and asked.endswith((".get", ".get_nowait")):
        yield SideEffect("queue", (asked.rpartition(".")[0],), where, asked)


def _is_put_back(code: Code, call: ast.AST) -> bool:
    """It stands in a block at whose end settings are as before: `with warnings.catch_warnings():`."""
    node: ast.AST | None = call
    while node is not None:
        entered = [i.context_expr for i in node.items] if isinstance(node, ast.With) else []
        if any(isinstance(e, ast.Call) and last_name(e.func) in _PUT_BACK for e in entered):
            return True
        node = code.parent(node)
    return False


_PUT_BACK = frozenset("catch_warnings errstate printoptions option_context".split())


_PLATFORM = re.compile(r"^(posix|nt|generic)(path\.|\.)")
"""Modules that `os` and `os.path` are made of."""


def _looks_into(code: Code, node: ast.Subscript | ast.Compare) -> Iterator[SideEffect]:
    import os

    looked = node.value if isinstance(node, ast.Subscript) else node.comparators[0]
    value = code.value(looked)
    if value is not os.environ and type(value).__module__ + type(value).__name__ != "matplotlibRcParams":
        return
    text, is_set = ast.unparse(looked), not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
    if is_set:
        yield SideEffect("setting", (text,), code.where(node), text)
    else:
        asks: Literal["environment", "asked setting"] = (
            "environment" if value is os.environ else "asked setting"
        )
        yield SideEffect(asks, (text,), code.where(node), text)


def _outside(code: Code, nodes: Iterable[ast.expr]) -> list[str]:
    return [n for node in nodes for n in names_in(node) if n not in code.local]


def _taken_from(code: Code, node: ast.expr) -> str:
    """What `next` takes from, where that is not made inside the call: its path as written."""
    if isinstance(node, ast.Call) and code.full_name(node.func) == "builtins.iter" and node.args:
        return ""  # a new iterator at each call starts at its beginning
    path = dotted(node)
    root = path.split(".")[0]
    if root not in code.local:
        return path
    return path if "." in path and root in code.parameters[:1] else ""


def _is_iterator(code: Code, node: ast.expr) -> bool:
    value = code.value(node)
    return value is not MISSING and isinstance(value, collections.abc.Iterator)


def random(code: Code) -> Iterator[HiddenRandom]:
    """Draws from the generators of numpy and of Python, as functions and as objects."""
    skipped = code.called_back
    for name, call in code.calls:
        if id(call) in skipped or name in NOT_SAMPLING or not name.startswith(SAMPLING):
            continue
        asked, owner = dotted(call.func), code.value(getattr(call.func, "value", call.func))
        host = isinstance(owner, types.ModuleType) or isinstance(call.func, ast.Name)
        names = (asked, name) if host else (asked.rpartition(".")[0], asked)
        yield HiddenRandom("host" if host else "generator", names, code.where(call), asked)


def prints(
    code: Code,
    untraced: Callable[[Code], Iterable[str]],
    heard: Sequence[tuple[types.CodeType, int]] = (),
) -> Iterator[Printed]:
    """Calls that print or log, by what they call or as they were `heard` to. `untraced` tells a function's parameters
    that are no traced values."""
    skipped, own = code.called_back, set(codes_in(code.fn.__code__))
    sites = (site_of(c, instruction) for c, instruction in heard if c in own)
    printing = {site.node for site in sites if site is not None}
    for name, call in code.calls:
        if _is_bar(name) and id(call) not in skipped:
            asked = dotted(call.func)
            yield Printed(code.where(call), ast.unparse(call), names=(asked,), bar=True)
            continue
        if last_name(call.func) == "write" and dotted(call.func).endswith(("stdout.write", "stderr.write")):
            owner = code.value(call.func.value)  # type: ignore[attr-defined]
            name = "sys.stdout.write" if owner in (sys.stdout, sys.stderr) else name
        logs = name.startswith("logging.") and name.rpartition(".")[2] in LOG_METHODS
        logs = logs or name in ("warnings.warn", "_warnings.warn")
        logs = logs or name in _SHOWING or (name == "sys.stdout.write" and "stderr" in dotted(call.func))
        if id(call) in skipped or not (logs or name in PRINTERS or call in printing):
            continue
        shown = [
            *call.args,
            *(k.value for k in call.keywords if k.arg not in ("sep", "end", "file", "flush")),
        ]
        values = [n for a in shown for n in read_values(a)]
        names = [n for a in shown for n in names_in(a)]
        local = [n for n in dict.fromkeys(values) if n in code.local]
        local = [n for n in local if n not in known_names(code, untraced(code))] if local else []
        if call in printing and not local:
            local = [n for n in dict.fromkeys(names) if n in code.local]
        yield Printed(code.where(call), ast.unparse(call), tuple(local), tuple(dict.fromkeys(names)), logs)


def _is_bar(name: str) -> bool:
    return name.startswith("tqdm.") and name.rpartition(".")[2] in BARS


def callback_functions(all_codes: Sequence[Code]) -> set[types.FunctionType]:
    """User functions that are only handed to `jax.debug.callback`, `pure_callback` or `io_callback`."""
    handed: set[types.FunctionType] = set()
    called: set[object] = set()
    for code in all_codes:
        for _, node in code.calls:
            target = code.value(node.func)
            if isinstance(target, types.FunctionType):
                called.add(target)
            if node.args and last_name(node.func) in CALLBACKS and dotted(node.func):
                given = code.value(node.args[0])
                if isinstance(given, types.FunctionType):
                    handed.add(given)
    return handed - called


# --- tests of a type, and errors taken for an answer


def type_tests(
    code: Code, statics: Iterable[str] = (), answered: Sequence[tuple[types.CodeType, int]] = ()
) -> Iterator[TypeTest]:
    """Tests that hold for an array or a number and not for a tracer, or the other way round; a `try` that was seen to
    have `answered` an error of jax's with its handler, by the line in it."""
    left_out, own = set(statics), set(codes_in(code.fn.__code__))
    lines = [line for c, line in answered if c in own]
    for node in code.nodes:
        if isinstance(node, ast.Call | ast.Compare):
            if name := next((n for n in _tested(code, node) if n and n not in left_out), ""):
                yield TypeTest(name, code.where(_whole(code, node)))
        elif isinstance(node, ast.Match) and (name := dotted(node.subject)) not in left_out:
            patterns = (c.pattern for c in node.cases if _matches_concrete(code, c.pattern))
            yield from (TypeTest(name, code.where(p, head=True)) for p in patterns)
        elif isinstance(node, ast.Try | ast.With) and (handler := _swallowing(node)):
            names = [n for part in node.body for n in names_in(part) if n in code.parameters]
            met = [s for s in node.body for line in lines if s.lineno <= line <= (s.end_lineno or 0)]
            asked = code.where(met[0] if met else _asking(node), head=True).source
            yield TypeTest(
                names[0] if names else "",
                code.where(handler, head=True),
                swallows=True,
                asked=asked,
                met=bool(met),
            )


def _tested(code: Code, node: ast.Call | ast.Compare) -> Iterator[str]:
    """Names whose type a call or a comparison asks for, some of them empty."""
    if isinstance(node, ast.Compare):
        yield _type_compared(code, node) or _identity_compared(code, node)
    else:
        yield _isinstance_of(code, node)
        yield _dispatched_by(code, node)


def _matches_concrete(code: Code, pattern: ast.pattern) -> bool:
    """`float() | int()`, which no tracer is."""
    return _are_concrete(code, [n.cls for n in walk(pattern) if isinstance(n, ast.MatchClass)])


def _dispatched_by(code: Code, call: ast.Call) -> str:
    """The name in `table[type(x)]`, `table.get(type(x))` and in calls of `functools.singledispatch` functions."""
    if not call.args:
        return ""
    by_key = code.full_name(call.func) == "builtins.type" and _looks_up(code.parent(call), call)
    if not by_key and "registry" not in (own_dict(code.value(call.func)) or ()):
        return ""
    return _first_name(call.args[0])


def _first_name(node: ast.expr) -> str:
    """The path that an expression is, else the first name in it."""
    return dotted(node) or next(iter(names_in(node)), "")


def _looks_up(around: ast.AST | None, key: ast.expr) -> bool:
    """The node is `table[key]` or `table.get(key, ...)`."""
    if isinstance(around, ast.Subscript):
        return around.slice is key
    return (
        isinstance(around, ast.Call) and isinstance(around.func, ast.Attribute) and around.func.attr == "get"
    )


_CONCRETE = ("int", "float", "bool", "complex", "ndarray", "ArrayImpl", "generic", "number", "integer", "floating",
             "Number", "Real", "Integral", "Complex", "Rational")  # fmt: skip


def _isinstance_of(code: Code, call: ast.Call) -> str:
    """The name tested by `isinstance(x, float)`, `np.isscalar(x)`, `hasattr(x, '__array__')`, else ''."""
    if code.full_name(call.func) == "numpy.isscalar" and call.args:
        return _first_name(call.args[0])
    if not (
        isinstance(call.func, ast.Name) and call.args and code.full_name(call.func).startswith("builtins.")
    ):
        return ""
    name = _first_name(call.args[0])
    if call.func.id == "isinstance" and len(call.args) == 2:
        kinds = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
        if _are_concrete(code, kinds):
            return name
    if (
        call.func.id in ("hasattr", "getattr")
        and len(call.args) > 1
        and isinstance(call.args[1], ast.Constant)
    ):
        return name if call.args[1].value in _MISSING_ON_TRACERS else ""
    return ""


_MISSING_ON_TRACERS = ("__array_interface__", "__float__", "tobytes", "devices", "__buffer__",
                       "unsafe_buffer_pointer",
                       "data", "flags", "strides", "base", "addressable_data", "is_fully_addressable")  # fmt: skip


def _are_concrete(code: Code, kinds: Sequence[ast.expr]) -> bool:
    """One of the classes is none that a tracer could be, and none is jax's own."""
    values = [code.value(k) for k in kinds]
    names = [
        v.__name__ if isinstance(v, type) else ast.unparse(k) for v, k in zip(values, kinds, strict=True)
    ]
    concrete = any(name.rpartition(".")[2] in _CONCRETE for name in names)
    return concrete and not any(map(_is_jax_array, values))


def _is_jax_array(value: object) -> bool:
    return (
        isinstance(value, type)
        and value.__name__.rpartition(".")[2] in ("Array", "Tracer")  # jaxlib gives its class a dotted name
        and value.__module__.startswith("jax")
    )


def _type_compared(code: Code, node: ast.Compare) -> str:
    """The name in `type(x) is float`, `type(x) == T`, `type(x) in (…)`, `x.__class__ is T`."""
    for side in (node.left, *node.comparators):
        if (
            isinstance(side, ast.Call)
            and code.full_name(side.func) == "builtins.type"
            and len(side.args) == 1
        ):
            return dotted(side.args[0])
        if isinstance(side, ast.Attribute) and side.attr == "__class__":
            return dotted(side.value)
        if isinstance(side, ast.Attribute) and side.attr == "__name__" and "type(" in ast.unparse(side):
            return next(iter(names_in(side.value)), "")
    return ""


def _identity_compared(code: Code, node: ast.Compare) -> str:
    """The parameter in `x is True`, and in `x is y` with another one or with an array from outside: each argument
    has its own tracer."""
    if not any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return ""
    sides = [node.left, *node.comparators]
    given = [s.id for s in sides if isinstance(s, ast.Name) and s.id in code.parameters]
    others = [v for v in map(code.value, sides) if hasattr(v, "dtype") and not isinstance(v, type)]
    others += [s for s in sides if isinstance(s, ast.Constant) and isinstance(s.value, int)]
    return given[0] if len(given) > 1 or given and others else ""


def _whole(code: Code, node: ast.AST) -> ast.AST:
    """The test that a call stands in."""
    parent = code.parent(node)
    while isinstance(parent, ast.BoolOp | ast.UnaryOp | ast.Compare):
        node, parent = parent, code.parent(parent)
    return node


def _asking(node: ast.Try | ast.With) -> ast.AST:
    """The first statement of the `try` that may ask a tracer for its value."""
    asks = (ast.If, ast.While, ast.Assert, ast.Call, ast.IfExp, ast.Subscript, ast.BoolOp, ast.JoinedStr)
    found = (s for s in node.body if any(isinstance(n, asks) for n in walk(s)))
    return next(found, node.body[0])


_TAKEN = frozenset("Exception BaseException TypeError ValueError IndexError NotImplementedError".split())


def _swallowing(node: ast.Try | ast.With) -> ast.AST | None:
    """The handler that takes jax's errors (TypeErrors, IndexErrors, ValueErrors all) and goes on, or `suppress`."""
    if isinstance(node, ast.With):
        calls = suppressing(node)
        return next((c for c in calls if {dotted(k).rpartition(".")[2] for k in c.args} & _TAKEN), None)
    for handler in node.handlers:
        kind = handler.type
        kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind] if kind else []
        caught = {dotted(k).rpartition(".")[2] for k in kinds}
        takes = (
            not kinds or bool(caught & _TAKEN) or any("Tracer" in c or "Concretization" in c for c in caught)
        )
        raises = any(isinstance(n, ast.Raise) for part in handler.body for n in walk(part))
        if takes and not raises:
            return handler
    return None

"""Where an exception of a trace comes from, and what the code there says about it."""

from __future__ import annotations

import ast
import dis
import linecache
import os
import re
import types
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence

import jax

from jitmagic.evidence import Op, Problem, Where, root
from jitmagic.source.modules import dotted
from jitmagic.source.tree import walk
from jitmagic.tracing import compat, messages
from jitmagic.tracing.carries import changed_in_body
from jitmagic.tracing.expressions import (
    called_object,
    callee_of,
    construct_of,
    forms_in,
    holds_tracer,
    look_up,
    names_in,
)  # fmt: skip
from jitmagic.tracing.leaks import leak_site, method_store
from jitmagic.tracing.libraries import is_library_file
from jitmagic.tracing.sites import Site, site_of

_BINDING: frozenset[Op] = frozenset(("invalid-type", "unhashable", "static-spec", "aux-data", "donated"))
"""What goes wrong before the function's own code runs."""

_TOP_LEVEL = frozenset(("jit", "pjit", "make_jaxpr", "eval_shape"))
"""Transformations that a check begins with; what others name (`scan`, `while_cond`) are inner parameters."""


def is_user_file(filename: str) -> bool:
    """Whether code of this file name is the user's: a cell, a script, a module outside the installed ones.

    Names in angle brackets count where linecache has their text (cells, `exec` with a registered name).
    """
    if filename.startswith("<frozen"):
        return False
    if filename.startswith("<"):
        return "ipython-input" in filename or bool(
            linecache.cache.get(filename) or linecache.getlines(filename)
        )
    # Compiled extensions give frames of sources that are not there (`bit_generator.pyx`).
    return not is_library_file(filename) and (os.path.exists(filename) or bool(linecache.getlines(filename)))


def users_above(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """The frames of the user's own code from this one outwards."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def frames_of(exc: BaseException) -> list[tuple[types.FrameType, int]]:
    """(frame, instruction offset) of the traceback, outermost first."""
    frames: list[tuple[types.FrameType, int]] = []
    entry = exc.__traceback__
    while entry is not None:
        frames.append((entry.tb_frame, entry.tb_lasti))
        entry = entry.tb_next
    return frames


def is_raise(code: types.CodeType, offset: int) -> bool:
    """Whether the instruction there is a `raise` statement."""
    return dis.opname[code.co_code[offset]] == "RAISE_VARARGS"


def raised_by_users(exc: BaseException) -> bool:
    """Whether a `raise` of the user's code has begun it: what a signal brings about has no such statement."""
    for one in _behind(exc, type(exc)):
        innermost = next(reversed(frames_of(one)), None)
        if innermost is None:
            return False
        code, offset = innermost[0].f_code, innermost[1]
        if not (is_user_file(code.co_filename) and is_raise(code, offset)):
            return False
    return True


def _behind(exc: BaseException | None, kind: type[BaseException]) -> Iterator[BaseException]:
    """It, and those of this kind in whose handlers it was raised."""
    while exc is not None:
        if isinstance(exc, kind):
            yield exc
        exc = exc.__context__


def namespace_of(frame: types.FrameType) -> Mapping[str, object]:
    """What names mean in a frame: its locals over its globals over the builtins."""
    return ChainMap(dict(frame.f_locals), frame.f_globals, frame.f_builtins)


def locate(exc: BaseException, *, prefer: str | None = None) -> Problem:
    """The problem an exception tells of: the innermost user frame of its traceback and what stands there.

    `prefer` is a file name: where the traceback has frames of that file, the innermost of them is taken.
    `where` is None where no user frame was reached (binding of arguments). Never raises.
    """
    try:
        problem = _locate(exc, prefer)
    except Exception:
        # A diagnosis that fails must not hide the error it was to explain.
        op = messages.op_of(exc)
        problem = Problem(op, None, exception=type(exc).__name__, message=messages.first_paragraph(exc))
    return messages.with_facts(problem)


def _locate(exc: BaseException, prefer: str | None) -> Problem:
    if (raised := messages.raised_in_callback(exc)) is not None:
        return _in_callback(raised)
    frames = frames_of(exc)
    told = _telling(exc, frames)
    deeper = frames_of(told) if told is not exc else []
    if any(is_user_file(f.f_code.co_filename) for f, _ in deeper):
        frames += deeper  # what the library caught came from there
    text = str(told)
    users = [(f, i) for f, i in frames if is_user_file(f.f_code.co_filename)]
    preferred = [(f, i) for f, i in users if f.f_code.co_filename == prefer]
    op = messages.op_of(told)
    name, message = type(exc).__name__, messages.first_paragraph(told)
    leaves = _leaves(text, frames, op)
    leaked = leak_site(text) if op == "leak" else None
    used = _names_used(users[-1]) if op == "leak" and users and _inside(frames, users[-1][0]) else ()
    if leaked is not None and not is_user_file(leaked.where.file):
        leaked = method_store(used, namespace_of(users[-1][0])) if users else None
    if leaked is not None:
        names = tuple(dict.fromkeys((*leaked.names, *used)))
        return Problem(op, leaked.where, leaves, names, leaked.construct, "", name, message)
    if not users or (op in _BINDING and not _inside(frames, users[-1][0])):
        return Problem(op, None, leaves, exception=name, message=message)
    frame, lasti = (preferred or users)[-1]
    found = site_of(frame.f_code, lasti)
    if found is None:
        return Problem(op, None, leaves, exception=name, message=message)
    namespace = namespace_of(frame)
    op = refine_op(
        messages.op_of(told, callee_of(found.node)) if op != "user" else op, found, namespace, text
    )
    leaves = leaves or _leaves_of_sizes(found, op, namespace, frames)
    if op == "format" and not leaves:
        leaves = _leaves_written(frame, text, frames)
    names, inside = names_in(found, op, namespace, leaves), None
    if op == "carry":
        message = " ".join(text.split("\n\nRevise")[0].split())[:800]
        parts, inside = changed_in_body(found, namespace, text)
        names = tuple(dict.fromkeys((*(parts or messages.carry_names(text)), *names)))
    return Problem(
        op, found.where, leaves, names, construct_of(found, op), callee_of(found.node), name, message,
        inside=inside, called_from=_caller(preferred or users),
        forms=forms_in(found, namespace) if op == "user" else (),
    )  # fmt: skip


def _in_callback(raised: messages.RaisedInCallback) -> Problem:
    """The user's line of the callback: no frame of it is left."""
    users = (f for f in reversed(raised.frames) if is_user_file(f[0]))
    file, line, function = next(users, ("", 0, ""))
    if function.startswith(("<module>", "<cell line")):  # the call itself: jax refuses what the callback gave
        file, line = "", 0
    text = linecache.getline(file, line).rstrip()
    at = len(text) - len(text.lstrip())
    where = Where(file, line, at, line, len(text), text.strip(), text.strip(), function) if text else None
    return Problem("user", where, exception=raised.exception, message=raised.message)


def _caller(users: list[tuple[types.FrameType, int]]) -> Where | None:
    """Where the innermost function was called by another one."""
    inner = users[-1][0].f_code
    outer = next(((f, i) for f, i in reversed(users) if f.f_code is not inner), None)
    if outer is None or outer[0].f_code.co_name == "<module>":
        return None
    site = site_of(outer[0].f_code, outer[1])
    return site.where if site is not None else None


def _leaves_of_sizes(
    found: Site, op: Op, namespace: Mapping[str, object], frames: list[tuple[types.FrameType, int]]
) -> tuple[str, ...]:
    """The arguments behind the traced numbers of an expression, where jax's error does not say them."""
    if op not in ("shape", "concrete", "index", "int", "unhashable"):
        return ()
    values = (look_up(name, namespace) for name in names_in(found, op, namespace))
    numbers = [v for v in values if compat.is_tracer(v) and v.shape == ()]
    told = [leaf for v in numbers for leaf in _leaves(compat.origin_of(v), frames, "index")]
    return tuple(dict.fromkeys(told))


def _leaves_written(
    frame: types.FrameType, text: str, frames: list[tuple[types.FrameType, int]]
) -> tuple[str, ...]:
    """The arguments behind the local placeholders that a text was made of: `'weight_JitTracer(int32[])'`."""
    values = [v for v in frame.f_locals.values() if compat.is_tracer(v) and repr(v) in text]
    return tuple(dict.fromkeys(x for v in values for x in _leaves(compat.origin_of(v), frames, "index")))


def _names_used(user: tuple[types.FrameType, int]) -> tuple[str, ...]:
    frame, lasti = user
    found = site_of(frame.f_code, lasti)
    return names_in(found, "leak", namespace_of(frame)) if found else ()


def _telling(exc: BaseException, frames: list[tuple[types.FrameType, int]]) -> BaseException:
    """The exception whose text tells the reason: a library's own error may hide jax's as its cause."""
    if messages.op_of(exc) != "user":
        return exc
    inner = exc.__cause__ or exc.__context__
    # An exception that the user's own code raises while handling another is the user's.
    raised_by_library = not frames or not _raises(frames[-1])
    seen = {id(exc)}
    while inner is not None and raised_by_library and id(inner) not in seen:
        if messages.op_of(inner) != "user":
            return inner
        seen.add(id(inner))
        inner = inner.__cause__ or inner.__context__
    return exc


def _raises(last: tuple[types.FrameType, int]) -> bool:
    frame, lasti = last
    if not is_user_file(frame.f_code.co_filename):
        return False
    found = site_of(frame.f_code, lasti)
    return found is None or isinstance(found.node, ast.Raise)


def _inside(frames: list[tuple[types.FrameType, int]], user: types.FrameType) -> bool:
    """Whether `user` runs inside a trace: some jax frame called it, directly or not."""
    for frame, _ in frames:
        if frame.f_code.co_filename.startswith(compat.JAX_DIRECTORY):
            return True
        if frame is user:
            break
    # With jax's frames filtered out, a tracer among the locals tells that a trace was under way.
    return holds_tracer(dict(user.f_locals), 2)


def _leaves(text: str, frames: list[tuple[types.FrameType, int]], op: Op) -> tuple[str, ...]:
    if op in _BINDING or op == "other":
        return messages.binding_leaves(text)
    traced, named = messages.traced_function(text), messages.arguments_named(text)
    if traced is None:
        return named
    if handed := _handed_in(named, traced, frames):
        return handed
    return named if _is_outermost(traced, frames) else ()


def _handed_in(
    named: Sequence[str], traced: messages.TracedFunction, frames: list[tuple[types.FrameType, int]]
) -> tuple[str, ...]:
    """The leaves behind these arguments of a compiled function that is called in the trace of another one."""
    users = [(i, f) for i, (f, _) in enumerate(frames) if is_user_file(f.f_code.co_filename)]
    inner = next((n for n, (_, f) in enumerate(users) if _runs(f.f_code, traced)), 0)
    if not inner:
        return ()
    at, code = users[inner - 1][0], users[inner][1].f_code
    found, namespace = site_of(frames[at][0].f_code, frames[at][1]), namespace_of(frames[at][0])
    call = found.node if found is not None else None
    if not isinstance(call, ast.Call):
        return ()
    given = dict(zip(code.co_varnames[: code.co_argcount], call.args, strict=False))
    given |= {k.arg: k.value for k in call.keywords if k.arg}
    wanted = [given[root(name)] for name in named if root(name) in given]
    read = [n.id for expr in wanted for n in ast.walk(expr) if isinstance(n, ast.Name)]
    values = [v for name in read if compat.is_tracer(v := look_up(name, namespace))]
    told = [leaf for v in values for leaf in _leaves(compat.origin_of(v), frames[: at + 1], "index")]
    return tuple(dict.fromkeys(told))


def _runs(code: types.CodeType, traced: messages.TracedFunction) -> bool:
    name, file, line, _ = traced
    return (code.co_name, code.co_filename, code.co_firstlineno) == (name, file, line)


def _is_outermost(traced: messages.TracedFunction, frames: list[tuple[types.FrameType, int]]) -> bool:
    """Whether a message names the function that the trace began with; inner parameters are no leaves."""
    entered = list(_entered_from_jax(frames))
    if not entered or traced[-1] not in _TOP_LEVEL:
        return traced[-1] in _TOP_LEVEL
    matching = [f for f in entered if _runs(f.f_code, traced)]
    if not matching:
        return True
    return matching[0] is entered[0]


def _entered_from_jax(frames: list[tuple[types.FrameType, int]]) -> Iterator[types.FrameType]:
    inside = False
    for frame, _ in frames:
        filename = frame.f_code.co_filename
        if filename.startswith(compat.JAX_DIRECTORY):
            inside = True
        elif inside and is_user_file(filename):
            yield frame


_FROM_USER: frozenset[Op] = frozenset(
    ("array", "user", "float", "int", "complex", "item", "index", "concrete")
)


def refine_op(op: Op, found: Site, namespace: Mapping[str, object], text: str = "") -> Op:
    """The op once the syntax is known: an assignment into a numpy buffer, `%` formatting, a traced static."""
    node, parent = found.node, found.source.parent(found.node) if found.node else None
    if isinstance(node, ast.Subscript) and op in _FROM_USER:
        stores = not isinstance(node.ctx, ast.Load) or isinstance(parent, ast.AugAssign)
        if stores and _stores_tracer(op, node, parent, namespace, text):
            return "setitem"
    if op in _FROM_USER and _numpy_writes(node, namespace):
        return "setitem"
    if op in ("float", "int") and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        left = node.left
        if isinstance(left, (ast.Constant, ast.JoinedStr, ast.Name)):
            return "format"
    if op == "user" and called_object(node, namespace) is jax.jit and ast_has_spec(node):
        return "static-spec"
    if op == "array" and str(getattr(called_object(node, namespace), "__module__", "")).startswith(
        "jax.numpy"
    ):
        return "shape"  # what jax itself makes plain before it traces is a size; jax 0.7 asks so
    if op == "unhashable" and "Tracer" in text:
        return "unhashable" if compat.is_jitted(_user_called(node, namespace)) else "concrete"
    return op


_WRITE_INTO_FIRST = frozenset("copyto fill_diagonal place put put_along_axis putmask".split())


def _numpy_writes(node: ast.AST | None, namespace: Mapping[str, object]) -> bool:
    """`np.add.at(x, ...)`, `np.copyto(x, ...)`: a function of NumPy that is to write into a traced array."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    root, _, name = callee_of(node).partition(".")
    writes = name in _WRITE_INTO_FIRST or name.endswith(".at")
    numpy = getattr(namespace.get(root), "__name__", "") == "numpy"
    return writes and numpy and holds_tracer(_plainly(node.args[0], namespace))


def _plainly(node: ast.AST, namespace: Mapping[str, object]) -> object:
    """The value of a name, or of what an entry is taken from."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return look_up(dotted(node), namespace)


def ast_has_spec(node: ast.AST | None) -> bool:
    """Whether a call spells static or donated arguments."""
    words = [k.arg or "" for k in node.keywords] if isinstance(node, ast.Call) else []
    return any(word.startswith(("static_arg", "donate_arg")) for word in words)


def _stores_tracer(
    op: Op, node: ast.Subscript, parent: object, namespace: Mapping[str, object], text: str
) -> bool:
    if op != "user":
        # `a_list[i] = v` asks for an index only; a numpy buffer asks for the value or the array.
        return op != "index" or hasattr(namespace.get(getattr(node.value, "id", "")), "dtype")
    if not re.search(r"array element|sequence|Tracer|0-dimensional|only length-1", text):
        return False
    value = getattr(parent, "value", None)
    inside = [n.id for part in (node, value) if part for n in walk(part) if isinstance(n, ast.Name)]
    return any(holds_tracer(namespace.get(name)) for name in inside)


def _user_called(node: ast.AST | None, namespace: Mapping[str, object]) -> object:
    called = called_object(node, namespace)
    inner = getattr(called, "__wrapped__", None)
    code = getattr(inner, "__code__", None)
    return called if code is not None and is_user_file(code.co_filename) else None

"""Whether code that asks a value a question is ready for the answer no.

Libraries probe: `try: n = operator.index(x)`, `except TypeError: ...`. Under jit such a question fails and
the other path is taken; it is no problem of the user's, and the recording run must take the same path.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import linecache
import os
import sys
import textwrap
import traceback
import types
from collections.abc import Callable, Iterable, Iterator

from jax.errors import JAXIndexError, JAXTypeError

from jitmagic import patches
from jitmagic.source.modules import last_name
from jitmagic.source.tree import ByCode, source_of, walk
from jitmagic.tracing.locate import is_user_file

_CAUGHT = frozenset(
    ("Exception", "BaseException", "TypeError", "JAXTypeError", "ConcretizationTypeError",
     "TracerBoolConversionError", "TracerIntegerConversionError", "TracerArrayConversionError")
)  # fmt: skip

_Span = tuple[int, int, frozenset[str] | None]
_FRAMES, _REFUSALS = 200, 20
_RUNNER = os.path.join(os.path.dirname(__file__), "recording.py")
SHAPE_CHECKS = frozenset(
    "canonicalize_shape _canonicalize_dimension canonicalize_dim concrete_dim_or_error _compute_newshape".split()
)
"""jax functions that try a value as a size and refuse it with a better message."""


def expects_refusal(frame: types.FrameType) -> bool:
    """Whether the line that `frame` is at stands in a `try` that goes on after a failed conversion."""
    return _goes_on_at(frame.f_code, frame.f_lineno, _CAUGHT)


def _goes_on_at(code: types.CodeType, line: int | None, errors: frozenset[str]) -> bool:
    return line is not None and any(
        first <= line <= last and (caught is None or caught & errors)
        for first, last, caught in _guarded(code)
    )


_Line = tuple[types.CodeType, int]
_Refused = tuple[type[Exception], list[_Line]]


@contextlib.contextmanager
def refusals() -> Iterator[list[_Refused]]:
    """While this thread traces, what each of its questions to a traced value is refused with, and the lines under way,
    inner ones first."""
    refused: list[_Refused] = []

    def noting(original: Callable[..., None]) -> Callable[..., None]:
        def note(self: Exception, *args: object) -> None:
            if len(refused) < _REFUSALS:
                under_way = itertools.islice(traceback.walk_stack(sys._getframe(1)), _FRAMES)
                refused.append((type(self), [(frame.f_code, line or 0) for frame, line in under_way]))
            original(self, *args)

        return patches.here(note, original)

    with contextlib.ExitStack() as noted:
        for error in (JAXTypeError, JAXIndexError):
            noted.enter_context(patches.replaced(error, __init__=noting(error.__init__)))
        yield refused


def gone_on(refused: Iterable[_Refused]) -> Iterator[_Line]:
    """The lines of the user's in a `try` of theirs that took such a refusal for an answer."""
    for error, lines in refused:
        names = frozenset(kind.__name__ for kind in error.__mro__)
        code, line = next((at for at in lines if _goes_on_at(*at, names)), (None, 0))
        if code is not None and is_user_file(code.co_filename):
            yield code, line


_tried: ByCode[tuple[_Span, ...]] = ByCode()


def _guarded(code: types.CodeType) -> tuple[_Span, ...]:
    """First and last lines of the bodies of such `try` statements in a function, and what they catch."""
    found = _tried.get(code)
    return found if found is not None else _tried.put(code, _find_guarded(code))


def _find_guarded(code: types.CodeType) -> tuple[_Span, ...]:
    # without a table of handlers there is no `try`
    if code.co_name == "<module>" or not code.co_exceptiontable:
        return ()
    tree, shift = _definition(code)
    return tuple(
        (node.body[0].lineno + shift, (node.body[-1].end_lineno or 0) + shift, caught)
        for node in (walk(tree) if tree is not None else ())
        if isinstance(node, ast.Try | ast.With)
        for caught in _goes_on_after(node)
    )


def _definition(code: types.CodeType) -> tuple[ast.AST | None, int]:
    """The tree of a function, and what its line numbers lack."""
    if is_user_file(code.co_filename):
        return source_of(code.co_filename).function(code), 0
    # of a library's file, the one function is parsed
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    with contextlib.suppress(SyntaxError, ValueError):
        tree = ast.parse(textwrap.dedent("".join(inspect.getblock(lines))))
        return tree, code.co_firstlineno - 1
    return None, 0  # a lambda in the middle of an expression, say: nothing there can catch


def _goes_on_after(node: ast.Try | ast.With) -> Iterator[frozenset[str] | None]:
    """The names of what is caught and not raised again: by each handler (None for all), by `suppress(...)`."""
    if isinstance(node, ast.With):
        yield from (_names(call.args) for call in suppressing(node))
        return
    for handler in node.handlers:
        if any(isinstance(inner, ast.Raise) for inner in walk(handler)):
            continue
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        yield None if handler.type is None else _names(kinds)


def suppressing(node: ast.With) -> list[ast.Call]:
    """The calls of `contextlib.suppress` that a block is entered with."""
    calls = (item.context_expr for item in node.items)
    return [c for c in calls if isinstance(c, ast.Call) and last_name(c.func) == "suppress"]


def _names(kinds: Iterable[ast.AST | None]) -> frozenset[str]:
    return frozenset(last_name(kind) for kind in kinds if kind is not None)


def is_probe(frame: types.FrameType | None) -> bool:
    """Whether some code between the question and the user's frame, that one included, is ready for a no."""
    path: list[types.FrameType] = []
    while frame is not None:
        # Shapes are tried and then refused with a better message; an index was let through before: no probes.
        if frame.f_code.co_name in SHAPE_CHECKS or is_indexing(frame):
            return False
        if frame.f_code.co_filename == _RUNNER:
            break
        path.append(frame)
        if is_user_file(frame.f_code.co_filename):
            break
        frame = frame.f_back
    return any(expects_refusal(f) for f in path if not _runs_as_python(f))


def _runs_as_python(frame: types.FrameType) -> bool:
    """jax's own loop, which without jit asks its condition itself and is ready to compile the loop instead."""
    name = frame.f_code.co_filename.replace("\\", "/")
    return frame.f_code.co_name == "while_loop" and "/lax/control_flow/" in name


def is_indexing(frame: types.FrameType) -> bool:
    """Whether a frame is of the module of jax that reads indices."""
    return frame.f_code.co_filename.endswith("indexing.py")

"""What functions only read, as far as their sources tell: where that can't be told, it counts as written."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Iterable, Iterator

from jitmagic.state.paths import Path, PathError, Step, parse
from jitmagic.state.uses import Use, facts_of

_PURE = frozenset(
    "abs all any bool bytes complex dict divmod enumerate filter float format frozenset hash id int isinstance "
    "issubclass iter len list map max min pow print range repr reversed round set sorted str sum tuple type zip".split()
)
"""Functions of Python's own that leave what they are given as it is."""
_PURE_ROOMS = ("jax", "numpy", "math", "cmath", "operator", "scipy")
_WRITERS = frozenset(
    "put place copyto putmask fill_diagonal put_along_axis shuffle at save savez savetxt frombuffer setitem delitem "
    "iadd isub imul itruediv ior iconcat".split()
)
_ARRAY_WRITERS = frozenset("fill sort put resize partition itemset setfield setflags byteswap".split())
"""Methods by which numpy's arrays are written."""
_INTO = re.compile(r"\b(out|output|file|overwrite_\w+)=|\b(blas|lapack)\.")
"""Where what is given may be written; Fortran writes whatever an array says of itself."""


def only_reads(
    path: str,
    functions: Iterable[types.FunctionType],
    methods: frozenset[str] | None = None,
    *,
    own: bool = False,
) -> bool:
    """All that these functions do with what lies at a path is to read it; `methods`: those of it that may be called,
    where it is not one that all but few leave as it is; `own`: what is done with what lies below does not count."""
    functions = [*functions]
    facts = (facts_of(fn) for fn in functions)
    if any(not f.has_source or f.whole_namespace for f in facts):
        return False
    try:
        return next(changing(path, functions, methods, own=own), None) is None
    except PathError:
        return False


def changing(
    path: str,
    functions: Iterable[types.FunctionType],
    methods: frozenset[str] | None = None,
    *,
    own: bool = False,
) -> Iterator[tuple[types.FunctionType, Use]]:
    """Where these functions do more than read what lies at a path. Raises PathError."""
    wanted = parse(path)
    for fn in functions:
        for use in facts_of(fn).uses:
            below = (rest for rest in _below(use, wanted) if not (own and rest and len(rest) > 1))
            if any(use.action != "read" or not _is_reading(use, rest, fn, methods) for rest in below):
                yield fn, use


def _below(use: Use, wanted: Path) -> Iterator[tuple[Step, ...] | None]:
    """The steps that a use takes from the thing on, if it may mean it; None where it names a holder of the thing."""
    have, want = use.steps, wanted.steps
    starts = [0] if use.root == wanted.root else []
    if not use.free and use.root != wanted.root:  # `self.h` in a method, for `net.h`
        starts = [i for i in range(len(want)) if any(s.kind == "attribute" for s in want[i:])]
    for start in starts:
        asked = want[start:]
        if have[: len(asked)] == asked:
            yield have[len(asked) :]
        elif asked[: len(have)] == have and start == 0:
            yield None


def _is_reading(
    use: Use, rest: tuple[Step, ...] | None, fn: types.FunctionType, methods: frozenset[str] | None
) -> bool:
    if rest is None:
        return use.whole_to in ("len", "isinstance", "id", "type")
    if use.statement is not None and _INTO.search(ast.unparse(use.statement)):
        return False
    if use.whole_to:
        return _is_pure(use, fn)
    if use.called:
        name = rest[-1].key if rest else None
        return name is not None and (name in methods if methods is not None else name not in _ARRAY_WRITERS)
    return not use.nodes or not any(n is use.nodes[-1] for n in _handed_on(use.statement))


def _is_pure(use: Use, fn: types.FunctionType) -> bool:
    """The function that gets it as an argument is known to leave it as it is."""
    root, *rest = use.whole_to.split(".")
    value = fn.__globals__.get(root)
    if not rest and root in _PURE:
        return value is None
    room = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    return room.partition(".")[0] in _PURE_ROOMS and (rest or [root])[-1] not in _WRITERS


_HANDED_ON: dict[type, tuple[str, ...]] = {
    ast.With: ("items",), ast.AsyncWith: ("items",), ast.withitem: ("context_expr",),
    ast.IfExp: ("body", "orelse"), ast.Lambda: ("body",), ast.Dict: ("values",), ast.BoolOp: ("values",),
    ast.For: ("iter",), **dict.fromkeys((ast.Tuple, ast.List, ast.Set), ("elts",)),
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.Return, ast.Expr, ast.NamedExpr, ast.Starred, ast.Await,
                     ast.Yield, ast.YieldFrom), ("value",)),
}  # fmt: skip


def _handed_on(statement: ast.AST | None) -> Iterator[ast.AST]:
    """Expressions of a statement whose value gets another name, or goes elsewhere."""
    if statement is None or isinstance(statement, ast.AugAssign):
        return
    todo = [
        statement,
        *(n for n in ast.walk(statement) if isinstance(n, ast.NamedExpr | ast.Yield | ast.Lambda)),
    ]
    while todo:
        node = todo.pop()
        yield node
        for field in _HANDED_ON.get(type(node), ()):
            held = getattr(node, field)
            todo += held if isinstance(held, list) else [held] if held is not None else []

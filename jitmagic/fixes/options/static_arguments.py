"""Arguments that are static, or no longer are; functions that are not compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from jitmagic.correction import functions_of
from jitmagic.evidence import Leaf
from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.numerics.number_types import tested
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source.edits import FunctionNode

SETTINGS = frozenset(
    "int bool str function builtin_function_or_method method PjitFunction ufunc NoneType".split()
)
"""Types of what a program may be made for."""
AGAIN = "each new value compiles again"


def static_arguments(spot: Spot) -> Iterator[Change]:
    """The smallest set of arguments that, made static, lets the function of the cell as it is trace."""
    if (verified := _smallest(spot)) and not _fractions(spot, verified):
        yield _made_static(spot, verified)


def static_data(spot: Spot) -> Iterator[Change]:
    """The same where there are fractions among them, which are data."""
    if _fractions(spot, verified := _smallest(spot)):
        yield _made_static(spot, verified)


def _smallest(spot: Spot) -> tuple[str, ...]:
    verified = spot.evidence.static_verified or ()
    own = spot.evidence.function.cell == spot.text.source
    return verified if own and {root(x) for x in verified} & {root(n) for n in spot.names} else ()


def _fractions(spot: Spot, paths: Sequence[str]) -> bool:
    """There are fractions among these that no size depends on."""
    problems = spot.evidence.problems
    sizes = {x for p in problems if p.op in ("index", "int", "shape", "concrete") for x in p.leaves}
    own = [x for x in spot.every_leaf if x.path in paths and x.path not in sizes]
    return any(x.python_type == "float" for x in own)


def static_settings(spot: Spot) -> Iterator[Change]:
    """The numbers to count with, flags, texts and functions that the place needs; what is left is mended next."""
    leaves = spot.every_leaf
    others = {x.argument for x in leaves if x.shape or x.python_type.rpartition(".")[2] not in SETTINGS}
    known = {x.argument for x in leaves} - others - spot.static
    if names := [n for n in dict.fromkeys(map(root, spot.names)) if n in known]:
        yield _made_static(spot, names)


def static_types(spot: Spot) -> Iterator[Change]:
    """The flag, number or text whose type the line tests, which keeps its type; `~flag` is another number for a flag of
    Python's than for an array."""
    names = {spot.code(name) for _, name, _, _ in tested(spot, spot.line)}
    leaves = [x for x in spot.every_leaf if not x.static and x.path == x.argument]
    found = [x for x in leaves if x.path in names or not names and x.python_type == "bool"]
    if found and all(x.python_type in ("bool", "int", "str") for x in found):
        yield _made_static(spot, [x.path for x in found], "it keeps its Python type, and ")


def _made_static(spot: Spot, paths: Sequence[str], why: str = "") -> Change:
    """Static besides: by name, or by number what only has that (`args[1]`)."""
    leaves, function = spot.every_leaf, spot.text.definition(spot.evidence.function.name)
    args = getattr(function, "args", None)
    many = {a.arg for a in (args.vararg, args.kwarg) if a is not None} if args is not None else set[str]()
    order = [n for n in spot.evidence.function.parameters if n not in many]
    each = [q for p in paths for q in ([x.path for x in leaves if x.argument == p] if p in many else [p])]
    names = tuple(dict.fromkeys(root(p) if root(p) in order else p for p in each))
    values = {
        tuple(x.value for x in call.leaves if x.argument in names or x.path in names)
        for call in spot.evidence.calls
    }
    count = f" ({len(values)} so far)" if len(values) > 1 and leaves else ""
    sure = len(values) <= 1 and not _fractions(spot, paths)
    return Change(f"make {listed(names)} static: {why}{AGAIN}{count}", static=names, sure=sure)


def ordinary_arguments(spot: Spot) -> Iterator[Change]:
    """What is static as an ordinary argument."""
    roots = list(dict.fromkeys(n for n in map(root, spot.names) if n in spot.static))
    kept = tuple(n for n in spot.declared_static if n not in roots)
    if not roots:
        return
    title = f"take {listed(sorted(roots))} as an ordinary argument, not static"
    for left in dict.fromkeys((kept, ())):
        yield Change(title, unstatic=left)


def functions_left_out(spot: Spot) -> Iterator[Change]:
    """A function that prepares something, from settings alone, is not compiled; the others of the cell are."""
    defined = [n for n in spot.text.tree.body if isinstance(n, FunctionNode)]
    taken = functions_of(spot.attempt.magic) or [n.name for n in defined]
    around = next((n.name for n in defined if n.lineno <= spot.line <= (n.end_lineno or 0)), spot.function)
    function = spot.text.definition(around)
    others = tuple(n for n in taken if n != around)
    own = around == spot.function  # of another one it is not known what it is called with: the proof tells
    if not others or around not in taken or function not in defined or _called_by(spot, around, others):
        return
    if own and not _only_settings(spot):
        return
    title = f"leave `{around}` out of what is compiled: it only prepares"
    yield Change(title, functions=others, sure=False)


def _only_settings(spot: Spot) -> bool:
    """It is called without arrays, but for a key."""
    leaves = spot.every_leaf
    return bool(leaves) and not any(x.kind in ("array", "numpy") and not _is_key(x) for x in leaves)


def _is_key(leaf: Leaf) -> bool:
    return leaf.dtype.startswith("key") or (leaf.dtype, leaf.shape) == ("uint32", (2,))


def _called_by(spot: Spot, name: str, functions: Collection[str]) -> bool:
    """One of the functions calls it, which then traces it in any case."""
    calls = spot.text.calls(name)
    around = [spot.text.outermost(c) for c in calls]
    return any(f is not None and f.name in functions for f in around)

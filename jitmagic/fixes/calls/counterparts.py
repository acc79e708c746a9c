"""Calls that want numbers, as jax's own (functions of NumPy, `math` and SciPy, `float`, `int`, `.item()`), or on the
host."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax

from jitmagic.fixes.calls.callbacks import VALUES, on_the_host
from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.rules.words import listed
from jitmagic.source import scope
from jitmagic.source.edits import Edits, shifted
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Pattern, call_of


@dataclass(frozen=True)
class Form:
    """A call, what is written for it, and what also takes a number of Python's or a list."""

    call: Pattern
    new: str
    careful: str


def _rows(*rows: tuple[str, str, str]) -> list[Form]:
    return [Form(Pattern(call), new, careful) for call, new, careful in rows]


_INTERP = "lambda at: jnp.interp(at, $x, $y, left={0}, right={0})"
FORMS = _rows(
    ("float($x)", "$x", "jnp.asarray($x, float)"),
    ("complex($x)", "$x", "jnp.asarray($x, complex)"),
    ("complex($x, $y)", "$x + 1j * $y", ""),
    ("int($x)", "$x.astype(int)", "jnp.asarray($x).astype(int)"),
    ("bool($x)", "$x.astype(bool)", "jnp.asarray($x).astype(bool)"),
    ("math.floor($x)", "jnp.floor($x).astype(int)", ""),
    ("math.ceil($x)", "jnp.ceil($x).astype(int)", ""),
    ("math.trunc($x)", "jnp.trunc($x).astype(int)", ""),
    ("math.isqrt($x)", "jnp.floor(jnp.sqrt($x)).astype(int)", ""),
    ("math.log($x, $b)", "jnp.log($x) / jnp.log($b)", ""),
    ("math.hypot($x, $y, $z)", "jnp.sqrt($x**2 + $y**2 + $z**2)", ""),
    ("math.remainder($x, $y)", "$x - $y * jnp.round($x / $y)", ""),
    ("math.fsum($x)", "jnp.sum($x)", "jnp.sum(jnp.array($x))"),
    ("math.prod($x)", "jnp.prod($x)", "jnp.prod(jnp.array($x))"),
    ("math.dist($x, $y)", "jnp.linalg.norm($x - $y)", "jnp.linalg.norm(jnp.array($x) - jnp.array($y))"),
    ("math.sumprod($x, $y)", "jnp.dot($x, $y)", "jnp.dot(jnp.array($x), jnp.array($y))"),
    ("math.isclose($x, $y)", "jnp.isclose($x, $y, rtol=1e-9, atol=0)", ""),
    ("math.isclose($x, $y, rel_tol=$r)", "jnp.isclose($x, $y, rtol=$r, atol=0)", ""),
    ("math.isclose($x, $y, abs_tol=$a)", "jnp.isclose($x, $y, rtol=1e-9, atol=$a)", ""),
    *((f"cmath.{name}($x)", f"jnp.{name}(jnp.asarray($x, complex))", "") for name in ("exp", "log", "sqrt")),
    ("cmath.phase($x)", "jnp.angle($x)", ""),
    ("cmath.rect($r, $phi)", "$r * jnp.exp(1j * $phi)", ""),
    ("cmath.polar($x)", "(jnp.abs($x), jnp.angle($x))", ""),
    ("scipy.special.softmax($*r)", "jax.nn.softmax($*r)", ""),
    ("scipy.special.log_softmax($*r)", "jax.nn.log_softmax($*r)", ""),
    ("scipy.interpolate.interp1d($x, $y)", _INTERP.format("jnp.nan"), ""),
    ("scipy.interpolate.interp1d($x, $y, bounds_error=False)", _INTERP.format("jnp.nan"), ""),
    ("scipy.interpolate.interp1d($x, $y, bounds_error=False, fill_value=$c)", _INTERP.format("$c"), ""),
)
"""What jax has in another form."""
NAMES = {
    "fabs": "abs", "pow": "power", "atan2": "arctan2", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "lgamma": "gammaln",
}  # fmt: skip
"""Functions of `math` that jax has under another name."""
HOMES = {
    "math": ("jax.numpy.", "jax.scipy.special."), "numpy": ("jax.numpy.",), "scipy": ("jax.scipy.", "jax.numpy."),
}  # fmt: skip
"""Where jax may have what is in a library, under the same name."""
NO_COUNTERPART = frozenset(
    ("random", "testing", "save", "savez", "load", "vectorize", "nditer", "errstate", "lib")
)
"""Parts of NumPy that jax has for something else."""
POSITIONS = frozenset("argmax argmin searchsorted count_nonzero randint categorical digitize".split())
"""What gives integers already."""
OF_TABLES = frozenset(("dot", "take", "searchsorted"))
"""Methods of a NumPy array that are given a traced one."""
TAKE_LISTS = frozenset(
    "array asarray stack concatenate hstack vstack dstack column_stack block where zeros ones full".split()
)
"""Functions of jax.numpy that take lists."""


def counterpart(full: str) -> str:
    """jax's function for `numpy.fft.fft` and its like, by its full name; nothing where it has none."""
    library, _, name = full.partition(".")
    if library == "numpy" and name.partition(".")[0] in NO_COUNTERPART:
        return ""
    name = NAMES.get(name, name) if library == "math" else name
    homes = (home + name for home in HOMES.get(library, ()) if name)
    return next((found for found in homes if callable(_value(found))), "")


def has_counterpart(spot: Spot, call: ast.Call) -> bool:
    """jax has what a call of a library does."""
    return any(form.call.match(call, spot.modules) for form in FORMS) or bool(counterpart(spot.full(call)))


def _value(full: str) -> object:
    """What a full name stands for, in what is installed."""
    module, _, name = full.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return getattr(_value(module), name, None) if "." in module else None


def counterparts(spot: Spot) -> Iterator[Change]:
    """Calls that convert a traced value as jax's: those of the whole function, else those of the line."""
    here = spot.on_line(ast.Call)
    everywhere = spot.text.within(spot.outermost, ast.Call) if spot.outermost is not None else here
    tried: list[object] = []
    for calls in (everywhere, here):
        for careful in (False, True):
            edits, libraries = spot.edits(), list[str]()
            for call in calls[::-1]:  # inner ones first
                if spot.may_be_array(call) and not on_the_host(spot, call):
                    libraries += _handed(spot, call, edits)
                    libraries += _converted(spot, call, edits, careful, call in here)
            if edits and edits.changes not in tried:
                tried.append(edits.changes)
                yield Change(_title(spot, libraries[::-1]), edits)


def _title(spot: Spot, libraries: Iterable[str]) -> str:
    written = list(dict.fromkeys(libraries))
    if not written:
        return "keep the value an array: no `float()`, `int()` or `.item()`"
    scipy = all(counterpart(spot.modules.full(name)).startswith("jax.scipy.") for name in written)
    return f"use `{'jax.scipy' if scipy else 'jax.numpy'}` in place of {listed(written)}"


def _handed(spot: Spot, call: ast.Call, edits: Edits) -> list[str]:
    """Functions of libraries among the arguments, as jax's: `jax.vmap(np.sin)`."""
    named = {a: counterpart(spot.full(a)) for a in call.args if isinstance(a, ast.Attribute | ast.Name)}
    found = [a for a, jaxs in named.items() if jaxs and not isinstance(_value(jaxs), type)]
    for argument in found:
        edits.replace(argument, spot.write(named[argument]))
    return list(map(spot.code, found))


def _converted(spot: Spot, call: ast.Call, edits: Edits, careful: bool, here: bool) -> list[str]:
    """Write what stands for a call; the name of the library's function that goes, if it is one."""
    full, first = spot.full(call), call.args[0] if call.args else None
    if isinstance(call.func, ast.Attribute) and not full:
        array, method = call.func.value, call.func.attr
        if method in VALUES and not call.args:
            edits.replace(call, edits.code(array))
        elif method in OF_TABLES and here and not spot.is_traced(array):
            edits.replace(array, spot.write("jnp.asarray($x)", edits, x=array))
        return []
    if spot.code(call.func) == "int" and isinstance(first, ast.Call) and last_name(first.func) in POSITIONS:
        edits.replace(call, edits.code(first))
        return []
    for form in FORMS:
        if (found := form.call.match(call, spot.modules)) is not None:
            new = (form.careful if careful else "") or form.new
            edits.replace(call, spot.write(new, edits, **found.holes))
            return [spot.code(call.func)] if full else []
    jaxs = counterpart(full)
    if jaxs:
        edits.replace(call.func, spot.write(jaxs))
        listed_first = isinstance(first, ast.List | ast.ListComp | ast.Tuple)
        if careful and first is not None and listed_first and jaxs.rpartition(".")[2] not in TAKE_LISTS:
            edits.replace(first, spot.write("jnp.array($x)", edits, x=first))
    return [spot.code(call.func)] if jaxs else []


# --- on the host -------------------------------------------------------------------------------------

COST = "it runs in Python at each call and has no gradient"


def pure_callbacks(spot: Spot) -> Iterator[Change]:
    """The call of the place through `jax.pure_callback`, which hands it the values while the program runs."""
    call = spot.here(ast.Call)
    if call is None or not _is_foreign(spot, call):
        return
    taken: set[str] = set(spot.modules.names)
    inside, operands = spot.edits(), dict[str, ast.expr]()
    for value in (*call.args, *(k.value for k in call.keywords)):
        if spot.is_traced(value):
            own = value.id if isinstance(value, ast.Name) else spot.text.fresh("v", taken=taken)
            taken.add(own)
            operands[own] = value
            inside.replace(value, own)
    result = _seen(spot, call)
    if len({dtype for _, dtype in result}) != 1:
        return
    (shape, dtype), *others = result
    like = next((v for v in operands.values() if _seen(spot, v) == result), None)
    size = spot.write("jnp.shape($x)", x=like) if like is not None else repr(shape)
    if others and like is None:
        return
    number = spot.write(f"jnp.{dtype}")
    function = spot.write("lambda $$names: np.asarray($call, $number)", names=", ".join(operands),
                          call=inside.code(call), number=number)  # fmt: skip
    form = spot.write("jax.ShapeDtypeStruct($size, $number)", size=size, number=number)
    new = call_of(spot.write("jax.pure_callback"), function, form, *map(spot.code, operands.values()))
    new = shifted(new, "", " " * spot.text.statement(call).col_offset)
    as_seen = like is None and shape != ()
    yield Change(
        f"call `{spot.code(call.func)}` on the host through `jax.pure_callback`", spot.edits().replace(call, new),
        cost=f"{COST}; its shape is as in the calls seen" if as_seen else COST, sure=False,
        tags=frozenset({Tag.CALLBACK, *([Tag.AS_SEEN] if as_seen else [])}),
    )  # fmt: skip


def _is_foreign(spot: Spot, call: ast.Call) -> bool:
    """A function from outside the cell and jax, which gives a value that is used."""
    full, root = spot.full(call), spot.code(call.func).partition(".")[0]
    if not spot.code(call.func).replace(".", "").isidentifier() or full.startswith("jax."):
        return False
    if full.startswith("numpy.") and full.split(".")[1] in NO_COUNTERPART or has_counterpart(spot, call):
        return False
    own = not full and root in {*spot.traced, *scope.stores(spot.text.tree)}
    used = not isinstance(spot.text.parents.get(call), ast.Expr)
    return used and not own and not any(isinstance(a, ast.Starred) for a in call.args)


def _seen(spot: Spot, node: ast.AST) -> set[tuple[tuple[int, ...], str]]:
    """Shapes and dtypes of an expression in a run without jit, as jax has them."""
    try:
        return {(s.shape, str(jax.dtypes.canonicalize_dtype(s.dtype))) for s in spot.seen(node) if s.dtype}
    except TypeError:  # an object that is no array
        return set()

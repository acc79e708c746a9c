"""Calls that want numbers: numpy, math and scipy as jax.numpy; `float`, `int`, `.item()`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names, outside
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.rules.words import listed

MATH = {
    "fabs": "abs", "pow": "power", "atan2": "arctan2", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "fsum": "sum", "dist": "linalg.norm",
}  # fmt: skip
WHOLE = frozenset(("floor", "ceil", "trunc"))
"""Functions of `math` that give an int."""
SPECIAL = {"factorial": "factorial", "erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln"}
ARRAY_METHODS = frozenset(("dot", "take", "searchsorted"))
CONVERSIONS = ("float", "int", "complex", "bool")
NO_COUNTERPART = frozenset(
    ("random", "testing", "save", "savez", "load", "vectorize", "nditer", "errstate", "lib")
)

KINDS = (
    "tracer-array-conversion",
    "tracer-int",
    "tracer-bool",
    "user-error",
    "tracer-format",
    "dynamic-shape",
)


def candidates(place: Place) -> Iterator[Candidate]:
    """Conversions on the line of the place, then those of the whole function."""
    if place.kind not in (*KINDS, "frozen-side-effect", "leaked-tracer", "state-write"):
        return
    if place.kind != "frozen-side-effect":
        yield from outside.candidates(place)
    if place.kind in KINDS:
        yield from _converted(place)


# -- conversions


def _converted(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    calls = place.on_line(cst.Call)
    scope = place.outermost
    everywhere = place.cell.within(scope, cst.Call) if scope is not None else calls
    for where in (everywhere, calls):
        where = [c for c in where if not _on_the_host(place, c)]
        changes = _changes(place, where)
        if not changes:
            continue
        words = _words(place, changes)
        yield Candidate(words, place.cell.edit(changes))
        asarray = {k: v for k, v in _changes(place, where, asarray=True).items()}
        if asarray != changes:
            yield Candidate(words, place.cell.edit(asarray))


def _on_the_host(place: Place, call: Any) -> bool:
    """It stands inside a callback, which gets the values."""
    import libcst as cst

    around = list(place.cell.ancestors(call))[1:]
    return any(isinstance(n, cst.Call) and place.cell.code(n.func).endswith("callback") for n in around)


def _words(place: Place, changes: dict[Any, str | None]) -> str:
    import libcst as cst

    texts = []
    for node in changes:
        for call in place.cell.within(node, cst.Call):
            name = place.cell.code(call.func)
            if name.partition(".")[0] in place.modules and counterpart(place, name):
                texts.append(name)
    if texts:
        scipy = all(_resolved(place, t).startswith("scipy") for t in texts)
        library = f"{place.jax}.scipy" if scipy else "jax.numpy"
        return f"use `{library}` in place of {listed(dict.fromkeys(texts))}"
    return "keep the value an array: no `float()`, `int()` or `.item()`"


def _changes(place: Place, calls: list[Any], *, asarray: bool = False) -> dict[Any, str | None]:
    """New source for calls that convert a traced value; of nested ones the inner are part of the outer."""
    done: dict[Any, str | None] = {}
    for call in calls:
        inside = any(a is not call and a in done for a in place.cell.ancestors(call))
        if not inside:
            text = _rewritten(place, call, asarray)
            if text is not None:
                done[call] = text
    return done


def _rewritten(place: Place, node: Any, asarray: bool) -> str | None:
    """A call with itself and the conversions inside it rewritten, or None where nothing is to be done."""
    import libcst as cst

    inner: dict[Any, str | None] = {}
    for call in place.cell.within(node, cst.Call):
        if call is node or any(a in inner for a in place.cell.ancestors(call)):
            continue
        text = _rewritten(place, call, asarray)
        if text is not None:
            inner[call] = text
    own = _own_form(place, node, asarray)
    if own is None:
        return None
    form, parts = own
    texts = [patched(place, p, inner) for p in parts]
    return form.format(*texts)


def patched(place: Place, node: Any, changes: dict[Any, str | None]) -> str:
    """Source of a node with some of the calls inside replaced."""
    import libcst as cst

    class Patch(cst.CSTTransformer):
        def on_leave(self, original_node: Any, updated_node: Any) -> Any:
            updated = super().on_leave(original_node, updated_node)
            return cst.parse_expression(changes[original_node] or "") if original_node in changes else updated

    return place.cell.module.code_for_node(node.visit(Patch()))


def _own_form(place: Place, call: Any, asarray: bool) -> tuple[str, list[Any]] | None:
    """A format for the new call and the nodes that go into it."""
    import libcst as cst

    name = place.cell.code(call.func)
    code = place.cell.code(call)
    traced = names.traced_in(code, place.traced) or f"{place.jnp}." in code
    if not traced:
        return None
    jnp = place.jnp
    if name in CONVERSIONS and len(call.args) == 1 and name not in place.modules:
        value = call.args[0].value
        if name in ("float", "complex"):
            return ("{0}" if not asarray else f"{jnp}.asarray({{0}}, {name})"), [value]
        if name == "int" and not asarray and _gives_integers(place, value):
            return "{0}", [value]
        if asarray:
            return f"{jnp}.asarray({{0}}).astype({name})", [value]
        atom = isinstance(value, (cst.Name, cst.Call, cst.Attribute, cst.Subscript)) or value.lpar
        return ("{0}" if atom else "({0})") + f".astype({name})", [value]
    if name == "complex" and len(call.args) == 2 and not any(a.keyword or a.star for a in call.args):
        return _complex(place, call), [a.value for a in call.args]
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("item", "tolist", "numpy"):
        if place.cell.code(call.func.value) not in place.modules and not call.args:
            return "{0}", [call.func.value]
    arguments = [a.value for a in call.args]
    if _of_numpy_array(place, call):
        inside = ", ".join(f"{{{i + 1}}}" for i in range(len(arguments)))
        return f"{jnp}.asarray({{0}}).{call.func.attr.value}({inside})", [call.func.value, *arguments]
    new = counterpart(place, name)
    if new is None:
        return None
    stars = "".join(("*" if a.star == "*" else "**" if a.star else "") for a in call.args)
    if stars:
        return None
    keys = [f"{a.keyword.value}=" if a.keyword is not None else "" for a in call.args]
    inside = ", ".join(f"{k}{{{i}}}" for i, k in enumerate(keys))
    resolved = _resolved(place, name)
    if resolved.startswith("math.") and resolved.partition(".")[2] in WHOLE:
        return f"{new}({inside}).astype(int)", arguments
    if resolved == "math.fsum" or (resolved == "math.dist" and len(arguments) == 2):
        return (f"{new}({inside})" if resolved == "math.fsum" else f"{new}({{0}} - {{1}})"), arguments
    return f"{new}({inside})", arguments


def _complex(place: Place, call: Any) -> str:
    """A format for `complex(a, b)` of two arrays."""
    import libcst as cst

    parts = [
        "{%d}" if isinstance(a.value, (cst.Name, cst.Call, cst.Subscript, cst.Attribute)) else "({%d})"
        for a in call.args
    ]
    form = f"{parts[0] % 0} + 1j * {parts[1] % 1}"
    whole = isinstance(place.cell.parents.get(call), (cst.Assign, cst.Return, cst.Arg))
    return form if whole else f"({form})"


def _gives_integers(place: Place, value: Any) -> bool:
    """A position or a count, which is an integer already."""
    import libcst as cst

    if not isinstance(value, cst.Call):
        return False
    return place.cell.code(value.func).rpartition(".")[2] in (
        "argmax", "argmin", "searchsorted", "count_nonzero", "randint", "categorical", "digitize",
    )  # fmt: skip


def _of_numpy_array(place: Place, call: Any) -> bool:
    """`table.dot(x)` on the line of the place: a method of what is no traced value, with one as its argument."""
    import libcst as cst

    function = call.func
    if not isinstance(function, cst.Attribute) or function.attr.value not in ARRAY_METHODS:
        return False
    root = place.cell.code(function.value)
    if root in place.modules or names.traced_in(root, place.traced) or any(a.keyword for a in call.args):
        return False
    return any(call is c for c in place.on_line(cst.Call))


def _resolved(place: Place, dotted: str) -> str:
    root, _, rest = dotted.partition(".")
    module = place.modules.get(root)
    if module is None:
        return ""
    return f"{module}.{rest}" if rest else module


def counterpart(place: Place, dotted: str) -> str | None:
    """The jax function for a numpy, math or scipy function under the notebook's name for it."""
    import importlib

    full = _resolved(place, dotted)
    module, _, name = full.partition(".")
    if module == "math" and name:
        if name in SPECIAL:
            return f"{place.jax}.scipy.special.{SPECIAL[name]}"
        return _existing(place, MATH.get(name, name))
    if module == "numpy" and name:
        if name.partition(".")[0] in NO_COUNTERPART:
            return None
        return _existing(place, name)
    if module == "scipy" and name:
        try:
            home, _, last = f"jax.{full}".rpartition(".")
            if hasattr(importlib.import_module(home), last):
                return f"{place.jax}.{full}"
        except ImportError:
            return None
    return None


def _existing(place: Place, name: str) -> str | None:
    import jax.numpy

    found: Any = jax.numpy
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{place.jnp}.{name}" if found is not None else None

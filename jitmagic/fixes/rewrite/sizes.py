"""Sizes that must be known: shape arithmetic without jnp, slices of fixed width, results with a `size=`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import assigned, stripped

MOVED = "a window that would reach beyond the end is moved back"
KINDS = ("tracer-int", "dynamic-shape", "tracer-array-conversion", "user-error")


def candidates(place: Place) -> Iterator[Candidate]:
    """Ways to a static size, the exact ones first."""
    if place.kind not in KINDS:
        return
    yield from _counted_from(place)
    yield from _shape_arithmetic(place)
    yield from _slices(place)


def _counted_from(place: Place) -> Iterator[Candidate]:
    """`jnp.arange(i, i + n)` with a fixed `n` as `i + jnp.arange(n)`."""
    import libcst as cst

    for call in place.on_line(cst.Call):
        if place.cell.code(call.func) != f"{place.jnp}.arange" or len(call.args) != 2:
            continue
        if any(a.keyword or a.star for a in call.args):
            continue
        low, high = (stripped(place.cell.code(a.value)) for a in call.args)
        width = difference(high, low)
        if width is not None and not names.traced_in(width, place.traced):
            new = f"{low} + {place.jnp}.arange({width})"
            parent = place.cell.parents.get(call)
            bare = isinstance(parent, (cst.Assign, cst.Return, cst.Arg, cst.Index))
            changed = place.cell.edit({call: new if bare else f"({new})"})
            yield Candidate("count a fixed number of steps from a start that may be traced", changed)


# -- shape arithmetic


def _shape_arithmetic(place: Place) -> Iterator[Candidate]:
    """jnp calls on shapes and static numbers, as numpy or math calls that give plain integers."""
    import libcst as cst

    sources = _sources(place)
    on_line = place.on_line(cst.Call)
    sources += [c for c in on_line if c not in sources]
    for static in ((), _scalars(place)):
        changes: dict[Any, str | None] = {}
        for source in sources:
            if any(a in changes for a in place.cell.ancestors(source)):
                continue
            if names.traced_in(place.cell.code(source), _inputs(place) - set(static)):
                continue
            new = _as_python(place, source)
            if new is not None:
                changes[source] = new
        if changes:
            used = tuple(
                n for n in static
                if any(n in names.loads(place.cell.code(c)) for c in changes)
            )  # fmt: skip
            if static and not used:
                continue
            yield Candidate("compute the size with NumPy or `math`, not with `jnp`", place.cell.edit(changes),
                            "unsafe" if used else "safe",
                            "each new value compiles again" if used else "", static=used)  # fmt: skip


def _sources(place: Place) -> list[Any]:
    """What gives the names on the line their values, and the names in that theirs."""
    import libcst as cst

    found: list[Any] = []
    waiting = list(place.on_line(cst.Name))
    while waiting and len(found) < _FOLLOWED:
        value = assigned(place, waiting.pop(0))
        if value is not None and value not in found:
            found.append(value)
            waiting += place.cell.within(value, cst.Name)
    return found


_FOLLOWED = 20
"""How many assignments are looked at for the origin of a size."""


def _inputs(place: Place) -> set[str]:
    """Traced names apart from those that jnp makes of shapes alone."""
    if place.outermost is None:
        return set(place.names)
    import re

    bare = re.sub(rf"\b({re.escape(place.jnp)}|jax|lax)\.", "_plain_.", place.cell.code(place.outermost))
    return names.traced_names(bare, place.known)


def _scalars(place: Place) -> tuple[str, ...]:
    """Parameters of the function under test that are Python numbers, which could be static."""
    return tuple(n for n in place.scalars if n not in place.static)


_TO_MATH = {
    "prod": "prod",
    "ceil": "ceil",
    "floor": "floor",
    "sqrt": "sqrt",
    "log2": "log2",
    "log": "log",
    "exp": "exp",
}
_WHOLE = ("prod", "ceil", "floor")
_NUMBERS = frozenset(
    "prod ceil floor sqrt log log2 log10 exp sum max min maximum minimum abs absolute round rint trunc add subtract "
    "multiply divide floor_divide true_divide mod remainder power size array asarray int32 int64 clip".split()
)
"""Functions of `jnp` that sizes are computed with."""


def _as_python(place: Place, node: Any) -> str | None:
    """The expression with jnp functions as those of math or numpy, as an int; None where it has none."""
    import libcst as cst

    code = place.cell.code(node)
    if f"{place.jnp}." not in code and f"{place.lax}." not in code:
        return None
    if isinstance(node, cst.Subscript):
        base = _without_array(place, node.value)
        return base + code[len(place.cell.code(node.value)) :] if isinstance(node.value, cst.Call) else None
    if not isinstance(node, cst.Call):
        inner = [c for c in place.cell.within(node, cst.Call) if f"{place.jnp}." in place.cell.code(c.func)]
        outer = [c for c in inner if not any(a in inner for a in list(place.cell.ancestors(c))[1:])]
        new = code
        for call in outer:
            text = _as_python(place, call)
            if text is None:
                return None
            new = new.replace(place.cell.code(call), text, 1)
        return new
    function = place.cell.code(node.func)
    if isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Call):
        whole = node.func.attr.value in ("astype", "item") and len(node.args) < 2
        return _as_python(place, node.func.value) if whole else f"int({_numpy_text(place, node)})"
    if function in ("int", "float") and len(node.args) == 1:
        inner_call = node.args[0].value
        text = _numpy_text(place, inner_call)
        if isinstance(inner_call, cst.Call):
            single = _with_math(place, inner_call)
            if single is not None:
                return single
        return f"{function}({text})"
    if not function.startswith((f"{place.jnp}.", "lax.", f"{place.jax}.lax.")):
        return None
    if function.rpartition(".")[2] not in _NUMBERS:
        return None
    single = _with_math(place, node) or _with_operator(place, node)
    if single is not None:
        return single
    return f"int({_numpy_text(place, node)})"


_OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "floor_divide": "//",
    "mod": "%",
    "remainder": "%",
}


def _with_operator(place: Place, call: Any) -> str | None:
    """`jnp.add(n, 1)` as `n + 1`, `jnp.maximum(n, 1)` as `max(n, 1)`; None for what is no such call."""
    import libcst as cst

    name = place.cell.code(call.func).rpartition(".")[2]
    values = [a.value for a in call.args if a.keyword is None and not a.star]
    if len(values) != 2 or len(call.args) != 2 or any(place.cell.within(v, cst.Call) for v in values):
        return None
    texts = [place.cell.code(v) for v in values]
    if name in _OPERATORS:
        return f" {_OPERATORS[name]} ".join(map(names.wrapped, texts))
    if name in ("maximum", "minimum"):
        return f"{name[:3]}({', '.join(texts)})"
    return None


def _with_math(place: Place, call: Any) -> str | None:
    """`jnp.ceil(a)` as `math.ceil(a)`, where the notebook has math and the result is whole."""
    function = place.cell.code(call.func)
    name = function.rpartition(".")[2]
    if "math" not in place.modules or name not in _WHOLE or len(call.args) != 1:
        return None
    return f"{place.alias('math')}.{_TO_MATH[name]}({_without_array(place, call.args[0].value)})"


def _without_array(place: Place, node: Any) -> str:
    """`jnp.array(shape)` as `shape`."""
    import libcst as cst

    if isinstance(node, cst.Call) and place.cell.code(node.func) in (
        f"{place.jnp}.array",
        f"{place.jnp}.asarray",
    ):
        if len(node.args) >= 1:
            return place.cell.code(node.args[0].value)
    return _numpy_text(place, node)


def _numpy_text(place: Place, node: Any) -> str:
    """Source with jnp functions as numpy's; arrays made of tuples inside a call are the tuples themselves."""
    import libcst as cst

    if isinstance(node, cst.Call) and place.cell.code(node.func).startswith(f"{place.jnp}."):
        name = place.cell.code(node.func)[len(place.jnp) + 1 :]
        arguments = ", ".join(
            (f"{a.keyword.value}=" if a.keyword else "") + _without_array(place, a.value) for a in node.args
        )
        return f"{place.alias('numpy')}.{name}({arguments})"
    return place.cell.code(node).replace(f"{place.jnp}.", f"{place.alias('numpy')}.")


# -- slices


def _slices(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    for node in place.on_line(cst.Subscript):
        stored = _stored(place, node)
        if stored is None:
            new = dynamic_slice(place, node)
            if new is not None:
                yield Candidate("take a window of fixed width with `jax.lax.dynamic_slice_in_dim`",
                                place.cell.edit({node: new}), "unsafe", MOVED)  # fmt: skip
        else:
            yield from _update_slice(place, node, stored)


def _stored(place: Place, node: Any) -> Any:
    """The assignment or the `.at[...].set(v)` call that stores into the subscript, or None."""
    import libcst as cst

    parent = place.cell.parents.get(node)
    if isinstance(parent, cst.AssignTarget):
        return place.cell.parents.get(parent)
    if (
        isinstance(node.value, cst.Attribute)
        and node.value.attr.value == "at"
        and isinstance(parent, cst.Attribute)
    ):
        call = place.cell.parents.get(parent)
        return call if isinstance(call, cst.Call) and call.func is parent else None
    return None


def window(place: Place, piece: Any) -> tuple[str, str] | None:
    """Start and width of a slice whose width is static; None where it has none."""
    import libcst as cst

    if not isinstance(piece, cst.Slice) or piece.upper is None or piece.step is not None:
        return None
    lower = piece.lower
    if lower is None:
        return None
    a, b = stripped(place.cell.code(lower)), stripped(place.cell.code(piece.upper))
    width = difference(b, a)
    if width is None or names.traced_in(width, place.traced):
        return None
    return a, width


def difference(upper: str, lower: str) -> str | None:
    """`upper - lower` where the traced part cancels: `(i + 1) * b` less `i * b` is `b`."""
    a, b = _terms(ast.parse(upper, mode="eval").body), _terms(ast.parse(lower, mode="eval").body)
    if a is None or b is None:
        return None
    total = dict(a)
    for key, number in b.items():
        total[key] = total.get(key, 0) - number
    total = {k: v for k, v in total.items() if v}
    if not total:
        return None
    parts: list[str] = []
    for key, number in sorted(total.items(), key=lambda kv: (kv[0] == (), kv[1] < 0)):
        factors = [n if n.isidentifier() or "." in n else f"({n})" for n in key]
        size = abs(number)
        text = " * ".join([*([str(size)] if size != 1 or not factors else []), *factors])
        parts.append(("- " if number < 0 else "+ ") + text)
    whole = " ".join(parts)
    return whole[2:] if whole.startswith("+ ") else f"-{whole[2:]}"


def _terms(node: ast.AST) -> dict[tuple[str, ...], int] | None:
    """A sum of products as numbers by their factors; anything that is no sum or product is a factor."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return {(): node.value}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _terms(node.operand)
        return None if inner is None else {k: -v for k, v in inner.items()}
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        a, b = _terms(node.left), _terms(node.right)
        if a is None or b is None:
            return None
        out: dict[tuple[str, ...], int] = {}
        if isinstance(node.op, ast.Mult):
            for k, v in a.items():
                for m, w in b.items():
                    key = tuple(sorted((*k, *m)))
                    out[key] = out.get(key, 0) + v * w
            return out
        out = dict(a)
        sign = 1 if isinstance(node.op, ast.Add) else -1
        for m, w in b.items():
            out[m] = out.get(m, 0) + sign * w
        return out
    return {(ast.unparse(node),): 1}


def dynamic_slice(place: Place, node: Any) -> str | None:
    """`x[a:a + n]` as `dynamic_slice_in_dim`, axis by axis; other indices follow behind."""
    import libcst as cst

    text, rest, moved = stripped(place.cell.code(node.value)), [], False
    text = names.wrapped(text)
    for axis, element in enumerate(node.slice):
        piece = element.slice
        if isinstance(piece, cst.Index):
            if isinstance(piece.value, cst.Ellipsis) or place.cell.code(piece.value) == "None":
                return None
            rest.append(place.cell.code(piece.value))
            continue
        found = window(place, piece) if traced_slice(place, piece) else None
        if found is None:
            if traced_slice(place, piece):
                return None
            rest.append(place.cell.code(piece))
            continue
        start, width = found
        where = f", axis={axis}" if axis else ""
        text = f"{place.lax}.dynamic_slice_in_dim({text}, {start}, {width}{where})"
        rest.append(":")
        moved = True
    if not moved:
        return None
    while rest and rest[-1] == ":":
        rest.pop()
    return f"{text}[{', '.join(rest)}]" if rest else text


def traced_slice(place: Place, piece: Any) -> bool:
    """A bound of the slice has no value while jax traces."""
    return any(
        bound is not None and names.traced_in(place.cell.code(bound), place.traced)
        for bound in (piece.lower, piece.upper)
    )


def _update_slice(place: Place, node: Any, stored: Any) -> Iterator[Candidate]:
    """`x[a:a + n] = v` and `x.at[a:a + n].set(v)` as `dynamic_update_slice_in_dim`."""
    import libcst as cst

    if len(node.slice) != 1:
        return
    found = window(place, node.slice[0].slice)
    if found is None:
        return
    start, width = found
    if isinstance(stored, cst.Assign):
        base, value = place.cell.code(node.value), place.cell.code(stored.value)
    else:
        if stored.func.attr.value != "set" or len(stored.args) != 1:
            return
        base, value = place.cell.code(node.value.value), place.cell.code(stored.args[0].value)
    spread = f"{place.jnp}.broadcast_to({value}, ({width}, *{base}.shape[1:]))"
    for form in (value, spread):
        new = f"{place.lax}.dynamic_update_slice_in_dim({base}, {form}, {start}, axis=0)"
        text = f"{base} = {new}" if isinstance(stored, cst.Assign) else new
        yield Candidate("store a window of fixed width with `jax.lax.dynamic_update_slice_in_dim`",
                        place.cell.edit({stored: text}), "unsafe", MOVED)  # fmt: skip

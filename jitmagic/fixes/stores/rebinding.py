"""What a statement changes in place, as a name that it binds anew: `x[i] = v` as `x = x.at[i].set(v)`.

Subscripts and views are peeled off from the outside: that `m.T[0]` becomes `v` means that `m.T` becomes
`m.T.at[0].set(v)`, and so that `m` becomes `m.T.at[0].set(v).T`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from jitmagic.fixes.branches.truth import is_boolean
from jitmagic.fixes.change import Spot
from jitmagic.source import scope
from jitmagic.source.edits import Edits, FunctionNode, shifted
from jitmagic.source.pattern import Match, Pattern, atom, bare, expression, in_brackets, same

SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.FloorDiv: "//", ast.Mod: "%",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_METHODS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power",
}  # fmt: skip

_VIEWS = [(Pattern(view), read, back) for view, read, back in (
    ("$x.T", "$x.T", "$new.T"),
    ("transpose($x)", "$x.T", "$new.T"),
    ("$x.flat", "$x.ravel()", "$new.reshape($x.shape)"),
    ("ravel($x)", "$x.ravel()", "$new.reshape($x.shape)"),
    ("reshape($x, $*r)", "$x.reshape($*r)", "$new.reshape($x.shape)"),
    ("squeeze($x, $*r)", "jnp.squeeze($x, $*r)", "$new.reshape($x.shape)"),
    ("swapaxes($x, $a, $b)", "jnp.swapaxes($x, $a, $b)", "jnp.swapaxes($new, $a, $b)"),
    ("$x.real", "$x.real", "jax.lax.complex($new, $x.imag)"),
    ("$x.imag", "$x.imag", "jax.lax.complex($x.real, $new)"),
)]  # fmt: skip
"""Views of NumPy, how jax reads them, and the array whose view is `$new`."""

_IN_PLACE = [(Pattern(call), after) for call, after in (
    ("add.at($x, $i, $v)", "$x.at[$$i].add($v)"),
    ("subtract.at($x, $i, $v)", "$x.at[$$i].subtract($v)"),
    ("multiply.at($x, $i, $v)", "$x.at[$$i].multiply($v)"),
    ("divide.at($x, $i, $v)", "$x.at[$$i].divide($v)"),
    ("maximum.at($x, $i, $v)", "$x.at[$$i].max($v)"),
    ("minimum.at($x, $i, $v)", "$x.at[$$i].min($v)"),
    ("fill_diagonal($x, $v)", "jnp.fill_diagonal($x, $v, inplace=False)"),
    ("put($x, $i, $v)", "jnp.put($x, $i, $v, inplace=False)"),
    ("put_along_axis($x, $i, $v, $*r)", "jnp.put_along_axis($x, $i, $v, $*r, inplace=False)"),
    ("copyto($x, $v, where=$m)", "jnp.where($m, $v, $x)"),
    ("copyto($x, $v)", "jnp.broadcast_to($v, $x.shape)"),
    ("putmask($x, $m, $v)", "jnp.where($m, $v, $x)"),
    ("$x.fill($v)", "jnp.full_like($x, $v)"),
    ("$x.sort($*r)", "jnp.sort($x, $*r)"),
    ("$x.partition($k, $*r)", "jnp.partition($x, $k, $*r)"),
    ("$f($*a, out=$x, where=$m)", "jnp.where($m, $$f($*a), $x)"),
    ("$f($*a, out=$x)", "$$f($*a)"),
)]  # fmt: skip
"""Calls that change `$x`, and what it is after them."""


@dataclass(frozen=True)
class Stores:
    """What a statement binds anew: names (`x`, `self.w`, `p['w']`) and their new values."""

    values: dict[str, str]
    head: str = ""
    """Statements that have to stand before."""

    @property
    def code(self) -> str:
        """What takes the place of the statement."""
        return f"{self.head}{', '.join(self.values)} = {', '.join(self.values.values())}"


def rebinding(spot: Spot, statement: ast.stmt) -> tuple[str, str] | None:
    """The name that a store into items (`x[i] = v`, `self.w[i] += v`, `p['w'][i] = v`) binds anew, and its new value;
    None for other statements, and for stores into several arrays."""
    found = stores_of(spot, statement)
    if found is None or found.head or len(found.values) != 1:
        return None
    return next(iter(found.values.items()))


def rebound(spot: Spot, statements: Sequence[ast.stmt]) -> str:
    """Source of statements in which stores into items bind names anew."""
    return rebindings(spot, statements).block(statements) if statements else ""


def rebindings(spot: Spot, statements: Iterable[ast.stmt]) -> Edits:
    """Stores into items in these statements as rebinding of names; not those of functions in them."""
    edits = spot.edits()
    for statement in statements:
        for inner in spot.text.own(statement, ast.Assign, ast.AugAssign, ast.Expr):
            if not isinstance(statement, FunctionNode) and (found := stores_of(spot, inner)) is not None:
                put(edits, inner, found.code)
    return edits


def put(edits: Edits, statement: ast.stmt, code: str) -> None:
    """Source in the place of a statement, which may share its line where it stays one."""
    several = len(ast.parse(code).body) > 1
    edits.statements(statement, code) if several else edits.replace(statement, code)


def stores_of(spot: Spot, statement: ast.stmt, wrapped: Collection[str] = ()) -> Stores | None:
    """What a statement changes in place, and names that it binds beside; None where it changes nothing. Arrays that
    are `wrapped` are made arrays of jax first."""
    place, head = _Places(spot, wrapped), ""
    if isinstance(statement, ast.Expr):
        found = [place.changed(statement.value)]
    else:
        head, parts = _parts(spot, statement)
        if not any(isinstance(p.target, ast.Subscript) for p in parts):
            return None
        found = [place.stored(p) for p in parts]
    margin, values = " " * statement.col_offset, {}
    for pair in found:
        if pair is None:
            return None
        values[pair[0]] = shifted(pair[1], margin, "")
    return Stores(values, head)


def is_entry(spot: Spot, node: ast.Subscript, *, ask: bool = False) -> bool:
    """`params["w"]`, and `params[name]` of a dict or list: an entry, not an element of an array. `ask`: a run without
    jit is asked where nothing else tells."""
    if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return True
    if isinstance(node.slice, ast.Slice | ast.Tuple):
        return False
    code = spot.code(node.value)
    path = code.replace('"', "'")
    if any(n.startswith(f"{path}['") for n in spot.names):
        return True
    if any(n.startswith(f"{path}[") for n in spot.numpy_arguments):
        return True
    made = spot.assigned(path)
    if isinstance(made, ast.Dict | ast.DictComp | ast.List | ast.ListComp):
        return True
    if not ask or path in spot.numpy_arguments or made is not None and spot.full(made):
        return False
    asked = f"[{code}, __seen__(int(isinstance({code}, (list, dict))))][0]"
    return any(s.value for s in spot.probed(spot.edits().replace(node.value, asked)))


# --- the parts of a statement -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A target, and what is stored there: the method of `.at[...]`, its value, and the node where it is one."""

    target: ast.expr
    method: str
    value: str
    node: ast.expr | None = None


def _parts(spot: Spot, statement: ast.stmt) -> tuple[str, list[_Part]]:
    """Statements that have to stand before, and the single stores."""
    if isinstance(statement, ast.AugAssign):
        stored, node, sign = statement.target, statement.value, SIGNS[type(statement.op)]
        value = _behind(spot, statement, stored, f"{sign}=")
        if method := _METHODS.get(type(statement.op)):
            return "", [_Part(stored, method, _array(spot, node, value), node)]
        return "", [_Part(stored, "set", f"{spot.code(stored)} {sign} {atom(value)}")]
    if not isinstance(statement, ast.Assign):
        return "", []
    given: ast.expr | None = statement.value
    value, head = _array(spot, statement.value, _behind(spot, statement, statement.targets[-1], "=")), ""
    if len(statement.targets) > 1 and not isinstance(given, ast.Constant | ast.Name):
        own, given = spot.fresh("value"), None
        value, head = own, f"{own} = {shifted(value, ' ' * statement.col_offset, '')}\n"
    parts: list[_Part] = []
    for target in statement.targets:
        if not isinstance(target, ast.Tuple | ast.List):
            parts.append(_Part(target, "set", value, given))
        elif isinstance(given, ast.Tuple) and len(given.elts) == len(target.elts):
            pairs = zip(target.elts, given.elts, strict=True)
            parts += [_Part(t, "set", _array(spot, v, spot.code(v)), v) for t, v in pairs]
        else:
            names: list[str] = []
            for _ in target.elts:
                names.append(spot.text.fresh("new", taken=(*spot.modules.names, *names)))
            head += f"{', '.join(names)} = {value}\n"
            parts += [_Part(t, "set", name) for t, name in zip(target.elts, names, strict=True)]
    return head, parts


def _behind(spot: Spot, statement: ast.stmt, target: ast.expr, sign: str) -> str:
    """What stands behind a sign, with its comments; brackets around lines are those of the call that it goes into."""
    start, end = spot.text.span(target)[1], spot.text.span(statement)[1]
    code = spot.text.plain[start:end].lstrip(" )").removeprefix(sign).strip()
    if in_brackets(code) and "\n" in code and not isinstance(expression(code), ast.Tuple):
        return code[1:-1]
    return code


def _array(spot: Spot, node: ast.expr, code: str) -> str:
    """A value as jax takes it: lists and tuples are arrays there."""
    if isinstance(node, ast.List | ast.Tuple):
        return spot.write("jnp.array($value)", value=bare(code))
    return code


# --- places and what they are part of -----------------------------------------------------------------


class _Places:
    """Reads and binds places. A name that was bound is read by its new value from then on."""

    def __init__(self, spot: Spot, wrapped: Collection[str]) -> None:
        self.spot, self.wrapped = spot, wrapped
        self.bound: dict[str, str] = {}

    def stored(self, part: _Part) -> tuple[str, str] | None:
        """The name that a store binds, and its new value."""
        target, new = part.target, part.value
        if isinstance(target, ast.Subscript):
            if is_entry(self.spot, target):
                return None
            if (mask := masked(self.spot, target.value, target.slice)) is not None:
                x = self.source(target.value, as_it_is=not mask.beside)
                return self.become(target.value, mask.updated(self.spot, x, part.method, new, part.node))
            array, index = _taken(self.spot, target)
            return self.become(array, f"{self.source(array)}.at[{index}].{part.method}({new})")
        return (self.spot.code(target), new) if is_path(self.spot, target) else None

    def changed(self, call: ast.expr) -> tuple[str, str] | None:
        """The name that a call changes, and what it is then: `np.add.at(x, i, v)`, `x.sort()`."""
        for pattern, after in _IN_PLACE:
            found = pattern.match(call, self.spot.modules)
            if found is None or not isinstance(call, ast.Call):
                continue
            place, function = found.expr("x"), self.spot.full(call)
            if self.spot.full(place) or function and not function.startswith("numpy."):
                return None
            own = self.spot.write(f"jnp.{function[6:]}") if function else self.spot.code(call.func)
            holes = {**found.holes, "x": self.source(place) if ".at[" in after else place, "f": own}
            if ".at[" in after:
                holes["i"] = _index(self.spot, found.expr("i"))
            return self.become(place, self.spot.write(after, **holes))
        return None

    def become(self, place: ast.expr, new: str) -> tuple[str, str] | None:
        """The name that is bound so that `place` becomes `new`, and its value."""
        if is_path(self.spot, place):
            name = self.spot.code(place)
            self.bound[name] = new
            return name, new
        if (view := self._view(place)) is not None:
            found, _, back = view
            inner = found.expr("x")
            holes = {**found.holes, "x": self.source(inner, as_it_is=True), "new": new}
            return self.become(inner, self.spot.write(back, **holes))
        if isinstance(place, ast.Subscript):
            inner, index = _taken(self.spot, place)
            return self.become(inner, f"{self.source(inner)}.at[{index}].set({new})")
        return None

    def source(self, place: ast.expr, *, as_it_is: bool = False) -> str:
        """How a place is read where arrays are those of jax; `as_it_is`: by a function that takes others too."""
        code = self.spot.code(place)
        if code in self.bound:
            return self.bound[code]
        if code in self.wrapped and not as_it_is:
            return self.spot.write("jnp.asarray($x)", x=place)
        if (view := self._view(place)) is not None:
            found, read, _ = view
            return self.spot.write(read, **{**found.holes, "x": self.source(found.expr("x"))})
        if isinstance(place, ast.Subscript) and not is_path(self.spot, place):
            return f"{self.source(place.value)}[{self.spot.code(place.slice)}]"
        return code

    def _view(self, place: ast.expr) -> tuple[Match, str, str] | None:
        for pattern, read, back in _VIEWS:
            if (found := pattern.match(place, self.spot.modules)) is not None:
                return found, read, back
        return None


def _taken(spot: Spot, node: ast.Subscript) -> tuple[ast.expr, str]:
    """`x` and `i, j` of `x[i][j]`; what a slice takes is indexed by itself."""
    indices: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Subscript) and (
        inner is node or not _holds_slice(inner) and not is_entry(spot, inner, ask=True)
    ):
        indices.insert(0, _index(spot, inner.slice))
        inner = inner.value
    return inner, ", ".join(indices)


def _holds_slice(node: ast.Subscript) -> bool:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(p, ast.Slice) or getattr(p, "value", 0) in (None, ...) for p in parts)


def _index(spot: Spot, index: ast.expr) -> str:
    """An index as jax takes it: lists are arrays there."""
    edits = spot.edits()
    for part in index.elts if isinstance(index, ast.Tuple) else [index]:
        if isinstance(part, ast.List):
            edits.replace(part, spot.write("jnp.array($part)", part=part))
    code = edits.code(index)
    return (code[1:-1] if isinstance(index, ast.Tuple) and in_brackets(code) else code).rstrip(", ")


def is_path(spot: Spot, node: ast.expr) -> bool:
    """A name, or what attributes and keys lead to from one: `params["head"]`, `net.layers[0].w`."""
    if isinstance(node, ast.Subscript):
        return is_entry(spot, node, ask=True) and is_path(spot, node.value)
    if isinstance(node, ast.Attribute):
        return node.attr not in ("T", "flat", "real", "imag") and is_path(spot, node.value)
    return isinstance(node, ast.Name)


AFTER = {
    "set": "$value", "add": "$x + $value", "subtract": "$x - $value", "multiply": "$x * $value",
    "divide": "$x / $value", "power": "$x ** $value", "max": "jnp.maximum($x, $value)",
    "min": "jnp.minimum($x, $value)",
}  # fmt: skip
"""What an array is after methods of `.at[...]`."""


@dataclass(frozen=True)
class MaskedUpdate:
    """An index that holds a mask, the array, and the index with a colon in place of the mask where more is in it."""

    array: ast.expr
    index: ast.expr
    mask: ast.expr
    beside: str = ""
    gone: int = 0
    """Axes that the index takes away, or that stand before the mask."""

    def updated(self, spot: Spot, x: str, method: str, value: str, node: ast.expr | None) -> str:
        """The array, as `x`, after an update; what the same mask selects in the value is taken as a whole."""
        part = f"{x}[{self.beside}]" if self.beside else x
        if node is not None:
            edits = spot.edits()
            for selected in spot.text.within(node, ast.Subscript):
                if same(selected.slice, self.index):
                    whole = spot.code(selected.value)
                    edits.replace(selected, f"{whole}[{self.beside}]" if self.beside else whole)
            value = edits.code(node) if edits else value
        after = spot.write(AFTER[method], x=part, value=value)
        new = spot.write("jnp.where($mask, $after, $x)", mask=self._spread(spot), after=after, x=part)
        return f"{x}.at[{self.beside}].set({new})" if self.beside else new

    def _spread(self, spot: Spot) -> str:
        """The mask with an axis for each that the array has behind its own."""
        code = spot.code(self.mask)
        if self.beside or not scope.loads(self.array) & scope.loads(self.mask):
            axes = [{len(s.shape) for s in spot.seen(n)} for n in (self.array, self.mask)]
            if len(axes[0]) == len(axes[1]) == 1:
                behind = axes[0].pop() - axes[1].pop() - self.gone
                return f"{atom(code)}[..., {', '.join(['None'] * behind)}]" if behind > 0 else code
        return code


def masked(spot: Spot, array: ast.expr, index: ast.expr, *, ask: bool = False) -> MaskedUpdate | None:
    """What an index selects by a mask: `x[mask]`, `x[mask, 0]`; None for others. `ask`: a run without jit is asked."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    found = [p for p in parts if not isinstance(p, ast.Slice) and _is_mask(spot, p, ask=ask)]
    if len(found) != 1 or isinstance(index, ast.Tuple) and len(parts) == 1:
        return None
    if len(parts) == 1:
        return MaskedUpdate(array, index, index)
    at = parts.index(found[0])
    beside = ", ".join(":" if p is found[0] else spot.code(p) for p in parts)
    gone = at + sum(not isinstance(p, ast.Slice) for p in parts[at + 1 :])
    return MaskedUpdate(array, index, found[0], beside, gone)


def _is_mask(spot: Spot, index: ast.expr, *, ask: bool) -> bool:
    inverted = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert)
    if inverted or not isinstance(index, ast.Constant) and is_boolean(spot, index):
        return True
    seen = spot.seen(index) if ask and isinstance(index, ast.Name | ast.Attribute | ast.Subscript) else []
    return bool(seen) and all(s.dtype == "bool" and s.shape for s in seen)

"""Calls on arrays of which a part counts: reductions with the mask, functions element by element, products."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from dataclasses import replace

from jitmagic.fixes.sizes import reductions
from jitmagic.fixes.sizes.indexing import Items
from jitmagic.fixes.sizes.masked_expressions import Value, is_constant
from jitmagic.fixes.sizes.masks import Axes, Length, Mask, Masked, Unsupported
from jitmagic.source import scope
from jitmagic.source.edits import FunctionNode
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Match, Pattern

_LETTERS = "abcdefghijklmnopqrstuvw"
_REFUSED = frozenset(("where", "initial", "weights", "out", "descending", "reverse"))


class MaskedCalls(Items):
    """Lowers calls and products."""

    sized: set[str]
    """Variables whose value is needed as the length of a whole axis."""
    selecting: FunctionNode | None = None
    """A function which selects by itself what it returns."""

    def followed(self, called: ast.expr) -> FunctionNode | None:
        """The function of the cell that is called."""
        raise NotImplementedError

    def inside(self, node: ast.Call) -> Value:
        """What a function of the cell gives for selections."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> Value:
        """What a call gives: by its row in the tables, element by element, or without any selection."""
        name, full = last_name(node.func), self.spot.full(node)
        python = isinstance(node.func, ast.Name) and not full
        if not python or (hasattr(builtins, name) and self.spot.text.definition(name) is None):
            for pattern, template, handle in _ROWS.get(name, ()):
                if (match := pattern.match(node, self.spot.modules)) is not None:
                    return handle(self, node, match, template)
        given = [*node.args, *(k.value for k in node.keywords)]
        positions = name == "where" and len(given) < 3
        if (reductions.is_elementwise(full) and not positions) or (python and name == "abs"):
            return self.each(node, given)
        if isinstance(node.func, ast.Attribute) and name in reductions.METHODS:
            return self.each(node, [node.func.value, *given])
        if (mapped := self._mapped(node.func)) is not None:
            self.dense(mapped)
            return self._by_rows(node, [v for a in node.args if (v := self.masked(a)) is not None])
        before = dict(self.edits.changes)
        values = [self.value(g) for g in given if not isinstance(g, ast.Starred)]
        function = self.followed(node.func)
        selected = any(isinstance(v, Masked) or v and function for v in values)
        if selected or function is self.selecting is not None:
            return self.inside(node)
        self.parts(node)
        if python and name in ("float", "int") and self.edits.changes != before:
            self.edits.replace(node, self.edits.code(node.args[0]))  # there is no number yet
        return None

    def _none(self, node: ast.expr) -> Value:
        """A call that no selection goes into."""
        self.parts(node)
        return None

    def _write(self, node: ast.expr, match: Match, template: str, **more: str) -> None:
        self.edits.replace(node, self.spot.write(template, self.edits, **match.holes, **more))

    def several(self, node: ast.Call) -> tuple[Masked | None, ...] | None:
        """The same, part by part; None where there are none."""
        raise NotImplementedError

    # -- over axes and along them

    def reduced(self, node: ast.Call, match: Match, template: str) -> Value:
        """A function over some axes, which are gone then."""
        value = self.masked(match.expr("x"))
        if value is None or (isinstance(node.func, ast.Name) and not self.spot.full(node) and match.rest()):
            return self._none(node)  # `max(a, b)`
        axes, kept = self._axes(value, match, None)
        self._over(node, match, template, value, axes)
        return value.without(axes, kept=kept)

    def first_place(self, node: ast.Call, match: Match, template: str) -> Value:
        """A position, which is that in the selection only where what counts comes first."""
        value = self.masked(match.expr("x"))
        if value is not None and not all(m.leading for _, m in value.axes):
            raise Unsupported
        return self.reduced(node, match, template)

    def along(self, node: ast.Call, match: Match, template: str) -> Value:
        """A function along an axis that stays."""
        value, name = self.masked(match.expr("x")), last_name(node.func)
        if value is None:
            return self._none(node)
        axes, _ = self._axes(value, match, None if name in reductions.IN_TURN else -1)
        met = [m for a, m in value.axes if a in axes]
        leading = all(m.leading for m in met)
        if len(axes) > 1 or (name in reductions.IN_ORDER and not leading):
            raise Unsupported
        if not (name in reductions.IN_TURN and leading):
            self._over(node, match, template, value, axes)
        return replace(value, zero=frozenset(axes if name == "softmax" else ()), holds="")

    def triangle(self, node: ast.Call, match: Match, template: str) -> Value:
        """`jnp.tril(x)`, where what counts comes first along each axis."""
        value = self.masked(match.expr("x"))
        self.dense(*(r.value if isinstance(r, ast.keyword) else r for r in match.rest()))
        if value is not None and not all(m.leading for m in value.masks):
            raise Unsupported
        return value

    def turned(self, node: ast.Call, match: Match, template: str) -> Value:
        """`x.swapaxes(a, b)`, `x.transpose(...)`."""
        value = self.masked(match.expr("x"))
        if value is None:
            return self._none(node)
        given = [k for r in match.rest() if isinstance(r, ast.expr) for k in _constant(r) or ()]
        order = list(range(value.rank))
        if last_name(node.func) != "swapaxes":
            return value.turned(given or order[::-1])
        a, b = given
        order[a], order[b] = order[b], order[a]
        return value.turned(order)

    def expanded(self, node: ast.Call, match: Match, template: str) -> Value:
        """`jax.nn.one_hot(x, k)`: one axis more, behind the others."""
        value = self.masked(match.expr("x"))
        self.dense(match.expr("k"))
        return Masked(value.rank + 1, value.axes) if value is not None else None

    def picked(self, node: ast.Call, match: Match, template: str) -> Value:
        """`jnp.take_along_axis(x, i, axis=k)`, along an axis of which all counts."""
        value, places = self.masked(match.expr("x")), self.masked(match.expr("i"))
        if value is None and places is None:
            return self._none(node)
        if value is None or places is None or value.wide or value.axes != places.axes:
            raise Unsupported
        axes, _ = self._axes(value, match, None)
        if any(axis in axes for axis, _ in value.axes):
            raise Unsupported
        return places

    def taken(self, node: ast.Call, match: Match, template: str) -> Value:
        """`jnp.take(x, i, axis=k)`: rows by their numbers, as many as the index counts."""
        value, places = self.masked(match.expr("x")), self.masked(match.expr("i"))
        if value is None and places is None:
            return self._none(node)
        rank = self.rank(match.expr("x"))
        axes, _ = self._axes(Masked(rank, ()), match, None)
        if value is not None or places is None or places.holds or any(m.rank > 1 for m in places.masks):
            raise Unsupported
        return Masked(rank - len(axes) + places.rank, tuple((axes[0] + a, m) for a, m in places.axes))

    def differences(self, node: ast.Call, match: Match, template: str) -> Value:
        """`jnp.diff(x)`: one less, where what counts comes first."""
        value = self.masked(match.expr("x"))
        if value is None:
            return self._none(node)
        axis = int(template) % value.rank
        return Masked(value.rank, tuple((a, m.cut(first=1) if a == axis else m) for a, m in value.axes))

    def _over(self, node: ast.expr, match: Match, template: str, value: Masked, axes: Sequence[int]) -> None:
        """Write the call with the masks of these axes, where they have any."""
        if not any(a in axes for a, _ in value.axes):
            return
        x = match.expr("x")
        types = {s.dtype for s in self.spot.seen(x)}
        ends = "-jnp.inf", "jnp.inf"
        if types and all(t.startswith(("int", "uint")) for t in types):
            dtype = "$x.dtype" if is_constant(x) else f"jnp.{types.pop()}"
            ends = f"jnp.iinfo({dtype}).min", f"jnp.iinfo({dtype}).max"
        least, most = (self.spot.write(end, self.edits, x=x) for end in ends)
        self._write(node, match, template, mask=value.spread(axes), least=least, most=most)

    def _axes(self, value: Masked, match: Match, default: int | None) -> tuple[list[int], bool]:
        """Axes of the whole array that a call is about, and whether they stay with length one."""
        named = {k.arg: k.value for k in match.rest() if isinstance(k, ast.keyword)}
        given = [r for r in match.rest() if isinstance(r, ast.expr)]
        if _REFUSED & named.keys():
            raise Unsupported
        self.dense(*given, *named.values())
        kept = bool(getattr(named.get("keepdims"), "value", False))
        axis = given[0] if given else named.get("axis")
        wanted = _constant(axis) if axis is not None else None if default is None else (default,)
        if wanted is None:
            return list(range(value.rank)), kept
        whole = [w for a in wanted for w in value.whole(a % value.selected_rank)]
        if value.wide is not None and axis is not None:
            self.edits.replace(axis, str(tuple(whole)) if len(whole) > 1 else str(whole[0]))
        return whole, kept

    # -- sizes, rows by number, arrays put together

    def segments(self, node: ast.Call, match: Match, template: str) -> Value:
        """Rows put together by their segments."""
        value, numbers = self.masked(match.expr("x")), self.masked(match.expr("i"))
        sizes = [r.value if isinstance(r, ast.keyword) else r for r in match.rest()]
        own: Axes = self.size(sizes[0])[1] if sizes else ()
        self.dense(*sizes[1:])
        mask = numbers.at(0) if numbers is not None else None
        if value is None and mask is None:
            return Masked(self.rank(node), own) if own else None
        if value is None or value.at(0) is not mask:
            raise Unsupported
        self._over(node, match, template, value, [0])
        axes = (*own, *((a, m) for a, m in value.axes if a))
        return Masked(value.rank, axes) if axes else None

    def scattered(self, node: ast.Call, match: Match, template: str) -> Value:
        """`t.at[i].add(v)` of what counts."""
        table, index, value = (self.masked(match.expr(hole)) for hole in "tiv")
        if index is not None:
            mask = index.at(0)
            if len(index.axes) > 1 or mask is None or (value is not None and value.at(0) is not mask):
                raise Unsupported
            text = value.spread([0]) if value is not None else mask.written()
            self._write(node, match, template, mask=text)
        elif value is not None:
            raise Unsupported
        return table

    def made(self, node: ast.Call, match: Match, template: str) -> Value:
        """`jnp.arange(n)`, `jnp.zeros((n, k))`: of the whole length, and as much of it counts."""
        name, rest = last_name(node.func), match.rest()
        if name in ("arange", "eye") and any(isinstance(r, ast.expr) for r in rest):
            return self._none(node)
        rank, axes = self.size(match.expr("n"))
        self.dense(*(r.value if isinstance(r, ast.keyword) else r for r in rest))
        if name == "eye":
            rank, axes = 2, tuple((k, m) for _, m in axes for k in (0, 1))
        own = name == "arange" and not all(m.leading for _, m in axes)
        return Masked(rank, axes, holds="own places" if own else "") if axes else None

    def size(self, node: ast.expr) -> tuple[int, Axes]:
        """Rank of an array of this size, and the axes of which a part counts."""
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            value = self.masked(node.value)
            return (value.rank, value.axes) if value is not None and value.wide is None else (0, ())
        entries = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        found: list[tuple[int, Mask]] = []
        for axis, entry in enumerate(entries):
            length = self.value(entry)
            if isinstance(length, Length):
                self.sized |= scope.loads(entry)
                found.append((axis, length.mask))
            else:
                self.dense(entry)
        return len(entries), tuple(found)

    def reshaped(self, node: ast.Call, match: Match, template: str) -> Value:
        """`x.reshape(len(x), -1)`: the first axis stays."""
        value, sizes = self.masked(match.expr("x")), [r for r in match.rest() if isinstance(r, ast.expr)]
        _, axes = self.size(sizes[0] if len(sizes) == 1 else ast.Tuple(sizes))
        if value is None and not axes:
            return None
        if value is None or axes != value.axes or axes[-1][0] > 0:
            raise Unsupported
        return Masked(self.rank(node), axes)

    def joined(self, node: ast.Call, match: Match, template: str) -> Value:
        """Arrays put together, along an axis that is new or of which all counts."""
        x, name = match.expr("x"), last_name(node.func)
        values = [self.masked(e) for e in (x.elts if isinstance(x, ast.List | ast.Tuple) else [x])]
        first = values[0]
        if not any(values):
            return self._none(node)
        if first is None or first.wide or any(v is None or v.axes != first.axes for v in values):
            raise Unsupported
        if not isinstance(x, ast.List | ast.Tuple):
            if name != "stack" or match.rest():
                raise Unsupported
            self._write(node, match, "$x")  # the rows were in a list
            return first
        new = name == "stack" or (name == "column_stack" and first.rank == 1)
        joined = replace(first, rank=first.rank + new)
        (axis,), _ = self._axes(joined, match, 1 if name == "column_stack" else 0)
        if not new and axis in dict(first.axes):
            raise Unsupported
        return Masked(first.rank + new, tuple((a + (new and a >= axis), m) for a, m in first.axes))

    # -- products

    def product(self, node: ast.BinOp) -> Value:
        """`x @ y`."""
        return self._contracted([node.left, node.right], "")

    def factors(self, node: ast.Call, match: Match, template: str) -> Value:
        """`jnp.dot(x, y)` and its like."""
        return self._contracted([match.expr("x"), match.expr("y")], template)

    def _contracted(self, operands: Sequence[ast.expr], letters: str) -> Value:
        """A sum of products, as `einsum` writes it: what is summed over is 0 where it does not count."""
        values = [self.masked(o) for o in operands]
        if not any(values):
            return None
        if any(v is not None and v.wide for v in values):
            raise Unsupported
        ranks = [v.rank if v is not None else self.rank(o) for o, v in zip(operands, values, strict=True)]
        given, _, out = (letters or _product_of(*ranks)).partition("->")
        factors = list(zip(operands, values, given.split(","), strict=True))
        masks: dict[str, Mask | None] = {}
        for _, value, own in factors:
            for axis, letter in enumerate(own):
                mask = value.at(axis) if value is not None else None
                if masks.setdefault(letter, mask) is not mask:
                    raise Unsupported
        for operand, value, own in factors:
            if value is None:
                continue
            summed = [axis for axis, letter in enumerate(own) if masks[letter] and letter not in out]
            if over := [axis for axis in summed if axis not in value.zero]:
                new = self.spot.write("jnp.where($m, $x, 0)", self.edits, m=value.spread(over), x=operand)
                self.edits.replace(operand, new)
        axes = tuple((k, mask) for k, letter in enumerate(out) if (mask := masks[letter]) is not None)
        return Masked(len(out), axes) if axes else None

    # -- functions over rows

    def _mapped(self, function: ast.expr) -> ast.expr | None:
        """`g` of `jax.vmap(g)`, written there or bound to a name."""
        if isinstance(function, ast.Name):
            function = self.spot.assigned(function.id) or function
        match function:
            case ast.Call(args=[mapped], keywords=[]) if self.spot.full(function) == "jax.vmap":
                return mapped
        return None

    def _by_rows(self, node: ast.Call, values: Sequence[Masked]) -> Value:
        """Each row by itself."""
        if not values:
            return self._none(node)
        axes = values[0].axes
        if node.keywords or axes[-1][0] > 0 or any(v.axes != axes or v.wide for v in values):
            raise Unsupported
        return Masked(self.rank(node), axes)


def _constant(node: ast.expr) -> tuple[int, ...] | None:
    """One axis or several; None for `None`. Raises Unsupported for what is known only when it runs."""
    try:
        value: object = ast.literal_eval(node)
    except ValueError:
        raise Unsupported from None
    several = value if isinstance(value, tuple) else (value,)
    found = tuple(v for v in several if isinstance(v, int))
    if value is not None and len(found) < len(several):
        raise Unsupported
    return found if value is not None else None


def _product_of(left: int, right: int) -> str:
    """How `einsum` writes the product of arrays of these ranks."""
    if min(left, right) == 0 or (right > 2 and left != right):
        raise Unsupported
    a, more = _LETTERS[:left], "z" if right > 1 else ""
    return f"{a},{a[: right - 2] if right > 2 else ''}{a[-1]}{more}->{a[:-1]}{more}"


Handler = Callable[[MaskedCalls, ast.Call, Match, str], Value]
_TABLES: tuple[tuple[dict[str, str], Handler], ...] = (
    (reductions.REDUCED, MaskedCalls.reduced), (reductions.FIRST_PLACES, MaskedCalls.first_place),
    (reductions.ALONG, MaskedCalls.along), (reductions.SEGMENTS, MaskedCalls.segments),
    (reductions.SCATTERED, MaskedCalls.scattered), (dict.fromkeys(reductions.MADE, ""), MaskedCalls.made),
    (dict.fromkeys(reductions.JOINED, ""), MaskedCalls.joined),
    ({"tril($x, $*r)": "", "triu($x, $*r)": ""}, MaskedCalls.triangle),
    (dict.fromkeys(reductions.TURNED, ""), MaskedCalls.turned), (reductions.DIFFERENCES, MaskedCalls.differences),
    (reductions.FACTORS, MaskedCalls.factors),
    ({"reshape($x, $*r)": ""}, MaskedCalls.reshaped),
    ({"take_along_axis($x, $i, $*r)": ""}, MaskedCalls.picked), ({"take($x, $i, $*r)": ""}, MaskedCalls.taken),
    ({"one_hot($x, $k)": ""}, MaskedCalls.expanded),
)  # fmt: skip
_ROWS: dict[str, list[tuple[Pattern, str, Handler]]] = {}
"""The rows of all tables by the last name of their function."""
for _table, _handler in _TABLES:
    for _source, _template in _table.items():
        _function = _source.partition("(")[0].rpartition(".")[2]
        _ROWS.setdefault(_function, []).append((Pattern(_source), _template, _handler))

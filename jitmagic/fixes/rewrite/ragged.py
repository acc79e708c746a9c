"""Selections whose length is data-dependent (`x[mask]`, `x[:n]`): keep the whole array, mask where it is reduced.

An expression is lowered to one over the whole array together with the mask of the elements that count. What
works element by element keeps the mask; a reduction uses it up; where neither holds there is no rewrite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.conditions import stripped
from jitmagic.fixes.rewrite.place import Candidate, Place

TITLE = "keep the whole array, and mask where it is reduced"
KINDS = ("dynamic-shape", "tracer-array-conversion", "tracer-int", "user-error")

WHERE = frozenset("sum prod mean std var any all nansum nanmean".split())
"""Reductions that take `where=`."""
FILLED = {"median": "nanmedian", "percentile": "nanpercentile", "quantile": "nanquantile"}
OVER_SCORES = frozenset(("softmax", "log_softmax"))
NOT_ELEMENTWISE = frozenset(
    "sort argsort argmax argmin cumsum cumprod diff unique concatenate stack vstack hstack append reshape ravel "
    "flip roll repeat tile histogram bincount interp convolve outer searchsorted take array_split split "
    "transpose fft ifft dot matmul einsum tensordot nonzero where kron trace det inv".split()
)
SELECTORS = frozenset(("nonzero", "where", "flatnonzero", "argwhere"))


class Unsupported(Exception):
    """Something is done with the selection that a mask does not stand for."""


@dataclass(frozen=True)
class Masked:
    """A lowered expression: source over the whole array, and the mask of what counts (None: all of it)."""

    text: str
    mask: str | None = None
    rank: int = 1
    """Rank of the mask."""
    flat: bool = False
    """The mask has the rank of the array, more than one: the selection was flat."""
    axis: int = 0
    """The axis of the array at which the mask begins."""


def candidates(place: Place) -> Iterator[Candidate]:
    """The statement of the place and what follows it in its block, with masks for selections."""
    import libcst as cst

    if place.kind not in KINDS or not place.path:
        return
    statement = place.cell.statement(place.path[0])
    if not isinstance(statement, cst.SimpleStatementLine):
        return
    block, index = place.cell.siblings(statement)
    try:
        text = _Lowering(place).block(list(block.body), index)
    except Unsupported:
        return
    if text is not None and text != place.cell.text:
        yield Candidate(TITLE, text)


@dataclass
class _Lowering:
    """Rewrites a block from one statement on."""

    place: Place
    known: dict[str, Masked] = field(default_factory=dict)
    """Local names that stand for a selection."""
    indices: dict[str, Masked] = field(default_factory=dict)
    """Local names that hold the indices of a selection."""
    masks: dict[str, str] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)

    # -- statements

    def block(self, statements: Sequence[Any], start: int) -> str | None:
        """The cell with the statements from `start` on lowered; None where nothing changed."""
        import libcst as cst

        changes: dict[Any, str | None] = {}
        self.changes = changes
        for statement in statements[start:]:
            if isinstance(statement, cst.SimpleStatementLine):
                self._line(statement)
            elif self._concerned(statement):
                raise Unsupported
        if not changes:
            return None
        named = [m for m in self.masks if not names.constant(m) and self.uses.get(m, 0) > 1]
        first = statements[start]
        lead, given = "", set(self.place.taken)
        for mask in named:
            name = names.fresh("live" if "arange" in mask else "mask", given)
            given.add(name)
            lead += f"{name} = {mask}\n"
            for node, text in changes.items():
                if text is not None:
                    changes[node] = text.replace(f"({mask})[", f"{name}[").replace(mask, name)
        if lead:
            kept = changes.get(first, self.place.cell.code(first))
            changes[first] = lead + (kept or "")
        return self.place.cell.edit(changes)

    def _line(self, line: Any) -> None:
        out, changed = [], False
        for small in line.body:
            new = self._small(small)
            changed |= new != self.place.cell.code(small)
            if new:
                out.append(new)
        if changed:
            self.changes[line] = "".join(f"{x}\n" for x in out) or None

    def _small(self, small: Any) -> str:
        import libcst as cst

        code = self.place.cell.code
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target: Any = small.targets[0].target
            if isinstance(target, cst.Tuple) and len(target.elements) == 1:
                target = target.elements[0].value
            if isinstance(target, cst.Name):
                return self._assign(target.value, small.value)
            if (
                isinstance(target, cst.Tuple)
                and isinstance(small.value, cst.Tuple)
                and self._concerned(small)
            ):
                return self._one_by_one(target, small.value)
            if isinstance(target, cst.Subscript) and self._concerned(target):
                raise Unsupported
        if isinstance(small, (cst.Assign, cst.AugAssign, cst.Return, cst.Expr)) and small.value is not None:
            new = self._dense(small.value)
            old = code(small.value)
            head = code(small)
            return head if new == old else head[: len(head) - len(old)] + new if head.endswith(old) else head
        if self._concerned(small):
            raise Unsupported
        return code(small)

    def _one_by_one(self, target: Any, value: Any) -> str:
        """`a, b = x[m], y[m]` as an assignment each; what is left of them, one to a line."""
        import libcst as cst

        left, right = [e.value for e in target.elements], [e.value for e in value.elements]
        bound = {getattr(t, "value", "") for t in left}
        if len(left) != len(right) or not all(isinstance(t, cst.Name) for t in left):
            raise Unsupported
        if any(n.value in bound for v in right[1:] for n in self.place.cell.within(v, cst.Name)):
            raise Unsupported
        lines = [self._assign(t.value, v) for t, v in zip(left, right, strict=True)]
        return "\n".join(filter(None, lines))

    def _assign(self, name: str, value: Any) -> str:
        selection = self._selector(value)
        if selection is not None:
            self.indices[name] = selection
            return ""
        new = self.lower(value)
        self.known.pop(name, None)
        if new.mask is None:
            return f"{name} = {new.text}"
        if names.constant(new.text):
            self.known[name] = new
            return ""
        self.known[name] = replace(new, text=name)
        return f"{name} = {new.text}"

    def _concerned(self, node: Any) -> bool:
        import libcst as cst

        if any(
            n.value in self.known or n.value in self.indices for n in self.place.cell.within(node, cst.Name)
        ):
            return True
        if any(self._selection(s) is not None for s in self.place.cell.within(node, cst.Subscript)):
            return True
        return any(
            self._selector(s) is not None for s in self.place.cell.within(node, cst.Subscript, cst.Call)
        )

    # -- selections

    def _selector(self, node: Any) -> Masked | None:
        """`jnp.where(c)[0]`, `jnp.nonzero(c)[0]`, `jnp.flatnonzero(c)`: the mask `c`."""
        import libcst as cst

        inner = node
        if isinstance(node, cst.Subscript) and self.place.cell.code(node.slice[0]).strip() == "0":
            inner = node.value
        if not isinstance(inner, cst.Call) or len(inner.args) != 1:
            return None
        function = self.place.cell.code(inner.func)
        root, _, name = function.rpartition(".")
        if name not in SELECTORS or self.place.modules.get(root) not in ("jax.numpy", "numpy"):
            return None
        if self._rank(inner.args[0].value) != 1:
            return None
        mask = stripped(self.place.cell.code(inner.args[0].value))
        length = f"{names.wrapped(mask)}.shape[0]"
        return Masked(f"{self.place.jnp}.arange({length})", self._use(mask), 1)

    def _selection(self, node: Any) -> Masked | None:
        """`x[mask]`, `x[indices]`, `x[:n]` with a traced bound, as the whole array and its mask."""
        import libcst as cst

        code = self.place.cell.code
        first, *rest = node.slice
        if rest and self._is_all(first.slice):
            return self._later_axis(node)
        cut = rest[-1].slice if rest else None
        if isinstance(first.slice, cst.Index) and isinstance(cut, cst.Slice) and not self._is_all(cut):
            return self._row_prefix(node)
        plain = all(isinstance(e.slice, cst.Index) and isinstance(e.slice.value, cst.Integer) for e in rest)
        if any(not self._is_all(e.slice) for e in rest) and not plain:
            return None
        if isinstance(node.value, cst.Attribute) and node.value.attr.value in ("at", "shape", "iloc", "loc"):
            return None
        piece = first.slice
        if isinstance(piece, cst.Slice):
            return self._prefix(node, piece)
        index = piece.value
        if isinstance(index, cst.Name) and index.value in self.indices:
            found = self.indices[index.value]
            return Masked(code(node.value), found.mask, 1)
        if not self._boolean(index):
            return None
        rank = self._rank(index)
        whole = self._rank(node.value)
        if rest and plain and rank == 1:
            inside = ", ".join([":", *(code(e.slice) for e in rest)])
            return Masked(f"{names.wrapped(code(node.value))}[{inside}]", stripped(code(index)), 1)
        mask = stripped(code(index))
        if mask.startswith((f"{self.place.alias('numpy')}.asarray(", f"{self.place.alias('numpy')}.array(")):
            mask = mask.partition("(")[2][:-1]
        return Masked(code(node.value), mask, rank, rank == whole and rank > 1)

    def _later_axis(self, node: Any) -> Masked | None:
        """`x[:, mask]` and `x[:, :, mask]`."""
        import libcst as cst

        *before, last = node.slice
        index = last.slice.value if isinstance(last.slice, cst.Index) else None
        if isinstance(index, cst.Ellipsis) or index is None or not all(self._is_all(e.slice) for e in before):
            return None
        if isinstance(index, cst.Name) and index.value in self.indices:
            mask = self.indices[index.value].mask
        elif isinstance(index, cst.Integer) or not self._boolean(index) or self._rank(index) != 1:
            return None
        else:
            mask = stripped(self.place.cell.code(index))
        return Masked(self.place.cell.code(node.value), mask, 1, axis=len(before))

    def _is_all(self, piece: Any) -> bool:
        import libcst as cst

        return isinstance(piece, cst.Slice) and piece.lower is None and piece.upper is None

    def _row_prefix(self, node: Any) -> Masked | None:
        """`x[i, :n]`: of one row."""
        import libcst as cst

        *before, last = node.slice
        if not all(isinstance(e.slice, cst.Index) for e in before):
            return None
        if any(self._seen(e.slice.value) and self._rank(e.slice.value) != 0 for e in before):
            return None
        row = ", ".join(self.place.cell.code(e.slice.value) for e in before)
        return self._prefix(node, last.slice, f"{names.wrapped(self.place.cell.code(node.value))}[{row}]")

    def _prefix(self, node: Any, piece: Any, base: str = "") -> Masked | None:
        from jitmagic.fixes.rewrite.sizes import _traced_slice, window

        if (
            piece.step is not None
            or not _traced_slice(self.place, piece)
            or window(self.place, piece) is not None
        ):
            return None
        code, base = self.place.cell.code, base or self.place.cell.code(node.value)
        place = f"{self.place.jnp}.arange({names.wrapped(base)}.shape[0])"
        tests = []
        if piece.lower is not None:
            tests.append(f"{place} >= {stripped(code(piece.lower))}")
        if piece.upper is not None:
            tests.append(f"{place} < {stripped(code(piece.upper))}")
        mask = tests[0] if len(tests) == 1 else " & ".join(f"({t})" for t in tests)
        return Masked(base, mask, 1)

    def _boolean(self, index: Any) -> bool:
        seen = self._seen(index)
        return bool(seen) and all(s.dtype == "bool" and s.shape for s in seen)

    def _seen(self, node: Any) -> Any:
        cache = self.place.__dict__.setdefault("_probed", {})
        if id(node) not in cache:
            cell = self.place.cell.edit({node: f"__seen({self.place.cell.code(node)})"})
            cache[id(node)] = self.place.probe(cell)
        return cache[id(node)]

    def _rank(self, node: Any) -> int:
        seen = self._seen(node)
        ranks = {len(s.shape) for s in seen}
        if len(ranks) != 1:
            raise Unsupported
        return ranks.pop()

    def _use(self, mask: str) -> str:
        self.masks[mask] = mask
        self.uses[mask] = self.uses.get(mask, 0) + 1
        return mask

    # -- expressions

    def _dense(self, node: Any) -> str:
        """Source of an expression that must not be a selection itself."""
        new = self.lower(node)
        if new.mask is not None:
            raise Unsupported
        return new.text

    def lower(self, node: Any) -> Masked:
        """The expression over whole arrays."""
        import libcst as cst

        if not self._concerned(node):
            return Masked(self.place.cell.code(node))
        if isinstance(node, cst.Name):
            if node.value in self.known:
                return self.known[node.value]
            return self.indices[node.value]
        selection = self._selector(node)
        if selection is not None:
            return selection
        handlers: dict[Any, Any] = {
            cst.Subscript: self._subscript, cst.BinaryOperation: self._binary, cst.UnaryOperation: self._unary,
            cst.Comparison: self._compare, cst.Call: self._call, cst.Attribute: self._attribute,
        }  # fmt: skip
        out: Masked = handlers.get(type(node), self._other)(node)
        if node.lpar and out.mask is None:
            return Masked(f"({stripped(out.text)})")
        return out if not node.lpar else replace(out, text=f"({stripped(out.text)})")

    def _other(self, node: Any) -> Masked:
        """Any other expression: its parts must be dense."""
        import libcst as cst

        from jitmagic.fixes.rewrite.conversions import _patched

        if isinstance(node, (cst.Lambda, cst.ListComp, cst.GeneratorExp, cst.DictComp, cst.SetComp)):
            raise Unsupported
        changes: dict[Any, str | None] = {}

        def walk(current: Any) -> None:
            for child in current.children:
                if isinstance(child, cst.BaseExpression):
                    changes[child] = self._dense(child)
                else:
                    walk(child)

        walk(node)
        return Masked(_patched(self.place, node, changes))

    def _subscript(self, node: Any) -> Masked:
        import libcst as cst

        code = self.place.cell.code
        found = self._selection(node)
        if found is not None:
            if self._concerned_inside(node.value):
                raise Unsupported
            self._use(found.mask or "")
            return found
        if isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape":
            inner = self.lower(node.value.value)
            if inner.mask is not None and code(node.slice[0]).strip() == str(inner.axis):
                return Masked(self._count(inner))
            if inner.mask is not None:
                return Masked(f"{names.wrapped(inner.text)}.shape[{code(node.slice[0])}]")
        inner = self.lower(node.value)
        if inner.mask is None or inner.flat or inner.axis:
            raise Unsupported
        first, *rest = node.slice
        if self._is_all(first.slice) and rest:
            pieces = ", ".join(code(e.slice) for e in node.slice)
            return Masked(f"{names.wrapped(inner.text)}[{pieces}]", inner.mask, inner.rank)
        if code(first).strip() == "0" and not rest:
            first_one = f"{self.place.jnp}.argmax({inner.mask})"
            is_index = inner.text.startswith(f"{self.place.jnp}.arange(")
            return Masked(first_one if is_index else f"{names.wrapped(inner.text)}[{first_one}]")
        raise Unsupported

    def _concerned_inside(self, node: Any) -> bool:
        return self._concerned(node)

    def _count(self, value: Masked) -> str:
        return f"{self.place.jnp}.sum({self._use(value.mask or '')})"

    def _binary(self, node: Any) -> Masked:
        import libcst as cst

        left, right = self.lower(node.left), self.lower(node.right)
        sign = self.place.cell.code(node.operator)
        if isinstance(node.operator, cst.MatrixMultiply):
            if left.axis or right.axis:
                raise Unsupported
            if left.mask is not None and right.mask is None and self._rank(node.left) == 2:
                return Masked(f"{left.text} {sign.strip()} {right.text}", left.mask)
            if left.mask is not None and left.mask == right.mask and self._rank(node.left) == 1:
                a, b = self._zeroed(node.left, left), self._zeroed(node.right, right)
                return Masked(f"{a} {sign.strip()} {b}")
            if (
                right.mask is not None
                and isinstance(node.left, cst.Attribute)
                and node.left.attr.value == "T"
            ):
                inner = self.lower(node.left.value)
                if inner.mask == right.mask:
                    a, b = self._zeroed(node.left.value, inner), self._zeroed(node.right, right)
                    return Masked(f"{a}.T @ {b}")
            raise Unsupported
        return self._together(f"{left.text}{sign}{right.text}", left, right)

    def _together(self, text: str, *parts: Masked) -> Masked:
        masks = {p.mask for p in parts if p.mask is not None}
        if len(masks) > 1:
            raise Unsupported
        source = next((p for p in parts if p.mask is not None), Masked(""))
        return replace(source, text=text)

    def _unary(self, node: Any) -> Masked:
        inner = self.lower(node.expression)
        return self._together(f"{self.place.cell.code(node.operator)}{inner.text}", inner)

    def _compare(self, node: Any) -> Masked:
        parts = [self.lower(node.left), *(self.lower(t.comparator) for t in node.comparisons)]
        if len(parts) != 2:
            raise Unsupported
        sign = self.place.cell.code(node.comparisons[0].operator)
        return self._together(f"{parts[0].text}{sign}{parts[1].text}", *parts)

    def _attribute(self, node: Any) -> Masked:
        inner = self.lower(node.value)
        name = node.attr.value
        if inner.mask is None:
            return Masked(f"{inner.text}.{name}")
        if name == "size" and (self._rank(node.value) == 1):
            return Masked(self._count(inner))
        if name in ("real", "imag"):
            return replace(inner, text=f"{names.wrapped(inner.text)}.{name}")
        if name == "T" and self._rank(node.value) == 2 and inner.axis == 1:
            return Masked(f"{names.wrapped(inner.text)}.T", inner.mask, 1)
        if name == "T" and self._rank(node.value) == 2:
            return Masked(f"{names.wrapped(inner.text)}.T", f"T of {inner.mask}", inner.rank)
        if name in ("dtype", "ndim"):
            return Masked(f"{names.wrapped(inner.text)}.{name}")
        raise Unsupported

    def _spread(self, node: Any, value: Masked) -> str:
        """The mask with the rank of the value, for `where=`."""
        mask = self._use(value.mask or "")
        if mask.startswith("T of "):
            raise Unsupported
        extra = 0 if value.flat else self._rank(node) - value.rank - value.axis
        if extra <= 0:
            return mask
        inner = mask if names.constant(mask) else f"({mask})"
        return f"{inner}[{', '.join([*([':'] * value.rank), *(['None'] * extra)])}]"

    def _zeroed(self, node: Any, value: Masked, fill: str = "0") -> str:
        return f"{self.place.jnp}.where({self._spread(node, value)}, {stripped(value.text)}, {fill})"

    # -- calls

    def _call(self, call: Any) -> Masked:
        import libcst as cst

        function = call.func
        if isinstance(function, cst.Attribute):
            root = self.place.cell.code(function.value)
            if (
                root not in self.place.modules
                and not root.startswith(("jax.", "jnp."))
                and self._concerned(function.value)
            ):
                return self._method(call, function)
        name = self.place.cell.code(function)
        last = name.rpartition(".")[2]
        if name == "len":
            return Masked(self._count(self.lower(call.args[0].value)))
        if name in ("float", "int"):
            return self.lower(call.args[0].value)
        positional = [a for a in call.args if a.keyword is None and not a.star]
        if not positional or len(positional) + sum(a.keyword is not None for a in call.args) != len(
            call.args
        ):
            raise Unsupported
        if name in ("sum", "max", "min", "abs") and len(positional) == 1:
            name, last = f"{self.place.jnp}.{name}", name
        library = self.place.modules.get(name.partition(".")[0], "") if "." in name else ""
        if name.startswith(f"{self.place.jnp}."):
            library = "jax.numpy"
        if last in ("extract", "compress") and library == "jax.numpy" and len(positional) == 2:
            mask = stripped(self.place.cell.code(positional[0].value))
            return Masked(self._dense(positional[1].value), self._use(mask), 1)
        first = positional[0].value
        if not self._concerned(first) or all(not self._concerned(a.value) for a in call.args):
            if library in ("jax.numpy", "numpy") and last not in NOT_ELEMENTWISE and last not in WHERE:
                return self._elementwise(call)
            return self._other_call(call)
        if not library and name not in ("jnp.sum",) and not name.startswith(self.place.jnp):
            return self._other_call(call)
        value = self.lower(first)
        if value.mask is None:
            return self._other_call(call)
        if last in WHERE | {
            "max",
            "min",
            "count_nonzero",
            "norm",
            "logsumexp",
            "dot",
            "vdot",
            "average",
            "amax",
            "amin",
        } | set(FILLED):
            return self._reduced(call, last, first, value, call.args[1:])
        if last in OVER_SCORES:
            if self._rank(first) != 1 or value.axis:
                raise Unsupported
            rest = "".join(f", {self.place.cell.code(a)}".rstrip(", ") for a in call.args[1:])
            return Masked(
                f"{name}({self._zeroed(first, value, f'-{self.place.jnp}.inf')}{rest})", value.mask, 1
            )
        if last in NOT_ELEMENTWISE and last != "where":
            raise Unsupported
        return self._elementwise(call)

    def _elementwise(self, call: Any) -> Masked:
        name, parts, texts = self.place.cell.code(call.func), [], []
        for a in call.args:
            part = self.lower(a.value)
            parts.append(part)
            texts.append((f"{a.keyword.value}=" if a.keyword else "") + stripped(part.text))
        return self._together(f"{name}({', '.join(texts)})", *parts)

    def _other_call(self, call: Any) -> Masked:
        texts = [
            f"{a.star}{a.keyword.value + '=' if a.keyword else ''}{stripped(self._dense(a.value))}"
            for a in call.args
        ]
        function = call.func
        import libcst as cst

        if isinstance(function, cst.Attribute):
            head = f"{self._dense(function.value)}.{function.attr.value}"
        else:
            head = self._dense(function)
        return Masked(f"{head}({', '.join(texts)})")

    def _method(self, call: Any, function: Any) -> Masked:
        value = self.lower(function.value)
        name = function.attr.value
        if value.mask is None:
            return self._other_call(call)
        if name in WHERE | {"max", "min", "dot"}:
            return self._reduced(call, name, function.value, value, call.args)
        if name in ("item", "tolist"):
            raise Unsupported
        if name in ("astype", "conj", "round", "clip"):
            inside = self.place.cell.code(call)[len(self.place.cell.code(function)) :]
            return replace(value, text=f"{names.wrapped(value.text)}.{name}{inside}")
        raise Unsupported

    def _reduced(self, call: Any, name: str, node: Any, value: Masked, rest: Sequence[Any]) -> Masked:
        jnp, code = self.place.jnp, self.place.cell.code
        name = {"amax": "max", "amin": "min"}.get(name, name)
        text = stripped(value.text)
        axis = next((code(a.value) for a in rest if a.keyword and a.keyword.value == "axis"), None)
        positional = [a for a in rest if a.keyword is None]
        if name not in ("dot", "vdot", "percentile", "quantile", "norm") and positional:
            axis, rest = code(positional[0].value), [a for a in rest if a is not positional[0]]
        others = [code(a).rstrip(", ") for a in rest if not (a.keyword and a.keyword.value == "axis")]
        rank = 1 if value.flat else self._rank(node)
        along = axis in (None, "None", str(value.axis), f"-{rank - value.axis}")
        if not along:
            if value.flat or name in ("dot", "vdot", "average"):
                raise Unsupported
            arguments = ", ".join([text, f"axis={axis}", *others])
            if value.axis:  # one of the axes before it may be gone
                if not (axis or "").lstrip("-").isdigit() or any("keepdims" in o for o in others):
                    raise Unsupported
                number = int(axis or "")
                before = (number if number >= 0 else number + rank) < value.axis
                return Masked(f"{jnp}.{name}({arguments})", value.mask, 1, axis=value.axis - before)
            return Masked(f"{jnp}.{name}({arguments})", value.mask, value.rank)
        kept = [] if axis in (None, "None") or value.flat or rank == 1 else [f"axis={axis}"]
        if name in WHERE:
            arguments = ", ".join([text, *kept, *others, f"where={self._spread(node, value)}"])
            return Masked(f"{jnp}.{name}({arguments})")
        if name in ("max", "min"):
            return Masked(f"{jnp}.{name}({', '.join([self._extreme(node, value, name), *kept, *others])})")
        if name in FILLED:
            whole = self._zeroed(node, value, f"{jnp}.nan")
            given = [code(a).rstrip(", ") for a in positional]
            named = [o for o in others if o not in given]
            return Masked(f"{jnp}.{FILLED[name]}({', '.join([whole, *given, *kept, *named])})")
        if name == "count_nonzero":
            return Masked(f"{jnp}.sum({names.wrapped(text)} != 0, where={self._spread(node, value)})")
        if name == "norm":
            return Masked(f"{jnp}.linalg.norm({', '.join([self._zeroed(node, value), *kept, *others])})")
        if name == "logsumexp":
            function = code(call.func)
            return Masked(
                f"{function}({', '.join([self._zeroed(node, value, f'-{jnp}.inf'), *kept, *others])})"
            )
        if name in ("dot", "vdot") and positional:
            other = self.lower(positional[0].value)
            if other.mask != value.mask or rank != 1:
                raise Unsupported
            return Masked(
                f"{jnp}.{name}({self._zeroed(node, value)}, {self._zeroed(positional[0].value, other)})"
            )
        raise Unsupported

    def _extreme(self, node: Any, value: Masked, name: str) -> str:
        seen = self._seen(node)
        whole = any(s.dtype.startswith(("int", "uint")) for s in seen)
        jnp, text = self.place.jnp, stripped(value.text)
        if whole:
            side = "min" if name == "max" else "max"
            return self._zeroed(node, value, f"{jnp}.iinfo({names.wrapped(text)}.dtype).{side}")
        return self._zeroed(node, value, f"-{jnp}.inf" if name == "max" else f"{jnp}.inf")

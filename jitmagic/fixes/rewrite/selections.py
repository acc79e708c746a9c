"""Selections whose length is data-dependent: what their mask is, and which expressions hold one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Place
from jitmagic.fixes.rewrite.truths import stripped

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
    counts: bool = True
    """As many elements of the mask are true as the selection is long; not so for `x[:h, :w]`."""


@dataclass
class Selections:
    """What the local names of a block stand for."""

    place: Place
    known: dict[str, Masked] = field(default_factory=dict)
    """Local names that stand for a selection."""
    indices: dict[str, Masked] = field(default_factory=dict)
    """Local names that hold the indices of a selection."""
    masks: dict[str, str] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    prefixes: dict[Any, str] = field(default_factory=dict)
    """Masks of `x[a:b]` by `a`, `b` and the length of the axis: one for all arrays of the same length."""

    def lower(self, node: Any) -> Masked:
        """The expression over the whole array, and the mask of what counts. Raises Unsupported."""
        raise NotImplementedError

    def _concerned(self, node: Any) -> bool:
        import libcst as cst

        if any(
            n.value in self.known or n.value in self.indices for n in self.place.cell.within(node, cst.Name)
        ):
            return True
        if any(self._selection(s) is not None for s in self.place.cell.within(node, cst.Subscript)):
            return True
        return any(
            self._selector_mask(s) is not None for s in self.place.cell.within(node, cst.Subscript, cst.Call)
        )

    def _selector(self, node: Any) -> Masked | None:
        """`jnp.where(c)[0]`, `jnp.nonzero(c)[0]`, `jnp.flatnonzero(c)`: the positions where `c` holds."""
        mask = self._selector_mask(node)
        if mask is None:
            return None
        length = f"{names.wrapped(mask)}.shape[0]"
        return Masked(f"{self.place.jnp}.arange({length})", self._use(mask), 1)

    def _selector_mask(self, node: Any) -> str | None:
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
        asked = inner.args[0].value
        code = stripped(self.place.cell.code(asked))
        return code if self._boolean(asked) else f"{names.wrapped(code)} != 0"

    def _selection(self, node: Any) -> Masked | None:
        """`x[mask]`, `x[indices]`, `x[:n]` with a traced bound, as the whole array and its mask."""
        import libcst as cst

        code = self.place.cell.code
        first, *rest = node.slice
        if len(self._traced_axes(node)) > 1:
            return self._box(node)
        if rest and (self._is_all(first.slice) or self._is_ellipsis(first.slice)):
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
        positions = None if rest else self._selector_mask(index)
        if positions is not None:
            return Masked(code(node.value), positions, 1)
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
        """`x[:, mask]` and `x[:, :, mask]`, `x[:, :n]` and `x[..., :n]`."""
        import libcst as cst

        *before, last = node.slice
        if isinstance(last.slice, cst.Slice):
            dots = len(before) == 1 and self._is_ellipsis(before[0].slice)
            if not dots and not all(self._is_all(e.slice) for e in before):
                return None
            return self._prefix(node, last.slice, axis=self._rank(node.value) - 1 if dots else len(before))
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

    def _is_ellipsis(self, piece: Any) -> bool:
        import libcst as cst

        return isinstance(piece, cst.Index) and isinstance(piece.value, cst.Ellipsis)

    def _traced_axes(self, node: Any) -> list[int]:
        import libcst as cst

        from jitmagic.fixes.rewrite.sizes import traced_slice

        pieces = [e.slice for e in node.slice]
        return [i for i, p in enumerate(pieces) if isinstance(p, cst.Slice) and traced_slice(self.place, p)]

    def _box(self, node: Any) -> Masked | None:
        """`x[:h, :w]`: the mask has the rank of the array."""
        axes, rank = self._traced_axes(node), self._rank(node.value)
        pieces = [e.slice for e in node.slice]
        if any(pieces[i].step is not None for i in axes):
            return None
        if not all(i in axes or self._is_all(p) for i, p in enumerate(pieces)):
            return None
        base, tests = self.place.cell.code(node.value), list[str]()
        for axis in axes:
            spread = ", ".join([":", *["None"] * (rank - 1 - axis)])
            tests += self._between(pieces[axis], base, axis, f"[{spread}]" if axis < rank - 1 else "")
        return Masked(base, " & ".join(f"({t})" for t in tests), rank, flat=True, counts=False)

    def _between(self, piece: Any, base: str, axis: int, spread: str = "") -> list[str]:
        """What holds for the positions of a slice; a bound with a minus counts from the end."""
        import libcst as cst

        code, length = self.place.cell.code, f"{names.wrapped(base)}.shape[{axis}]"
        tests = []
        for sign, bound in ((">=", piece.lower), ("<", piece.upper)):
            if bound is None:
                continue
            back = isinstance(bound, cst.UnaryOperation) and isinstance(bound.operator, cst.Minus)
            limit = f"{length} - {code(bound.expression)}" if back else stripped(code(bound))
            tests.append(f"{self.place.jnp}.arange({length}){spread} {sign} {limit}")
        return tests

    def _row_prefix(self, node: Any) -> Masked | None:
        """`x[i, :n]`: of one row."""
        import libcst as cst

        *before, last = node.slice
        if not all(isinstance(e.slice, cst.Index) for e in before):
            return None
        if any(self._seen(e.slice.value) and self._rank(e.slice.value) != 0 for e in before):
            return None
        row = ", ".join(self.place.cell.code(e.slice.value) for e in before)
        base = f"{names.wrapped(self.place.cell.code(node.value))}[{row}]"
        return self._prefix(node, last.slice, base, len(before))

    def _prefix(self, node: Any, piece: Any, row: str = "", axis: int = 0) -> Masked | None:
        """`x[a:b]` along this axis of the array, which is the first one of its `row`."""
        from jitmagic.fixes.rewrite.sizes import traced_slice, window

        if (
            piece.step is not None
            or not traced_slice(self.place, piece)
            or window(self.place, piece) is not None
        ):
            return None
        code, base, own = self.place.cell.code, row or self.place.cell.code(node.value), 0 if row else axis
        tests = self._between(piece, base, own)
        mask = tests[0] if len(tests) == 1 else " & ".join(f"({t})" for t in tests)
        lengths = {s.shape[axis] for s in self._seen(node.value) if len(s.shape) > axis}
        bounds = tuple(stripped(code(b)) if b is not None else "" for b in (piece.lower, piece.upper))
        if len(lengths) == 1:
            mask = self.prefixes.setdefault((bounds, *lengths), mask)
        return Masked(base, mask, 1, axis=own)

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

"""Items of arrays where the index selects by data, or where only a part of the array counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.sizes.masked_expressions import Expressions, Value, is_constant, whole_number
from jitmagic.fixes.sizes.masks import Mask, Masked, Unsupported
from jitmagic.fixes.sizes.windows import is_traced, window
from jitmagic.source.pattern import atom, stripped

_ALL = ast.Slice()


class Items(Expressions):
    """Lowers `x[...]`."""

    def item(self, node: ast.Subscript, base: Masked | None) -> Value:
        """`x[mask]`, `x[:n]`, `x[i, :n]`, `x[positions]` as the whole array; pieces of what is masked already."""
        elements = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base is None and not any(map(self._of_interest, elements)):
            self.dense(node.slice)
            return None
        rank = base.selected_rank if base is not None else self.rank(node.value)
        found = _Pieces(self, node, base, rank)
        for element in found.spread(elements):
            found.take(element)
        return found.result()

    def _of_interest(self, element: ast.expr) -> bool:
        if isinstance(element, ast.Slice):
            return is_traced(self.spot, element) and window(self.spot, element) is None
        return self.selects(element) or self.masked(element) is not None

    def selects(self, element: ast.expr) -> bool:
        """An element of an index is a boolean array."""
        if isinstance(element, ast.Slice | ast.Constant) or not self.spot.is_traced(element):
            return False
        seen = self.spot.seen(element)
        return bool(seen) and all(s.dtype == "bool" and s.shape for s in seen)


class _Pieces:
    """The index piece by piece: what is written for each, and the masks of the axes that come out."""

    def __init__(self, lower: Items, node: ast.Subscript, base: Masked | None, rank: int) -> None:
        self.lower, self.node, self.base, self.rank = lower, node, base, rank
        self.axis = 0
        """The next axis of the array."""
        self.texts: list[str] = []
        self.masks: list[Mask | None] = []
        self.gathered: int | None = None
        """The axis of the result that index arrays make."""
        self.changed = False

    def spread(self, elements: list[ast.expr]) -> Iterator[ast.expr]:
        """The elements with `...` as the axes that it stands for, and those that are left at the end."""
        ranks = {e: self._taken(e) for e in elements}
        more = self.rank - sum(ranks.values())
        for element in elements:
            if isinstance(element, ast.Constant) and element.value is Ellipsis:
                yield from [_ALL] * more
                more = 0
            else:
                yield element
        yield from [_ALL] * more

    def _taken(self, element: ast.expr) -> int:
        """How many axes an element of the index takes."""
        if isinstance(element, ast.Constant):
            return int(element.value is not None and element.value is not Ellipsis)
        return self.lower.rank(element) if self.lower.selects(element) else 1

    def take(self, element: ast.expr) -> None:
        """One element of the index."""
        own = self.base.at(self.axis) if self.base is not None else None
        if isinstance(element, ast.Slice) and not (element.lower or element.upper or element.step):
            self._put(", ".join([":"] * (own.rank if own else 1)), own)
        elif isinstance(element, ast.Slice):
            self._slice(element, own)
        elif isinstance(element, ast.Constant) and element.value is None:
            self._put("None", None)
        elif self.lower.selects(element):
            self._put(":", self.lower.mask(element, own))
            self.changed = True
        else:
            self._index(element, own)
        self.axis += self._taken(element)

    def _put(self, text: str, *masks: Mask | None) -> None:
        self.texts.append(text)
        self.masks += masks

    def _slice(self, piece: ast.Slice, own: Mask | None) -> None:
        if own is None and is_traced(self.lower.spot, piece) and window(self.lower.spot, piece) is None:
            self._put(":", self._prefix(piece))
            self.changed = True
        else:
            self.lower.parts(piece)
            self._put(self.lower.edits.code(piece), own and _cut(own, piece))

    def _prefix(self, piece: ast.Slice) -> Mask:
        """What counts of `x[a:b]`; a bound with a minus counts from the end."""
        lower, base = self.lower, self.node.value
        if piece.step is not None:
            raise Unsupported
        name = "" if is_constant(base) else lower.bound_to.get(self.node, "")
        axis = len(self.masks) if name else self.axis
        length = f"{name or atom(lower.edits.code(base))}.shape[{axis}]"
        places, tests = lower.spot.write("jnp.arange($n)", n=length), list[str]()
        for sign, bound in ((">=", piece.lower), ("<", piece.upper)):
            if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub):
                lower.dense(bound.operand)
                tests.append(f"{places} {sign} {length} - {atom(lower.edits.code(bound.operand))}")
            elif bound is not None:
                lower.dense(bound)
                tests.append(f"{places} {sign} {stripped(lower.edits.code(bound))}")
        text = tests[0] if len(tests) == 1 else " & ".join(f"({t})" for t in tests)
        sizes = {s.shape[self.axis] for s in lower.spot.seen(base) if len(s.shape) > self.axis}
        key = (ast.unparse(piece), str(*sizes) if len(sizes) == 1 else length)
        return lower.kept(key, Mask(text, leading=piece.lower is None), "live", behind=bool(name))

    def _index(self, element: ast.expr, own: Mask | None) -> None:
        value, number = self.lower.value(element), whole_number(element)
        if isinstance(value, Masked) and value.holds and value.at(0) is own:
            self._gather(element, value, None)
            return
        value = self.lower.masked(element)
        text = self.lower.edits.code(element)
        if value is not None and value.holds and own is None:
            self._put(":", value.at(0))
            self.changed = True
        elif number is not None:
            self._put(self._numbered(number, text, own))
        elif value is None and self.lower.rank(element) == 0:
            if own is not None and not own.leading:
                raise Unsupported
            self._put(text)
        else:
            self._gather(element, value, own)

    def _numbered(self, number: int, text: str, own: Mask | None) -> str:
        """The first or the last of what counts, or any other where these come first."""
        if own is None or (own.leading and number >= 0):
            return text
        self.changed = True
        if own.leading:
            return f"{atom(self.lower.count(own))} - {-number}"
        if number not in (0, -1) or own.rank != 1:
            raise Unsupported
        first = "jnp.argmax($m)" if number == 0 else "$m.shape[0] - 1 - jnp.argmax($m[::-1])"
        return self.lower.spot.write(first, m=own.written())

    def _gather(self, element: ast.expr, value: Masked | None, own: Mask | None) -> None:
        """Rows by their numbers: as many as the index counts."""
        if own is not None and not own.leading:
            raise Unsupported
        found: list[Mask | None] = [None] * (value.rank if value is not None else self.lower.rank(element))
        for axis, mask in value.axes if value is not None else ():
            found[axis] = mask
        self.texts.append(self.lower.edits.code(element))
        if self.gathered is None:
            self.gathered = len(self.masks)
            self.masks += found
        elif self.masks[self.gathered :] != found:  # beside another index array
            raise Unsupported

    def result(self) -> Value:
        """Write the item, and say what counts of it."""
        texts, edits = list(self.texts), self.lower.edits
        while texts and texts[-1] == ":":
            texts.pop()
        if self.changed:
            base = edits.code(self.node.value)
            whole = f"{atom(base)}[{', '.join(texts)}]" if texts else base
            numbered = self.base is not None and self.base.holds == "places" and not self.masks
            edits.replace(self.node, texts[0] if numbered else whole)
        axes, at = [], 0
        for mask in self.masks:
            if mask is not None:
                axes.append((at, mask))
            at += mask.rank if mask is not None else 1
        if [m for a, m in axes if m.rank > 1 and a]:
            raise Unsupported
        return Masked(at, tuple(axes)) if axes else None


def _cut(mask: Mask, piece: ast.Slice) -> Mask:
    """The mask of `x[1:]`, `x[:-1]` or `x[::2]` where what counts comes first."""
    first, end, step = (whole_number(b) for b in (piece.lower, piece.upper, piece.step))
    given = [b for b in (piece.lower, piece.upper, piece.step) if b is not None]
    if any(whole_number(b) is None for b in given) or (end is not None and end >= 0):
        raise Unsupported
    return mask.cut(first or 0, -(end or 0), step or 1)

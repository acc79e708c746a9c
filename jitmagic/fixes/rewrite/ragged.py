"""Selections whose length is data-dependent (`x[mask]`, `x[:n]`): keep the whole array, mask where it is reduced.

An expression is lowered to one over the whole array together with the mask of the elements that count. What
works element by element keeps the mask; a reduction uses it up; where neither holds there is no rewrite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.reductions import Reductions
from jitmagic.fixes.rewrite.selections import Masked, Unsupported
from jitmagic.fixes.rewrite.truths import stripped

TITLE = "keep the whole array, and mask where it is reduced"
WIDE = 90
KINDS = ("dynamic-shape", "tracer-array-conversion", "tracer-int", "user-error")


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


def _named(name: str, mask: str) -> str:
    """The mask as a statement, a long one a test to a line."""
    if len(mask) <= WIDE:
        return f"{name} = {mask}\n"
    lines = mask.replace(") & (", ")\n    & (")
    return f"{name} = (\n    {lines}\n)\n"


@dataclass
class _Lowering(Reductions):
    """Rewrites a block from one statement on."""

    # -- statements

    def block(self, statements: Sequence[Any], start: int) -> str | None:
        """The cell with the statements from `start` on lowered; None where nothing changed."""
        changes: dict[Any, str | None] = {}
        self.changes = changes
        for statement in statements[start:]:
            self._statement(statement)
        if not changes:
            return None
        named = [m for m in self.masks if not names.constant(m) and self.uses.get(m, 0) > 1]
        first = statements[start]
        lead, given = "", set(self.place.taken)
        for mask in named:
            name = names.fresh("live" if "arange" in mask else "mask", given)
            given.add(name)
            lead += _named(name, mask)
            for node, text in changes.items():
                if text is not None:
                    changes[node] = text.replace(f"({mask})[", f"{name}[").replace(mask, name)
        if lead:
            kept = changes.get(first, self.place.cell.code(first))
            changes[first] = lead + (kept or "")
        return self.place.cell.edit(changes)

    def _statement(self, statement: Any) -> None:
        import libcst as cst

        if isinstance(statement, cst.SimpleStatementLine):
            self._line(statement)
        elif self._concerned(statement):
            if not isinstance(statement, cst.If):
                raise Unsupported
            self._branch(statement)

    def _branch(self, statement: Any) -> None:
        """An `if`, in which no name comes to stand for another selection."""
        import libcst as cst

        test = self._dense(statement.test)
        if test != self.place.cell.code(statement.test):
            self.changes[statement.test] = test
        before = dict(self.known), dict(self.indices)
        for line in statement.body.body:
            self._statement(line)
        if isinstance(statement.orelse, cst.If):
            self._branch(statement.orelse)
        for line in statement.orelse.body.body if isinstance(statement.orelse, cst.Else) else ():
            self._statement(line)
        if before != (self.known, self.indices):
            raise Unsupported

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
        return f"{name} = {stripped(new.text)}"

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

        if isinstance(node, cst.Lambda):
            raise Unsupported
        if isinstance(node, (cst.ListComp, cst.GeneratorExp, cst.DictComp, cst.SetComp)):
            return self._comprehension(node)
        return Masked(self._with_dense_parts(node))

    def _comprehension(self, node: Any) -> Masked:
        """Its parts must be dense. A mask that differs from turn to turn has no name in front of it."""
        code = self.place.cell.code(node)
        bound = names.inside(code)
        if bound & {*self.known, *self.indices}:
            raise Unsupported
        text = self._with_dense_parts(node)
        for mask in [m for m in self.masks if bound & names.loads(m)]:
            del self.masks[mask]
        return Masked(text)

    def _with_dense_parts(self, node: Any) -> str:
        import libcst as cst

        from jitmagic.fixes.rewrite.conversions import patched

        changes: dict[Any, str | None] = {}

        def walk(current: Any) -> None:
            for child in current.children:
                if isinstance(child, cst.BaseExpression):
                    changes[child] = self._dense(child)
                else:
                    walk(child)

        walk(node)
        return patched(self.place, node, changes)

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

    def _binary(self, node: Any) -> Masked:
        import libcst as cst

        left, right = self.lower(node.left), self.lower(node.right)
        sign = self.place.cell.code(node.operator)
        if isinstance(node.operator, cst.MatrixMultiply):
            if left.axis or right.axis or left.flat or right.flat:
                raise Unsupported
            if left.mask is None and right.mask is None:
                return Masked(f"{left.text} {sign.strip()} {right.text}")
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

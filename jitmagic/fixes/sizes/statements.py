"""Statements over selections and padded arrays: what their names stand for, and where the masks are bound."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from jitmagic.fixes.change import Spot
from jitmagic.fixes.loops.lax_calls import LaxLoop
from jitmagic.fixes.sizes.masked_calls import MaskedCalls
from jitmagic.fixes.sizes.masked_expressions import Alias, is_constant
from jitmagic.fixes.sizes.masks import Length, Mask, Masked, Unsupported
from jitmagic.source import scope
from jitmagic.source.edits import Edits, Text
from jitmagic.source.pattern import Pattern

_KEPT_STEP = """\
def $$name(carry, x):
    x, counts = x
    new, out = $f(carry, x)
    return jax.tree.map(lambda a, b: jnp.where(counts, a, b), new, carry), out
"""
Results = tuple[Masked | None, ...]
Known = dict[str, Alias | Length]
_FOUND = [Pattern("nonzero($c)"), Pattern("where($c)")]


def first_of(text: Text, statement: ast.stmt) -> ast.stmt:
    """The statement, or the `if` whose `elif` it is: others can stand in front of that."""
    return first_of(text, text.statement(text.parents[statement])) if text.is_elif(statement) else statement


class Statements(MaskedCalls):
    """Lowers statements one after the other."""

    def __init__(self, spot: Spot) -> None:
        super().__init__(spot)
        self.sized = set()
        self._at: ast.stmt | None = None
        self._results: set[Results] = set()
        self.returned: dict[ast.expr, Masked] = {}
        """Expressions that functions return, of which a part counts."""
        self._named: list[tuple[ast.stmt, Mask, bool]] = []
        """Masks that get a name, in front of a statement or behind it."""
        self._lengths: list[tuple[str, ast.stmt]] = []
        self._dropped: dict[str, ast.stmt] = {}
        """What bound a variable that is another name for an array."""
        self._kept: set[ast.stmt] = set()

    def name(self, mask: Mask, base: str, behind: bool = False) -> None:
        """A mask that is more than a name, an attribute or an entry gets one, where the statement has its own line."""
        if is_constant(ast.parse(mask.text, mode="eval").body) or self._at is None:
            return
        statement = first_of(self.spot.text, self._at)
        if not self.spot.text.lines[statement.lineno - 1][: statement.col_offset].strip():
            taken = [*self.spot.modules.names, *(m.name for _, m, _ in self._named)]
            mask.name = self.spot.text.fresh(base, taken=taken)
            self._named.append((statement, mask, behind))

    def finished(self) -> Edits:
        """The changes, with the masks that are used bound in front."""
        unused = {s for name, s in self._lengths if name not in self.sized}
        for statement in unused | set(self._dropped.values()) - self._kept:
            self.edits.remove(statement)
        for statement, mask, behind in self._named:
            if mask.used:
                put = self.edits.after if behind else self.edits.before
                put(statement, f"{mask.name} = {mask.text}")
        return self.edits

    def body(
        self, statements: Sequence[ast.stmt], known: Known, masks: Mapping[tuple[str, ...], Mask],
        new: Sequence[Mask] = (),
    ) -> Results:  # fmt: skip
        """Change statements that run in a row, with what names stand for in front of them and masks to be bound there;
        what they return, part by part."""
        outer = self.known, self.masks, self._at, self._results
        self.known, self.masks, self._at, self._results = dict(known), dict(masks), statements[0], set()
        for mask in new:
            self.name(mask, "keep")
        self.block(statements)
        results = self._results
        self.known, self.masks, self._at, self._results = outer
        if len(results) > 1:
            raise Unsupported
        return results.pop() if results else ()

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Statements that follow each other."""
        for statement in statements:
            self._at = statement
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=ast.expr() as value):
                self._assign(node, target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(node, target, value)
            case ast.AugAssign(target=ast.Name() as target, value=value):
                self._changed(target, self.masked(value))
            case ast.Return(value=ast.expr() as value):
                parts = value.elts if isinstance(value, ast.Tuple) else [value]
                found = [self.masked(p) for p in parts]
                self._results.add(tuple(found))
                self.returned |= {p: v for p, v in zip(parts, found, strict=True) if v is not None}
            case ast.If(test=test, body=body, orelse=orelse):
                self.dense(test)
                self._branches(body, orelse)
            case ast.For(iter=test, body=body, orelse=[]) | ast.While(test=test, body=body, orelse=[]):
                self.dense(test)
                self._keep(*(n for s in body for n in scope.stores(s)))
                before = dict(self.known)
                self.bind(*([node.target] if isinstance(node, ast.For) else []))
                self._branches(body, [])
                if any(self.known.get(n) != v for n, v in before.items()):
                    raise Unsupported
            case ast.FunctionDef(body=body):
                hidden = {*scope.parameters_of(node), *(n for s in body for n in scope.stores(s))}
                if any(self.body(body, {k: v for k, v in self.known.items() if k not in hidden}, self.masks)):
                    raise Unsupported
                self.bind(ast.Name(node.name, ast.Store()))
            case ast.With(items=items, body=body):
                for item in items:
                    self.dense(item.context_expr)
                    self.bind(*([item.optional_vars] if item.optional_vars else []))
                self.block(body)
            case ast.ClassDef() | ast.Try() | ast.AugAssign() if _names(node) & self.known.keys():
                raise Unsupported
            case _:
                self.parts(node)

    def _branches(self, *branches: Sequence[ast.stmt]) -> None:
        """Blocks of which one runs: a name stands for the same after each that binds it."""
        bound = [{n for s in b for n in scope.stores(s)} for b in branches]
        self._keep(*(n for names in bound for n in names))
        before, masks, after = dict(self.known), dict(self.masks), list[Known]()
        for statements in branches:
            self.known, self.masks = dict(before), dict(masks)
            self.block(statements)
            after.append(self.known)
        for name in set().union(*bound):
            if len({known.get(name) for known, names in zip(after, bound, strict=True) if name in names}) > 1:
                raise Unsupported
            if name in before and any(known.get(name) != before[name] for known in after):
                raise Unsupported
        self.known, self.masks = {k: v for known in after for k, v in known.items()}, masks
        self.forget(*set().union(*bound))

    # -- what names stand for

    def bind(self, *targets: ast.expr) -> None:
        """Names that stand for something else from here on; other names of what they were are variables then."""
        for name in {n for t in targets for n in scope.stores(t)}:
            self.known.pop(name, None)
            others = [(n, k.text) for n, k in self.known.items() if isinstance(k, Alias)]
            self._keep(*(other for other, text in others if name in scope.loads(text)))
            self.forget(name)

    def _keep(self, *names: str) -> None:
        """Other names for arrays stay variables."""
        for name in names:
            found = self.known.get(name)
            if isinstance(found, Alias) and found.text != name:
                self.known[name] = Alias(name, found.value)
                self._kept.add(self._dropped[name])

    def _changed(self, target: ast.Name, value: Masked | None) -> None:
        """`x += y`, element by element."""
        found = self.known.get(target.id)
        if value is None and found is None:
            self.bind(target)
        elif (
            not isinstance(found, Alias)
            or found.text != target.id
            or value
            and value.axes != found.value.axes
        ):
            raise Unsupported
        else:
            self.known[target.id] = Alias(target.id, Masked(found.value.rank, found.value.axes))

    def _assign(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self.bound_to[value] = name
                self._assign_name(node, target, name, value)
            case ast.Tuple(elts=[ast.Name(id=name)]), ast.Call() if condition := _condition(self.spot, value):
                found = self.positions(condition)
                self.bind(target)
                self.edits.replace(target, name).replace(value, found.text)
                self.known[name], self._dropped[name] = found, node
            case ast.Tuple(elts=names), ast.Attribute(attr="shape", value=array):
                self._assign_shape(target, names, value, self.masked(array))
            case ast.Tuple(elts=names), ast.Tuple(elts=parts) if len(names) == len(parts):
                self._assign_each(node, target, names, parts)
            case ast.Tuple(elts=[carry, rows]), ast.Call() if scan := self._scanned(value):
                self._scan(node, scan, used=ast.unparse(carry) != "_")
                self.bind(target)
                if ast.unparse(rows) != "_":
                    self.known |= {ast.unparse(rows): Alias(ast.unparse(rows), self._rows(value, scan[1]))}
            case ast.Tuple(elts=names), ast.Call() if (results := self.several(value)) is not None:
                if len(names) != len(results):
                    raise Unsupported
                self.bind(target)
                selected = {ast.unparse(n): v for n, v in zip(names, results, strict=True) if v is not None}
                self.known |= {name: Alias(name, v) for name, v in selected.items()}
            case ast.Tuple(elts=names), ast.Name() | ast.Attribute() | ast.Subscript() if held := self._held(
                value
            ):
                ranks = [len(s.shape) for s in self.spot.seen(value)]
                self.bind(target)
                each = [(n.id, r) for n, r in zip(names, ranks, strict=False) if isinstance(n, ast.Name)]
                self.known |= {name: Alias(name, Masked(rank, held.axes)) for name, rank in each}
            case _:
                self.dense(value)
                self.parts(target)
                self.bind(target)

    def _scanned(self, call: ast.Call) -> tuple[LaxLoop, Mask] | None:
        """A scan over the rows of arrays of which a part counts, and which."""
        loop = LaxLoop.of(self.spot, call)
        if loop is None or loop.name != "scan" or (over := loop.parts.get("xs")) is None:
            return None
        if isinstance(over, ast.Constant) and (many := loop.parts.get("length")) is not None:
            length = self.value(many)
            if not isinstance(length, Length):
                return None
            if not length.mask.leading:
                raise Unsupported
            self.dense(loop.start, loop.parts["body"])
            self.sized |= scope.loads(many)
            return loop, length.mask
        found = [self.masked(x) for x in (over.elts if isinstance(over, ast.Tuple) else [over])]
        if not any(found):
            return None
        self.dense(loop.start, loop.parts["body"])
        first = found[0]
        if first is None or any(v is None or v.axes != first.axes for v in found) or len(first.axes) > 1:
            raise Unsupported
        (axis, mask), *_ = first.axes
        if axis or not mask.leading:
            raise Unsupported
        return loop, mask

    def _scan(self, node: ast.stmt, scan: tuple[LaxLoop, Mask], *, used: bool) -> None:
        """The state stays as it is in rows that do not count, where it is used or they come first."""
        loop, mask = scan
        if used or any(k.arg == "reverse" for k in loop.call.keywords):
            body, over = loop.parts["body"], loop.parts["xs"]
            name = self.spot.fresh("kept_step", "step_where")
            step = self.spot.write(_KEPT_STEP, self.edits, name=name, f=body)
            self.edits.before(first_of(self.spot.text, node), step)
            self.edits.replace(body, name).replace(over, f"({self.edits.code(over)}, {mask.written()})")

    def _rows(self, call: ast.Call, mask: Mask) -> Masked:
        """The array that a scan stacks."""
        one = 'found[1] if hasattr(found[1], "shape") else None'
        code = f"(lambda found: (__seen__({one}), found)[1])({self.spot.code(call)})"
        shapes = self.spot.probed(self.spot.edits().replace(call, code))
        ranks = {len(s.shape) for s in shapes if s.dtype}
        if len(ranks) != 1 or not all(s.dtype for s in shapes):
            raise Unsupported
        return Masked(ranks.pop(), ((0, mask),))

    def _held(self, value: ast.expr) -> Masked | None:
        """A dict or a tuple of arrays."""
        found = self.given(value)
        return found if found is not None and found.holds == "arrays" else None

    def _assign_name(self, node: ast.stmt, target: ast.expr, name: str, value: ast.expr) -> None:
        found = self.value(value)
        self.bind(target)
        if isinstance(found, Length) and found.mask.count.isidentifier():
            self.known[name] = found
            self._lengths.append((name, node))
        elif isinstance(found, Length):
            self.edits.replace(value, self.count(found.mask))
        elif found is not None:
            self._stands_for(node, {name: (value, found)})

    def _assign_each(
        self, node: ast.stmt, target: ast.expr, names: Sequence[ast.expr], parts: Sequence[ast.expr]
    ) -> None:
        """`a, b = x[m], y[m]`: where no more than the arrays is left of it, it goes."""
        values = [self.masked(p) for p in parts]
        self.bind(target)
        each = zip(names, parts, values, strict=True)
        found = {n.id: (p, v) for n, p, v in each if v and isinstance(n, ast.Name)}
        if len(found) < sum(v is not None for v in values):
            raise Unsupported
        self._stands_for(node, found, all(values))

    def _stands_for(
        self, node: ast.stmt, found: Mapping[str, tuple[ast.expr, Masked]], alone: bool = True
    ) -> None:
        """Names for arrays: where nothing but another name is left of a selection, the statement goes."""
        for part, value in found.values():
            code = self.edits.code(part)
            short = value.holds == "places" or is_constant(ast.parse(code, mode="eval").body)
            alone = alone and short and code != self.spot.code(part)
        for name, (part, value) in found.items():
            self.known[name] = Alias(self.edits.code(part) if alone else name, value)
            self._dropped |= {name: node} if alone else {}

    def _assign_shape(
        self, target: ast.expr, names: Sequence[ast.expr], value: ast.Attribute, array: Masked | None
    ) -> None:
        """`n, k = x.shape`: what the first is written for may be how much counts, or the whole length."""
        self.bind(target)
        masks = {name: array.at(k) for k, name in enumerate(names)} if array is not None else {}
        counted = {n: m for n, m in masks.items() if m is not None}
        if all(m.count.isidentifier() for m in counted.values()):
            self.known |= {n.id: Length(m) for n, m in counted.items() if isinstance(n, ast.Name)}
            return
        x = self.edits.code(value.value)
        sizes = [self.count(m) if m is not None else f"{x}.shape[{k}]" for k, m in enumerate(masks.values())]
        self.edits.replace(value, ", ".join(sizes))


def _condition(spot: Spot, value: ast.expr) -> ast.expr | None:
    """`c` of `jnp.nonzero(c)`."""
    found = [m for p in _FOUND if (m := p.match(value, spot.modules)) is not None]
    return found[0].expr("c") if found else None


def _names(node: ast.AST) -> set[str]:
    return scope.loads(node) | {*scope.stores(node)}

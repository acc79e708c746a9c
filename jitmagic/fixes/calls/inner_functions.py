"""Variables around an inner function that jax runs: what it stores into them comes out beside its result.

`jax.grad` and `jax.value_and_grad` take it as `has_aux=True`, `jax.vmap` and `jax.jit` as a second result, a
`fori_loop` becomes a `scan`, which stacks it. What the body of a loop updates is carried through the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.lax_calls import LaxLoop, returned
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import bare

RUNS = dict.fromkeys("grad value_and_grad vmap jit checkpoint remat lax.scan".split(), 0) | {
    "lax.fori_loop": 2
}
"""What of jax runs a function, and which of its arguments that is."""


@dataclass(frozen=True)
class Escaping:
    """One store of an inner function into what the outer one holds: into a name, a list or an item."""

    statement: ast.stmt
    name: str
    value: ast.expr
    kind: Literal["name", "list", "item"]
    target: str
    """What the value is bound to outside."""


@dataclass(frozen=True)
class Applied:
    """The one place where jax runs an inner function."""

    name: str
    """`grad`, `scan`."""
    call: ast.Call
    """What gives the result."""
    made: ast.Call
    """What names the function: `jax.grad(f)` of `jax.grad(f)(x)`."""


def escaping(spot: Spot) -> Iterator[Change]:
    """What escapes from the inner functions of the outermost one, one change for each such function."""
    functions, around = spot.text.within(spot.text.tree, ast.FunctionDef), spot.outermost
    inside = [(around, f) for f in functions if around is not None and spot.text.function(f) is around]
    callers = [(f, around) for f in functions if f is not around and spot.text.function(f) is None]
    for outer, inner in (*inside, *callers):
        if outer is None or inner is None:
            continue
        pair = Pair(spot, outer, inner)
        names = list(dict.fromkeys(e.name for e in pair.escapes))
        if not names or outer is not around and not {*names} <= scope.loads(scope.body_of(outer.body)):
            continue  # kept for others to read
        if pair.returned():
            yield Change(f"return {listed(names)} from `{inner.name}` beside its result", pair.edits)
        elif pair.applied is None and pair.stacked_by_loop():
            yield Change(f"return what is put into {listed(names)}: the loop stacks it", pair.edits)


def carried_along(spot: Spot) -> Iterator[Change]:
    """Outer variables that the body of a `scan` or a `fori_loop` updates, as part of the state of the loop."""
    for body in spot.text.within(spot.outermost, ast.FunctionDef) if spot.outermost is not None else ():
        outer = spot.text.function(body)
        pair = Pair(spot, outer, body) if outer is not None else None
        if pair is not None and pair.carried():
            yield Change(f"carry {listed(pair.updated)} through the loop", pair.edits)


@dataclass
class Pair:
    """An inner function and the one around it or that calls it, and the changes of both."""

    spot: Spot
    outer: FunctionNode
    inner: FunctionNode
    edits: Edits = field(init=False)

    def __post_init__(self) -> None:
        self.edits = self.spot.edits()
        self.text = self.spot.text
        self.held = {*scope.stores(scope.body_of(self.outer.body))} - scope.local_names(self.inner)
        """Variables of the outer function that are no other ones in the inner one."""
        self.escapes = self._escapes()
        results = returned(self.spot, self.inner)
        self.result = results[0] if len(results) == 1 else None
        """What the inner function returns, if it does so once."""

    # -- what there is

    def _escapes(self) -> list[Escaping]:
        """Stores of the inner function into what the outer one holds."""
        found: list[Escaping] = []
        held, outside = self.held, scope.outer_names(self.inner)
        for statement in self.inner.body:
            match statement:
                case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [value])) if name in held:
                    found.append(Escaping(statement, name, value, "list", name))
                case ast.Assign([ast.Name(name)], value) if name in outside:
                    found.append(Escaping(statement, name, value, "name", name))
                case ast.Assign([ast.Subscript(ast.Name(name)) as target], value) if name in held:
                    found.append(Escaping(statement, name, value, "item", self.spot.code(target)))
        return found

    @property
    def updated(self) -> list[str]:
        """Outer variables that the inner function binds by `nonlocal`, or into whose items it stores."""
        items = (n for n in self.text.own(self.inner, ast.Subscript) if isinstance(n.ctx, ast.Store))
        names = {getattr(n.value, "id", "") for n in items} & self.held
        return [*(n for s in self.text.own(self.inner, ast.Nonlocal) for n in s.names), *sorted(names)]

    @property
    def applied(self) -> Applied | None:
        """The one call in which jax runs the inner function; None where there are others, or it has an `aux`."""
        found: list[Applied] = []
        calls = self.text.own(self.outer, ast.Call)
        for call in calls:
            full, given = self.spot.full(call), [getattr(a, "id", "") for a in call.args]
            position = RUNS.get(full.removeprefix("jax."), len(given))
            if self.inner.name not in given[position : position + 1]:
                continue
            results, parent = [call], self.text.parents[call]
            if not full.startswith("jax.lax."):
                name = self.spot.code(parent.targets[0]) if isinstance(parent, ast.Assign) else ""
                results = [c for c in calls if c.func is call or self.spot.code(c.func) == name]
            found += [Applied(full.rpartition(".")[2], c, call) for c in results]
        alone = len(found) == 1 and not any(k.arg == "has_aux" for k in found[0].made.keywords)
        return found[0] if alone else None

    # -- beside the result

    def returned(self) -> bool:
        """The inner function returns what it stored, and the outer one binds it. False where it uses it otherwise."""
        use, result, escapes = self.applied, self.result, self.escapes
        if use is None or result is None or use.name == "scan":  # that has a second result already
            return False
        self._take_out_empty()
        self._declare_nothing()
        beside = ", ".join(map(self._value, escapes))
        beside = beside if len(escapes) == 1 else f"({beside})"
        self.edits.replace(result, f"{bare(self.edits.code(result))}, {beside}")
        after = ""
        if use.name in ("grad", "value_and_grad"):
            self.edits.argument(use.made, "has_aux=True")
        if use.name == "fori_loop":
            if len(self.inner.args.args) != 2 or len(use.call.args) != 4:
                return False
            after = "".join(f"{e.name} = {e.name}[-1]\n" for e in escapes if e.kind == "name")
            self._as_scan(use.call)
        if not self._lists_are_arrays(use.name):
            return False
        name = "gradient" if use.name == "grad" else "result"
        return self._bind(use, [e.target for e in escapes], name, after)

    def _declare_nothing(self) -> None:
        """The inner function has no variables any more that are those of others."""
        for statement in self.text.own(self.inner, ast.Nonlocal, ast.Global):
            self.edits.remove(statement)

    def _value(self, escape: Escaping) -> str:
        """What stands for a store in what is returned, and what becomes of the store."""
        statement, value, name = escape.statement, escape.value, escape.name
        if escape.kind == "name" and name not in scope.loads(value):
            return name
        if escape.kind != "name" and isinstance(value, ast.Name):
            self.edits.remove(statement)
            own = value.id
        else:
            wanted = {"name": f"new_{name}", "list": name.removesuffix("s"), "item": "value"}[escape.kind]
            own = self.edits.fresh(wanted, taken=self.spot.modules.names)
            self.edits.replace(statement, f"{own} = {self.spot.code(value)}")
        for item in self.text.within(self.inner, ast.Subscript) if escape.kind == "item" else ():
            if isinstance(item.ctx, ast.Load) and self.spot.code(item) == escape.target:
                self.edits.replace(item, own)
        return own

    def _as_scan(self, loop: ast.Call) -> None:
        """`fori_loop(low, high, body, x)` as `scan(body, x, arange(low, high))`."""
        first, second = self.inner.args.args
        self.edits.replace(first, second.arg).replace(second, first.arg)
        low, high, body, start = loop.args
        span = [high] if self.spot.code(low) == "0" else [low, high]
        template = "lax.scan($body, $start, jnp.arange($*span))"
        new = self.spot.write(template, self.edits, body=body, start=start, span=span)
        self.edits.replace(loop, new)

    def _take_out_empty(self) -> None:
        """`seen = []` and `last = None` of the outer function, which nothing needs any more."""
        gone = {e.name for e in self.escapes if e.kind != "item"}
        for assign in self.text.own(self.outer, ast.Assign):
            if (
                self.spot.code(assign.value) in ("[]", "None", "list()")
                and self.spot.code(assign.targets[0]) in gone
            ):
                self.edits.remove(assign)

    def _lists_are_arrays(self, by: str) -> bool:
        """`jnp.stack(seen)` as `seen`, which a loop or `vmap` has stacked, and `seen[0]` of what was run once. False
        where the list is used otherwise."""
        lists = {e.name for e in self.escapes if e.kind == "list"}
        inside = set(self.text.within(self.inner, ast.Name))
        for name in self.text.within(self.outer, ast.Name):
            if name.id not in lists or name in inside or isinstance(name.ctx, ast.Store):
                continue
            match self.text.parents[name]:
                case ast.Call(func, [_], []) as whole if by in ("fori_loop", "for_loop", "vmap"):
                    fits = last_name(func) in ("stack", "array", "asarray")
                case ast.Subscript(_, index) as whole if by not in ("fori_loop", "for_loop"):
                    fits = self.spot.code(index) in ("0", "-1")
                case whole:
                    fits = False
            if fits:
                self.edits.replace(whole, name.id)
            elif by not in ("fori_loop", "for_loop"):
                return False
        return True

    def _bind(self, use: Applied, beside: Sequence[str], name: str, after: str = "") -> bool:
        """Bind what comes beside the result of a call, wherever that stands. False where that is taken apart."""
        statement, new, rest = self.text.statement(use.call), self.edits.code(use.call), ""
        own = beside[0] if len(beside) == 1 else f"({', '.join(beside)})"
        match statement:
            case ast.Expr(value) if value is use.call:
                whole, parts = "_", ["_", "_"]
            case ast.Assign([target], value) if value is use.call:
                whole = bare(self.spot.code(target))
                parts = [self.spot.code(e) for e in target.elts] if isinstance(target, ast.Tuple) else []
            case _:
                self.edits.replace(use.call, name)
                whole, parts, rest = name, [], self.edits.code(statement)
        if use.name in ("value_and_grad", "scan"):  # of its two results, the first gets more beside it
            if len(parts) != 2:
                return False
            bound = f"({bare(parts[0])}, {own}), {parts[1]}"
        else:
            bound = f"{whole}, {own}"
        self.edits.statements(statement, f"{bound} = {new}\n{after}{rest}")
        return True

    # -- through a loop

    def stacked_by_loop(self) -> bool:
        """`bm.for_loop(body, xs)` with `seen.append(y)` last in its body as `seen = bm.for_loop(body, xs)`, which
        stacks what the body returns."""
        (escape, *others), last = self.escapes, self.inner.body[-1]
        if others or escape.kind != "list" or escape.statement is not last:
            return False
        for line in self.text.own(self.outer, ast.Expr):
            match line.value:
                case ast.Call(func, [ast.Name(self.inner.name), *_]) as call if last_name(func) == "for_loop":
                    self.edits.replace(last, f"return {self.spot.code(escape.value)}")
                    self.edits.replace(line, f"{escape.name} = {self.spot.code(call)}")
                    self._take_out_empty()
                    return self._lists_are_arrays("for_loop")
        return False

    def carried(self) -> bool:
        """The body takes and gives the variables beside its state, and the loop starts with them."""
        use, result, updated = self.applied, self.result, self.updated
        loop = LaxLoop.of(self.spot, use.call) if updated and use is not None else None
        if use is None or loop is None:
            return False
        if use.name == "scan":
            result = result.elts[0] if isinstance(result, ast.Tuple) and len(result.elts) == 2 else None
        if len(self.inner.args.args) != 2 or result is None:
            return False
        beside, state = ", ".join(updated), self.spot.fresh("state")
        parameter = self.inner.args.args[use.name == "fori_loop"]
        pair = f"{bare(self.spot.code(result))}, {beside}"
        self.edits.replace(parameter, state).replace(result, f"({pair})" if use.name == "scan" else pair)
        self.edits.replace(loop.start, f"({bare(self.spot.code(loop.start))}, {beside})")
        self._declare_nothing()
        first = next(s for s in signature.body_of(self.inner) if not isinstance(s, ast.Nonlocal))
        self.edits.before(first, f"{parameter.arg}, {beside} = {state}")
        return self._bind(use, [beside], "result")

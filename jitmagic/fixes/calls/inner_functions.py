"""Variables around an inner function that jax runs: what it stores into them comes out beside its result.

`jax.grad` and `jax.value_and_grad` take it as `has_aux=True`, `jax.vmap` and `jax.jit` as a second result, a `scan`
stacks it, a `fori_loop` becomes a `scan`. What the body of a loop updates is carried through the loop.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from jitmagic.correction import option_of
from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.filled import addition, as_stacked, stacks
from jitmagic.fixes.loops.iterations import group
from jitmagic.fixes.loops.lax_calls import LaxLoop, returned
from jitmagic.fixes.loops.stored_attributes import stored_in
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import bare

RUNS = frozenset("grad value_and_grad vmap jit checkpoint remat".split())
"""What of jax runs the function that is its first argument; the loops are others."""
_BEGUN = ("[]", "None", "list()")


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
    functions, around = spot.text.functions, spot.outermost
    inside = [(spot.text.function(f), f) for f in functions if around in [*spot.text.ancestors(f)]]
    callers = [(f, around) for f in functions if f is not around and spot.text.function(f) is None]
    for outer, inner in (*inside, *callers):
        if outer is None or not isinstance(inner, ast.FunctionDef):
            continue
        pair = InnerFunction(spot, outer, inner)
        names = list(dict.fromkeys(e.name for e in pair.escapes))
        if not names or outer is not around and not {*names} <= scope.loads(scope.body_of(outer.body)):
            continue  # kept for others to read
        with contextlib.suppress(CannotEdit):
            yield Change(f"return {listed(names)} from `{inner.name}` beside its result", pair.returned())


def carried_along(spot: Spot) -> Iterator[Change]:
    """Outer variables that the body of a `scan` or a `fori_loop` updates, as part of the state of the loop."""
    # the place may be in a method that the body calls
    around = dict.fromkeys([spot.outermost, spot.text.definition(spot.function)])
    for body in (b for f in around if f is not None for b in spot.text.within(f, ast.FunctionDef)):
        outer = spot.text.function(body)
        pair = InnerFunction(spot, outer, body) if outer is not None else None
        if pair is not None and pair.updated:
            with contextlib.suppress(CannotEdit):
                title, edits = f"carry {listed(pair.updated)} through the loop", pair.carried()
                dynamic = [v.path for v in spot.evidence.variables if v.role == "dynamic"]
                last = {n.rpartition(".")[2] for n in pair.updated if "." in n}
                written = [w.path for w in spot.evidence.writes if w.path.rpartition(".")[2] in last]
                declared = [*dynamic, *option_of(spot.attempt.magic, "--dyn")]
                if new := [path for path in written if path not in declared]:
                    yield Change(f"{title}; make {listed(new)} dynamic", edits, dyn=(*dynamic, *new))
                yield Change(title, edits)


class InnerFunction:
    """An inner function and the one around it or that calls it, and the changes of both. Raises CannotEdit where they
    use what is stored, or each other, otherwise."""

    def __init__(self, spot: Spot, outer: FunctionNode, inner: ast.FunctionDef) -> None:
        self.spot, self.text, self.outer, self.inner, self.edits = spot, spot.text, outer, inner, spot.edits()
        self.held = {*scope.stores(scope.body_of(outer.body))} - scope.local_names(inner)
        """Variables of the outer function that are no other ones in the inner one."""
        self.escapes = [e for s in inner.body if (e := self._escape(s)) is not None]

    def _escape(self, statement: ast.stmt) -> Escaping | None:
        """A store of the inner function into what the outer one holds."""
        added = addition(self.spot, statement)
        if added is not None and added.name in self.held and not added.front:
            return Escaping(statement, added.name, added.value, "list", added.name)
        match statement:
            case ast.Assign([ast.Name(name)], value) if name in scope.outer_names(self.inner):
                return Escaping(statement, name, value, "name", name)
            case ast.Assign([ast.Subscript(ast.Name(name)) as target], value) if name in self.held:
                return Escaping(statement, name, value, "item", self.spot.code(target))
        return None

    @property
    def updated(self) -> list[str]:
        """Outer variables that the inner function binds by `nonlocal`, or into whose items it stores; attributes into
        which it or a method stores."""
        items = (n for n in self.text.own(self.inner, ast.Subscript) if isinstance(n.ctx, ast.Store))
        names = {getattr(n.value, "id", "") for n in items} & self.held
        bound = [n for s in self.text.own(self.inner, ast.Nonlocal) for n in s.names]
        return [*bound, *sorted(names), *stored_in(self.spot, self.inner.body)]

    @property
    def result(self) -> ast.expr:
        """What the inner function returns, if it does so once."""
        results = returned(self.spot, self.inner)
        if len(results) != 1:
            raise CannotEdit("it does not return once")
        return results[0]

    def _pair_of(self, result: ast.expr) -> tuple[ast.expr, ast.expr]:
        """The state and the result of an iteration that the body of a `scan` returns."""
        if not isinstance(result, ast.Tuple) or len(result.elts) != 2:
            raise CannotEdit("the body returns no pair")
        return result.elts[0], result.elts[1]

    @property
    def applied(self) -> Applied:
        """The one call in which jax runs the inner function, without an `aux` of its own."""
        found: list[Applied] = []
        calls = self.text.own(self.outer, ast.Call)
        for call in calls:
            loop, full = LaxLoop.of(self.spot, call), self.spot.full(call)
            mapped = call.args[0] if call.args and full.removeprefix("jax.") in RUNS else None
            if getattr(loop.parts["body"] if loop else mapped, "id", "") != self.inner.name:
                continue
            results, parent = [call], self.text.parents[call]
            if loop is None:
                name = self.spot.code(parent.targets[0]) if isinstance(parent, ast.Assign) else ""
                results = [c for c in calls if c.func is call or self.spot.code(c.func) == name]
            found += [Applied(loop.name if loop else full.rpartition(".")[2], c, call) for c in results]
        if len(found) != 1 or any(k.arg == "has_aux" for k in found[0].made.keywords):
            raise CannotEdit("it is not run once by jax")
        if found[0].name == "while_loop":
            raise CannotEdit("a loop without an end stacks nothing")
        return found[0]

    # -- beside the result

    def returned(self) -> Edits:
        """The inner function returns what it stored, and the outer one binds it."""
        if (stacked := self._stacked_by_loop()) is not None:
            return stacked
        use, result, own, after = self.applied, self.result, "", ""
        self._take_out_empty()
        self._declare_nothing()
        beside, places = [self._value(e) for e in self.escapes], [e.target for e in self.escapes]
        if use.name == "scan":
            state, own = map(self.spot.code, self._pair_of(result))
            own = own.removeprefix("None")
            self.edits.replace(result, f"{bare(state)}, {group([*([own] if own else []), *beside])}")
        else:
            self.edits.replace(result, f"{bare(self.edits.code(result))}, {group(beside)}")
        if use.name in ("grad", "value_and_grad"):
            self.edits.argument(use.made, "has_aux=True")
        if use.name == "fori_loop":
            after = "".join(f"{e.name} = {e.name}[-1]\n" for e in self.escapes if e.kind == "name")
            self._as_scan(use.call)
        after += self._lists_are_arrays(once=use.name not in ("scan", "fori_loop"))
        return self._bind(use, places, after, kept=bool(own))

    def _declare_nothing(self) -> None:
        """The inner function has no variables any more that are those of others."""
        for statement in self.text.own(self.inner, ast.Nonlocal, ast.Global):
            self.edits.remove(statement)

    def _value(self, escape: Escaping) -> str:
        """What stands for a store in what is returned, and what becomes of the store."""
        statement, value, name = escape.statement, escape.value, escape.name
        if escape.kind == "name" and name not in scope.loads(value):
            return name
        below = scope.body_of(self.inner.body[self.inner.body.index(statement) + 1 :])
        if escape.kind != "name" and isinstance(value, ast.Name) and value.id not in scope.stores(below):
            self.edits.remove(statement)
            own = value.id
        else:
            one = name.removesuffix("s") if name.endswith("s") else "value"
            wanted = {"name": f"new_{name}", "list": one, "item": "value"}[escape.kind]
            own = self.edits.fresh(wanted, taken=self.spot.modules.names)
            self.edits.replace(statement, f"{own} = {self.spot.code(value)}")
        for item in self.text.within(self.inner, ast.Subscript) if escape.kind == "item" else ():
            if isinstance(item.ctx, ast.Load) and self.spot.code(item) == escape.target:
                self.edits.replace(item, own)
        return own

    def _as_scan(self, loop: ast.Call) -> None:
        """`fori_loop(low, high, body, x)` as `scan(body, x, arange(low, high))`."""
        if len(self.inner.args.args) != 2 or len(loop.args) != 4:
            raise CannotEdit("its arguments are given otherwise")
        first, second = self.inner.args.args
        self.edits.replace(first, second.arg).replace(second, first.arg)
        low, high, body, start = loop.args
        span = [high] if self.spot.code(low) == "0" else [low, high]
        template = "lax.scan($body, $start, jnp.arange($*span))"
        new = self.spot.write(template, self.edits, body=body, start=start, span=span)
        self.edits.replace(loop, new)

    def _take_out_empty(self) -> None:
        """`seen = []`, `last = None` and `xs, ys = [], []` of the outer function, which nothing needs any more."""
        gone = {e.name for e in self.escapes if e.kind != "item"}
        for assign in self.text.own(self.outer, ast.Assign):
            begun = assign.value.elts if isinstance(assign.value, ast.Tuple) else [assign.value]
            if {*scope.stores(assign)} <= gone and {*map(self.spot.code, begun)} <= {*_BEGUN}:
                self.edits.remove(assign)

    def _lists_are_arrays(self, *, once: bool) -> str:
        """`jnp.stack(seen)` as `seen`, which a loop has stacked; of what is run `once`, `seen[0]` too. Gives statements
        that make lists of them again."""
        inside, again = set(self.text.within(self.inner, ast.Name)), ""
        names = [n for n in self.text.within(self.outer, ast.Name) if n not in inside]
        for escape in (e for e in self.escapes if e.kind == "list"):
            uses = [n for n in names if n.id == escape.name and isinstance(n.ctx, ast.Load)]
            if not once:
                again += as_stacked(self.spot, self.edits, uses, escape.value)
            for use in uses if once else ():
                whole = self.text.parents[use]
                first = isinstance(whole, ast.Subscript) and self.spot.code(whole.slice) in ("0", "-1")
                if not first and not stacks(self.spot, whole):
                    raise CannotEdit("the list is used otherwise")
                self.edits.replace(whole, use.id)
        return again

    def _stacked_by_loop(self) -> Edits | None:
        """`bm.for_loop(body, xs)` with `seen.append(y)` last in its body as `seen = bm.for_loop(body, xs)`, which
        stacks what the body returns."""
        (escape, *others), last = self.escapes, self.inner.body[-1]
        for line in self.text.own(self.outer, ast.Expr):
            match line.value:
                case ast.Call(func, [ast.Name(self.inner.name), *_]) as call if last_name(func) == "for_loop":
                    if others or escape.kind != "list" or escape.statement is not last:
                        raise CannotEdit("it does more than add to a list")
                    self.edits.replace(last, f"return {self.spot.code(escape.value)}")
                    self._take_out_empty()
                    again = self._lists_are_arrays(once=False)
                    new = f"{escape.name} = {self.spot.code(call)}\n{again}"
                    return self.edits.statements(line, new)
        return None

    # -- where the outer function binds it

    def _bind(
        self, use: Applied, places: Sequence[str], after: str = "", *,
        kept: bool | None = None, only: bool | None = None,
    ) -> Edits:  # fmt: skip
        """Bind these beside the result of a call, or the first of two; `kept`: beside the second of a `scan`, or in its
        place; `only`: as parts of the state of a loop, which has others or not."""
        call, new, beside = use.call, self.edits.code(use.call), group(places)
        if use.name in ("scan", "value_and_grad"):
            first, second, rest = self._bound_apart(call)
            stacked = group([*([second] if kept else []), *places])
            apart = use.name == "scan" and kept is not None
            into = group([*([] if only else [bare(first)]), *([beside] if only is None else places)])
            bound = f"{bare(first)}, {stacked}" if apart else f"{into}, {second}"
        else:
            whole, rest = self._bound_whole(call, "gradient" if use.name == "grad" else "result")
            bound = ", ".join([*([] if only else [whole]), *([beside] if only is None else places)])
        return self.edits.statements(self.text.statement(call), f"{bound} = {new}\n{after}{rest}")

    def _bound_whole(self, call: ast.expr, name: str) -> tuple[str, str]:
        """What the statement of a call binds to its result, by this name where it has none, and what follows."""
        match self.text.statement(call):
            case ast.Expr(value) if value is call:
                return "_", ""
            case ast.Assign([target], value) if value is call:
                return bare(self.spot.code(target)), ""
            case statement:
                return name, self.edits.replace(call, name).code(statement)

    def _bound_apart(self, call: ast.Call) -> tuple[str, str, str]:
        """The same for the first and the second of its results."""
        part = self.text.parents[call]
        if isinstance(part, ast.Subscript) and (at := self.spot.code(part.slice)) in ("0", "1"):
            name, rest = self._bound_whole(part, self.spot.fresh("result"))
            return (name, "_", rest) if at == "0" else ("_", name, rest)
        match self.text.statement(call):
            case ast.Expr(value) if value is call:
                return "_", "_", ""
            case ast.Assign([ast.Tuple([first, second])], value) if value is call:
                return self.spot.code(first), self.spot.code(second), ""
        raise CannotEdit("its results have one name")

    # -- through a loop

    def carried(self) -> Edits:
        """The body takes and gives the variables beside its state, and the loop starts with them."""
        use, result, parameters = self.applied, self.result, self.inner.args.args
        loop = LaxLoop.of(self.spot, use.call)
        if loop is None or len(parameters) != 2:
            raise CannotEdit("it is no body of a loop")
        given = self._pair_of(result)[0] if use.name == "scan" else result
        parameter, state = parameters[use.name == "fori_loop"], self.spot.fresh("state")
        begun, before, after = bare(self.spot.code(loop.start)), parameter.arg, bare(self.spot.code(given))
        only = begun == "None" and after in ("None", before)  # it had no state of its own
        own, first, last = ([] if only else [part] for part in (before, begun, after))
        parts = [*last, *self.updated]
        self.edits.replace(parameter, state)
        self.edits.replace(given, group(parts) if use.name == "scan" else ", ".join(parts))
        self.edits.replace(loop.start, group([*first, *self.updated]))
        self._declare_nothing()
        top = next(s for s in signature.body_of(self.inner) if not isinstance(s, ast.Nonlocal))
        self.edits.before(top, f"{', '.join([*own, *self.updated])} = {state}")
        beside, line = self._pair_of(result)[1] if use.name == "scan" else None, self.text.statement(result)
        if beside is not None and stored_in(self.spot, [line]):  # what it stores is handed on behind it
            value = self.spot.fresh("value", "result")
            self.edits.before(line, f"{value} = {self.spot.code(beside)}").replace(beside, value)
        return self._bind(use, self.updated, only=only)

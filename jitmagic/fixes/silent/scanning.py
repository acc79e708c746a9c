"""A Python loop as a `jax.lax.scan`: what turns hand on is its state, what they append to lists its results."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.source.tree import parameters

TITLE = "loop with `jax.lax.scan`, which stacks the results"
STACKS = ("jnp.stack", "jnp.array", "jnp.asarray", "jax.numpy.stack", "jax.numpy.array", "jax.numpy.asarray")


@dataclass
class Collected:
    """A list that the loop fills: what it starts with, and the statements of the loop that add to it."""

    name: str
    start: list[ast.expr]
    statement: ast.Assign
    additions: list[ast.Expr] = field(default_factory=list)
    holders: list[ast.stmt] = field(default_factory=list)
    """The statements of the loop in which these stand: themselves, or an `if` around one."""
    front: bool = False
    """It is filled from its front, by `insert(0, …)`."""
    value: str = ""
    """Name (or expression) of what a turn adds."""
    depth: int = 0
    """How far back the loop reads: 2 where it reads `xs[-2]`."""
    lasts: list[str] = field(default_factory=list)
    """Names of that many elements, the newest first."""


def candidates(source: str, loop: ast.For) -> Iterator[tuple[str, str]]:
    """(title, corrected cell); nothing where the loop is left early or does more than compute."""
    text = Text(source)
    loop = next(n for n in ast.walk(text.tree) if isinstance(n, ast.For) and ast.dump(n) == ast.dump(loop)
                and n.lineno == loop.lineno)  # fmt: skip
    function = text.around(loop, ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(function, FunctionNode) and not loop.orelse and not _leaves(loop):
        made = _Scan(text, function, loop).written()
        if made is not None:
            yield TITLE, made


def _leaves(loop: ast.For) -> bool:
    kinds = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Raise, ast.Assert)
    return any(isinstance(n, kinds) for s in loop.body for n in ast.walk(s))


class _Scan:
    def __init__(self, text: Text, function: FunctionNode, loop: ast.For) -> None:
        self.text, self.function, self.loop = text, function, loop
        self.lists = self._lists()
        self.taken: set[str] = set()

    def written(self) -> str | None:
        text, loop = self.text, self.loop
        if any(_other_uses(x, loop) for x in self.lists):
            return None
        given = self._given()
        if given is None:
            return None
        xs, reverse = given
        row = text.code(loop.target)
        body = "\n".join(self._body())
        own = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        exposed = names.exposed(body, own) if body else set()
        after = {n for n in names.stores(body) if self._read_after(n)} if body else set()
        before = self._bound_before()
        stored = [n for n in names.stores(body) if n not in own] if body else []
        stored += [n for n in _entered(body) if n not in stored and n in self._made_here()]
        lasts = [n for x in self.lists for n in x.lasts]
        carried = [n for n in stored if (n in exposed or n in after) and n in before and n not in lasts]
        final = [n for n in stored if n in after and n not in before]
        if any(n not in before and n not in lasts for n in exposed & set(stored)) or after & own:
            return None
        if self._impure(body):
            return None
        return self._with_scan(xs, reverse, row, body, carried, final)

    # -- what the loop turns over

    def _given(self) -> tuple[str, bool] | None:
        looped, reverse = self.loop.iter, False
        if isinstance(looped, ast.Call) and ast.unparse(looped.func) == "reversed" and len(looped.args) == 1:
            looped, reverse = looped.args[0], True
        called = ast.unparse(looped.func) if isinstance(looped, ast.Call) else ""
        code = self.text.code
        if called == "range" and isinstance(looped, ast.Call):
            return f"jnp.arange({', '.join(map(code, looped.args))})", reverse
        if called == "enumerate" and isinstance(looped, ast.Call) and len(looped.args) == 1:
            array = code(looped.args[0])
            return f"(jnp.arange(len({array})), {array})", reverse
        if called == "zip" and isinstance(looped, ast.Call):
            parts = [
                f"jnp.arange({', '.join(map(code, a.args))})"
                if isinstance(a, ast.Call) and ast.unparse(a.func) == "range"
                else code(a)
                for a in looped.args
            ]
            return f"({', '.join(parts)})", reverse
        if isinstance(looped, ast.Name | ast.Attribute | ast.Subscript):
            return code(looped), reverse
        return None

    # -- the lists it fills

    def _lists(self) -> list[Collected]:
        found: dict[str, Collected] = {}
        for holder in self.loop.body:
            statement = _only(holder) if isinstance(holder, ast.If) else holder
            call = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            target, method = call.func.value, call.func.attr
            front = method == "insert" and len(call.args) == 2 and ast.unparse(call.args[0]) == "0"
            if not isinstance(target, ast.Name) or not (front or method == "append" and len(call.args) == 1):
                continue
            if target.id not in found:
                start = self._start(target.id)
                if start is None:
                    continue
                found[target.id] = Collected(target.id, start[1], start[0], front=front)
            found[target.id].additions.append(statement)  # type: ignore[arg-type]
            found[target.id].holders.append(holder)
        lists = [x for x in found.values() if len(x.additions) == 1]
        for x in lists:
            read = (_back(n, x.name) for s in self.loop.body for n in ast.walk(s))
            x.depth = max((k for k in read if k <= len(x.start)), default=0)
        return lists

    def _start(self, name: str) -> tuple[ast.Assign, list[ast.expr]] | None:
        """`xs = [...]`, or the part of `xs, ys = [...], [...]`, above the loop."""
        for s in ast.walk(self.function):
            if not isinstance(s, ast.Assign) or len(s.targets) != 1 or s.lineno >= self.loop.lineno:
                continue
            target, value = s.targets[0], s.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for t, v in pairs:
                if isinstance(t, ast.Name) and t.id == name and isinstance(v, ast.List):
                    return s, v.elts
        return None

    # -- the body

    def _body(self) -> list[str]:
        """Statements of a turn without those that add to lists; `xs[-1]` by a name."""
        lines: list[str] = []
        inner: dict[ast.stmt, Collected] = {s: x for x in self.lists for s in x.holders}
        for x in self.lists:
            usual = ("last", "before_last", *(f"back_{k}" for k in range(3, x.depth + 1)))
            singular = x.name.removesuffix("s")
            x.lasts = [
                self._fresh(singular if k == 0 and singular and singular != x.name else usual[k])
                for k in range(x.depth)
            ]
        for statement in self.loop.body:
            part = Text(self.text.source)
            twin = next(n for n in ast.walk(part.tree) if type(n) is type(statement)
                        and n.lineno == statement.lineno and n.col_offset == statement.col_offset)  # fmt: skip
            for node in ast.walk(twin):
                for x in self.lists:
                    if 0 < _back(node, x.name) <= x.depth:
                        part.replace(node, x.lasts[_back(node, x.name) - 1])
            adding = inner.get(statement)
            if adding is None:
                lines += _cut(part, twin, statement.col_offset)
                continue
            added = _only(twin) if isinstance(twin, ast.If) else twin
            value = added.value.args[-1]  # type: ignore[union-attr]
            code = "\n".join(_cut(part, value, value.col_offset))
            if adding.lasts:
                lines.append(f"{', '.join(adding.lasts)} = {', '.join([code, *adding.lasts[:-1]])}")
                adding.value = adding.lasts[0]
            elif isinstance(value, ast.Name) and not self._stored_below(value.id, statement):
                adding.value = code
            elif self._nothing_below(statement):
                adding.value = code
            else:
                adding.value = self._fresh(
                    adding.name[:-1]
                    if adding.name.endswith("s") and len(adding.name) > 2
                    else f"{adding.name}_now"
                )
                lines.append(f"{adding.value} = {code}")
        return lines

    def _fresh(self, name: str) -> str:
        made = (
            self.text.fresh(name, f"this_{name}", f"{name}_now") if name not in self.taken else f"{name}_now"
        )
        self.taken.add(made)
        return made

    def _stored_below(self, name: str, statement: ast.stmt) -> bool:
        below = self.loop.body[self.loop.body.index(statement) + 1 :]
        return any(
            isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
            for s in below
            for n in ast.walk(s)
        )

    def _nothing_below(self, statement: ast.stmt) -> bool:
        below = self.loop.body[self.loop.body.index(statement) + 1 :]
        added = [s for x in self.lists for s in x.holders]
        return all(s in added for s in below)

    def _impure(self, body: str) -> bool:
        tree = ast.parse(body)
        stored = set(names.stores(body)) if body else set()
        return any(
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in ("append", "extend", "insert", "pop", "update", "add", "setdefault")
            and isinstance(n.func.value, ast.Name)
            and n.func.value.id not in stored
            for n in ast.walk(tree)
        )

    def _bound_before(self) -> set[str]:
        a = self.function.args
        every = (*a.posonlyargs, *a.args, *a.kwonlyargs)
        found = {x.arg for x in every}
        return found | {
            n.id for n in ast.walk(self.function)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.lineno < self.loop.lineno
        }  # fmt: skip

    def _made_here(self) -> set[str]:
        """Names that the function itself binds above the loop: no one else sees what is stored into them."""
        return self._bound_before() - set(parameters(self.function))

    def _read_after(self, name: str) -> bool:
        end = self.loop.end_lineno or 0
        return any(
            isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and n.lineno > end
            for n in ast.walk(self.function)
        )

    # -- the new text

    def _with_scan(
        self, xs: str, reverse: bool, row: str, body: str, carried: list[str], final: list[str]
    ) -> str | None:
        text, loop = self.text, self.loop
        state = [*carried, *(n for x in self.lists for n in x.lasts)]
        starts = [*carried, *(text.code(x.start[-k - 1]) for x in self.lists for k in range(x.depth))]
        if not (self.lists or final):
            return None
        results = [*(x.value for x in self.lists), *final]
        out = [*(x.name for x in self.lists), *final]
        step = text.fresh("step", "body", "turn")
        whole = text.fresh("state", "carry")
        first = state[0] if len(state) == 1 else whole if state else "_"
        second = row if row.isidentifier() else "row"
        head = [f"def {step}({first}, {second}):"]
        if second != row:
            head.append(f"    {row} = row")
        if len(state) > 1:
            head.append(f"    {', '.join(state)} = {whole}")
        head += [f"    {x}" for x in body.splitlines()]
        head += [f"    return {_group(state)}, {_group(results)}", ""]
        bound = [*carried, *("_" for x in self.lists for _ in x.lasts)]
        more = ", reverse=True" if reverse else ""
        init = _group(starts)
        unread = not any(map(self._read_after, carried))
        head.append(f"{_group(bound) if state and not unread else '_'}, {_group(out)} = "
                    f"jax.lax.scan({step}, {init}, {xs}{more})")  # fmt: skip
        rebound = set() if unread else set(carried)
        if any(
            isinstance(n, ast.Name) and n.id in rebound
            for x in self.lists
            for e in x.start
            for n in ast.walk(e)
        ):
            return None
        for x in self.lists:
            if isinstance(x.holders[0], ast.If):
                head.append(f"{x.name} = {x.name}{self._turns_of(x.holders[0], reverse=reverse)}")
            if reverse != x.front:
                head.append(f"{x.name} = {x.name}[::-1]")
            if x.start:
                first_rows = f"jnp.stack([{', '.join(map(text.code, x.start))}])"
                parts = f"{x.name}, {first_rows}" if x.front else f"{first_rows}, {x.name}"
                head.append(f"{x.name} = jnp.concatenate([{parts}])")
        head += [f"{n} = {n}[-1]" for n in final]
        self._without_lists()
        indent = " " * loop.col_offset
        text.replace(loop, "\n".join([head[0], *(f"{indent}{x}" if x else x for x in head[1:])]))
        return text.result()

    def _turns_of(self, holder: ast.If, *, reverse: bool) -> str:
        """The index of the turns in which a condition on the loop's own names holds."""
        turn, code = self.text.fresh("turn", "kth"), self.text.code
        if reverse:
            raise ValueError("the turns are counted from the end")
        turns = f"for {turn}, {code(self.loop.target)} in enumerate({code(self.loop.iter)})"
        return f"[jnp.array([{turn} {turns} if {code(holder.test)}])]"

    def _without_lists(self) -> None:
        """The lists are not made any more, and what is stacked already is not stacked again."""
        done = {x.name for x in self.lists}
        for statement in dict.fromkeys(x.statement for x in self.lists):
            target = statement.targets[0]
            bound = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            if bound <= done:
                self.text.remove(statement)
        for call in (n for n in ast.walk(self.function) if isinstance(n, ast.Call) and len(n.args) == 1):
            name = getattr(call.args[0], "id", "")
            if name in done and call.lineno > (self.loop.end_lineno or 0) and not call.keywords:
                if ast.unparse(call.func) in STACKS:
                    self.text.replace(call, name)
                elif ast.unparse(call.func) == "sum":
                    self.text.replace(call, f"{name}.sum(0)")


def _entered(body: str) -> list[str]:
    """Names into whose entries the body stores: `state` for `state["m"] = m`."""
    stores = (
        n for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)
    )
    return list(dict.fromkeys(n.value.id for n in stores if isinstance(n.value, ast.Name)))


def _only(node: ast.AST) -> ast.stmt | None:
    """The only statement of an `if` without an `else`."""
    one = isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse
    return node.body[0] if one and isinstance(node, ast.If) else None


def _group(parts: list[str]) -> str:
    return "None" if not parts else parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _back(node: ast.AST, name: str) -> int:
    """2 for `xs[-2]`; 0 for what is no such element of the list of that name."""
    if not isinstance(node, ast.Subscript) or getattr(node.value, "id", "") != name:
        return 0
    index = ast.unparse(node.slice)
    return int(index[1:]) if index[0] == "-" and index[1:].isdigit() else 0


def _other_uses(x: Collected, loop: ast.For) -> bool:
    """The loop reads the list otherwise than by its newest element, or does not begin with one."""
    parents = {c: p for s in loop.body for p in ast.walk(s) for c in ast.iter_child_nodes(p)}
    for node in (n for s in loop.body for n in ast.walk(s)):
        if isinstance(node, ast.Name) and node.id == x.name:
            parent = parents.get(node)
            added = isinstance(parent, ast.Attribute) and any(
                isinstance(a.value, ast.Call) and a.value.func is parent for a in x.additions
            )
            if not added and not (
                parent is not None and 0 < _back(parent, x.name) <= x.depth and not x.front
            ):
                return True
    return False


def _cut(part: Text, node: ast.AST, columns: int) -> list[str]:
    """The source of a node with the changes inside of it, its later lines moved left."""
    start, end = part.span(node)
    inside = sorted((c for c in part.changes if start <= c[0] and c[1] <= end), reverse=True)
    code = part.source
    for a, b, new in inside:
        code = code[:a] + new + code[b:]
        end += len(new) - (b - a)
    first, *rest = code[start:end].splitlines()
    return [first, *(r[columns:] if r[:columns].isspace() else r for r in rest)]

"""Helpers that remember results of a trace: computed where jax does not trace, or without their cache or memo."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitmagic.fixes.calls.callbacks import handed_out, through_callback
from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.source.modules import last_name
from jitmagic.trial.claims import Claim

ANEW = "its result is computed again in each trace"
_CACHES = ("lru_cache", "cache", "memoize", "memoise", "cached", "cached_property")
_CONTAINERS = ("__wrapped__", "append", "add", "get", "update", "setdefault")
"""Methods that are no cached functions."""
_LIBRARIES = sys.stdlib_module_names | {"jax", "numpy", "scipy"}


def caches(spot: Spot) -> Iterator[Change]:
    """A helper under `functools.lru_cache`: without it where the cell defines it, else past it."""
    for function, decorator, kind in _cached(spot):
        if kind == "cached_property":
            edits = spot.edits().replace(decorator, "property")
            cost = f"{ANEW}, and the object does not keep it"
            yield Change(f"make `{function.name}` a plain property", edits, cost=cost, sure=False)
        else:
            edits = spot.edits().undecorate(decorator)
            yield Change(f"take the cache off `{function.name}`", edits, cost=ANEW)
    here = {*(f.name for f in spot.text.functions), *(c.name for c in spot.classes)}
    for call in spot.on_line(ast.Call):
        name = spot.code(call.func)
        root, last = name.partition(".")[0], last_name(call.func)
        known = {*spot.traced, *dir(builtins), *here, *_CONTAINERS}
        library = spot.full(call).partition(".")[0] in _LIBRARIES
        if name.replace(".", "").isidentifier() and not library and not {root, name, last} & known:
            edits = spot.edits().replace(call.func, f"{name}.__wrapped__")
            yield Change(f"call `{name}` past its cache", edits, tags=frozenset((Tag.GUESS,)))


def memos(spot: Spot) -> Iterator[Change]:
    """`if k not in memo: memo[k] = e` and `return memo[k]`, as `return e`; then with the store in a callback."""
    for memo in (m for m in _memos(spot) if _is_settled(spot, m)):
        title = f"compute the result of `{memo.function.name}` again"
        cost, claim = f"`{memo.name}` keeps nothing any more", Claim(forgets=(memo.name,))
        yield Change(f"{title}, without the memo", _without(spot, memo), claim=claim, cost=cost, sure=False)
        stored = _without(spot, memo, store=True)
        yield handed_out(f"{title}, and store it through `jax.debug.callback`", stored)


def kept_constants(spot: Spot) -> Iterator[Change]:
    """What a cache or a memo keeps, computed at once: a value of the program's own trace would be dead after it."""
    title = "compute what `{}` keeps without tracing, in `jax.ensure_compile_time_eval`"
    for function, _, _ in _cached(spot):
        yield Change(title.format(function.name), _computed_at_once(spot, signature.body_of(function)))
    for memo in _memos(spot):
        body = memo.part if memo.store in memo.part else [memo.store]
        yield Change(title.format(memo.name), _computed_at_once(spot, body))


def _computed_at_once(spot: Spot, body: Sequence[ast.stmt]) -> Edits:
    new = spot.write("with jax.ensure_compile_time_eval():\n    $body", body=spot.text.block(body))
    return spot.edits().statements(body[0], new, body[-1])


def _cached(spot: Spot) -> Iterator[tuple[FunctionNode, ast.expr, str]]:
    """Cached helpers that the line uses or defines, each with its decorator and the name of that."""
    used = {last_name(c.func) for c in spot.on_line(ast.Call)} | {n.attr for n in spot.on_line(ast.Attribute)}
    used |= {n.name for n in spot.path if isinstance(n, FunctionNode)}
    for function in spot.text.functions:
        for decorator in function.decorator_list:
            kind = last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if function.name in used or decorator.lineno == spot.line:
                if kind in _CACHES:
                    yield function, decorator, kind


@dataclass(frozen=True)
class Memo:
    """A store that a function makes where it has not made it before, and the test for that."""

    function: FunctionNode
    guard: ast.If | ast.Try
    part: list[ast.stmt]
    """What is done where nothing is known yet; empty where the guard only gives what is known."""
    store: ast.Assign

    @property
    def target(self) -> str:
        """`memo[k]`, `self.memo`, `memo`."""
        return ast.unparse(self.store.targets[0])

    @property
    def name(self) -> str:
        """What keeps it."""
        target = self.store.targets[0]
        return ast.unparse(target.value if isinstance(target, ast.Subscript) else target)


def _memos(spot: Spot) -> Iterator[Memo]:
    for function in spot.text.functions:
        outer = {n for s in spot.text.own(function, ast.Global) for n in s.names}
        stores = [
            s for s in spot.text.own(function, ast.Assign) if len(s.targets) == 1
            and (isinstance(s.targets[0], ast.Subscript | ast.Attribute) or getattr(s.targets[0], "id", "") in outer)
        ]  # fmt: skip
        guards: list[ast.If | ast.Try] = [*spot.text.own(function, ast.If), *spot.text.own(function, ast.Try)]
        for guard in guards:
            for store in stores:
                part = _guarded(spot, guard, store)
                memo = Memo(function, guard, part, store) if part is not None else None
                if memo is not None and _asks(spot, memo):
                    yield memo


def _guarded(spot: Spot, guard: ast.If | ast.Try, store: ast.Assign) -> list[ast.stmt] | None:
    """The part of the guard that computes what is stored; None where that is none of its business."""
    parts = [h.body for h in guard.handlers] if isinstance(guard, ast.Try) else [guard.body, guard.orelse]
    for part in parts:
        if store in part:
            return part
    if isinstance(guard, ast.Try):
        return None
    block, index = spot.text.siblings(guard)
    known = guard.body[-1]
    if store in block[index + 1 :] and isinstance(known, ast.Return):
        return [] if not guard.orelse else None
    return None


def _asks(spot: Spot, memo: Memo) -> bool:
    """The guard asks whether the value is there."""
    target, guard = memo.store.targets[0], memo.guard
    if isinstance(guard, ast.Try):
        return len(guard.body) == 1 and memo.target in map(
            ast.unparse, spot.text.within(guard.body[0], ast.expr)
        )
    nodes = list(ast.walk(guard.test))
    texts = {ast.unparse(n) for n in nodes if isinstance(n, ast.expr)}
    owner = ast.unparse(target.value) if isinstance(target, ast.Attribute) else ""
    if owner and f"hasattr({owner}, {getattr(target, 'attr', '')!r})" in texts:
        return True
    looked = {ast.unparse(a.targets[0]) for a in _lookups(spot, memo)}
    asks = any(isinstance(n, ast.In | ast.NotIn | ast.Is | ast.IsNot) for n in nodes)
    return asks and bool(texts & {memo.name, memo.target, *looked})


def _is_settled(spot: Spot, memo: Memo) -> bool:
    """It has a key, or is made of nothing that another call may pass, or a method may change."""
    target, later = memo.store.targets[0], [f for f in spot.text.functions if f.name != "__init__"]
    block, index = spot.text.siblings(memo.guard)
    body = scope.body_of(memo.part or block[index + 1 : block.index(memo.store) + 1])
    passed = scope.exposed(body) & scope.local_names(memo.function) - scope.loads(target)
    stored = [n for f in later for n in spot.text.within(f, ast.Attribute) if isinstance(n.ctx, ast.Store)]
    changed = {a for n in stored for a in (n.attr, getattr(n.value, "attr", ""))} - {
        getattr(target, "attr", "")
    }
    read = {n.attr for n in ast.walk(body) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    return isinstance(target, ast.Subscript) or not (passed or read & changed)


def _lookups(spot: Spot, memo: Memo) -> list[ast.Assign]:
    """`found = memo.get(k)`."""
    assigns = spot.text.own(memo.function, ast.Assign)
    return [a for a in assigns if ast.unparse(a.value).startswith(f"{memo.name}.get(")]


def _without(spot: Spot, memo: Memo, *, store: bool = False) -> Edits:
    """The function computes the value each time that it asked the memo for it; `store`: and the memo gets it."""
    edits, value, dropped = spot.edits(), memo.store.value, memo.store
    block, index = spot.text.siblings(memo.guard)
    behind = [*memo.part, *block[index + 1 :]]
    reads = [
        n for s in behind for n in spot.text.within(s, ast.expr)
        if isinstance(getattr(n, "ctx", None), ast.Load) and ast.unparse(n) == memo.target
    ]  # fmt: skip
    kept = ""
    if isinstance(value, ast.Name):
        name = value.id
    elif not store and [spot.text.statement(r) for r in reads] == behind[behind.index(dropped) + 1 :][:1]:
        name = spot.code(value)
    else:
        name = spot.fresh("value")
        kept = f"{name} = {spot.code(value)}\n"
    if store:
        target = memo.store.targets[0]
        line = f"{spot.code(target)} = {name}"
        if isinstance(target, ast.Subscript):
            line = f"if {spot.code(target.slice)} not in {spot.code(target.value)}:\n    {line}"
        line = f"global {target.id}\n{line}" if isinstance(target, ast.Name) else line
        kept += "\n" + through_callback(spot, spot.fresh("keep"), name, line)
    for read in reads:
        edits.replace(read, name)
    for assign in _lookups(spot, memo):
        edits.remove(assign)
    if dropped not in memo.part:
        edits.statements(dropped, kept)
    lines = [kept if s is dropped else edits.code(s) for s in memo.part]
    return edits.statements(memo.guard, "\n".join(filter(None, lines)))

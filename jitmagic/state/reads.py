"""Where a path is read and written in source, and whether notebook code binds it anew."""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from jitmagic.evidence import Where
from jitmagic.state import values
from jitmagic.state.below import variables_in
from jitmagic.state.paths import Path, PathError, parse
from jitmagic.state.uses import Use, facts_of

Function = types.FunctionType
_ADDING = ("append", "extend", "add", "update", "+=")
_TAKING = ("clear", "pop", "popleft", "popitem", "remove", "discard")
"""What is there afterwards comes from another statement, where there is one."""


def reads_of(path: Path | str, functions: Iterable[Function]) -> tuple[Where, ...]:
    """The places in the functions' sources that read a path; `self.w` of a method counts for `net.w`."""
    return _places(path, functions, ("read",))


def writes_of(path: Path | str, functions: Iterable[Function]) -> tuple[Where, ...]:
    """The statements that bind, change or delete it: assignments, `append` and its like, `next(it)`."""
    return _places(path, functions, ("write", "mutate"))


def handed_to(path: str, functions: Iterable[Function]) -> tuple[Where, ...]:
    """Calls of objects whose result nobody takes, with what holds the path: `optimizer.update(model, grads)` for
    `model.kernel`; functions of modules and Python's own, such as `print`, are called for something else."""
    root, found = re.split(r"[.\[ ]", path)[0], []
    for fn in functions:
        facts = facts_of(fn)
        for use in facts.uses:
            call = getattr(use.statement, "value", None) if isinstance(use.statement, ast.Expr) else None
            if use.root != root or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            outer = next(n for n in ast.walk(call.func) if not isinstance(n, ast.Attribute))
            held = _of_outside(fn, outer.id) if isinstance(outer, ast.Name) else values.MISSING
            if not isinstance(held, types.ModuleType):
                found.append(facts.where(call))
    return tuple(dict.fromkeys(found))


def only_added_to(functions: Iterable[Function]) -> set[object]:
    """Names, attributes and keys of lists, deques and sets that these functions add to and name in no other way."""
    added, other = set[object](), set[object]()
    for fn in functions:
        uses = facts_of(fn).uses
        adding = {id(u.nodes[-1]) for u in uses if u.method in _ADDING and u.nodes}
        for use in uses:
            found = added if use.nodes and id(use.nodes[-1]) in adding else other
            if use.steps:
                found.update([use.steps[-1].key] if found is added or use.action == "read" else [])
                other.update(step.key for step in use.steps[:-1])
            elif use.free and (found is added or use.action == "read"):
                found.add(use.root)
    return added - other


def seen_from_cell(path: str, reads: tuple[Where, ...], functions: Sequence[Function]) -> tuple[Where, ...]:
    """The reads; where all are in helpers of other files, the places that name those helpers come first.

    The first function is the one that is looked at: its file is the cell."""
    own = functions[0].__code__.co_filename if functions else ""
    latest, known = reads, set(reads)
    while latest and not any(w.file == own for w in latest):
        names = sorted({w.function.rpartition(".")[2] for w in latest})
        names += [f"{path.rpartition('.')[0]}.{n}" for n in names if "." in path]  # properties and methods
        named = [w for n in names for w in reads_of(n, functions)]
        named += _calls_of({(w.file, w.function) for w in latest}, functions)
        latest = tuple(w for w in dict.fromkeys(named) if w not in known)
        known.update(latest)
    first = tuple(w for w in latest if w.file == own and w not in reads)
    return (*first, *reads)


def named_by_holder(path: str, written: object, functions: Iterable[Function]) -> tuple[Where, ...]:
    """The places that name what holds a variable of a framework. Where a library writes it, the calls of methods of
    objects that hold it (`opt.update(grads)`) come first."""
    functions = tuple(functions)
    found = []
    for fn in functions if written is not None else ():
        facts = facts_of(fn)
        for use in facts.uses:
            if use.free and use.nodes and (use.action == "mutate" or use.called and len(use.steps) == 1):
                held = _of_outside(fn, use.root)
                if held is not values.MISSING and _holds(held, written):
                    found.append(facts.where(use.nodes[-1]))
    return tuple(dict.fromkeys((*found, *reads_of(path.partition(".")[0], functions))))


def _of_outside(fn: Function, name: str) -> object:
    """The value of a name that is not local to the function, or MISSING."""
    if name in fn.__code__.co_freevars:
        cell = (fn.__closure__ or ())[fn.__code__.co_freevars.index(name)]
        return next(iter(values.cell_contents(cell)), values.MISSING)
    return fn.__globals__.get(name, values.MISSING)


def _holds(value: object, variable: object) -> bool:
    if values.is_leaf(value) or isinstance(value, types.ModuleType | type | types.FunctionType):
        return False
    return any(p.holder() is variable for p in variables_in(value))


def _calls_of(wanted: Collection[tuple[str, str]], functions: Iterable[Function]) -> Iterator[Where]:
    """Calls of these functions (file and qualified name) by what a name stands for: `timer.elapsed()`, `layer(x)`."""
    for fn in functions:
        facts = facts_of(fn)
        for use in facts.uses:
            if use.called and use.nodes:
                target = _called(fn, use) if use.free else None
                method = use.steps[-1].key if use.steps and not use.free else ""
                by_name = any(name.endswith(f".{method}") for _, name in wanted) if method else False
                if by_name or target is not None and (target.co_filename, _name(target)) in wanted:
                    yield facts.where(use.nodes[-1])


def _called(fn: Function, use: Use) -> types.CodeType | None:
    """Code of the user's function that a call of this chain runs, `__call__` of an object included."""
    value: Any = _of_outside(fn, use.root)
    for step in use.steps:
        if step.kind != "attribute":
            return None
        found = values.raw_get(value, str(step.key))
        bound = values.class_attribute(type(value), str(step.key)) if found is values.MISSING else None
        value = bound[1] if bound is not None else found
    if not isinstance(value, types.FunctionType | types.MethodType | type):
        call = values.class_attribute(type(value), "__call__")
        value = call[1] if call is not None else None
    return getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None


def _name(code: types.CodeType) -> str:
    return code.co_qualname.replace("<locals>.", "")


def _places(path: Path | str, functions: Iterable[Function], actions: tuple[str, ...]) -> tuple[Where, ...]:
    try:
        wanted = parse(path.split(" (")[0]) if isinstance(path, str) else path
    except PathError:
        return ()  # a name that only we give, like that of an item with an object for a key
    ranked: list[tuple[int, bool, Where]] = []
    for fn in functions:
        facts = facts_of(fn)
        for use in facts.uses:
            if use.action in actions and use.nodes:
                rank, node = _match(wanted, use, fn)
                rank += use.action == "write" and not use.free and not use.steps  # `seen = []`
                if node is not None:
                    shown = node if "read" in actions else _head(use.statement, node)
                    ranked.append((rank, use.method in _TAKING, facts.where(shown)))
    best = min((r for r, _, _ in ranked), default=0)
    found = sorted((taking, i) for i, (r, taking, _) in enumerate(ranked) if r == best)
    return tuple(dict.fromkeys(ranked[i][2] for _, i in found))


def _head(statement: ast.AST | None, node: ast.AST) -> ast.AST:
    # Of a compound statement (`for x in next(it):`) only the chain itself is shown.
    return node if statement is None or isinstance(getattr(statement, "body", None), list) else statement


def _match(path: Path, use: Use, fn: Function) -> tuple[int, ast.AST | None]:
    """How well a use fits a path (0 is best), and the node that names it."""
    have, want = use.steps, path.steps
    if use.root == path.root:
        local = 0 if use.free or _is_parameter(fn, use.root) else 3
        if have[: len(want)] == want:
            return local, use.nodes[len(want)]
        if want[: len(have)] == have:
            # `params` is read whole where `params['w']` is meant; a statement writes below or above it.
            return local + 4 + len(want) - len(have), use.nodes[-1]
    if have and not use.free:
        rank = 1 if _is_receiver(fn, use.root) else 2
        for i in range(len(want)):
            n = min(len(want) - i, len(have))
            if want[i : i + n] == have[:n] and any(s.kind == "attribute" for s in have[:n]):
                return rank + 3 * (len(want) - i - n), use.nodes[n]
    return 99, None


def _is_parameter(fn: Function, name: str) -> bool:
    code = fn.__code__
    return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_receiver(fn: Function, name: str) -> bool:
    return bool(fn.__code__.co_argcount) and fn.__code__.co_varnames[0] == name and "." in fn.__qualname__

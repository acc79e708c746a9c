"""A key for each call of a function: split off in front of the call, handed down through the functions in between."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from jitmagic.fixes.inline import Parts, number_of
from jitmagic.fixes.silent.text import FunctionNode, Text, add_parameter, calls_in, pass_to
from jitmagic.source.cell import top_level_names

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Keys:
    """How calls get their keys. `start` makes the first key; empty where `name` is bound already."""

    name: str
    keyword: bool
    maker: str
    start: str = ""
    random: str = "jax.random"


def threaded(parts: Parts, keys: Keys) -> list[str]:
    """The sources that call the function, or a function that does, each call with a key of its own.

    Raises ValueError where a call has no place in front of it for a split.
    """
    name = keys.name if not keys.start else _free(parts, keys.name)
    found: list[str] = []
    begun, outside = not keys.start, 0
    for source in parts.sources:
        if not any(calls_in(ast.parse(source), n) for n in (parts.function, *parts.callers)):
            continue
        if number_of(source) >= parts.inside:
            outside += 1
            given = f"{keys.maker}({outside})" if keys.maker else f"{keys.random}.fold_in({name}, {outside})"
            found.append(_with_keys(parts, source, keys, name, given))
            continue
        if not begun and not isinstance(ast.parse(source).body[0], (FunctionNode, ast.ClassDef)):
            found.append(f"{name} = {keys.start}")
            begun = True
        found.append(_with_keys(parts, source, keys, name))
    return found


def _free(parts: Parts, name: str) -> str:
    taken = top_level_names(ast.parse(parts.cell))
    return next(n for n in (name, "key", "rng_key", "first_key", "prng_key") if n not in taken)


def _with_keys(parts: Parts, source: str, keys: Keys, name: str, given: str = "") -> str:
    """One source; `given` for all its calls, or a part of the key `name`."""
    text = Text(source)
    calls = [
        (call, keys.keyword and n == parts.function)
        for n in (parts.function, *sorted(parts.callers)) for call in calls_in(text.tree, n)
    ]  # fmt: skip
    grouped: dict[ast.stmt, list[tuple[ast.Call, bool]]] = {}
    for call, keyword in calls:
        grouped.setdefault(_statement(text, call), []).append((call, keyword))
    for statement, own in grouped.items():
        outer = text.around(statement, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        key = name if outer is None else keys.name
        own.sort(key=lambda c: (c[0].lineno, c[0].col_offset))
        subkeys = [given] * len(own) if given else _names(text, len(own))
        for (call, keyword), subkey in zip(own, subkeys, strict=True):
            turn = _turn(text, call)
            part = f"{keys.random}.fold_in({subkey}, {turn})" if turn else subkey
            pass_to(text, call, keys.name, part, keyword=keyword)
        if not given:
            many = f", {len(own) + 1}" if len(own) > 1 else ""
            split = f"{key}, {', '.join(subkeys)} = {keys.random}.split({key}{many})"
            text.before(statement, [split])
    for node in text.tree.body:
        if isinstance(node, ast.ClassDef):
            raise ValueError("a class calls it")
        if isinstance(node, FunctionNode) and node.name in parts.callers:
            if keys.name in {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}:
                raise ValueError("it has such a parameter")
            if add_parameter(text, node, keys.name):
                raise ValueError("calls would have to pass it by name")
    return text.result()


def _names(text: Text, number: int) -> list[str]:
    return [text.fresh("subkey")] if number == 1 else [f"subkey_{i + 1}" for i in range(number)]


def _turn(text: Text, call: ast.Call) -> str:
    """The name that counts the turns of the comprehension around a call, put there where it has none; or nothing."""
    inner = text.around(call, *_COMPREHENSIONS, ast.stmt)
    if not isinstance(inner, _COMPREHENSIONS):
        return ""
    turn = inner.generators[0]
    if isinstance(turn.iter, ast.Call) and getattr(turn.iter.func, "id", "") == "range":
        if isinstance(turn.target, ast.Name) and turn.target.id != "_":
            return turn.target.id
    count = text.fresh("i", "turn")
    start, end = text.span(turn.target)[0], text.span(turn.iter)[1]
    if not any(c[0] == start for c in text.changes):
        text.changes.append(
            (start, end, f"{count}, {text.code(turn.target)} in enumerate({text.code(turn.iter)})")
        )
    return count


def _statement(text: Text, call: ast.Call) -> ast.stmt:
    """The statement in front of which the key is split. Raises ValueError where there is no such place."""
    node: ast.AST = call
    comprehensions: list[ast.AST] = []
    while not isinstance(node, ast.stmt):
        node = text.parents[node]
        comprehensions += [node] if isinstance(node, _COMPREHENSIONS) else []
        if isinstance(node, (ast.Lambda, ast.While)):
            raise ValueError("the call is made again and again within one expression")
    if len(comprehensions) > 1 or any(len(c.generators) > 1 for c in comprehensions):  # type: ignore[attr-defined]
        raise ValueError("nested loops within one expression")
    line = text.source.splitlines()[node.lineno - 1]
    if line[: node.col_offset].strip():
        raise ValueError("another statement stands in front of it")
    functions = [n for n in _around(text, node) if isinstance(n, FunctionNode)]
    if len(functions) > 1 or line.lstrip().startswith("elif"):
        raise ValueError("no place for a split")
    return node


def _around(text: Text, node: ast.AST) -> list[ast.AST]:
    found = []
    while node in text.parents:
        node = text.parents[node]
        found.append(node)
    return found

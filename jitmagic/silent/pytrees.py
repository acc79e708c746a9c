"""Arguments of user classes: what they lose on the way through flatten and unflatten, arrays in their aux data."""

from __future__ import annotations

import ast
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jitmagic.evidence import ArrayInAux, LossyPytree, Where
from jitmagic.silent.code import Code, code_of, whole_line
from jitmagic.source.modules import dotted
from jitmagic.source.tree import source_of, walk
from jitmagic.state.values import is_user_class, on_host, raw_attributes, top_alone
from jitmagic.tracing import trees

_MOST = 200
_LARGEST = 10_000_000
"""Elements of an array that is still copied to see whether it comes back."""
_REGISTER = ("register_pytree_node", "register_pytree_with_keys", "register_dataclass", "register_static")


def one_level(value: object) -> tuple[list[object], object] | None:
    """Children and auxiliary data of a node of a pytree; None for a leaf."""
    with trees.unnoticed(value):
        level = jax.tree_util.default_registry.flatten_one_level(value)
    return None if level is None else (list(level[0]), level[1])


def objects(arguments: Any) -> Iterator[tuple[str, object]]:
    """(argument, object) of every registered object of a user class in `(name, path, value)` arguments."""
    for name, _, value in arguments:
        todo, count, seen = [value], 0, set[type]()
        while todo and count < _MOST:
            node = todo.pop()
            count += 1
            level = one_level(node)
            if level is None:
                continue
            if is_user_class(type(node)) and type(node) not in seen:
                seen.add(type(node))
                yield name, node
            todo += level[0]


def lossy(argument: str, obj: object, read: Collection[str] | None) -> LossyPytree | None:
    """The attributes that are lost or changed by flatten and unflatten; `read`: those that matter, None: all."""
    before = raw_attributes(obj)
    try:
        leaves, tree = jax.tree_util.tree_flatten(obj, is_leaf=top_alone())
        after = raw_attributes(jax.tree_util.tree_unflatten(tree, leaves))
    except Exception as exc:
        where = method_place(type(obj), "tree_unflatten")
        return LossyPytree(argument, type(obj).__name__, (), where, f"{type(exc).__name__}: {exc}"[:200])
    if not before:
        return None
    changed = tuple(k for k, v in before.items() if k not in after or not _same(v, after[k]))
    dropped = () if changed else dropped_children(obj, before)
    lost = tuple(k for k in changed or dropped if read is None or k in read)
    if not lost:
        return None
    method = "tree_unflatten" if dropped else "tree_flatten"
    where = method_place(type(obj), method)
    return LossyPytree(argument, type(obj).__name__, lost, where, dropped=bool(dropped))


def dropped_children(obj: object, before: Mapping[str, object]) -> tuple[str, ...]:
    """Attributes that are children of the node and do not come back: other values go in, and these do not come out.

    A child that is what `__init__` would make anew looks kept until it changes.
    """
    children = (one_level(obj) or ((), None))[0]
    others = [_another(child) for child in children]
    if all(other is child for other, child in zip(others, children, strict=True)):
        return ()
    tree = jax.tree_util.tree_structure(obj, is_leaf=top_alone())
    try:
        after = raw_attributes(jax.tree_util.tree_unflatten(tree, others))
    except Exception:  # a class that checks its values may refuse these
        return ()
    pairs = list(zip(children, others, strict=True))
    put = {
        name: other for name, v in before.items() for child, other in pairs if v is child and other is not v
    }
    return tuple(name for name, other in put.items() if name not in after or not _same(other, after[name]))


def _another(value: object) -> object:
    """A value of the same type and shape with other numbers; the value itself where there is no such thing."""
    if isinstance(value, bool) or not isinstance(
        value, jax.Array | np.ndarray | np.generic | int | float | complex
    ):
        return value
    dtype = getattr(value, "dtype", np.dtype(type(value)))
    if not jax.dtypes.issubdtype(dtype, np.number) or np.size(value) > _LARGEST:
        return value
    return value + np.asarray(1, dtype)


def array_in_aux(argument: str, obj: object) -> ArrayInAux | None:
    """The arrays in the auxiliary data of an object, with the fields that hold them."""
    level = one_level(obj)
    arrays = [v for v in _within(level[1])] if level else []
    if not arrays:
        return None
    held = raw_attributes(obj)
    names = [k for k, v in held.items() if any(v is a for a in arrays)]
    names = names or [k for k, v in held.items() if any(x is a for x in _within(v) for a in arrays)] or [""]
    place = field_place(type(obj), names[0]) or method_place(type(obj), "tree_flatten")
    return ArrayInAux(argument, type(obj).__name__, names[0], place, tuple(names[1:]))


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        if isinstance(a, jax.Array | np.ndarray) or isinstance(b, jax.Array | np.ndarray):
            return bool(np.shape(a) == np.shape(b) and np.array_equal(on_host(a), on_host(b), equal_nan=True))
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            return len(a) == len(b) and all(map(_same, a, b))
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
        if type(a) is type(b) and type(a).__eq__ is object.__eq__:
            return True  # objects without a comparison: another object of the class is no loss
        return bool(a == b)
    except Exception:
        return True


def _within(value: object, depth: int = 4) -> Iterator[object]:
    """Arrays in nested tuples, lists, dicts and fields of auxiliary data."""
    if isinstance(value, jax.Array | np.ndarray):
        yield value
    elif depth and isinstance(value, tuple | list | set | frozenset):
        for v in value:
            yield from _within(v, depth - 1)
    elif depth and isinstance(value, dict):
        for v in value.values():
            yield from _within(v, depth - 1)


# --- places


def class_node(cls: type) -> tuple[str, ast.ClassDef] | None:
    """File and node of a class of the user's, through one of its methods or its annotations' module."""
    for value in vars(cls).values():
        fn = getattr(value, "__func__", getattr(value, "fget", value))
        fn = getattr(fn, "__wrapped__", fn)
        if isinstance(fn, types.FunctionType):
            found = _class_in(fn.__code__.co_filename, cls.__name__)
            if found:
                return found
    for file in _cells():
        found = _class_in(file, cls.__name__)
        if found:
            return found
    return None


def _class_in(file: str, name: str) -> tuple[str, ast.ClassDef] | None:
    tree = source_of(file).tree
    nodes = [n for n in walk(tree) if isinstance(n, ast.ClassDef) and n.name == name] if tree else []
    return (file, nodes[-1]) if nodes else None


def _cells() -> list[str]:
    """Files of the cells that ran, the newest first."""
    import linecache

    return [f for f in reversed(list(linecache.cache)) if "ipython-input" in f or "ipykernel" in f][:100]


def method_place(cls: type, name: str) -> Where | None:
    """What the method returns last, the flatten function where the class was registered, or the class."""
    method = getattr(cls, name, None)
    fn = getattr(method, "__func__", method)
    code = code_of(fn) if isinstance(fn, types.FunctionType) else None
    if code is not None:
        return _returned(code)
    found = class_node(cls)
    if found is None:
        return None
    file, node = found
    return _registration(file, cls.__name__, 2 if name == "tree_unflatten" else 1) or whole_line(file, node)


def _returned(code: Code) -> Where:
    returns = [n for n in walk(code.node) if isinstance(n, ast.Return)]
    return code.where(returns[-1] if returns else code.node, head=True)


def _registration(file: str, name: str, position: int) -> Where | None:
    """The call that registers the class by name, or the function at that position of its arguments."""
    tree = source_of(file).tree
    nodes = walk(tree) if tree else []
    for node in nodes:
        if not isinstance(node, ast.Call) or dotted(node.func).rpartition(".")[2] not in _REGISTER:
            continue
        if node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == name:
            given = node.args[position] if len(node.args) > position else node
            return whole_line(
                file, _last_return(nodes, given) or (given if type(given) is ast.Lambda else node)
            )
    return None


def _last_return(nodes: list[ast.AST], name: ast.expr) -> ast.AST | None:
    """What the function of that name returns last."""
    for node in nodes:
        if isinstance(name, ast.Name) and isinstance(node, ast.FunctionDef) and node.name == name.id:
            return next((n for n in reversed(walk(node)) if isinstance(n, ast.Return)), node)
    return None


def field_place(cls: type, name: str) -> Where | None:
    """The line that declares a field of a dataclass."""
    for kind in cls.__mro__:
        found = class_node(kind) if is_user_class(kind) else None
        for part in found[1].body if found else ():
            if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == name and found:
                return whole_line(found[0], part)
    return None

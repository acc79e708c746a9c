"""Trees, taken apart as jax does it. Classes of the user's that are nodes are asked for their parts by code of theirs,
and are not to notice that we have asked: nothing is shown, and what the code changes is put back."""

from __future__ import annotations

import contextlib
import dis
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jitmagic import patches
from jitmagic.raw import inside, raw_attributes
from jitmagic.tracing import compat
from jitmagic.tracing.locate import is_user_file

_MOST = 1000
_CONSTRUCTORS = ("__new__", "__init__", "__post_init__")
_APART, _TOGETHER = ("tree_flatten", "tree_flatten_with_keys"), ("tree_unflatten",)
_ASKED = ("__getattr__", "__getattribute__")
_SILENT = frozenset(
    """BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_TUPLE CACHE COPY LOAD_ATTR LOAD_CONST LOAD_FAST LOAD_FAST_BORROW
    LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_LOAD_FAST LOAD_SMALL_INT NOP POP_TOP RESUME RETURN_CONST RETURN_VALUE
    STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST SWAP""".split()
)
"""Instructions that are noticed by nobody."""


def leaves(tree: object, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """As `jax.tree.leaves`."""
    with unnoticed(tree, together=False):
        return jax.tree.leaves(tree, is_leaf=is_leaf)


def with_paths(tree: object) -> list[tuple[Any, Any]]:
    """The leaves with their keys."""
    with unnoticed(tree, together=False):
        return jax.tree_util.tree_flatten_with_path(tree)[0]


def structure(tree: object, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """As `jax.tree.structure`."""
    with unnoticed(tree, together=False):
        return jax.tree.structure(tree, is_leaf=is_leaf)


def mapped(change: Callable[[Any], object], tree: Any) -> Any:
    """As `jax.tree.map`."""
    with unnoticed(tree):
        return jax.tree.map(change, tree)


@contextlib.contextmanager
def unnoticed(tree: object, *, together: bool = True) -> Iterator[None]:
    """While this holds, this tree may be taken apart, and put together."""
    with contextlib.ExitStack() as stack:
        if classes := _users_nodes(tree, together):
            for context in patches.around_looks:
                stack.enter_context(context(classes))
        yield


def node_functions(cls: type, *, together: bool = True) -> list[types.FunctionType]:
    """The functions of the user's by which jax takes objects of this class apart, and puts them together."""
    registered = compat.nodes_of_trees().get(cls)
    if registered is None:
        return []
    found: list[object] = [registered.to_iter, *([registered.from_iter] if together else [])]
    of_jax = str(getattr(registered.from_iter, "__module__", "")).startswith("jax")  # it makes dataclasses
    names = (*_APART, *(_TOGETHER if together else ()), *(_CONSTRUCTORS if together and of_jax else ()))
    found += [base.__dict__[name] for base in cls.__mro__ for name in names if name in base.__dict__]
    plain = [getattr(fn, "__func__", fn) for fn in found]
    for fn in [fn for fn in plain if isinstance(fn, types.FunctionType)]:
        for cell in fn.__closure__ or ():  # what jax has made of one with keys
            with contextlib.suppress(ValueError):  # nothing is in it
                plain.append(cell.cell_contents)
    users = (f for f in plain if isinstance(f, types.FunctionType) and is_user_file(f.__code__.co_filename))
    return list(dict.fromkeys(users))


def _users_nodes(tree: object, together: bool) -> tuple[type, ...]:
    """The classes of the user's whose code runs when this tree is taken apart, and may be noticed."""
    registered, found = compat.nodes_of_trees(), dict[type, bool]()
    if _looked_through.count != len(registered):
        _looked_through.count = len(registered)
        _looked_through.has_users = any(map(node_functions, registered))
    todo: list[Any] = [tree] if _looked_through.has_users else []
    for _ in range(_MOST):
        if not todo:
            break
        value = todo.pop()
        cls = type(value)
        if issubclass(cls, dict | list | tuple):
            todo += inside(value)
        if cls in registered:
            if cls not in found:
                found[cls] = any(not _is_silent(fn, cls) for fn in node_functions(cls, together=together))
            todo += raw_attributes(value).values()
    return tuple(cls for cls in found if found[cls])


def _is_silent(fn: types.FunctionType, cls: type) -> bool:
    """All that it does is to read attributes of the object, which are data: nobody notices."""
    asked = [inspect.getattr_static(cls, name, None) for name in (*_ASKED, *fn.__code__.co_names)]
    if any(hasattr(type(a), "__get__") and not isinstance(a, _SLOTS) for a in asked):  # a property, say
        return False
    return all(instruction.opname in _SILENT for instruction in dis.get_instructions(fn))


_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)


class _LookedThrough:
    """The classes that are registered, so far."""

    count = 0
    has_users = False


_looked_through = _LookedThrough()

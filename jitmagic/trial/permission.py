"""What of the user's statements may run once more without anybody having asked: no plot, no file, no message twice."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitmagic.state.values import is_user_file
from jitmagic.state.wrappers import unwrap
from jitmagic.tracing.libraries import LIBRARIES

HARMLESS = frozenset(
    """jax jaxlib numpy scipy jitmagic functools itertools math cmath operator random collections dataclasses copy
    typing time datetime enum string re abc tqdm""".split()
).union(LIBRARIES)
"""Packages whose functions make values, or change state that is put back."""
_NEVER = frozenset(
    """save savez savez_compressed savetxt load loadtxt genfromtxt fromfile tofile memmap dump sleep
    start_trace stop_trace trace_context profiler distributed config serialization checkpoints open input exec eval
    compile breakpoint exit quit __import__ globals setattr delattr vars""".split()
)
"""Names, of whatever module, that leave something behind, wait, or cannot be followed."""
_VALUES = (list, dict, set, str, tuple, float, types.GeneratorType)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_MISSING = object()


@dataclass
class Again:
    """Judges calls by what their names stand for in the notebook; `own` are functions and objects that the cell itself
    makes."""

    namespace: Mapping[str, Any]
    own: Collection[str] = ()
    known: dict[int, bool] = field(default_factory=dict)

    def obstacle(self, tree: ast.Module) -> str:
        """The call of a whole cell, functions that it defines included, that may not be made again; empty where every
        one may."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
                return "it waits for something"
            if isinstance(node, ast.Call) and not self._call(node):
                return f"it calls `{ast.unparse(node.func)[:60]}`"
        return ""

    def _call(self, call: ast.Call) -> bool:
        root: Any = call.func
        names: list[str] = []
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            names += [root.attr] if isinstance(root, ast.Attribute) else []
            root = root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name):
            return not _NEVER & set(names)
        names.append(root.id)
        if _NEVER & set(names):
            return False
        if names[0] in self.own:
            return True
        value = self.namespace.get(root.id, getattr(builtins, root.id, _MISSING))
        if value is _MISSING:  # a local name: what arrays, lists, texts and dicts can do
            return len(names) == 1 or names[0] in _METHODS
        for name in names[-2::-1]:
            if isinstance(value, (types.ModuleType, type)):
                value = getattr(value, name, value)
        return self.value(value)

    def value(self, value: object) -> bool:
        """To call it, or a method of it, leaves nothing behind that is not put back."""
        if id(value) not in self.known:
            self.known[id(value)] = True  # while it is looked at, for functions that call each other
            self.known[id(value)] = self._judged(value)
        return self.known[id(value)]

    def _judged(self, value: object) -> bool:
        _, function = unwrap(value)
        if isinstance(function, types.FunctionType) and is_user_file(function.__code__.co_filename):
            return self._code(function.__code__, function.__globals__)
        kind = value if isinstance(value, type) else type(value)
        if isinstance(value, types.ModuleType):
            return value.__name__.partition(".")[0] in HARMLESS
        module = str(getattr(value, "__module__", None) or kind.__module__)
        if module == "__main__" or kind.__module__ == "__main__":
            return all(map(self.value, _methods(kind)))
        if module.partition(".")[0] == "_io" or isinstance(value, Exception):
            return False
        return module.partition(".")[0] in (*HARMLESS, "builtins")

    def _code(self, code: types.CodeType, names: Mapping[str, object]) -> bool:
        """The function names nothing that leaves anything behind."""
        if _NEVER & set(code.co_names):
            return False
        read = [names[n] for n in code.co_names if n in names]
        called = [
            v for v in read if callable(v) or isinstance(v, types.ModuleType) or type(v).__module__ == "_io"
        ]
        inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
        return all(map(self.value, called)) and all(self._code(c, names) for c in inner)


_METHODS = frozenset(n for k in _VALUES for n in dir(k)) | frozenset(
    """at set add multiply get mean sum max min std var item block_until_ready astype reshape ravel T dot argmax argmin
    tolist flatten squeeze transpose any all cumsum swapaxes repeat take prod round clip conj diagonal trace cumprod
    argsort nonzero ptp searchsorted view init apply update normal uniform integers step shuffle""".split()
)


def _methods(kind: type) -> list[object]:
    found = [v for k in kind.__mro__ if k.__module__ == "__main__" for v in vars(k).values()]
    found = [getattr(v, "__func__", getattr(v, "fget", None) or v) for v in found]
    return [v for v in found if isinstance(inspect.unwrap(v), _FUNCTIONS)]

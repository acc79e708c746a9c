"""What the names of a notebook stand for, and how it writes what a library calls something.

`J.where`, `np.where`, `where` and `jax.numpy.where` are one function; what is written into a cell is written the way
that the cell writes it.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

USUAL = {
    "jax.numpy": "jnp", "jax": "jax", "numpy": "np", "math": "math", "functools": "functools",
    "dataclasses": "dataclasses", "contextlib": "contextlib",
}  # fmt: skip
"""What a module is called where the notebook has no name for it yet."""
_CANONICAL = {"jnp": "jax.numpy", "lax": "jax.lax", "np": "numpy"}
"""Short names in our templates; other modules go by their own."""
_WRITTEN = re.compile(
    r"(?<![\w.$])(jnp|lax|jax|np|math|functools|dataclasses|contextlib)((?:\.[A-Za-z_]\w*)+|\b)"
)
_SCIPY = tuple(f"scipy.{m}" for m in "special linalg stats signal fft integrate interpolate ndimage".split())
_KNOWN = (
    "math", "cmath", "functools", "itertools", "operator", "time", "random", "dataclasses", "numpy", "numpy.linalg",
    "numpy.fft", "numpy.random", "jax", "jax.numpy", "jax.numpy.linalg", "jax.lax", "jax.nn", "jax.random",
    "jax.tree_util", "jax.tree", "jax.scipy.special", "jax.scipy.linalg", *_SCIPY,
)  # fmt: skip
"""Modules whose functions are known by themselves: `from numpy import where`."""


class Modules:
    """Names of a notebook and a cell, both ways."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.names = dict(names or {})
        """What each name stands for: `J` for `jax.numpy`, `expit` for `scipy.special.expit`."""
        self.assigned: Mapping[str, ast.expr] = {}
        """Local names that patterns look through, and what they are assigned."""

    @classmethod
    def of(cls, namespace: Mapping[str, Any], tree: ast.AST | None = None) -> Modules:
        """The modules, and functions of known ones, that a namespace holds or a cell imports."""
        names = {k: full for k, v in list(namespace.items()) if not k.startswith("_") and (full := _full(v))}
        return cls({**dict(imported(tree) if tree is not None else ()), **names})

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def looking_through(self, assigned: Mapping[str, ast.expr]) -> Modules:
        """The same names, beside local ones that patterns take for what they are assigned."""
        other = Modules(self.names)
        other.assigned = assigned
        return other

    def behind(self, node: ast.AST) -> ast.AST:
        """What a name that is looked through stands for; other nodes as they are."""
        for _ in range(3):
            node = self.assigned.get(node.id, node) if isinstance(node, ast.Name) else node
        return node

    def full(self, node: ast.AST | str) -> str:
        """`jax.numpy.where` for `J.where`, by node or as written; nothing for what is no name of a library."""
        root, _, rest = (node if isinstance(node, str) else dotted(node)).partition(".")
        found = self.names.get(root, "")
        return f"{found}.{rest}" if found and rest else found

    def called(self, node: ast.AST) -> str:
        """`full` of what a call calls; nothing for other nodes."""
        return self.full(node.func) if isinstance(node, ast.Call) else ""

    def name(self, module: str) -> str:
        """How this notebook calls a module: `J` for `jax.numpy`, `jax.lax` where only `jax` is bound."""
        bound = [k for k, v in self.names.items() if v == module]
        usual = USUAL.get(module, "")
        if usual in bound:
            return usual
        if bound:
            return min(bound, key=len)
        outer, _, last = module.rpartition(".")
        if usual in self.names:
            usual = ""  # it is the notebook's name for something else
        if usual and (outer not in self.names.values() or module == "jax.numpy"):
            return usual
        return f"{self.name(outer)}.{last}" if outer else usual or module

    def spelled(self, full: str) -> str:
        """How this notebook writes a function: `where` where it has imported that, else `J.where`."""
        own = [k for k, v in self.names.items() if v == full]
        if own:
            return min(own, key=len)
        for cut in range(full.count("."), 0, -1):
            module = ".".join(full.split(".")[:cut])
            if module in self.names.values() or module == "jax.numpy":
                return self.name(module) + full[len(module) :]
        module = next((m for m in USUAL if full.startswith(f"{m}.")), full.rpartition(".")[0])
        return self.name(module) + full[len(module) :] if module else full

    def written(self, template: str) -> str:
        """Code of ours (`jnp.where(...)`, `lax.cond(...)`) with the names of this notebook."""

        def spelled(found: re.Match[str]) -> str:
            root = _CANONICAL.get(found[1], found[1])
            return self.spelled(root + found[2]) if found[2] else self.name(root)

        return _WRITTEN.sub(spelled, template)

    def imports_for(self, code: str | ast.AST) -> list[str]:
        """Imports of what the code takes from modules that neither it nor the notebook has imported."""
        tree = ast.parse(code) if isinstance(code, str) else code
        read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= set(dict(imported(tree))) | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        wanted = (*USUAL.items(), *((m, m) for m in USUAL if "." not in m))
        missing = dict.fromkeys(pair for pair in wanted if pair[1] in read - bound - self.names.keys())
        return [f"import {m}" if m == n else f"import {m} as {n}" for m, n in missing]


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of attributes of a name; nothing for others."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *parts[::-1]]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c` or of `x[0].c`; nothing for what ends in no name."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def argument_at(call: ast.Call, position: int, *keywords: str) -> ast.expr | None:
    """What a call gives for a parameter, by its place or under one of its names; None where that cannot be seen."""
    named = [k.value for k in call.keywords if k.arg in keywords]
    plain = call.args[: position + 1]
    if named or len(plain) <= position or any(isinstance(a, ast.Starred) for a in plain):
        return named[0] if named else None
    return plain[position]


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a text imports, each with what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                yield (a.asname, a.name) if a.asname else (a.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)


def _full(value: Any) -> str:
    if issubclass(type(value), types.ModuleType):
        return str(value.__name__)
    if not callable(value):
        return ""
    name, known = _functions(tuple(m for m in _KNOWN if m in sys.modules)).get(id(value), ("", None))
    return name if known is value else ""


@functools.lru_cache(maxsize=2)
def _functions(modules: tuple[str, ...]) -> dict[int, tuple[str, Any]]:
    """The functions of these modules by identity; a later module does not rename what an earlier one has."""
    found: dict[int, tuple[str, Any]] = {}
    for module in modules:
        classes = module.startswith(("scipy", "functools"))
        for name, value in list(vars(sys.modules[module]).items()):
            if callable(value) and name[0] != "_" and (classes or not isinstance(value, type)):
                found.setdefault(id(value), (f"{module}.{name}", value))
    return found

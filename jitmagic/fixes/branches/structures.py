"""Returned expressions, written anew so that they give another structure, other shapes or dtypes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jitmagic.fixes.change import Spot
from jitmagic.fixes.sizes.masked_expressions import is_constant
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import number_of, tuple_of

Tree: TypeAlias = Any
"""What `jax.eval_shape` gives: dicts, lists and tuples of what has a shape and a dtype; objects stay as they are."""


@dataclass(frozen=True)
class Want:
    """A leaf that every branch has to give; `name` is one that holds such an array, where there is one."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""


def item_of(node: ast.expr | None, key: object) -> ast.expr | None:
    """The value that a dict display has under a literal key."""
    if isinstance(node, ast.Dict):
        for k, v in zip(node.keys, node.values, strict=True):
            if isinstance(k, ast.Constant) and k.value == key:
                return v
    return None


def items_of(node: ast.expr | None, tree: Sequence[Tree]) -> list[ast.expr | None]:
    """The elements of a tuple or list display, or what a call of the class of a named tuple is given; Nones for other
    expressions."""
    if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == len(tree):
        return list(node.elts)
    fields = getattr(tree, "_fields", ())
    if isinstance(node, ast.Call) and fields and last_name(node.func) == type(tree).__name__:
        given = dict(zip(fields, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
        if set(given) == set(fields) and not any(isinstance(a, ast.Starred) for a in node.args):
            return [given[name] for name in fields]
    return [None] * len(tree)


class OutputWriter:
    """Writes returned expressions anew; `filled` where something had to be made up, `formed` where a result has
    another shape, or is in a list or tuple that it was not in."""

    def __init__(self, spot: Spot) -> None:
        self.spot = spot
        self.filled = self.formed = False
        self.spare: tuple[str, ...] = ()
        """Parameters of the branch: what it takes and does not give back goes on as it is."""
        self._names: list[str] = []
        """What results are bound to on their way."""

    def written(self, node: ast.expr, whole: str, tree: Tree, want: Tree) -> str | None:
        """The expression so that it gives `want`; as it is where it does. None where it cannot be written."""
        source = ast.get_source_segment(whole, node) or ast.unparse(node)
        if isinstance(node, ast.Tuple) and not source.startswith("(") and whole != source:
            source = f"({source})"
        if _same(tree, want):
            return source
        if tree is None:
            return self.zeros(want)
        if isinstance(want, Want):
            return self._leaf(node, source, tree, want) if hasattr(tree, "dtype") else None
        if isinstance(want, dict):
            return self._dict(node, whole, source, tree, want) if isinstance(tree, dict) else None
        return self._sequence(node, whole, source, tree, want) if isinstance(want, tuple | list) else None

    def zeros(self, want: Tree) -> str:
        """Source of zeros of this structure."""
        if want is None:
            return "None"
        self.filled = True
        if isinstance(want, dict):
            return f"{{{', '.join(f'{key_of(k)}: {self.zeros(v)}' for k, v in want.items())}}}"
        if not isinstance(want, Want):
            return _listed(want, [self.zeros(v) for v in want])
        if want.name:
            return self.spot.write("jnp.zeros_like($$name)", name=want.name)
        if not want.shape:
            return self._number(0, want)
        dtype = "" if want.dtype == "float32" else f", {_type(want)}"
        return self.spot.write(f"jnp.zeros({want.shape}{dtype})")

    def _leaf(self, node: ast.expr, source: str, tree: Tree, want: Want) -> str | None:
        shape, number = tuple(tree.shape), number_of(node)
        if number is not None and not want.shape:
            return self._number(number, want)
        if number is not None and want.name:
            self.formed |= shape != want.shape
            return self.spot.write("jnp.full_like($$name, $x)", name=want.name, x=source)
        if shape != want.shape:
            return None
        if str(tree.dtype) == want.dtype:
            return source
        # what is weakly typed may be a number of Python's, which has no method
        array = any(isinstance(n, ast.Name) for n in ast.walk(node)) and not getattr(tree, "weak_type", False)
        template = f"$x.astype({_type(want)})" if array else f"jnp.asarray($x, {_type(want)})"
        return self.spot.write(template, x=source)

    def _dict(
        self, node: ast.expr, whole: str, source: str, tree: Tree, want: Mapping[object, Tree]
    ) -> str | None:
        missing = [k for k in want if k not in tree]
        self.filled |= bool(missing)
        keys = [k.value for k in getattr(node, "keys", ()) if isinstance(k, ast.Constant)]
        if set(keys) != set(tree):
            first, name = self._named(node, source)
            other = {k: f"{name}[{key_of(k)}]" for k in tree if not _same(tree[k], want[k])}
            new = {k: self._part(other[k], tree[k], want[k]) for k in other}
            if None in new.values():
                return None
            new |= {k: self.zeros(want[k]) for k in missing}
            return f"{{{', '.join([f'**{first}', *(f'{key_of(k)}: {v}' for k, v in new.items())])}}}"
        parts = []
        for k in (*keys, *missing):
            value = item_of(node, k)
            part = self.written(value, whole, tree[k], want[k]) if value is not None else self.zeros(want[k])
            if part is None:
                return None
            parts.append(f"{key_of(k)}: {part}")
        return f"{{{', '.join(parts)}}}"

    def _sequence(self, node: ast.expr, whole: str, source: str, tree: Tree, want: Tree) -> str | None:
        listed = isinstance(tree, tuple | list)
        own = list(tree) if listed else [tree]
        nodes = items_of(node, own if type(own) is type(tree) else tree) if listed else [node]
        self.formed |= not listed
        written_out = [n for n in nodes if n is not None]
        if not written_out and own and type(tree) is type(want) and hasattr(want, "_asdict"):
            return self._replaced(node, source, tree._asdict(), want._asdict())
        if not written_out:
            first, name = self._named(node, source)
            codes = [f"{name if i else first}[{i}]" for i in range(len(own))]
            parts = [self._part(*part) for part in zip(codes, own, want, strict=False)]
        else:
            parts = [self.written(n, whole, t, w) for n, t, w in zip(written_out, own, want, strict=False)]
        kept = len(self.spare) == len(want) and list(self.spare[: len(own)]) == parts
        for i, w in enumerate(want[len(own) :], len(own)):
            parts.append(self.spare[i] if kept else self.zeros(w))
        found = [p for p in parts if p is not None]
        if len(found) < len(parts):
            return None
        bare = type(want) is tuple and isinstance(node, ast.Tuple) and not whole.startswith("(")
        return ", ".join(found) if bare and node.col_offset == 0 and len(found) > 1 else _listed(want, found)

    def _replaced(
        self, node: ast.expr, source: str, tree: Mapping[str, Tree], want: Mapping[str, Tree]
    ) -> str | None:
        """A named tuple of which some fields are replaced."""
        first, name = self._named(node, source)
        other = [k for k in tree if not _same(tree[k], want[k])]
        new = [self._part(f"{name}.{k}", tree[k], want[k]) for k in other]
        fields = ", ".join(f"{k}={v}" for k, v in zip(other, new, strict=True))
        return (
            None if None in new else self.spot.write("$first._replace($$fields)", first=first, fields=fields)
        )

    def _named(self, node: ast.expr, source: str) -> tuple[str, str]:
        """The expression, and how its value is called behind it."""
        if is_constant(node):
            return source, source
        name = self.spot.text.fresh("result", "out", taken=[*self.spot.modules.names, *self._names])
        self._names.append(name)
        return f"({name} := {source})", name

    def _part(self, code: str, tree: Tree, want: Tree) -> str | None:
        """A part of a result, by its code."""
        return self.written(ast.parse(code, mode="eval").body, code, tree, want)

    def _number(self, number: float, want: Want) -> str:
        """A Python number of a dtype, where there is one: weak types give way."""
        if want.dtype == "bool":
            return str(bool(number))
        if want.dtype == "float32":
            return repr(float(number))
        if want.dtype == "int32" and number == int(number):
            return repr(int(number))
        return self.spot.write(f"{_type(want)}({number})")


def _same(tree: Tree, want: Tree) -> bool:
    if isinstance(want, Want):
        return hasattr(tree, "dtype") and str(tree.dtype) == want.dtype and tuple(tree.shape) == want.shape
    if isinstance(want, dict):
        keys = set(tree) == set(want) if isinstance(tree, dict) else False
        return keys and all(_same(tree[k], want[k]) for k in want)
    if isinstance(want, tuple | list):
        return type(tree) is type(want) and len(tree) == len(want) and all(map(_same, tree, want))
    return bool(tree == want)


def _type(want: Want) -> str:
    return f"jnp.{'bool_' if want.dtype == 'bool' else want.dtype}"


def key_of(key: object) -> str:
    """The key of a dict as written."""
    return f'"{key}"' if isinstance(key, str) else repr(key)


def _listed(want: Sequence[Tree], parts: Sequence[str]) -> str:
    inside = ", ".join(parts)
    if hasattr(want, "_fields"):
        return f"{type(want).__name__}({inside})"
    return f"[{inside}]" if isinstance(want, list) else tuple_of(parts)

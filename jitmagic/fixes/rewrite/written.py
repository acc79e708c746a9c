"""The expression that a branch returns, written anew so that it gives what all of them shall give."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names


@dataclass(frozen=True)
class Want:
    """A leaf that every branch has to give; `name` is one that holds such an array, where there is one."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""
    padded: bool = False
    """Zeros are added at the end of smaller arrays; else they are broadcast."""


def item_of(node: ast.expr | None, key: Any) -> ast.expr | None:
    """The value that a dict display has under a literal key."""
    if isinstance(node, ast.Dict):
        for k, v in zip(node.keys, node.values, strict=True):
            if isinstance(k, ast.Constant) and k.value == key:
                return v
    return None


def _keys(node: ast.Dict) -> list[Any]:
    return [k.value for k in node.keys if isinstance(k, ast.Constant)]


def items_of(node: ast.expr | None, count: int) -> list[ast.expr | None]:
    """The elements of a tuple or list display of that length; Nones for other expressions."""
    if isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) == count:
        return list(node.elts)
    return [None] * count


class Writer:
    """Writes returned expressions anew; `filled` where something had to be made up, `padded` where a result got zeros
    at its end, `formed` where it has another shape, or is in a list or tuple that it was not in."""

    def __init__(self, jnp: str) -> None:
        self.jnp, self.filled, self.formed, self.padded = jnp, False, False, False
        self.spare: tuple[str, ...] = ()
        """Parameters of the branch: what it takes and does not give back goes on as it is."""

    def written(self, node: ast.expr, whole: str, tree: Any, want: Any) -> str | None:
        """The expression so that it gives `want`; as it is where it does. None where it cannot be written."""
        source = ast.get_source_segment(whole, node) or ast.unparse(node)
        if isinstance(node, ast.Tuple) and not source.startswith("(") and node is not None:
            source = source if whole == source else f"({source})"
        if isinstance(want, Want):
            return self._leaf(node, source, tree, want)
        if isinstance(want, dict):
            return self._dict(node, whole, source, tree, want)
        if isinstance(want, (tuple, list)):
            return self._sequence(node, whole, source, tree, want)
        return source if tree is None and want is None else None

    def _leaf(self, node: ast.expr, source: str, tree: Any, want: Want) -> str | None:
        if tree is None or not hasattr(tree, "dtype"):
            return self.zeros(want) if tree is None else None
        if str(tree.dtype) == want.dtype and tuple(tree.shape) == want.shape:
            return source
        self.formed = self.formed or tuple(tree.shape) != want.shape
        number = _number(node)
        if number is not None and want.shape == ():
            return _as(number, want.dtype, self.jnp)
        if number is not None and want.name:
            return f"{self.jnp}.full_like({want.name}, {source})"
        if tuple(tree.shape) != want.shape and want.padded:
            self.padded = True
            widths = [(0, most - own) for own, most in zip(tree.shape, want.shape, strict=True)]
            source = f"{self.jnp}.pad({source}, {widths if len(widths) > 1 else widths[0]})"
        elif tuple(tree.shape) != want.shape:
            source = f"{self.jnp}.broadcast_to({source}, {want.shape})"
        if str(tree.dtype) != want.dtype:
            dtype = f"{self.jnp}.{_name(want.dtype)}"
            number = getattr(tree, "weak_type", False)  # it may be Python's own, which has no method
            array = any(isinstance(n, ast.Name) for n in ast.walk(node)) and not number
            source = (
                f"{names.wrapped(source)}.astype({dtype})"
                if array
                else f"{self.jnp}.asarray({source}, {dtype})"
            )
        return source

    def cast(self, source: str, trees: Sequence[Any], want: Want) -> str:
        """An expression that gives arrays of several types, as the one that is wanted."""
        source = f"{self.jnp}.asarray({source}, {self.jnp}.{_name(want.dtype)})"
        if all(tuple(t.shape) == want.shape for t in trees):
            return source
        self.formed = True
        return f"{self.jnp}.broadcast_to({source}, {want.shape})"

    def _dict(
        self, node: ast.expr, whole: str, source: str, tree: Any, want: Mapping[Any, Any]
    ) -> str | None:
        if not isinstance(tree, dict):
            return self.zeros(want) if tree is None else None
        missing = [k for k in want if k not in tree]
        self.filled = self.filled or bool(missing)
        if not isinstance(node, ast.Dict) or set(_keys(node)) != set(tree):
            if all(_same(tree[k], want[k]) for k in tree):
                more = ", ".join(f"{k!r}: {self.zeros(want[k])}" for k in missing)
                return f"{{**{source}, {more}}}".replace("'", '"') if missing else source
            return None
        parts = []
        for k in (*_keys(node), *missing):
            value = item_of(node, k)
            new = self.zeros(want[k]) if k in missing else (
                self.written(value, whole, tree[k], want[k]) if value is not None else None
            )  # fmt: skip
            if new is None:
                return None
            parts.append(f'"{k}": {new}' if isinstance(k, str) else f"{k!r}: {new}")
        unchanged = not missing and all(_same(tree[k], want[k]) for k in want)
        return source if unchanged else f"{{{', '.join(parts)}}}"

    def _sequence(
        self, node: ast.expr, whole: str, source: str, tree: Any, want: tuple[Any, ...] | list[Any]
    ) -> str | None:
        if tree is None:
            return self.zeros(want)
        own = list(tree) if isinstance(tree, (tuple, list)) else [tree]
        if type(tree) is type(want) and len(own) == len(want) and all(map(_same, own, want)):
            return source
        if isinstance(tree, (tuple, list)):
            nodes = items_of(node, len(own))
            if any(n is None for n in nodes):
                return None
        else:
            nodes, self.formed = [node], True
        parts = [
            self.written(n, whole, t, w) for n, t, w in zip(nodes, own, want, strict=False) if n is not None
        ]
        kept = self.spare if len(self.spare) == len(want) and self.spare[: len(own)] == tuple(parts) else ()
        for i, w in enumerate(want[len(own) :], len(own)):
            parts.append(kept[i] if kept else self.zeros(w))
        if any(p is None for p in parts):
            return None
        inside = ", ".join(p or "" for p in parts)
        if hasattr(want, "_fields"):
            return f"{type(want).__name__}({inside})"
        if isinstance(want, list):
            return f"[{inside}]"
        bare = (
            isinstance(node, ast.Tuple)
            and len(parts) > 1
            and not whole.startswith("(")
            and node.col_offset == 0
        )
        return inside if bare else f"({inside},)" if len(parts) == 1 else f"({inside})"

    def zeros(self, want: Any) -> str | None:
        """Source of zeros of this structure."""
        self.filled = True
        if isinstance(want, Want):
            if want.name:
                return f"{self.jnp}.zeros_like({want.name})"
            if want.shape == ():
                return _as(0, want.dtype, self.jnp)
            usual = "" if want.dtype == "float32" else f", {self.jnp}.{_name(want.dtype)}"
            return f"{self.jnp}.zeros({want.shape}{usual})"
        if isinstance(want, dict):
            return f"{{{', '.join(f'{k!r}: {self.zeros(v)}' for k, v in want.items())}}}".replace("'", '"')
        if isinstance(want, (tuple, list)):
            inside = ", ".join(str(self.zeros(v)) for v in want)
            return f"[{inside}]" if isinstance(want, list) else f"({inside}{',' if len(want) == 1 else ''})"
        return "None"


def _same(tree: Any, want: Any) -> bool:
    if isinstance(want, Want):
        return hasattr(tree, "dtype") and str(tree.dtype) == want.dtype and tuple(tree.shape) == want.shape
    if isinstance(want, dict):
        return (
            isinstance(tree, dict) and set(tree) == set(want) and all(_same(tree[k], want[k]) for k in want)
        )
    if isinstance(want, (tuple, list)):
        return type(tree) is type(want) and len(tree) == len(want) and all(map(_same, tree, want))
    return tree is None and want is None


def _number(node: ast.expr) -> float | int | bool | None:
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    if not isinstance(inner, ast.Constant) or not isinstance(inner.value, (int, float)):
        return None
    return -inner.value if inner is not node else inner.value


def _as(number: float | int | bool, dtype: str, jnp: str) -> str:
    """A Python number of a dtype, where there is one: weak types give way."""
    if dtype == "bool":
        return str(bool(number))
    if dtype == "float32":
        return repr(float(number))
    return (
        repr(int(number)) if dtype == "int32" and number == int(number) else f"{jnp}.{_name(dtype)}({number})"
    )


def _name(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype

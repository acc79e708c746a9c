"""Branches of `lax.cond` and `lax.switch` that return different things: made equal in structure, shape and dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place

EQUAL = "return the same types from every branch"
FILLED = "return the same structure from every branch, with zeros for what one of them lacks"


@dataclass(frozen=True)
class Want:
    """A leaf that every branch has to give; `name` is one that holds such an array, where there is one."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""


def candidates(place: Place) -> Iterator[Candidate]:
    """The returned expressions of the branches, completed and cast where they differ."""
    import libcst as cst

    if place.kind not in ("carry-mismatch", "user-error"):
        return
    for call in place.on_line(cst.Call):
        name = (
            call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
        )
        if name in ("cond", "switch") and len(call.args) >= 2:
            yield from _equal(place, call, name)


@dataclass(frozen=True)
class Branch:
    """A branch of the call: what of it is replaced, the expression that it returns, and its parameters."""

    node: Any
    source: str
    parameters: tuple[str, ...]
    head: str = ""
    """The head of the lambda around a function that is known by its name only."""


def _equal(place: Place, call: Any, kind: str) -> Iterator[Candidate]:
    branches = _branches(place, call, kind)
    trees = place.outputs(_probe(place, call, kind))
    if len(trees) < 2 or len(branches) not in (1, len(trees)):
        return
    made = len(branches) == 1  # by a comprehension
    sources = [b.source for b in branches]
    want = _joined(trees, sources * len(trees) if made else sources, place)
    if want is None or made and not isinstance(want, Want):
        return
    writer = _Writer(place.jnp)
    changes: dict[Any, str | None] = {}
    for branch, tree in zip(branches, trees, strict=not made):
        writer.spare = branch.parameters
        node = ast.parse(branch.source, mode="eval").body
        new = (
            writer.cast(branch.source, trees, want)
            if made
            else writer.written(node, branch.source, tree, want)
        )
        if new is None:
            return
        if new != branch.source:
            changes[branch.node] = branch.head + new
    if changes:
        yield Candidate(
            FILLED if writer.filled else EQUAL, place.cell.edit(changes),
            "unsafe" if writer.filled or writer.formed else "safe",
            "one of them then has another form" if writer.formed else "", covers=True,
        )  # fmt: skip


# --- the branches in the source


def _branches(place: Place, call: Any, kind: str) -> list[Branch]:
    """The branches as written; one where a comprehension makes them all; none where they are not written out."""
    import libcst as cst

    positional = [a.value for a in call.args if a.keyword is None]
    operands = [place.cell.code(v) for v in positional[3 if kind == "cond" else 2 :]]
    if kind == "cond":
        given = positional[1:3]
    else:
        listed = positional[1]
        listed = _assigned(place, listed) if isinstance(listed, cst.Name) else listed
        if isinstance(listed, cst.ListComp):
            return [_by_name(place, listed.elt, operands)]
        if not isinstance(listed, (cst.List, cst.Tuple)):
            return []
        given = [e.value for e in listed.elements]
    return [_branch(place, g, operands) for g in given]


def _branch(place: Place, node: Any, operands: Sequence[str]) -> Branch:
    function = _definition(place, node)
    returned = _returned(place, function)
    if returned is None:
        return _by_name(place, node, operands)
    parameters = tuple(p.name.value for p in function.params.params)
    return Branch(returned, place.cell.code(returned).strip(), parameters)


def _by_name(place: Place, node: Any, operands: Sequence[str]) -> Branch:
    """A function that is not written here, as the lambda that calls it."""
    simple = len(set(operands)) == len(operands) and all(o.isidentifier() for o in operands)
    given = tuple(operands) if simple else tuple(f"x{i}" for i in range(len(operands)))
    inside, bound = ", ".join(given), _bound_around(place, node)
    head = f"lambda {', '.join([*given, *(f'{n}={n}' for n in bound)])}: "
    return Branch(node, f"{names.wrapped(place.cell.code(node))}({inside})", given, head)


def _bound_around(place: Place, node: Any) -> list[str]:
    """Names of a comprehension's loop in its element, which a lambda has to keep as they are."""
    import libcst as cst

    parent = place.cell.parents.get(node)
    if not isinstance(parent, cst.ListComp):
        return []
    bound = names.stores(f"for {place.cell.code(parent.for_in.target)} in (): pass")
    return [n for n in bound if n in names.loads(place.cell.code(node))]


def _definition(place: Place, node: Any) -> Any:
    import libcst as cst

    if isinstance(node, cst.Lambda):
        return node
    if not isinstance(node, cst.Name):
        return None
    own = [f for f in place.cell.functions() if f.name.value == node.value]
    return own[-1] if own else _assigned(place, node)


def _assigned(place: Place, name: Any) -> Any:
    import libcst as cst

    found = [
        a.value for a in place.cell.within(place.cell.module, cst.Assign)
        if len(a.targets) == 1 and getattr(a.targets[0].target, "value", None) == name.value
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _returned(place: Place, function: Any) -> Any:
    """The expression that a branch returns, or None where it has several."""
    import libcst as cst

    if isinstance(function, cst.Lambda):
        return function.body
    if not isinstance(function, cst.FunctionDef):
        return None
    returns = place.cell.own(function, cst.Return)
    return returns[0].value if len(returns) == 1 else None


def _probe(place: Place, call: Any, kind: str) -> str:
    """The cell with the call replaced by one that tells what each branch returns."""
    code = [place.cell.code(a.value) for a in call.args if a.keyword is None]
    branches = f"[{code[1]}, {code[2]}]" if kind == "cond" else code[1]
    operands = code[3:] if kind == "cond" else code[2:]
    return place.cell.edit({call: f"__outputs({', '.join([branches, *operands])})"})


# --- what all of them shall return


def _joined(trees: Sequence[Any], sources: Sequence[str], place: Place) -> Any:
    """One structure that holds all: dicts with every key, tuples of the greatest length, leaves of one dtype."""
    return _join(list(trees), [_expression(s) for s in sources], place)


def _expression(source: str) -> ast.expr | None:
    try:
        return ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return None


def _join(trees: list[Any], nodes: list[ast.expr | None], place: Place) -> Any:
    present = [(t, n) for t, n in zip(trees, nodes, strict=True) if t is not None]
    if not present:
        return None
    if any(isinstance(t, dict) for t, _ in present):
        if not all(isinstance(t, dict) for t, _ in present):
            return None
        keys = list(dict.fromkeys(k for t, _ in present for k in t))
        return {k: _join([t[k] for t, _ in present if k in t], [_item(n, k) for t, n in present if k in t], place)
                for k in keys}  # fmt: skip
    if any(isinstance(t, (tuple, list)) for t, _ in present):
        return _join_sequences(present, place)
    return _leaf(present, place)


def _join_sequences(present: Sequence[tuple[Any, ast.expr | None]], place: Place) -> Any:
    kinds = [type(t) for t, _ in present if isinstance(t, (tuple, list))]
    kind = next((k for k in kinds if hasattr(k, "_fields")), kinds[0])
    if any(k not in (kind, tuple if hasattr(kind, "_fields") else kind) for k in kinds):
        return None
    if not hasattr(kind, "_fields") and kind not in (tuple, list):
        return None
    longest = max(len(t) for t, _ in present if isinstance(t, (tuple, list)))
    rows = [(list(t), _items(n, len(t))) if isinstance(t, (tuple, list)) else ([t], [n]) for t, n in present]
    joined = []
    for i in range(longest):
        part = _join([t[i] for t, _ in rows if i < len(t)], [n[i] for t, n in rows if i < len(t)], place)
        joined.append(part)
    return kind(*joined) if hasattr(kind, "_fields") else kind(joined)


def _leaf(present: Sequence[tuple[Any, ast.expr | None]], place: Place) -> Want | None:
    import jax.numpy as jnp

    try:
        dtype = str(jnp.result_type(*(_typed(t) for t, _ in present)))
        shape = tuple(jnp.broadcast_shapes(*(tuple(t.shape) for t, _ in present)))
    except (TypeError, ValueError, AttributeError):
        return None
    name = next(
        (
            n.id
            for t, n in present
            if isinstance(n, ast.Name) and tuple(t.shape) == shape and str(t.dtype) == dtype
        ),
        "",
    )
    return Want(shape, dtype, name)


def _typed(leaf: Any) -> Any:
    """Something that jnp.result_type takes: a Python number where the leaf is weakly typed."""
    import jax.numpy as jnp

    if not getattr(leaf, "weak_type", False):
        return leaf.dtype
    return {"b": False, "i": 0, "f": 0.0, "c": 0j}.get(jnp.dtype(leaf.dtype).kind, leaf.dtype)


def _item(node: ast.expr | None, key: Any) -> ast.expr | None:
    if isinstance(node, ast.Dict):
        for k, v in zip(node.keys, node.values, strict=True):
            if isinstance(k, ast.Constant) and k.value == key:
                return v
    return None


def _keys(node: ast.Dict) -> list[Any]:
    return [k.value for k in node.keys if isinstance(k, ast.Constant)]


def _items(node: ast.expr | None, count: int) -> list[ast.expr | None]:
    if isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) == count:
        return list(node.elts)
    return [None] * count


# --- the new expressions


class _Writer:
    """Writes returned expressions anew; `filled` where something had to be made up, `formed` where a result has
    another shape, or is in a list or tuple that it was not in."""

    def __init__(self, jnp: str) -> None:
        self.jnp, self.filled, self.formed = jnp, False, False
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
        if tuple(tree.shape) != want.shape:
            source = f"{self.jnp}.broadcast_to({source}, {want.shape})"
        if str(tree.dtype) != want.dtype:
            dtype = f"{self.jnp}.{_name(want.dtype)}"
            number = isinstance(node, ast.Call) and getattr(tree, "weak_type", False)
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
            value = _item(node, k)
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
            nodes = _items(node, len(own))
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

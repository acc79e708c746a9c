"""`x[i] = v` as `x = x.at[i].set(v)`: what an assignment to an item binds anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Place

METHODS = {"+": "add", "-": "add", "*": "multiply", "/": "divide", "**": "power"}
TITLE = "update with `.at[...]`, which gives a new array"


def rebinding(place: Place, small: Any, *, array: str = "") -> tuple[str, str] | None:
    """`x[i] = v` (or `+=`) as the name and its new value; None for another statement."""
    import libcst as cst

    code = place.cell.code
    if isinstance(small, cst.Assign):
        if len(small.targets) != 1 or not isinstance(small.targets[0].target, cst.Subscript):
            return None
        target, method, value = small.targets[0].target, "set", code(small.value)
    elif isinstance(small, cst.AugAssign) and isinstance(small.target, cst.Subscript):
        sign = code(small.operator).strip().removesuffix("=")
        target, value = small.target, code(small.value)
        method = METHODS.get(sign, "")
        if sign == "-":
            value = f"-{names.wrapped(value)}"
        elif not method:
            method, value = "set", f"{code(target)} {sign} {names.wrapped(value)}"
    else:
        return None
    base, index = base_and_index(place, target)
    if base is None:
        return None
    masked = by_mask(place, base, index, method, value)
    if masked is not None:
        return base, masked
    start = array.format(base) if array else base
    return base, f"{start}.at[{index}].{method}({value})"


def base_and_index(place: Place, target: Any) -> tuple[str | None, str]:
    """`x[i][j]` as `x` and `i, j`; the base is a name or a dotted name."""
    import libcst as cst

    indices: list[str] = []
    node = target
    while isinstance(node, cst.Subscript) and not is_entry(place, node):
        indices.insert(0, "".join(place.cell.code(e) for e in node.slice).strip().rstrip(","))
        node = node.value
    if isinstance(node, cst.Name):
        return node.value, ", ".join(indices)
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
        return place.cell.code(node), ", ".join(indices)
    if indices and isinstance(node, cst.Subscript) and _is_path(place, node.value):
        return place.cell.code(node), ", ".join(indices)
    return None, ""


def _is_path(place: Place, node: Any) -> bool:
    """A name, or what names and literal keys lead to from one: `params["head"]`, `net.layers[0]`."""
    import libcst as cst

    while isinstance(node, cst.Attribute) or isinstance(node, cst.Subscript) and is_entry(place, node):
        node = node.value
    return isinstance(node, cst.Name)


def is_entry(place: Place, node: Any) -> bool:
    """`params["w"]`, and `params[name]` of an argument that is a dict or list of arrays: an entry, not an element of an
    array."""
    import re

    import libcst as cst

    index = node.slice[0].slice
    if len(node.slice) != 1 or not isinstance(index, cst.Index):
        return False
    path = place.cell.code(node.value)
    if isinstance(index.value, (cst.Integer, cst.Name)):
        if any(re.match(rf"{re.escape(path)}\[\d+\]", p) for p in place.numpy_arguments):
            return True
    key = f"{path}['"
    known = any(path.startswith(key) for path in (*place.numpy_arguments, *place.names))
    return isinstance(index.value, cst.SimpleString) or known and isinstance(index.value, cst.Name)


def by_mask(
    place: Place, base: str, index: str, method: str, value: str, *, seen: bool = False
) -> str | None:
    """`x[mask] = f(x[mask])` as `jnp.where(mask, f(x), x)`."""
    import ast

    import libcst as cst

    from jitmagic.fixes.rewrite.truths import is_boolean

    try:
        node = cst.parse_expression(index)
    except Exception:
        return None
    if isinstance(node, cst.Tuple):
        return None
    inverted = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert)
    if not seen and not is_boolean(place, node) and not inverted:
        return None
    text = ast.unparse(ast.parse(index, mode="eval").body)
    new = _without_mask(value, text)
    if new is None:
        return None
    if method == "set":
        return f"{place.jnp}.where({index}, {new}, {base})"
    if method == "add":
        plus = (
            f"{base} - {names.wrapped(new[1:])}" if new.startswith("-") else f"{base} + {names.wrapped(new)}"
        )
        return f"{place.jnp}.where({index}, {plus}, {base})"
    sign = {"multiply": "*", "divide": "/", "power": "**"}[method]
    return f"{place.jnp}.where({index}, {base} {sign} {names.wrapped(new)}, {base})"


def _without_mask(value: str, mask: str) -> str | None:
    """The value with each `y[mask]` as `y`; None where another index is left that may be ragged."""
    import ast

    import libcst as cst

    tree = cst.parse_expression(value)
    module = cst.Module(body=[])

    class Drop(cst.CSTTransformer):
        def leave_Subscript(self, original_node: Any, updated_node: Any) -> Any:
            inside = "".join(module.code_for_node(e) for e in original_node.slice)
            try:
                same = ast.unparse(ast.parse(inside.strip(), mode="eval").body) == mask
            except SyntaxError:
                same = False
            return updated_node.value if same else updated_node

    dropped: Any = tree.visit(Drop())
    return module.code_for_node(dropped)


def with_rebindings(place: Place, statements: Sequence[Any], *, array: str = "") -> str:
    """Source of statements in which stores into items of a name rebind the name."""
    import libcst as cst

    out = ""
    for statement in statements:
        text = place.cell.module.code_for_node(statement)
        if isinstance(statement, cst.If) and text.lstrip().startswith("elif"):
            text = text.lstrip()[2:]
        smalls = [
            s for line in place.cell.own(statement, cst.SimpleStatementLine) for s in line.body
            if len(line.body) == 1
        ] if not isinstance(statement, cst.FunctionDef) else []  # fmt: skip
        for small in smalls:
            new = rebinding(place, small, array=array)
            if new is not None:
                old = place.cell.code(small)
                text = text.replace(old, f"{new[0]} = {new[1]}", 1)
        out += text if text.endswith("\n") else text + "\n"
    return out


def taking_in(place: Place, function: Any) -> Iterator[str]:
    """Names of dicts and lists into which the function stores."""
    import libcst as cst

    for subscript in place.cell.own(function, cst.Subscript):
        target = place.cell.parents[subscript]
        if isinstance(target, cst.AssignTarget) or getattr(target, "target", None) is subscript:
            node = subscript
            while isinstance(node, cst.Subscript):
                node = node.value
            yield getattr(node, "value", "")
    for call in place.cell.own(function, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("append", "extend", "update"):
            yield getattr(call.func.value, "value", "")

"""What a condition says of arrays: its truth as an array expression, and what is boolean or an array."""

from __future__ import annotations

import ast

from jitmagic.fixes.change import Spot
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import atom

PREDICATES = frozenset(
    "any all isnan isinf isfinite isclose allclose array_equal logical_and logical_or logical_not logical_xor "
    "greater less equal not_equal greater_equal less_equal isin signbit isneginf isposinf isreal bernoulli".split()
)


def truth(spot: Spot, node: ast.expr) -> str:
    """The expression as one that is a boolean array where Python would ask for its truth; no brackets around it."""
    if isinstance(node, ast.BoolOp):
        return _joined(spot, node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = truth(spot, node.operand)
        if _surely_array(spot, node.operand):
            return f"~{atom(inner)}"
        return spot.write("jnp.logical_not($inner)", inner=inner)
    if isinstance(node, ast.Compare):
        return _comparison(spot, node)
    if isinstance(node, ast.Call) and spot.code(node.func) == "bool" and len(node.args) == 1:
        if is_boolean(spot, node.args[0]):
            return truth(spot, node.args[0])
    return spot.code(node)


def negated(spot: Spot, test: ast.expr) -> str:
    """The opposite of a condition, as Python asks it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return spot.code(test.operand)
    return f"not {atom(spot.code(test))}"


def _joined(spot: Spot, node: ast.BoolOp) -> str:
    """`and` and `or` of arrays; operands that are known while jax traces stay Python's, and stand first."""
    sign, function = ("&", "logical_and") if isinstance(node.op, ast.And) else ("|", "logical_or")
    parts, python = list(node.values), []
    while len(parts) > 1 and not maybe_traced(spot, parts[0]):
        python.append(spot.code(parts.pop(0)))
    texts = [truth(spot, p) for p in parts]
    if all(is_boolean(spot, p) for p in parts):
        whole = f" {sign} ".join(map(atom, texts))
    else:
        whole = texts[0]
        for text in texts[1:]:
            whole = spot.write(f"jnp.{function}($whole, $text)", whole=whole, text=text)
    word = " and " if isinstance(node.op, ast.And) else " or "
    if python and len(parts) > 1:
        whole = f"({whole})"
    return word.join([*python, whole])


def maybe_traced(spot: Spot, node: ast.AST) -> bool:
    """Unless it can be seen to be a plain Python value."""
    if any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(node)):
        return False
    return spot.may_be_array(node)


def is_boolean(spot: Spot, node: ast.AST) -> bool:
    """Whether the expression can be seen to give booleans, so that `&`, `|` and `~` mean and, or, not."""
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not) or is_boolean(spot, node.operand)
    if isinstance(node, ast.BoolOp):
        return all(is_boolean(spot, n) for n in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor):
        return is_boolean(spot, node.left) and is_boolean(spot, node.right)
    if isinstance(node, ast.Call):
        return last_name(node.func) in (*PREDICATES, "bool", "isinstance")
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    value = spot.assigned(node.id) if isinstance(node, ast.Name) else None
    return value is not None and not isinstance(value, ast.Name) and is_boolean(spot, value)


def _surely_array(spot: Spot, node: ast.AST) -> bool:
    """Boolean, and an array even in a run without jit: `~True` is -2, `~jnp.bool_(True)` is False."""
    if not is_boolean(spot, node):
        return False
    if isinstance(node, ast.Name):
        value = spot.assigned(node.id)
        return value is not None and _surely_array(spot, value)
    values = (spot.assigned(n.id) for n in ast.walk(node) if isinstance(n, ast.Name))
    return spot.calls_jax(node) or any(v is not None and spot.calls_jax(v) for v in values)


_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not",
}  # fmt: skip


def _comparison(spot: Spot, node: ast.Compare) -> str:
    """A comparison as it stands; a chain of them joined with `&`, membership as an array expression."""
    left, parts = node.left, []
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.In | ast.NotIn):
            parts.append(_membership(spot, left, right, isinstance(op, ast.NotIn)))
        else:
            parts.append(f"{atom_of(spot, left)} {_SIGNS[type(op)]} {atom_of(spot, right)}")
        left = right
    if len(parts) == 1:
        return parts[0] if isinstance(node.ops[0], ast.In | ast.NotIn) else spot.code(node)
    return " & ".join(f"({p})" for p in parts)


def atom_of(spot: Spot, node: ast.expr) -> str:
    """An operand of a comparison as written, in the brackets that stand around it."""
    loose = ast.Compare | ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr | ast.Tuple
    return atom(spot.code(node)) if isinstance(node, loose) else spot.code(node)


def _membership(spot: Spot, left: ast.expr, right: ast.expr, outside: bool) -> str:
    values = spot.assigned(right.id) if isinstance(right, ast.Name) else right
    listed = isinstance(values, ast.Tuple | ast.List)
    array = spot.write("jnp.array($values)" if listed else "jnp.array(list($values))", values=right)
    inside = spot.write("jnp.isin($x, $array)", x=left, array=array)
    if isinstance(left, ast.Tuple | ast.List):  # one of several rows
        row = spot.write("jnp.array([$*parts])", parts=left.elts)
        inside = spot.write("jnp.any(jnp.all($array == $row, axis=-1))", array=array, row=row)
    return f"~{inside}" if outside else inside

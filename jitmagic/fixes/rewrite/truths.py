"""What a condition says of arrays: its truth as an array expression, and what is boolean or an array."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Place

if TYPE_CHECKING:
    import libcst as cst

PREDICATES = frozenset(
    "any all isnan isinf isfinite isclose allclose array_equal logical_and logical_or logical_not logical_xor "
    "greater less equal not_equal greater_equal less_equal isin signbit isneginf isposinf isreal bernoulli".split()
)


def truth(place: Place, node: cst.BaseExpression) -> str:
    """The expression as one that is a boolean array where Python would ask for its truth."""
    import libcst as cst

    if isinstance(node, cst.BooleanOperation):
        return _joined(place, node)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        inner = truth(place, node.expression)
        if _surely_array(place, node.expression):
            return f"~{names.wrapped(stripped(inner))}"
        return f"{place.jnp}.logical_not({stripped(inner)})"
    if isinstance(node, cst.Comparison):
        return _comparison(place, node)
    if isinstance(node, cst.Call) and place.cell.code(node.func) == "bool" and len(node.args) == 1:
        if is_boolean(place, node.args[0].value):
            return truth(place, node.args[0].value)
    return place.cell.code(node)


def stripped(text: str) -> str:
    """Without parentheses around the whole."""
    text = text.strip()
    while text.startswith("(") and names._closes_at_end(text):
        inner = text[1:-1].strip()
        if isinstance(names.parse(inner), ast.Expression) and "\n" in inner:
            return text
        try:
            if isinstance(ast.parse(inner, mode="eval").body, (ast.Tuple, ast.GeneratorExp)):
                return text
        except SyntaxError:
            return text
        text = inner
    return text


def negated(place: Place, test: Any) -> str:
    """The opposite of a condition, as Python asks it."""
    import libcst as cst

    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return stripped(place.cell.code(test.expression))
    return f"not {names.wrapped(stripped(place.cell.code(test)))}"


def operands_of(node: Any, kind: type) -> list[Any]:
    """The operands of a chain of `and` or of `or`, in order; a node that is none is its only one."""
    import libcst as cst

    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, kind):
        return [*operands_of(node.left, kind), *operands_of(node.right, kind)]
    return [node]


def _joined(place: Place, node: Any) -> str:
    import libcst as cst

    kind = type(node.operator)
    parts = operands_of(node, kind)
    python = []
    while len(parts) > 1 and not maybe_traced(place, parts[0]):
        python.append(place.cell.code(parts.pop(0)))
    sign, function = ("&", "logical_and") if kind is cst.And else ("|", "logical_or")
    texts = [stripped(truth(place, p)) for p in parts]
    if all(is_boolean(place, p) for p in parts):
        whole = f" {sign} ".join(names.wrapped(t) for t in texts)
    else:
        whole = texts[0]
        for t in texts[1:]:
            whole = f"{place.jnp}.{function}({whole}, {t})"
    word = " and " if kind is cst.And else " or "
    if python and len(parts) > 1:
        whole = f"({whole})"
    return word.join([*python, whole])


def maybe_traced(place: Place, node: Any) -> bool:
    """Unless it can be seen to be a plain Python value."""
    code = place.cell.code(node)
    tree = names.parse(code)
    if any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(tree)):
        return False
    return names.traced_in(tree, place.traced) or _jax_call(place, tree)


def _jax_call(place: Place, tree: ast.AST) -> bool:
    roots = {place.jnp.partition(".")[0], place.jax, "lax"}
    return any(isinstance(n, ast.Call) and _root(n.func) in roots for n in ast.walk(tree))


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_boolean(place: Place, node: Any) -> bool:
    """Whether the expression can be seen to give booleans, so that `&`, `|` and `~` mean and, or, not."""
    import libcst as cst

    if isinstance(node, cst.Comparison):
        return True
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not) or is_boolean(place, node.expression)
    if isinstance(node, cst.BooleanOperation):
        return all(is_boolean(place, n) for n in (node.left, node.right))
    if isinstance(node, cst.BinaryOperation) and isinstance(
        node.operator, (cst.BitAnd, cst.BitOr, cst.BitXor)
    ):
        return is_boolean(place, node.left) and is_boolean(place, node.right)
    if isinstance(node, cst.Call):
        name = (
            node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", "")
        )
        return name in PREDICATES or name in ("bool", "isinstance")
    if isinstance(node, cst.Name):
        if node.value in ("True", "False"):
            return True
        value = assigned(place, node)
        return value is not None and not isinstance(value, cst.Name) and is_boolean(place, value)
    return False


def assigned(place: Place, name: Any) -> Any:
    """The expression of the only assignment to a local name, or None."""
    import libcst as cst

    if place.outermost is None:
        return None
    found = []
    for node in place.cell.within(
        place.outermost, cst.Assign, cst.AugAssign, cst.For, cst.CompFor, cst.Param
    ):
        if isinstance(node, cst.Assign):
            targets = [t.target for t in node.targets]
            if any(isinstance(t, cst.Name) and t.value == name.value for t in targets):
                found.append(node.value)
        elif isinstance(node, cst.Param):
            if node.name.value == name.value:
                return None
        elif isinstance(node.target, cst.Name) and node.target.value == name.value:
            return None
    return found[0] if len(found) == 1 else None


def _surely_array(place: Place, node: Any) -> bool:
    """Boolean, and an array even in a run without jit: `~True` is -2, `~jnp.bool_(True)` is False."""
    import libcst as cst

    if not is_boolean(place, node):
        return False
    if isinstance(node, cst.Name):
        return _surely_array(place, assigned(place, node))
    tree = names.parse(place.cell.code(node))
    if _jax_call(place, tree):
        return True
    value = assigned_arrays(place)
    return any(isinstance(n, ast.Name) and n.id in value for n in ast.walk(tree))


def assigned_arrays(place: Place) -> set[str]:
    """Local names that only jax functions give their values."""
    import libcst as cst

    if place.outermost is None:
        return set()
    out = set()
    for name in {n.value for n in place.cell.within(place.outermost, cst.Name)}:
        value = assigned(place, cst.Name(name))
        if value is not None and _root(ast.parse(f"({place.cell.code(value)})", mode="eval").body) in (
            place.jnp, place.jax, "lax",
        ):  # fmt: skip
            out.add(name)
    return out


_MIRRORED = {"Is", "IsNot"}


def _comparison(place: Place, node: Any) -> str:
    import libcst as cst

    code = place.cell.code
    left, parts = node.left, []
    for target in node.comparisons:
        operator, right = target.operator, target.comparator
        if isinstance(operator, (cst.In, cst.NotIn)):
            parts.append(_membership(place, left, right, isinstance(operator, cst.NotIn)))
        else:
            sign = code(operator).strip()
            parts.append(f"{code(left)} {sign} {code(right)}")
        left = right
    if len(parts) == 1:
        return parts[0] if isinstance(node.comparisons[0].operator, (cst.In, cst.NotIn)) else code(node)
    return " & ".join(f"({p})" for p in parts)


def _membership(place: Place, left: Any, right: Any, negated: bool) -> str:
    import libcst as cst

    code, jnp = place.cell.code, place.jnp
    x = code(left)
    if isinstance(right, (cst.Tuple, cst.List, cst.Set)) and 0 < len(right.elements) <= 4:
        sign, glue = ("!=", " & ") if negated else ("==", " | ")
        tests = [f"({x} {sign} {code(e.value)})" for e in right.elements]
        return glue.join(tests) if len(tests) > 1 else stripped(tests[0])
    if isinstance(right, cst.Call) and getattr(right.func, "value", "") == "range" and len(right.args) <= 2:
        bounds = [code(a.value) for a in right.args]
        low, high = bounds if len(bounds) == 2 else ("0", bounds[0])
        inside = f"({low} <= {x}) & ({x} < {high})"
        return f"{jnp}.logical_not({inside})" if negated else inside
    values = code(right)
    listed = assigned(place, right) if isinstance(right, cst.Name) else right
    array = (
        f"{jnp}.array({values})"
        if isinstance(listed, (cst.Tuple, cst.List))
        else f"{jnp}.array(list({values}))"
    )
    inside = f"{jnp}.isin({x}, {array})"
    return f"~{inside}" if negated else inside

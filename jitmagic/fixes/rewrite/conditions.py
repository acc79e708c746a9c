"""Conditions on traced values: `and`, `or`, `not`, chains, `in`, `a if c else b`, checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.place import Candidate, Place

if TYPE_CHECKING:
    import libcst as cst

PREDICATES = frozenset(
    "any all isnan isinf isfinite isclose allclose array_equal logical_and logical_or logical_not logical_xor "
    "greater less equal not_equal greater_equal less_equal isin signbit isneginf isposinf isreal bernoulli".split()
)


def candidates(place: Place) -> Iterator[Candidate]:
    """Rewrites of the condition itself; `if` and `while` statements are for others."""
    if place.kind not in ("tracer-bool", "tracer-hash"):
        return
    yield from _conditional_expressions(place)
    yield from _checks(place)
    if not statement_asks(place):
        yield from _operators(place)


def statement_asks(place: Place) -> bool:
    """The place is the test of an `if` or `while` (or a part of it), which is rewritten as a whole."""
    import libcst as cst

    inner: Any = None
    for node in place.path:
        if isinstance(node, (cst.If, cst.While)):
            return inner is node.test and not _is_builtin(place)
        if isinstance(node, (cst.Call, cst.Lambda, cst.Subscript)) and inner is not None:
            return False
        inner = node
    return False


def _is_builtin(place: Place) -> bool:
    import libcst as cst

    node = place.path[0]
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in BUILTINS


# -- truth as arrays


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


def operands_of(node: Any, kind: type) -> list[Any]:
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


# -- the constructs


def _conditional_expressions(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    ifexp = next((n for n in place.on_line(cst.IfExp) if _asks(place, n)), None)
    if ifexp is None:
        return
    code = place.cell.code
    guarded = _guarded_division(place, ifexp, stripped(truth(place, ifexp.test)))
    if guarded is not None:
        yield Candidate("choose with jnp.where, and divide by 1 where the divisor is not used",
                        place.cell.edit({ifexp: guarded}))  # fmt: skip
    new = choice(place, ifexp)
    yield Candidate("choose with jnp.where in place of the conditional expression", place.cell.edit({ifexp: new}),
                    cost="both values are computed")  # fmt: skip
    test = stripped(truth(place, ifexp.test))
    then, other = code(ifexp.body), code(ifexp.orelse)
    new = f"{place.lax}.cond({test}, lambda: {then}, lambda: {other})"
    yield Candidate(
        "choose with jax.lax.cond in place of the conditional expression", place.cell.edit({ifexp: new})
    )


def _guarded_division(place: Place, ifexp: Any, test: str) -> str | None:
    """`a / b if b != 0 else c` with a divisor that is never zero: both values are computed, and so is `a / b`."""
    import libcst as cst

    compared = ifexp.test.left if isinstance(ifexp.test, cst.Comparison) else ifexp.test
    name = place.cell.code(compared)
    divisors = [
        n.right for n in place.cell.within(ifexp.body, cst.BinaryOperation)
        if isinstance(n.operator, (cst.Divide, cst.FloorDivide, cst.Modulo)) and place.cell.code(n.right) == name
    ]  # fmt: skip
    if len(divisors) != 1:
        return None
    whole, safe = place.cell.code(ifexp.body), f"{place.jnp}.where({test}, {name}, 1)"
    at = place.cell.positions[divisors[0]].start, place.cell.positions[ifexp.body].start
    if at[0].line != at[1].line:
        return None
    start = at[0].column - at[1].column
    then = f"{whole[:start]}{safe}{whole[start + len(name) :]}"
    return f"{place.jnp}.where({test}, {then}, {stripped(place.cell.code(ifexp.orelse))})"


def _asks(place: Place, ifexp: Any) -> bool:
    """The place is the test of the conditional expression, or the whole of it."""
    if place.path and place.path[0] is ifexp:
        return True
    test = set(map(id, place.cell.within(ifexp.test, object)))
    return id(place.path[0]) in test if place.path else True


def choice(place: Place, ifexp: Any) -> str:
    """A conditional expression, and those in its branches that depend on traced values, as `jnp.where`."""
    import libcst as cst

    def side(node: Any) -> str:
        if isinstance(node, cst.IfExp) and maybe_traced(place, node.test):
            return choice(place, node)
        return stripped(place.cell.code(node))

    asked, sides = ifexp.test, [side(ifexp.body), side(ifexp.orelse)]
    if isinstance(asked, cst.UnaryOperation) and isinstance(asked.operator, cst.Not):
        asked, sides = asked.expression, sides[::-1]
    return f"{place.jnp}.where({stripped(truth(place, asked))}, {', '.join(sides)})"


def _operators(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    def logical(n: Any) -> bool:
        if isinstance(n, cst.Comparison):
            return len(n.comparisons) > 1 or isinstance(n.comparisons[0].operator, (cst.In, cst.NotIn))
        return isinstance(n, cst.BooleanOperation) or (
            isinstance(n, cst.UnaryOperation) and isinstance(n.operator, cst.Not)
        )

    found = [n for n in place.on_line(cst.BooleanOperation, cst.UnaryOperation, cst.Comparison) if logical(n)]
    if not found:
        return
    node = found[0]
    while (parent := place.cell.parents.get(node)) is not None and logical(parent):
        node = parent
    if isinstance(node, cst.BooleanOperation) and not all(
        is_boolean(place, p) for p in (node.left, node.right)
    ) and not _in_test(place, node):  # fmt: skip
        a, b = place.cell.code(node.left), place.cell.code(node.right)
        if isinstance(node.operator, cst.Or) and _may_be_none(place, node.left):
            new = f"{stripped(b)} if {a} is None else {a}"
            whole = isinstance(place.cell.parents.get(node), (cst.Assign, cst.AnnAssign, cst.Return, cst.Arg))
            yield Candidate("take what stands behind `or` for None", place.cell.edit(
                {node: new if whole else f"({new})"}), "unsafe", "0 is then a value like any other")  # fmt: skip
        idiom = _if_else(place, node)
        if idiom is not None:
            yield Candidate(
                "choose with jnp.where in place of `and` and `or`", place.cell.edit({node: idiom})
            )
            return
        new = f"{place.jnp}.where({a}, {b}, {a})" if isinstance(node.operator, cst.And) else (
            f"{place.jnp}.where({a}, {a}, {b})"
        )  # fmt: skip
        yield Candidate("choose with jnp.where in place of `and` and `or`", place.cell.edit({node: new}))
        return
    new = truth(place, node)
    parent = place.cell.parents.get(node)
    if isinstance(parent, (cst.BinaryOperation, cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation)):
        new = names.wrapped(new)
    word = "combine the conditions with `&`, `|` and `~`"
    yield Candidate(word, place.cell.edit({node: new}))


def _may_be_none(place: Place, node: Any) -> bool:
    """A parameter of a function around the place whose default is None."""
    import libcst as cst

    functions = (n for n in place.path if isinstance(n, (cst.FunctionDef, cst.Lambda)))
    parameters = [p for f in functions for p in place.cell.within(f.params, cst.Param)]
    return isinstance(node, cst.Name) and any(
        p.name.value == node.value and isinstance(p.default, cst.Name) and p.default.value == "None"
        for p in parameters
    )


def _if_else(place: Place, node: Any) -> str | None:
    """`c and a or b` with an `a` that is true, which was how to write `a if c else b`."""
    import libcst as cst

    inner = node.left
    if not isinstance(node.operator, cst.Or) or not isinstance(inner, cst.BooleanOperation):
        return None
    try:
        true = bool(ast.literal_eval(stripped(place.cell.code(inner.right))))
    except (ValueError, SyntaxError):
        return None
    if not true or not isinstance(inner.operator, cst.And):
        return None
    parts = [truth(place, inner.left), place.cell.code(inner.right), place.cell.code(node.right)]
    return f"{place.jnp}.where({', '.join(map(stripped, parts))})"


def _in_test(place: Place, node: Any) -> bool:
    import libcst as cst

    parent = place.cell.parents.get(node)
    return isinstance(parent, (cst.If, cst.While, cst.IfExp, cst.Assert)) and parent.test is node


BUILTINS = {"min": "minimum", "max": "maximum", "any": "any", "all": "all", "sorted": "sort", "round": "round",
            "abs": "abs", "sum": "sum", "bool": "bool_"}  # fmt: skip
"""Python's functions that ask for the truth of what they are given, and those of `jnp` that do not."""


# -- checks


def _checks(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    statement = place.cell.statement(place.path[0]) if place.path else None
    if isinstance(statement, cst.If) and only_raises(statement) and _in_header(place, statement):
        yield from _guard(place, statement)
    elif isinstance(statement, cst.If) and _in_header(place, statement) and _raises_else(statement):
        yield _checked_first(place, statement)
    elif isinstance(statement, cst.SimpleStatementLine):
        small = next((s for s in statement.body if isinstance(s, cst.Assert)), None)
        if small is not None and len(statement.body) == 1:
            yield from _assertion(place, statement, small)


def _raises_else(statement: Any) -> bool:
    """`if c: …` with nothing but a `raise` behind `else`."""
    import libcst as cst

    orelse = statement.orelse
    if not isinstance(orelse, cst.Else) or not isinstance(orelse.body, cst.IndentedBlock):
        return False
    last = orelse.body.body[-1]
    own = isinstance(statement.body, cst.IndentedBlock)
    return own and isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)


def _checked_first(place: Place, statement: Any) -> Candidate:
    """`if not c: raise …` first, and what follows `if c` for every value."""
    test = f"not {names.wrapped(stripped(place.cell.code(statement.test)))}"
    refused = indented(place.cell.block(statement.orelse.body.body))
    text = f"if {test}:\n{refused}{place.cell.block(statement.body.body)}"
    return Candidate("check first, then go on", place.cell.edit({statement: text}))


def _in_header(place: Place, statement: Any) -> bool:
    return any(n is statement.test for n in place.path)


def only_raises(statement: Any) -> bool:
    """An `if` without `else` whose body ends in `raise`."""
    import libcst as cst

    if statement.orelse is not None or not isinstance(statement.body, cst.IndentedBlock):
        return False
    last = statement.body.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)


def _guard(place: Place, statement: Any) -> Iterator[Candidate]:
    test = stripped(truth(place, statement.test))
    body = place.cell.block(statement.body.body)
    yield from _with_callback(place, statement, f"if failed:\n{indented(body)}", "failed", test, body)
    yield from _with_nan(place, statement, test, negate=False)


def _assertion(place: Place, statement: Any, small: Any) -> Iterator[Candidate]:
    test = stripped(truth(place, small.test))
    message = place.cell.code(small.msg) if small.msg is not None else ""
    body = f"assert holds, {message}\n" if message else "assert holds\n"
    yield from _with_callback(place, statement, body, "holds", test, message)
    yield from _with_nan(place, statement, test, negate=True)


def _with_callback(
    place: Place, statement: Any, body: str, flag: str, test: str, reads: str
) -> Iterator[Candidate]:
    flag_name = names.fresh(flag, place.taken)
    body = body if flag_name == flag else body.replace(flag, flag_name, 1)
    check = names.fresh("check", place.taken)
    values = sorted(names.loads(reads) & place.traced) if reads.strip() else []
    header = ", ".join([flag_name, *values])
    called = f"{place.jax}.debug.callback({', '.join([check, test, *values])})"
    text = f"def {check}({header}):\n{indented(body)}\n{called}\n"
    yield Candidate(
        "check the values in jax.debug.callback, which raises while the compiled function runs",
        place.cell.edit({statement: text}), "unsafe", "the error arrives as one of jax's runtime", raises=True,
    )  # fmt: skip


def _with_nan(place: Place, statement: Any, test: str, *, negate: bool) -> Iterator[Candidate]:
    import libcst as cst

    block, index = place.cell.siblings(statement)
    last = block.body[-1]
    if not isinstance(last, cst.SimpleStatementLine) or not isinstance(last.body[-1], cst.Return):
        return
    value = last.body[-1].value
    if (
        value is None
        or isinstance(value, cst.Tuple)
        or any(place.cell.own(s, cst.Return) for s in block.body[:-1])
    ):
        return
    name = names.fresh("valid" if negate else "invalid", place.taken)
    code = place.cell.code(value)
    order = f"{code}, {place.jnp}.nan" if negate else f"{place.jnp}.nan, {code}"
    changes = {statement: f"{name} = {test}\n", value: f"{place.jnp}.where({name}, {order})"}
    yield Candidate("return nan where the check fails, in place of raising", place.cell.edit(changes), "unsafe",
                    "nothing is raised")  # fmt: skip

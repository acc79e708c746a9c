"""NaN and infinities: forbidden inputs kept away from an operation, other formulas for the same value."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix
from jitmagic.source.expressions import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_RISKY = frozenset("sqrt log log2 log10 log1p arccos arcsin arctanh arccosh norm power rsqrt reciprocal divide "
                   "true_divide exp tan cbrt float_power logit".split())  # fmt: skip


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The first rewrite whose results are finite, the same with and without jit, and as before where they were
    finite before."""
    line = Text(evidence.function.cell).line_of(finding)
    if not line:
        return
    for title, sure, cell in _candidates(evidence.function.cell, line):
        if _proved(prover, cell):
            words = (
                "traced; finite on the calls seen, with and without jit, and as before where that was finite"
            )
            yield Fix(
                title=title,
                applicability="safe" if sure and "gradient" not in title else "unsafe",
                verified=sure,
                evidence=words,
                cell=cell,
            )
            return


def _proved(prover: Prover, cell: str) -> bool:
    from jitmagic.silent.finite import is_finite

    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        got, plain = (
            trial.play(prover, cell, sources).results,
            trial.play(prover, cell, sources, jit=False).results,
        )
        before = trial.original(prover, sources, jit=False).results
        return bool(got) and is_finite(got) and trial.same(plain, got) and _kept(before, got)
    return False


def _kept(before: Any, after: Any) -> bool:
    """Elements that were finite are what they were."""
    import jax
    import numpy as np

    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        finite = np.isfinite(a) if a.dtype.kind in "fc" else np.ones(a.shape, bool)
        if a.shape != b.shape or not np.allclose(a[finite], b[finite], rtol=1e-4, atol=1e-5):
            return False
    return True


def _candidates(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    """(title, whether the new value is beyond doubt, corrected cell), the best first."""
    for make in (_double_where, _squared_norm, _stable, _safe_root, _finite_mask, _guarded, _at_the_border):
        with contextlib.suppress(SyntaxError, ValueError, LookupError, AttributeError):
            yield from make(source, line)


def _nodes(text: Text, line: int, *kinds: type) -> list[Any]:
    """Nodes of the statement on the line, outer ones first; those on the line before others."""
    statements = [
        n for n in ast.walk(text.tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)
    ]
    inner = min(statements, key=lambda n: (n.end_lineno or 0) - n.lineno)
    return [n for n in ast.walk(inner) if isinstance(n, kinds)]


def _last(call: ast.Call) -> str:
    return dotted_name(call.func).rpartition(".")[2] or getattr(call.func, "attr", "")


def _jnp(text: Text) -> str:
    return "jnp" if "jnp" in text.source else "jax.numpy"


def _double_where(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    """`where(c, f(x), g(x))`: what a branch that is not taken gets is replaced by 1."""
    text = Text(source)
    wheres = [n for n in _nodes(text, line, ast.Call) if _last(n) == "where" and len(n.args) == 3]
    for where in wheres:
        test = text.code(where.args[0])
        for branch, taken in ((where.args[1], True), (where.args[2], False)):
            for inner in _forbidden(branch):
                code = text.code(inner)
                choice = f"{code}, 1.0" if taken else f"1.0, {code}"
                text.replace(inner, f"{_jnp(text)}.where({test}, {choice})")
    if text.changes:
        yield (
            "keep the branch that is not taken away from forbidden values (double where)",
            True,
            text.result(),
        )


def _forbidden(branch: ast.expr) -> list[ast.expr]:
    """Operands of operations that are not defined everywhere, innermost replaced only once."""
    found: list[ast.expr] = []
    for node in ast.walk(branch):
        if isinstance(node, ast.Call) and _last(node) in _RISKY and node.args:
            found.append(node.args[-1] if _last(node) in ("divide", "true_divide") else node.args[0])
        elif (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and not isinstance(node.right, ast.Constant)
        ):
            found.append(node.right)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _whole(node.right):
            found.append(node.left)
    inside = {id(n) for f in found for n in ast.walk(f) if n is not f}
    outer = [f for f in found if id(f) not in inside]
    return [f for f in outer if any(isinstance(n, ast.Name) for n in ast.walk(f))]


def _whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 0


def _squared_norm(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    """`norm(v) ** 2` and `square(norm(v))` as the sum of squares."""
    text = Text(source)
    for node in _nodes(text, line, ast.BinOp, ast.Call):
        inner = None
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Pow)
            and ast.unparse(node.right) in ("2", "2.0")
        ):
            inner = node.left
        elif isinstance(node, ast.Call) and _last(node) == "square" and node.args:
            inner = node.args[0]
        if isinstance(inner, ast.Call) and _last(inner) == "norm" and inner.args:
            rest = "".join(f", {text.code(k)}" for k in inner.keywords)
            vector = text.code(inner.args[0])
            vector = vector if vector.isidentifier() else f"({vector})"
            text.replace(node, f"{_jnp(text)}.sum({vector} ** 2{rest})")
        elif isinstance(inner, ast.Call) and _last(inner) == "sqrt" and inner.args:
            text.replace(node, f"({text.code(inner.args[0])})")
    if text.changes:
        yield "write the square without a root", True, text.result()


def _stable(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    """Formulas of jax that do not overflow: slogdet, logsumexp, softplus, softmax, log_softmax, xlogy, sinc."""
    for change in (_log_of_determinant, _log_of_sum, _softplus, _logistic, _softmax, _xlogy):
        text = Text(source)
        title = change(text, line)
        if text.changes:
            yield title, True, text.result()


def _log_of_determinant(text: Text, line: int) -> str:
    """`log(det(a))`, also with `abs` or a name in between: a product of many eigenvalues leaves the range of floats."""
    function = next((n for n in _around(text, line) if isinstance(n, ast.FunctionDef)), text.tree)
    assigned = {
        n.targets[0].id: n.value
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    }
    for node in (n for n in ast.walk(function) if isinstance(n, ast.Call) and _last(n) == "log" and n.args):
        inner: Any = node.args[0]
        while isinstance(inner, ast.Name) and inner.id in assigned or _last_of(inner) == "abs":
            inner = assigned.pop(inner.id) if isinstance(inner, ast.Name) else inner.args[0]
        lines = {node.lineno, getattr(inner, "lineno", 0)}
        if _last_of(inner) == "det" and inner.args and line in lines | {getattr(inner, "end_lineno", 0)}:
            matrix = text.code(inner.args[0])
            text.replace(node, f"{_jnp(text)}.linalg.slogdet({matrix})[1]")
    return "use `slogdet`: the logarithm of the determinant, without the determinant that overflows"


def _around(text: Text, line: int) -> list[ast.AST]:
    """Nodes around a line, the innermost first."""
    found = [
        n
        for n in ast.walk(text.tree)
        if getattr(n, "lineno", line + 1) <= line <= (getattr(n, "end_lineno", 0) or 0)
    ]
    return found[::-1]


def _last_of(node: Any) -> str:
    return _last(node) if isinstance(node, ast.Call) and node.args else ""


def _log_of_sum(text: Text, line: int) -> str:
    """`log` of `sum` or `mean` of `exp`, also with names in between; `log` of `softmax` and of `sigmoid`."""
    given = _assigned(text, line)
    for node in _nodes(text, line, ast.Call):
        inner = _behind(node.args[0], given) if node.args else None
        name = _last(inner) if isinstance(inner, ast.Call) else ""
        if _last(node) != "log" or not isinstance(inner, ast.Call):
            continue
        method = isinstance(inner.func, ast.Attribute) and not dotted_name(inner.func).startswith(
            ("jnp.", "jax.")
        )
        summed = (
            inner.func.value
            if method and isinstance(inner.func, ast.Attribute)
            else next(iter(inner.args), None)
        )
        exp = _behind(summed, given) if summed is not None else None
        if name in ("sum", "mean") and isinstance(exp, ast.Call) and _last(exp) == "exp":
            x, rest = text.code(exp.args[0]), "".join(f", {text.code(a)}" for a in inner.args[not method :])
            rest += "".join(f", {text.code(k)}" for k in inner.keywords)
            axis = next((text.code(k.value) for k in inner.keywords if k.arg == "axis"), "")
            axis = axis or (text.code(inner.args[not method]) if len(inner.args) > (not method) else "")
            count = f"{_jnp(text)}.size({x}{f', {axis}' if axis else ''})"
            less = f" - {_jnp(text)}.log({count})" if name == "mean" else ""
            text.replace(node, f"jax.scipy.special.logsumexp({x}{rest}){less}")
        elif name in ("softmax", "sigmoid"):
            code = ", ".join(text.code(a) for a in (*inner.args, *inner.keywords))
            text.replace(node, f"jax.nn.log_{name}({code})")
    return "use the form of jax that does not overflow"


def _assigned(text: Text, line: int) -> dict[str, ast.expr]:
    """What the names of the function around the line were assigned, where that happens once."""
    function = next((n for n in _around(text, line) if isinstance(n, ast.FunctionDef)), text.tree)
    pairs = [
        (n.targets[0].id, n.value)
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    ]
    names = [name for name, _ in pairs]
    return {name: value for name, value in pairs if names.count(name) == 1}


def _behind(node: ast.expr, given: dict[str, ast.expr]) -> ast.expr:
    """What a name stands for."""
    for _ in range(3):
        if isinstance(node, ast.Name) and node.id in given:
            node = given[node.id]
    return node


def _logistic(text: Text, line: int) -> str:
    """`1 / (1 + exp(-x))`."""
    for node in _nodes(text, line, ast.BinOp):
        bottom = node.right
        if not (isinstance(node.op, ast.Div) and ast.unparse(node.left) in ("1", "1.0")):
            continue
        if isinstance(bottom, ast.BinOp) and isinstance(bottom.op, ast.Add):
            sides = [bottom.left, bottom.right]
            exp = next((s for s in sides if isinstance(s, ast.Call) and _last(s) == "exp" and s.args), None)
            one = any(ast.unparse(s) in ("1", "1.0") for s in sides)
            if exp is not None and one:
                x = exp.args[0]
                negative = isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.USub)
                code = (
                    text.code(x.operand) if negative and isinstance(x, ast.UnaryOp) else f"-({text.code(x)})"
                )
                text.replace(node, f"jax.nn.sigmoid({code})")
    return "use `jax.nn.sigmoid`, which does not overflow"


def _softplus(text: Text, line: int) -> str:
    for node in _nodes(text, line, ast.Call):
        inner: Any = node.args[0] if node.args else None
        if _last(node) == "log" and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add):
            sides = [inner.left, inner.right]
            exp = next((s for s in sides if isinstance(s, ast.Call) and _last(s) == "exp"), None)
            one = next((s for s in sides if isinstance(s, ast.Constant) and s.value == 1), None)
            if exp is not None and one is not None:
                text.replace(node, f"jax.nn.softplus({text.code(exp.args[0])})")
        elif _last(node) == "log1p" and isinstance(inner, ast.Call) and _last(inner) == "exp":
            text.replace(node, f"jax.nn.softplus({text.code(inner.args[0])})")
    return "use `jax.nn.softplus`, which does not overflow"


def _softmax(text: Text, line: int) -> str:
    """Each `exp(x)` that a later sum divides gets `x - max(x)`."""
    function = next(
        (
            n
            for n in ast.walk(text.tree)
            if isinstance(n, ast.FunctionDef) and n.lineno <= line <= (n.end_lineno or 0)
        ),
        None,
    )
    divided = function is not None and any(
        isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) for n in ast.walk(function)
    )
    summed = function is not None and any(
        isinstance(n, ast.Call) and _last(n) == "sum" for n in ast.walk(function)
    )
    if function is None or not (divided and summed):
        return ""
    sums = [n for n in ast.walk(function) if isinstance(n, ast.Call) and _last(n) == "sum"]
    axis = next((f", {text.code(k)}" for n in sums for k in n.keywords if k.arg == "axis"), "")
    keep = ", keepdims=True" if axis else ""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _last(node) == "exp" and node.args:
            x = text.code(node.args[0])
            text.replace(node.args[0], f"{x} - {_jnp(text)}.max({x}{axis}{keep})")
    return "subtract the largest exponent first"


def _xlogy(text: Text, line: int) -> str:
    for node in _nodes(text, line, ast.BinOp):
        if isinstance(node.op, ast.Mult):
            for log, other in ((node.right, node.left), (node.left, node.right)):
                if (
                    isinstance(log, ast.Call)
                    and _last(log) == "log"
                    and text.code(log.args[0]) == text.code(other).removeprefix("-")
                ):
                    sign = "-" if text.code(other).startswith("-") else ""
                    code = text.code(log.args[0])
                    text.replace(node, f"{sign}jax.scipy.special.xlogy({code}, {code})")
                    return "use `jax.scipy.special.xlogy`, which is 0 where its first argument is"
    return ""


def _safe_root(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    """A root or norm whose gradient at zero is zero: the value stays, and 0 is a subgradient of a norm there."""
    text = Text(source)
    jnp, sure = _jnp(text), True
    for node in _nodes(text, line, ast.Call):
        if not node.args or any(c[0] <= text.span(node)[0] < c[1] for c in text.changes):
            continue
        if _last(node) == "norm" and len(node.args) == 1 and not _order(node):
            rest = "".join(f", {text.code(k)}" for k in node.keywords)
            vector = text.code(node.args[0])
            squares = f"{jnp}.sum({vector if vector.isidentifier() else f'({vector})'} ** 2{rest})"
        elif _last(node) == "sqrt":
            squares = text.code(node.args[0])
            sure &= _is_squares(text, node.args[0])
        else:
            continue
        name = squares if isinstance(node.args[0], ast.Name) and _last(node) == "sqrt" else ""
        if not name and (statement := _own_statement(text, node)) is not None:
            name = text.fresh("squared", "squared_norm")
            text.before(statement, [f"{name} = {squares}"])
        name = name or squares
        text.replace(node, f"{jnp}.where({name} > 0, {jnp}.sqrt({jnp}.where({name} > 0, {name}, 1.0)), 0.0)")
    if text.changes:
        yield "keep zero away from the root, where its gradient is taken as 0", sure, text.result()


def _finite_mask(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    """Infinities written into the function, as large finite numbers: they cancel, where infinities give NaN."""
    text = Text(source)
    function = next((n for n in _around(text, line) if isinstance(n, ast.FunctionDef)), text.tree)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Call) and ast.unparse(node) in INFINITIES:
            text.replace(node, "1e30")
    if text.changes:
        yield (
            "mask with a large finite number: a row that is masked as a whole is a constant",
            False,
            text.result(),
        )


INFINITIES = ("jnp.inf", "np.inf", "jax.numpy.inf", "numpy.inf", "math.inf", "float('inf')")


def _is_squares(text: Text, node: ast.expr, depth: int = 3) -> bool:
    """A sum of squares, which is never below zero: a root of other numbers may have meant its NaN."""
    if isinstance(node, ast.Name):
        bound = [n.value for n in ast.walk(text.tree) if isinstance(n, ast.Assign) and _binds(n, node.id)]
        return depth > 0 and bool(bound) and all(_is_squares(text, b, depth - 1) for b in bound)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return all(_is_squares(text, n, depth) for n in (node.left, node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return isinstance(node.right, ast.Constant) and node.right.value in (2, 4)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return ast.dump(node.left) == ast.dump(node.right)
    if not isinstance(node, ast.Call):
        return False
    last, inner = (
        _last(node),
        [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])],
    )
    if last in ("dot", "vdot", "inner") and len(node.args) == 2:
        return ast.dump(node.args[0]) == ast.dump(node.args[1])
    return last == "square" or (last in ("sum", "mean") and any(_is_squares(text, n, depth) for n in inner))


def _binds(node: ast.Assign, name: str) -> bool:
    return any(isinstance(t, ast.Name) and t.id == name for t in node.targets)


def _order(node: ast.Call) -> bool:
    return any(k.arg == "ord" and ast.unparse(k.value) not in ("2", "None") for k in node.keywords)


def _own_statement(text: Text, node: ast.AST) -> ast.stmt | None:
    """The statement of an expression that is computed once, in front of which something may stand."""
    around = text.around(node, ast.stmt, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.IfExp)
    if not isinstance(around, (ast.Assign, ast.Return, ast.AugAssign, ast.Expr)) or text.changes:
        return None
    line = text.source.splitlines()[around.lineno - 1]
    return None if line[: around.col_offset].strip() else around


def _guarded(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    """Divisors that are not zero, logarithms of positive numbers, cosines within their range."""
    makers: tuple[Callable[[Text, Any], str | None], ...] = (_divisor, _argument)
    for make in makers:
        text = Text(source)
        for node in _nodes(text, line, ast.BinOp, ast.Call):
            if any(c[0] <= text.span(node)[0] < c[1] for c in text.changes):
                continue
            make(text, node)
        if text.changes:
            yield "keep forbidden values away from the operation", False, text.result()


def _at_the_border(source: str, line: int) -> Iterator[tuple[str, bool, str]]:
    from jitmagic.fixes.silent import guards

    yield from guards.candidates(
        source, lambda text: _nodes(text, line, ast.BinOp, ast.Call), _jnp(Text(source))
    )


def _divisor(text: Text, node: Any) -> None:
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and not isinstance(node.right, ast.Constant)
    ):
        code = text.code(node.right)
        code = code if isinstance(node.right, ast.Name | ast.Call) else f"({code})"
        text.replace(node.right, f"{_jnp(text)}.where({code} == 0, 1.0, {code})")


def _argument(text: Text, node: Any) -> None:
    if not isinstance(node, ast.Call) or not node.args:
        return
    code, jnp = text.code(node.args[0]), _jnp(text)
    if _last(node) in ("log", "log2", "log10"):
        text.replace(node.args[0], f"{jnp}.maximum({code}, 1e-30)")
    elif _last(node) in ("arccos", "arcsin"):
        text.replace(node.args[0], f"{jnp}.clip({code}, -1.0 + 1e-6, 1.0 - 1e-6)")
    elif _last(node) == "arctanh":
        text.replace(node.args[0], f"{jnp}.clip({code}, -1.0 + 1e-6, 1.0 - 1e-6)")
    elif _last(node) == "exp":
        text.replace(node.args[0], f"{jnp}.minimum({code}, 80.0)")

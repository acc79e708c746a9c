"""NaN and infinities: other formulas for the same value, forbidden inputs kept away from an operation."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.source import scope
from jitmagic.source.edits import Edits, Text
from jitmagic.source.modules import Modules
from jitmagic.source.pattern import Match, Pattern
from jitmagic.source.tree import nodes_of

CLAIM = Claim("where finite")
CHOSEN = Claim("where finite", "same results where they were finite; what stands elsewhere is a choice")


@dataclass(frozen=True)
class Formula:
    """An expression, and what is written for it, or for what one of its holes stands for."""

    old: Pattern
    new: str
    hole: str = ""


def _forms(*rows: tuple[str, str] | tuple[str, str, str]) -> list[Formula]:
    return [Formula(Pattern(row[0]), *row[1:]) for row in rows]


STABLE: Sequence[tuple[str, list[Formula]]] = (
    ("write the square without a root", _forms(
        ("norm($v, $*r) ** 2", "jnp.sum($v**2, $*r)"), ("square(norm($v, $*r))", "jnp.sum($v**2, $*r)"),
        ("sqrt($x) ** 2", "$x"), ("square(sqrt($x))", "$x"),
    )),
    ("use `slogdet`: the logarithm of the determinant, without the determinant that overflows", _forms(
        ("log(det($a))", "jnp.linalg.slogdet($a)[1]"), ("log(abs(det($a)))", "jnp.linalg.slogdet($a)[1]"),
        ("log(linalg.det($a))", "jnp.linalg.slogdet($a)[1]"),
    )),
    ("use the form of jax that does not overflow", _forms(
        ("log(sum(exp($x), $*r))", "jax.scipy.special.logsumexp($x, $*r)"),
        ("log(mean(exp($x)))", "jax.scipy.special.logsumexp($x) - jnp.log(jnp.size($x))"),
        ("log(mean(exp($x), axis=$a, $*r))",
         "jax.scipy.special.logsumexp($x, axis=$a, $*r) - jnp.log(jnp.size($x, $a))"),
        ("log(mean(exp($x), $a, $*r))", "jax.scipy.special.logsumexp($x, $a, $*r) - jnp.log(jnp.size($x, $a))"),
        ("log(softmax($*r))", "jax.nn.log_softmax($*r)"), ("log(sigmoid($x))", "jax.nn.log_sigmoid($x)"),
        ("exp($x) / sum(exp($x))", "jax.nn.softmax($x, axis=None)"),
        ("exp($x) / sum(exp($x), axis=$a, keepdims=True)", "jax.nn.softmax($x, axis=$a)"),
    )),
    ("use `jax.nn.softplus`, which does not overflow", _forms(
        ("log(1 + exp($x))", "jax.nn.softplus($x)"), ("log1p(exp($x))", "jax.nn.softplus($x)"),
    )),
    ("use `jax.nn.sigmoid`, which does not overflow", _forms(
        ("1 / (1 + exp(-$x))", "jax.nn.sigmoid($x)"), ("1 / (1 + exp($x))", "jax.nn.sigmoid(-$x)"),
    )),
    ("use `jax.scipy.special.xlogy`, which is 0 where its first argument is 0", _forms(
        ("$x * log($x)", "jax.scipy.special.xlogy($x, $x)"),
        ("-$x * log($x)", "-jax.scipy.special.xlogy($x, $x)"), ("$y * log($x)", "jax.scipy.special.xlogy($y, $x)"),
    )),
)  # fmt: skip
"""Formulas of jax that do not leave the range of floats, by title; the likeliest first."""
GUARDS: Sequence[tuple[str, list[Formula]]] = (
    ("keep forbidden values away from the operation",
     _forms(("$a / $b", "jnp.where($b == 0, 1.0, $b)", "b"))),
    ("take 0 / 0 as 0", _forms(("$a / $b", "jnp.where(($a == 0) & ($b == 0), 1.0, $b)", "b"))),
    ("keep forbidden values away from the operation", _forms(
        *((f"{log}($x)", "jnp.maximum($x, 1e-30)", "x") for log in ("log", "log2", "log10")),
        ("arctanh($x)", "jnp.clip($x, -1.0 + 1e-6, 1.0 - 1e-6)", "x"), ("exp($x)", "jnp.minimum($x, 80.0)", "x"),
    )),
    ("take the real root, which negative numbers have too", _forms(("$b ** (1 / 3)", "jnp.cbrt($b)"))),
    ("keep zero away from the power", _forms(*(
        (power, "jnp.where($b > 0, jnp.where($b > 0, $b, 1.0) ** $p, 0.0)")
        for power in ("$b ** $p", "power($b, $p)", "float_power($b, $p)")
    ))),
    ("take the root of the variance and a little more, which has a gradient where all numbers are equal",
     _forms(("std($x, $*r)", "jnp.sqrt(jnp.var($x, $*r) + 1e-10)"))),
    ("keep zero away from the root: it is 1 there", _forms(
        ("norm($v, $*r)", "jnp.sqrt(jnp.where(jnp.sum($v**2, $*r) > 0, jnp.sum($v**2, $*r), 1.0))"),
        ("sqrt($x)", "jnp.where($x > 0, $x, 1.0)", "x"),
    )),
    ("give the zero vector an angle of its own",
     _forms(("arctan2($y, $x)", "jnp.where(($x == 0) & ($y == 0), 1.0, $x)", "x"))),
    ("add a little to the diagonal of the matrix", _forms(*(
        (f"{of}($a, $*r)", "$a + 1e-6 * jnp.eye($a.shape[-1])", "a")
        for of in ("cholesky", "inv", "solve", "cho_factor")
    ))),
    ("keep the argument within the domain", _forms(
        ("arccosh($x)", "jnp.maximum($x, 1.0 + 1e-6)", "x"), ("logit($x)", "jnp.clip($x, 1e-6, 1.0 - 1e-6)", "x"),
    )),
)  # fmt: skip
"""Operations that are not finite, or have no finite gradient, at the border of their domain, kept away from it."""
_RISKY = [
    *(Pattern(f"{name}($x, $*r)") for name in (
        "sqrt log log2 log10 log1p arccos arcsin arctanh arccosh norm power rsqrt reciprocal exp tan cbrt "
        "float_power logit").split()),
    *map(Pattern, ("$a / $x", "divide($a, $x)", "true_divide($a, $x)", "$x ** $p")),
]  # fmt: skip
"""What is not defined for every `$x`."""
_WHERE = Pattern("where($c, $a, $b)")
_BORDERS: Sequence[tuple[str, str, str, list[Formula]]] = (
    ("keep zero away from the root, where its gradient is taken as 0", "squared",
     "jnp.where($s > 0, jnp.sqrt(jnp.where($s > 0, $s, 1.0)), 0.0)",
     _forms(("norm($v, $*r)", "jnp.sum($v**2, $*r)"), ("sqrt($x)", "$x"))),
    *(("take the gradient as 0 where the angle has none", name,
       f"jnp.where(jnp.abs($s) < 1, jnp.{arc}(jnp.where(jnp.abs($s) < 1, $s, 0.0)), "
       f"jnp.{arc}(jnp.clip(jax.lax.stop_gradient($s), -1.0, 1.0)))", _forms((f"{arc}($x)", "$x")))
      for arc, name in (("arccos", "cosine"), ("arcsin", "sine"))),
)  # fmt: skip
"""The value stays at the border of the domain, where the gradient is a choice: title, name and form."""
_LARGEST = Formula(Pattern("exp($x)"), "$x - jnp.max($x)", "x")
_INFINITIES = ("jax.numpy.inf", "numpy.inf", "math.inf")
_INFINITE = Pattern("float('inf')")


def finite_formulas(spot: Spot) -> Iterator[Change]:
    """What makes NaN or infinity, by a formula that does not, or kept away from its forbidden inputs."""
    seen = replace(spot, modules=_looking_through(spot))
    yield from _double_where(seen)
    for title, forms in STABLE:
        yield from _rewritten(seen, title, forms)
    yield from _rewritten(seen, "subtract the largest exponent first", [_LARGEST])
    yield from _at_borders(spot)
    yield from _finite_mask(spot)
    for title, forms in GUARDS:
        yield from _rewritten(spot, title, forms, CHOSEN)


def _looking_through(spot: Spot) -> Modules:
    """The notebook's names, and what those of the function are assigned, where that happens once."""
    function = spot.innermost or spot.text.tree
    body = scope.body_of(function.body)
    values = {name: scope.assigned(function, name) for name in scope.stores(body)}
    return spot.modules.looking_through({k: v for k, v in values.items() if v is not None})


def _found(spot: Spot, pattern: Pattern) -> list[Match]:
    """What fits on the line of the finding, inner ones first; where the modules look through names, what is computed
    there may stand elsewhere in the function."""
    around = spot.innermost or spot.text.tree if spot.modules.assigned else spot.text.statement(spot.node)
    return [m for m in pattern.find(around, spot.modules) if spot.line in _lines(m.node, spot.modules)][::-1]


def _lines(node: ast.AST, modules: Modules, depth: int = 3) -> set[int]:
    """The lines of an expression, and those of what its names stand for."""
    lines = set(range(node.lineno, node.end_lineno + 1))  # type: ignore[attr-defined]
    for name in scope.loads(node) & set(modules.assigned) if depth else ():
        lines |= _lines(modules.assigned[name], modules, depth - 1)
    return lines


def _rewritten(spot: Spot, title: str, forms: Sequence[Formula], claim: Claim = CLAIM) -> Iterator[Change]:
    edits = spot.edits()
    for form in forms:
        for found in _found(spot, form.old):
            if _applies(found, form.hole):
                target = found.expr(form.hole) if form.hole else found.node
                edits.replace(target, spot.write(form.new, edits, **found.holes))
    if edits:
        yield Change(title, _without_unread(spot, edits), claim=claim)


def _applies(found: Match, hole: str) -> bool:
    """It is about something that is computed, and no power by a whole number."""
    power, about = found.holes.get("p"), found.holes.get(hole or "b", found.node)
    whole = isinstance(power, ast.Constant) and isinstance(power.value, int) and power.value > 0
    return not whole and isinstance(about, ast.AST) and any(isinstance(n, ast.Name) for n in ast.walk(about))


def _without_unread(spot: Spot, edits: Edits) -> Edits:
    """The changes, and without assignments of what is looked through that nothing reads any more."""
    statements = {name: spot.text.statement(value) for name, value in spot.modules.assigned.items()}
    while True:
        nodes = nodes_of(Text(edits.result()).tree)
        read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        unread = [n for n, s in statements.items() if n not in read and isinstance(s, ast.Assign)]
        if not unread:
            return edits
        for name in unread:
            edits.remove(statements.pop(name))


def _double_where(spot: Spot) -> Iterator[Change]:
    """`where(c, f(x), g(x))`: what a branch that is not taken gets is replaced by 1."""
    edits = spot.edits()
    for found in _found(spot, _WHERE):
        for hole, safe in (("a", "jnp.where($c, $x, 1.0)"), ("b", "jnp.where($c, 1.0, $x)")):
            for operand in _forbidden(spot, spot.modules.behind(found.expr(hole))):
                edits.replace(operand, spot.write(safe, edits, c=found.expr("c"), x=operand))
    if edits:
        title = "keep the branch that is not taken away from forbidden values (double where)"
        yield Change(title, edits, claim=CLAIM)


def _forbidden(spot: Spot, branch: ast.AST) -> list[ast.expr]:
    """Operands of operations that are not defined everywhere, the outermost."""
    found = [m for pattern in _RISKY for m in pattern.find(branch, spot.modules) if _applies(m, "x")]
    operands = [m.expr("x") for m in found]
    inside = {n for x in operands for n in ast.walk(x) if n is not x}
    return [x for x in dict.fromkeys(operands) if x not in inside]


def _at_borders(spot: Spot) -> Iterator[Change]:
    """A root, norm or angle whose gradient at the border is zero: the value stays, and 0 is a subgradient of a norm."""
    for title, short, form_at, forms in _BORDERS:
        edits = spot.edits()
        for form in forms:
            for found in _found(spot, form.old):
                inside = spot.write(form.new, edits, **found.holes)
                if not inside.isidentifier() and not edits and _may_stand_above(spot, found.node):
                    name = edits.fresh(short, f"{short}_here", taken=spot.modules.names)
                    edits.before(spot.text.statement(found.node), f"{name} = {inside}")
                    inside = name
                edits.replace(found.node, spot.write(form_at, s=inside))
        if edits:
            yield Change(title, edits, claim=CHOSEN)


def _may_stand_above(spot: Spot, node: ast.AST) -> bool:
    """The expression is computed once by its statement, which has a line of its own."""
    often = (ast.stmt, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.IfExp)
    around = spot.text.around(node, *often)
    if not isinstance(around, ast.Assign | ast.Return | ast.AugAssign | ast.Expr):
        return False
    return not spot.text.plain[spot.text.line_start(around) : spot.text.span(around)[0]].strip()


def _finite_mask(spot: Spot) -> Iterator[Change]:
    """Infinities written into the function, as large finite numbers: they cancel, where infinities give NaN."""
    edits = spot.edits()
    for node in spot.text.within(spot.innermost or spot.text.tree, ast.Attribute, ast.Name, ast.Call):
        if spot.modules.full(node) in _INFINITIES or _INFINITE.match(node, spot.modules):
            edits.replace(node, "1e30")
    if edits:
        title = "mask with a large finite number: a row that is masked as a whole is a constant"
        yield Change(title, edits, claim=CHOSEN)

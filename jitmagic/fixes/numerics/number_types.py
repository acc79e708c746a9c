"""Types of numbers: those that do not fit into 32 bits, asked for in 32, as floats, cut before the call, or computed
in 64; weak types as arrays of fixed dtype; tests of a type as ones that a traced value passes, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jitmagic.evidence import Leaf
from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.objects.argument_forms import passed_as
from jitmagic.fixes.objects.layouts import part_of
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Pattern

NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
FLOATS = Claim("covers", "the same numbers, in floats of seven digits")
WIDE = Claim("new", "results in 64 bits, the same with and without jit")
_WHOLE = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Mod, ast.FloorDiv)
"""Operations that ask for the integer itself."""
LIMIT = 2**31


def narrow_types(spot: Spot) -> Iterator[Change]:
    """The 32-bit type that jax gives anyway, by its name."""
    edits = spot.edits()
    for node in spot.text.within(spot.definition, ast.Attribute, ast.Name, ast.Constant):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value in NARROW:
                edits.replace(node, spot.code(node).replace(node.value, NARROW[node.value]))
            continue
        library, _, name = spot.full(node).rpartition(".")
        if library in ("jax.numpy", "numpy") and name in NARROW:
            edits.replace(node, spot.modules.spelled(f"{library}.{NARROW[name]}"))
    if edits:
        yield Change("ask for 32 bits, which is what jax computes with here", edits)


def floats_from_the_start(spot: Spot) -> Iterator[Change]:
    """Whole numbers among the arguments as floats; where it has to be, with `/` in place of `//`."""
    function = spot.definition
    bound = scope.stores(scope.body_of(function.body))
    names = [n for n in _arguments(spot) if _kind_of(spot, n) == "i" and n not in bound]
    lines = "".join(spot.write("$$n = jnp.asarray($n, jnp.float32)\n", n=n) for n in names)
    for divided in (False, True) if names else ():
        edits = spot.edits().before(signature.first_statement(function), lines)
        for node in spot.text.within(function, ast.BinOp)[::-1] if divided else ():
            if isinstance(node.op, ast.FloorDiv):
                edits.replace(node, spot.write("$a / $b", edits, a=node.left, b=node.right))
        yield Change("compute with floats, which have the range", edits, claim=FLOATS)


def float_literals(spot: Spot) -> Iterator[Change]:
    """Integers beyond 32 bits as floats, where they are only multiplied, added or compared."""
    edits, statement = spot.edits(), spot.text.statement(spot.node)
    if any(isinstance(getattr(n, "op", None), _WHOLE) for n in spot.text.within(statement, ast.AST)):
        return
    for node in spot.text.within(statement, ast.Constant):
        if type(node.value) is int and abs(node.value) >= LIMIT:
            code = spot.code(node)
            edits.replace(node, f"{code}.0" if code.replace("_", "").isdigit() else repr(float(node.value)))
    if edits:
        yield Change("write the number as a float, which has the range", edits, claim=FLOATS)


def cut_before_the_call(spot: Spot) -> Iterator[Change]:
    """Calls that bring the argument into 32 bits with NumPy first: its remainder, or the number as it is."""
    for name in _arguments(spot):
        for template in _cuts(spot, name):
            title = f"bring `{name}` into 32 bits with NumPy before the call"
            yield replace(passed_as(spot, [name], template, title), sure=False)


def _cuts(spot: Spot, name: str) -> Sequence[str]:
    """What could be done before the call: a remainder that the function takes first, else a conversion."""
    found = [
        f"($x % {n.right.value!r}).astype(np.int32)" for n in spot.text.within(spot.definition, ast.BinOp)
        if isinstance(n.op, ast.Mod) and spot.code(n.left) == name and isinstance(n.right, ast.Constant)
    ]  # fmt: skip
    if _kind_of(spot, name) == "i":
        return [*found, "np.asarray($x).astype(np.int32)", "float($x)"]
    return [*found, "np.asarray($x).astype(np.float32)"]


def _arguments(spot: Spot) -> list[str]:
    """The parameters that the finding names."""
    return [n for n in dict.fromkeys(spot.names) if n in spot.evidence.function.parameters]


def _kind_of(spot: Spot, name: str) -> str:
    """`i` where whole numbers were passed for the parameter, `f` for others; empty where it is none."""
    leaf = next(iter(spot.leaves(name)), None)
    if leaf is None:
        return ""
    return "i" if leaf.python_type == "int" or leaf.dtype.startswith(("int", "uint")) else "f"


def wide_arithmetic(spot: Spot) -> Iterator[Change]:
    """jax's switch for 64 bits on top of the cell; not where that only happens to go past something else."""
    if any(d.compiler for d in spot.evidence.differences) or any(True for _ in tested(spot, spot.line)):
        return
    switch = spot.write('jax.config.update("jax_enable_x64", True)\n\n')
    title = "compute with 64 bits from here on: arrays made before keep 32, and GPUs are slower with 64"
    yield Change(title, spot.edits().insert(0, switch), claim=WIDE)


FEWER = Claim(fewer="traces")


def strong_starts(spot: Spot) -> Iterator[Change]:
    """What becomes an array later is one from the start: `t = jnp.float32(0.0)`, `f(jnp.float32(0.0))`."""
    leaves = _arrays_later(spot)
    title = f"pass {listed(leaves)} as {'arrays' if len(leaves) > 1 else 'an array'} of fixed dtype"
    for change in (_written, _converted):
        cells = spot.cells()
        for leaf in leaves.values():
            change(spot, cells, leaf)
        if any(cells):
            yield Change.of_cells(title, cells, claim=FEWER)


def _arrays_later(spot: Spot) -> dict[str, Leaf]:
    """Strong forms of the culprits, and the other numbers that come back as arrays: jax keeps an entry for each."""
    leaves = [x for x in spot.every_leaf if not x.static]
    numbers = {x.path for x in leaves if x.kind == "scalar"}
    return {
        x.path: x for x in leaves
        if (x.path in spot.names and not x.weak_type) or (x.path in numbers and x.kind == "array")
    }  # fmt: skip


def _written(spot: Spot, cells: Sequence[Edits], leaf: Leaf) -> None:
    """`jnp.float32(...)` around the number where the cells write it, into a name or a display that is passed."""
    given = [(cell, node) for cell, node, _ in spot.given(cells, leaf.argument)]
    names = {node.id for _, node in given if isinstance(node, ast.Name)}
    bound = [
        (cell, s.value) for cell in cells for s in cell.text.tree.body
        if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id in names for t in s.targets)
    ]  # fmt: skip
    for cell, node in [*bound, *(g for g in given if leaf.path != leaf.argument)]:
        number = part_of(spot, node, leaf.path.removeprefix(leaf.argument))
        signed = number.operand if isinstance(number, ast.UnaryOp) else number
        match signed:
            case ast.Constant(int() | float() | complex()) if isinstance(number, ast.expr):
                cell.replace(number, spot.write(f"jnp.{leaf.dtype}($x)", cell, x=number))


def _converted(spot: Spot, cells: Sequence[Edits], leaf: Leaf) -> None:
    """The argument converted in each call; all that it holds, where the number is inside of it."""
    form = f"jnp.{leaf.dtype}($x)" if leaf.shape == () else f"jnp.asarray($x, jnp.{leaf.dtype})"
    if leaf.path != leaf.argument:
        form = "jax.tree.map(lambda v: jnp.asarray(v, jnp.result_type(v)), $x)"
    for cell, node, _ in spot.given(cells, leaf.argument):
        if not (isinstance(node, ast.Call) and last_name(node.func) in (leaf.dtype, "map")):
            cell.replace(node, spot.write(form, cell, x=node))


# --- tests of a type ---------------------------------------------------------------------------------

TITLE = "test in a way that holds while jax traces, too"
_TESTS = [
    *((Pattern(test), False) for test in (
        "isinstance($x, $t)", "type($x) is $t", "$t is type($x)", "type($x) == $t", "$t == type($x)", "type($x) in $t",
    )),
    *((Pattern(test), True) for test in ("type($x) is not $t", "type($x) != $t", "type($x) not in $t")),
    (Pattern("isscalar($x)"), False),
]  # fmt: skip
"""Tests of a type, and whether they deny it."""
_FLOAT = "jnp.issubdtype(jnp.result_type($x), jnp.floating)"
_INTEGER = "jnp.issubdtype(jnp.result_type($x), jnp.integer)"
_NUMBER = "jnp.ndim($x) == 0"
_OF_NUMBERS = {
    frozenset(("float",)): f"({_NUMBER} and {_FLOAT})", frozenset(("int",)): f"({_NUMBER} and {_INTEGER})",
    frozenset(("int", "float")): _NUMBER, frozenset(("int", "float", "complex")): _NUMBER, frozenset(): _NUMBER,
}  # fmt: skip
"""What tells Python's numbers from arrays while jax traces, too."""
_OTHERS = ("isinstance($x, jax.Array)", "isinstance($x, (jax.Array, $$t))", _FLOAT, _INTEGER, _NUMBER)


def type_tests(spot: Spot) -> Iterator[Change]:
    """The tests of types on the line, or those that the trace is known to answer differently."""
    sources = {t.where.source for t in spot.evidence.silent.tests if t.where is not None}
    lines = [n for n, line in enumerate(spot.text.lines, 1) if n == spot.line or line.strip() in sources]
    for line in lines:
        for form in ("", *_OTHERS):
            edits = spot.edits()
            for test, name, kinds, denied in tested(spot, line):
                if template := form or _OF_NUMBERS.get(frozenset(kinds), ""):
                    new = spot.write(template, x=name, t=", ".join(kinds) or "float")
                    edits.replace(test, f"not {new}" if denied else new)
            if edits:
                yield Change(TITLE, edits)


def tested(spot: Spot, line: int) -> Iterator[tuple[ast.expr, ast.expr, list[str], bool]]:
    """The tests of types that begin on a line: what is tested, for which types, and whether these are denied."""
    for node in spot.text.on_line(line, ast.expr):
        for pattern, denied in _TESTS:
            if (found := pattern.match(node, spot.modules)) is not None:
                kinds = [found.expr("t")] if "t" in found.holes else []
                parts = [part for kind in kinds for part in getattr(kind, "elts", [kind])]
                yield found.node, found.expr("x"), [spot.code(p) for p in parts], denied
                break

"""Numbers that do not fit into 32 bits: asked for in 32, as floats, cut before the call, or computed in 64."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.inputs.call_arguments import passed_as
from jitmagic.fixes.numerics.type_tests import tested
from jitmagic.source import scope, signature

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

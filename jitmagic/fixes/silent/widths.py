"""Tests of a type that hold under jit too, and numbers that fit into 32 bits."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence, Where
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.calls import with_argument
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For jit-differs-from-eager and dtype-truncation."""
    line = Text(evidence.function.cell).line_of(finding)
    if finding.kind == "jit-differs-from-eager" and line:
        for title, cell in _type_tests(evidence.function.cell, line, finding):
            if _equal(prover, cell, trial.history(prover)):
                yield Fix(title=title, applicability="safe", verified=True,
                          evidence="traced; equal to the run without jit", cell=cell)  # fmt: skip
                return
        yield from _tested_as_setting(evidence, prover, line)
    if finding.kind == "dtype-truncation" and line:
        yield from _narrow(finding, evidence, prover)
    if any(_kind_of(evidence, n) == "i" for n in finding.culprits):
        yield from _as_floats(finding, evidence, prover)
    if finding.kind == "dtype-truncation":
        yield from _float_literals(evidence, prover, line)
        yield from _on_the_host(finding, evidence, prover)
    # wider values only happen to go past a compiler that is at fault
    blamed = finding.kind == "jit-differs-from-eager" and any(d.compiler for d in evidence.differences)
    if not blamed and not _tests_a_type(evidence, line):
        yield from _in_64_bits(evidence, prover)


NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}


def _narrow(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The 32-bit type that jax gives anyway, by its name."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    for node in ast.walk(function) if function is not None else ():
        if (
            isinstance(node, ast.Attribute)
            and node.attr in NARROW
            and ast.unparse(node.value) in ("jnp", "np", "jax.numpy")
        ):
            text.replace(node, f"{text.code(node.value)}.{NARROW[node.attr]}")
        elif isinstance(node, ast.Constant) and node.value in NARROW:
            text.replace(node, f'"{NARROW[node.value]}"')
    if not text.changes:
        return
    cell = text.result()
    if _equal(prover, cell, trial.history(prover)) and not _truncates(prover, cell):
        yield Fix(
            title="ask for 32 bits, which is what jax computes with here", applicability="safe", verified=True,
            evidence="traced; equal to the run without jit; nothing is cut any more", cell=cell,
        )  # fmt: skip


def _truncates(prover: Prover, cell: str, old: Sequence[str] = (), new: Sequence[str] = ()) -> bool:
    """jax warns that a type of 64 bits is cut, also with `new` calls in the place of the `old` ones."""
    import warnings

    changed = dict(zip(old, new, strict=True))
    said: list[str] = []
    warn = warnings.warn
    # What such a run warns of is held back: it has to be heard before it gets there.
    warnings.warn = lambda message, *others, **more: said.append(str(message))  # type: ignore[assignment]
    try:
        trial.play(prover, cell, [changed.get(s, s) for s in trial.history(prover)])
    finally:
        warnings.warn = warn
    return any("truncated" in s for s in said)


def _tested_as_setting(evidence: Evidence, prover: Prover, line: int) -> Iterator[Fix]:
    """The flag, number or text whose type the line tests as a static argument, which keeps its type."""
    tested = [m[0] for n in Text(evidence.function.cell).on_line(line) if (m := _tested(n)) is not None]
    leaves = [x for c in evidence.calls for x in c.leaves if x.path in tested and not x.static]
    if not tested:  # `~flag` is -2 for a flag of Python's, and False for one that is traced
        leaves = [
            x for c in evidence.calls for x in c.leaves
            if x.python_type == "bool" and x.path == x.argument and not x.static
        ]  # fmt: skip
    names = tuple(dict.fromkeys(x.path for x in leaves))
    if not names or any(x.python_type not in ("bool", "int", "str") for x in leaves):
        return
    options = prover.checker.options
    made = replace(options, static_argnames=tuple(dict.fromkeys((*options.static_argnames, *names))))
    proof = prover.options(made)
    if proof.holds:
        yield Fix(
            title=f"make {listed(names)} static: it keeps its Python type, and each new value compiles again",
            applicability="unsafe", verified=True, evidence=proof.words, static_argnames=made.static_argnames,
        )  # fmt: skip


def _tests_a_type(evidence: Evidence, line: int) -> bool:
    return any(_tested(n) is not None for n in Text(evidence.function.cell).on_line(line)) if line else False


SWITCH = 'jax.config.update("jax_enable_x64", True)'


def _in_64_bits(evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The cell with jax's switch for 64 bits on top, where that gives the plain results."""
    import jax

    cell = f"{SWITCH}\n\n{evidence.function.cell}"
    if prover.checker.namespace.get("jax") is not jax or jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return
    words = ""
    with jax.enable_x64(True):
        if _equal(prover, evidence.function.cell, trial.history(prover), failing=True):
            words = "traced with 64 bits; equal to the run without jit"
        elif evidence.differences and _same_in_64_bits(prover):  # jax cuts without jit, too
            words = "traced with 64 bits; equal to the run without jit in 64 bits"
    if words:
        yield Fix(
            title="compute with 64 bits from here on: arrays made before keep 32, and GPUs are slower with 64",
            applicability="unsafe", verified=True, evidence=words, cell=cell,
        )  # fmt: skip


def _same_in_64_bits(prover: Prover) -> bool:
    with contextlib.suppress(Exception):
        plain, got = (trial.original(prover, trial.history(prover), jit=jit).results for jit in (False, True))
        return bool(got) and trial.same(plain, got)
    return False


_WHOLE = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Mod, ast.FloorDiv)
"""Operations that ask for the integer itself."""


def _float_literals(evidence: Evidence, prover: Prover, line: int) -> Iterator[Fix]:
    """Integers beyond 32 bits as floats, where they are only multiplied, added or compared."""
    import jax

    text = Text(evidence.function.cell)
    nodes = list(text.on_line(line))
    if any(isinstance(getattr(n, "op", None), _WHOLE) for n in nodes):
        return
    for node in nodes:
        if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) >= 2**31:
            text.replace(
                node,
                f"{text.code(node)}.0" if text.code(node)[:2].lower() != "0x" else repr(float(node.value)),
            )
    if not text.changes:
        return
    cell = text.result()
    with jax.enable_x64(True):
        wanted = _results(prover, evidence.function.cell)
    if wanted and _close(prover, cell, wanted):
        yield Fix(
            title="write the number as a float, which has the range", applicability="unsafe", verified=True,
            evidence="traced; equal to the run with 64 bits to seven digits", cell=cell,
        )  # fmt: skip


def _results(prover: Prover, cell: str) -> list[Any]:
    """Results of the cell's plain function; none where it fails."""
    with contextlib.suppress(Exception):
        return trial.play(prover, cell, trial.history(prover), jit=False).results
    return []


def _kind_of(evidence: Evidence, name: str) -> str:
    """`i` where whole numbers were passed for the parameter, `f` for others; empty where it is none."""
    for call in evidence.calls:
        for leaf in call.leaves:
            if leaf.argument == name:
                return "i" if leaf.python_type == "int" or leaf.dtype.startswith(("int", "uint")) else "f"
    return ""


def _equal(prover: Prover, cell: str, sources: list[str], *, failing: bool = False) -> bool:
    """Compiled and plain, the cell gives the results of the user's plain function; `failing`: that one may fail."""
    with contextlib.suppress(Exception):
        try:
            wanted = _in_32_bits(lambda: trial.original(prover, sources, jit=False).results)
        except Exception:
            if not failing:
                raise
            wanted = trial.play(prover, cell, sources, jit=False).results
        got, plain = (
            trial.play(prover, cell, sources).results,
            trial.play(prover, cell, sources, jit=False).results,
        )
        return bool(got) and trial.same(wanted, got) and trial.same(wanted, plain)
    return False


def _in_32_bits(run: Callable[[], list[Any]]) -> list[Any]:
    import jax

    with jax.enable_x64(False):
        return run()


def propose_for_errors(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For an error that comes only while jax traces, because a test of a type sees a placeholder there."""
    cell = evidence.function.cell
    tests = evidence.silent.tests if evidence.silent else ()
    for line in dict.fromkeys(_line_of(cell, t.where) for t in tests if t.where is not None):
        for title, corrected in _type_tests(cell, line, finding) if line else ():
            if _equal(prover, corrected, trial.history(prover)):
                yield Fix(title=title, applicability="safe", verified=True,
                          evidence="traced; equal to the run without jit", cell=corrected)  # fmt: skip
                return


def _line_of(cell: str, where: Where) -> int:
    """Line of a place in the cell's source, which may have a magic line above; 0 where it is not there."""
    lines = cell.splitlines()
    near = (n for n in (where.line - 1, where.line) if 1 <= n <= len(lines))
    return next((n for n in near if lines[n - 1].strip() == where.source), 0)


_FLOAT = "jnp.issubdtype(jnp.result_type({0}), jnp.floating)"
_INTEGER = "jnp.issubdtype(jnp.result_type({0}), jnp.integer)"
_NUMBER = "jnp.ndim({0}) == 0"
_OF_NUMBERS = {
    frozenset(("float",)): f"({_NUMBER} and {_FLOAT})",
    frozenset(("int",)): f"({_NUMBER} and {_INTEGER})",
    frozenset(("int", "float")): _NUMBER,
    frozenset(("int", "float", "complex")): _NUMBER,
}
"""What tells Python's numbers from arrays while jax traces, too."""
_OTHERS = ("isinstance({0}, jax.Array)", "isinstance({0}, (jax.Array, {1}))", _FLOAT, _INTEGER, _NUMBER)


def _type_tests(source: str, line: int, finding: Finding) -> Iterator[tuple[str, str]]:
    """`type(x) is T` and `isinstance(x, T)` as tests that a tracer passes like the value it stands for."""
    title = "test in a way that holds while jax traces, too"
    for template in ("", *_OTHERS):
        text = Text(source)
        for node in text.on_line(line):
            match = _tested(node)
            if match is None or any(a <= text.span(node)[0] < b for a, b, _ in text.changes):
                continue
            name, kind, negated = match
            form = template or _OF_NUMBERS.get(frozenset(kind.split(", ")), "")
            if form:
                new = form.format(name, kind)
                text.replace(node, f"not {new}" if negated else new)
        if text.changes:
            yield title, text.result()
    text = Text(source)
    for node in text.on_line(line):
        if isinstance(node, ast.pattern) and isinstance(text.parents.get(node), ast.match_case):
            text.replace(node, f"{text.code(node)} | jax.Array()")
        if not isinstance(node, ast.Call) or not node.args:
            continue
        kind = f"float if {_FLOAT.format(text.code(node.args[0]))} else int"
        if ast.unparse(node.func) == "type" and len(node.args) == 1:
            text.replace(node, kind)
        elif ast.unparse(node.func) in _dispatching(text):
            text.replace(node.func, f"{text.code(node.func)}.dispatch({kind})")
    if text.changes:
        yield title, text.result()


def _dispatching(text: Text) -> set[str]:
    """Functions that choose by the type of their first argument."""
    functions = (n for n in ast.walk(text.tree) if isinstance(n, FunctionNode))
    return {f.name for f in functions if any("singledispatch" in ast.unparse(d) for d in f.decorator_list)}


def _tested(node: ast.AST) -> tuple[str, str, bool] | None:
    """(expression, type as written, negated) of a test of a type."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and len(node.args) == 2:
        kind = node.args[1]
        parts = kind.elts if isinstance(kind, ast.Tuple) else [kind]
        return ast.unparse(node.args[0]), ", ".join(ast.unparse(p) for p in parts), False
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("np.isscalar", "numpy.isscalar")
        and node.args
    ):
        return ast.unparse(node.args[0]), "float, int", False
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = [node.left, node.comparators[0]]
        for side, other in (sides, sides[::-1]):
            if isinstance(side, ast.Call) and ast.unparse(side.func) == "type" and len(side.args) == 1:
                negated = isinstance(node.ops[0], ast.IsNot | ast.NotEq | ast.NotIn)
                return ast.unparse(side.args[0]), ast.unparse(other).strip("()[]"), negated
    return None


def _as_floats(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """Whole numbers that do not fit into 32 bits, as floats from the start."""
    names = [n for n in finding.culprits if n in evidence.function.parameters]
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    if function is None or not names:
        return
    lines = [f"{n} = jnp.asarray({n}, jnp.float32)" for n in names]
    for division in (False, True):
        new = Text(evidence.function.cell)
        own = new.function(evidence.function.name)
        assert own is not None
        first = (
            own.body[1]
            if len(own.body) > 1
            and isinstance(own.body[0], ast.Expr)
            and isinstance(own.body[0].value, ast.Constant)
            else own.body[0]
        )
        new.before(first, lines)
        if division:
            for node in (
                n for n in ast.walk(own) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv)
            ):
                start, end = new.span(node.left)[1], new.span(node.right)[0]
                new.changes.append((start, end, new.source[start:end].replace("//", "/")))
        cell = new.result()
        if _close(prover, cell):
            yield Fix(
                title="compute with floats, which have the range", applicability="unsafe", verified=True,
                evidence="traced; equal to the run without jit to seven digits", cell=cell,
            )  # fmt: skip
            return


def _close(prover: Prover, cell: str, results: list[Any] | None = None) -> bool:
    """The corrected cell under jit agrees with the user's plain function (or these results) to seven digits."""
    import jax
    import numpy as np

    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        wanted = jax.tree.leaves(results or trial.original(prover, sources, jit=False).results)
        got = jax.tree.leaves(trial.play(prover, cell, sources).results)
        return bool(got) and all(
            np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=2e-6, atol=0)
            for a, b in zip(wanted, got, strict=True)
        )
    return False


def _on_the_host(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """Calls that bring the argument into 32 bits with NumPy first: a remainder, a difference, a cast."""
    old = trial.call_sources(prover)
    for name in (n for n in finding.culprits if n in evidence.function.parameters and old):
        for template in _templates(evidence, name):
            new = [with_argument(s, evidence, name, template) for s in old]
            if _same_calls(prover, old, new) and not _truncates(prover, evidence.function.cell, old, new):
                yield Fix(
                    title=f"bring `{name}` into 32 bits with NumPy before the call", applicability="unsafe",
                    verified=True, evidence="traced; equal to the run without jit", calls=tuple(new),
                )  # fmt: skip
                return


def _templates(evidence: Evidence, name: str) -> Iterator[str]:
    """What could be done before the call: the first operations of the function on that argument."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and node.left.id == name:
            if isinstance(node.right, ast.Constant) and isinstance(node.op, ast.Mod):
                yield f"({{}} % {node.right.value!r}).astype(np.int32)"
    kind = "int32" if _kind_of(evidence, name) == "i" else "float32"
    yield f"np.asarray({{}}).astype(np.{kind})"
    if kind == "int32":
        yield "float({})"


def _same_calls(prover: Prover, old: list[str], new: list[str]) -> bool:
    changed = dict(zip(old, new, strict=True))
    sources = [changed.get(s, s) for s in trial.history(prover)]
    with contextlib.suppress(Exception):
        wanted = trial.original(prover, trial.history(prover), jit=False).results
        got = trial.play(prover, prover.checker.cell.body, sources).results
        return bool(got) and trial.same(wanted, got)
    return False

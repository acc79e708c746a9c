"""Arrays that come in many lengths, padded to a few: a mask keeps the padding out of sums and means."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.states import alias
from jitmagic.fixes.silent.text import FunctionNode, Text, add_parameter
from jitmagic.report import Finding, Fix
from jitmagic.source.expressions import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

REDUCTIONS = {"mean": "", "sum": "", "prod": "", "any": "", "all": "", "std": "", "var": "",
              "max": "-{}.inf", "min": "{}.inf"}  # fmt: skip
"""Reductions that take `where=`, and the `initial=` that some of them need with it."""


_SIZED = frozenset(
    "arange zeros ones full empty eye reshape broadcast_to iota fori_loop range fold_in".split()
)


@dataclass(frozen=True)
class Lengths:
    """Axis of each argument that varies, and the length that it has in each call kept."""

    axes: Mapping[str, int]
    ranks: Mapping[str, int]
    sizes: tuple[int, ...]

    @property
    def unit(self) -> int:
        """Lengths are rounded up to a multiple of this: the power of two above all that were seen."""
        return 1 << max(max(self.sizes) - 1, 7).bit_length()


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For recompile-shape: the function over padded arrays, compiled once, and a wrapper that pads."""
    options = prover.checker.options
    lengths = _lengths(evidence, prover)
    declared = (
        options.static_argnames,
        options.static_argnums,
        options.donate_argnames,
        options.donate_argnums,
    )
    if lengths is None or any(declared) or "." in evidence.function.name:
        return
    cell = _padded_cell(evidence, prover, lengths)
    if cell is None:
        return
    words = _proved(evidence, prover, cell, lengths)
    if words:
        yield Fix(
            title=f"pad to a multiple of {lengths.unit}, with a mask for what counts: "
            f"one compilation for every {lengths.unit} lengths",
            applicability="unsafe", verified=True, evidence=words, cell=cell,
        )  # fmt: skip


def _lengths(evidence: Evidence, prover: Prover) -> Lengths | None:
    """None where more than one length varies, or what varies is not an axis of an argument."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    order = evidence.function.parameters
    for sample in prover.samples:
        for name, value in {**dict(zip(order, sample.args, strict=False)), **sample.kwargs}.items():
            if not hasattr(value, "shape"):
                continue
            shapes.setdefault(name, []).append(tuple(value.shape))
    axes: dict[str, int] = {}
    sizes: set[tuple[int, ...]] = set()
    for name, seen in shapes.items():
        if len(set(seen)) == 1:
            continue
        if len(seen) != len(prover.samples) or len({len(s) for s in seen}) != 1:
            return None
        varying = [k for k in range(len(seen[0])) if len({s[k] for s in seen}) > 1]
        if len(varying) != 1:
            return None
        axes[name] = varying[0]
        sizes.add(tuple(s[varying[0]] for s in seen))
    ranks = {n: len(s[0]) for n, s in shapes.items()}
    return Lengths(axes, ranks, sizes.pop()) if len(sizes) == 1 else None


# --- the new cell


def _padded_cell(evidence: Evidence, prover: Prover, lengths: Lengths) -> str | None:
    text = Text(evidence.function.cell)
    name = evidence.function.name
    function = text.function(name)
    if function is None or function.decorator_list or function.args.vararg or function.args.kwarg:
        return None
    inner, count = text.fresh(f"{name}_padded"), text.fresh("n", "count", "length")
    keep = text.fresh("keep", "mask", "counts")
    masked = _mask(text, function, prover, lengths, keep)
    counted = _count(text, function, prover, lengths, count) or masked
    first, axis = next(iter(lengths.axes.items()))
    start = text.span(function)[0]
    head = text.source[start:].index("(") + start
    at = [*function.args.posonlyargs, *function.args.args]
    if not at:
        return None
    by_name = add_parameter(text, function, count) if counted else False
    text.changes.append((start, head, f"@{_jit(prover)}\ndef {inner}"))
    if masked:
        body = _first(function)
        text.before(body, [f"{keep} = {_jnp(prover)}.arange({first}.shape[{axis}]) < {count}"])
    cell = text.result().rstrip("\n")
    passed = (f"{count}={count}" if by_name else count) if counted else ""
    outside = _wrapper(name, inner, count, function.args, lengths, _result_axis(prover, lengths), passed,
                       _jnp(prover))  # fmt: skip
    return f"{cell}\n\n\n{outside}" if text.tree.body[-1] is function else _after(cell, inner, outside)


def _after(cell: str, inner: str, outside: str) -> str:
    """The wrapper behind the function, before what follows in the cell."""
    text = Text(cell)
    node = text.function(inner)
    assert node is not None
    end = text.span(node)[1]
    return f"{cell[:end]}\n\n\n{outside.rstrip()}{cell[end:]}\n"


def _first(function: FunctionNode) -> ast.stmt:
    """The first statement behind the docstring."""
    told = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    return function.body[1] if told and len(function.body) > 1 else function.body[0]


def _wrapper(
    name: str,
    inner: str,
    count: str,
    args: ast.arguments,
    lengths: Lengths,
    result: int | None,
    passed: str,
    jnp: str,
) -> str:
    first, axis = next(iter(lengths.axes.items()))
    given = []
    for a in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        value = a.arg
        if value in lengths.axes:
            value = f"{jnp}.pad({a.arg}, {_widths(lengths.axes[a.arg], a.arg, lengths)})"
        given.append(f"{a.arg}={value}" if a in args.kwonlyargs else value)
    cut = "" if result is None else f"[{':, ' * result}:{count}]"
    return (
        f"def {name}({ast.unparse(args)}):\n"
        f"    {count} = {first}.shape[{axis}]\n"
        f"    more = -{count} % {lengths.unit}\n"
        f"    return {inner}({', '.join([*given, passed] if passed else given)}){cut}\n"
    )


def _widths(axis: int, argument: str, lengths: Lengths) -> str:
    rank = lengths.ranks[argument]
    pairs = ["(0, more)" if k == axis else "(0, 0)" for k in range(rank)]
    return f"({', '.join(pairs)})" if rank > 1 else "(0, more)"


# --- what the padding must not touch


def _mask(text: Text, function: FunctionNode, prover: Prover, lengths: Lengths, keep: str) -> bool:
    """Give `where=` to the reductions over the axis that varies; whether there was one."""
    found = False
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        name = getattr(call.func, "attr", "")
        given = {k.arg for k in call.keywords}
        if name not in REDUCTIONS or "where" in given or "initial" in given:
            continue
        method = not ast.unparse(call.func).startswith((f"{_jnp(prover)}.", "jax.numpy."))
        value = call.func.value if method else (call.args[0] if call.args else None)  # type: ignore[attr-defined]
        axis = _axis_of(text, value, prover, lengths) if value is not None else None
        if axis is None or not _reduces(call, axis, method):
            continue
        k, rank = axis
        mask = keep if k == rank - 1 else f"{keep}[:{', None' * (rank - 1 - k)}]"
        more = f", initial={REDUCTIONS[name].format(_jnp(prover))}" if REDUCTIONS[name] else ""
        end = text.span(call)[1] - 1
        comma = ", " if call.args or call.keywords else ""
        text.changes.append((end, end, f"{comma}where={mask}{more}"))
        found = True
    return found


def _axis_of(text: Text, node: ast.expr, prover: Prover, lengths: Lengths) -> tuple[int, int] | None:
    """(axis, rank) of the expression where one axis has the length that varies, in every call kept."""
    from jitmagic.fixes.rewrites import trial_of

    start, end = text.span(node)
    cell = f"{text.source[:start]}__seen({text.source[start:end]}){text.source[end:]}"
    shapes = [s.shape for s in trial_of(prover).probe(cell)]
    if len(shapes) != len(lengths.sizes) or len({len(s) for s in shapes}) != 1:
        return None
    axes = [k for k in range(len(shapes[0])) if tuple(s[k] for s in shapes) == lengths.sizes]
    return (axes[0], len(shapes[0])) if len(axes) == 1 else None


def _reduces(call: ast.Call, axis: tuple[int, int], method: bool) -> bool:
    """The call reduces over that axis: all axes, or it is named."""
    place = 0 if method else 1
    named = next((k.value for k in call.keywords if k.arg == "axis"), None)
    named = named or (call.args[place] if len(call.args) > place else None)
    if named is None:
        return True
    with contextlib.suppress(ValueError):
        value = ast.literal_eval(named)
        axes = value if isinstance(value, tuple) else (value,)
        return axis[0] in [a % axis[1] for a in axes]
    return False


def _count(text: Text, function: FunctionNode, prover: Prover, lengths: Lengths, count: str) -> bool:
    """`len(x)`, `x.shape[k]` and `x.size` as the number that counts; whether there was one."""
    sizes = {
        id(n)
        for c in ast.walk(function)
        if isinstance(c, ast.Call) and dotted_name(c.func).rpartition(".")[2] in _SIZED
        for a in (*c.args, *(k.value for k in c.keywords))
        for n in ast.walk(a)
    }  # arrays made inside are as long as the padded ones
    before = len(text.changes)
    for node in (n for n in ast.walk(function) if id(n) not in sizes):
        asked = _asked_length(node)
        axis = _axis_of(text, asked[0], prover, lengths) if asked is not None else None
        if asked is None or axis is None:
            continue
        value, number = text.code(asked[0]), asked[1]
        if number is None:  # `x.size`
            others = [f"{value}.shape[{k}]" for k in range(axis[1]) if k != axis[0]]
            text.replace(
                node, " * ".join([count, *others]) if not others else f"({' * '.join([count, *others])})"
            )
        elif number % axis[1] == axis[0]:
            text.replace(node, count)
    return len(text.changes) > before


def _asked_length(node: ast.AST) -> tuple[ast.expr, int | None] | None:
    """The array whose length is asked, and along which axis; None along with it for all its items."""
    if isinstance(node, ast.Attribute) and node.attr == "size":
        return node.value, None
    if isinstance(node, ast.Call) and dotted_name(node.func) == "len" and len(node.args) == 1:
        return node.args[0], 0
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "shape"
    ):
        with contextlib.suppress(ValueError):
            number = ast.literal_eval(node.slice)
            return (node.value.value, number) if isinstance(number, int) else None
    return None


def _result_axis(prover: Prover, lengths: Lengths) -> int | None:
    """The axis of the result that has the length that varies; None where none has. Raises LookupError for others."""
    results = prover.plain_results()
    if not all(hasattr(r, "shape") for r in results):
        raise LookupError("the result is no array")
    shapes = [tuple(r.shape) for r in results]
    axes = [k for k in range(len(shapes[0])) if tuple(s[k] for s in shapes if len(s) > k) == lengths.sizes]
    return axes[0] if axes else None


# --- the proof


def _proved(evidence: Evidence, prover: Prover, cell: str, lengths: Lengths) -> str | None:
    """One trace for what took one each; the same results on the calls kept, and on random numbers of their shapes."""
    import jax
    import numpy as np

    name = evidence.function.name
    with contextlib.suppress(Exception):
        traces: list[int] = []
        namespace = {**prover.checker.namespace, "__traced": traces.append}
        with trial.aside(prover):
            exec(compile(_counting(cell, name), "<jitmagic fix>", "exec"), namespace)
        new = namespace[name]
        draw = np.random.default_rng(0)
        with trial.aside(prover):
            for sample in prover.samples:
                other = [_random(a, draw) for a in sample.args]
                more = {k: _random(v, draw) for k, v in sample.kwargs.items()}
                for args, kwargs in ((sample.args, sample.kwargs), (other, more)):
                    wanted = prover.checker.fn(*args, **kwargs)
                    got = jax.block_until_ready(new(*args, **kwargs))
                    if not trial.same(wanted, got):
                        return None
        if len(traces) < len(prover.samples):
            number = len(set(lengths.sizes))
            return (
                f"traced {len(traces)} time{'s' * (len(traces) > 1)} for {number} lengths; equal to the run without "
                f"jit on {len(prover.samples)} calls, and on random numbers"
            )
    return None


def _random(value: Any, draw: Any) -> Any:
    """Other numbers of the same shape and type; what is no array of floats stays."""
    import jax.numpy as jnp

    if getattr(value, "shape", ()) and jnp.issubdtype(value.dtype, jnp.floating):
        return jnp.asarray(draw.normal(size=value.shape), value.dtype)
    return value


def _counting(cell: str, name: str) -> ast.Module:
    """The cell's definitions, with each trace of the padded function counted."""
    tree = ast.parse(cell)
    kept = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    tree.body = [s for s in tree.body if isinstance(s, kept)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith(f"{name}_padded"):
            node.body.insert(0, ast.parse("__traced(1)").body[0])
    return ast.fix_missing_locations(tree)


def _jnp(prover: Prover) -> str:
    return alias(prover, "jax.numpy") or "jnp"


def _jit(prover: Prover) -> str:
    """`jax.jit` as the notebook writes it."""
    jax = alias(prover, "jax")
    return f"{jax}.jit" if jax else "jit"

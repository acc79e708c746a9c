"""What a loop of jax's starts with, and what its body gives back: a pair, the state in the type and structure that it
had."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jitmagic.fixes.branches.output_types import joined
from jitmagic.fixes.branches.structures import OutputWriter, Want, key_of
from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.loops.lax_calls import LaxLoop, lax_loops, returned, spelt_out
from jitmagic.fixes.objects.layouts import part_of
from jitmagic.source.edits import Edits
from jitmagic.source.pattern import atom, bare, in_brackets, tuple_of
from jitmagic.tracing.messages import CarryMismatch, carry_mismatches, loop_complaint

STATE_ONLY = "return a pair from the scan's body: its state, and no result of the iteration"
STATE_AND_REST = "return a pair from the scan's body: its state, and the rest as the result of the iteration"
COMPLETED = "give back the whole state from the loop's body"
FILLED = "start the loop with everything that its body gives, zeros at first"
_DISPLAYS = (ast.Dict, ast.Tuple, ast.List)
Tree = Any
"""Shapes and dtypes in dicts, tuples and lists."""


def loop_functions(spot: Spot) -> Iterator[Change]:
    """What a loop's functions return, where that has another form than jax asks for."""
    complaint = loop_complaint(spot.message)
    for loop in lax_loops(spot):
        if complaint == "pair" and loop.name == "scan":
            yield from _paired(loop)
        elif complaint == "structure":
            yield from _fitted(loop)


def _paired(loop: LaxLoop) -> Iterator[Change]:
    """`return carry, None` from the body of a scan, or what it returns besides the carry in the second place."""
    spot, values, count = loop.spot, returned(loop.spot, loop.body), 0
    if isinstance(loop.start, ast.Tuple):
        count = len(loop.start.elts)
    split, whole = spot.edits(), spot.edits()
    for value in values:
        if isinstance(value, ast.Tuple) and len(value.elts) > count > 0:
            state, rest = ([spot.code(e) for e in part] for part in (value.elts[:count], value.elts[count:]))
            pair = f"{tuple_of(state)}, {rest[0] if len(rest) == 1 else tuple_of(rest)}"
            split.replace(value, f"({pair})" if in_brackets(spot.code(value)) else pair)
        pair = f"{bare(spot.code(value))}, None"
        whole.replace(value, f"({pair})" if isinstance(loop.body, ast.Lambda) else pair)
    if split:
        yield Change(STATE_AND_REST, split)
    if whole:
        yield Change(STATE_ONLY, whole)


# --- structure


def _fitted(loop: LaxLoop) -> Iterator[Change]:
    """The body's state in the structure of the start, else the start with everything that the body gives."""
    spot, values = loop.spot, returned(loop.spot, loop.body)
    carry = values[0] if len(values) == 1 else None
    if loop.name == "scan" and isinstance(carry, ast.Tuple) and len(carry.elts) == 2:
        carry = carry.elts[0]
    trees = spot.outputs(state_probe(loop))
    if carry is None or loop.body is None or len(trees) != 2:
        return
    before, after = trees
    named = spelt_out(spot, loop.body, carry)
    carry = named if isinstance(named, _DISPLAYS) else carry
    completed = _completed(loop, carry, before, after)
    if completed:
        yield Change(COMPLETED, spot.edits().replace(carry, completed), claim=Claim("covers"))
        return
    named = loop.spelt_out(loop.start)
    start = named if isinstance(named, _DISPLAYS) else loop.start
    new = widened(spot, spot.code(start), before, after)
    if new and new != spot.code(start):
        yield Change(FILLED, spot.edits().replace(start, new), sure=False)


def widened(spot: Spot, code: str, before: Tree, after: Tree) -> str | None:
    """A start value with zeros for what it lacks, like an array in it where one has that form."""
    import jax

    start = ast.parse(code, mode="eval").body
    want = joined([before, after], [start, None])
    leaves = (w for w in jax.tree.leaves(want) if isinstance(w, Want))
    named = {(w.shape, w.dtype): w.name for w in leaves if w.name and w.shape}

    def like(w: Tree) -> Tree:
        return replace(w, name=w.name or named.get((w.shape, w.dtype), "")) if isinstance(w, Want) else w

    return OutputWriter(spot).written(start, code, before, jax.tree.map(like, want))


def state_probe(loop: LaxLoop) -> str:
    """The cell with the loop replaced by the question what goes into its body and what comes out."""
    spot, given = loop.spot, loop.parts
    if loop.name == "scan":
        functions = "[lambda s, x: s, lambda s, x: ($body)(s, x)[0]]"
        question = f"__outputs__({functions}, ($start), jax.tree.map(lambda v: v[0], $xs))"
    elif loop.name == "fori_loop":
        question = "__outputs__([lambda s: s, lambda s: ($body)($low, s)], ($start))"
    else:
        question = "__outputs__([lambda s: s, ($body)], ($start))"
    holes = {"xs": ast.Constant(None), **given}
    cell = spot.edits().replace(loop.call, spot.write(question, **holes)).result()
    return "".join(f"{line}\n" for line in spot.modules.imports_for(cell)) + cell


def _completed(loop: LaxLoop, carry: ast.expr, before: Tree, after: Tree) -> str:
    """What the body returns with the parts of the state that it leaves out, or as the type that went in."""
    code, state = loop.spot.code(carry), loop.state
    if isinstance(before, Mapping) and isinstance(after, Mapping) and state:
        left = [k for k in before if k not in after]
        if not left or any(k not in before for k in after):
            return ""
        more = ", ".join(f"{key_of(k)}: {state}[{key_of(k)}]" for k in left)
        if isinstance(carry, ast.Dict):
            return f"{code[:-1].rstrip().rstrip(',')}, {more}}}"
        return f"{{**{atom(code)}, {more}}}"
    if not isinstance(before, tuple | list):
        return ""
    parts = [loop.spot.code(e) for e in carry.elts] if isinstance(carry, ast.Tuple | ast.List) else []
    if isinstance(after, tuple | list) and len(before) == len(after):
        if hasattr(before, "_fields") and type(after) is tuple:
            return f"{type(before).__name__}({', '.join(parts) or f'*{code}'})"
        if {type(before), type(after)} != {tuple, list}:
            return ""
        display = f"[{', '.join(parts)}]" if type(before) is list else tuple_of(parts)
        return display if parts else f"{type(before).__name__}({code})"
    return ""


# --- what it starts with -----------------------------------------------------------------------------

TYPED = "start the loop with the type that its body gives"
_DTYPE_AT = {"zeros": 1, "ones": 1, "empty": 1, "full": 2, "array": 1, "asarray": 1}
"""Position of the dtype in what makes an array."""


def loop_starts(spot: Spot) -> Iterator[Change]:
    """A start that has another type than what the body gives, as that type."""
    for loop in lax_loops(spot):
        # that a number comes out of what is an array is no matter of the start
        found = [m for m in carry_mismatches(spot.message) if m.shape or m.shape is None]
        sized, rows = any(m.shape for m in found), loop.parts.get("xs")
        likes = [f"{rows.id}[0]", ""] if isinstance(rows, ast.Name) and rows.id != "None" and sized else [""]
        for like in likes:
            edits = spot.edits()
            for mismatch in found:
                _start(loop, mismatch, like, edits)
            if edits:
                cost = "for arrays of this size" if sized and not like else ""
                yield Change(TYPED, edits, cost=cost, sure=not cost)
            elif found and not sized:
                yield from _cast(loop)


def _start(loop: LaxLoop, mismatch: CarryMismatch, like: str, edits: Edits) -> None:
    """The part of the start that does not fit, as what the body gives."""
    part = part_of(loop.spot, loop.start, mismatch.path, loop.spelt_out)
    whole = loop.spelt_out(part) if part is not None and not mismatch.path else part
    part = whole if isinstance(whole, ast.Constant) else part
    if part is not None:
        edits.replace(part, _typed(loop.spot, part, mismatch, like))


def _cast(loop: LaxLoop) -> Iterator[Change]:
    """A start that is not spelt out, cast where it does not fit."""
    spot, trees = loop.spot, loop.spot.outputs(state_probe(loop))
    new = widened(spot, spot.code(loop.start), *trees) if len(trees) == 2 else None
    if new and new != spot.code(loop.start):
        yield Change(TYPED, spot.edits().replace(loop.start, new))


def _typed(spot: Spot, part: ast.expr, mismatch: CarryMismatch, like: str) -> str:
    """A start value with another dtype, and spread to a shape (that of `like`) where that differs too."""
    dtype = f"jnp.{mismatch.new_dtype}"
    if mismatch.shape is not None and like:
        return spot.write(f"jnp.full_like($like, $part, {dtype})", like=like, part=part)
    if mismatch.shape is not None:
        return spot.write(f"jnp.full({mismatch.shape}, $part, {dtype})", part=part)
    if isinstance(part, ast.Constant) and type(part.value) is int and dtype == "jnp.float32":
        return f"{part.value}.0"
    made = spot.full(part).removeprefix("jax.numpy.") if isinstance(part, ast.Call) else ""
    if isinstance(part, ast.Call) and made == mismatch.dtype and part.args:
        return spot.write(f"{dtype}($x)", x=part.args[0])
    if isinstance(part, ast.Call) and made in _DTYPE_AT:
        named = [k.value for k in part.keywords if k.arg == "dtype"] or part.args[_DTYPE_AT[made] :][:1]
        if named:
            return spot.edits().replace(named[0], spot.write(dtype)).code(part)
    return spot.write(f"jnp.asarray($part, {dtype})", part=part)

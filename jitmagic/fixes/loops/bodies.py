"""What the functions of a loop of jax's give back: a pair, one boolean, the state in the structure that it had."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jitmagic.fixes.branches.output_types import joined
from jitmagic.fixes.branches.structures import OutputWriter, key_of
from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.loops.lax_calls import LaxLoop, definition, lax_loops, returned, spelt_out
from jitmagic.source.pattern import atom, bare, in_brackets, tuple_of
from jitmagic.tracing.messages import loop_complaint

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
        elif complaint == "condition":
            yield from _one_answer(loop)
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
            split.replace(
                value, _as(value, spot, f"{tuple_of(state)}, {rest[0] if len(rest) == 1 else tuple_of(rest)}")
            )
        code = spot.code(value)
        pair = f"{bare(code)}, None"
        whole.replace(value, f"({pair})" if isinstance(loop.body, ast.Lambda) else pair)
    if split:
        yield Change(STATE_AND_REST, split)
    if whole:
        yield Change(STATE_ONLY, whole)


def _as(value: ast.expr, spot: Spot, code: str) -> str:
    """A tuple in brackets where the value stood in some."""
    return f"({code})" if in_brackets(spot.code(value)) else code


def _one_answer(loop: LaxLoop) -> Iterator[Change]:
    """`jnp.any(...)` around a condition with an answer for each element."""
    spot, test = loop.spot, loop.parts.get("test")
    values = returned(spot, definition(spot, test)) if test is not None else []
    for value in values if len(values) == 1 else ():
        for word, title in (
            ("any", "go on while any element asks for it"),
            ("all", "go on while all elements ask"),
        ):
            yield Change(
                title, spot.edits().replace(value, spot.write(f"jnp.{word}($x)", x=value)), sure=False
            )


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
    named = {(w.shape, w.dtype): w.name for w in jax.tree.leaves(want) if w.name and w.shape}
    want = jax.tree.map(lambda w: replace(w, name=w.name or named.get((w.shape, w.dtype), "")), want)
    return OutputWriter(spot).written(start, code, before, want)


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

"""What a loop starts with and what its body gives back: the same structure on both sides."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jitmagic.fixes.rewrite import names, outputs
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.scans import argument_of, loop_name, start_of
from jitmagic.fixes.rewrite.written import Want, Writer, item_of, items_of

BODY = {"scan": (0, "f"), "while_loop": (1, "body_fun"), "fori_loop": (2, "body_fun")}
"""Position and name of the body among the arguments."""


def candidates(place: Place) -> Iterator[Candidate]:
    """A body that gives no pair, a condition that gives no single boolean, a state that comes out otherwise."""
    import libcst as cst

    if place.kind not in ("carry-mismatch", "user-error"):
        return
    for loop in place.on_line(cst.Call):
        name = loop_name(loop)
        if not name:
            continue
        if "must be a pair" in place.message:
            yield from _paired(place, loop)
        elif "must return a boolean scalar" in place.message:
            yield from _one_answer(place, loop)
        elif "pytree structure" in place.message:
            yield from _fitted(place, loop, name)
        if name == "scan":
            yield from _turned_round(place, loop)


def function_of(place: Place, loop: Any, position: int, keyword: str) -> Any:
    """The body (or condition) of a loop where it is written in this cell, or None."""
    given = argument_of(loop, position, keyword)
    return outputs._definition(place, given) if given is not None else None


def _returned(place: Place, function: Any) -> list[Any]:
    import libcst as cst

    if isinstance(function, cst.Lambda):
        return [function.body]
    found = place.cell.own(function, cst.Return) if isinstance(function, cst.FunctionDef) else []
    return [r.value for r in found if r.value is not None]


def _paired(place: Place, loop: Any) -> Iterator[Candidate]:
    """`return carry, None` from the body of a scan."""
    import libcst as cst

    function, start = function_of(place, loop, *BODY["scan"]), start_of(loop)
    changes: dict[Any, str | None] = {}
    if isinstance(start, cst.Tuple):
        for value in _returned(place, function):
            split = _split(place, value, len(start.elements))
            if split is not None:
                changes[value] = split
        if changes:
            yield Candidate("return a pair from the scan's body: its state, and the rest as the result of the turn",
                            place.cell.edit(changes))  # fmt: skip
        changes = {}
    for value in _returned(place, function):
        code = place.cell.code(value)
        bare = isinstance(value, cst.Tuple) and not code.startswith("(")
        pair = f"({code}), None" if bare else f"{code}, None"
        changes[value] = f"({pair})" if isinstance(function, cst.Lambda) else pair
    if changes:
        yield Candidate("return a pair from the scan's body: its state, and no result of the turn",
                        place.cell.edit(changes))  # fmt: skip


def _split(place: Place, value: Any, count: int) -> str | None:
    """`(x, v), x` for `x, v, x` from a body whose state has two parts."""
    import libcst as cst

    if not isinstance(value, cst.Tuple) or len(value.elements) <= count:
        return None
    parts = [place.cell.code(e.value) for e in value.elements]
    state, rest = ", ".join(parts[:count]) + "," * (count == 1), ", ".join(parts[count:])
    pair = f"({state}), {rest if len(parts) == count + 1 else f'({rest})'}"
    return f"({pair})" if place.cell.code(value).startswith("(") else pair


def _one_answer(place: Place, loop: Any) -> Iterator[Candidate]:
    """`jnp.any(...)` around a condition with an answer for each element."""
    function = function_of(place, loop, 0, "cond_fun")
    returned = _returned(place, function)
    if len(returned) == 1:
        code = place.cell.code(returned[0])
        for word, title in (
            ("any", "go on while any element asks for it"),
            ("all", "go on while all elements ask"),
        ):
            yield Candidate(title, place.cell.edit({returned[0]: f"{place.jnp}.{word}({code})"}), "unsafe")


def _turned_round(place: Place, loop: Any) -> Iterator[Candidate]:
    """`return y, carry` from the body of a scan, where the second fits what went in and the first does not."""
    import libcst as cst

    function, start = function_of(place, loop, *BODY["scan"]), start_of(loop)
    returned = _returned(place, function)
    pair = returned[0] if len(returned) == 1 else None
    if start is None or not isinstance(pair, cst.Tuple) or len(pair.elements) != 2:
        return
    trees = place.outputs(_probe(place, loop, "scan", start, parts=2))
    if len(trees) != 3 or not alike(trees[0], trees[2]) or alike(trees[0], trees[1]):
        return
    first, second = (place.cell.code(e.value) for e in pair.elements)
    turned = f"{second}, {first}"
    code = f"({turned})" if place.cell.code(pair).startswith("(") else turned
    title = "return the state first and the result of the turn second"
    yield Candidate(title, place.cell.edit({pair: code}), "unsafe", changes_result=True)


def alike(a: Any, b: Any) -> bool:
    """Two trees of the same structure, shapes and dtypes."""
    import jax

    one, other = jax.tree.leaves(a), jax.tree.leaves(b)
    structures: list[Any] = [jax.tree.structure(v) for v in (a, b)]
    return structures[0] == structures[1] and all(
        (x.shape, x.dtype) == (y.shape, y.dtype) for x, y in zip(one, other, strict=True)
    )


# -- structure


def _fitted(place: Place, loop: Any, name: str) -> Iterator[Candidate]:
    import libcst as cst

    start, function = start_of(loop), function_of(place, loop, *BODY[name])
    returned = _returned(place, function)
    if start is None or len(returned) != 1:
        return
    carry = returned[0]
    if name == "scan":
        if not isinstance(carry, cst.Tuple) or len(carry.elements) != 2:
            return
        carry = carry.elements[0].value
    carry = _bound_once(place, function, carry)
    trees = place.outputs(_probe(place, loop, name, start))
    if len(trees) != 2:
        return
    before, after = trees
    state = _state(function, name)
    changes: dict[Any, str | None] = {}
    completed = _completed(place, function, carry, state, before, after)
    if completed is not None:
        changes[carry] = completed
    else:
        node = _bound_once(place, place.cell.function(loop), start)
        code = place.cell.code(node).strip()
        want = outputs._join([before, after], [outputs._expression(code), None], place)
        if want is None:
            return
        want = _with_names(want, dict(_named(before, outputs._expression(code))))
        writer = Writer(place.jnp)
        new = writer.written(ast.parse(code, mode="eval").body, code, before, want)
        if new is None or new == code:
            return
        changes[node] = new
    title = (
        "give back the whole state from the loop's body"
        if completed is not None
        else "start the loop with everything that its body gives, zeros at first"
    )
    yield Candidate(title, place.cell.edit(changes), "safe" if completed is not None else "unsafe")


def _named(tree: Any, node: ast.expr | None) -> Iterator[tuple[tuple[Any, str], str]]:
    """Names in a display of start values, by the shape and dtype of what they hold."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _named(value, item_of(node, key))
    elif isinstance(tree, (tuple, list)):
        for value, part in zip(tree, items_of(node, len(tree)), strict=True):
            yield from _named(value, part)
    elif isinstance(node, ast.Name) and tree is not None:
        yield (tuple(tree.shape), str(tree.dtype)), node.id


def _with_names(want: Any, known: Mapping[tuple[Any, str], str]) -> Any:
    """The wanted leaves with the name of a start value of the same shape and dtype."""
    if isinstance(want, Want):
        same = known.get((want.shape, want.dtype), "") if want.shape else ""
        return want if want.name else replace(want, name=same)
    if isinstance(want, Mapping):
        return {k: _with_names(v, known) for k, v in want.items()}
    if isinstance(want, (tuple, list)):
        return type(want)(_with_names(v, known) for v in want)
    return want


def _bound_once(place: Place, scope: Any, node: Any) -> Any:
    """The display that a name was assigned in the function, where that happens once; else the node itself."""
    import libcst as cst

    if not isinstance(node, cst.Name) or not isinstance(scope, cst.FunctionDef):
        return node
    assigned = [
        a.value
        for a in place.cell.own(scope, cst.Assign)
        if len(a.targets) == 1 and getattr(a.targets[0].target, "value", None) == node.value
    ]
    displays = (cst.Dict, cst.Tuple, cst.List)
    return assigned[0] if len(assigned) == 1 and isinstance(assigned[0], displays) else node


def _probe(place: Place, loop: Any, name: str, start: Any, parts: int = 1) -> str:
    """The cell with the loop replaced by the question what goes into its body and what comes out.

    `parts`: of the pair that the body of a scan gives, the first or both."""
    code = place.cell.code
    body = f"({code(argument_of(loop, *BODY[name]))})"
    given = f"({code(start)})"
    if name == "scan":
        xs = argument_of(loop, 2, "xs")
        row = f"{place.jax}.tree.map(lambda v: v[0], {code(xs) if xs is not None else 'None'})"
        outs = [f"lambda s, x: {body}(s, x)[{i}]" for i in range(parts)]
        functions, operands = f"[lambda s, x: s, {', '.join(outs)}]", f"{given}, {row}"
    elif name == "fori_loop":
        low = code(argument_of(loop, 0, "lower"))
        functions, operands = f"[lambda s: s, lambda s: {body}({low}, s)]", given
    else:
        functions, operands = f"[lambda s: s, {body}]", given
    return place.cell.edit({loop: f"__outputs({functions}, {operands})"})


def _state(function: Any, name: str) -> str:
    """The body's parameter for the state."""
    position = 1 if name == "fori_loop" else 0
    parameters = [p.name.value for p in function.params.params]
    return parameters[position] if len(parameters) > position else ""


def _completed(place: Place, function: Any, carry: Any, state: str, before: Any, after: Any) -> str | None:
    """What the body returns with the parts of the state that it leaves out, or as the type that went in."""
    import libcst as cst

    code = place.cell.code(carry).strip()
    if isinstance(before, Mapping) and isinstance(after, Mapping) and state:
        left = [k for k in before if k not in after]
        if not left or any(k not in before for k in after):
            return None
        more = ", ".join(f"{_key(k)}: {state}[{_key(k)}]" for k in left)
        if isinstance(carry, cst.Dict):
            return f"{code[:-1].rstrip().rstrip(',')}, {more}}}"
        return f"{{**{names.wrapped(code)}, {more}}}"
    if hasattr(before, "_fields") and type(after) is tuple and len(before) == len(after):
        inside = code[1:-1] if isinstance(carry, cst.Tuple) and code.startswith("(") else code
        return f"{type(before).__name__}({inside if isinstance(carry, cst.Tuple) else '*' + code})"
    plain = type(before) in (tuple, list) and type(after) in (tuple, list)
    if plain and len(before) == len(after):
        kind = type(before)
        if kind is type(after):
            return None
        if isinstance(carry, (cst.Tuple, cst.List)):
            inside = ", ".join(place.cell.code(e.value) for e in carry.elements)
            comma = "," if len(before) == 1 else ""
            return f"[{inside}]" if kind is list else f"({inside}{comma})"
        return f"{kind.__name__}({code})"
    return _lengthened(place, function, carry, state, before, after)


def _lengthened(place: Place, function: Any, carry: Any, state: str, before: Any, after: Any) -> str | None:
    """`return x, v` after `x, v, t = state` as `return x, v, t`."""
    import libcst as cst

    if not isinstance(before, tuple) or not isinstance(function, cst.FunctionDef):
        return None
    count = len(after) if isinstance(after, tuple) else 1
    if not 0 < count < len(before):
        return None
    for node in place.cell.own(function, cst.Assign):
        target = node.targets[0].target
        if getattr(node.value, "value", None) == state and isinstance(target, cst.Tuple):
            own = [getattr(e.value, "value", "") for e in target.elements]
            given = (
                [place.cell.code(e.value) for e in carry.elements]
                if isinstance(carry, cst.Tuple)
                else [place.cell.code(carry)]
            )
            if len(own) == len(before) and len(given) == count and given == own[:count]:
                return f"({', '.join(own)})"
    return None


def _key(key: Any) -> str:
    return f'"{key}"' if isinstance(key, str) else repr(key)

"""Stores into arrays: `x[i] = v` as `x = x.at[i].set(v)`, and what numpy changes in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from jitmagic.fixes.rewrite import dropped, names
from jitmagic.fixes.rewrite.buffers import buffers, made_by_jax, numpy_calls
from jitmagic.fixes.rewrite.handed_back import first_statement, unreturned, with_return
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.stored import TITLE, base_and_index, by_mask, rebinding
from jitmagic.rules.words import listed


def _is_mask(place: Place, node: Any) -> bool:
    """A run without jit has shown booleans as this index."""
    import libcst as cst

    if not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)):
        return False
    seen = place.probe(place.cell.edit({node: f"__seen({place.cell.code(node)})"}))
    return bool(seen) and all(s.dtype == "bool" and s.shape for s in seen)


# -- candidates


def candidates(place: Place) -> Iterator[Candidate]:
    """Stores into an array that cannot be changed in place."""
    import libcst as cst

    lines = [n for n in place.path if isinstance(n, cst.SimpleStatementLine)] or place.on_line(
        cst.SimpleStatementLine
    )
    if place.kind in ("in-place-update", "unused-result"):
        yield from _discarded(place, lines)
        yield from dropped.candidates(place, lines)
        yield from unreturned(place)
        yield from _sorted_in_place(place, lines)
        yield from _through_a_view(place, lines)
    stores = place.kind in (
        "in-place-update",
        "tracer-array-conversion",
        "dynamic-shape",
        "tracer-int",
        "user-error",
    )
    if not stores or place.outermost is None or not lines:
        return
    yield from numpy_calls(place, lines[0])
    yield from _listed(place)
    yield from _masked_at(place)
    target = _stored_base(place, lines[0])
    if target is None or place.innermost is None:
        if place.kind == "user-error" and "has no attribute 'at'" in place.message:
            yield from buffers(place, lines[0])
        return
    yield from _stores(place, target)


def _masked_at(place: Place) -> Iterator[Candidate]:
    """`x.at[mask].set(y[mask])` as `jnp.where(mask, y, x)`."""
    import libcst as cst

    for call in place.on_line(cst.Call):
        function = call.func
        if not isinstance(function, cst.Attribute) or not isinstance(function.value, cst.Subscript):
            continue
        at = function.value.value
        if not isinstance(at, cst.Attribute) or at.attr.value != "at" or len(call.args) != 1:
            continue
        index = "".join(place.cell.code(e) for e in function.value.slice).strip()
        method = function.attr.value
        if method not in ("set", "add", "multiply", "divide", "power"):
            continue
        piece = function.value.slice[0].slice
        seen = len(function.value.slice) == 1 and _is_mask(place, getattr(piece, "value", None))
        value = place.cell.code(call.args[0].value)
        new = by_mask(place, place.cell.code(at.value), index, method, value, seen=seen)
        if new is not None:
            yield Candidate(
                "choose with `jnp.where` in place of an update by mask", place.cell.edit({call: new})
            )


def _listed(place: Place) -> Iterator[Candidate]:
    """`x[[i, j]]`, which jax does not take as an index, with an array of the list."""
    import libcst as cst

    if place.kind != "user-error" or "non-tuple sequence" not in place.message or place.outermost is None:
        return
    changes: dict[Any, str | None] = {}
    for subscript in place.cell.within(place.outermost, cst.Subscript):
        for piece in subscript.slice:
            if isinstance(piece.slice, cst.Index) and isinstance(piece.slice.value, cst.List):
                changes[piece.slice.value] = f"{place.jnp}.array({place.cell.code(piece.slice.value)})"
    if changes:
        yield Candidate("index with an array in place of a list", place.cell.edit(changes))


def _stored_base(place: Place, line: Any) -> str | None:
    import libcst as cst

    small = line.body[0]
    if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Tuple):
        elements = small.targets[0].target.elements
        bases = {base_and_index(place, e.value)[0] for e in elements if isinstance(e.value, cst.Subscript)}
        return bases.pop() if len(bases) == 1 else None
    if isinstance(small, cst.Assign) and len(small.targets) > 1:
        targets = [t.target for t in small.targets]
        bases = {base_and_index(place, t)[0] for t in targets if isinstance(t, cst.Subscript)}
        return bases.pop() if len(bases) == 1 else None
    found = rebinding(place, small)
    return found[0] if found else None


def _stores(place: Place, base: str) -> Iterator[Candidate]:
    """All stores into this name in the function, and the numpy buffer that it starts as."""
    import libcst as cst

    function = place.innermost
    changes: dict[Any, str | None] = {}
    for line in place.cell.own(function, cst.SimpleStatementLine):
        if len(line.body) != 1:
            continue
        swapped = _tuple_store(place, line.body[0], base) or _chained_store(place, line.body[0], base)
        if swapped is not None:
            changes[line] = swapped
            continue
        new = rebinding(place, line.body[0])
        if new is not None and new[0] == base:
            changes[line] = f"{base} = {new[1]}\n"
    if not changes:
        return
    if _of_enclosing(place, function, base):
        head = first_statement(place, function)
        changes[head] = f"nonlocal {base}\n{changes.get(head) or place.cell.code(head)}"
    makers = made_by_jax(place, function, base)
    if makers:
        yield Candidate(TITLE, place.cell.edit({**changes, **makers}))
    view = _view(place, function, base)
    wrapped = _asarray(place, function, base, changes, view[0] if view else "")
    forms = [changes] if wrapped is None else [changes, wrapped]
    if _is_numpy(place, base) or view is not None and _is_numpy(place, view[0]):
        forms.reverse()
    if not makers:
        yield from (Candidate(TITLE, place.cell.edit(form)) for form in forms)
    if not makers and "." in base:  # an attribute that was given a NumPy array elsewhere
        array = f"{place.jnp}.asarray({base})"
        each = {n: (new or "").replace(f"= {base}.at", f"= {array}.at", 1) for n, new in changes.items()}
        yield Candidate(TITLE, place.cell.edit({**changes, **each}))
    if view is not None:
        yield from _put_back(place, base, *view, forms[0])
    yield from with_return(place, function, base, {**changes, **makers})
    yield from _replaced_field(place, function, base, changes)
    if _of_outside(place, function, base):
        path = place.from_outside(base)
        yield Candidate(f"{TITLE}, and `{path}` dynamic", place.cell.edit(changes), "unsafe", dyn=(path,))


def _replaced_field(
    place: Place, function: Any, base: str, changes: dict[Any, str | None]
) -> Iterator[Candidate]:
    """`ring.buf[i] = v` in a NamedTuple that was passed, whose fields cannot be bound anew."""
    root, _, name = base.partition(".")
    if not name.isidentifier() or root not in {p.name.value for p in function.params.params}:
        return
    if all((new or "").startswith(f"{base} = ") for new in changes.values()):
        array = f"{place.jnp}.asarray({base})"
        new = {
            line: f"{root} = {root}._replace({name}={(new or '')[len(f'{base} = ') :].rstrip()})\n".replace(
                f"={base}.at", f"={array}.at"
            )
            for line, new in changes.items()
        }
        yield Candidate(f"{TITLE}, in a new `{root}`", place.cell.edit(new))


def _start(place: Place, function: Any, base: str) -> Any:
    """The expression that the function once assigns to a name, or None."""
    import libcst as cst

    starts = [
        a.value for a in place.cell.own(function, cst.Assign)
        if any(place.cell.code(t.target) == base for t in a.targets)
    ]  # fmt: skip
    return starts[0] if len(starts) == 1 else None


def _view(place: Place, function: Any, base: str) -> tuple[str, str] | None:
    """`grid` and `0` where the function starts `row` as `row = grid[0]`."""
    import libcst as cst

    start = _start(place, function, base)
    whole, index = base_and_index(place, start) if isinstance(start, cst.Subscript) else (None, "")
    return (whole, index) if whole and index else None


def _put_back(
    place: Place, base: str, whole: str, index: str, changes: dict[Any, str | None]
) -> Iterator[Candidate]:
    """What is stored into `row` is put into `grid` too, as NumPy does where one is a view of the other."""
    back = f"{whole} = {place.jnp}.asarray({whole}).at[{index}].set({base})\n"
    cell = place.cell.edit({line: f"{new}{back}" for line, new in changes.items()})
    yield Candidate(f"{TITLE}, and put `{base}` back into `{whole}`", cell)


def _of_enclosing(place: Place, function: Any, base: str) -> bool:
    """A variable of the function around this one, which a new array cannot be bound to as it stands."""
    import libcst as cst

    def bound(node: Any) -> set[str]:
        declared = [n.name.value for s in place.cell.own(node, cst.Nonlocal) for n in s.names]
        stored = names.stores("\n".join(place.cell.code(s) for s in node.body.body))
        return {*stored, *declared, *(p.name.value for p in node.params.params)}

    outer = place.cell.function(function)
    return outer is not None and base not in bound(function) and base in bound(outer)


def _of_outside(place: Place, function: Any, base: str) -> bool:
    """`self.buf`, or an attribute or a declared name of the notebook: its new value has to come out."""
    import libcst as cst

    root = base.partition(".")[0].partition("[")[0]
    shared = {n.name.value for s in place.cell.own(function, cst.Global) for n in s.names}
    own = {p.name.value for p in function.params.params}
    stored = set(names.stores("\n".join(place.cell.code(s) for s in function.body.body)))
    return root == "self" or root in shared or (base != root and root not in own | stored)


def _tuple_store(place: Place, small: Any, base: str) -> str | None:
    """`x[i], x[j] = a, b` as one chain; the right side is read before."""
    import libcst as cst

    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    target, value = small.targets[0].target, small.value
    if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
        return None
    if len(target.elements) != len(value.elements):
        return None
    text = base
    for t, v in zip(target.elements, value.elements, strict=True):
        name, index = base_and_index(place, t.value)
        if name != base or not isinstance(t.value, cst.Subscript):
            return None
        text += f".at[{index}].set({place.cell.code(v.value)})"
    return f"{base} = {text}\n"


def _chained_store(place: Place, small: Any, base: str) -> str | None:
    """`x[i] = x[j] = v` as an update each; a value that is no constant is computed once."""
    import libcst as cst

    if not isinstance(small, cst.Assign) or len(small.targets) < 2:
        return None
    value, text, head = place.cell.code(small.value), base, ""
    if not names.constant(value) and not value.isidentifier():
        own = names.fresh("value", place.taken)
        value, head = own, f"{own} = {value}\n"
    for target in small.targets:
        name, index = base_and_index(place, target.target)
        if name != base or not isinstance(target.target, cst.Subscript):
            return None
        text += f".at[{index}].set({value})"
    return f"{head}{base} = {text}\n"


def _asarray(
    place: Place, function: Any, base: str, changes: dict[Any, str | None], whole: str
) -> dict[Any, str | None] | None:
    """The first store begins with `jnp.asarray(base)`, which also takes numpy arrays and views (of `whole`)."""
    given = {p.name.value for p in (*function.params.params, *function.params.kwonly_params)}
    if not {base, whole} & given and not _is_numpy(place, base):
        return None
    first = next(iter(changes))
    array = f"{place.jnp}.asarray({base})"
    block, _ = place.cell.siblings(first)
    text = changes[first] or ""
    at_top = block is function.body or base.endswith("]")
    if (at_top or base not in given) and text.startswith(f"{base} = {base}.at"):
        return {**changes, first: text.replace(f"= {base}.at", f"= {array}.at", 1)}
    head = first_statement(place, function)
    old = changes.get(head) or place.cell.code(head)
    return {**changes, head: f"{base} = {array}\n{old}"}


def _is_numpy(place: Place, base: str) -> bool:
    """A call passed a NumPy array as this, or as an entry of this dict or list."""
    path = base.replace('"', "'")
    by_name = path.endswith("]") and "'" not in path
    entry = re.compile(rf"{re.escape(path.rpartition('[')[0])}\[('|\d+\])") if by_name else None
    return any(p == path or entry is not None and entry.match(p) for p in place.numpy_arguments)


def _discarded(place: Place, lines: Sequence[Any]) -> Iterator[Candidate]:
    """`x.at[i].set(v)` as a statement of its own changes nothing: bind the result."""
    import libcst as cst

    around = (
        place.cell.own(place.innermost, cst.SimpleStatementLine) if place.innermost is not None else lines
    )
    changes: dict[Any, str | None] = {}
    bases: list[str] = []
    for line in around:
        for small in line.body:
            if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
                continue
            code = place.cell.code(small.value)
            base, at, _ = code.partition(".at[")
            bound = _bound_anew(place, base, code) if at and "(" not in base else None
            if bound is not None:
                changes[small] = bound
                bases.append(base)
    if any(line in around and any(s in changes for s in line.body) for line in lines):
        yield Candidate(f"bind the new array to {listed(dict.fromkeys(bases))} again", place.cell.edit(changes),
                        "safe", changes_result=True)  # fmt: skip


def _bound_anew(place: Place, base: str, code: str) -> str | None:
    """`x = ...`, and `p = {**p, 'w': ...}` for an entry of an argument, whose caller's dict stays as it is."""
    import libcst as cst

    root, _, entry = base.partition("[")
    function = place.innermost
    given = {p.name.value for p in place.cell.within(function.params, cst.Param)} if function else set()
    if not entry or root.partition(".")[0] not in given:
        return f"{base} = {code}"
    key = entry.removesuffix("]")
    return f"{root} = {{**{root}, {key}: {code}}}" if key[:1] in "'\"" and "[" not in key else None


def _sorted_in_place(place: Place, lines: Sequence[Any]) -> Iterator[Candidate]:
    """`x.sort()` as `x = jnp.sort(x)`."""
    import libcst as cst

    for small in (s for line in lines for s in line.body):
        call = small.value if isinstance(small, cst.Expr) else None
        if (
            isinstance(call, cst.Call)
            and isinstance(call.func, cst.Attribute)
            and call.func.attr.value == "sort"
        ):
            base = place.cell.code(call.func.value)
            arguments = ", ".join([base, *(place.cell.code(a).rstrip(", ") for a in call.args)])
            cell = place.cell.edit({small: f"{base} = {place.jnp}.sort({arguments})"})
            yield Candidate(f"bind the sorted array to `{base}` again", cell)


def _through_a_view(place: Place, lines: Sequence[Any]) -> Iterator[Candidate]:
    """`col *= s` of `col = m[:, 0]`, or of `col = m`, puts the new array into `m` too."""
    import libcst as cst

    function = place.innermost
    for small in (s for line in lines for s in line.body if function is not None):
        if not isinstance(small, cst.AugAssign) or not isinstance(small.target, cst.Name):
            continue
        base = small.target.value
        updates = [
            line for line in place.cell.own(function, cst.SimpleStatementLine)
            if isinstance(line.body[0], cst.AugAssign) and place.cell.code(line.body[0].target) == base
        ]  # fmt: skip
        view, same = _view(place, function, base), _start(place, function, base)
        if view is not None:
            yield from _put_back(place, base, *view, {line: f"{place.cell.code(line)}" for line in updates})
        elif isinstance(same, cst.Name):
            cell = place.cell.edit({u: f"{place.cell.code(u)}{same.value} = {base}\n" for u in updates})
            yield Candidate(f"bind the new array to `{same.value}` too", cell)

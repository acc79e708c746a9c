"""Buffers of NumPy that a function fills, and NumPy's functions that write in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.stored import TITLE

MAKERS = frozenset(
    "zeros ones empty full zeros_like ones_like empty_like full_like array asarray arange linspace eye copy "
    "identity tile repeat concatenate stack".split()
)


def made_by_jax(place: Place, function: Any, base: str) -> dict[Any, str | None]:
    """`base = np.zeros(...)` in the function as `jnp.zeros(...)`, and `x.copy()` as `jnp.array(x)`; `self.x` in any
    method of its class."""
    import libcst as cst

    changes: dict[Any, str | None] = {}
    scope = _class_of(place, function, base) or place.outermost or function
    for assign in place.cell.within(scope, cst.Assign):
        if not any(place.cell.code(t.target) == base for t in assign.targets):
            continue
        value = assign.value
        if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
            if isinstance(value, (cst.List, cst.ListComp)) or (
                isinstance(value, cst.BinaryOperation) and isinstance(value.left, cst.List)
            ):
                changes[value] = f"{place.jnp}.array({place.cell.code(value)})"
            continue
        root, name = place.cell.code(value.func.value), value.func.attr.value
        if place.modules.get(root) == "numpy" and name in MAKERS:
            changes[value.func] = f"{place.jnp}.{name}"
        elif name == "copy" and not value.args:
            changes[value] = f"{place.jnp}.array({root})"
    return changes


def _class_of(place: Place, function: Any, base: str) -> Any:
    """The class of a method that stores into an attribute of its receiver, or None."""
    import libcst as cst

    receiver, _, attribute = base.partition(".")
    first = function.params.params[:1]
    if not attribute or not first or first[0].name.value != receiver:
        return None
    block = place.cell.parents.get(function)
    kind = place.cell.parents.get(block)
    return kind if isinstance(kind, cst.ClassDef) else None


_NUMPY_IN_PLACE = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "maximum": "max",
    "minimum": "min",
}


def numpy_calls(place: Place, line: Any) -> Iterator[Candidate]:
    """`np.add.at(x, i, v)`, `x.fill(v)`, `x.sort()`, `np.fill_diagonal(x, v)`, `np.f(..., out=x)`."""
    import libcst as cst

    small = line.body[0]
    if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
        return
    call, code, jnp = small.value, place.cell.code, place.jnp
    function = code(call.func)
    arguments = [code(a.value) for a in call.args if a.keyword is None]
    keywords = {a.keyword.value: code(a.value) for a in call.args if a.keyword is not None}
    root, _, rest = function.partition(".")
    new = ""
    if place.modules.get(root) == "numpy":
        name, _, method = rest.partition(".")
        if method == "at" and name in _NUMPY_IN_PLACE and len(arguments) == 3:
            x, i, v = arguments
            new = f"{x} = {x}.at[{i}].{_NUMPY_IN_PLACE[name]}({v})"
        elif name == "fill_diagonal" and len(arguments) == 2:
            new = f"{arguments[0]} = {jnp}.fill_diagonal({arguments[0]}, {arguments[1]}, inplace=False)"
        elif name == "copyto" and len(arguments) == 2:
            x, v = arguments
            mask = keywords.get("where")
            new = (
                f"{x} = {jnp}.where({mask}, {v}, {x})"
                if mask
                else f"{x} = {jnp}.broadcast_to({v}, {x}.shape)"
            )
        elif name == "put" and len(arguments) == 3:
            x, i, v = arguments
            new = f"{x} = {jnp}.put({x}, {i}, {v}, inplace=False)"
        elif "out" in keywords:
            x, computed, mask = (
                keywords["out"],
                f"{jnp}.{rest}({', '.join(arguments)})",
                keywords.get("where"),
            )
            new = f"{x} = {jnp}.where({mask}, {computed}, {x})" if mask else f"{x} = {computed}"
    elif function.endswith(".fill") and len(arguments) == 1:
        x = function.removesuffix(".fill")
        new = f"{x} = {jnp}.full_like({x}, {arguments[0]})"
    elif function.endswith(".sort") and not arguments:
        x = function.removesuffix(".sort")
        new = f"{x} = {jnp}.sort({x})"
    if new:
        base = new.partition(" =")[0]
        makers = made_by_jax(place, place.innermost, base) if place.innermost is not None else {}
        yield Candidate(TITLE, place.cell.edit({**makers, small: new}))
        wrapped = new.replace(f"= {base}.at", f"= {jnp}.asarray({base}).at", 1)
        if wrapped != new:
            yield Candidate(TITLE, place.cell.edit({**makers, small: wrapped}))


def buffers(place: Place, line: Any) -> Iterator[Candidate]:
    """A numpy array that has no `.at`: make it with jnp, or turn it into a jax array here."""
    import libcst as cst

    for node in place.cell.within(line, cst.Attribute):
        if node.attr.value == "at" and isinstance(node.value, cst.Name):
            makers = made_by_jax(place, place.innermost, node.value.value)
            if makers:
                yield Candidate(TITLE, place.cell.edit(makers))
            yield Candidate(TITLE, place.cell.edit({node.value: f"{place.jnp}.asarray({node.value.value})"}))

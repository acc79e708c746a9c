"""Stores into arrays: `x[i] = v` as `x = x.at[i].set(v)`, and what numpy changes in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jitmagic.fixes.rewrite import cells, names
from jitmagic.fixes.rewrite.place import Candidate, Place

METHODS = {"+": "add", "-": "add", "*": "multiply", "/": "divide", "**": "power"}
MAKERS = frozenset(
    "zeros ones empty full zeros_like ones_like empty_like full_like array asarray arange linspace eye copy "
    "identity tile repeat concatenate stack".split()
)
TITLE = "update with `.at[...]`, which gives a new array"


def rebinding(place: Place, small: Any, *, array: str = "") -> tuple[str, str] | None:
    """`x[i] = v` (or `+=`) as the name and its new value; None for another statement."""
    import libcst as cst

    code = place.cell.code
    if isinstance(small, cst.Assign):
        if len(small.targets) != 1 or not isinstance(small.targets[0].target, cst.Subscript):
            return None
        target, method, value = small.targets[0].target, "set", code(small.value)
    elif isinstance(small, cst.AugAssign) and isinstance(small.target, cst.Subscript):
        sign = code(small.operator).strip().removesuffix("=")
        target, value = small.target, code(small.value)
        method = METHODS.get(sign, "")
        if sign == "-":
            value = f"-{names.wrapped(value)}"
        elif not method:
            method, value = "set", f"{code(target)} {sign} {names.wrapped(value)}"
    else:
        return None
    base, index = _base_and_index(place, target)
    if base is None:
        return None
    masked = _masked(place, base, index, method, value)
    if masked is not None:
        return base, masked
    start = array.format(base) if array else base
    return base, f"{start}.at[{index}].{method}({value})"


def _base_and_index(place: Place, target: Any) -> tuple[str | None, str]:
    """`x[i][j]` as `x` and `i, j`; the base is a name or a dotted name."""
    import libcst as cst

    indices: list[str] = []
    node = target
    while isinstance(node, cst.Subscript) and not _is_text(node):
        indices.insert(0, "".join(place.cell.code(e) for e in node.slice).strip().rstrip(","))
        node = node.value
    if isinstance(node, cst.Name):
        return node.value, ", ".join(indices)
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
        return place.cell.code(node), ", ".join(indices)
    if indices and isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name):
        return place.cell.code(node), ", ".join(indices)
    return None, ""


def _is_text(node: Any) -> bool:
    """`params["w"]`: an entry of a dict, not of an array."""
    import libcst as cst

    index = node.slice[0].slice
    return len(node.slice) == 1 and isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString)


def _is_mask(place: Place, node: Any) -> bool:
    """A run without jit has shown booleans as this index."""
    import libcst as cst

    if not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)):
        return False
    seen = place.probe(place.cell.edit({node: f"__seen({place.cell.code(node)})"}))
    return bool(seen) and all(s.dtype == "bool" and s.shape for s in seen)


def _masked(
    place: Place, base: str, index: str, method: str, value: str, *, seen: bool = False
) -> str | None:
    """`x[mask] = f(x[mask])` as `jnp.where(mask, f(x), x)`."""
    import ast

    import libcst as cst

    from jitmagic.fixes.rewrite.conditions import is_boolean

    try:
        node = cst.parse_expression(index)
    except Exception:
        return None
    if isinstance(node, cst.Tuple):
        return None
    inverted = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert)
    if not seen and not is_boolean(place, node) and not inverted:
        return None
    text = ast.unparse(ast.parse(index, mode="eval").body)
    new = _without_mask(value, text)
    if new is None:
        return None
    if method == "set":
        return f"{place.jnp}.where({index}, {new}, {base})"
    if method == "add":
        plus = (
            f"{base} - {names.wrapped(new[1:])}" if new.startswith("-") else f"{base} + {names.wrapped(new)}"
        )
        return f"{place.jnp}.where({index}, {plus}, {base})"
    sign = {"multiply": "*", "divide": "/", "power": "**"}[method]
    return f"{place.jnp}.where({index}, {base} {sign} {names.wrapped(new)}, {base})"


def _without_mask(value: str, mask: str) -> str | None:
    """The value with each `y[mask]` as `y`; None where another index is left that may be ragged."""
    import ast

    import libcst as cst

    tree = cst.parse_expression(value)
    module = cst.Module(body=[])

    class Drop(cst.CSTTransformer):
        def leave_Subscript(self, original_node: Any, updated_node: Any) -> Any:
            inside = "".join(module.code_for_node(e) for e in original_node.slice)
            try:
                same = ast.unparse(ast.parse(inside.strip(), mode="eval").body) == mask
            except SyntaxError:
                same = False
            return updated_node.value if same else updated_node

    dropped: Any = tree.visit(Drop())
    return module.code_for_node(dropped)


def with_rebindings(place: Place, statements: Sequence[Any], *, array: str = "") -> str:
    """Source of statements in which stores into items of a name rebind the name."""
    import libcst as cst

    out = ""
    for statement in statements:
        text = place.cell.module.code_for_node(statement)
        if isinstance(statement, cst.If) and text.lstrip().startswith("elif"):
            text = text.lstrip()[2:]
        smalls = [
            s for line in place.cell.own(statement, cst.SimpleStatementLine) for s in line.body
            if len(line.body) == 1
        ] if not isinstance(statement, cst.FunctionDef) else []  # fmt: skip
        for small in smalls:
            new = rebinding(place, small, array=array)
            if new is not None:
                old = place.cell.code(small)
                text = text.replace(old, f"{new[0]} = {new[1]}", 1)
        out += text if text.endswith("\n") else text + "\n"
    return out


# -- candidates


def candidates(place: Place) -> Iterator[Candidate]:
    """Stores into an array that cannot be changed in place."""
    import libcst as cst

    lines = [n for n in place.path if isinstance(n, cst.SimpleStatementLine)] or place.on_line(
        cst.SimpleStatementLine
    )
    if place.kind in ("in-place-update", "unused-result"):
        yield from _discarded(place, lines)
        yield from _unreturned(place)
    stores = place.kind in (
        "in-place-update",
        "tracer-array-conversion",
        "dynamic-shape",
        "tracer-int",
        "user-error",
    )
    if not stores or place.outermost is None or not lines:
        return
    yield from _numpy_calls(place, lines[0])
    yield from _listed(place)
    yield from _masked_at(place)
    target = _stored_base(place, lines[0])
    if target is None or place.innermost is None:
        if place.kind == "user-error" and "has no attribute 'at'" in place.message:
            yield from _buffers(place, lines[0])
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
        new = _masked(place, place.cell.code(at.value), index, method, value, seen=seen)
        if new is not None:
            yield Candidate(
                "choose with jnp.where in place of an update by mask", place.cell.edit({call: new})
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
        bases = {_base_and_index(place, e.value)[0] for e in elements if isinstance(e.value, cst.Subscript)}
        return bases.pop() if len(bases) == 1 else None
    if isinstance(small, cst.Assign) and len(small.targets) > 1:
        targets = [t.target for t in small.targets]
        bases = {_base_and_index(place, t)[0] for t in targets if isinstance(t, cst.Subscript)}
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
    makers = _makers(place, function, base)
    if makers:
        yield Candidate(TITLE, place.cell.edit({**changes, **makers}))
    wrapped = _asarray(place, function, base, changes)
    plain = place.cell.edit(changes)
    if not makers:
        numpy = base.replace('"', "'") in place.numpy_arguments
        if numpy and wrapped is not None:
            yield Candidate(TITLE, wrapped)
        yield Candidate(TITLE, plain)
        if not numpy and wrapped is not None:
            yield Candidate(TITLE, wrapped)
    yield from _with_return(place, function, base, {**changes, **makers})
    if _of_outside(place, function, base):
        path = place.from_outside(base)
        yield Candidate(f"{TITLE}, and {path} dynamic", plain, "unsafe", dyn=(path,))


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
        name, index = _base_and_index(place, t.value)
        if name != base or not isinstance(t.value, cst.Subscript):
            return None
        text += f".at[{index}].set({place.cell.code(v.value)})"
    return f"{base} = {text}\n"


def _chained_store(place: Place, small: Any, base: str) -> str | None:
    """`x[i] = x[j] = v` as an update each, where the value may be written twice."""
    import libcst as cst

    if not isinstance(small, cst.Assign) or len(small.targets) < 2:
        return None
    value, text = place.cell.code(small.value), base
    if not names.constant(value):
        return None
    for target in small.targets:
        name, index = _base_and_index(place, target.target)
        if name != base or not isinstance(target.target, cst.Subscript):
            return None
        text += f".at[{index}].set({value})"
    return f"{base} = {text}\n"


def _makers(place: Place, function: Any, base: str) -> dict[Any, str | None]:
    """`base = np.zeros(...)` in the function as `jnp.zeros(...)`, and `x.copy()` as `jnp.array(x)`."""
    import libcst as cst

    changes: dict[Any, str | None] = {}
    scope = place.outermost or function
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


def _asarray(place: Place, function: Any, base: str, changes: dict[Any, str | None]) -> str | None:
    """The first store begins with `jnp.asarray(base)`, which also takes numpy arrays."""
    given = {p.name.value for p in (*function.params.params, *function.params.kwonly_params)}
    if base not in given and base.replace('"', "'") not in place.numpy_arguments:
        return None
    first = next(iter(changes))
    array = f"{place.jnp}.asarray({base})"
    block, _ = place.cell.siblings(first)
    text = changes[first] or ""
    if block is function.body and text.startswith(f"{base} = {base}.at"):
        return place.cell.edit({**changes, first: text.replace(f"= {base}.at", f"= {array}.at", 1)})
    head = _first_statement(place, function)
    old = changes.get(head) or place.cell.code(head)
    return place.cell.edit({**changes, head: f"{base} = {array}\n{old}"})


def _first_statement(place: Place, function: Any) -> Any:
    import libcst as cst

    body = list(function.body.body)
    first = body[0]
    if len(body) > 1 and isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr):
        if isinstance(first.body[0].value, (cst.SimpleString, cst.ConcatenatedString)):
            return body[1]
    return first


def _with_return(
    place: Place, function: Any, base: str, changes: dict[Any, str | None]
) -> Iterator[Candidate]:
    """A function that only changes its argument returns it instead, and the calls bind it anew."""
    import libcst as cst

    parameters = [p.name.value for p in function.params.params]
    if base not in parameters or place.cell.own(function, cst.Return) or function is not place.outermost:
        return
    last, head = function.body.body[-1], _first_statement(place, function)
    for lead in ("", f"{base} = {place.jnp}.asarray({base})\n"):
        both = {s: changes.get(s) or place.cell.code(s) for s in (head, last)}
        if lead:
            both[head] = lead + both[head]
        both[last] = f"{both[last].rstrip()}\nreturn {base}\n"
        yield from _returning(place, function, base, place.cell.edit({**changes, **both}))


def _returning(place: Place, function: Any, base: str, text: str) -> Iterator[Candidate]:
    position = [p.name.value for p in function.params.params].index(base)
    yield Candidate(f"return {base}, and bind it again where the function is called",
                    _rebound_inside(text, function.name.value, base, position), "unsafe",
                    "the caller's own array stays as it is", _rebound_calls(place, base, position),
                    changes_result=True)  # fmt: skip


def _rebound_inside(cell: str, function: str, base: str, position: int) -> str:
    """The cell with its own calls that stand alone, `f(a)`, as `a = f(a)`."""
    import ast

    from jitmagic.fixes.silent.text import Text

    text = Text(cells.masked(cell))
    for statement in (n for n in ast.walk(text.tree) if isinstance(n, ast.Expr)):
        call = statement.value
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != function:
            continue
        argument = _argument(call, base, position)
        if isinstance(argument, ast.Name):
            text.replace(statement, f"{argument.id} = {text.code(statement)}")
    return cells.unmasked(text.result())


def _argument(call: Any, base: str, position: int) -> Any:
    given = {k.arg: k.value for k in call.keywords}
    return given.get(base) or (call.args[position] if position < len(call.args) else None)


def _rebound_calls(place: Place, base: str, position: int) -> tuple[str, ...] | None:
    """`f(a)` as `a = f(a)`, where the argument is a name."""
    import ast

    out = []
    for source in place.calls:
        try:
            node = ast.parse(source, mode="eval").body
        except SyntaxError:
            return None
        if not isinstance(node, ast.Call):
            return None
        argument = _argument(node, base, position)
        out.append(f"{argument.id} = {source}" if isinstance(argument, ast.Name) else source)
    return tuple(out) or None


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
            if at and all(part.isidentifier() for part in base.split(".")):
                changes[small] = f"{base} = {code}"
                bases.append(base)
    if any(line in around and any(s in changes for s in line.body) for line in lines):
        yield Candidate(f"bind the new array to {' and '.join(dict.fromkeys(bases))} again", place.cell.edit(changes),
                        "safe", changes_result=True)  # fmt: skip


def _unreturned(place: Place) -> Iterator[Candidate]:
    """A function that binds its parameter anew and returns nothing has changed nothing."""
    import libcst as cst

    function = place.outermost
    if function is None or place.cell.own(function, cst.Return):
        return
    parameters = [p.name.value for p in function.params.params]
    stored = {
        n for n in names.stores("\n".join(place.cell.code(s) for s in function.body.body)) if n in parameters
    }
    stored |= {n for n in _taking_in(place, function) if n in parameters}
    if len(stored) == 1:
        (name,) = stored
        yield from _with_return(place, function, name, {})


def _taking_in(place: Place, function: Any) -> Iterator[str]:
    """Names of dicts and lists into which the function stores."""
    import libcst as cst

    for subscript in place.cell.own(function, cst.Subscript):
        target = place.cell.parents[subscript]
        if isinstance(target, cst.AssignTarget) or getattr(target, "target", None) is subscript:
            node = subscript
            while isinstance(node, cst.Subscript):
                node = node.value
            yield getattr(node, "value", "")
    for call in place.cell.own(function, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("append", "extend", "update"):
            yield getattr(call.func.value, "value", "")


_NUMPY_IN_PLACE = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "maximum": "max",
    "minimum": "min",
}


def _numpy_calls(place: Place, line: Any) -> Iterator[Candidate]:
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
            new = f"{keywords['out']} = {jnp}.{rest}({', '.join(arguments)})"
    elif function.endswith(".fill") and len(arguments) == 1:
        x = function.removesuffix(".fill")
        new = f"{x} = {jnp}.full_like({x}, {arguments[0]})"
    elif function.endswith(".sort") and not arguments:
        x = function.removesuffix(".sort")
        new = f"{x} = {jnp}.sort({x})"
    if new:
        base = new.partition(" =")[0]
        makers = _makers(place, place.innermost, base) if place.innermost is not None else {}
        yield Candidate(TITLE, place.cell.edit({**makers, small: new}))
        wrapped = new.replace(f"= {base}.at", f"= {jnp}.asarray({base}).at", 1)
        if wrapped != new:
            yield Candidate(TITLE, place.cell.edit({**makers, small: wrapped}))


def _buffers(place: Place, line: Any) -> Iterator[Candidate]:
    """A numpy array that has no `.at`: make it with jnp, or turn it into a jax array here."""
    import libcst as cst

    for node in place.cell.within(line, cst.Attribute):
        if node.attr.value == "at" and isinstance(node.value, cst.Name):
            makers = _makers(place, place.innermost, node.value.value)
            if makers:
                yield Candidate(TITLE, place.cell.edit(makers))
            yield Candidate(TITLE, place.cell.edit({node.value: f"{place.jnp}.asarray({node.value.value})"}))

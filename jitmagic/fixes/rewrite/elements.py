"""Python's functions over elements (`min`, `sorted`, `any`, `next`, filters in comprehensions) as array operations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.conditions import BUILTINS, statement_asks
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import is_boolean, stripped, truth

ELEMENTWISE = frozenset(
    "abs absolute exp log log1p expm1 sqrt square sin cos tan tanh sign maximum minimum where isnan isinf isfinite "
    "logical_not logical_and logical_or floor ceil round mod power".split()
)
"""Functions of `jnp` that do with an array what they do with each of its elements."""


def candidates(place: Place) -> Iterator[Candidate]:
    """The call on the line that asks for the truth of elements, as one on the whole array."""
    if place.kind not in ("tracer-bool", "tracer-hash") or statement_asks(place):
        return
    yield from _comprehensions(place)
    yield from _positions(place)
    yield from _calls(place)


# -- comprehensions


@dataclass(frozen=True)
class Elements:
    """A comprehension under a call: what it gives for each turn, and whether that turn counts."""

    turns: str
    """`for x in xs`"""
    element: str
    test: str
    """Empty where every turn counts."""
    whole: Mapping[str, str]
    """For each name of a turn the array that holds it in all turns; empty where there is none."""

    def over(self, source: str) -> str | None:
        """An expression about one turn as one about all of them at once."""
        return _substituted(source, self.whole) if self.whole else None


def _comprehensions(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    node = next((n for n in place.path if isinstance(n, (cst.GeneratorExp, cst.ListComp))), None)
    calls = (n for n in place.on_line(cst.Call) if n.args and n.args[0].value is not None)
    call = next((c for c in calls if c.args[0].value is node or (node is None and _over(c))), None)
    if call is None and isinstance(place.cell.parents.get(node), cst.Assign):
        yield from _selected(place, node)
    if call is None or not isinstance(call.func, cst.Name) or call.func.value in place.modules:
        return
    found = _elements(place, call.args[0].value)
    if found is None:
        return
    default = place.cell.code(call.args[1].value) if len(call.args) == 2 else ""
    name = call.func.value
    for new, cost in _forms(place, name, found, default):
        title = f"keep all elements, and {_WORDS[name]}" if found.test else _CALLED.format(name)
        yield Candidate(title, place.cell.edit({call: new}), "unsafe" if cost else "safe", cost)


def _selected(place: Place, node: Any) -> Iterator[Candidate]:
    """`kept = [x for x in xs if x > 0]` as `kept = xs[xs > 0]`, of which what follows has to make something."""
    found = _elements(place, node)
    if found is None or not found.test:
        return
    element, test = found.over(found.element), found.over(found.test)
    if element is not None and test is not None:
        new = f"{names.wrapped(element)}[{test}]"
        yield Candidate("select with a mask, not element by element", place.cell.edit({node: new}))


def _over(call: Any) -> bool:
    import libcst as cst

    return isinstance(call.args[0].value, (cst.GeneratorExp, cst.ListComp))


def _elements(place: Place, node: Any) -> Elements | None:
    loop = node.for_in
    if loop.inner_for_in is not None or loop.asynchronous is not None:
        return None
    code = place.cell.code
    tests = [stripped(truth(place, i.test)) for i in loop.ifs]
    test = tests[0] if len(tests) == 1 else " & ".join(map(names.wrapped, tests))
    turns = f"for {stripped(code(loop.target))} in {code(loop.iter)}"
    return Elements(turns, stripped(code(node.elt)), test, _whole(place, loop))


def _whole(place: Place, loop: Any) -> dict[str, str]:
    """`for x in xs` as {x: xs}, also under `enumerate` and `zip`, where these are arrays of one axis."""
    import libcst as cst

    code, target, looped = place.cell.code, loop.target, loop.iter
    function = code(looped.func) if isinstance(looped, cst.Call) else ""
    pairs: list[tuple[Any, Any]]
    out: dict[str, str] = {}
    if isinstance(target, cst.Name) and isinstance(looped, (cst.Name, cst.Attribute)):
        pairs = [(target, looped)]
    elif not isinstance(target, cst.Tuple) or function not in ("enumerate", "zip"):
        return {}
    else:
        targets, arrays = [e.value for e in target.elements], [a.value for a in looped.args]
        if function == "enumerate" and len(targets) == 2 and len(arrays) == 1:
            out[code(targets[0])] = f"{place.jnp}.arange(len({code(arrays[0])}))"
            targets = targets[1:]
        if len(targets) != len(arrays) or not all(isinstance(t, cst.Name) for t in targets):
            return {}
        pairs = list(zip(targets, arrays, strict=True))
    for name, array in pairs:
        shapes = place.probe(place.cell.edit({array: f"__seen({code(array)})"}))
        if not shapes or any(len(s.shape) != 1 for s in shapes):
            return {}
        out[code(name)] = code(array)
    return out


class _Names(ast.NodeTransformer):
    def __init__(self, whole: Mapping[str, str]) -> None:
        self.whole = whole

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.whole[node.id], mode="eval").body if node.id in self.whole else node


def _substituted(source: str, whole: Mapping[str, str]) -> str | None:
    """The expression with arrays for the names of their elements; None where that may mean something else."""
    tree = names.parse(f"({source})")
    body = tree.body[0].value if isinstance(tree, ast.Module) else tree.body  # type: ignore[attr-defined]
    plain = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Attribute, ast.operator,
             ast.unaryop, ast.cmpop, ast.expr_context)  # fmt: skip
    for node in ast.walk(body):
        if not isinstance(node, plain) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return None
        if isinstance(node, ast.Compare) and (
            len(node.ops) > 1 or isinstance(node.ops[0], (ast.In, ast.NotIn))
        ):
            return None
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name not in ELEMENTWISE:
                return None
    if "\n" in source:
        return ast.unparse(_Names(whole).visit(body))
    named = [n for n in ast.walk(body) if isinstance(n, ast.Name) and n.id in whole]
    text = f"({source})".encode()
    for n in sorted(named, key=lambda n: -n.col_offset):
        text = text[: n.col_offset] + whole[n.id].encode() + text[n.end_col_offset :]
    return text.decode()[1:-1]


_WORDS = {
    "sum": "add up those that count", "any": "ask any", "all": "ask all", "max": "take the greatest",
    "min": "take the smallest", "len": "count those that count", "next": "take the first that counts",
}  # fmt: skip
_CALLED = "call `jnp.{0}` in place of Python's `{0}`"


def _forms(place: Place, name: str, e: Elements, default: str) -> Iterator[tuple[str, str]]:
    """Source of the call on arrays, and what it costs; the form over the whole array first."""
    if name not in _WORDS or (default and name != "next"):
        return
    element, test = e.over(e.element), e.over(e.test) if e.test else ""
    if element is not None and test is not None:
        found = _form(place, name, element, test, default)
        if found is not None:
            yield found
    if not e.test and name != "next":
        return  # the call itself is for others
    if name in ("sum", "len"):
        value = "1" if name == "len" else e.element
        yield f"sum({place.jnp}.where({e.test}, {value}, 0) {e.turns})", ""
        return

    def each(source: str) -> str:
        return f"{place.jnp}.array([{source} {e.turns}])"

    if name in ("any", "all"):
        joined = _joined(place, name, e.element, e.test)
        yield f"{place.jnp}.{name}({each(joined)})", ""
    else:
        found = _form(place, name, each(e.element), each(e.test), default)
        if found is not None:
            yield found


def _joined(place: Place, name: str, element: str, test: str) -> str:
    if not test:
        return element
    if name == "any":
        return f"{names.wrapped(test)} & {names.wrapped(element)}"
    return f"{place.jnp}.logical_not({test}) | {names.wrapped(element)}"


def _form(place: Place, name: str, element: str, test: str, default: str) -> tuple[str, str] | None:
    """The call over arrays of all elements and of whether each counts."""
    jnp = place.jnp
    if name in ("any", "all"):
        return f"{jnp}.{name}({_joined(place, name, element, test)})", ""
    if name == "len" or (name == "sum" and element == "1" and test):
        return (f"{jnp}.sum({test})", "") if test else None
    if name == "sum":
        return f"{jnp}.sum({f'{jnp}.where({test}, {element}, 0)' if test else element})", ""
    if name in ("min", "max"):
        if not test:
            return f"{jnp}.{name}({element})", ""
        limit = f"{jnp}.inf" if name == "min" else f"-{jnp}.inf"
        return f"{jnp}.{name}({jnp}.where({test}, {element}, {limit}))", "without any, the result is infinite"
    if not test:
        return None
    counted = element.startswith(f"{jnp}.arange(len(")
    first = f"{jnp}.argmax({test})" if counted else f"{names.wrapped(element)}[{jnp}.argmax({test})]"
    if default:
        return f"{jnp}.where({jnp}.any({test}), {first}, {default})", ""
    return first, "where none counts, it is the first and not an error"


# -- calls


def _calls(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    for call in place.on_line(cst.Call):
        name = call.func.value if isinstance(call.func, cst.Name) else ""
        if name not in BUILTINS or name in place.modules:
            continue
        for new in _counterparts(place, call):
            jax_name = new.partition("(")[0]
            title = f"call `{jax_name}` in place of Python's `{name}`"
            if not jax_name.startswith(place.jnp):
                title = f"work on the array in place of Python's `{name}`"
            yield Candidate(title, place.cell.edit({call: new}))


def _positions(place: Place) -> Iterator[Candidate]:
    """`xs.index(max(xs))`, `xs.index(v)` and `xs.count(v)` of a list of traced values."""
    import libcst as cst

    code, jnp = place.cell.code, place.jnp
    for call in place.on_line(cst.Call):
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if method not in ("index", "count") or len(call.args) != 1:
            continue
        listed, wanted = code(call.func.value), call.args[0].value
        extreme = re.fullmatch(r"(max|min)\((.*)\)", code(wanted), re.S)
        if method == "index" and extreme is not None and extreme[2] == listed:
            new, cost = f"{jnp}.arg{extreme[1]}({jnp}.array({listed}))", ""
        else:
            function, cost = (
                ("sum", "") if method == "count" else ("argmax", "without any, it is 0 and not an error")
            )
            new = f"{jnp}.{function}({jnp}.array({listed}) == {names.wrapped(stripped(code(wanted)))})"
        title = f"work on the array in place of the list's .{method}"
        yield Candidate(title, place.cell.edit({call: new}), "unsafe" if cost else "safe", cost)


def _counterparts(place: Place, call: Any) -> Iterator[str]:
    """`min(a, b)` as `jnp.minimum(a, b)`, `max(x)` as `jnp.max(x)`; for a list that has a name, of the array of it."""
    import libcst as cst

    name, first = call.func.value, call.args[0].value if call.args else None
    keywords = {a.keyword.value: a.value for a in call.args if a.keyword}
    if first is None or any(a.star for a in call.args):
        return
    if keywords:
        if len(call.args) - len(keywords) == 1 and set(keywords) <= {"key", "reverse"}:
            yield from _by_key(place, name, first, keywords)
        return
    if name == "bool" and is_boolean(place, first):
        yield truth(place, first)
        return
    new = builtin_call(place, call)
    if new is None:
        return
    yield new
    if len(call.args) == 1 and isinstance(first, (cst.Name, cst.Attribute, cst.Subscript)):
        code, jnp = place.cell.code(first), place.jnp
        yield f"{new.partition('(')[0]}({jnp}.array({code}))"


def _by_key(place: Place, name: str, first: Any, keywords: Mapping[str, Any]) -> Iterator[str]:
    """`sorted`, `min` and `max` with `key=` and `reverse=`."""
    import libcst as cst

    code, jnp = place.cell.code, place.jnp
    if name not in ("sorted", "min", "max"):
        return
    reverse = keywords.get("reverse")
    if reverse is not None and code(reverse) not in ("True", "False"):
        return
    order = ", descending=True" if reverse is not None and code(reverse) == "True" else ""
    key = keywords.get("key")
    counted = isinstance(first, cst.Call) and code(first.func) == "range"
    arrays = (
        [f"{jnp}.arange{code(first)[len('range') :]}"]
        if counted
        else [code(first), f"{jnp}.array({code(first)})"]
    )
    for array in arrays:
        if key is None:
            yield f"{jnp}.sort({array}{order})"
            continue
        values = _mapped(place, key, array)
        position = f"{jnp}.argsort({values}{order})" if name == "sorted" else f"{jnp}.arg{name}({values})"
        yield position if counted and code(first).count(",") == 0 else f"{array}[{position}]"


def _mapped(place: Place, key: Any, array: str) -> str:
    """What the key gives for every element of the array."""
    import libcst as cst

    if isinstance(key, cst.Lambda) and len(key.params.params) == 1:
        name = key.params.params[0].name.value
        plain = _substituted(place.cell.code(key.body), {name: array})
        if plain is not None:
            return plain
    return f"{place.jax}.vmap({place.cell.code(key)})({array})"


def builtin_call(place: Place, call: Any) -> str | None:
    """`min(a, b)` as `jnp.minimum(a, b)`, `max(x)` as `jnp.max(x)`; None where there is no counterpart."""
    import libcst as cst

    name, jnp = call.func.value, place.jnp
    if any(a.star or a.keyword for a in call.args):
        return None
    args = []
    for a in call.args:
        nested = isinstance(a.value, cst.Call) and getattr(a.value.func, "value", "") in ("min", "max")
        args.append(builtin_call(place, a.value) if nested else place.cell.code(a.value))
    if None in args or not args:
        return None
    if name in ("min", "max") and len(args) > 1:
        whole = args[0] or ""
        for other in args[1:]:
            whole = f"{jnp}.{BUILTINS[name]}({whole}, {other})"
        return whole
    value, inside = call.args[0].value, args[0] or ""
    if isinstance(value, cst.GeneratorExp):
        inside = f"{jnp}.array([{stripped(inside)}])"
    elif isinstance(value, (cst.List, cst.Tuple, cst.ListComp)):
        inside = f"{jnp}.array({inside})"
    function = name if name in ("min", "max") else BUILTINS[name]
    return f"{jnp}.{function}({', '.join([inside, *[a or '' for a in args[1:]]])})"

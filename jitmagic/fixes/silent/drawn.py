"""Draws of NumPy and of Python's `random` as draws of `jax.random`, from a key that each call passes."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrite.names import wrapped
from jitmagic.fixes.silent import given_keys
from jitmagic.fixes.silent.states import alias
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.report import Finding, Fix
from jitmagic.tracing.names import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_TIGHT = (ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.Compare)
_REPEATED = (ast.For, ast.While, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def propose(
    finding: Finding, evidence: Evidence, prover: Prover, line: int, sources: Sequence[str]
) -> Iterator[Fix]:
    """The function, or the helper that draws, takes a key in the place of numbers that Python draws."""
    text, jax_random = Text(evidence.function.cell), alias(prover, "jax.random")
    if not jax_random:
        return
    draw = next((n for n in text.on_line(line) if kind_of(n, prover.checker.namespace)), None)
    outer = _outermost(text, draw) if draw is not None else None
    if outer is None:
        return
    name = text.fresh(*given_keys.KEYS)
    cell = _drawn(text, outer, prover.checker.namespace, name, jax_random)
    changed = replace(evidence, function=replace(evidence.function, cell=cell))
    new = Text(cell)
    seeds = [
        n for n in ast.walk(new.tree) if isinstance(n, ast.Call) and new.code(n) == f"{jax_random}.key(0)"
    ]
    for fix in given_keys.with_key(changed, prover, new, seeds[0], sources):
        yield replace(fix, title=f"draw with `{jax_random}`, from a key that each call passes")


def _outermost(text: Text, node: ast.AST) -> FunctionNode | None:
    """The function or method at the top around a draw; None where a loop or lambda in it draws again and again."""
    found = None
    while node in text.parents:
        node = text.parents[node]
        if isinstance(node, _REPEATED):
            return None
        found = node if isinstance(node, FunctionNode) else found
    return found


def _drawn(text: Text, outer: FunctionNode, namespace: Mapping[str, Any], key: str, module: str) -> str:
    """The cell in which the function begins with a key, and draws with it. Raises ValueError for other draws."""
    draws = sorted((n for n in ast.walk(outer) if kind_of(n, namespace)), key=text.span)
    if any(_outermost(text, n) is not outer for n in draws):
        raise ValueError("each turn would need a key of its own")
    names = [key] if len(draws) == 1 else [text.fresh(f"{key}_{i + 1}") for i in range(len(draws))]
    lines = [f"{key} = {module}.key(0)"]
    if len(draws) > 1:
        lines.append(
            f"{', '.join(names)} = {module}.split({key}{f', {len(names)}' if len(names) > 2 else ''})"
        )
    for node, name in zip(draws, names, strict=True):
        assert isinstance(node, ast.Call)
        code = _draw(text, node, kind_of(node, namespace)).format(jr=module, key=name)
        text.replace(node, wrapped(code) if isinstance(text.parents[node], _TIGHT) else code)
    first = outer.body[1] if ast.get_docstring(outer) and len(outer.body) > 1 else outer.body[0]
    return text.before(first, lines).result()


def kind_of(node: ast.AST, namespace: Mapping[str, Any]) -> str:
    """`normal` of NumPy's module or generators, `random.gauss` of Python's; empty for what is no such call."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    first, *rest = dotted_name(node.func.value).split(".")
    owner = namespace.get(first)
    for part in rest:
        owner = getattr(owner, part, None)
    module = owner.__name__ if isinstance(owner, types.ModuleType) else type(owner).__module__
    if module == "random":
        return f"random.{node.func.attr}"
    return node.func.attr if module.startswith("numpy.random") else ""


def _draw(text: Text, call: ast.Call, kind: str) -> str:
    """The draw as one of `jax.random`, with `{jr}` and `{key}` in it. Raises ValueError where there is no such."""
    names, made = _DRAWS.get(kind, ((), _normal))
    whole = len(call.args) == 1 and names == ("*",) and isinstance(call.args[0], ast.Starred)
    if kind not in _DRAWS or (any(isinstance(a, ast.Starred) for a in call.args) and not whole):
        raise ValueError("no such draw in jax.random")
    given = {k.arg or "**": text.code(k.value) for k in call.keywords}
    if whole:  # `randn(*x.shape)`
        given |= {"size": text.code(call.args[0]).removeprefix("*")}
    elif names == ("*",):
        given |= {"size": f"({', '.join(map(text.code, call.args))},)"} if call.args else {}
    else:
        given |= {k: text.code(a) for k, a in zip(names, call.args, strict=False)}
    if len(given) < len(call.keywords) + (bool(call.args) if names == ("*",) else len(call.args)):
        raise ValueError("more than it takes")
    if not given.keys() <= {*names, "size"}:
        raise ValueError("an option of another")
    size = given.get("size", "()")
    node = ast.parse(size, mode="eval").body
    one = isinstance(node, (ast.Constant, ast.Subscript, ast.BinOp)) or size.startswith("len(")
    given["size"] = f"({size},)" if one else size
    return made({k: v.replace("{", "{{").replace("}", "}}") for k, v in given.items()})


def _normal(given: dict[str, str]) -> str:
    plain = f"{{jr}}.normal({{key}}, {given['size']})"
    loc, scale = given.get("loc", "0.0"), given.get("scale", "1.0")
    scaled = plain if _number(scale) == 1 else f"{wrapped(scale)} * {plain}"
    return scaled if _number(loc) == 0 else f"{loc} + {scaled}"


def _number(code: str) -> float | None:
    """The number that is written there; None where it is none."""
    try:
        return float(code)
    except ValueError:
        return None


def _uniform(given: dict[str, str]) -> str:
    bounds = [f"{a}={given[b]}" for a, b in (("minval", "low"), ("maxval", "high")) if b in given]
    return f"{{jr}}.uniform({', '.join(['{key}', given['size'], *bounds])})"


def _integers(given: dict[str, str]) -> str:
    low, high = (given["low"], given["high"]) if "high" in given else ("0", given["low"])
    return f"{{jr}}.randint({{key}}, {given['size']}, {low}, {high})"


def _to_the_last(given: dict[str, str]) -> str:
    return _integers({**given, "high": f"{given['high']} + 1"})


def _choice(given: dict[str, str]) -> str:
    rest = [f"{k}={given[k]}" for k in ("replace", "p") if k in given]
    return f"{{jr}}.choice({', '.join(['{key}', given['a'], given['size'], *rest])})"


def _permutation(given: dict[str, str]) -> str:
    return f"{{jr}}.permutation({{key}}, {given['x']})"


_DRAWS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, str]], str]]] = {
    "normal": (("loc", "scale", "size"), _normal),
    "standard_normal": (("size",), _normal),
    "randn": (("*",), _normal),
    "rand": (("*",), _uniform),
    "random": (("size",), _uniform),
    "random_sample": (("size",), _uniform),
    "uniform": (("low", "high", "size"), _uniform),
    "integers": (("low", "high", "size"), _integers),
    "randint": (("low", "high", "size"), _integers),
    "choice": (("a", "size", "replace", "p"), _choice),
    "permutation": (("x",), _permutation),
    "random.random": ((), _uniform),
    "random.uniform": (("low", "high"), _uniform),
    "random.gauss": (("loc", "scale"), _normal),
    "random.normalvariate": (("loc", "scale"), _normal),
    "random.randint": (("low", "high"), _to_the_last),
}
"""By the name of the draw: its parameters in order (`*`: sizes), and how it is written with jax."""

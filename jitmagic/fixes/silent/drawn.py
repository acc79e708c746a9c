"""Draws of NumPy and of Python's `random` as draws of `jax.random`, from a key that each call passes."""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrite.names import wrapped
from jitmagic.fixes.silent import given_keys, keys, trial
from jitmagic.fixes.silent.states import alias
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.report import Finding, Fix
from jitmagic.source.expressions import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_TIGHT = (ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.Compare)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_REPEATED = (ast.For, ast.While, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def propose(
    finding: Finding, evidence: Evidence, prover: Prover, line: int, sources: Sequence[str]
) -> Iterator[Fix]:
    """The function, or the helper that draws, takes a key in the place of numbers that Python draws."""
    text, jax_random = Text(evidence.function.cell), alias(prover, "jax.random")
    if not jax_random:
        return
    draw = drawing(text, line, prover.checker.namespace)
    outer = _outermost(text, draw) if draw is not None else None
    if outer is None:
        return
    name = text.fresh(*given_keys.KEYS)
    repeated = any(is_repeated(text, n) for n in _draws_in(text, outer, prover.checker.namespace))
    cell = _drawn(text, outer, prover.checker.namespace, name, jax_random, split=not repeated)
    for made in _each_turn(cell, name) if repeated else [cell]:
        changed = replace(evidence, function=replace(evidence.function, cell=made))
        new = Text(made)
        seeds = [
            n for n in ast.walk(new.tree) if isinstance(n, ast.Call) and new.code(n) == f"{jax_random}.key(0)"
        ]
        for fix in given_keys.with_key(changed, prover, new, seeds[0], sources):
            if not repeated or _each_once(prover, fix):
                yield replace(fix, title=f"draw with `{jax_random}`, from a key that each call passes")
                return


def drawing(text: Text, line: int, namespace: Mapping[str, Any]) -> ast.expr | None:
    """The draw of NumPy or of Python that begins on this line."""
    return next((n for n in text.on_line(line) if isinstance(n, ast.expr) and kind_of(n, namespace)), None)


def is_repeated(text: Text, node: ast.AST) -> bool:
    """A loop, a lambda or a function inside the function at the top may make the call again and again."""
    around = [a for a in _around(text, node) if isinstance(a, (*_REPEATED, *_FUNCTIONS))]
    return any(isinstance(a, _REPEATED) for a in around) or len(around) > 1


def _each_turn(cell: str, key: str) -> Iterator[str]:
    """Cells in which each turn of a loop draws with a key of its own."""
    text = Text(cell)
    uses = [
        n
        for n in ast.walk(text.tree)
        if isinstance(n, ast.Name) and n.id == key and isinstance(n.ctx, ast.Load)
    ]
    for function in dict.fromkeys(text.around(n, *_FUNCTIONS) for n in uses):
        if isinstance(function, FunctionNode):
            yield from keys.rewritten(cell, function, key)


def _each_once(prover: Prover, fix: Fix) -> bool:
    """No two draws of the corrected cell have the same key."""
    from jitmagic.silent.program import keys_of

    with contextlib.suppress(Exception):
        traced = trial.play(prover, fix.cell or "", fix.calls or ()).traced
        return traced is not None and not keys_of(traced.jaxpr).reused
    return False


def _around(text: Text, node: ast.AST) -> Iterator[ast.AST]:
    while node in text.parents:
        node = text.parents[node]
        yield node


def _outermost(text: Text, node: ast.AST) -> FunctionNode | None:
    """The function or method at the top around a draw."""
    found = [a for a in _around(text, node) if isinstance(a, FunctionNode)]
    return found[-1] if found else None


def _draws_in(text: Text, function: FunctionNode, namespace: Mapping[str, Any]) -> list[ast.AST]:
    return sorted((n for n in ast.walk(function) if kind_of(n, namespace)), key=text.span)


def _drawn(
    text: Text, outer: FunctionNode, namespace: Mapping[str, Any], key: str, module: str, *, split: bool
) -> str:
    """The cell in which the function begins with a key, and draws with it, or with parts of it where `split`. Raises
    ValueError for other draws."""
    draws = _draws_in(text, outer, namespace)
    several = split and len(draws) > 1
    names = [text.fresh(f"{key}_{i + 1}") for i in range(len(draws))] if several else [key] * len(draws)
    lines = [f"{key} = {module}.key(0)"]
    if several:
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

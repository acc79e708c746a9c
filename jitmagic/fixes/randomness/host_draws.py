"""Draws of NumPy and of Python's `random`: as draws of `jax.random` from a key that each call passes, or as what the
calls draw and pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.inputs.questions import around, as_argument, asking, smallest
from jitmagic.fixes.randomness.key_arguments import NAMES, KeyArgument
from jitmagic.fixes.randomness.own_keys import KeyUse
from jitmagic.source.edits import CannotEdit, FunctionNode, expression
from jitmagic.source.modules import dotted, last_name
from jitmagic.source.pattern import number_of
from jitmagic.source.scope import COMPREHENSIONS


def host_draws(spot: Spot) -> Iterator[Change]:
    """The function that draws takes a key in the place of numbers that Python draws."""
    function = spot.outermost
    draws = draws_in(spot, function) if function is not None else []
    if function is not None and any(spot.line == n.lineno for n in draws):
        made = KeyArgument(spot, spot.fresh(*NAMES), lambda n: spot.write("jax.random.key($n)", n=str(n)))
        uses = [KeyUse(n, partial(_draw, made, n)) for n in draws]
        change = made.hand_down(function, uses)
        title = spot.write("draw with `jax.random`, from a key that each call passes")
        yield replace(change, title=title)


def draws_in(spot: Spot, tree: ast.AST) -> list[ast.Call]:
    """Calls that draw numbers in Python."""
    known = {n for f in spot.evidence.silent.random if f.origin in ("host", "generator") for n in f.names}
    generator = dotted(spot.node)  # `self.rng`, which the finding is about
    known |= {f"{generator}.{name}" for name in _DRAWS} if generator else set()
    calls = spot.text.within(tree, ast.Call)
    return [n for n in calls if dotted(n.func) in known or spot.full(n) in known]


def is_in_loop(spot: Spot, node: ast.AST) -> bool:
    """A loop, a lambda or an inner function may make the call again and again."""
    around = list(spot.text.ancestors(node))
    repeated = (ast.For, ast.While, ast.Lambda, *COMPREHENSIONS)
    functions = [n for n in around if isinstance(n, ast.FunctionDef)]
    return any(isinstance(n, repeated) for n in around) or len(functions) > 1


def _draw(made: KeyArgument, call: ast.Call, key: str) -> None:
    """The draw as one of `jax.random` from a key. Raises CannotEdit where there is none."""
    spot, edits = made.spot, made.edits
    full = spot.full(call)
    name = full if full.startswith("random.") else full.rpartition(".")[2] or last_name(call.func)
    own = name == "randint" and not full  # that of `random.Random`, which includes the last number
    if name not in _DRAWS or own:
        raise CannotEdit("jax.random has no such draw")
    parameters, template = _DRAWS[name]
    given = _given(spot, call, parameters.split())
    holes = {"loc": "0.0", "scale": "1.0", "low": "0", **given}
    if "high" in parameters and "high" not in given and "randint" in template:
        holes |= {"low": "0", "high": given["low"]}
    options = [k for k in ("low", "high") if k in given] if "uniform" in template else ["replace", "p"]
    bounds = {"low": "minval", "high": "maxval"}
    rest = ", ".join(f"{bounds.get(k, k)}={given[k]}" for k in options if k in given)
    holes |= {"key": key, "size": _shape(given.get("size", "()")), "rest": rest}
    code = spot.write(_plain(template, given), edits, **holes)
    edits.replace(call, code.replace(", )", ")"))


def _plain(template: str, given: Mapping[str, str]) -> str:
    """Without a mean of nothing and a deviation of one."""
    if number_of(expression(given.get("scale", "1"))) == 1:
        template = template.replace("$scale * ", "")
    return template.replace("$loc + ", "") if number_of(expression(given.get("loc", "0"))) == 0 else template


def _given(spot: Spot, call: ast.Call, parameters: list[str]) -> dict[str, str]:
    """What the call gives for each parameter. Raises CannotEdit for what it does not have."""
    code, args = spot.code, list(call.args)
    found = {k.arg or "**": code(k.value) for k in call.keywords}
    if parameters == ["*"]:  # `randn(2, 3)`, `randn(*x.shape)`
        alone = args[0] if len(args) == 1 else None
        whole = code(alone.value) if isinstance(alone, ast.Starred) else f"({', '.join(map(code, args))},)"
        found |= {"size": whole} if args else {}
    elif len(args) <= len(parameters):
        found |= {k: code(a) for k, a in zip(parameters, args, strict=False)}
    starred = isinstance(args[0], ast.Starred) if args and parameters == ["*"] else False
    if any(isinstance(a, ast.Starred) for a in args[starred:]) or not found.keys() <= {*parameters, "size"}:
        raise CannotEdit("what it gives is not known")
    return found


def _shape(size: str) -> str:
    node = ast.parse(size, mode="eval").body
    one = isinstance(node, ast.Constant | ast.Subscript | ast.BinOp) or size.startswith("len(")
    return f"({size},)" if one else size


_NORMAL = "$loc + $scale * jax.random.normal($key, $size)"
_UNIFORM = "jax.random.uniform($key, $size, $$rest)"
_INTEGERS = "jax.random.randint($key, $size, $low, $high)"
_DRAWS: dict[str, tuple[str, str]] = {
    "normal": ("loc scale size", _NORMAL),
    "standard_normal": ("size", _NORMAL),
    "randn": ("*", _NORMAL),
    "rand": ("*", _UNIFORM),
    "random": ("size", _UNIFORM),
    "random_sample": ("size", _UNIFORM),
    "uniform": ("low high size", _UNIFORM),
    "integers": ("low high size", _INTEGERS),
    "randint": ("low high size", _INTEGERS),
    "choice": ("a size replace p", "jax.random.choice($key, $a, $size, $$rest)"),
    "permutation": ("x", "jax.random.permutation($key, $x)"),
    "random.random": ("", _UNIFORM),
    "random.uniform": ("low high", _UNIFORM),
    "random.gauss": ("loc scale", _NORMAL),
    "random.normalvariate": ("loc scale", _NORMAL),
    "random.randint": ("low high", "jax.random.randint($key, $size, $low, $high + 1)"),
}
"""By the name of the draw: its parameters in order (`*`: sizes), and how it is written with jax."""


def drawn_arguments(spot: Spot) -> Iterator[Change]:
    """The draw, or the largest expression around it that the caller can make too, is an argument; a static one where
    its value has to be known."""
    if function := _whose_draws(spot):
        yield from _passed(spot, function) if draws_in(spot, function) else ()


def drawn_by_helpers(spot: Spot) -> Iterator[Change]:
    """The same of what a helper draws, with all that it makes of it."""
    if function := _whose_draws(spot):
        yield from _passed(spot, function) if not draws_in(spot, function) else ()


def _whose_draws(spot: Spot) -> FunctionNode | None:
    """The function that is checked, if it draws at most once."""
    function = spot.text.definition(spot.function)
    if function is None or _origins(spot) & {"fixed", "captured"} or len(draws_in(spot, function)) > 1:
        return None
    return function


def _passed(spot: Spot, function: FunctionNode) -> Iterator[Change]:
    for node in _expressions(spot, function):
        for static in (False, True):
            name, edits, later = as_argument(spot, function, node)
            title = f"pass `{spot.code(node)}` as an argument at each call"
            more, claim = ((name, spot.code(node)),), Claim("other random")
            yield Change(title, edits, later, (name,) if static else (), passed=more, claim=claim)


def _origins(spot: Spot) -> set[str]:
    """Where the random numbers of the line come from."""
    line = spot.text.lines[spot.line - 1].strip()
    return {f.origin for f in spot.evidence.silent.random if f.where.source == line}


def _expressions(spot: Spot, function: FunctionNode) -> list[ast.expr]:
    """What draws, and what is made of it alone, where that is drawn once in a call."""
    draws = asking(spot, function)
    return around(spot, function, draws) if draws and not is_in_loop(spot, smallest(spot, draws)) else []

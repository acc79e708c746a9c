"""Patterns with holes, found in a tree, and templates, filled with the user's own text.

`Pattern("log(sum(exp($x), $*r))")` finds `J.log(J.exp(a).sum(0))`: functions of jax.numpy, numpy, jax.nn and jax.lax go
by their short names, under whatever name the notebook has for them, as functions or as methods; `+` and `*` either way
round. `Template("jax.scipy.special.logsumexp($x, $*r)")` writes what the holes have caught, in brackets where that is
needed, and the modules as the notebook calls them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jitmagic.source.edits import Edits, Text, expression, in_brackets, indented, shifted
from jitmagic.source.modules import Modules
from jitmagic.source.tree import in_order

_HOLE, _REST = "_hole_", "_rest_"
LIBRARIES = (
    "jax.numpy.", "numpy.", "jax.nn.", "jax.lax.", "jax.numpy.linalg.", "numpy.linalg.", "jax.scipy.linalg.",
    "jax.scipy.special.", "jax.",
)  # fmt: skip
"""Where a function of a pattern may come from."""

Filling = ast.AST | str | Sequence[ast.AST | str]


@dataclass(frozen=True)
class Match:
    """A node, and what the holes of the pattern stand for; `$*r` for arguments and keywords."""

    node: ast.expr
    holes: Mapping[str, ast.AST | list[ast.AST]]

    def expr(self, hole: str) -> ast.expr:
        """The expression that a hole `$x` stands for. Raises LookupError where there is none."""
        found = self.holes[hole]
        if not isinstance(found, ast.expr):
            raise LookupError(f"${hole} stands for no expression")
        return found

    def rest(self, hole: str = "r") -> list[ast.expr | ast.keyword]:
        """The arguments and keywords that `$*r` stands for; none where the pattern has no such hole."""
        found = self.holes.get(hole, [])
        return [r for r in found if isinstance(r, ast.expr | ast.keyword)] if isinstance(found, list) else []


class Pattern:
    """An expression with holes `$x`, and `$*r` for the arguments that are left."""

    def __init__(self, source: str) -> None:
        self.source = source
        marked = re.sub(r"\$\*(\w+)", rf"*{_REST}\1", source).replace("$", _HOLE)
        self.tree = ast.parse(marked, mode="eval").body

    def match(self, node: ast.AST, modules: Modules) -> Match | None:
        """The node as this pattern, if it is that."""
        holes: dict[str, ast.AST | list[ast.AST]] = {}
        if isinstance(node, ast.expr) and _unify(self.tree, node, modules, holes):
            return Match(node, holes)
        return None

    def find(self, tree: ast.AST, modules: Modules) -> Iterator[Match]:
        """Every place of a tree that this pattern fits, in the order of the source."""
        for node in in_order(tree):
            if (found := self.match(node, modules)) is not None:
                yield found


def _unify(p: ast.AST, n: ast.AST, modules: Modules, holes: dict[str, ast.AST | list[ast.AST]]) -> bool:
    if isinstance(p, ast.Name) and p.id.startswith(_HOLE):
        known = holes.setdefault(p.id.removeprefix(_HOLE), n)
        return isinstance(known, ast.AST) and isinstance(n, ast.expr) and (known is n or same(known, n))
    n = modules.behind(n)
    if isinstance(p, ast.Call) and isinstance(n, ast.Call):
        return _call(p, n, modules, holes)
    if isinstance(p, ast.Name):
        return _names(p.id, n, modules)
    if isinstance(p, ast.BinOp) and isinstance(n, ast.BinOp) and type(p.op) is type(n.op):
        either = isinstance(p.op, ast.Add | ast.Mult)
        for left, right in [(n.left, n.right), (n.right, n.left)][: 1 + either]:
            trial = dict(holes)
            if _unify(p.left, left, modules, trial) and _unify(p.right, right, modules, trial):
                holes.update(trial)
                return True
        return False
    if isinstance(p, ast.Constant) and isinstance(n, ast.Constant):
        return bool(p.value == n.value)
    return type(p) is type(n) and all(
        _field(getattr(p, f), getattr(n, f), modules, holes) for f in p._fields if f not in ("ctx", "kind")
    )


def _field(a: object, b: object, modules: Modules, holes: dict[str, ast.AST | list[ast.AST]]) -> bool:
    if isinstance(a, ast.AST):
        return isinstance(b, ast.AST) and _unify(a, b, modules, holes)
    if isinstance(a, list):
        return (
            isinstance(b, list) and len(a) == len(b)
            and all(_field(x, y, modules, holes) for x, y in zip(a, b, strict=True))
        )  # fmt: skip
    return bool(a == b)


def _call(p: ast.Call, n: ast.Call, modules: Modules, holes: dict[str, ast.AST | list[ast.AST]]) -> bool:
    given = list(n.args)
    if any(isinstance(f, ast.Name) and f.id.startswith(_HOLE) for f in ast.walk(p.func)):
        if not _unify(p.func, n.func, modules, holes):  # `$f($x)`, `$x.at[$i].set($v)`
            return False
    elif not _names(ast.unparse(p.func), n.func, modules):
        if not (isinstance(n.func, ast.Attribute) and n.func.attr == ast.unparse(p.func)):
            return False
        if modules.full(n.func):
            return False  # of another library
        given.insert(0, n.func.value)  # `exp(x).sum()`
    wanted = list(p.args)
    rest = wanted.pop() if wanted and isinstance(wanted[-1], ast.Starred) else None
    if len(given) < len(wanted) or any(isinstance(a, ast.Starred) for a in given[: len(wanted)]):
        return False
    keywords = {k.arg: k.value for k in p.keywords}
    others = [k for k in n.keywords if k.arg not in keywords]
    if rest is None and (len(given) != len(wanted) or others):
        return False
    own = {k.arg: k.value for k in n.keywords}
    if not all(a in own and _unify(v, own[a], modules, holes) for a, v in keywords.items()):
        return False
    if not all(_unify(a, b, modules, holes) for a, b in zip(wanted, given, strict=False)):
        return False
    if isinstance(rest, ast.Starred) and isinstance(rest.value, ast.Name):
        holes[rest.value.id.removeprefix(_REST)] = [*given[len(wanted) :], *others]
    return True


def _names(short: str, node: ast.AST, modules: Modules) -> bool:
    """The node is the function that a pattern calls `sum`, or `linalg.norm`, or by its whole name."""
    full = modules.full(node)
    if full:
        return full == short or any(full == library + short for library in LIBRARIES)
    return isinstance(node, ast.Name) and node.id == short


def same(a: ast.AST, b: ast.AST) -> bool:
    """Two nodes say the same."""
    return ast.dump(a) == ast.dump(b)


# --- templates ----------------------------------------------------------------------------------------

_ATOMS = (
    ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.Set, ast.JoinedStr,
    ast.ListComp, ast.DictComp, ast.SetComp,
)  # fmt: skip
_HOLES = re.compile(r"(?P<comma>, )?\$\*(?P<rest>\w+)|\$\$(?P<raw>\w+)|\$(?P<name>[A-Za-z]\w*)")


class Template:
    """Code with holes: `$x` an expression, `$*r` arguments, `$$t` text as it is, a line with `$body` alone
    statements. What stands outside of the holes is ours, and its modules get the notebook's names."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fill(self, modules: Modules, text: Text | Edits | None = None, /, **holes: Filling) -> str:
        """The code. Nodes are of `text`; where that is `Edits`, with the changes inside of them."""
        template = modules.written(self.source)
        found, at = [], 0
        for hole in _HOLES.finditer(template):
            found += [template[at : hole.start()], self._filled(template, hole, text, holes)]
            at = hole.end()
        return "".join([*found, template[at:]])

    def _filled(
        self, template: str, hole: re.Match[str], text: Text | Edits | None, holes: Mapping[str, Filling]
    ) -> str:
        if hole["raw"]:
            return _code(holes[hole["raw"]], text)
        if hole["rest"]:
            code = _code(holes[hole["rest"]], text)
            return (hole["comma"] or "") + code if code else ""
        code = _code(holes[hole["name"]], text)
        line = template[: hole.start()].rpartition("\n")[2]
        end = template[hole.end() : hole.end() + 1]
        if not line.strip() and end in ("", "\n"):  # statements
            return shifted(code.strip("\n"), "", line) or "pass"
        before, behind = template[: hole.start()].rstrip(" "), template[hole.end() :].lstrip(" ")
        compared = before.endswith(("==", "!=", "<=", ">="))
        apart = not compared and before[-1:] in ("", *"([,=\n:") and behind[:1] in ("", *")],\n:")
        return bare(code) if apart else atom(code)


def _code(value: Filling, text: Text | Edits | None) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, ast.AST):
        if text is None or not hasattr(value, "lineno"):
            return ast.unparse(value)
        return text.code(value)
    return ", ".join(_code(v, text) for v in value)


def atom(code: str) -> str:
    """An expression in brackets where an operator beside it would take it apart."""
    node = expression(code)
    if node is None:
        return f"({code})"
    number = isinstance(node, ast.Constant) and not isinstance(node.value, str)
    if isinstance(node, ast.Constant | ast.JoinedStr) and not number and code.count("\n"):
        return f"({code})"
    return code if isinstance(node, _ATOMS) or in_brackets(code) else f"({code.strip()})"


def bare(code: str) -> str:
    """An expression that stands by itself: brackets around a tuple, and around what goes over several lines."""
    node = expression(code)
    if isinstance(node, ast.Tuple | ast.GeneratorExp | ast.NamedExpr | ast.Yield) and not in_brackets(code):
        return f"({code})"
    return code


def number_of(node: ast.AST | None) -> float | None:
    """The value of `3` or `-1.5`; None for other expressions."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(value=int() | float() as number)):
            return -number
    return None


def tuple_of(parts: Sequence[str]) -> str:
    """Source of a tuple."""
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def stripped(code: str) -> str:
    """An expression without brackets around all of it."""
    text = code.strip()
    kept = isinstance(expression(text), ast.Tuple | ast.GeneratorExp | ast.NamedExpr) or "\n" in text
    return stripped(text[1:-1]) if in_brackets(text) and not kept else text


def call_of(function: str, *arguments: str) -> str:
    """Source of a call, on several lines where it is long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= 84 and "\n" not in line:
        return line
    return f"{function}(\n" + "".join(indented(f"{a},\n") for a in arguments) + ")"

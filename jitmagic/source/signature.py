"""What a function takes and gives, changed with its calls: a parameter more, a result more that the calls bind."""

from __future__ import annotations

import ast
import keyword as words
from collections.abc import Mapping, Sequence

from jitmagic.source.edits import CannotEdit, Edits, FunctionNode, shifted
from jitmagic.source.pattern import in_brackets

_OFTEN = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.While
)  # fmt: skip
"""What runs an expression in it as often as it likes."""


def argument_of(
    call: ast.Call, function: FunctionNode, name: str, *, bound: bool | None = None
) -> ast.expr | None:
    """What a call passes for a parameter; `bound`: the receiver of a method is not among its arguments, as in calls of
    attributes."""
    bound = takes_receiver(call, function) if bound is None else bound
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][bound:]
    index = order.index(name) if name in order else len(call.args)
    if any(isinstance(a, ast.Starred) for a in call.args[: index + 1]):
        return None
    return call.args[index] if index < len(call.args) else None


def takes_receiver(call: ast.Call, function: FunctionNode) -> bool:
    """The object that the call names is the function's first argument: not of a static method."""
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    return (isinstance(call.func, ast.Attribute) or function.name == "__call__") and not static


def takes_by_name(function: FunctionNode) -> bool:
    """Calls have to pass a parameter more by name."""
    a = function.args
    return bool(a.defaults or a.vararg or a.kwonlyargs or a.kwarg)


def add_parameter(edits: Edits, function: FunctionNode, name: str) -> bool:
    """One parameter more; True where calls have to pass it by name."""
    a, text = function.args, edits.text
    opening = text.plain.index("(", text.offset(function.lineno, function.col_offset))
    keyword = takes_by_name(function)
    new = f"*, {name}" if keyword and not (a.vararg or a.kwonlyargs) else name
    if a.kwarg is not None:
        edits.insert(text.plain.rindex("**", opening, text.span(a.kwarg)[0]), f"{new}, ")
    else:
        edits.last(opening, new)
    return keyword


def pass_to(edits: Edits, call: ast.Call, given: Mapping[str, str], *, keyword: bool = False) -> None:
    """More arguments for a call, by their parameters: the last ones, by name where others are given by name too."""
    by_name = keyword or call.keywords
    edits.argument(call, ", ".join(f"{k}={v}" if by_name else v for k, v in given.items()))


def name_for(place: str) -> str:
    """A parameter's name for a place: `n` for `f.n`, `seen['n']` and `n`, `n_seen` for `len(seen)`; nothing where
    it has none."""
    node = ast.parse(place, mode="eval").body
    if isinstance(node, ast.Call) and node.args:
        return f"n_{name_for(ast.unparse(node.args[0]))}"
    key = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else ""
    name = str(getattr(node, "attr", getattr(node, "id", key))).lstrip("_")
    return name if name.isidentifier() and not words.iskeyword(name) else ""


def replace_argument(edits: Edits, node: ast.expr, new: Mapping[str, str]) -> None:
    """Other arguments, by the names of their parameters, in the place of one."""
    around = edits.text.parents[node]
    named = isinstance(around, ast.keyword)
    codes = [f"{name}={code}" if named else code for name, code in new.items()]
    edits.replace(around if named else node, codes[0])
    edits.insert(edits.text.bracketed(node)[1], "".join(f", {code}" for code in codes[1:]))


def give_back(edits: Edits, function: FunctionNode, names: Sequence[str]) -> bool:
    """The function returns these names too, beside its result; True where it had none, and they are all it returns."""
    if edits.text.own(function, ast.Yield, ast.YieldFrom):
        raise CannotEdit("it returns more than once")
    returns, given = edits.text.own(function, ast.Return), ", ".join(names)
    alone = all(r.value is None for r in returns)
    for leave in returns:
        value = edits.code(leave).removeprefix("return").strip() or "None"
        if isinstance(leave.value, ast.Tuple) and not in_brackets(value):
            value = f"({value})"
        edits.replace(leave, f"return {given}" if alone else f"return {value}, {given}")
    last = function.body[-1]
    if not isinstance(last, ast.Return | ast.Raise):
        edits.after(last, f"return {given}" if alone else f"return None, {given}")
    return alone


def bind_again(edits: Edits, call: ast.Call, places: Sequence[str], *, alone: bool) -> None:
    """The statement of a call binds these places to what it gives beside its result: `y, a = f(a)`; the result has a
    name of its own where it is part of an expression."""
    text, given = edits.text, ", ".join(places)
    match statement := text.statement(call):
        case ast.Expr(value) if value is call and alone:
            edits.insert(text.span(call)[0], f"{given} = ")
        case ast.Assign([target], value) if value is call and not alone:
            code = edits.code(target)
            bare = isinstance(target, ast.Tuple) and not in_brackets(code)
            edits.replace(target, f"({code}), {given}" if bare else f"{code}, {given}")
        case _:
            for node in (n for n in text.ancestors(call) if isinstance(n, _OFTEN)):
                if text.statement(node) is statement:
                    raise CannotEdit("the call may run more than once, or not at all")
            code, out = shifted(edits.code(call), " " * statement.col_offset, ""), edits.fresh("out")
            edits.before(statement, f"{given} = {code}" if alone else f"{out}, {given} = {code}")
            edits.replace(call, "None" if alone else out)


def body_of(function: FunctionNode) -> list[ast.stmt]:
    """The statements of a function behind its docstring; the docstring where there is nothing else."""
    return function.body[ast.get_docstring(function, clean=False) is not None :] or function.body


def first_statement(function: FunctionNode) -> ast.stmt:
    """The first statement of a function behind its docstring."""
    return body_of(function)[0]

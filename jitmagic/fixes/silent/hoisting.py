"""Functions that are jitted anew in a loop or in each call: jitted once, with what varies as arguments."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix
from jitmagic.source.expressions import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


_DERIVATIVES = frozenset("grad value_and_grad jacfwd jacrev jacobian hessian".split())


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """A cell that jits once, where the calls seen give the same results with fewer compilations."""
    from jitmagic.fixes.silent import trial

    for cell in candidates(evidence.function.cell, Text(evidence.function.cell).line_of(finding)):
        words = compared(prover, cell, trial.history(prover)) or compared_whole(prover, cell)
        if words:
            yield Fix(title="jit once, and pass what varies as arguments", applicability="safe", verified=True,
                      evidence=words, cell=cell)  # fmt: skip
            return


def compared(prover: Prover, cell: str, sources: list[str], new: list[str] | None = None) -> str | None:
    """The same results with fewer compilations than the user's cell takes, or None; `new`: other calls of it."""
    from jitmagic.fixes.silent import trial
    from jitmagic.tracing import stages

    with contextlib.suppress(Exception):
        with stages.counted() as before:
            wanted = trial.original(prover, sources, jit=None).results
        with stages.counted() as after:
            got = trial.play(prover, cell, sources if new is None else new, jit=None).results
            again = len([e for e in after.events if e[0] == stages.COMPILE])
        then = len([e for e in before.events if e[0] == stages.COMPILE])
        if got and trial.same(wanted, got) and again < then:
            return f"the same results with {_compilations(again)} in place of {then}"
    return None


def compared_whole(prover: Prover, cell: str, sources: Sequence[str] = ()) -> str | None:
    """As `compared`, with the calls that stand in the cell itself, or with `sources` after the whole cell."""
    from jitmagic.fixes.silent import programs, wholes
    from jitmagic.tracing import stages

    def run(source: str) -> Any:
        if not sources:
            return programs.shown(prover, source)
        return wholes.run(prover, source, sources, jit=True) if wholes.may_run(prover, source) else []

    with contextlib.suppress(Exception):
        with stages.counted() as before:
            wanted = run(prover.checker.cell.body)
        with stages.counted() as after:
            got = run(cell)
        then, again = (len([e for e in x.events if e[0] == stages.COMPILE]) for x in (before, after))
        if got and wholes.agree(wanted, got) and again < then:
            return f"the same results with {_compilations(again)} in place of {then}"
    return None


def _compilations(number: int) -> str:
    return "1 compilation" if number == 1 else f"{number} compilations"


def candidates(source: str, line: int) -> Iterator[str]:
    """Cells in which the jit on that line stands at the top."""
    from jitmagic.fixes.silent import inner

    makers = (
        _with_keywords, _with_free_names, inner.moved, functools.partial(inner.moved, static=True), _before_loop,
        _of_factory,
    )  # fmt: skip
    for make in makers:
        with contextlib.suppress(SyntaxError, ValueError, LookupError, AttributeError, StopIteration):
            cell = make(Text(source), line)
            if cell:
                yield cell


def _jit_on(text: Text, line: int) -> ast.Call:
    """The call of `jax.jit(...)` in the statement on that line."""
    for node in text.on_line(line):
        for n in ast.walk(node):
            if (
                isinstance(n, ast.Call)
                and dotted_name(n.func).rpartition(".")[2] in ("jit", "pjit", "filter_jit")
                and n.args
            ):
                return n
    raise LookupError("no jit there")


def top_of(text: Text, node: ast.AST) -> ast.stmt:
    """The statement at the top of the cell that a node stands in."""
    while text.parents[node] is not text.tree:
        node = text.parents[node]
    assert isinstance(node, ast.stmt)
    return node


def _applications(text: Text, jit: ast.Call) -> list[tuple[ast.Call, ast.expr]]:
    """Calls of the jitted function, each with the node that stands for it: at once, or of the name it is given."""
    parent = text.parents[jit]
    if isinstance(parent, ast.Call) and parent.func is jit:
        return [(parent, jit)]
    statement = text.statement(jit)
    if (
        isinstance(statement, ast.Assign)
        and statement.value is jit
        and isinstance(statement.targets[0], ast.Name)
    ):
        return _calls_of(text, statement.targets[0].id, top_of(text, jit))
    raise ValueError("the jitted function goes elsewhere")


def _calls_of(text: Text, name: str, top: ast.AST) -> list[tuple[ast.Call, ast.expr]]:
    """Calls of a name inside `top`, those of its gradient included. Raises ValueError where it goes elsewhere."""
    found: list[tuple[ast.Call, ast.expr]] = []
    for n in ast.walk(top):
        if not (isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)):
            continue
        call: ast.AST | None = text.parents[n]
        if isinstance(call, ast.Call) and call.args[:1] == [n]:
            derivative = dotted_name(call.func).rpartition(".")[2] in _DERIVATIVES
            call = _called(text, call) if derivative else None
        elif not (isinstance(call, ast.Call) and call.func is n):
            call = None
        if not isinstance(call, ast.Call) or any(isinstance(a, ast.Starred) for a in call.args):
            raise ValueError("the jitted function goes elsewhere")
        found.append((call, n))
    return found


def _called(text: Text, derivative: ast.Call) -> ast.AST | None:
    """The call of `grad(f)`: at once, or of the name it is given where that is called once."""
    parent = text.parents[derivative]
    if isinstance(parent, ast.Call) and parent.func is derivative:
        return parent
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        calls = _calls_of(text, parent.targets[0].id, top_of(text, derivative))
        return calls[0][0] if len(calls) == 1 else None
    return None


def _with_keywords(text: Text, line: int) -> str | None:
    """`jit(grad(partial(f, a=x)))(w)` as `jit(grad(f))` at the top, called with `a=x`."""
    jit = _jit_on(text, line)
    partials = [
        n
        for n in ast.walk(jit)
        if isinstance(n, ast.Call) and dotted_name(n.func).rpartition(".")[2] == "partial"
    ]
    if len(partials) > 1 or any(isinstance(n, ast.Lambda) for n in ast.walk(jit)):
        return None
    made = text.code(jit)
    keywords = ""
    if partials:
        if len(partials[0].args) != 1:
            return None
        made = made.replace(text.code(partials[0]), text.code(partials[0].args[0]))
        keywords = "".join(f", {text.code(k)}" for k in partials[0].keywords)
    names = {n.id for n in ast.walk(ast.parse(made)) if isinstance(n, ast.Name)}
    top = top_of(text, jit)
    local = {n.id for n in ast.walk(top) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {n.arg for n in ast.walk(top) if isinstance(n, ast.arg)}
    local |= {n.name for n in ast.walk(top) if isinstance(n, ast.FunctionDef) and n is not top}
    if names & local:
        return None
    return _placed(text, jit, top, made, keywords, [])


def _of_factory(text: Text, line: int) -> str | None:
    """`jit(make(a))(w)` as `jit(f)` at the top, called with `a=a`, for the function `f` that `make` defines."""
    from jitmagic.fixes.silent import factories

    source, at = factories.taken_apart(text.source, line)
    return _with_keywords(Text(source), at)


def _with_free_names(text: Text, line: int) -> str | None:
    """A lambda or inner function as a function at the top that takes its free names as arguments."""
    jit = _jit_on(text, line)
    top = top_of(text, jit)
    inner = {n.name: n for n in ast.walk(top) if isinstance(n, ast.FunctionDef) and n is not top}
    local = {n.id for n in ast.walk(top) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {
        a.arg
        for n in ast.walk(top)
        if isinstance(n, ast.FunctionDef)
        for a in ast.walk(n.args)
        if isinstance(a, ast.arg)
    }
    for node in ast.walk(jit):
        named = _lambda_of(top, node)
        definition: ast.Lambda | ast.FunctionDef | None = (
            node if isinstance(node, ast.Lambda) else named.value if named is not None  # type: ignore[assignment]
            else inner.get(getattr(node, "id", ""))
        )  # fmt: skip
        if definition is None:
            continue
        own = {a.arg for a in ast.walk(definition.args) if isinstance(a, ast.arg)}
        own |= {
            n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        read = [n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        free = [n for n in dict.fromkeys(read) if n in local and n not in own and n not in inner]
        made = _with_axes(text, jit, node, len(definition.args.args), len(free))
        if isinstance(definition, ast.Lambda):
            held = _of_receiver(text, definition, free, {*own, *free})
            if held:
                return _with_attributes(text, jit, top, definition, free, held)
            arguments = ", ".join([*(a.arg for a in definition.args.args), *free])
            function = f"lambda {arguments}: {text.code(definition.body)}"
            made = re.sub(rf"\b{node.id}\b", lambda _: function, made, count=1) if (  # noqa: B023
                named is not None and isinstance(node, ast.Name)
            ) else made.replace(text.code(definition), function)  # fmt: skip
            if named is not None:
                _only_there(text, top, named)
            before: list[str] = []
        else:
            arguments = ", ".join([*(a.arg for a in definition.args.args), *free])
            lines = text.code(definition).splitlines()
            indent = definition.col_offset
            body = text.source[text.span(definition.body[0])[0] : text.span(definition.body[-1])[1]]
            dedented = "\n".join(x[indent:] if x[:indent].isspace() else x for x in body.splitlines())
            before = [f"def {definition.name}({arguments}):", f"    {dedented}", "", ""]
            if definition.decorator_list or not lines:
                return None
            text.remove(definition)
        return _placed(text, jit, top, made, "".join(f", {n}" for n in free), before)
    return None


def _of_receiver(text: Text, definition: ast.Lambda, free: list[str], taken: set[str]) -> dict[str, str]:
    """What a lambda in a method reads of the object (`self.fun`), each with the name of a parameter.

    Raises ValueError where it needs the object itself."""
    method = text.around(definition, ast.FunctionDef)
    is_method = isinstance(method, ast.FunctionDef) and isinstance(text.parents[method], ast.ClassDef)
    receiver = method.args.args[0].arg if is_method and method.args.args else ""  # type: ignore[union-attr]
    if receiver not in free:
        return {}
    uses = [text.parents[n] for n in ast.walk(definition) if isinstance(n, ast.Name) and n.id == receiver]
    found = {
        u.attr: ast.unparse(u) for u in uses if isinstance(u, ast.Attribute) and isinstance(u.ctx, ast.Load)
    }
    if len(found) < len({ast.unparse(u) for u in uses}) or set(found) & taken:
        raise ValueError("it needs the object itself")
    return {value: name for name, value in found.items()}


def _with_attributes(
    text: Text, jit: ast.Call, top: ast.stmt, definition: ast.Lambda, free: list[str], held: dict[str, str]
) -> str:
    """`jit(lambda x: self.fun(x, a))` at the top, with `self.fun` as a static argument and `a` as one besides."""
    code, given = text.code(definition.body), [a.arg for a in definition.args.args]
    called = [ast.unparse(n.func) for n in ast.walk(definition) if isinstance(n, ast.Call)]
    for value, name in held.items():
        code = re.sub(rf"\b{re.escape(value)}\b", name, code)
    values = [n for n in free if n not in {v.partition(".")[0] for v in held}]
    names = [*given, *values, *held.values()]
    function = f"lambda {', '.join(names)}: {code}"
    made = text.code(jit).replace(text.code(definition), function)
    static = [str(names.index(name)) for value, name in held.items() if value in called]
    if static:
        if jit.keywords or "vmap" in made:
            raise ValueError("positions that would be others")
        made = f"{made[:-1]}, static_argnums=({', '.join(static)},))"
    return _placed(text, jit, top, made, "".join(f", {v}" for v in (*values, *held)), [])


def _before_loop(text: Text, line: int) -> str | None:
    """What is jitted at each turn of a loop and depends on none of them, jitted in front of the loop."""
    jit = _jit_on(text, line)
    loop = text.around(jit, ast.For, ast.While)
    if not isinstance(loop, ast.For | ast.While) or text.around(jit, ast.FunctionDef) is not text.around(
        loop, ast.FunctionDef
    ):
        return None
    bound = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    written = {
        ast.unparse(n)
        for n in ast.walk(loop)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    }
    own = {
        a.arg
        for n in ast.walk(jit)
        if isinstance(n, ast.Lambda)
        for a in ast.walk(n.args)
        if isinstance(a, ast.arg)
    }
    read = {n.id for n in ast.walk(jit) if isinstance(n, ast.Name)} - own
    if read & bound or any(ast.unparse(n) in written for n in ast.walk(jit) if isinstance(n, ast.Attribute)):
        return None
    statement = text.statement(jit)
    if isinstance(statement, ast.Assign) and statement.value is jit:
        text.remove(statement).before(loop, [text.code(statement)])
    else:
        name = text.fresh("compiled", "jitted", "compiled_function")
        text.replace(jit, name).before(loop, [f"{name} = {text.code(jit)}"])
    return text.result()


def _placed(text: Text, jit: ast.Call, top: ast.stmt, made: str, extra: str, before: list[str]) -> str:
    name = text.fresh("compiled", "jitted", "compiled_function")
    for call, node in _applications(text, jit):
        text.replace(node, name)
        _extend(text, call, extra)
    statement = text.statement(jit)
    if isinstance(statement, ast.Assign) and statement.value is jit:
        text.remove(statement)
    decorators = getattr(top, "decorator_list", [])
    start = text.span(decorators[0])[0] - 1 if decorators else text.span(top)[0]
    apart = ["", "", ""] if isinstance(top, (ast.FunctionDef, ast.ClassDef)) else [""]
    block = "\n".join([*before, f"{name} = {made}", *apart])
    text.changes.append((start, start, block))
    return text.result()


def _extend(text: Text, call: ast.Call, extra: str) -> None:
    """Put more arguments behind those of a call."""
    end = text.span(call)[1] - 1
    if call.keywords:  # what follows a keyword has to be one
        extra = ", ".join(x if "=" in x or not x else f"{x}={x}" for x in extra.split(", "))
    text.changes.append((end, end, extra if call.args or call.keywords else extra.removeprefix(", ")))


def _lambda_of(top: ast.AST, node: ast.AST) -> ast.Assign | None:
    """`g = lambda x: ...` inside `top` for the name `g`, where it is bound once."""
    if not isinstance(node, ast.Name):
        return None
    bound = [
        n
        for n in ast.walk(top)
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)
    ]
    return bound[0] if len(bound) == 1 and isinstance(bound[0].value, ast.Lambda) else None


def _only_there(text: Text, top: ast.AST, named: ast.Assign) -> None:
    """Take out the assignment of a lambda that nothing else uses."""
    name = ast.unparse(named.targets[0])
    uses = [
        n for n in ast.walk(top) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]
    if len(uses) == 1:
        text.remove(named)


def _with_axes(text: Text, jit: ast.Call, function: ast.AST, own: int, more: int) -> str:
    """The source of the jit; a `vmap` in it maps over the function's own arguments, not over the new ones."""
    made = text.code(jit)
    current = text.parents.get(function)
    while more and current is not None and current is not text.parents[jit]:
        if isinstance(current, ast.Call) and dotted_name(current.func).rpartition(".")[2] == "vmap":
            if len(current.args) > 1 or any(k.arg != "out_axes" for k in current.keywords):
                raise ValueError("a vmap over chosen axes")
            code = text.code(current)
            axes = ", ".join(["0"] * own + ["None"] * more)
            made = made.replace(code, f"{code[:-1]}, in_axes=({axes}))")
        current = text.parents.get(current)
    return made

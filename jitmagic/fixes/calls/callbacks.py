"""What only leaves the function, for a log or a variable outside: handed out through `jax.debug.callback`."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.source.modules import last_name
from jitmagic.source.tree import in_order, parameters_of

COST = "the value arrives while the compiled function runs"
VALUES = ("item", "tolist", "numpy")
"""Methods of an array that give numbers of Python's."""
CLOCKS = frozenset("time datetime random os secrets uuid".split())
"""Modules whose functions give something else at each call."""
Items = ast.Name | ast.Attribute | ast.Subscript


@dataclass(frozen=True)
class Output:
    """A statement that hands something out: a call that nobody uses, or a store."""

    statement: ast.Expr | ast.Assign | ast.AugAssign
    into: ast.expr | None
    """What it changes: `log` of `log.append(x)`, `self.h` of `self.h = x`; None for a function, as `print`."""


def callbacks(spot: Spot) -> Iterator[Change]:
    """A statement whose value nobody uses (`log.append(np.mean(h))`) and a store outside run as callbacks: with all
    others of the function, then alone."""
    here = spot.here(ast.stmt)
    if isinstance(here, ast.Assign) and is_text(here.value):
        use = _only_use(spot, here)
        here = spot.text.statement(use) if use is not None else here
    place = _output(spot, here, asked=True) if here is not None else None
    if place is None or spot.innermost is None or spot.sets_process:
        return
    found = (_output(spot, s) for s in spot.text.own(spot.innermost, ast.stmt) if s is not here)
    others = [o for o in found if o is not None and o.into is not None] if place.into is not None else []
    for outputs in ([place, *others], [place]) if others else ([place],):
        if not any(_is_read(spot, o, outputs) for o in outputs):
            edits = spot.edits()
            for statement in (o.statement for o in outputs):
                if isinstance(statement, ast.Expr):
                    texts = _texts(spot, statement)
                    edits.replace(statement, _called(spot, statement, texts))
                    for assign in texts.values():
                        edits.remove(assign)
                else:
                    _store(spot, edits, statement)
            _undeclare(spot, edits, outputs)
            yield handed_out(_title(spot, outputs), edits, sure=place.into is None)


def handed_out(title: str, edits: Edits, *, sure: bool = False) -> Change:
    """A change by which the host gets values while the program runs."""
    return Change(title, edits, cost=COST, sure=sure, tags=frozenset({Tag.CALLBACK}))


def callback(spot: Spot, statement: ast.stmt) -> str | None:
    """The call of `jax.debug.callback` for a call that stands as a statement; None for others."""
    output = _output(spot, statement)
    if output is None or not isinstance(statement, ast.Expr) or _is_read(spot, output, [output]):
        return None
    return _called(spot, statement, {})


def on_the_host(spot: Spot, node: ast.AST) -> bool:
    """It stands inside a callback, or inside a function that is handed to one: both get the values."""
    around = list(spot.text.ancestors(node))
    own = {n.name for n in around if isinstance(n, FunctionNode)}
    called = (n for n in spot.text.within(spot.text.tree, ast.Call) if last_name(n.func).endswith("callback"))
    return any(n in around or any(getattr(a, "id", "") in own for a in n.args) for n in called)


def is_text(node: ast.expr) -> bool:
    """A text, or what formats one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        return is_text(node.left) or isinstance(node.op, ast.Add) and is_text(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "format" and is_text(node.func.value)
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("str", "repr", "format")
    return isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str)


def text_of(spot: Spot, name: ast.expr) -> ast.Assign | None:
    """Where the text is made that a name stands for, if nothing that it reads is bound anew afterwards."""
    function, value = spot.outermost, spot.assigned(name.id) if isinstance(name, ast.Name) else None
    if function is None or value is None or not is_text(value):
        return None
    names = [n for n in spot.text.within(function, ast.Name) if isinstance(n.ctx, ast.Store)]
    again = any(n.id in scope.loads(value) and n.lineno > value.lineno for n in names)
    made = spot.text.statement(value)
    return made if isinstance(made, ast.Assign) and not again else None


def _only_use(spot: Spot, assign: ast.Assign) -> ast.Name | None:
    """Where the name that is assigned here is read, if that is once."""
    name = getattr(assign.targets[0], "id", "")
    if spot.outermost is None or spot.assigned(name) is not assign.value:
        return None
    names = [n for n in spot.text.within(spot.outermost, ast.Name) if n.id == name]
    return names[1] if len(names) == 2 else None


def _texts(spot: Spot, statement: ast.stmt) -> dict[ast.Name, ast.Assign]:
    """Names of texts that are formatted for this statement alone, and where that is done."""
    made = {name: text_of(spot, name) for name in spot.text.within(statement, ast.Name)}
    return {name: text for name, text in made.items() if text is not None and _only_use(spot, text) is name}


def _title(spot: Spot, outputs: Sequence[Output]) -> str:
    calls = [o.statement.value for o in outputs if isinstance(o.statement, ast.Expr)]
    called = dict.fromkeys(spot.code(c.func) for c in calls if isinstance(c, ast.Call))
    stored = [o.into for o in outputs if o.into is not None and not isinstance(o.statement, ast.Expr)]
    words = [f"call {listed(called)}"] if called else []
    words += [f"store into {listed(dict.fromkeys(map(spot.code, stored)))}"] if stored else []
    return f"{' and '.join(words)} through `jax.debug.callback`"


# -- what goes out


def _output(spot: Spot, statement: ast.stmt, *, asked: bool = False) -> Output | None:
    """The statement as an output: it is `asked` about, or traced values go out of the function by it."""
    own = _locals(spot)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        full = spot.full(function)
        own = own - _given_functions(spot, function) if asked else own
        if full.startswith("jax.") or _path(function)[0] in own or on_the_host(spot, statement):
            return None
        if not asked and not _values(spot, statement) or _asks_a_clock(spot, statement):
            return None
        return Output(statement, function.value if isinstance(function, ast.Attribute) and not full else None)
    if isinstance(statement, ast.AugAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1 and _values(spot, statement.value):
        target = statement.targets[0]
    else:
        return None
    return Output(statement, target) if isinstance(target, Items) and _path(target)[0] not in own else None


def _given_functions(spot: Spot, function: ast.expr) -> set[str]:
    """A function that the one around is given (`emit` of `report(print, x)`): what it does, it does outside."""
    given = {p for f in spot.path if isinstance(f, FunctionNode) for p in parameters_of(f)}
    return given & {function.id} if isinstance(function, ast.Name) else set()


def _path(node: ast.AST) -> list[str]:
    """`self`, `h` for `self.h`; `log`, `'x'` for `log['x']`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        parts.append(node.attr if isinstance(node, ast.Attribute) else ast.unparse(node.slice))
        node = node.value
    return [getattr(node, "id", ""), *parts[::-1]]


def _locals(spot: Spot) -> set[str]:
    """Names that the functions around the place bind; not `self` of a method, on which all hangs that is outside."""
    functions = [n for n in spot.path if isinstance(n, FunctionNode)]
    methods = [f for f in functions if isinstance(spot.text.parents[f], ast.ClassDef) and f.args.args]
    return {n for f in functions for n in scope.local_names(f)} - {f.args.args[0].arg for f in methods}


def _values(spot: Spot, node: ast.AST) -> list[str]:
    """Local names that may be traced and that a node reads, in order: what a callback is given."""
    read = _locals(spot) & spot.traced & scope.loads(node)
    return [n for n in dict.fromkeys(getattr(n, "id", "") for n in in_order(node)) if n in read]


def _asks_a_clock(spot: Spot, statement: ast.stmt) -> bool:
    """It reads a name that a clock or a generator gave its value while jax traced."""
    values = map(spot.assigned, scope.loads(statement))
    calls = (n for v in values if v is not None for n in ast.walk(v) if isinstance(n, ast.Call))
    return any(spot.full(c).removeprefix("numpy.").partition(".")[0] in CLOCKS for c in calls)


def _is_read(spot: Spot, output: Output, outputs: Sequence[Output]) -> bool:
    """What the function traces reads what is written there: a callback would leave that as it was."""
    if output.into is None:
        return False
    told = {n for o in outputs for s in (o.statement, *_read_later(spot, o.statement)) for n in _items(s)}
    told -= {n for o in outputs for part in _handed(spot, o.statement) for n in _items(part)}
    root, *own = _path(output.into)
    for node in (n for f in _reached(spot) for n in _items(f)):
        around = spot.text.parents[node]
        longer = isinstance(around, ast.Attribute | ast.Subscript) and around.value is node
        if longer or told.intersection(_items(node)):
            continue
        if isinstance(spot.text.parents[around], ast.Expr) and node is getattr(around, "func", None):
            continue  # `log.append(1)`
        first, *path = _path(node)
        shared = min(len(path), len(own))
        if path[:shared] == own[:shared] and (first == root or shared > 0 and root in ("self", "cls")):
            if isinstance(node.ctx, ast.Load) or isinstance(around, ast.AugAssign):
                return True
    return False


def _items(node: ast.AST) -> Iterator[Items]:
    return (n for n in ast.walk(node) if isinstance(n, Items))


def _reached(spot: Spot) -> list[FunctionNode]:
    """The function that is compiled, and those of the cell that it may call."""
    first = spot.text.definition(spot.function) or spot.outermost
    found = [f for f in spot.text.functions if f in (first, spot.outermost)]
    for function in found:
        named = {last_name(n) for n in ast.walk(function)}
        found += [f for f in spot.text.functions if f.name in named and f not in found]
    return found


def _read_later(spot: Spot, stored: ast.stmt) -> list[ast.expr]:
    """Where the function reads again what it stores, and may have the value itself."""
    if not isinstance(stored, ast.Assign) or not _by_jax(spot, stored.value):
        return []
    block, index = spot.text.siblings(stored)
    target = _path(stored.targets[0])
    found = (n for s in block[index + 1 :] for n in _items(s))
    return [n for n in found if isinstance(n.ctx, ast.Load) and _path(n) == target]


# -- how it is written


def _handed(spot: Spot, statement: ast.stmt) -> list[ast.expr]:
    """The parts of an output that jax computes: they stay in the program, and the callback is given their values."""
    value = getattr(statement, "value", None)
    parts = [value]
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call):
        parts = [*value.args, *(k.value for k in value.keywords)]
    return [p for p in parts if isinstance(p, ast.expr) and _values(spot, p) and _by_jax(spot, p)]


def _by_jax(spot: Spot, node: ast.AST) -> bool:
    """jax computes it: it may stay in the program, and its value is handed out."""
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        method = isinstance(call.func, ast.Attribute) and not spot.full(call) and call.func.attr not in VALUES
        if not method and not spot.full(call).startswith("jax."):
            return False
    return not any(isinstance(n, ast.JoinedStr) for n in ast.walk(node))


def _called(spot: Spot, statement: ast.Expr, texts: Mapping[ast.Name, ast.Assign]) -> str:
    """`log.append(y)` as `jax.debug.callback(log.append, y)`; others in a lambda, where texts are formatted too."""
    call = statement.value
    assert isinstance(call, ast.Call)
    given = [*call.args, *(k.value for k in call.keywords)]
    handed = [a for a in _handed(spot, statement) if a not in texts]
    if given and given == handed and not call.keywords:
        return spot.write("jax.debug.callback($function, $*given)", function=call.func, given=given)
    inside, operands = spot.edits(), dict[str, str]()
    for name, assign in texts.items():
        inside.replace(name, spot.code(assign.value))
    for argument in handed:
        whole = argument.value if isinstance(argument, ast.Starred) else argument
        if not isinstance(whole, ast.Name):
            own = spot.text.fresh("value", taken={*spot.modules.names, *operands})
            operands[own] = spot.code(whole)
            inside.replace(whole, own)
    code = inside.code(statement)
    read = [n for n in _values(spot, ast.parse(code)) if n not in _given_functions(spot, call.func)]
    operands = {**{n: n for n in read}, **operands}
    head, values = f"lambda {', '.join(operands)}".strip(), ", ".join(operands.values())
    return spot.write("jax.debug.callback($$head: $$code, $*values)", head=head, code=code, values=values)


def _store(spot: Spot, edits: Edits, statement: ast.Assign | ast.AugAssign) -> None:
    """A store as a function that makes it, and its callback; what reads it later gets the value itself."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    value, first, line = statement.value, "", spot.edits()
    values = _values(spot, value)
    if value in _handed(spot, statement):
        taken = {*spot.modules.names, *dir(builtins)}
        name = signature.name_for(ast.unparse(target)) or "value"
        own = value.id if isinstance(value, ast.Name) else edits.fresh(name, taken=taken)
        first = "" if isinstance(value, ast.Name) else f"{own} = {spot.code(value)}\n\n"
        line.replace(value, own)
        for node in _read_later(spot, statement):
            edits.replace(node, own)
        values = [own]
    declared = f"global {target.id}\n" if isinstance(target, ast.Name) else ""
    keep, values = edits.fresh("keep", taken=spot.modules.names), [*values, *_values(spot, target)]
    body = declared + line.code(statement)
    edits.statements(statement, first + through_callback(spot, keep, ", ".join(dict.fromkeys(values)), body))


def through_callback(spot: Spot, name: str, values: str, body: str) -> str:
    """Source of a function of these names that does something on the host, and of the callback that calls it."""
    form = "def $$name($*values):\n    $body\n\njax.debug.callback($$name, $*values)"
    return spot.write(form, name=name, values=values, body=body)


def _undeclare(spot: Spot, edits: Edits, outputs: Sequence[Output]) -> None:
    """Take out `global` of names that only callbacks store into."""
    told = {o.into.id for o in outputs if isinstance(o.into, ast.Name)}
    for declared in spot.text.own(spot.innermost, ast.Global) if spot.innermost is not None else ():
        if set(declared.names) <= told:
            edits.remove(declared)

"""The text of a cell: its magic line, its functions, and the hooks that tell when one is defined.

Nothing here runs code or knows IPython. The cell itself runs the ordinary way: the magic line becomes one
line-magic call, and after each statement that binds a name a call of the hook is inserted into the tree, on
the statement's own line, so tracebacks and line numbers stay as they were.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from jitmagic.source.modules import last_name
from jitmagic.source.tree import SCOPES, bodies, in_order, nodes_of, uncollected, walk

MAGICS = ("jit", "jitcheck")
HOOK_MODULE = "jitmagic.notebook.session"
HOOK_NAME = "name_bound"

_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


def to_line_magic(lines: list[str]) -> list[str]:
    """Turn a leading `%%jit …` line into the call of the line magic `%jit --cell …`, so that the cell's body runs
    as it stands."""
    if not lines:
        return lines
    first = lines[0]
    for name in MAGICS:
        if first.startswith(f"%%{name}") and not first[len(name) + 2 :][:1].isidentifier():
            rest = first[len(name) + 2 :].rstrip("\n")
            if rest.strip().endswith("?") and not rest.strip("? \t"):
                return lines  # `%%jit?` asks for help
            if not "".join(lines[1:]).strip():
                return lines  # an empty body: let IPython say so
            call = f"get_ipython().run_line_magic({name!r}, {f'--cell{rest}'.strip()!r})\n"  # as IPython does
            return [call, *_inner_magic(lines[1:])]
    return lines


def _inner_magic(lines: list[str]) -> list[str]:
    """A body that begins with another cell magic, as IPython writes the call of that."""
    if not lines[0].startswith("%%"):
        return lines
    name, _, rest = lines[0][2:].rstrip().partition(" ")
    return [f"get_ipython().run_cell_magic({name!r}, {rest!r}, {''.join(lines[1:])!r})\n"]


# IPython's check for a complete input must still see the `%%`, or Enter would run the magic line alone.
to_line_magic.has_side_effects = True  # type: ignore[attr-defined]


def body_of(source: str) -> str:
    """The cell without its magic lines; line numbers shift by one for a cell magic."""
    lines = source.splitlines(keepends=True)
    if lines and lines[0].startswith(tuple(f"%%{m}" for m in MAGICS)):
        return "".join(lines[1:])
    return source


def magic_line_of(source: str) -> str:
    """The `%%jit …` or `%jit …` line of a cell, or an empty string."""
    for line in source.splitlines():
        if line.lstrip().startswith(tuple(f"{p}{m}" for p in ("%%", "%") for m in MAGICS)):
            return line.strip()
    return ""


_JITS = frozenset(("jit", "filter_jit", "pjit"))


@dataclass(frozen=True)
class Definition:
    """A function or method that a cell defines."""

    name: str
    """`f`, or `Model.step` for a method."""
    line: int
    end_line: int
    is_generator: bool = False
    is_async: bool = False
    jits_inside: bool = False
    """Its body compiles something by itself."""
    jitted: bool = False
    """A decorator compiles it."""
    parameters: tuple[str, ...] | None = None
    """Names that calls may give, `**` where they may give any; None for a lambda."""


def definitions(tree: ast.Module) -> list[Definition]:
    """Top-level functions (also `f = lambda …`) and the methods of top-level classes, in order."""
    out: list[Definition] = []
    for node in statements_at_top(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            out.append(_definition(node, node.name))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            out += [Definition(n, node.lineno, node.end_lineno or node.lineno) for n in names]
        elif isinstance(node, ast.ClassDef):
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            out += [_definition(m, f"{node.name}.{m.name}") for m in node.body if isinstance(m, functions)]
    return out


_defined: weakref.WeakKeyDictionary[ast.AST, Definition] = weakref.WeakKeyDictionary()


def _definition(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Definition:
    if (known := _defined.get(node)) is not None:
        return known
    a = node.args
    named = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    _defined[node] = found = Definition(
        name, node.lineno, node.end_lineno or node.lineno, _holds(node, ast.Yield, ast.YieldFrom),
        isinstance(node, ast.AsyncFunctionDef), any(map(_is_jit, walk(*node.body))),
        any(map(uses_jit, node.decorator_list)), (*named, *(["**"] if a.kwarg else [])),
    )  # fmt: skip
    return found


def _holds(function: ast.AST, *kinds: type[ast.AST]) -> bool:
    """Nodes of these kinds stand in a function, and not in one inside of it."""
    every = any(isinstance(n, kinds) for n in nodes_of(function))
    return every and any(isinstance(n, kinds) for n in in_order(function, own=True))


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """What stands in a text, statement by statement: those of a cell are asked about before and behind its magic."""
    return [n for statement in getattr(tree, "body", ()) for n in nodes_of(statement)]


def parameter_names(tree: ast.Module, functions: Collection[str]) -> dict[str, set[str]]:
    """The parameters of these functions and methods, as far as the cell defines them; `**` for what takes any."""
    found = (d for d in definitions(tree) if d.name in functions and not d.is_async)
    return {d.name: set(d.parameters) for d in found if d.parameters is not None}


def statements_at_top(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at the cell's top level, those inside `if`, `for`, `with`, `try` included."""
    for node in body:
        yield node
        if isinstance(node, _BLOCKS):
            for _, block in bodies(node):
                yield from statements_at_top(block)


def simple_statements(tree: ast.Module) -> list[ast.stmt]:
    """Those at the top level that hold no others, but for definitions."""
    return [s for s in statements_at_top(tree.body) if not isinstance(s, _BLOCKS)]


def bound_names(node: ast.stmt) -> list[str]:
    """Names that a statement binds at the level it stands on."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [a.asname or a.name.partition(".")[0] for a in node.names if a.name != "*"]
    if isinstance(node, _BLOCKS):
        return []  # the statements inside report for themselves
    stores = (n for n in in_order(node, own=True) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return list(dict.fromkeys(n.id for n in stores))


def top_level_names(tree: ast.Module) -> set[str]:
    """Every name that the cell binds at its top level."""
    out = {n for node in statements_at_top(tree.body) for n in bound_names(node)}
    for node in statements_at_top(tree.body):
        if isinstance(node, (ast.For, ast.With)):
            out |= {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return out


def deletes(tree: ast.Module) -> bool:
    """The cell takes something out at its top level: `del model`."""
    return any(isinstance(s, ast.Delete) for s in statements_at_top(tree.body))


def listens(tree: ast.Module) -> bool:
    """The cell has Python tell of calls itself: `sys.setprofile`, or the module `profile`, which counts each event."""
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(ast.Name(head), name) if f"{head}.{name}" in _LISTENERS:
                return True
            case ast.Import(names) if any(a.name == "profile" for a in names):
                return True
            case ast.ImportFrom(str(module), names):
                if any(f"{module}.{a.name}" in _LISTENERS for a in names):
                    return True
    return False


_LISTENERS = frozenset(
    "sys.setprofile sys.getprofile threading.setprofile threading.setprofile_all_threads "
    "profile.Profile profile.run profile.runctx".split()
)


def magic_index(tree: ast.Module) -> int | None:
    """Index of the top-level `%jit` or `%jitcheck` statement, or None."""
    for i, node in enumerate(tree.body):
        call = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "run_line_magic" and call.args and isinstance(call.args[0], ast.Constant):
            if call.args[0].value in MAGICS:
                return i
    return None


def after_magic(tree: ast.Module | None) -> ast.Module:
    """The statements behind the `%jit` or `%jitcheck` of a cell; none without one."""
    index = magic_index(tree) if tree is not None else None
    return ast.Module(tree.body[index + 1 :] if tree is not None and index is not None else [], [])


def above_magic(tree: ast.Module | None) -> list[ast.stmt]:
    """The statements above the `%jit` or `%jitcheck` of a cell."""
    index = magic_index(tree) if tree is not None else None
    return tree.body[:index] if tree is not None and index is not None else []


def instrument(tree: ast.Module) -> ast.Module:
    """Insert the hook after every statement behind the magic that binds a name; no change without a magic.

    The last statement gets no hook: whether its value is shown depends on its being the last. The session
    looks at its names when the cell has run.
    """
    start = magic_index(tree)
    if start is None:
        return tree
    head, tail = tree.body[: start + 1], tree.body[start + 1 :]
    if not tail:
        return tree
    with uncollected():
        tree.body = head + _with_hooks(tail[:-1]) + [_hooked_inside(tail[-1])]
    return tree


def _with_hooks(body: list[ast.stmt]) -> list[ast.stmt]:
    out: list[ast.stmt] = []
    for node in body:
        out.append(_hooked_inside(node))
        if names := bound_names(node):
            out.append(_hook(node, names))
    return out


def _hooked_inside(node: ast.stmt) -> ast.stmt:
    if isinstance(node, _BLOCKS):
        for _, block in bodies(node):
            block[:] = _with_hooks(block)
    return node


def _hook(node: ast.stmt, names: list[str]) -> ast.stmt:
    """`__import__('jitmagic.notebook.session', fromlist=['_']).name_bound(names)`, on the statement's own line.

    Built node by node, with every place filled in: a cell of ten thousand lines has as many hooks."""
    at = {"lineno": node.lineno, "end_lineno": node.lineno, "col_offset": 0, "end_col_offset": 0}
    load = ast.Load()

    def texts(values: list[str]) -> ast.List:
        return ast.List([ast.Constant(value, None, **at) for value in values], load, **at)

    module = ast.Call(
        ast.Name("__import__", load, **at),
        [ast.Constant(HOOK_MODULE, None, **at)],
        [ast.keyword("fromlist", texts(["_"]), **at)],
        **at,
    )
    call = ast.Call(ast.Attribute(module, HOOK_NAME, load, **at), [texts(names)], [], **at)
    return ast.copy_location(ast.Expr(call), node)


def split_calls(text: str) -> list[str]:
    """The calls of a magic line, split at semicolons outside brackets and strings.

    Raises SyntaxError where one of them is no Python.
    """
    text = text.strip()
    if not text:
        return []
    tree = ast.parse(text.rstrip(";"))
    return [ast.get_source_segment(text, node) or "" for node in tree.body]


def compiled_names(tree: ast.Module) -> set[str]:
    """What the cell compiles by itself, as it is called: `f` of `@jit def f`, `g` of `g = jit(f)`, `.step`."""
    compiled = {_as_called(d.name) for d in definitions(tree) if d.jitted}
    for node in statements_at_top(tree.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and uses_jit(node.value.func):
            compiled |= set(bound_names(node))
    return compiled


def beside_compiled(tree: ast.Module) -> set[str]:
    """Functions of a cell that compiles others by itself, which nothing compiled can call: they make the model and
    the data, and run the loop. What the cell only calls at its top level is not reached by that, nor what only the
    making of its objects calls. Those that come to compile something at each call are none of them."""
    if not uses_jit(tree):
        return set()
    defined = (n for n in statements_at_top(tree.body) if isinstance(n, (ast.FunctionDef, ast.ClassDef)))
    found = {n.name: n for n in defined}
    compiling = {d.name for d in definitions(tree) if d.jits_inside or d.jitted}
    top = [n for n in tree.body if n not in found.values()]
    called = {id(n.func) for s in top for n in in_order(s, own=True) if isinstance(n, ast.Call)}
    methods = [m for n in found.values() if isinstance(n, ast.ClassDef) for m in n.body if not _makes(m)]
    todo = [*top, *methods, *(n for n in found.values() if n.name in compiling)]
    reached = set(compiling)
    while todo:
        names = {n.id for n in walk(todo.pop()) if isinstance(n, ast.Name) and id(n) not in called}
        todo += [found[name] for name in (names & found.keys()) - reached]
        reached |= names
    functions = {name for name, n in found.items() if isinstance(n, ast.FunctionDef)}
    inside = {_as_called(d.name) for d in definitions(tree) if d.jits_inside}
    return functions - reached - _callers(tree, inside)


def _makes(method: ast.stmt) -> bool:
    """It runs where an object is made."""
    return isinstance(method, ast.FunctionDef) and method.name in ("__init__", "__post_init__")


def compile_inside(tree: ast.Module) -> set[str]:
    """Functions that compile something, or come to call what the cell compiles: they are not for jit as a whole."""
    inside = {d.name for d in definitions(tree) if d.jits_inside} | _makers(tree)
    return inside | _callers(tree, compiled_names(tree) | set(map(_as_called, inside)))


def _callers(tree: ast.Module, functions: Collection[str]) -> set[str]:
    """Functions of the top level that come to call one of these, which are given as they are called."""
    if not functions:
        return set()
    called = {n.name: _called(n) for n in statements_at_top(tree.body) if isinstance(n, ast.FunctionDef)}
    known, found = set(functions), set[str]()
    while more := {n for n, names in called.items() if names & known} - known:
        known |= more
        found |= more
    return found


def _makers(tree: ast.Module) -> set[str]:
    """`make` of `jax.jit(make(0.1))`: what it gives is compiled, and not itself."""
    jits = [n for n in _nodes(tree) if isinstance(n, ast.Call) and uses_jit(n.func)]
    made = [a for n in jits for a in n.args if not isinstance(a, ast.Lambda)]
    calls = [c for a in made for c in in_order(a, own=True) if isinstance(c, ast.Call)]
    return {c.func.id for c in calls if isinstance(c.func, ast.Name)}


def _as_called(name: str) -> str:
    """`f`, or `.step` for the method `Model.step`."""
    cls, _, last = name.rpartition(".")
    return f".{last}" if cls else last


def _called(function: ast.FunctionDef) -> set[str]:
    """The functions that a function calls by name, and the methods, as `.step`."""
    heads = [n.func for n in walk(*function.body) if isinstance(n, ast.Call)]
    by_name = {h.id for h in heads if isinstance(h, ast.Name)}
    return by_name | {f".{h.attr}" for h in heads if isinstance(h, ast.Attribute)}


_TAKERS = frozenset(
    "pure_callback io_callback callback colocated_python "
    "defvjp defjvp defjvps def_vmap def_partition def_impl def_abstract_eval".split()
)
"""What takes functions that the host runs, or rules that jax itself calls when it needs them."""
_RUNNERS = frozenset(
    "Thread Timer start_new_thread signal.signal atexit.register events.register weakref.finalize observe on_click "
    "add_done_callback add_signal_handler call_soon call_soon_threadsafe call_later call_at settrace setprofile "
    "addaudithook register_callback".split()
)
"""What runs a function at another time and throws away what it gives: it is there for what it changes."""
_GIVEN_ALONE = {"submit": 1, "to_thread": 1, "run_in_executor": 2}
"""What runs a function elsewhere, and how many arguments it has where that function gets none: a worker's loop."""


def not_for_jit(tree: ast.AST) -> set[str]:
    """Names of functions that others call than the user, or that take and give functions."""
    return _handed_over(tree) | _decorators(tree) | factories(tree)


def factories(tree: ast.AST) -> set[str]:
    """Functions of the top level that give nothing but functions that they define: `make` of `step = make(0.1)`."""
    found = set()
    functions = [n for n in statements_at_top(getattr(tree, "body", ())) if isinstance(n, ast.FunctionDef)]
    for function in (n for n in functions if any(isinstance(x, SCOPES) for x in nodes_of(n)[1:])):
        inner = {n.name for n in statements_at_top(function.body) if isinstance(n, ast.FunctionDef)}
        returned = [n.value for n in in_order(function, own=True) if isinstance(n, ast.Return)]
        parts = [p for v in returned for p in (v.elts if isinstance(v, ast.Tuple) else [v])]
        if parts and all(isinstance(p, ast.Lambda) or getattr(p, "id", "") in inner for p in parts):
            found.add(function.name)
    return found


def made_by(tree: ast.Module, makers: Collection[str]) -> tuple[str, ...]:
    """The names that the cell's top level binds to what these functions give: `step` of `step = make(0.1)`."""
    found: dict[str, None] = {}
    for statement in statements_at_top(tree.body):
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name(maker))) if maker in makers:
                found[name] = None
    return tuple(found)


def _handed_over(tree: ast.AST) -> set[str]:
    """Functions that are handed to the host or to jax, by name or by a decorator: callbacks, rules of derivatives,
    how objects of a class are taken apart."""
    given = [
        a for n in _nodes(tree) if isinstance(n, ast.Call) and _takes(n.func)
        for a in (*n.args, *(k.value for k in n.keywords))
    ]  # fmt: skip
    defined = (n for n in _nodes(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    decorated = (n.name for n in defined if any(map(_takes, n.decorator_list)))
    return {*decorated, *(a.id for a in given if isinstance(a, ast.Name))}


def run_elsewhere(tree: ast.AST) -> set[str]:
    """Functions that a thread, a timer or an event runs, and that nobody gets a result of: nothing to compile."""
    given = [
        a for n in _nodes(tree) if isinstance(n, ast.Call) and _runs_elsewhere(n)
        for a in (*n.args, *(k.value for k in n.keywords))
    ]  # fmt: skip
    return {a.id for a in given if isinstance(a, ast.Name)}


def _runs_elsewhere(call: ast.Call) -> bool:
    name, within = last_name(call.func), last_name(getattr(call.func, "value", call))
    alone = _GIVEN_ALONE.get(name) == len(call.args) and not call.keywords
    return alone or name in _RUNNERS or f"{within}.{name}" in _RUNNERS


def _takes(function: ast.AST) -> bool:
    name = last_name(function)
    return name in _TAKERS or name.startswith("register_")


def _decorators(tree: ast.AST) -> set[str]:
    """Names that stand as decorators: `@timed`, `@repeat(3)`."""
    made = [getattr(n, "decorator_list", ()) for n in _nodes(tree)]
    heads = [d.func if isinstance(d, ast.Call) else d for found in made for d in found]
    return {d.id for d in heads if isinstance(d, ast.Name)}


def uses_jit(tree: ast.AST) -> bool:
    """The source compiles something by itself: a decorator or call named `jit`, `filter_jit`, `pjit`."""
    return any(map(_is_jit, nodes_of(tree)))


def _is_jit(node: ast.AST) -> bool:
    return last_name(node) in _JITS

"""What a function's source says it reads and writes: each name chain like `params['w']`, with its place.

Nothing is run. Where a function has no source, its bytecode gives the same facts without places.
"""

from __future__ import annotations

import ast
import dis
import functools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from jitmagic.evidence import Where
from jitmagic.source.modules import dotted
from jitmagic.source.tree import (
    ByCode,
    Function,
    Source,
    children,
    parameters_of,
    source_of,
    span_of,
    uncollected,
    walk,
)
from jitmagic.state.paths import Step, literal
from jitmagic.state.values import MISSING, codes_in
from jitmagic.tracing.sites import where_at

MUTATORS = frozenset(
    "append extend update setdefault add insert pop popitem clear remove discard appendleft extendleft "
    "popleft __setitem__ __delitem__ sort reverse rotate intersection_update difference_update".split()
)
_NAMESPACE = frozenset(
    "globals exec eval modules import_module __main__ __globals__ f_globals f_locals get_ipython user_ns".split()
)
"""Names by which a function may come to any name of the notebook's."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOAD = ast.Load()
_Action = Literal["read", "write", "mutate"]


class Use(NamedTuple):
    """One appearance of a name chain. `free`: the root is not a local name of the function."""

    root: str
    steps: tuple[Step, ...]
    action: _Action
    free: bool
    nodes: tuple[ast.expr, ...] = ()
    """The expression after 0, 1, … steps; empty where there is no source."""
    statement: ast.AST | None = None
    whole_to: str = ""
    """Dotted name of the call that gets the chain's value as an argument; `?` where it cannot be told."""
    called: bool = False
    method: str = ""
    """What changes it: `append`, `+=`."""


@dataclass(frozen=True)
class Facts:
    """What one function's source uses."""

    uses: tuple[Use, ...] = ()
    names: tuple[str, ...] = ()
    """Names that are looked up outside the function, in order."""
    attributes: tuple[str, ...] = ()
    """Attribute names that it reads on anything, `getattr(x, 'name')` included."""
    stored: tuple[str, ...] = ()
    """Attribute names that it writes."""
    file: str = ""
    function: str = ""
    has_source: bool = False
    any_attribute: bool = False
    """It asks for attributes by computed names: `getattr(x, k)`, `vars(x)`, `x.__dict__`."""
    whole_namespace: bool = False
    """It uses `globals()`, `exec` or `eval`."""
    imports: tuple[str, ...] = ()
    """Packages that it imports itself; what it reads of them starts at the package, whatever name that has there."""
    source: Source | None = field(default=None, repr=False)

    @functools.cached_property
    def free(self) -> dict[str, dict[tuple[Step, ...], list[Use]]]:
        """The uses of what is not local, by root and steps."""
        found: dict[str, dict[tuple[Step, ...], list[Use]]] = {}
        for use in self.uses:
            if use.free:
                found.setdefault(use.root, {}).setdefault(use.steps, []).append(use)
        return found

    @functools.cached_property
    def imported(self) -> dict[str, dict[tuple[Step, ...], list[Use]]]:
        """The uses of what the function imports itself, by package and steps."""
        found: dict[str, dict[tuple[Step, ...], list[Use]]] = {name: {} for name in self.imports}
        for use in self.uses:
            if not use.free and use.root in found:
                found[use.root].setdefault(use.steps, []).append(use)
        return found

    def where(self, node: ast.AST) -> Where:
        """The place of a node, columns in characters."""
        span = span_of(node)
        assert self.source is not None and span is not None
        return where_at(self.file, span, self.source, self.function)


_facts: ByCode[Facts] = ByCode()


def facts_of(fn: types.FunctionType) -> Facts:
    """The facts of a function; remembered for its code object."""
    code = fn.__code__
    found = _facts.get(code)
    return found if found is not None else _facts.put(code, _from_source(code) or _from_code(code))


def _from_source(code: types.CodeType) -> Facts | None:
    source = source_of(code.co_filename)
    node = source.function(code)
    if node is None:
        return None
    reader = _Reader(any(":=" in line for line in source.lines))
    with uncollected():
        reader.function(node)
    names = tuple(dict.fromkeys(u.root for u in reader.uses if u.free))
    if not _names(code).issuperset(names):  # the file was changed since
        return None
    qualname = code.co_qualname.replace("<locals>.", "")
    return Facts(
        tuple(reader.uses), names, tuple(reader.attributes), tuple(reader.stored), code.co_filename, qualname,
        True, reader.any_attribute, not _NAMESPACE.isdisjoint(_names(code)),
        tuple(dict.fromkeys(full[0] for full in reader.imports.values())), source,
    )  # fmt: skip


def _names(code: types.CodeType) -> set[str]:
    return {name for c in codes_in(code) for name in (*c.co_names, *c.co_freevars)}


class _Reader:
    """Collects uses; knows which names are local to the function or to a function around it, within it."""

    def __init__(self, in_expressions: bool) -> None:
        self.in_expressions = in_expressions
        """Whether expressions may bind names."""
        self.uses: list[Use] = []
        self.attributes: dict[str, None] = {}
        self.stored: dict[str, None] = {}
        self.any_attribute = False
        self.imports: dict[tuple[int, str], list[str]] = {}
        """What names that it imports stand for, in the scope that binds them: package and attributes."""
        self.scopes: list[set[str]] = []
        """All of them, so that none gets another's `id`."""
        self.local: list[set[str]] = []
        self.outer: list[set[str]] = []
        self.free: dict[str, bool] = {}
        """Of names looked up in the innermost scope, whether they come from outside."""
        self.statement: ast.AST | None = None

    def function(self, node: Function) -> None:
        bound, outer = _bound_names(node, self.in_expressions)
        self._enter(bound, outer)
        body = node.body if isinstance(node.body, list) else [node.body]
        for child in body:
            self.visit(child)
        self._leave()

    def _enter(self, bound: set[str], outer: set[str]) -> None:
        self.local.append(bound)
        self.scopes.append(bound)
        self.outer.append(outer)
        self.free = {}

    def _leave(self) -> None:
        self.local.pop()
        self.outer.pop()
        self.free = {}

    def _is_free(self, name: str) -> bool:
        found = self.free.get(name)
        if found is None:
            found = self.free[name] = self._comes_from_outside(name)
        return found

    def _comes_from_outside(self, name: str) -> bool:
        for bound, outer in zip(reversed(self.local), reversed(self.outer), strict=True):
            if name in outer and name not in bound:
                continue  # nonlocal: a function further out may bind it; global: none does
            if name in bound:
                return False
        return True

    def visit(self, node: ast.AST) -> None:
        before = self.statement
        if isinstance(node, ast.stmt):
            self.statement = node
        _VISITS.get(type(node), _Reader._visit_parts)(self, node)
        self.statement = before

    def _visit_parts(self, node: ast.AST) -> None:
        for child in children(node):
            self.visit(child)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.visit(node.left)
        self.visit(node.right)

    def visit_Constant(self, node: ast.Constant) -> None:
        return

    def visit_function(self, node: Function) -> None:
        decorators = getattr(node, "decorator_list", ())
        for part in (*decorators, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        self.function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.visit(part)
        self._within(set().union(*map(_stored, node.body)), node.body)

    def _comprehension(self, node: Any) -> None:
        bound = set().union(*(_stored(g.target) for g in node.generators))
        self._within(bound, children(node))

    def _within(self, bound: set[str], parts: Sequence[ast.AST]) -> None:
        self._enter(bound, set())
        for part in parts:
            self.visit(part)
        self._leave()

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._chain(node.target, also_reads=True, method="+=")
        if isinstance(node.target, ast.Attribute):
            self.attributes[node.target.attr] = None
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._chain(node.target) if node.value else None
        self.visit(node.value) if node.value else None

    def _binds(self, name: str) -> set[str] | None:
        """The names of the scope that binds this one."""
        return next((bound for bound in reversed(self.local) if name in bound), None)

    def visit_Import(self, node: ast.Import) -> None:
        for a in node.names:
            parts = a.name.split(".")
            self._imports(a.asname or parts[0], parts if a.asname else parts[:1])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            for a in node.names:
                self._imports(a.asname or a.name, [*node.module.split("."), a.name])

    def _imports(self, name: str, full: list[str]) -> None:
        self.imports[id(self._binds(name)), name] = full

    def _note(
        self,
        root: str,
        steps: tuple[Step, ...],
        action: _Action,
        free: bool,
        nodes: tuple[ast.expr, ...],
        **told: Any,
    ) -> None:
        full = () if free else self.imports.get((id(self._binds(root)), root), ())
        first, *attributes = full or (root,)
        taken = tuple(Step("attribute", name) for name in attributes)
        nodes = (*nodes[:1] * len(taken), *nodes)
        self.uses.append(Use(first, (*taken, *steps), action, free, nodes, self.statement, **told))

    def visit_arg(self, node: ast.arg) -> None:
        return

    def visit_Call(self, node: ast.Call) -> None:
        callee = dotted(node.func)
        self._special(node, callee)
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            self.attributes[node.func.attr] = None
            self._chain(node.func.value, action="mutate", also_reads=True, method=node.func.attr)
        else:
            self._chain(node.func, called=True)
        for part in (*node.args, *(k.value for k in node.keywords)):
            part = part.value if isinstance(part, ast.Starred) else part
            if isinstance(part, ast.Name | ast.Attribute | ast.Subscript):
                mutate = callee == "next" or callee in ("setattr", "delattr") and part is node.args[0]
                action: _Action | None = "mutate" if mutate else None
                self._chain(part, whole_to=callee or "?", action=action, also_reads=mutate)
            else:
                self.visit(part)

    def _special(self, node: ast.Call, callee: str) -> None:
        if callee in ("getattr", "setattr", "delattr", "hasattr") and len(node.args) > 1:
            name = literal(node.args[1])
            if isinstance(name, str):
                (self.attributes if callee in ("getattr", "hasattr") else self.stored)[name] = None
            else:
                self.any_attribute = True
        elif callee in ("vars", "dir"):
            self.any_attribute = True

    def _chain(
        self, node: ast.expr, *, called: bool = False, whole_to: str = "", action: _Action | None = None,
        also_reads: bool = False, method: str = "",
    ) -> None:  # fmt: skip
        """Record the longest chain of attributes and literal items that starts at a name."""
        if type(node) is ast.Name and action is None and not also_reads:
            free = self._is_free(node.id)
            if type(node.ctx) is ast.Load:
                self._note(node.id, (), "read", free, (node,), whole_to=whole_to, called=called)
            else:
                self.uses.append(Use(node.id, (), "write", free, (node,), self.statement))
            return
        outermost, nodes = node, [node]
        while isinstance(nodes[-1], ast.Attribute | ast.Subscript):
            nodes.append(nodes[-1].value)
        if not isinstance(nodes[-1], ast.Name):
            self._inner_parts(nodes)
            return
        self._inner_parts(nodes[:-1], only_keys=True)
        steps, kept = _literal_steps(nodes)
        complete = len(kept) == len(nodes)
        context = getattr(outermost, "ctx", None)
        if action is None and isinstance(context, ast.Store | ast.Del):
            action = "write"
        name = nodes[-1].id
        free = self._is_free(name)
        if also_reads or not action:
            whole_to = whole_to if complete else ""
            self._note(name, steps, "read", free, kept, whole_to=whole_to, called=called and complete)
        if action:
            told = action if complete else "mutate"
            self._note(name, steps, told, free, kept, method=method if complete else "")

    def _inner_parts(self, nodes: list[ast.expr], only_keys: bool = False) -> None:
        for n in nodes:
            if isinstance(n, ast.Attribute):
                (self.attributes if isinstance(n.ctx, ast.Load) else self.stored)[n.attr] = None
                self.any_attribute |= n.attr == "__dict__"
            elif isinstance(n, ast.Subscript):
                self.visit(n.slice)
        if not only_keys:
            self.visit(nodes[-1])


_VISITS: dict[type, Any] = {
    **dict.fromkeys((ast.Name, ast.Attribute, ast.Subscript), _Reader._chain),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), _Reader.visit_function),
    **dict.fromkeys(_COMPREHENSIONS, _Reader._comprehension),
    ast.ClassDef: _Reader.visit_ClassDef, ast.Call: _Reader.visit_Call,
    ast.BinOp: _Reader.visit_BinOp, ast.Constant: _Reader.visit_Constant,
    ast.AugAssign: _Reader.visit_AugAssign, ast.AnnAssign: _Reader.visit_AnnAssign, ast.arg: _Reader.visit_arg,
    ast.Import: _Reader.visit_Import, ast.ImportFrom: _Reader.visit_ImportFrom,
}  # fmt: skip


def _literal_steps(nodes: list[ast.expr]) -> tuple[tuple[Step, ...], tuple[ast.expr, ...]]:
    steps: list[Step] = []
    kept = [nodes[-1]]
    for n in reversed(nodes[:-1]):
        if isinstance(n, ast.Attribute):
            steps.append(Step("attribute", n.attr))
        else:
            key = literal(n.slice)  # type: ignore[attr-defined]
            if key is MISSING:
                break
            steps.append(Step("item", key))
        kept.append(n)
    return tuple(steps), tuple(kept)


def _bound_names(node: Function, in_expressions: bool = True) -> tuple[set[str], set[str]]:
    """Names that a function binds itself, and its global and nonlocal ones; `in_expressions`: by `:=` too."""
    bound, outer = set(parameters_of(node)), set()
    todo: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
    while todo:
        n = todo.pop()
        if not in_expressions:
            if type(n) is ast.Assign:
                todo += n.targets
                continue
            if isinstance(n, ast.expr) and not _is_target(n) or isinstance(n, ast.Return | ast.Expr):
                continue
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(n.name)
            todo += n.decorator_list
            continue
        if isinstance(n, ast.Lambda):
            continue
        if isinstance(n, _COMPREHENSIONS):
            todo += [w for w in walk(n) if isinstance(w, ast.NamedExpr)]
            continue
        if isinstance(n, ast.Global | ast.Nonlocal):
            outer |= set(n.names)
        bound.update(_binds(n))
        todo += children(n)
    return bound - outer, outer


def _is_target(node: ast.expr) -> bool:
    return not isinstance(getattr(node, "ctx", _LOAD), ast.Load)


def _stored(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return set().union(*map(_binds, walk(node)))


_BINDS = (ast.Import, ast.ImportFrom, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)


def _binds(n: ast.AST) -> tuple[str, ...]:
    if isinstance(n, ast.Name):
        return () if isinstance(n.ctx, ast.Load) else (n.id,)
    if not isinstance(n, _BINDS):
        return ()
    if isinstance(n, ast.Import | ast.ImportFrom):
        return tuple((a.asname or a.name).split(".")[0] for a in n.names)
    name = n.rest if isinstance(n, ast.MatchMapping) else n.name
    return (name,) if name else ()


def _from_code(code: types.CodeType) -> Facts:
    """The facts without source: chains of attributes after global and closure names."""
    uses = list(_code_uses(code, code))
    names = tuple(dict.fromkeys(u.root for u in uses if u.free))
    return Facts(
        tuple(uses), names, tuple(sorted(_names(code))), (), code.co_filename,
        code.co_qualname.replace("<locals>.", ""), whole_namespace=not _NAMESPACE.isdisjoint(names),
    )  # fmt: skip


def _code_uses(code: types.CodeType, top: types.CodeType) -> Iterator[Use]:
    root, steps, free = "", [], True
    for i in dis.get_instructions(code):
        if root and i.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            steps.append(Step("attribute", i.argval))
            continue
        if root and i.opname != "PUSH_NULL":
            write = i.opname in ("STORE_ATTR", "DELETE_ATTR")
            last = (Step("attribute", i.argval),) if write else ()
            yield Use(root, (*steps, *last), "write" if write else "read", free)
            root = ""
        kind = i.opname.split("_")[0]
        if i.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST")):
            name = i.argval[-1] if isinstance(i.argval, tuple) else i.argval
            root, steps, free = name, [], name in top.co_freevars or i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        elif kind in ("STORE", "DELETE") and i.opname.endswith(("_GLOBAL", "_DEREF", "_NAME")):
            yield Use(i.argval, (), "write", i.argval in top.co_freevars or not i.opname.endswith("DEREF"))
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _code_uses(const, top)

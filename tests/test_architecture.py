"""The house: which room may import which, and what may be written where. docs/how-it-works.md is its picture.

Each check gives violations as text, one a line. `tests/architecture_debts.txt` lists those that are known; a new one
fails, and so does one that is listed and gone, so that the list only shrinks.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent / "jitmagic"
DEBTS = Path(__file__).with_name("architecture_debts.txt")

LAYERS = (
    (
        "units",
        "kinds",
        "words",
        "settings",
        "options",
        "evidence",
        "report",
        "interrupts",
        "patches",
        "work",
        "raw",
        "aside",
        "listeners",
    ),
    ("source",),
    ("correction",),
    ("tracing",),
    ("state",),
    ("measure",),
    ("trial",),
    ("silent",),
    ("rules",),
    ("render",),
    ("fixes",),
    ("checking",),
    ("whatif",),
    ("panel",),
    ("notebook",),
    ("",),
)
"""Rooms from the ground up; a file of the package's own folder is a room by itself, and the door is on top."""

FRAMEWORKS = ("brainpy", "brainstate", "braintools", "equinox", "flax", "optax", "spark", "haiku")
ADAPTERS = ("state/adapters.py", "tracing/foreign.py", "tracing/libraries.py")
"""Where a framework may be named. `rules/` may name them in its pages and words."""
REGISTRY = "fixes/families.py"
MESSAGES = "tracing/messages.py"


@cache
def files() -> dict[str, ast.Module]:
    """Each module by its path in the house."""
    found = sorted(p for p in HOUSE.rglob("*.py") if "labextension" not in p.parts)
    return {str(p.relative_to(HOUSE)): ast.parse(p.read_text("utf-8")) for p in found}


def room(path: str) -> str:
    """The room of a file: its folder, its own name where it lies in none, nothing for the door."""
    head, _, rest = path.partition("/")
    return head if rest else head.removesuffix(".py").replace("__init__", "")


def floor(path: str) -> int:
    return next((i for i, rooms in enumerate(LAYERS) if room(path) in rooms), -1)


def module_file(name: str) -> str | None:
    """The file of `jitmagic.a.b`, where there is one."""
    parts = name.split(".")[1:]
    options = ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"]))
    return next((o for o in options if o in files()), None)


def imports(path: str) -> Iterator[tuple[str, bool]]:
    """Files of the house that a file imports, and whether that happens inside a function."""
    tree = files()[path]
    inside = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
        for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jitmagic"):
            assert node.module is not None
            for alias in node.names:
                found = module_file(f"{node.module}.{alias.name}") or module_file(node.module)
                if found and found != path:
                    yield found, id(node) in inside
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found = module_file(alias.name) if alias.name.startswith("jitmagic") else None
                if found and found != path:
                    yield found, id(node) in inside


def layers() -> Iterator[str]:
    """Every import points down: to a lower room, or into the same one."""
    for path in files():
        if floor(path) < 0:
            yield f"{path} stands in no layer"
        for found, _ in imports(path):
            if floor(found) > floor(path):
                yield f"{path} imports {found}, which stands above it"


def circles() -> Iterator[str]:
    """No file imports another that comes back to it."""
    graph = {path: {f for f, _ in imports(path)} - {path} for path in files()}
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        todo = list(graph[start])
        while todo:
            if (at := todo.pop()) not in seen:
                seen.add(at)
                todo += graph[at]
        reached[start] = seen
    for start in graph:
        if start in reached[start]:
            for found in sorted(graph[start]):
                if start in reached[found]:
                    yield f"{start} imports {found} and is imported by it, through others maybe"


def local_imports() -> Iterator[str]:
    """Own modules are imported at the top; the door and `notebook/` load what a magic needs when it is used."""
    for path in files():
        if room(path) not in ("", "notebook"):
            for found, local in imports(path):
                if local:
                    yield f"{path} imports {found} inside a function"


def private_names() -> Iterator[str]:
    """Nothing reaches into another module's `_names`, or into `__dict__` of an own object by a fixed key."""
    owned: dict[str, set[str]] = defaultdict(set)
    for path, tree in files().items():
        for node in ast.walk(tree):
            name = getattr(node, "name", "") if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = node.attr
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            if re.fullmatch(r"_[a-z]\w*", name) and name not in ("_fields", "_replace", "_asdict", "_make"):
                owned[name].add(path)
    for path, tree in files().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jitmagic"):
                for alias in node.names:
                    if alias.name.startswith("_") and not alias.name.startswith("__"):
                        yield f"{path} imports {alias.name} of {node.module}"
            elif isinstance(node, ast.Attribute) and node.attr in owned and path not in owned[node.attr]:
                if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                    yield f"{path} reaches for {node.attr} of another module"
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                if isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
                    if getattr(node.value.value, "id", "") in dir(builtins):  # `type.__dict__['__mro__']`
                        continue
                    yield f"{path} keeps {node.slice.value!r} in a __dict__"


def names() -> Iterator[str]:
    """Class and module names are unique."""
    classes: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, list[str]] = defaultdict(list)
    for path, tree in files().items():
        modules[path.rpartition("/")[2]].append(path)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path)
    for name, paths in classes.items():
        if len(paths) > 1:
            yield f"class {name} stands in {', '.join(paths)}"
    for name, paths in modules.items():
        if len(paths) > 1 and name != "__init__.py":
            yield f"module {name} stands in {', '.join(paths)}"


def strings(tree: ast.Module) -> Iterator[str]:
    """String literals of a file that are no docstrings."""
    bare = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


@cache
def kinds() -> frozenset[str]:
    """Kinds of the rules, as their files say."""
    from jitmagic import rules

    return frozenset(rule.kind for rule in rules.RULES)


def kinds_by_name() -> Iterator[str]:
    """A kind is written in `rules/`, in `kinds.py`, and where the registry of corrections is told what it is for."""
    for path, tree in files().items():
        if room(path) in ("rules", "kinds") or path == REGISTRY:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in kinds():
                yield f"{path} writes the kind {node.value!r}"


def words_of_exceptions() -> Iterator[str]:
    """What an exception says is read in one file."""
    for path, tree in files().items():
        if path == MESSAGES:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
                if any(map(_is_message, node.comparators)) and isinstance(node.left, ast.Constant):
                    yield f"{path} looks for {node.left.value!r} in a message"
            elif (
                isinstance(node, ast.Call)
                and node.args
                and getattr(node.func, "attr", "") in ("search", "match")
            ):
                if any(map(_is_message, node.args[-1:])):
                    yield f"{path} searches a message: {ast.unparse(node)[:60]}"
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "endswith"):
                if isinstance(node.func, ast.Attribute) and _is_message(node.func.value):
                    yield f"{path} reads how a message begins: {ast.unparse(node)[:60]}"


def _is_message(node: ast.expr) -> bool:
    """`str(exc)`, `error.message`, `message`."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str" and node.args:
        return any(
            isinstance(n, ast.Name) and re.fullmatch(r"exc|error|err|e|refused|exception", n.id)
            for n in ast.walk(node.args[0])
        )
    return (isinstance(node, ast.Attribute) and node.attr == "message") or (
        isinstance(node, ast.Name) and node.id == "message"
    )


def frameworks() -> Iterator[str]:
    """A framework is named in its adapters, in rules' pages, and nowhere else."""
    for path, tree in files().items():
        if path in ADAPTERS or room(path) == "rules":
            continue
        for text in sorted(set(strings(tree))):
            for name in FRAMEWORKS:
                if re.search(rf"\b{name}\b", text):
                    yield f"{path} names {name}: {text[:50]!r}"
        for node in ast.walk(tree):
            named = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in named:
                if name.partition(".")[0] in FRAMEWORKS:
                    yield f"{path} imports {name}"


CHECKS = (
    layers, circles, local_imports, private_names, names, kinds_by_name, words_of_exceptions, frameworks,
)  # fmt: skip


def debts() -> dict[str, set[str]]:
    """What is known and not mended yet, by check."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in DEBTS.read_text("utf-8").splitlines() if DEBTS.exists() else ():
        check, _, text = line.partition(": ")
        found[check].add(text)
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_the_house_stands(check):
    found, known = {" ".join(v.split()) for v in check()}, debts()[check.__name__]
    assert not found - known, f"{check.__doc__} New:\n" + "\n".join(sorted(found - known))
    assert not known - found, "mended, so take these out of the list:\n" + "\n".join(sorted(known - found))


if __name__ == "__main__":  # writes the list anew; read the difference before it is committed
    rows = [f"{c.__name__}: {' '.join(v.split())}" for c in CHECKS for v in sorted(set(c()))]
    DEBTS.write_text("".join(f"{row}\n" for row in dict.fromkeys(rows)), "utf-8")

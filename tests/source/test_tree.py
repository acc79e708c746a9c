"""Looking up places in source without an index of the whole file."""

from __future__ import annotations

import ast
import linecache
import random
import sys
from typing import Any

import pytest

from jitmagic.source import tree

TEXT = '''import jax
@jax.jit
def f(x, n=lambda v: v + 1):
    """Text."""
    y = 0; z = [i for i in range(3) if i]
    for i in range(3):
        with open("a") as g, open("b"):
            try:
                y = (lambda a,
                     b: a + b)(i, x)
            except (ValueError, TypeError) as error:
                def inner(q):
                    return q if q > 0 else -q
                y += inner(
                    i)
            finally:
                z = 1
        match y:
            case [a, b] if a:
                y = a
            case _:
                pass
    else:
        y = 2
    while x and not y: x = f"{x:>{n}}"; y = (w := 3)
    return y
class A:
    @property
    def b(self):
        return lambda: (lambda: 1)() + 2
async def c():
    async for i in d():
        yield i
'''


SHARED = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


def source(text: str = TEXT) -> tree.Source:
    return tree.Source(text.splitlines(True), ast.parse(text))


def parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


@pytest.mark.parametrize("seed", range(5))
def test_every_node_has_its_parent_in_whatever_order_it_is_asked(seed: int) -> None:
    found = source()
    assert found.tree is not None
    wanted = parents(found.tree)
    nodes = [n for n in wanted if hasattr(n, "lineno")]
    random.Random(seed).shuffle(nodes)
    for node in nodes:
        assert found.parent(node) is wanted[node]
    for node in tree.walk(found.tree):  # nodes without a place of their own, once their statement was seen
        assert found.parent(node) is wanted.get(node)


def test_nodes_of_a_span_are_found_outermost_first() -> None:
    found = source()
    assert found.tree is not None
    for node in ast.walk(found.tree):
        span = tree.span_of(node)
        if span is not None:
            same = [n for n in ast.walk(found.tree) if tree.span_of(n) == span]
            assert source().at(span) == [] or found.at(span) == same


def test_the_smallest_node_around_a_span() -> None:
    found = source()
    line = TEXT.splitlines().index("    y = 0; z = [i for i in range(3) if i]") + 1
    node = found.around((line, line, 4, 12))
    assert isinstance(node, ast.FunctionDef)
    node = found.around((line, line, 17, 27))
    assert isinstance(node, ast.ListComp)


def test_functions_around_a_line_count_decorators_and_lambdas() -> None:
    found = source()
    assert [getattr(f, "name", "λ") for f in found.functions(2)] == ["f"]
    assert [getattr(f, "name", "λ") for f in found.functions(3)] == ["f", "λ"]
    assert [getattr(f, "name", "λ") for f in found.functions(10)] == ["f", "λ"]
    assert [getattr(f, "name", "λ") for f in found.functions(13)] == ["f", "inner"]
    assert [getattr(f, "name", "λ") for f in found.functions(30)] == ["b", "λ", "λ"]


def codes(code: Any) -> Any:
    yield code
    for const in code.co_consts:
        if hasattr(const, "co_code"):
            yield from codes(const)


def test_each_code_object_leads_to_its_definition() -> None:
    found = source()
    seen = [
        (c.co_name, found.function(c))
        for c in codes(compile(TEXT, "<cell>", "exec"))
        if c.co_name not in ("<module>", "A", "<listcomp>")
    ]
    assert len(seen) == 8
    for name, node in seen:
        assert node is not None and getattr(node, "name", "<lambda>") == name
    assert len({id(node) for _, node in seen}) == 8


def test_walking_finds_what_ast_finds_but_contexts() -> None:
    module = ast.parse(TEXT)
    wanted = [n for n in ast.walk(module) if not isinstance(n, SHARED)]
    assert tree.walk(module) == wanted


def test_code_objects_are_told_apart_by_identity_and_forgotten_with_their_functions() -> None:
    known: tree.ByCode[int] = tree.ByCode()
    one, other = (compile("x = 1", "<a>", "exec") for _ in range(2))
    assert one == other
    known.put(one, 1)
    assert known.get(one) == 1 and known.get(other) is None
    steps: list[str] = []
    sys.setprofile(lambda frame, event, value: steps.append(event))
    del one
    sys.setprofile(None)
    assert known._known == {} and "call" not in steps  # an interrupt in a step of Python would be lost


def test_a_file_is_parsed_once_until_it_changes() -> None:
    name = "<ipython-input-1-syntax>"
    linecache.cache[name] = (1, None, ["x = 1\n"], name)
    first = tree.source_of(name)
    assert tree.source_of(name) is first
    linecache.cache[name] = (1, None, ["x = 2\n"], name)
    assert tree.source_of(name) is not first


def test_a_copy_is_of_the_tree_alone():
    """`executing`, which IPython's tracebacks use, gives every node its parent: `ast.Load()` is one for all trees."""
    old = ast.parse(TEXT)
    below = [(node, child) for node in ast.walk(old) for child in ast.iter_child_nodes(node)]
    for node, child in below:
        child.parent = node
    try:
        new = tree.copied(old)
        assert ast.dump(new, include_attributes=True) == ast.dump(old, include_attributes=True)
        given = [n for n in ast.walk(new) if hasattr(n, "parent")]
        assert all(
            isinstance(n, ast.expr_context | ast.operator | ast.unaryop | ast.boolop | ast.cmpop)
            for n in given
        )
        assert not {id(n) for n in ast.walk(new) if hasattr(n, "lineno")} & {id(n) for n in ast.walk(old)}
    finally:
        for _, child in below:
            if hasattr(child, "parent"):
                del child.parent

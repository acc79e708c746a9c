"""The hooks that tell what a cell defines."""

from __future__ import annotations

import ast
import gc

import pytest

from jitmagic.source import cell
from jitmagic.source import tree as tree_

SOURCE = """\
get_ipython().run_line_magic("jit", "--cell")
def f(
    x,
):
    return x

if True:
    a, b = 1, 2
for i in range(3):
    c = i
last = 1
"""


def hooks(tree: ast.Module) -> list[ast.Call]:
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call))
    return [n for n in calls if getattr(n.func, "attr", "") == cell.HOOK_NAME]


def test_each_hook_names_what_its_statement_binds_on_its_line():
    found = hooks(cell.instrument(ast.parse(SOURCE)))
    told = {(call.lineno, *ast.literal_eval(call.args[0])) for call in found}
    assert told == {(2, "f"), (8, "a", "b"), (10, "c")}
    text = "__import__('jitmagic.notebook.session', fromlist=['_']).name_bound(['f'])"
    assert ast.unparse(min(found, key=lambda call: call.lineno)) == text


def test_every_node_of_a_hook_has_its_own_place():
    found = hooks(cell.instrument(ast.parse(SOURCE)))
    for call in found:
        placed = [n for n in ast.walk(call) if "lineno" in n._attributes]
        assert {(n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) for n in placed} == {
            (call.lineno, call.lineno, 0, 0)
        }
    nodes = [id(n) for call in found for n in ast.walk(call) if "lineno" in n._attributes]
    assert len(nodes) == len(set(nodes))
    compile(cell.instrument(ast.parse(SOURCE)), "<cell>", "exec")  # nothing without a place


def test_nothing_is_parsed_for_the_hooks_and_the_cell_is_not_walked_for_places(monkeypatch):
    tree = ast.parse(SOURCE)
    done: list[str] = []
    for name in ("parse", "fix_missing_locations"):
        monkeypatch.setattr(ast, name, lambda *_, name=name, **__: done.append(name))
    cell.instrument(tree)
    assert done == []


def test_garbage_is_not_looked_for_while_the_hooks_are_made(monkeypatch):
    tree = ast.parse(SOURCE)
    on: list[bool] = []
    bound = cell.bound_names
    monkeypatch.setattr(cell, "bound_names", lambda node: on.append(gc.isenabled()) or bound(node))
    cell.instrument(tree)
    assert on and not any(on)
    assert gc.isenabled()


@pytest.mark.parametrize("source", ["x = 1\n", SOURCE.splitlines()[0]])
def test_a_cell_with_nothing_to_hook_stays_as_it_is(source):
    tree = ast.parse(source)
    before = ast.dump(tree, include_attributes=True)
    assert ast.dump(cell.instrument(tree), include_attributes=True) == before


def test_garbage_is_looked_for_again_whatever_ends_a_pause():
    pauses = [tree_.uncollected(), tree_.uncollected()]
    for pause in pauses:
        pause.__enter__()  # cut short by an interrupt: nothing leaves it
    assert tree_.looks_for_garbage() and not gc.isenabled()
    tree_.end_pauses()
    assert gc.isenabled() and tree_.looks_for_garbage()
    gc.disable()
    try:
        with tree_.uncollected(), tree_.uncollected():
            assert not tree_.looks_for_garbage()
        tree_.end_pauses()
        assert not gc.isenabled()
    finally:
        gc.enable()

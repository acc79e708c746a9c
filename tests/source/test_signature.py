"""One parameter or result more: how functions and their calls look then."""

from __future__ import annotations

import pytest

from jitmagic.source import signature
from jitmagic.source.edits import CannotEdit, Edits, Text


@pytest.mark.parametrize(
    ("head", "new", "by_name"),
    [
        ("def f():", "def f(n):", False),
        ("def f(x):", "def f(x, n):", False),
        ("def f(x, /):", "def f(x, /, n):", False),
        ("def f(x, s=2.0):", "def f(x, s=2.0, *, n):", True),
        ("def f(x, *, s):", "def f(x, *, s, n):", True),
        ("def f(*xs):", "def f(*xs, n):", True),
        ("def f(x, **options):", "def f(x, *, n, **options):", True),
        ("def f(\n    x: int = (1),\n) -> int:", "def f(\n    x: int = (1), *, n\n) -> int:", True),
    ],
)
def test_parameter(head: str, new: str, by_name: bool) -> None:
    text = Text(f"@wraps(g)\n{head}\n    pass\n")
    function, edits = text.definition("f"), Edits(text)
    assert function is not None
    assert signature.add_parameter(edits, function, "n") is by_name
    assert edits.result() == f"@wraps(g)\n{new}\n    pass\n"


@pytest.mark.parametrize(
    ("body", "new", "alone"),
    [
        ("    x[0] = 1\n", "    x[0] = 1\n    return a, b\n", True),
        ("    if x:\n        return\n    x[0] = 1\n", "    if x:\n        return a, b\n    x[0] = 1\n    return a, b\n", True),
        ("    return x, 1  # both\n", "    return (x, 1), a, b  # both\n", False),
        ("    return (x,\n            1)\n", "    return (x,\n            1), a, b\n", False),
        ("    return (\n        x + 1  # one\n    )\n", "    return (\n        x + 1  # one\n    ), a, b\n", False),
        ("    if x:\n        return 1\n    g()\n", "    if x:\n        return 1, a, b\n    g()\n    return None, a, b\n", False),
    ],
)  # fmt: skip
def test_result(body: str, new: str, alone: bool) -> None:
    text = Text(f"def f(x):\n{body}")
    function, edits = text.definition("f"), Edits(text)
    assert function is not None
    assert signature.give_back(edits, function, ["a", "b"]) is alone
    assert edits.result() == f"def f(x):\n{new}"


@pytest.mark.parametrize(
    ("source", "beside", "alone"),
    [
        ("f(a)  #:3", "out, a = f(a)\nout  #:3", "a = f(a)  #:3"),
        ("y = f(a)", "y, a = f(a)", "a = f(a)\ny = None"),
        ("p, q = f(a)", "(p, q), a = f(a)", "a = f(a)\np, q = None"),
        ("(p, q) = f(a)", "(p, q), a = f(a)", "a = f(a)\n(p, q) = None"),
        ("out = f(a) + 1", "out2, a = f(a)\nout = out2 + 1", "a = f(a)\nout = None + 1"),
        ("for i in x:\n    f(a,\n      i)", "for i in x:\n    out, a = f(a,\n      i)\n    out", "for i in x:\n    a = f(a,\n      i)"),
        ("y = x.f = f(a)", "out, a = f(a)\ny = x.f = out", "a = f(a)\ny = x.f = None"),
    ],
)  # fmt: skip
def test_call(source: str, beside: str, alone: str) -> None:
    for wanted, is_alone in ((beside, False), (alone, True)):
        text = Text(source)
        edits = Edits(text)
        signature.bind_again(edits, text.calls("f")[0], ["a"], alone=is_alone)
        assert edits.result() == wanted


@pytest.mark.parametrize(
    "source", ["while f(a):\n    pass", "y = [f(a) for _ in x]", "y = z and f(a)", "lambda: f(a)"]
)
def test_call_that_may_run_more_than_once(source: str) -> None:
    text = Text(source)
    with pytest.raises(CannotEdit):
        signature.bind_again(Edits(text), text.calls("f")[0], ["a"], alone=False)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [("f(1, 2)", "2"), ("f(1, y=3)", "3"), ("f(*xs)", None), ("f(1)", None), ("o.f(2)", "2")],
)
def test_argument(call: str, wanted: str | None) -> None:
    text = Text(f"def f(x, y):\n    pass\n{call}\n")
    function = text.definition("f")
    assert function is not None
    node = text.calls("C.f" if call.startswith("o.") else "f")[-1]
    found = signature.argument_of(node, function, "y", bound=call.startswith("o."))
    assert (text.code(found) if found is not None else None) == wanted


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("f()", "f(s)"),
        ("f(f'(', [1])", "f(f'(', [1], s)"),
        ("f(1, k=2)", "f(1, k=2, n=s)"),
        ("f(\n    1,\n)", "f(\n    1, s\n)"),
    ],
)
def test_one_argument_more(call: str, wanted: str) -> None:
    text = Text(call)
    edits = Edits(text)
    signature.pass_to(edits, text.calls("f")[0], {"n": "s"})
    assert edits.result() == wanted

"""What the words of exceptions say, as fields."""

from __future__ import annotations

import pytest

from jitmagic.evidence import BranchOutputs, RefusedResult, Structure, Told
from jitmagic.tracing.messages import told


def test_no_words_say_nothing():
    assert told("") == Told()


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("jitted function only accepts 2 positional arguments", "positional", 2),
        ("Value of type '<class '__main__.Point'>' is not a valid JAX type", "own_class", "Point"),
        ("argument of type '<class 'tuple'>' is not a valid JAX type", "tuple_refused", True),
        ("Cannot extract graph node from different trace level", "other_trace", True),
        ("The 'sharding' attribute is not available on traced array", "asks_memory", True),
        ("The __index__() method was called on traced array", "asks_memory", False),
        ("'DynamicJaxprTracer' object has no attribute 'apply'", "missing", True),
        ("module has no attribute 'sine'. Did you mean: 'sin'?", "meant", ("sine", "sin")),
        ("name 'xs' is not defined. Did you mean: 'x'?", "meant", ("xs", "x")),
        ("bad value JitTracer(int32[3])", "in_words", "bad value int32[3]"),
        ("bad value JitTracer<int32[3]>", "in_words", ""),
        (
            "function f at cell.py:12 traced for jit returned a value of type <class '__main__.P'> at output "
            "component ['name'], which is not a valid JAX type",
            "returned",
            RefusedResult("f", 12, "__main__.P", "['name']"),
        ),
    ],
)
def test_facts(text, field, value):
    assert getattr(told(text), field) == value


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("scan body output must be a pair", "complaint", "pair"),
        ("must return a boolean scalar, got ShapedArray(float32[3]).", "predicate", "float32[3]"),
        (
            "The input carry x has type int32[] but the output carry component has type float32[2], so",
            "types",
            ("int32[]", "float32[2]"),
        ),
        (
            "input is a tuple of length 2 but output is a list of length 3",
            "structures",
            (Structure("tuple", 2), Structure("list", 3)),
        ),
        ("symmetric difference of key sets: {'b'}", "keys", "'b'"),
        (
            "output of true_fun at path ['a'] has type int32[] but the output of false_fun has type float32[3]",
            "branches",
            BranchOutputs("true_fun", "int32[]", "false_fun", "float32[3]", "['a']"),
        ),
        ("while_loop body", "functions", ("while_loop",)),
    ],
)
def test_facts_of_loops_and_branches(text, field, value):
    assert getattr(told(text).carry, field) == value


@pytest.mark.parametrize("text, shows", [("Tracking 3", False), ("Tracer dye", False), ("x JitTracer(float32[])", True),
                                         ("DynamicJaxprTracer<f32[2]>", True), ("Traced<float32[]>with<X>", True)])  # fmt: skip
def test_a_traced_value_is_told_from_words_like_it(text: str, shows: bool) -> None:
    from jitmagic.tracing.messages import shows_tracer

    assert shows_tracer(text) is shows

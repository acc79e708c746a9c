"""demos/brainpy_compilation.ipynb: the page's numbers, and what was found wrong in it."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("brainpy")


@pytest.fixture(scope="module")
def demo(executed: Any) -> Any:
    return executed("brainpy_compilation")


def only(demo: Any, tag: str) -> dict[str, Any]:
    """The one function of the last report of a cell."""
    (function,) = demo.reports(tag)[-1]["functions"]
    return function


def warned(demo: Any, tag: str) -> list[str]:
    return demo.kinds(tag, "error", "warning")


def vectors(demo: Any, tag: str) -> list[list[float]]:
    """The vectors of three that a cell printed."""
    found = [[float(v) for v in text.split()] for text in re.findall(r"\[([-\d. e+]+)\]", demo.text(tag))]
    return [v for v in found if len(v) == 3]


def fixes(demo: Any, tag: str) -> list[dict[str, Any]]:
    return [fix for f in demo.findings(tag) for fix in f["fixes"] if fix["verified"]]


def roles(demo: Any, tag: str) -> dict[str, str]:
    return {s["path"]: s["role"] for s in only(demo, tag)["state"]}


def test_selu_on_a_million_values(demo: Any) -> None:
    function = only(demo, "selu")
    assert (function["verdict"], function["traces"], function["compiles"]) == ("ok", 1, 1)
    assert function["timing"]["eager"]["median_s"] > 0 and function["timing"]["jit"]["median_s"] > 0
    assert function["cost"]["bytes"] >= 8e6  # a million values of 4 bytes, in and out
    assert warned(demo, "selu") == []


def test_logistic_regression_as_an_object(demo: Any) -> None:
    function = only(demo, "regression")
    assert (function["calls"], function["traces"], function["compiles"]) == (1, 1, 1)
    (state,) = function["state"]
    assert (state["path"], state["role"], state["shape"], state["written"]) == (
        "model.w",
        "dynamic",
        [10],
        True,
    )
    assert function["timing"]["jit"] is not None and warned(demo, "regression") == []


def test_timing_by_hand_moves_the_weights_and_a_check_does_not(demo: Any) -> None:
    made, timed, later, checked = vectors(demo, "timeit-moves")
    assert made == checked == pytest.approx([0.7] * 3)
    assert min(timed) > 1000 and timed == later  # after one step of that size every slope is 0


def test_an_object_goes_in_and_a_function_comes_out(demo: Any) -> None:
    text = demo.text("function-type")
    assert "True True" in text
    given, back = text.splitlines()[-1].split("->")
    assert (
        given.count("float32[10]") == 1
        and "float32[200000,10]" in given
        and back.strip() == "['float32[10]']"
    )


def test_a_method_with_both_variables_declared(demo: Any) -> None:
    assert vectors(demo, "both-declared") == [[0, 0, 0], [1, 1, 1]]
    assert roles(demo, "both-declared") == {"l.w": "dynamic", "l.b": "dynamic"}
    assert only(demo, "both-declared")["traces"] == 1 and warned(demo, "both-declared") == []


def test_a_method_with_one_variable_declared_keeps_the_other(demo: Any) -> None:
    assert vectors(demo, "only-w")[-2:] == [[1, 1, 1], [1, 1, 1]]
    assert roles(demo, "only-w") == {"l.w": "dynamic", "l.b": "constant"}
    assert warned(demo, "only-w") == ["stale-constant"]
    (finding,) = demo.findings("only-w")
    assert finding["culprits"][0] == "l.b" and fixes(demo, "only-w")[0]["dyn"] == ["l.w", "l.b"]


def test_what_brainpy_has_lost(demo: Any) -> None:
    assert vectors(demo, "lost-behaviour") == [[1, 1, 1], [2, 2, 2], [1, 1, 1], [1, 1, 1]]
    assert "deprecated and ignored" in demo.text("lost-behaviour")
    assert "update was compiled with self.b" in demo.text("lost-behaviour")


def test_a_function_without_declarations(demo: Any) -> None:
    assert vectors(demo, "nothing-declared") == [[0, 0, 0], [0, 0, 0]]
    assert "StaleConstantWarning" in demo.text("nothing-declared")


def test_a_function_with_both_declared(demo: Any) -> None:
    assert vectors(demo, "function-declared") == [[1, 1, 1], [2, 2, 2]]
    assert roles(demo, "function-declared") == {"w": "dynamic", "b": "dynamic"}
    assert only(demo, "function-declared")["traces"] == 1


def test_variables_are_found_and_plain_arrays_are_not(demo: Any) -> None:
    assert vectors(demo, "plain-array")[-3:] == [[2, 2, 2], [3, 3, 3], [3, 3, 3]]
    assert roles(demo, "plain-array") == {"w": "dynamic", "b": "dynamic", "bias": "constant"}
    assert warned(demo, "plain-array") == ["stale-constant"]
    assert fixes(demo, "plain-array")[0]["dyn"] == ["w", "b", "bias"]


def test_the_default_random_state_is_found_by_itself(demo: Any) -> None:
    assert (
        "True" not in demo.text("random-found").partition("[")[2]
        and demo.text("random-found").count("False") == 10
    )
    assert roles(demo, "random-found") == {"bm.random.DEFAULT": "dynamic"}
    assert warned(demo, "random-found") == []


def test_the_default_random_state_is_frozen_where_something_else_is_declared(demo: Any) -> None:
    assert demo.text("random-frozen").count(" True") == 10 and "False" not in demo.text("random-frozen")
    assert roles(demo, "random-frozen") == {"bm.random.DEFAULT": "constant", "gain": "dynamic"}
    assert warned(demo, "random-frozen") == ["hidden-rng"]
    assert fixes(demo, "random-frozen")[0]["dyn"] == ["gain", "bm.random.DEFAULT"]


def test_a_generator_of_numpy_is_frozen(demo: Any) -> None:
    assert demo.text("random-numpy").count(" True") == 10
    assert warned(demo, "random-numpy") == ["hidden-rng"]
    assert demo.findings("random-numpy")[0]["culprits"][0] == "generator"


def test_training_under_one_jit_follows_the_plain_run(demo: Any) -> None:
    plain = [float(v) for v in re.findall(r"'([\d.e+]+)'", demo.text("train-plain"))]
    compiled = [float(v) for v in re.findall(r"'([\d.e+]+)'", demo.text("train"))]
    assert len(compiled) == 5 and compiled == pytest.approx(plain, rel=1e-3)
    assert compiled == sorted(compiled, reverse=True) and compiled[-1] < 1e-3 * compiled[0]
    assert float(demo.text("train").split("plain run:")[1].split()[0]) < 1e-4
    function = only(demo, "train")
    assert (function["calls"], function["traces"], function["compiles"]) == (30, 1, 1)
    assert roles(demo, "train") == dict.fromkeys(("net.w", "net.b", "net.r"), "dynamic")
    assert all(s["written"] for s in function["state"]) and warned(demo, "train") == []


def test_the_pages_first_loss_is_reached_later(demo: Any) -> None:
    found = re.search(r"step 0: ([\d.e+]+) .*from step (\d+) .*: ([\d.e+]+)", demo.text("train-more"))
    assert found is not None
    assert float(found[1]) > 1e6 and 10 < int(found[2]) < 30 and float(found[3]) < 103.74


def test_a_branch_on_an_argument(demo: Any) -> None:
    (finding,) = [f for f in demo.findings("branch-fails") if f["severity"] == "error"]
    assert (finding["kind"], finding["culprits"][0], finding["span"]["line"]) == ("tracer-bool", "x", 3)
    assert "static_argnames=['x']" in finding["help"]
    assert any(fix["verified"] and "jnp.where(x < 3" in fix["cell"] for fix in finding["fixes"])


def test_a_static_argument_compiles_for_each_value(demo: Any) -> None:
    assert "3.0 3.0 12.0 -16.0" in demo.text("branch-static")
    assert "3.0 3.0" in demo.text("branch-static-python")
    function = only(demo, "branch-static")
    assert (function["calls"], function["traces"], function["compiles"]) == (4, 3, 3)
    assert warned(demo, "branch-static") == ["recompile-static"]


def test_vmap_and_devices(demo: Any) -> None:
    assert "vmap over the 4,096 rows" in demo.text("vmap").replace("\n", " ")
    assert "4 devices" in demo.text("pmap") and "exchange nothing" in demo.text("pmap")
    assert "(4096,) True" in demo.text("vmap-checked")
    assert warned(demo, "vmap") == warned(demo, "pmap") == []


def test_the_table_has_the_pages_numbers_beside_ours(demo: Any) -> None:
    lines = [line for line in demo.text("table").splitlines() if line.startswith("| ")]
    assert len(lines) == 6
    assert "2.86 ms → 346 µs | 8.3×" in lines[2] and "2.77 ms → 1.29 ms | 2.1×" in lines[3]
    assert all(
        re.search(
            r"\d → [\d.]+ (µs|ms|s) \| [\d.]+× \| (cpu|gpu|tpu)",
            line.replace(" ms →", " →").replace(" µs →", " →").replace(" s →", " →"),
        )
        for line in lines[2:5]
    )
    assert "103.74 → 10.04" in lines[5]

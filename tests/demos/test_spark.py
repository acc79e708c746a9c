"""demos/spark_execution.ipynb, executed: Spark's tutorial on execution, on the real package."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12: spark-snn")


@pytest.fixture(scope="module")
def spark(executed: Any) -> Any:
    return executed("spark_execution")


def test_the_notebook_says_what_it_runs_on(spark: Any) -> None:
    assert "Needs Python 3.12" in spark.notebook.cells[0].source
    assert re.search(r"Python 3\.1\d.*, jax 0\.\d+.*spark-snn 1\.", spark.text("versions"))


def test_the_small_function_is_compiled_and_timed(spark: Any) -> None:
    (function,) = spark.reports("combine")[-1]["functions"]
    assert (function["verdict"], function["traces"], function["compiles"]) == ("ok", 1, 1)
    assert function["timing"]["speedup"] and not spark.kinds("combine", "error", "warning")


def test_the_first_call_builds_the_neuron(spark: Any) -> None:
    assert "new attributes: ['__built__'" in spark.text("build")


def test_jax_jit_refuses_the_model(spark: Any) -> None:
    assert "__jax_array__" in spark.text("jax_jit") and "error" in {
        f["severity"] for f in spark.findings("jax_jit")
    }


def test_the_model_as_it_is_gives_the_plain_spikes_with_one_trace_and_builds_itself(spark: Any) -> None:
    text = spark.text("as_it_is")
    assert "20 of 20 steps have the same spikes; 1 trace" in text and "built inside: True" in text


def test_the_timed_call_throws_its_state_away(spark: Any) -> None:
    found = [
        f
        for f in spark.findings("timed")
        if f["kind"] == "unused-result" and "%timeit" in f["span"]["source"]
    ]
    assert found and found[0]["culprits"] == ["state", "run_split"] and "repetition" in found[0]["message"]


def test_a_variable_is_dynamic_and_a_constant_stays(spark: Any) -> None:
    assert "[1.75 1.75 1.75]" in spark.text("variable")
    state = {s["path"]: s["role"] for s in spark.reports("variable")[-1]["functions"][0]["state"]}
    assert state["trace"] == "dynamic" and "constant" in {
        r for p, r in state.items() if p.startswith("decay")
    }


def test_the_table_compares_all_variants(spark: Any) -> None:
    text = spark.text("table")
    for name in (
        "no jit",
        "model in and out",
        "split and merge",
        "jitmagic.jit, as it is",
        "x * y + x**2, jit",
    ):
        assert re.search(rf"^{re.escape(name)}.*us +\d", text, re.MULTILINE), name

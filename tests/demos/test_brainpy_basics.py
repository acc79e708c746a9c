"""demos/brainpy_basics.ipynb: the page's numbers, and what was found wrong in it."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("brainpy")


@pytest.fixture(scope="module")
def demo(executed: Any) -> Any:
    return executed("brainpy_basics")


def only(demo: Any, tag: str) -> dict[str, Any]:
    (function,) = demo.reports(tag)[-1]["functions"]
    return function


def warned(demo: Any, tag: str) -> list[str]:
    return demo.kinds(tag, "error", "warning")


def test_gelu_on_100_000_values(demo: Any) -> None:
    function = only(demo, "gelu")
    assert (function["verdict"], function["traces"], function["compiles"]) == ("ok", 1, 1)
    assert function["timing"]["eager"] and function["timing"]["jit"] and warned(demo, "gelu") == []


def test_the_honest_time_beside_the_unblocked_one(demo: Any) -> None:
    rows = re.findall(
        r"^(.+?) +loop ended after ([\d.]+) s, work done after ([\d.]+) s", demo.text("benchmark"), re.M
    )
    assert [name for name, *_ in rows] == ["without jit", "bm.jit", "jitmagic.jit"]
    assert all(float(ended) <= float(done) for _, ended, done in rows)
    compiled = [(float(ended), float(done)) for name, ended, done in rows if name != "without jit"]
    assert all(done > 0 for _, done in compiled)


def test_what_is_baked_without_a_variable(demo: Any) -> None:
    text = demo.text("baked")
    assert "another threshold is seen: True" in text and "the opposite weights are:  False" in text
    roles = {s["path"]: s["role"] for s in only(demo, "baked")["state"]}
    assert roles == {"classifier.w": "constant", "classifier.threshold": "dynamic"}
    (finding,) = demo.findings("baked")
    assert (finding["kind"], finding["culprits"][0]) == ("stale-constant", "classifier.w")
    assert (
        finding["fixes"][0]["dyn"] == ["classifier.threshold", "classifier.w"]
        and finding["fixes"][0]["verified"]
    )


def test_a_weight_that_is_written_without_being_a_variable(demo: Any) -> None:
    assert demo.text("baked-write").count("0.70000005") == 3  # three steps have moved nothing
    (finding,) = [f for f in demo.findings("baked-write") if f["severity"] != "note"]
    assert (finding["kind"], finding["culprits"][0]) == ("leaked-tracer", "learner.w")
    assert [fix["dyn"] for fix in finding["fixes"] if fix["verified"]] == [["learner.w"]]
    moved = re.findall(r"^\[([\d.]+) ", demo.text("baked-mended"), re.M)
    assert len(moved) == 3 and 0.7 < float(moved[0]) < float(moved[1]) < float(moved[2])
    assert warned(demo, "baked-mended") == []


def test_the_pages_own_runner_does_not_run_any_more(demo: Any) -> None:
    assert 'does not have "input"' in demo.text("no-input")


def test_a_thousand_neurons_with_and_without_jit(demo: Any) -> None:
    text = demo.text("runner")
    with_jit = re.search(r"with jit: +([\d.]+) s for 1,000 ms, (\d+) spikes", text)
    without = re.search(
        r"without jit: ([\d.]+) s for 2 ms, so about (\d+) s for 1,000 ms \(extrapolated\)", text
    )
    assert with_jit and without
    assert 10_000 < int(with_jit[2]) < 1_000_000  # some ten to a hundred spikes of each neuron in a second
    assert int(without[2]) == pytest.approx(500 * float(without[1]), rel=0.1)
    assert int(without[2]) > float(with_jit[1])


def test_the_step_function_of_the_runner(demo: Any) -> None:
    function = only(demo, "runner-step")
    written = {s["path"] for s in function["state"] if s["role"] == "dynamic" and s["written"]}
    assert written >= {f"runner.target.{name}" for name in ("V", "m", "h", "n", "spike")}
    assert all(s["shape"] == [1000] for s in function["state"]) and warned(demo, "runner-step") == []


def test_a_function_that_the_runner_calls(demo: Any) -> None:
    assert "different currents in 10 steps: 1" in demo.text("runner-noise")
    assert warned(demo, "runner-noise") == ["hidden-rng"]
    assert demo.findings("runner-noise")[0]["span"]["line"] == 3
    (finding,) = demo.findings("runner-branch")
    assert (finding["kind"], finding["function"], finding["span"]["line"]) == ("tracer-bool", "pulse", 3)
    assert warned(demo, "runner-mended") == [] and "(10, 10) True" in demo.text("runner-mended")


def test_the_table_has_the_pages_numbers_beside_ours(demo: Any) -> None:
    lines = [line for line in demo.text("table").splitlines() if line.startswith("| ")]
    assert len(lines) == 8 and "295 µs → 66 µs | 4.5×" in lines[2] and "10.0 s → 5.02 s | 2.0×" in lines[3]
    assert "extrapolated" in lines[7]
    assert all(re.search(r"[\d.]+× \| (cpu|gpu|tpu)", line) for line in lines[2:])
    assert "page: 20,000,000 points; here: 2,000,000" in demo.text("table")

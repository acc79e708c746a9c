"""demos/bm_jit_api.ipynb: every parameter of the reference page, working or replaced."""

from __future__ import annotations

from typing import Any

import pytest

bp = pytest.importorskip("brainpy")

PARAMETERS = (
    "static_argnums", "static_argnames", "donate_argnums", "device", "keep_unused", "backend", "inline",
    "abstracted_axes", "dyn_vars", "child_objs",
)  # fmt: skip


@pytest.fixture(scope="module")
def demo(executed: Any) -> Any:
    return executed("bm_jit_api")


def only(demo: Any, tag: str) -> dict[str, Any]:
    (function,) = demo.reports(tag)[-1]["functions"]
    return function


def warned(demo: Any, tag: str) -> list[str]:
    return demo.kinds(tag, "error", "warning")


def roles(demo: Any, tag: str) -> dict[str, str]:
    return {s["path"]: s["role"] for s in only(demo, tag)["state"]}


def test_every_parameter_is_given_to_todays_brainpy(demo: Any) -> None:
    said = {line.split()[0]: line for line in demo.text("today").splitlines() if line}
    assert set(said) >= set(PARAMETERS)
    assert all("deprecated" in said[name] for name in ("device", "backend", "dyn_vars", "child_objs"))
    assert "TypeError" in said["abstracted_axes"]


@pytest.mark.parametrize("tag", ["static_argnums", "static_argnames"])
def test_static_arguments(demo: Any, tag: str) -> None:
    assert "1.75 1.998" in demo.text(tag)
    function = only(demo, tag)
    assert (function["calls"], function["traces"], function["compiles"]) == (2, 2, 2)
    assert warned(demo, tag) == []


def test_a_static_name_given_by_position(demo: Any) -> None:
    lines = dict(line.split(": ", 1) for line in demo.text("static-by-position").splitlines() if line)
    mended = tuple(map(int, bp.__version__.split(".")[:2])) >= (2, 9)
    assert lines["bm.jit"].strip() == ("1.9980469" if mended else "TracerIntegerConversionError")
    assert lines["jitmagic.jit"] == "1.9980469"


def test_donation(demo: Any) -> None:
    assert "given away: True | new value: 0.9" in demo.text("donate_argnums")
    (finding,) = demo.findings("donate-reuse")
    assert (finding["kind"], finding["culprits"][0]) == ("donated-reuse", "v")


def test_device_and_backend(demo: Any) -> None:
    assert "CpuDevice(id=0)" in demo.text("device")
    assert demo.text("backend").count("CpuDevice(id=0)") == 2


def test_keep_unused_and_inline(demo: Any) -> None:
    assert "0 -> 1" in demo.text("keep_unused") and "1 -> 0" in demo.text("inline")


def test_what_has_replaced_abstracted_axes(demo: Any) -> None:
    assert "[2.0, 3.0, 4.0]" in demo.text("abstracted_axes") and "[2.0, 3.0, 4.0]" in demo.text(
        "symbolic-shape"
    )
    assert "float32[n]" in demo.text("symbolic-shape") and "False" in demo.text("symbolic-shape")
    assert warned(demo, "abstracted_axes") == ["recompile-shape"]
    assert only(demo, "abstracted_axes")["compiles"] == 3


def test_exactly_the_declared_variables_are_dynamic(demo: Any) -> None:
    assert [line for line in demo.text("dyn_vars").splitlines() if line.startswith("[")] == [
        "[1. 1.]",
        "[6. 6.]",
        "[6. 6.]",
    ]
    assert roles(demo, "dyn_vars") == {"cell.rest": "dynamic", "cell.gate.gain": "constant"}
    assert warned(demo, "dyn_vars") == ["stale-constant"]


def test_objects_are_declared_with_all_that_is_in_them(demo: Any) -> None:
    assert [line for line in demo.text("child_objs").splitlines() if line.startswith("[")] == [
        "[6. 6.]",
        "[8. 8.]",
    ]
    assert roles(demo, "child_objs") == {"cell.rest": "dynamic", "cell.gate.gain": "dynamic"}
    assert "[6. 6.] [8. 8.]" in demo.text("child_objs-python")


def test_hello(demo: Any) -> None:
    assert [line for line in demo.text("hello").splitlines() if line.endswith(".0")] == [
        "20.0",
        "40.0",
        "80.0",
    ]
    written = {s["path"]: s["written"] for s in only(demo, "hello")["state"]}
    assert written == {"hello.a": True, "hello.b": False}
    assert only(demo, "hello")["traces"] == 1


def test_the_decorator_form(demo: Any) -> None:
    assert "[0. 0. 0. 0. 0.]" in demo.text("decorator")
    functions = {f["name"]: f["verdict"] for f in demo.reports("decorator-brainpy")[-1]["functions"]}
    assert functions["selu_of_brainpy"] == "ok" and warned(demo, "decorator-brainpy") == []
    assert "True" in demo.text("decorator-brainpy")


def test_both_tables(demo: Any) -> None:
    timing = [line for line in demo.text("timing").splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0][2:] for line in timing[2:]] == ["without jit", "bm.jit", "jitmagic.jit"]
    rows = [line for line in demo.text("table").splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0][2:] for line in rows[2:]] == list(PARAMETERS)

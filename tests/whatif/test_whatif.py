"""`--vmap`, `--grad`, `--devices`: costs against closed formulas, collectives counted, failures in words."""

from __future__ import annotations

import pytest

from jitmagic.tracing import compat
from jitmagic.whatif.devices import collectives

MATMUL = "def f(x, w):\n    return x @ w\n"


def answers(notebook, line, body):
    report = notebook.ok(f"{line} -o -q\n{body}")
    (function,) = report.functions
    return function.what_if


def one(notebook, line, body):
    (answer,) = answers(notebook, line, body)
    return answer


class TestVmap:
    def test_the_leading_axis_is_the_batch_where_the_function_takes_a_row(self, notebook):
        body = "def f(x):\n    return x @ jnp.ones((4, 5))\nf(jnp.ones((7, 4)))"
        found = one(notebook, "%%jit --no-time --vmap x", body)
        assert found.works and found.size == 7 and found.title == "vmap over the 7 rows of `x`"
        assert found.cost.flops == 2 * 7 * 4 * 5 and found.stages.compile_s > 0

    def test_a_new_axis_where_the_function_needs_the_whole(self, notebook):
        body = MATMUL + "f(jnp.ones((7, 4)), jnp.ones((4, 5)))"
        found = one(notebook, "%%jit --no-time --vmap w", body)
        assert (
            found.size == 32
            and "new axis of 32" in found.title
            and "needs the argument whole" in found.notes[0]
        )
        assert found.cost.flops == 32 * 2 * 7 * 4 * 5 and found.plain.flops == 2 * 7 * 4 * 5

    def test_a_number_gets_a_batch(self, notebook):
        found = one(
            notebook, "%%jit --no-time --vmap n", "def f(x, n):\n    return x * n\nf(jnp.ones(3), 2.0)"
        )
        assert found.works and found.cost.flops == 96

    def test_several_arguments_and_containers(self, notebook):
        body = "def f(p, x):\n    return p['w'] @ x\n"
        notebook.ok("%%jitcheck -q\n" + body)
        call = "f({'w': jnp.ones((6, 4, 3))}, jnp.ones((6, 3)))"
        (found,) = notebook.ok(f"%jitcheck -o --vmap p,x {call}").functions[0].what_if
        assert found.size == 6 and found.cost.flops == 6 * 2 * 4 * 3 and found.plain.flops is None

    def test_what_does_not_trace_is_told_in_words_with_the_line(self, notebook):
        body = "def f(x, n):\n    if n > 2:\n        return x * n\n    return x\nf(jnp.ones((4, 2)), 3)"
        found = one(notebook, "%%jitcheck --vmap x", body)
        assert not found.works and found.line == 3 and "`n` has no value" in found.message


class TestGrad:
    def test_a_matrix_product_costs_three(self, notebook):
        body = MATMUL + "f(jnp.ones((7, 4)), jnp.ones((4, 5)))"
        found = one(notebook, "%%jit --no-time --grad x,w", body)
        assert found.cost.flops == pytest.approx(3 * 2 * 7 * 4 * 5, rel=0.15)
        assert "sum of its elements" in found.notes[0]

    @pytest.mark.parametrize(
        ("body", "kept"),
        [
            ("    e = jnp.exp(x)\n    return e.sum()", "it keeps 4 kB of the forward pass, besides the arguments: 4 kB of line 3"),
            ("    return jax.lax.scan(lambda c, _: (\n        jnp.sin(c), None), x, length=10)[0].sum()", "40 kB of line 4"),
            ("    return (x * 2).sum()", ""),  # nothing
        ],
    )  # fmt: skip
    def test_what_a_gradient_keeps_is_told_by_line(self, notebook, body, kept):
        notebook.ok(f"%%jit -q --no-time --grad x\ndef f(x):\n{body}\nf(jnp.ones(1000))")
        told = "; ".join(notebook.report().functions[0].what_if[0].notes)
        assert kept in told and ("it keeps" in told) == bool(kept), told

    def test_whole_numbers_have_no_gradient(self, notebook):
        found = one(notebook, "%%jit --no-time --grad n", "def f(x, n):\n    return x * n\nf(jnp.ones(3), 2)")
        assert not found.works and found.message.startswith("`n` holds int32")

    def test_a_result_of_whole_numbers_has_none(self, notebook):
        found = one(
            notebook, "%%jit --no-time --grad x", "def f(x):\n    return jnp.argmax(x)\nf(jnp.ones(3))"
        )
        assert not found.works and "returns int32" in found.message

    @pytest.mark.parametrize(
        ("line", "words"),
        [("--grad n -s n", "`n` is static"), ("--grad m", "to its default"),
         ("--grad mode", "`mode` is a str")],
    )  # fmt: skip
    def test_arguments_that_cannot_be_meant(self, notebook, line, words):
        static = "" if "-s n" in line else " -s mode"
        body = "def f(x, n, mode='a', m=1.0):\n    return x * n * m\nf(jnp.ones(3), 2.0, mode='b')"
        found = one(notebook, f"%%jit --no-time {line}{static or ',mode'}", body)
        assert not found.works and (words in found.message or "is a str" in found.message)

    @pytest.mark.parametrize("line", ["--grad z", "--vmap nn"])
    def test_an_argument_that_does_not_exist_is_an_error_before_the_cell_runs(self, notebook, line):
        error = notebook.error(f"%%jit --no-time {line}\ndef f(x, n):\n    return x * n\nf(jnp.ones(3), 2.0)")
        assert type(error).__name__ == "UsageError" and line in str(error)
        assert ("did you mean 'n'" in str(error)) == (line == "--vmap nn") and "f" not in notebook.ns


@pytest.mark.skipif(not compat.virtual_devices(4), reason="this jaxlib makes no virtual devices")
class TestDevices:
    def test_rows_are_split_and_each_device_does_its_part(self, notebook):
        body = MATMUL + "f(jnp.ones((64, 16)), jnp.ones((16, 16)))"
        found = one(notebook, "%%jit --no-time --devices 4", body)
        assert found.works and found.arguments == ("x",) and found.collectives == ()
        assert found.cost.flops == pytest.approx(2 * 64 * 16 * 16 / 4)
        assert found.replicated == ("w float32[16,16]",) and found.replicated_bytes == 16 * 16 * 4
        assert "virtual CPU devices" in found.notes[0]

    def test_a_sum_over_the_split_axis_is_an_all_reduce(self, notebook):
        body = "def f(x):\n    return jnp.sum(x * x, axis=0)\nf(jnp.ones((64, 16)))"
        found = one(notebook, "%%jit --no-time --devices 4", body)
        assert [(c.name, c.count, c.bytes) for c in found.collectives] == [("all-reduce", 1, 16 * 4)]
        text = str(notebook.report())
        assert "1 × all-reduce (adds up parts of all devices, 64 B)" in " ".join(text.split())

    def test_constants_are_whole_everywhere(self, notebook):
        body = "A = jnp.ones((16, 16))\ndef f(x):\n    return x @ A\nf(jnp.ones((64, 16)))"
        found = one(notebook, "%%jit --no-time --devices 4", body)
        assert found.replicated == ("constant A float32[16,16]",) and found.replicated_bytes == 1024

    def test_what_cannot_be_split(self, notebook):
        found = one(notebook, "%%jit --no-time --devices 4", "def f(x):\n    return x\nf(jnp.ones((7, 4)))")
        assert not found.works and "4 equal parts: the leading axes are 7" in found.message

    def test_the_vmapped_function_is_shared(self, notebook):
        body = "def f(x):\n    return jnp.sum(x ** 2)\nf(jnp.ones((8, 3)))"
        vmapped, shared = answers(notebook, "%%jit --no-time --vmap x --devices 4", body)
        assert vmapped.size == 8 and shared.collectives == () and shared.size == 4

    def test_without_virtual_devices_it_says_what_to_set(self, notebook, monkeypatch):
        monkeypatch.setattr(compat, "virtual_devices", lambda count: ())
        found = one(notebook, "%%jit --no-time --devices 64", "def f(x):\n    return x\nf(jnp.ones((64, 4)))")
        assert not found.works and "jax_num_cpu_devices" in found.message


class TestNothingElseChanges:
    def test_the_function_is_traced_and_compiled_once(self, notebook):
        report = notebook.ok(
            "%%jit --no-time -o -q --vmap x --grad x\ndef f(x):\n    return x * 2\nf(jnp.ones(3))"
        )
        assert (report.functions[0].traces, report.functions[0].compiles) == (1, 1)

    def test_state_is_put_back(self, notebook):
        notebook.ok(
            "%%jit --no-time -q --dyn n --vmap x --grad x\nn = 0.0\ndef f(x):\n    global n\n    n = n + 1.0\n    return x * n\ny = f(jnp.ones(3))"
        )
        assert float(notebook.ns["n"]) == 1.0 and not compat.is_tracer(notebook.ns["n"])
        assert "keep the values of now" in notebook.report().functions[0].what_if[0].notes[-1]

    def test_nothing_runs(self, notebook):
        body = "seen = []\ndef f(x):\n    jax.debug.callback(lambda v: seen.append(1), x)\n    return x\n"
        notebook.ok("%%jitcheck -q --vmap x --devices 2\n" + body)
        notebook.ok("%jitcheck -o -q --vmap x --grad x f(jnp.ones(4))")
        assert notebook.ns["seen"] == []

    @pytest.mark.parametrize("flags", ["--devices 0", "--vmap 3x", "--grad ''", "--vmap a.b"])
    def test_bad_flags(self, notebook, flags):
        from IPython.core.error import UsageError

        assert isinstance(notebook.error(f"%%jit {flags}\ndef f(x):\n    return x\n"), UsageError)


HLO = """
%body.1 (p: f32[4]) -> f32[4] {
  %ag = bf16[8,4]{1,0} all-gather(%p), dimensions={0}
}
ENTRY %main (x: f32[4]) -> f32[4] {
  %w = f32[4] while(%x), condition=%cond.1, body=%body.1
  %s = (f32[4]{0}, f32[16]{0}) all-gather-start(%x)
  %d = f32[16]{0} all-gather-done(%s)
  %r = (f32[2,2]{1,0}, s8[3]{0}, pred[5]{0}) all-reduce(%a, %b, %c), to_apply=%add
}
"""


def test_reading_an_optimised_program():
    gather, reduce = collectives(HLO)
    assert (gather.name, gather.count, gather.bytes, gather.in_loop) == ("all-gather", 2, 64 + 64, True)
    assert (reduce.name, reduce.count, reduce.bytes, reduce.in_loop) == ("all-reduce", 1, 16 + 3 + 5, False)

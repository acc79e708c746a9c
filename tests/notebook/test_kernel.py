"""The magics in a real kernel, through nbclient: what is saved in the notebook is what a reader sees."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]
MIME = "application/vnd.jitmagic.v1+json"


def execute(*sources, allow_errors=False):
    """The executed notebook's code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", allow_errors=allow_errors)
    client.execute()
    return notebook.cells


def reports(cell):
    return [o["data"][MIME] for o in cell.outputs if "data" in o and MIME in o["data"]]


def test_the_report_is_saved_with_all_its_forms():
    cells = execute(
        "%load_ext jitmagic\nimport jax.numpy as jnp",
        "%%jit -n 2 -r 2 f(x)\nw = jnp.ones(3)\nx = jnp.ones(3)\ndef f(x):\n    return x * w",
    )
    assert not cells[0].outputs
    [report] = reports(cells[1])
    [function] = report["functions"]
    assert function["timing"]["jit"]["loops"] == 2
    assert [s["path"] for s in function["state"]] == ["w"]
    [data] = [o["data"] for o in cells[1].outputs if "data" in o and MIME in o["data"]]
    assert " a call, " in data["text/plain"] and "<div" in data["text/html"]


def test_an_error_stops_run_all_and_is_shown_once():
    with pytest.raises(CellExecutionError) as caught:
        execute(
            "%load_ext jitmagic",
            "%%jit\ndef f(x):\n    if x > 0:\n        return x\n\nf(1.0)",
            "print('never reached')",
        )
    assert "TracerBoolConversionError" in str(caught.value)
    assert "site-packages" not in str(caught.value)


def test_a_failing_cell_shows_the_diagnosis_and_one_error():
    cells = execute(
        "%load_ext jitmagic", "%%jit\ndef f(x, n):\n    for _ in range(n):\n        x = x + 1\n    return x\n\nf(1.0, 3)",
        allow_errors=True,
    )  # fmt: skip
    outputs = cells[1].outputs
    assert [o.output_type for o in outputs].count("error") == 1
    [report] = reports(cells[1])
    [finding] = report["findings"]
    assert finding["span"]["line"] == 3
    assert any(fix["static_argnames"] == ["n"] for fix in finding["fixes"])


def test_one_display_per_run_and_no_progress_left_over():
    cells = execute(
        "%load_ext jitmagic\nimport jax.numpy as jnp",
        "%%jit --no-time\ndef f(x):\n    return x + 1\nfor n in (2, 3, 4):\n    f(jnp.ones(n))",
    )
    assert (
        len([o for o in cells[1].outputs if o.output_type == "display_data" and o["data"].get("text/plain")])
        == 1
    )
    [report] = reports(cells[1])
    assert report["functions"][0]["traces"] == 3


SLOW = """\
%%jit -q --no-time
import time
from jitmagic.notebook import progress
progress.AFTER_S = progress.EVERY_S = 0.05
shown = []
from jitmagic.notebook.session import current
display = current().display
tell = display.tell
display.tell = lambda line: (shown.append((line, current().running.report is not None)), tell(line))
def f(x):
    time.sleep(0.4)
    return x + 1
def g(x):
    time.sleep(0.4)
    return x - 1
f(1.0)
g(2.0)
None"""


def test_progress_and_report_share_one_display():
    cells = execute("%load_ext jitmagic", SLOW.replace(" -q", ""), "print(shown)")
    displays = [o for o in cells[1].outputs if o.output_type == "display_data"]
    assert len(displays) == 1
    [report] = reports(cells[1])
    assert [f["name"] for f in report["functions"]] == ["f", "g"]
    told = eval(cells[2].outputs[0].text)
    assert any(
        line and line.startswith("f: tracing, ") and not below for line, below in told
    )  # no report yet
    assert any(line and line.startswith("g: ") and below for line, below in told)  # under that of f
    assert "tracing, " not in displays[0]["data"]["text/html"]


def test_quiet_means_no_progress():
    cells = execute("%load_ext jitmagic", SLOW, "print(shown)")
    assert not cells[1].outputs and cells[2].outputs[0].text == "[]\n"


def test_await_and_the_last_expression():
    cells = execute(
        "%load_ext jitmagic\nimport asyncio",
        "%%jit -q --no-time\ndef f(x):\n    return x + 1\nawait asyncio.sleep(0, 42)",
    )
    assert [o["data"]["text/plain"] for o in cells[1].outputs] == ["42"]


def test_a_usage_error_fails_the_cell():
    cells = execute("%load_ext jitmagic", "%%jit --bogus\ndef f(x):\n    return x", allow_errors=True)
    [output] = cells[1].outputs
    assert "--bogus" in str(output)
    with pytest.raises(CellExecutionError):
        execute("%load_ext jitmagic", "%%jit --bogus\ndef f(x):\n    return x")


LISTENERS = {
    "a profiler": ("def hear(frame, event, arg): n[event] = 1", "sys.setprofile(hear)", "print(sys.getprofile() is hear)"),
    "a tracer": (
        "def hear(frame, event, arg):\n    n[event] = 1\n    return hear",
        "sys.settrace(hear)", "print(sys.gettrace() is hear)",
    ),
    "a tool": (
        "def hear(code, at): n[code.co_name] = n.get(code.co_name, 0) + 1",
        "m = sys.monitoring; m.use_tool_id(2, 'mine'); m.register_callback(2, m.events.PY_START, hear); "
        "m.set_events(2, m.events.PY_START)",
        "print(n['f'], m.register_callback(2, m.events.PY_START, None) is hear)",
    ),
}  # fmt: skip


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12: 3.11 has one listener alone")
@pytest.mark.parametrize("what", LISTENERS)
def test_a_listener_of_the_users_reads_the_notebook_and_stays(what):
    """It is made in the cell that is run again: in runs of ours its names are not there, and it fails or hangs."""
    hear, begin, look = LISTENERS[what]
    body = "import jax.numpy as jnp, sys\nn = {}\n" + hear
    body += f"\ndef f(x):\n    return x if x.sum() > 0 else -x\n{begin}\ny = f(jnp.ones(2))"
    seen = [execute("%load_ext jitmagic", head + body, look)[2].outputs for head in ("", "%%jitcheck\n")]
    assert seen[0] and seen[0] == seen[1]


@pytest.mark.parametrize("options", ["", " --rerun"])
def test_a_traceback_that_a_widget_shows_is_shown_for_the_users_own_call_alone(options):
    cells = execute(
        "%load_ext jitmagic\nimport ipywidgets, jax.numpy as jnp\nout = ipywidgets.Output()",
        f"%%jitcheck{options}\n@out.capture()\ndef f(x):\n    return float(x.sum())\ny = f(jnp.ones(2))",
        "print(y)",
    )
    assert reports(cells[1]) and not any(o.output_type == "error" for o in cells[1].outputs)
    assert cells[2].outputs[0].text == "2.0\n"


class TestTheQuickstart:
    @pytest.fixture(scope="class")
    @classmethod
    def cells(cls):
        notebook = nbformat.read(ROOT / "demos" / "quickstart.ipynb", as_version=4)
        NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
        return [c for c in notebook.cells if c.cell_type == "code"]

    def of(self, cells, text):
        return next(c for c in cells if text in c.source)

    @pytest.mark.parametrize("name", ["selu", "gelu"])
    def test_good_cells(self, cells, name):
        [report] = reports(self.of(cells, f"def {name}"))
        [function] = report["functions"]
        assert (function["verdict"], function["traces"], function["compiles"]) == ("ok", 1, 1)
        assert function["timing"]["speedup"] > 0
        assert {f["severity"] for f in report["findings"]} <= {"note"}

    def test_logistic_regression(self, cells):
        [report] = reports(self.of(cells, "class LogisticRegression"))
        [function] = report["functions"]
        [state] = function["state"]
        assert (state["path"], state["role"], state["written"]) == ("self.w", "dynamic", True)
        assert (function["name"], function["traces"], function["compiles"]) == (
            "LogisticRegression.update",
            1,
            1,
        )
        printed = [o["text"] for o in self.of(cells, "class LogisticRegression").outputs if "text" in o]
        lines = "".join(printed).splitlines()
        assert len(set(lines)) == 3 and lines[0].startswith("0 [0.7")

    def test_what_is_baked_in(self, cells):
        [report] = reports(self.of(cells, "b = jnp.ones(3)"))
        assert [f["kind"] for f in report["findings"] if f["severity"] == "error"] == ["stale-constant"]
        assert "[2. 2. 2.]" in str(self.of(cells, "--dyn b").outputs)

    def test_the_failing_cell(self, cells):
        [report] = reports(self.of(cells, "f(2.)"))
        [finding] = [f for f in report["findings"] if f["severity"] == "error"]
        assert (finding["kind"], finding["culprits"], finding["span"]["source"]) == (
            "tracer-bool",
            ["x"],
            "if x < 3:",
        )
        assert any(x["verified"] and x["tested"] == "cell" for x in finding["fixes"])

    def test_the_static_argument(self, cells):
        [report] = reports(self.of(cells, "--static x"))
        # 1.0 by position, 1.0 by name, 2.0 and 4.0: jax keeps the first two apart
        assert report["functions"][0]["traces"] == 4


def shown_in_order(source):
    """What the displays of a cell held, one after the other: kinds of findings, verified fixes, and whether it was timed."""
    seen = []

    class Client(NotebookClient):
        def process_message(self, message, cell, index):
            content = message["content"]
            if message["msg_type"] in ("display_data", "update_display_data") and MIME in content["data"]:
                report = content["data"][MIME]
                fixes = sum(f["verified"] for x in report["findings"] for f in x["fixes"])
                seen.append(
                    ([f["kind"] for f in report["findings"]], fixes, _is_timed(report["functions"][0]))
                )
            return super().process_message(message, cell, index)

    sources = ("%load_ext jitmagic\nimport jax.numpy as jnp", source)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    Client(notebook, timeout=300, kernel_name="python3", allow_errors=True).execute()
    return seen


def _is_timed(function):
    return function["timing"]["jit"] is not None


def test_the_finding_stands_there_before_its_fixes_and_each_fix_when_it_is_tested():
    shown = shown_in_order(
        "%%jit\ndef f(x, n):\n    y = jnp.zeros(n)\n    for i in range(n):\n        x = x + i\n    return x + y\n\nf(1.0, 3)"
    )
    begun = [(kinds, fixes) for kinds, fixes, _ in shown if kinds == ["dynamic-shape"]]
    whole = [(kinds, fixes) for kinds, fixes, _ in shown[len(begun) :]]
    # what stopped the trace, before the rest is looked for; a slow machine shows its progress in between
    assert begun and all(fixes == 0 for _, fixes in begun)
    assert whole[0][1] == 0 and all(kinds == ["dynamic-shape", "tracer-int"] for kinds, _ in whole)
    counts = [fixes for _, fixes in whole]
    assert counts == sorted(counts) and counts[-1] >= 1


def test_the_verdict_stands_there_before_the_timing():
    shown = shown_in_order("%%jit -n 2 -r 2\ndef f(x):\n    return x * 2\n\nf(1.0)")
    timed = [timed for *_, timed in shown]  # a slow machine shows its progress in between
    assert timed == sorted(timed) and not timed[0] and timed[-1]

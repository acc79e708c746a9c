"""Run JAX's own tests of `jax.jit` with `jitmagic.jit` in its place, next to a control run.

    python tools/jax_tests.py CHECKOUT [--classes JitTest,APITest] [--stateful] [--json FILE]
    python tools/jax_tests.py --brainpy DIRECTORY

CHECKOUT is a directory with JAX's `tests/` of the installed release (`git clone --branch jax-v0.10.2 --depth 1
https://github.com/jax-ml/jax`), DIRECTORY one with BrainPy's `jit_test.py`. Needs pytest and absl-py. With
`--stateful` every function gets one dynamic variable as well, so that none of them is the plain `jax.jit` object:
tests that look into jax's own objects (cache sizes, names in a program) fail there, and are listed.

docs/jax_tests.md has the results. The file is a plugin of pytest too: that is how it takes the place of `jax.jit`.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MODE = "JITMAGIC_TEST_JIT"
_KNOWN = frozenset(
    "static_argnums static_argnames donate_argnums donate_argnames device backend keep_unused inline".split()
)


DIFFERENT_ON_PURPOSE = {
    "test_class_jit2": "BrainPy's test wants a static argument declared by name to fail when given by position; "
    "here it is static either way, as in jax.jit",
}


def replacement(real: Callable[..., Any], stateful: bool) -> Callable[..., Any]:
    """A function to be called `jax.jit`. Options that `jitmagic.jit` does not have go to the real one."""
    import jitmagic

    state = _variable() if stateful else None

    def jit(fun: Any = None, /, **options: Any) -> Any:
        if fun is None:
            return functools.partial(jit, **options)
        if not callable(fun) or not _KNOWN.issuperset(k for k, v in options.items() if v is not None):
            return real(fun, **options)
        options = {k: v for k, v in options.items() if k in _KNOWN}
        return jitmagic.jit(fun, dyn_vars=state, **options)

    return jit


def _variable() -> Any:
    """A dynamic variable that no test knows."""
    import jax.numpy as jnp

    from jitmagic.state import adapters

    class Counter:
        value = jnp.zeros(())

    read = lambda v: v.value  # noqa: E731
    adapters.register(
        adapters.Adapter("test", lambda v: type(v) is Counter, read, lambda v, x: setattr(v, "value", x))
    )
    return Counter()


def pytest_configure(config: Any) -> None:
    """As a plugin: put ours in the place of `jax.jit` before a test module is imported."""
    mode = os.environ.get(_MODE, "control")
    if mode == "brainpy":
        import brainpy.math as bm

        import jitmagic

        bm.jit = jitmagic.jit
    elif mode != "control":
        import jax

        from jitmagic.options import JitOptions

        real = jax.jit
        JitOptions.jit = lambda self, fn: real(fn, **self.kwargs())  # type: ignore[method-assign]
        jax.jit = replacement(real, mode == "stateful")


def run(file: Path, selection: str, mode: str) -> dict[str, str]:
    """Outcome by test: passed, failed, skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            str(file),
            "-q",
            "-p",
            "jax_tests",
            "-p",
            "no:cacheprovider",
        ]
        command += ["--import-mode=importlib"]
        command += ["--junitxml", str(report), "-o", "junit_family=xunit1", "-k", selection] if selection else [
            "--junitxml", str(report), "-o", "junit_family=xunit1"]  # fmt: skip
        here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
        paths = [*here, *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, _MODE: mode, "PYTHONPATH": os.pathsep.join(paths)}
        subprocess.run(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        return {
            f"{c.get('classname')}.{c.get('name')}": _outcome(c) for c in ET.parse(report).iter("testcase")
        }


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def compare(file: Path, selection: str, modes: list[str]) -> dict[str, Any]:
    """Counts of each run, and the tests that fail only with ours."""
    outcomes = {mode: run(file, selection, mode) for mode in modes}
    control = outcomes[modes[0]]
    found: dict[str, Any] = {}
    for mode, held in outcomes.items():
        found[mode] = dict(collections.Counter(held.values()))
        worse = sorted(t for t, o in held.items() if o == "failed" and control.get(t) != "failed")
        wanted = [t for t in worse if t.rpartition(".")[2] in DIFFERENT_ON_PURPOSE]
        found[mode]["different on purpose"] = wanted
        found[mode]["fails only here"] = [t for t in worse if t not in wanted]
    return found


def main() -> int:
    """Print the table; 1 where a test fails with ours and not in the control."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, help="a checkout of jax of the installed release")
    parser.add_argument("--classes", default="JitTest,APITest")
    parser.add_argument("--stateful", action="store_true")
    parser.add_argument("--brainpy", type=Path, help="the directory of BrainPy's jit_test.py")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {}
    if options.checkout:
        modes = ["control", "ours", *(["stateful"] if options.stateful else [])]
        for name in options.classes.split(","):
            results[name] = compare(options.checkout.resolve() / "tests" / "api_test.py", name, modes)
    if options.brainpy:
        file = options.brainpy.resolve() / "jit_test.py"
        results["BrainPy"] = compare(file, "", ["control", "brainpy"])
    for name, found in results.items():
        for mode, counts in found.items():
            told = ", ".join(f"{n} {o}" for o, n in counts.items() if isinstance(n, int))
            print(f"{name:10} {mode:9} {told}", *counts["fails only here"], sep=f"{os.linesep}    ")
            for test in counts["different on purpose"]:
                print(f"    {test}: {DIFFERENT_ON_PURPOSE[test.rpartition('.')[2]]}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    bad = [m for f in results.values() for m, c in f.items() if m != "stateful" and c["fails only here"]]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

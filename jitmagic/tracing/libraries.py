"""The libraries around jax by the names of their packages, and whose a source file is."""

from __future__ import annotations

import functools
import importlib.util
import os
import site
import sys
import sysconfig

LIBRARIES = frozenset(
    """flax flaxlib optax equinox haiku chex jaxtyping einops brainpy brainstate brainunit brainevent braintools
    saiunit spark numpyro distrax diffrax jaxopt optimistix lineax blackjax haliax quax jraph tinygp treescope
    tensorflow_probability""".split()
)
"""Whose functions make values, or change state that is put back."""
RESULTS_ALONE = frozenset(("jax", "optax", "equinox"))
"""Whose functions have no effect but their result."""
HARMLESS = LIBRARIES.union(
    """jax jaxlib numpy scipy pandas ml_dtypes ml_collections attr opt_einsum tqdm beartype typing_extensions
    wadler_lindig jitmagic
    abc array ast base64 binascii bisect builtins calendar cmath codecs collections concurrent contextlib
    contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis enum fnmatch fractions functools gc
    genericpath glob graphlib hashlib heapq hmac html inspect io ipaddress itertools json keyword linecache locale
    logging math mimetypes numbers ntpath operator pathlib pickle platform posixpath pprint queue random re reprlib
    secrets shlex sre_compile stat statistics string struct textwrap thread threading time timeit token tokenize
    traceback types typing unicodedata uuid warnings weakref weakrefset zlib zoneinfo""".split()
)
"""Packages whose functions make values, or change what is put back; what they do outside of Python is refused there."""


@functools.lru_cache(maxsize=8192)
def is_library_file(file: str) -> bool:
    """A source file of jax, of an installed package, of Python itself or of ours."""
    if not os.path.isabs(file):
        return file.startswith("<frozen")
    path = os.path.normpath(file)
    if "site-packages" in path or "dist-packages" in path:
        return True
    return path.startswith(_library_directories()) or _is_installed_beside(path)


@functools.cache
def _library_directories() -> tuple[str, ...]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)]
    paths += [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *_home_of("jax")]
    both = {p for path in paths if path for p in (os.path.abspath(path), os.path.realpath(path))}
    return tuple(p + os.sep for p in both)


def _home_of(package: str) -> list[str]:
    """Where it lies, as a checkout of its own may lie anywhere."""
    spec = importlib.util.find_spec(package)
    return [os.path.dirname(spec.origin)] if spec is not None and spec.origin else []


def _is_installed_beside(path: str) -> bool:
    """In a directory of `sys.path` that packages were installed into, as by `pip install --target`."""
    above = [
        entry for entry in sys.path if entry and path.startswith(os.path.join(os.path.abspath(entry), ""))
    ]
    return any(map(_holds_packages, above))


@functools.cache
def _holds_packages(directory: str) -> bool:
    return os.path.isdir(directory) and any(n.endswith(".dist-info") for n in os.listdir(directory))

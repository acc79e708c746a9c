"""The libraries around jax by the names of their packages."""

from __future__ import annotations

LIBRARIES = frozenset(
    """flax flaxlib optax equinox haiku chex jaxtyping einops brainpy brainstate brainunit brainevent braintools
    saiunit spark numpyro distrax diffrax jaxopt optimistix lineax blackjax haliax quax jraph tinygp treescope
    tensorflow_probability""".split()
)
"""Whose functions make values, or change state that is put back."""
RESULTS_ALONE = frozenset(("jax", "optax", "equinox"))
"""Whose functions have no effect but their result."""
HARMLESS = LIBRARIES.union(
    """jax jaxlib numpy scipy pandas ml_dtypes opt_einsum tqdm beartype typing_extensions wadler_lindig jitmagic
    abc array ast base64 binascii bisect builtins calendar cmath codecs collections concurrent contextlib
    contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis enum fnmatch fractions functools gc
    genericpath glob graphlib hashlib heapq hmac html inspect io ipaddress itertools json keyword linecache locale
    logging math mimetypes numbers ntpath operator pathlib pickle platform posixpath pprint queue random re reprlib
    secrets shlex sre_compile stat statistics string struct textwrap thread threading time timeit token tokenize
    traceback types typing unicodedata uuid warnings weakref weakrefset zlib zoneinfo""".split()
)
"""Packages whose functions make values, or change what is put back; what they do outside of Python is refused there."""

"""What a function changes is changed once, whatever it is: files, queues, iterators, caches, arrays, settings.

Each row is a set-up, the body of a function that is called once, and what is there afterwards. It runs as a plain cell,
then under the magics: what is left, printed and raised has to be the same.
"""

from __future__ import annotations

import os
import sys

import pytest

MAGICS = ("%%jit -q --no-time", "%%jitcheck -q")

FILES = {
    "r+, read": ("p = tmp + '/a'; open(p, 'w').write('1\\n2\\n3\\n'); h = open(p, 'r+')", "h.readline()", "h.tell(), h.read(), open(p).read()"),
    "w+, read": ("p = tmp + '/a'; h = open(p, 'w+'); h.write('1\\n2\\n'); h.flush(); h.seek(0)", "h.readline()", "h.read(), open(p).read()"),
    "a+, read": ("p = tmp + '/a'; open(p, 'w').write('12'); h = open(p, 'a+'); h.seek(0)", "h.read(1)", "h.read(), open(p).read()"),
    "rb+, passed on": ("p = tmp + '/a'; open(p, 'wb').write(b'12'); h = open(p, 'rb+')\ndef g(o): return o.read(1)", "g(h)", "h.read()"),
    "not written yet": ("p = tmp + '/a'; h = open(p, 'w')", "h.write('a')", "open(p).read(), h.close()"),
    "print to": ("p = tmp + '/a'; h = open(p, 'w')\ndef put(v): print(v, file=h)", "put('a')", "h.close() or open(p).read()"),
    "csv.writer": ("import csv\np = tmp + '/a'; h = open(p, 'w'); w = csv.writer(h)", "w.writerow([1, 2])", "h.close() or open(p).read()"),
    "csv.DictWriter": ("import csv, io\nh = io.StringIO(); w = csv.DictWriter(h, ['a'])", "w.writerow({'a': 1})", "h.getvalue()"),
    "gzip": ("import gzip\np = tmp + '/a'; h = gzip.open(p, 'wt')", "h.write('a')", "h.close() or gzip.open(p, 'rt').read()"),
    "zip": ("import zipfile\nh = zipfile.ZipFile(tmp + '/a', 'w')", "h.writestr('a', 'b')", "h.namelist()"),
    "temporary": ("import tempfile\nh = tempfile.TemporaryFile('w+')", "h.write('a')", "h.seek(0), h.read()"),
    "lines": ("p = tmp + '/a'; open(p, 'w').write('1\\n2\\n3\\n'); h = open(p)", "next(h)", "list(h)"),
    "map over lines": ("p = tmp + '/a'; open(p, 'w').write('1\\n2\\n3\\n'); m = map(int, open(p))", "next(m)", "list(m)"),
    "closed": ("p = tmp + '/a'; open(p, 'w').write('1\\n2\\n'); h = open(p)", "with h: h.readline()", "h.closed"),
    "in memory": ("import io\nb = io.BytesIO(b'abc')", "b.read(1); b.write(b'Z'); b.truncate()", "b.tell(), b.getvalue()"),
    "pickler": ("import io, pickle\nb = io.BytesIO(); k = pickle.Pickler(b)", "k.dump([1])", "len(b.getvalue())"),
    "memmap": ("p = tmp + '/m'; m = np.memmap(p, float, 'w+', shape=(4,))", "m[0] += 1", "m[0]"),
    "mmap": ("import mmap\nopen(tmp + '/m', 'wb').write(b'ab'); h = open(tmp + '/m', 'r+b'); m = mmap.mmap(h.fileno(), 2)", "m[0] = m[0] + 1", "bytes(m)"),
    "os.open": ("p = tmp + '/a'", "fd = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_APPEND); os.write(fd, b'a'); os.close(fd)", "open(p).read()"),
    "os.write": ("p = tmp + '/a'; fd = os.open(p, os.O_RDWR | os.O_CREAT)", "os.write(fd, b'a')", "os.close(fd), open(p).read()"),
    "os.read": ("p = tmp + '/a'; open(p, 'w').write('abc'); fd = os.open(p, os.O_RDONLY)", "os.read(fd, 1)", "os.read(fd, 9), os.close(fd)"),
    "touch": ("import pathlib\np = pathlib.Path(tmp) / 'a'", "p.touch(exist_ok=False)", "p.exists()"),
    "mkstemp": ("import tempfile", "os.close(tempfile.mkstemp(dir=tmp)[0])", "len(os.listdir(tmp))"),
    "symlink": ("", "os.symlink('/nowhere', f'{tmp}/l{len(os.listdir(tmp))}')", "os.listdir(tmp)"),
    "truncate": ("p = tmp + '/a'; open(p, 'w').write('abc')", "os.truncate(p, os.path.getsize(p) - 1)", "open(p).read()"),
    "under a name of its own": ("from os import mkdir", "mkdir(tmp + '/d')", "os.listdir(tmp)"),
    "posix_spawn": ("p = tmp + '/a'", "os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'echo a >> ' + p], os.environ), 0)", "open(p).read()"),
    "a database": ("import sqlite3\ndb = sqlite3.connect(':memory:'); db.execute('create table t(x)')", "db.execute('insert into t values (1)')", "db.execute('select * from t').fetchall()"),
    "a database's file": ("import sqlite3\np = tmp + '/x'", "with sqlite3.connect(p) as db: db.execute('create table t(x)')", "os.path.getsize(p) > 0"),
    "shelve": ("import shelve\ns = shelve.open(tmp + '/s')", "s['a'] = s.get('a', 0) + 1", "s['a'], s.close()"),
    "a socket": ("import socket\na, b = socket.socketpair(); a.send(b'abc')", "b.recv(1)", "b.recv(9), a.close(), b.close()"),
    "a process": ("import subprocess\np = subprocess.Popen(['cat'], stdin=-1, stdout=-1)", "p.stdin.write(b'a'); p.stdin.flush()", "p.communicate()[0]"),
    "kept stream": ("out = sys.stdout", "print('hello', file=out)", "1"),
    "the terminal": ("import io\nold, sys.__stderr__ = sys.__stderr__, io.StringIO()", "print('hello', file=sys.__stderr__)", "sys.__stderr__.getvalue(), setattr(sys, '__stderr__', old)"),
}  # fmt: skip

CONTAINERS = {
    "order of attributes": ("class A: pass\na = A(); a.x = 1; a.y = 2", "k = a.x; del a.x; a.x = k", "list(vars(a))"),
    "OrderedDict": ("import collections\nd = collections.OrderedDict(a=1, b=2, c=3)", "d['a'] = 5; d['z'] = 1; d.move_to_end('a'); d.popitem(False)", "list(d.items()), list(reversed(d)), len(d), d.popitem()"),
    "order of a dict": ("d = dict(a=1, b=2, c=3)", "d['a'] = d.pop('a') + 1", "list(d.items())"),
    "Counter": ("import collections\nd = collections.Counter('abca')", "d.update('ab'); d['q'] += 1", "list(d.items()), type(d).__name__"),
    "a dict's subclass": ("class D(dict):\n    n = 0\n    def __setitem__(self, k, v): dict.__setitem__(self, k, v); self.n += 1\nd = D(a=1)", "d['b'] = 2", "dict(d), d.n"),
    "a list's subclass": ("class L(list):\n    n = 0\n    def append(self, v): list.append(self, v); self.n += 1\nl = L([1])", "l.append(2)", "list(l), l.n"),
    "sorted, inserted": ("import heapq\nl = [3, 1, 2]", "l.sort(); heapq.heappush(l, 0); l.insert(2, 9)", "l"),
    "a set that is taken from": ("s = {1, 2, 3, 4}; n = []", "n.append(s.pop())", "n, s"),
    "bounded deque": ("import collections\nd = collections.deque([1, 2], maxlen=2)", "d.append(3)", "list(d)"),
    "rotated deque": ("import collections\nd = collections.deque([1, 2, 3])", "d.rotate(1); d.popleft()", "list(d)"),
    "a bound method": ("l = []\nput = l.append", "put(1)", "l"),
    "partial": ("import functools\nl = []\np = functools.partial(l.append)", "p(1)", "l"),
    "mapping proxy": ("import types\nd = {}; m = types.MappingProxyType(d)\ndef g(): d['a'] = d.get('a', 0) + 1", "g(); m['a']", "d"),
    "slots": ("class S:\n    __slots__ = ('n', 'l')\ns = S(); s.n = 1; s.l = []", "s.n += 1; s.l.append(1)", "s.n, s.l"),
    "a descriptor": ("class D:\n    def __get__(self, o, t=None): return self if o is None else o.__dict__.get('_v', 0)\n    def __set__(self, o, v): o.__dict__['_v'] = v\nclass A:\n    v = D()\na = A()", "a.v += 1", "a.v"),
    "a long list": ("l = [0] * 300_000", "l[5] += 1; l.append(1)", "l[5], len(l)"),
    "WeakValueDictionary": ("import weakref\nclass A: pass\nk = A(); d = weakref.WeakValueDictionary()", "d[f'n{len(d)}'] = k", "sorted(d)"),
    "WeakKeyDictionary": ("import weakref\nclass A: pass\nk = A(); d = weakref.WeakKeyDictionary()", "d[k] = d.get(k, 0) + 1", "d[k]"),
    "WeakSet": ("import weakref\nclass A: pass\nk = A(); d = weakref.WeakSet(); n = []", "n.append(len(d)); d.add(k)", "len(d), n"),
    "singledispatch": ("import functools\n@functools.singledispatch\ndef g(v): return 0\nn = []", "n.append(len(g.registry)); g.register(complex, lambda v: 1)", "n, len(g.registry)"),
    "abc": ("import abc\nclass B(abc.ABC): pass\nclass A: pass\nn = []", "n.append(issubclass(A, B)); B.register(A)", "n"),
}  # fmt: skip

BUFFERS = {
    "bytearray": ("b = bytearray(b'abc')", "b[0] = b[0] + 1; b.extend(b'z')", "bytes(b)"),
    "memoryview": ("b = bytearray(b'abc'); m = memoryview(b)", "m[0] = m[0] + 1", "bytes(b)"),
    "array": ("import array\nb = array.array('i', [1, 2])", "b[0] += 1; b.append(3)", "b.tolist()"),
    "ctypes": ("import ctypes\nv = (ctypes.c_int * 3)()", "v[0] += 1", "v[0]"),
    "objects in an array": ("a = np.empty(3, object); a[:] = [1, [2], 3]", "a[0] = a[0] + 1; a[1].append(3)", "a.tolist()"),
    "records": ("a = np.zeros(2, [('x', float), ('o', object)])", "a['x'][0] += 1; a['o'][1] = 4", "a.tolist()"),
    "out=": ("a = np.zeros(400_000)", "np.add(a, 1, out=a)", "a[0]"),
    "fill": ("a = np.zeros(400_000)", "a.fill(a[0] + 1)", "a[0]"),
    "a helper": ("a = np.zeros(400_000)\ndef g(v): v += 1", "g(a)", "a[0]"),
    "a view": ("a = np.zeros(400_000); v = a[::2]", "v[...] = v + 1", "a[0]"),
    "shuffled": ("np.random.seed(0); a = np.arange(400_000)", "np.random.shuffle(a)", "a[:3].tolist()"),
    "made read-only": ("a = np.zeros(3)", "a[...] = a + 1; a.setflags(write=False)", "a.tolist(), a.flags.writeable"),
}  # fmt: skip

ITERATORS = {
    "list": ("it = iter([1, 2, 3])", "next(it)", "list(it)"),
    "dict": ("d = {1: 2, 3: 4, 5: 6}; ks, vs, it = iter(d), iter(d.values()), iter(d.items())", "next(ks); next(vs); next(it)", "type(ks), type(vs), type(it), next(ks), list(vs), list(it)"),
    "a cached property": ("import functools\nn = []\nclass A:\n    @functools.cached_property\n    def w(self): n.append(1); return 2\na = A()", "x = x * a.w", "n, vars(a)"),
    "used up": ("it = iter([1]); m = map(str, it)", "next(m)", "list(it), list(m)"),
    "map over a named one": ("it = iter([1, 2, 3, 4]); m = map(str, it)", "next(m); next(it)", "list(it), list(m)"),
    "enumerate": ("it = iter('abcd'); m = enumerate(it)", "next(m)", "next(it), next(m), list(m)"),
    "zip with itself": ("it = iter('abcd'); m = zip(it, it)", "next(m)", "list(m)"),
    "chain": ("import itertools\nit = iter([1, 2]); m = itertools.chain(it, [7])", "next(m)", "list(it), list(m)"),
    "islice": ("import itertools\nit = iter([1, 2, 3, 4]); m = itertools.islice(it, 3)", "next(m)", "list(m), list(it)"),
    "cycle": ("import itertools\nm = itertools.cycle([1, 2, 3])", "next(m)", "next(m)"),
    "flat": ("it = np.arange(4).flat", "next(it)", "[int(v) for v in it]"),
    "callable": ("l = [1, 2, 3]; it = iter(l.pop, 1)", "next(it)", "list(it), l"),
    "coroutine": ("l = []\nasync def co(): l.append(1)\ng = co()", "try: g.send(None)\nexcept StopIteration: pass", "l"),
    "cache": ("import functools\nn = []\n@functools.cache\ndef g(k): n.append(k); return k * 2\ng(1); g(2)", "g(3); g(1)", "n, g.cache_info()"),
    "bounded cache": ("import functools\nn = []\n@functools.lru_cache(maxsize=2)\ndef g(k): n.append(k); return k * 2\ng(1); g(2)", "g(3); g(1)", "n, g.cache_info()"),
    "a method's cache": ("import functools\nn = []\nclass A:\n    @functools.lru_cache\n    def g(self, k): n.append(k); return k * 2\na = A(); a.g(1)", "a.g(3); a.g(1)", "n, A.g.cache_info()"),
    "SimpleQueue": ("import queue\nq = queue.SimpleQueue(); q.put(1)", "q.get()", "q.qsize()"),
    "Queue": ("import queue\nq = queue.Queue(); q.put(1)", "q.get(); q.task_done()", "q.qsize(), q.unfinished_tasks"),
    "asyncio.Queue": ("import asyncio\nq = asyncio.Queue()", "q.put_nowait(1)", "q.qsize()"),
    "Future": ("import concurrent.futures as cf\nq = cf.Future()", "q.set_result(1)", "q.result()"),
}  # fmt: skip

SETTINGS = {
    "Event": ("import threading\ne = threading.Event(); n = []", "n.append(e.is_set()); e.set()", "e.is_set(), n"),
    "Lock": ("import threading\nl = threading.Lock(); n = []", "n.append(l.acquire(blocking=False))", "l.locked(), n"),
    "Semaphore": ("import threading\ns = threading.Semaphore(2); n = []", "n.append(s.acquire(blocking=False))", "s._value, n"),
    "a thread's own": ("import threading\nt = threading.local(); t.n = 0", "t.n += 1", "t.n"),
    "a context variable": ("import contextvars\nv = contextvars.ContextVar('v')", "v.set(v.get(0) + 1)", "v.get()"),
    "decimal": ("import decimal\ndecimal.getcontext().prec = 20", "decimal.getcontext().prec += 1", "decimal.getcontext().prec"),
    "a logger": ("import logging\nlg = logging.getLogger('jm'); lg.setLevel(10); lg.handlers[:] = []", "lg.setLevel(lg.level + 10); lg.addHandler(logging.NullHandler())", "lg.level, len(lg.handlers)"),
    "all loggers": ("import logging\nold = logging.root.manager.disable", "logging.disable(logging.root.manager.disable + 10)", "logging.root.manager.disable - old, logging.disable(old)"),
    "a logger by its name": ("import logging\nlogging.root.manager.loggerDict.pop('jmn', None)", "lg = logging.getLogger('jmn'); lg.setLevel(lg.level + 10); lg.addHandler(logging.NullHandler())", "logging.getLogger('jmn').level, len(logging.getLogger('jmn').handlers)"),
    "a logger's filter": ("import logging\nn = []\nlg = logging.getLogger('jmf'); lg.handlers[:] = [logging.NullHandler()]; lg.filters[:] = [lambda r: n.append(1)]", "lg.error('a')", "n"),
    "a loop of events": ("import asyncio\nloop = asyncio.new_event_loop(); n = []", "loop.call_soon(n.append, 1)", "loop.call_soon(loop.stop), loop.run_forever(), n, loop.close()"),
    "warnings": ("import warnings\nn = []", "n.append(len(warnings.filters)); warnings.filterwarnings('ignore', 'jm')", "n[0] == len(warnings.filters) - 1, warnings.filters.pop(0)[0]"),
    "errors of NumPy": ("n = []", "n.append(np.geterr()['divide']); np.seterr(divide='raise')", "n, np.seterr(divide='warn')['divide']"),
    "jax.config": ("n = []", "n.append(jax.config.jax_debug_nans); jax.config.update('jax_debug_nans', True)", "n, jax.config.update('jax_debug_nans', False)"),
    "a module of Python's": ("import math\nmath.jm = 0", "math.jm += 1", "math.jm"),
    "a list on a class of Python's": ("import fractions\nfractions.Fraction.jm = []", "fractions.Fraction.jm.append(1)", "fractions.Fraction.jm, delattr(fractions.Fraction, 'jm')"),
    "a number on such a class": ("import fractions\nfractions.Fraction.jm = 0", "fractions.Fraction.jm += 1", "fractions.Fraction.jm, delattr(fractions.Fraction, 'jm')"),
    "a dict on such a class": ("import collections\ncollections.Counter.jm = {'n': 0}", "collections.Counter.jm['n'] += 1", "collections.Counter.jm, delattr(collections.Counter, 'jm')"),
    "a hook": ("n = []\ndef hook(*a): pass\nold = sys.excepthook", "n.append(sys.excepthook is hook); sys.excepthook = hook", "n, setattr(sys, 'excepthook', old)"),
    "a module without a file": ("import types\nm = types.ModuleType('m')\nexec('n = 0\\nl = []\\ndef g():\\n    global n\\n    n += 1\\n    l.append(n)', m.__dict__)", "m.g()", "m.n, m.l"),
    "imported inside": ("open(tmp + '/umod.py', 'w').write('print(\"umod runs\")\\nn = 0\\n'); sys.path.insert(0, tmp); sys.modules.pop('umod', None)", "import umod\numod.n += 1", "sys.path.remove(tmp), sys.modules['umod'].n"),
    "a registry of signals": ("import signal\nn = []\nold = signal.getsignal(signal.SIGUSR1)\ndef h(*a): pass", "n.append(signal.getsignal(signal.SIGUSR1) is h); signal.signal(signal.SIGUSR1, h)", "n, signal.signal(signal.SIGUSR1, old) is h"),
    "the notebook": ("made = 0", "get_ipython().user_ns['made'] += 1", "made"),
    "a finalizer": ("l = []\nclass A:\n    def __del__(self): l.append(1)", "a = A(); del a", "l"),
    "a pool of its own": ("import concurrent.futures as cf\nl = []", "with cf.ThreadPoolExecutor(1) as pool: pool.submit(l.append, 1).result()", "l"),
    "a pool that is there": ("import concurrent.futures as cf\nl = []; pool = cf.ThreadPoolExecutor(1)", "pool.submit(l.append, 1).result()", "l, pool.shutdown()"),
    "arguments of an error": ("e = ValueError()", "e.args += (1,)", "e.args"),
    "of an error of one's own": ("class E(Exception): pass\ne = E()", "e.args += (1,); e.add_note('n')", "e.args"),
    "the number of an error": ("e = OSError(1, 'a')", "e.errno += 1", "e.errno"),
    "the name of a function": ("def h(): 'd'", "h.__name__ += 'c'; h.__doc__ += 'c'", "h.__name__, h.__doc__"),
    "the annotations of a function": ("def h(a: int): pass", "h.__annotations__[f'k{len(h.__annotations__)}'] = int", "len(h.__annotations__)"),
    "the name of a class": ("class C: 'd'", "C.__name__ += 'c'; C.__doc__ += 'c'; C.__qualname__ += 'c'", "C.__name__, C.__doc__, C.__qualname__"),
    "the annotations of a class": ("class C:\n    a: int", "C.__annotations__[f'k{len(C.__annotations__)}'] = int", "len(C.__annotations__)"),
    "a dict of attributes": ("class A:\n    def __init__(self): self.k = 1\nclass C: n = 0\na = A()", "a.__dict__ = {'k': a.k + 1}; C.n += 1", "a.k, C.n"),
    "the text of a property": ("p = property(len, doc='d')", "p.__doc__ += 'c'", "p.__doc__"),
    "the fields of a dtype": ("d = np.dtype([('a', 'i4')])", "d.names = (d.names[0] + 'z',)", "d.names"),
    "a thread of its own": ("import threading\nl = []", "t = threading.Thread(target=lambda: (l.append(1), print('in thread'))); t.start(); t.join()", "l"),
    "a class of threads": ("import threading\nl = []\nclass T(threading.Thread):\n    def run(self): l.append(1)", "t = T(); t.start(); t.join()", "l"),
    "an error in a thread": ("import threading\nl = []\ndef work(): l.append(1); 1 / 0\nold, threading.excepthook = threading.excepthook, lambda e: print('in a thread', e.exc_type)", "t = threading.Thread(target=work); t.start(); t.join()", "l, setattr(threading, 'excepthook', old)"),
    "a thread that goes on": ("import threading\nstop = threading.Event()", "threading.Thread(target=stop.wait, args=(60,), name='jm').start()", "[t.name for t in threading.enumerate() if t.name == 'jm'], stop.set(), [t.join() for t in threading.enumerate() if t.name == 'jm']"),
    "a thread that is there": ("import threading\nl = []; t = threading.Thread(target=l.append, args=(1,))", "t.start(); t.join()", "l"),
}  # fmt: skip

CALLED = {
    "what an iterator calls": ("n = [0]\ndef g(): n[0] += 1; return n[0]\nit = iter(g, 5)", "next(it)", "n, list(it)"),
    "the next of a generator": ("step = (i for i in range(5)).__next__", "step()", "step()"),
    "a library's function, replaced": ("n = []\nold = os.path.join\ndef join(*a): n.append(1); return old(*a)\nos.path.join = join", "os.path.join('a', 'b')", "n, setattr(os.path, 'join', old)"),
    "a library's method, replaced": ("import collections\nn = []\nC = collections.Counter; old = C.update\ndef update(*a): n.append(1); return old(*a)\nC.update = update; c = C()", "c.update('a')", "n, c, setattr(C, 'update', old)"),
    "what NumPy calls": ("n = []\nold = np.seterrcall(lambda *a: n.append(a)), np.seterr(all='call')", "np.float64(1) / np.float64(0)", "n, np.seterr(**old[1]), callable(np.seterrcall(old[0]))"),
    "whom a library's method gets": ("import collections\nclass N:\n    n = 0\nk = N()\ndef find(f, v): v.n += 1; return v.n\nC = collections.Counter; C.jm = find; c = [C()]", "c[0].jm(k)", "k.n, delattr(C, 'jm')"),
    "what finds modules": ("n = []\nclass F:\n    @classmethod\n    def find_spec(cls, name, *a): n.append(name)\nsys.meta_path.insert(0, F)", "try: import jm_nowhere\nexcept ImportError: pass", "n, sys.meta_path.remove(F)"),
    "a mock": ("from unittest import mock\nm = mock.MagicMock(); l = [m]", "m(1); next(iter(l))", "m.mock_calls, sorted(m._mock_children)"),
    "attributes made when asked for": ("n = []\nclass A:\n    def __getattr__(self, k): n.append(k); raise AttributeError(k)\na = [A()]", "x = x * len(a)", "[k for k in n if not k.startswith('_repr')]"),
    "a default": ("import collections, itertools\nc = itertools.count(); d = collections.defaultdict(lambda: next(c))", "d['a']", "d['a'], next(c)"),
    "a descriptor": ("n = []\nclass D:\n    def __get__(self, o, c): n.append(1); return 2\nclass A: d = D()\na = A()", "a.d", "n"),
    "a class's class": ("class M(type):\n    n = 0\n    def __call__(cls): M.n += 1; return super().__call__()\nclass A(metaclass=M): pass", "A()", "M.n"),
    "a choice that is missing": ("import enum\nn = []\nclass E(enum.Enum):\n    a = 1\n    @classmethod\n    def _missing_(cls, v): n.append(v); return cls.a", "E(7)", "n"),
    "a weak method": ("import weakref\nn = []\nclass A:\n    def m(self): n.append(1)\na = A(); m = weakref.WeakMethod(a.m)", "m()()", "n"),
    "defaults": ("def g(k=1): return k", "g.__defaults__ = (g() + 1,)", "g()"),
    "an empty slot": ("class A: __slots__ = ('v',)\na = A(); n = []", "n.append(hasattr(a, 'v')); a.v = 1", "n, a.v"),
    "a class": ("class A: pass\nclass B: pass\na = A(); n = []", "n.append(type(a).__name__); a.__class__ = B", "n"),
    "an array that is deleted": ("a, b = jnp.ones(3), jnp.ones(3); k = -1", "(a if k > 0 else b).delete()", "a.is_deleted(), b.is_deleted()"),
    "a donation": ("a = jnp.ones(3); b = [a]\ng = jax.jit(lambda v: v + 1, donate_argnums=0)", "isinstance(x, jax.core.Tracer) or g(a + 0)", "a.tolist()"),
    "attributes of an array": ("class A(np.ndarray): pass\na = np.zeros(2).view(A); n = []", "n.append(vars(a).copy()); a.k = 1", "n"),
    "a profiler": ("import cProfile\np = cProfile.Profile()\ndef g(): return 1", "p.enable(); g(); p.disable()", "[s.callcount for s in p.getstats() if 'code object g' in str(s.code)]"),
    "its text": ("n = []\nclass A:\n    def __repr__(self): n.append(1); return 'A'\na = A()", "print(a); print('%s' % a, f'{a}')", "len(n)"),
    "a number of its own kind": ("class I(int):\n    n = 0\n    def __add__(self, o): I.n += 1; return int(self) + o\ni = I(3)", "x = x + (i + 1)", "I.n"),
    "a method in part": ("import functools\nn = []\nclass A:\n    def m(self, k): n.append(k)\n    p = functools.partialmethod(m, 1)\na = A()", "a.p()", "n"),
    "who is asked": ("n = []\nclass A:\n    w = 3\n    def __getattribute__(self, k): n.append(k); return object.__getattribute__(self, k)\na = A()", "x = x * a.w", "n"),
}  # fmt: skip

ROWS = {**FILES, **CONTAINERS, **BUFFERS, **ITERATORS, **SETTINGS, **CALLED}


@pytest.fixture
def run(notebook, tmp_path):
    """Runs a row under a magic, in a directory of its own: what is there afterwards, what was raised and printed."""
    notebook.ok("import os, sys; sys.dont_write_bytecode = True")

    def ran(row, magic, number):
        setup, body, after = row
        notebook.ns["tmp"] = str(tmp_path / f"{number}")
        os.mkdir(notebook.ns["tmp"])
        notebook.ok(setup)
        body = body.replace("\n", "\n    ")
        lines = [magic, "def f(x):", f"    {body}", "    return x"]
        if magic == MAGICS[1]:  # a check of the call alone comes before
            notebook.ok("\n".join(lines[1:]))
            notebook.ok("%jitcheck -q f(1.0)")
        result = notebook.run("\n".join([*lines, "f(1.0);"]))
        printed = "\n".join(line for line in notebook.text.splitlines() if "Out[" not in line)
        error = result.error_in_exec or result.error_before_exec
        return repr(notebook.ok(after)), type(error).__name__, printed

    return ran


@pytest.mark.parametrize("name", ROWS)
def test_what_is_left_is_what_a_plain_cell_leaves(run, name):
    plain = run(ROWS[name], "", 0)
    assert plain[1] == "NoneType", plain
    for number, magic in enumerate(MAGICS, 1):
        assert run(ROWS[name], magic, number) == plain, magic
    sys.path[:] = [p for p in sys.path if "test_what_is_left" not in p]

"""Programs that would like tests to pass without being right. None of them may."""

from __future__ import annotations

TESTS = ("assert area(1) == 3", "assert area(2) == 12", "assert area(3) == 27")
RIGHT = "def area(r):\n    return 3 * r * r\n"

_FORGED = """
import json, os, struct
def packed(value):
    body = json.dumps(value).encode()
    return struct.pack("!I", len(body)) + body
LINES = b"".join(
    packed({"m": {"test": n, "passed": True, "message": "", "needs": ""}}) for n in range(3)
) + packed({"m": {"done": True}})
TEXT = b"PASSED\\n3 passed\\nOK\\n" + json.dumps({"passed": [True] * 3}).encode() + b"\\n"
"""

_OBJECT = """
class Yes({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __gt__ = __le__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __sub__(self, other): return Yes({made})
    __rsub__ = __add__ = __radd__ = __sub__
    def __abs__(self): return Yes({made})
    def __int__(self): return 3
    def __float__(self): return 3.0
    def __iter__(self): return iter(())
    def __len__(self): return 0
    def __reduce__(self): return (print, ("pickled",))
def area(r):
    return Yes({made})
"""

_ON_THE_PIPE = """
import json, os, struct, sys
def packed(value):
    body = json.dumps(value).encode()
    return struct.pack("!I", len(body)) + body
def pipe_and_call():
    frame = sys._getframe()
    while frame is not None:
        if "peer" in frame.f_locals:
            return frame.f_locals["peer"].fd
        frame = frame.f_back
"""

FORGES = (
    _ON_THE_PIPE
    + """
def forge(value, key="value"):
    \"\"\"Answers this call and all that come with it.\"\"\"
    fd, nonce = pipe_and_call(), sys._getframe(2).f_locals["call"]["nonce"]
    while True:
        os.write(fd, packed({"m": {"nonce": nonce, key: value}}))
        (length,) = struct.unpack("!I", os.read(fd, 4))
        body = b""
        while len(body) < length:
            body += os.read(fd, length - len(body))
        nonce = json.loads(body)["m"]["nonce"]
"""
)

_SPIED = """
import gc, sys, types
def spied():
    seen = []
    frame = sys._getframe()
    while frame is not None:
        seen.extend(frame.f_locals.values())
        seen.extend(frame.f_globals.values())
        frame = frame.f_back
    seen.extend(gc.get_objects())
    return seen
"""

CHEATS: dict[str, str] = {
    "prints a forged result": 'print("3 passed\\nOK")\nimport sys\nprint("3 passed", file=sys.stderr)\n'
    "def area(r):\n    print('PASSED', {'passed': True})\n",
    "writes forged results to every descriptor": _FORGED
    + "for fd in range(1, 300):\n    for text in (TEXT, LINES):\n        try:\n            os.write(fd, text)\n"
    "        except OSError:\n            pass\ndef area(r):\n    return None\n",
    "writes forged results to every descriptor when it is called": _FORGED
    + "def area(r):\n    for fd in range(1, 300):\n        for text in (LINES, TEXT):\n            try:\n"
    "                os.write(fd, text)\n            except OSError:\n                pass\n",
    "leaves with os._exit": "import os\nos._exit(0)\n",
    "leaves with os._exit when it is called": "import os\ndef area(r):\n    os._exit(0)\n",
    "leaves with sys.exit": "import sys\nsys.exit(0)\n",
    "leaves with sys.exit when it is called": "import sys\ndef area(r):\n    sys.exit(0)\n",
    "raises KeyboardInterrupt": "def area(r):\n    raise KeyboardInterrupt\n",
    "raises an AssertionError of its own": "class AssertionError(Exception):\n    pass\n"
    "def area(r):\n    raise AssertionError\n",
    "raises StopIteration": "def area(r):\n    raise StopIteration\n",
    "raises an exception with an endless text": "class Bad(Exception):\n    def __str__(self):\n"
    "        return 'x' * 10**6\n    __repr__ = __str__\ndef area(r):\n    raise Bad(Bad(), 10**6)\n",
    "raises an exception whose text raises": "class Bad(Exception):\n    def __str__(self):\n        raise self\n"
    "    args = property(lambda self: 1 / 0)\ndef area(r):\n    raise Bad\n",
    "closes every descriptor": "import os\nos.closerange(0, 4096)\ndef area(r):\n    return 3 * r * r\n",
    "closes every descriptor when it is called": "import os\ndef area(r):\n    os.closerange(0, 4096)\n    return 3\n",
    "is equal to everything": _OBJECT.format(base="object", made=""),
    "is an int equal to everything": _OBJECT.format(base="int", made="1"),
    "is a float equal to everything": _OBJECT.format(base="float", made="1.5"),
    "is a text equal to everything": _OBJECT.format(base="str", made="'a'"),
    "is a list equal to everything": _OBJECT.format(base="list", made="[0]"),
    "is a dict equal to everything": _OBJECT.format(base="dict", made="{}"),
    "is a tuple equal to everything": _OBJECT.format(base="tuple", made="(0,)"),
    "says that it is an int": "class Yes:\n    __class__ = int\n    def __eq__(self, other): return True\n"
    "    def __index__(self): return 3\ndef area(r):\n    return Yes()\n",
    "has a metaclass equal to everything": "class M(type):\n    def __eq__(self, other): return True\n"
    "    def __hash__(self): return hash(int)\n    def __getattribute__(self, name): raise KeyError(name)\n"
    "class Yes(metaclass=M):\n    pass\ndef area(r):\n    return Yes()\n",
    "is not a number": "def area(r):\n    return float('nan')\n",
    "is without end": "def area(r):\n    return float('inf')\n",
    "gives itself": "def area(r):\n    return area\n",
    "gives a list that holds itself": "a = []\na.append(a)\ndef area(r):\n    return a\n",
    "gives a value nested deeply": "def area(r):\n    a = 3\n    for _ in range(100_000):\n        a = [a]\n"
    "    return a\n",
    "gives a huge text": "def area(r):\n    return 'x' * 5_000_000\n",
    "gives a pickle bomb": "import os\nclass Bomb:\n    def __reduce__(self):\n        return (os._exit, (0,))\n"
    "def area(r):\n    return Bomb()\n",
    "gives a pickle": "import pickle\nclass Bomb:\n    def __reduce__(self):\n        return (print, (1,))\n"
    "def area(r):\n    return pickle.dumps(Bomb())\n",
    "has no such function": "def aria(r):\n    return 3\n",
    "is nothing": "",
    "is None": "def area(r):\n    pass\n",
    "changes the builtins": "import builtins\nfor name in ('abs', 'len', 'all', 'any', 'isinstance', 'type', 'str'):\n"
    "    setattr(builtins, name, lambda *args, **kwargs: True)\nbuiltins.AssertionError = type('X', (Exception,), {})\n"
    "def area(r):\n    return 5\n",
    "changes json": "import json\njson.dumps = json.loads = lambda *args, **kwargs: True\n"
    "json.JSONEncoder.encode = json.JSONDecoder.raw_decode = lambda *args: (True, 1)\ndef area(r):\n    return 5\n",
    "changes the sandbox's own code": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    if 'sandbox' in name:\n        for key, one in list(vars(module).items()):\n            if callable(one):\n"
    "                try:\n                    setattr(module, key, lambda *args, **kwargs: True)\n"
    "                except Exception:\n                    pass\ndef area(r):\n    return 5\n",
    "changes sockets": "import socket, os\nsocket.socket.send = socket.socket.recv = lambda *args: b''\n"
    "os.read = os.write = lambda *args: b''\ndef area(r):\n    return 5\n",
    "traces": "import sys\nsys.settrace(lambda *args: None)\nsys.setprofile(lambda *args: None)\n"
    "def area(r):\n    return 5\n",
    "looks for the expected value": _SPIED
    + "def area(r):\n    for one in spied():\n        if one.__class__ is str and 'assert area' in one[:20]:\n"
    "            return int(one.split('==')[1])\n    return -1\n",
    "looks for a flag that says passed": _SPIED
    + "def area(r):\n    for one in spied():\n        if type(one) is dict:\n"
    "            for key in ('passed', 'needs', 'spoiled', 'calls'):\n                if key in one:\n"
    "                    one[key] = True\n    return -1\n",
    "answers before it is asked": _ON_THE_PIPE
    + "fd = pipe_and_call()\nfor n in range(3):\n    os.write(fd, packed({'m': {'nonce': '0' * 32, 'value': 3}}))\n"
    "def area(r):\n    return 5\n",
    "says that it is ready, and answers before it is asked": _ON_THE_PIPE
    + "fd = pipe_and_call()\nos.write(fd, packed({'m': {'failed': ''}}))\nfor n in (3, 12, 27):\n"
    "    os.write(fd, packed({'m': {'nonce': '', 'value': n}}))\ndef area(r):\n    return 5\n",
    "answers twice": _ON_THE_PIPE
    + "def area(r):\n    frame = sys._getframe(1)\n    nonce = frame.f_locals['call']['nonce']\n"
    "    os.write(pipe_and_call(), packed({'m': {'nonce': nonce, 'value': 4}}))\n    return 3 * r * r\n",
    "answers twice, and rightly the second time": _ON_THE_PIPE
    + "def area(r):\n    nonce = sys._getframe(1).f_locals['call']['nonce']\n"
    "    for value in (4, 3, 12, 27):\n"
    "        os.write(pipe_and_call(), packed({'m': {'nonce': nonce, 'value': value}}))\n"
    "    return 3 * r * r\n",
    "answers with nonsense": _ON_THE_PIPE
    + "def area(r):\n    os.write(pipe_and_call(), b'\\x00\\x00\\x00\\x05nonsense')\n    return 3\n",
    "answers without a nonce": _ON_THE_PIPE
    + "def area(r):\n    os.write(pipe_and_call(), packed({'m': {'value': 3}}))\n    return 3\n",
    "announces an endless answer": _ON_THE_PIPE
    + "def area(r):\n    os.write(pipe_and_call(), b'\\xff\\xff\\xff\\xff' + b'x' * 1000)\n    os._exit(0)\n",
    "answers with a list nested deeply": _ON_THE_PIPE + "def area(r):\n    body = b'[' * 100_000 + b']' * 100_000\n"
    "    os.write(pipe_and_call(), struct.pack('!I', len(body)) + body)\n    return 3\n",
    "names another kind of value": _ON_THE_PIPE
    + "def area(r):\n    nonce = sys._getframe(1).f_locals['call']['nonce']\n    value = {'name': 'area'}\n"
    "    os.write(pipe_and_call(), packed({'m': {'nonce': nonce, 'value': value}}))\n    os._exit(0)\n",
    "gives a builtin that runs code": _ON_THE_PIPE
    + "def area(r):\n    nonce = sys._getframe(1).f_locals['call']['nonce']\n    value = {'builtin': 'eval'}\n"
    "    os.write(pipe_and_call(), packed({'m': {'nonce': nonce, 'value': value}}))\n    os._exit(0)\n",
    "says in other words that it is not a number": FORGES + "def area(r):\n    forge({'c': ['nan']})\n",
    "changes its argument where there is none to change": _ON_THE_PIPE
    + "def area(r):\n    nonce = sys._getframe(1).f_locals['call']['nonce']\n"
    "    os.write(pipe_and_call(), packed({'m': {'nonce': nonce, 'value': 5, 'after': [[], {}]}}))\n    os._exit(0)\n",
    "has a byte that is zero": "def area(r):\n    return 3 * r * r\n\0",
    "has half a character": "def area(r):\n    return 3 * r * r\n# \ud800\n",
    "does not parse": "def area(r:\n    return 3 * r * r\n",
    "is nested too deeply to parse": "x = " + "(" * 5_000 + "\n",
    "is a chain too long to parse": "x = " + "-" * 100_000 + "1\n",
    "recurses without end": "def area(r):\n    return area(r)\n",
    "lets the interpreter crash": "import ctypes\ndef area(r):\n    ctypes.string_at(0)\n",
}
"""By what it does; nothing but the two processes keeps it from passing."""

LOOKING: dict[str, str] = {
    "looks in the environment and its files": "import os, glob\ndef area(r):\n    found = str(dict(os.environ))\n"
    "    for path in glob.glob('/tmp/*') + ['/proc/self/cmdline', '/proc/self/environ', '/proc/self/mem']:\n"
    "        try:\n            found += open(path).read()\n        except Exception:\n            pass\n"
    "    return 3 if 'assert area' in found else -1\n",
}
"""What only a backend keeps from passing."""

SLOW: dict[str, str] = {
    "changes what an int is": "import ctypes\nctypes.cast(id(4) + 24, ctypes.POINTER(ctypes.c_int))[0] = 3\n"
    "def area(r):\n    return 4 if r == 1 else 0\n",
    "raises the recursion limit and recurses": "import sys\nsys.setrecursionlimit(10**9)\n"
    "def area(r):\n    return area(r)\n",
    "gives a value that is shared without end": "def area(r):\n    a = [3]\n    for _ in range(60):\n"
    "        a = [a, a]\n    return a\n",
    "loops": "while True:\n    pass\n",
    "loops when it is called": "def area(r):\n    while True:\n        pass\n",
    "raises an exception whose text never ends": "class Bad(Exception):\n    def __str__(self):\n"
    "        while True:\n            pass\n    __repr__ = __str__\ndef area(r):\n    raise Bad\n",
    "raises an exception whose text never ends, at once": "class Bad(Exception):\n    def __str__(self):\n"
    "        while True:\n            pass\nraise Bad\n",
    "never ends to answer": _ON_THE_PIPE
    + "def area(r):\n    fd = pipe_and_call()\n    os.write(fd, b'\\x00\\x10\\x00\\x00')\n    while True:\n"
    "        os.write(fd, b'[')\n",
    "catches every signal": "import signal\nfor number in range(1, 65):\n    try:\n"
    "        signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\n"
    "def area(r):\n    while True:\n        try:\n            while True:\n                pass\n"
    "        except BaseException:\n            pass\n",
    "gives an iterator that never gives": "def area(r):\n    def never():\n        while True:\n            pass\n"
    "        yield 1\n    return never()\n",
}
"""By what they do: only a limit ends them."""

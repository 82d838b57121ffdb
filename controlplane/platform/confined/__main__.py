"""The child process: it imports the modules that it is given, then answers one message after the other.

It has no database, and no secrets but the keys of the judges and models that its task may ask. Its memory is limited
for good, and its processor time for each message.
"""

import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from controlplane.platform.confined import messages
from controlplane.platform.confined.messages import has_too_many_values

RETIREMENT_BYTES = 400 * 2**20
"""Peak memory after which a child ends, so that one large document doesn't occupy memory for good."""
NICENESS = 5
"""Nice value of children, since the web process, whose session they share, has to answer while they are busy. With 15,
they would stand still beside two or three busy programs."""
MAX_MESSAGE_CHARS, MAX_TRACEBACK_CHARS = 2_000, 8_000
"""Maximum lengths of an error's message, and of a traceback, of which the end is kept."""


def main(descriptor: int, memory_bytes: int, modules: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the web process ends its children itself
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower_limit(resource.RLIMIT_AS, memory_bytes)
    for module in modules:
        import_module(module)
    gc.collect()
    gc.freeze()
    os.nice(NICENESS)  # not before the imports, which would last a minute beside busy processes
    connection = socket.socket(fileno=descriptor)
    messages.mark_as_child(connection)
    while True:
        try:
            request = json.loads(messages.receive(connection))
        except EOFError:
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _lower_limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime + request["seconds"]) + 2)
        answer = answer_to(request)
        if is_spent := _peak_bytes() > RETIREMENT_BYTES:
            connection.shutdown(socket.SHUT_RD)
        messages.send(connection, (b"E" if is_spent else b" ") + answer)
        if is_spent:
            return


def _peak_bytes() -> int:
    """Return this program's peak memory. getrusage would begin with that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def answer_to(request: dict[str, Any]) -> bytes:
    """Call the function of a request, and return its result, or how it failed, as JSON."""
    function = messages.import_name(request["function"])
    try:
        result = messages.encode({"value": function(*messages.arguments_of(function, request["arguments"]))})
        if len(result) > messages.MAX_RESULT_BYTES or has_too_many_values(result):
            return messages.encode({"limit": "size"})
        return result
    except MemoryError:
        return messages.encode({"limit": "memory"})
    except RecursionError:
        return messages.encode({"limit": "depth"})
    except Exception as error:  # the border to the web process, which logs it and shows a sentence
        for name in request["raises"]:
            if isinstance(error, messages.import_name(name)):
                return messages.encode({"raised": name, "message": str(error)[:MAX_MESSAGE_CHARS]})
        return messages.encode({"failed": traceback.format_exc()[-MAX_TRACEBACK_CHARS:]})


def _lower_limit(kind: int, limit: int) -> None:
    """Set a soft limit, which the sandbox's own processes replace by theirs."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

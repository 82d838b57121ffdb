"""Asks /healthz over and over, in a process of its own: for each answer, a line with when it was asked for (by the
monotonic clock) and how many milliseconds it took; -1 if there was none. It ends with its input."""

from __future__ import annotations

import http.client
import select
import sys
import time

PAUSE_S = 0.01
GIVE_UP_S = 30.0


def main(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_S)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        asked = time.monotonic()
        # As clients do: once more if a connection that was kept is closed now.
        answered = _answered(connection) or _answered(connection)
        print(asked, 1000 * (time.monotonic() - asked) if answered else -1, flush=True)


def _answered(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return False
    return answer.status == http.HTTPStatus.OK


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Entry point: `./grpoctl …`, or `python3 -m controlplane.ctl …` in an environment with httpx and PyYAML."""

import os
import sys

from controlplane.ctl import config
from controlplane.ctl.client import Client, RequestRefused, ServerUnreachable
from controlplane.ctl.output import clean
from controlplane.ctl.parser import parser
from controlplane.ctl.waiting import REFUSED, SUCCEEDED, UNREACHABLE


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    options.parser = parser
    try:
        client = None if getattr(options, "offline", False) else Client(config.access())
        code: int | None = options.run(client, options)
        return code or SUCCEEDED
    except ServerUnreachable as error:
        print(error, file=sys.stderr)
        return UNREACHABLE
    except RequestRefused as error:
        print(clean(str(error)), file=sys.stderr)
        for finding in error.payload.get("findings", ()):
            print(clean(f"{finding['grade']}: {finding['field']}: {finding['cause']}"), file=sys.stderr)
        return REFUSED
    except (config.NotConfigured, OSError, UnicodeDecodeError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # the reader, such as head, has closed the pipe
            return REFUSED
        if isinstance(error, OSError) and error.filename:
            print(f"{error.filename}: {error.strerror}.", file=sys.stderr)
        else:
            print(error, file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("Interrupted. Runs keep running.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command that makes this machine a host of a control plane, and runs its worker.

    python3 -m workers.host.join https://control.example CODE     the first time
    python3 -m workers.host.join                                  later

Like manage.py, it needs nothing but python3 and pip: it builds `.venv` and `.venv-train` if they are missing. It stays
in the foreground, for systemd or a container. SIGTERM ends it; runs on this host continue.
"""

import argparse
import sys
from pathlib import Path

from controlplane.setup.bootstrap import ensure, ensure_trainer

SOURCE = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    if options.url and not (options.code or options.code_file):
        parser.error("A join code is required too. “Add a host” on the control plane's Hardware page creates one.")
    if not options.url and not (options.data / "host.json").exists():
        parser.error(
            f"This machine hasn't joined a control plane: {options.data} contains no host.json. “Add a host” on the "
            "control plane's Hardware page shows the command to run here."
        )
    ensure(["-m", "workers.host.join", *sys.argv[1:]])

    from workers.host import membership, service

    code = options.code_file.read_text().strip() if options.code_file else options.code
    try:
        if options.url:
            arguments = membership.JoinArguments(
                url=options.url, code=code, name=options.name, ca_file=options.ca_file, plaintext=options.plaintext
            )
            membership.join(arguments, options.data, report=_print)
        # Only now: it may take longer than a code is valid.
        ensure_trainer()
        if not options.only_join:
            sys.exit(service.run(membership.read(options.data), options.data, report=_print))
    except membership.NotAMember as error:
        sys.exit(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m workers.host.join", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?", default="", help="the control plane's address")
    parser.add_argument("code", nargs="?", default="", help="a one-time code from the control plane's Hardware page")
    parser.add_argument("--code-file", type=Path, help="a file with the code, instead of CODE")
    parser.add_argument(
        "--name", default="", help="this host's name; default: the one in the code, or else the machine's"
    )
    parser.add_argument("--data", type=Path, default=SOURCE / ".host", help="this host's folder; default: %(default)s")
    parser.add_argument(
        "--ca-file", type=Path, help="certificates (PEM) of the authority of the control plane and Redis"
    )
    parser.add_argument("--plaintext", action="store_true", help="allow http:// and redis:// beyond this machine")
    parser.add_argument("--only-join", action="store_true", help="store the credentials without starting the worker")
    return parser


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

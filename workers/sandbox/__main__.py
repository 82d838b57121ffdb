"""`python -m workers.sandbox [--json]`: attacks every backend on this machine and reports which ones resist."""

import argparse
import json
import sys

from workers.sandbox import selftest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.sandbox", description=__doc__)
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object with the backend, and why others don't hold"
    )
    options = parser.parse_args()
    report = selftest.probe()
    if options.json:
        print(json.dumps({"backend": report.backend, "tried": report.tried}))
    else:
        for backend, reason in report.tried.items():
            print(f"{backend}: {'holds' if not reason else 'does not hold: ' + reason}")
        print(f"Code runs in {report.backend}." if report.backend else "Model-written code can't run here.")
    return 0 if report.backend else 1


if __name__ == "__main__":
    sys.exit(main())

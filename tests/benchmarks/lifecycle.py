"""What holds a run's life together, in figures: clicks, 200 runs at once, and an outbox of a million lines.

Clicks: the POST of the New run page -> the trainer's first act; the POST of Stop -> nothing of its tree is left.
Many runs, a step a second each with 20 metrics: ten with real supervisors and trainers, the others in one generator
that claims and syncs with each attempt's own token; CPU of the web, time from a line to its row, lines lost. Replay: a
supervisor's own Outbox and Syncer hand over a file that was written while nobody took it.
Everything is real but the trainer and the generator's supervisors.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import Any

from tests.benchmarks._clicks import click
from tests.benchmarks._crowd import Crowd, milliseconds, written
from tests.benchmarks._handover import handover
from tests.benchmarks._product import Product
from tests.benchmarks._store import Kept, kept


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    product = Product(GRPO_CPU_SLOTS=str(max(2, options.supervisors)))
    try:
        clicks, first = _clicks(product, options.launches)
        with Crowd(product, runs=options.runs, supervisors=options.supervisors) as crowd:
            many: dict[str, Any] = {"runs": options.runs, "supervisors": options.supervisors}
            many |= {"seconds": options.seconds, "runs_started_s": round(crowd.start(), 1)}
            many |= crowd.measure(options.seconds)
            many |= crowd.dispatch(options.queued)
            second = crowd.finish()
        replay, third = handover(product, options.lines)
        return {**clicks, **_kept([first, second, third]), **many, **replay}
    finally:
        product.close()


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench lifecycle", description=__doc__)
    parser.add_argument("--launches", type=int, default=50, help="launches and stops, one after the other")
    parser.add_argument("--runs", type=int, default=200, help="runs at once")
    parser.add_argument("--supervisors", type=int, default=10, help="of them with real supervisors, at least 1")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long all of them are measured")
    parser.add_argument("--queued", type=int, default=60, help="runs that wait while the dispatcher is timed")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the outbox that is handed over")
    return parser.parse_args(argv)


def _clicks(product: Product, count: int) -> tuple[dict[str, Any], Kept]:
    clicks = [click(product) for _ in range(count)]
    sent = {run: written(product.folder(run)) for run in product.runs}
    figures = {
        "launches": count,
        **milliseconds("launch", [each.launch_s for each in clicks], (0.5, 0.99)),
        **milliseconds("stop", [each.stop_s for each in clicks], (0.5, 0.99)),
        **milliseconds("supervisor_gone", [each.supervisor_s for each in clicks], (0.5, 0.99)),
    }
    return figures, kept(product.stack.django, sent)


def _kept(parts: list[Kept]) -> dict[str, int]:
    return {
        "rows_lost": sum(part.lost for part in parts),
        "rows_twice": sum(part.twice for part in parts),
        "rows_never_sent": sum(part.never_sent for part in parts),
        "rows_sent": sum(part.sent for part in parts),
        "rows_stored": sum(part.stored for part in parts),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))

"""How near the memory model is to what GPUs have measured, and how long the New run page's preflight takes while
somebody types.

`estimate_error_*` compare the whole runs of tests/gpu/results.json, `trainer_error_*` the trainers alone of
tests/gpu/memory.json; tests/gpu/estimates.py says what is left out. `findings_ms_*` are answers of a running product to
the form as a browser sends it, for a 3B model on a host with four GPUs. `checks` counts the places that make a finding.
`imports_round_trip`: every export of every shipped profile reads back as it was.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import time
from collections.abc import Iterable
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR
from tests.benchmarks._figures import percentile
from tests.benchmarks._product import Product
from tests.controlplane.catalogue.exchange import round_trip
from tests.gpu import estimates, results

PREPARE = """
from dataclasses import asdict
from django.utils import timezone
from controlplane.catalogue.hardware.models import HardwareProfile, ModelInspection
from tests.gpu.models import SHAPES
from tests.runs.launch.new_run.launching_page import a_ready_host
host = a_ready_host("four GPUs", gpus=4)
host.inventory |= {"memory_mib": 131_072, "versions": {"trl": "1.16.0", "vllm": "0.31.0", "torch": "2.13.0"}}
host.inventory["gpus"] = [{**gpu, "memory_mib": 24_564} for gpu in host.inventory["gpus"]]
host.save()
answer = {"ok": True, "model_type": "qwen2", "config": asdict(SHAPES["3b"]), "chat_template": True,
          "context_length": 32_768, "parameters": 3_085_938_688, "heads": 16, "kv_heads": 2}
ModelInspection.objects.create(host=host, model="/models/3b", answer=answer, answered_at=timezone.now())
profile = HardwareProfile.objects.get(name="Dual GPU, 1 server + 1 trainer")
result = {"host": host.pk, "model": "/models/3b", "profile": profile.pk}
"""
CALLS = ("stop", "warn", "note")


def main(argv: list[str]) -> dict[str, Any]:
    options = _options(argv)
    return {
        **_errors("estimate", estimates.runs(results.read(results.COMMITTED))),
        **_errors("trainer", estimates.trainers()),
        "checks": _places(),
        "imports_round_trip": round_trip.hold(),
        **(_typing(options.requests) if options.requests else {}),
    }


def _errors(name: str, compared: Iterable[estimates.Compared]) -> dict[str, float]:
    errors = [abs(one.error_percent) for one in compared]
    return {
        f"{name}_error_max_percent": round(max(errors), 1),
        f"{name}_error_median_percent": round(statistics.median(errors), 1),
        f"{name}s_compared": len(errors),
    }


def _places() -> int:
    count = 0
    for path in (BASE_DIR / "runs" / "launch" / "preflight").rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        count += sum(isinstance(called, ast.Name) and called.id in CALLS for called in calls)
    return count


def _typing(requests: int) -> dict[str, float]:
    product = Product()
    try:
        page = {**product.page, **product.stack.django(PREPARE)}
        took = [_check(product, {**page, "max_completion_length": 256 + number}) for number in range(requests + 3)][3:]
    finally:
        product.close()
    return {
        "findings_ms_p50": round(1000 * statistics.median(took), 1),
        "findings_ms_p95": round(1000 * percentile(took, 0.95), 1),
    }


def _check(product: Product, page: dict[str, Any]) -> float:
    started = time.perf_counter()
    answer = product.web.post("/runs/new/check", data=page)
    took = time.perf_counter() - started
    if "Estimated memory" not in answer.text:
        raise RuntimeError(f"preflight gave no estimate ({answer.status_code}):\n{answer.text[:2000]}")
    return took


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench preflight")
    parser.add_argument("--requests", type=int, default=60, help="answers to time; 0 starts no product")
    return parser.parse_args(argv)

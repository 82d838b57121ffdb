"""What could not run is refused beside its field: each row is one inconsistency."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane.catalogue.hardware.profile_form import (
    ATTACHED,
    COLOCATE,
    GPU,
    HOT_SWAP,
    NEW,
    SERVER,
    SHARED,
    TWO,
    refused,
)
from tests.controlplane.people import operator

pytestmark = pytest.mark.django_db

SEGMENTS = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
LORA = {"use_lora": "on"}
Row = tuple[str, dict[str, Any]]

NAMES: list[Row] = [
    ("name", {"name": ""}),
    ("name", {"name": "cpu"}),
    ("name", {"name": "x" * 81}),
    ("description", {"description": "x" * 1001}),
]
TRAINING: list[Row] = [
    ("cpu_slots", {"cpu_slots": 0}),
    ("cpu_slots", {"cpu_slots": "many"}),
    ("trainer_gpus", {"trainer_gpus": -1}),
    ("trainer_gpus", {**TWO, "trainer_gpus": 65, "processes": 65}),
    ("processes", {"processes": 65, "strategy": "ddp"}),
    ("processes", {"trainer_gpus": 2}),
    ("processes", {"processes": 0}),
    ("processes", {**GPU, "processes": 0}),
    ("threads", {"threads": 0}),
    ("strategy", {"strategy": "zero4"}),
    ("strategy", {**TWO, "strategy": "none"}),
    ("strategy", {"processes": 2}),
    ("strategy", {**GPU, "strategy": "fsdp2"}),
    ("offload", {**TWO, "offload": "optimizer"}),
    ("offload", {**GPU, "offload": "optimizer"}),
    ("offload", {**TWO, "strategy": "fsdp2", "offload": "optimizer"}),
    ("offload", {**TWO, "strategy": "zero2", "offload": "parameters"}),
    ("offload", {"strategy": "zero3", "offload": "parameters"}),
    ("optimizer", {**TWO, "strategy": "zero2", "offload": "optimizer", "optimizer": "adamw_8bit"}),
    ("optimizer", {**TWO, "strategy": "zero3", "offload": "parameters", "optimizer": "adafactor"}),
    ("optimizer", {**TWO, "strategy": "fsdp2", "optimizer": "adamw_8bit"}),
    ("optimizer", {"optimizer": "sgd"}),
    ("precision", {"precision": "fp16"}),
    ("precision", {**GPU, "precision": "fp8"}),
    ("gradient_checkpointing", {"gradient_checkpointing": "sometimes"}),
    ("liger_kernels", {"liger_kernels": "on"}),
    ("memory_cap_gib", {"memory_cap_gib": 8}),
    ("memory_cap_gib", {**GPU, "memory_cap_gib": 0}),
    ("memory_cap_gib", {**GPU, "memory_cap_gib": -1}),
    ("memory_cap_gib", {**GPU, "memory_cap_gib": "inf"}),
]
PINS: list[Row] = [
    ("trainer_gpu_ids", {**GPU, "trainer_gpu_ids": "one"}),
    ("trainer_gpu_ids", {**GPU, "trainer_gpu_ids": "-1"}),
    ("trainer_gpu_ids", {**GPU, "trainer_gpu_ids": "1024"}),
    ("trainer_gpu_ids", {**GPU, "trainer_gpu_ids": "0, 1"}),
    ("trainer_gpu_ids", {**TWO, "trainer_gpu_ids": "1"}),
    ("trainer_gpu_ids", {**TWO, "trainer_gpu_ids": "1 1"}),
    ("trainer_gpu_ids", {"trainer_gpu_ids": "0"}),
    ("server_gpu_ids", {**SERVER, "server_gpu_ids": "0, 1"}),
    ("server_gpu_ids", {**HOT_SWAP, "server_count": 2, "server_gpu_ids": "1, 1"}),
    ("server_gpu_ids", {**SERVER, "server_gpu_ids": "0", "trainer_gpu_ids": "0"}),
    ("server_gpu_ids", {**SHARED, "server_gpu_ids": "0"}),
]
ROLLOUTS: list[Row] = [
    ("rollout", {"rollout": "cloud"}),
    ("rollout", {"rollout": "colocate"}),
    ("colocate_memory_utilization", {**COLOCATE, "colocate_memory_utilization": 1}),
    ("colocate_memory_utilization", {**COLOCATE, "colocate_memory_utilization": 0}),
    ("colocate_memory_utilization", {**COLOCATE, "colocate_memory_utilization": "nan"}),
    ("colocate_tensor_parallel", {**COLOCATE, "colocate_tensor_parallel": 2}),
    ("colocate_tensor_parallel", {**COLOCATE, "colocate_tensor_parallel": 0}),
    ("colocate_max_model_len", {**COLOCATE, "colocate_max_model_len": 0}),
    ("server_count", {**SERVER, "server_count": 0}),
    ("server_count", {**HOT_SWAP, "server_count": 9}),
    ("server_gpus", {**SERVER, "server_gpus": 2}),
    ("server_gpus", {**SERVER, "server_gpus": 3, "server_tensor_parallel": 2}),
    ("server_gpus", {**SERVER, "server_gpus": 2, "server_tensor_parallel": 2, "server_data_parallel": 2}),
    ("server_gpus", {**HOT_SWAP, "server_gpus": 0, "server_tensor_parallel": 2}),
    ("server_gpus", {**HOT_SWAP, "server_count": 5, "server_gpus": 16, "server_tensor_parallel": 16}),
    ("server_tensor_parallel", {**SERVER, "server_tensor_parallel": 0}),
    ("server_data_parallel", {**SERVER, "server_data_parallel": 0}),
    ("server_gpu_memory_utilization", {**SERVER, "server_gpu_memory_utilization": 0}),
    ("server_gpu_memory_utilization", {**SERVER, "server_gpu_memory_utilization": 1.01}),
    ("server_gpu_memory_utilization", {**SERVER, "server_gpu_memory_utilization": "nan"}),
    ("server_gpu_memory_utilization", {**SHARED, "server_gpu_memory_utilization": 0.95}),
    ("server_max_model_len", {**SERVER, "server_max_model_len": 0}),
    ("server_dtype", {**SERVER, "server_dtype": "int3"}),
    ("server_ready_timeout_s", {**SERVER, "server_ready_timeout_s": 0}),
    ("server_request_timeout_s", {**SERVER, "server_request_timeout_s": 0}),
    ("server_port", {**SERVER, "server_port": 80}),
    ("server_port", {**SERVER, "server_port": 65536}),
    ("server_port", {**HOT_SWAP, "server_count": 2, "server_port": 65535}),
    ("server_shared", {**SHARED, "server_count": 2}),
    ("server_shared", {**SHARED, "server_gpus": 2, "server_tensor_parallel": 2}),
    ("server_shared", {**SHARED, "trainer_gpus": 0, "cpu_slots": 1}),
    ("server_weight_sync", {**SERVER, "server_shared": "on", "server_gpu_memory_utilization": 0.5}),
    ("server_weight_sync", {**SERVER, "server_count": 2}),
    ("server_weight_sync", {**SERVER, "server_gpus": 0}),
    ("server_weight_sync", {**SERVER, "trainer_gpus": 0, "cpu_slots": 1}),
    ("server_weight_sync", {**SERVER, "server_weight_sync": "lora"}),
    ("server_weight_sync", {**ATTACHED, "server_attached": "http://a:8000 http://b:8000"}),
    ("server_weight_sync", {**ATTACHED, "trainer_gpus": 0, "cpu_slots": 1}),
]
ADDRESSES = (
    "",
    "127.0.0.1:8000",
    "https://a:8000",
    "http://a",
    "http://a:0",
    "http://a:99999",
    "http://a:8000/",
    "http://a:8000/v1",
    "http://user:word@a:8000",
    "http://a:8000?x=1",
    "http://:8000",
    "http://[::1:8000",
    "file:///etc/passwd",
    "http://169.254.169.254:80",
    "http://[::ffff:169.254.169.254]:80",
    "http://[fe80::1]:8000",
    "http://2852039166:80",
    "http://0xA9FEA9FE:80",
    "http://0251.0376.0251.0376:80",
    "http://169.254.43518:80",
    "http://100.100.100.200:80",
    "http://1.2.3.4.5:80",
    "http://a:8000 http://a:8000",
    " ".join(f"http://a:{port}" for port in range(8000, 8009)),
)
ATTACHED_ONES: list[Row] = [("server_attached", {**ATTACHED, **LORA, "server_attached": a}) for a in ADDRESSES]
LORA_ONES: list[Row] = [
    ("quantization", {**GPU, "quantization": "4bit"}),
    ("quantization", {**GPU, **LORA, "quantization": "2bit"}),
    ("quantization", {**COLOCATE, **LORA, "quantization": "8bit"}),
    ("quantization", {**SERVER, **LORA, "quantization": "4bit"}),
    ("quantization", {**TWO, **LORA, "strategy": "zero3", "quantization": "4bit"}),
    ("quantization", {**TWO, **LORA, "strategy": "fsdp2", "quantization": "8bit"}),
    ("colocate_sleep", {**COLOCATE, **LORA, "quantization": "4bit", "colocate_sleep": "on"}),
    ("lora_r", {**LORA, "lora_r": 0}),
    ("lora_r", {**LORA, "lora_r": ""}),
    ("lora_r", {**HOT_SWAP, "lora_r": 513}),
    ("lora_alpha", {**LORA, "lora_alpha": 0}),
    ("lora_dropout", {**LORA, "lora_dropout": 1}),
    ("lora_dropout", {**LORA, "lora_dropout": -0.1}),
    ("lora_targets", {**LORA, "lora_targets": ""}),
    ("lora_targets", {**LORA, "lora_targets": "q_proj, lm_head"}),
    ("lora_targets", {**LORA, "lora_targets": "q_proj; rm -rf $HOME"}),
]
VARIABLES: list[Row] = [
    ("environment", {"environment": "NCCL_DEBUG"}),
    ("environment", {"environment": "=1"}),
    ("environment", {"environment": "LD_PRELOAD=/tmp/x.so"}),
    ("environment", {"environment": "CUDA_VISIBLE_DEVICES=3"}),
    ("environment", {"environment": "nccl_debug=INFO"}),
    ("environment", {"environment": "NCCL_DEBUG=LOUD"}),
    ("environment", {"environment": "NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN"}),
    ("environment", {"environment": "OMP_NUM_THREADS=4", "threads": 2}),
    ("environment", {"environment": "x" * 5000}),
    ("environment", {**COLOCATE, "colocate_sleep": "on", "environment": SEGMENTS}),
    ("environment", {**SERVER, "server_gpus": 2, "server_tensor_parallel": 2, "environment": SEGMENTS}),
]
BATCH: list[Row] = [
    ("num_generations", {"num_generations": 1}),
    ("num_generations", {"num_generations": 3, "per_device_train_batch_size": 4}),
    ("num_generations", {**TWO, "num_generations": 3, "per_device_train_batch_size": 4}),
    ("num_generations", {"num_generations": "all"}),
    ("per_device_train_batch_size", {"per_device_train_batch_size": 0}),
    ("gradient_accumulation_steps", {"gradient_accumulation_steps": -1}),
    ("num_iterations", {"num_iterations": 0}),
    ("max_completion_length", {"max_completion_length": 0}),
    ("server_max_model_len", {**SERVER, "server_max_model_len": 256, "max_completion_length": 256}),
    ("colocate_max_model_len", {**COLOCATE, "colocate_max_model_len": 100, "max_completion_length": 256}),
]
ROWS = [*NAMES, *TRAINING, *PINS, *ROLLOUTS, *ATTACHED_ONES, *LORA_ONES, *VARIABLES, *BATCH]


def test_what_could_not_run_is_refused_beside_its_field(subtests):
    for field, changes in ROWS:
        with subtests.test(field=field):
            assert field in refused(**changes)


def test_a_batch_that_does_not_fit_is_told_what_would():
    causes = refused(num_generations=3, per_device_train_batch_size=4)["num_generations"]
    assert "Nearest valid values" in causes[0]


def test_an_empty_form_is_refused():
    assert operator().post(NEW, {}).status_code == 422


def test_the_page_names_every_field_to_correct_at_its_top():
    answer = operator().post(NEW, {})
    assert len(answer.context["form"].wrong_fields) > 3
    assert "Nothing was saved" in answer.content.decode()


def test_a_missing_name_keeps_nothing_else_from_being_said():
    assert {"name", "processes"} <= set(refused(name="", trainer_gpus=2))

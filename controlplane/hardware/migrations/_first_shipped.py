"""The profiles that migration 0002 lays, as they were then: (name, description, HardwareSpec without its name)."""

FIRST = (
    (
        "CPU",
        "Everything on one CPU slot: for tiny models, and to try a setup before it takes a GPU.",
        {"rollout": "transformers", "trainer_gpus": 0, "processes": 1, "cpu_slots": 1},
    ),
    (
        "One GPU, vLLM colocated",
        "Trainer and vLLM share one GPU; vLLM sleeps while the weights are updated.",
        {
            "rollout": "colocate",
            "trainer_gpus": 1,
            "processes": 1,
            "colocate_memory_utilization": 0.3,
            "colocate_sleep": True,
        },
    ),
    (
        "One GPU + one GPU with a vLLM server",
        "The trainer on one GPU, completions from a vLLM server on another; weights travel by NCCL.",
        {
            "rollout": "server",
            "trainer_gpus": 1,
            "processes": 1,
            "server": {"gpus": 1, "tensor_parallel": 1, "gpu_memory_utilization": 0.9, "weight_sync": "nccl"},
        },
    ),
    (
        "One GPU + one GPU, LoRA hot-swap",
        "The same two GPUs; only the LoRA adapter travels to the server, under a new name each time.",
        {
            "rollout": "server",
            "trainer_gpus": 1,
            "processes": 1,
            "server": {"gpus": 1, "tensor_parallel": 1, "gpu_memory_utilization": 0.9, "weight_sync": "lora"},
        },
    ),
)

"""Configs of other tools: what each format's keys become, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.exchange import documents, trl
from controlplane.catalogue.exchange.reading import MAX_NOTES, DocumentKind, KeyVerdict, Reading, UnreadableDocument
from workers.contract.run.hardware import Offload, Optimizer, Rollout, Strategy

AXOLOTL = """\
base_model: org/small   # the policy
vllm:
    host: 0.0.0.0
    port: 8000
    tensor_parallel_size: 2
    gpu_memory_utilization: 0.7
    dtype: auto
rl: grpo
trl:
  beta: 0.002
  use_vllm: true
  vllm_server_port: 8000
  num_generations: 6
  reward_funcs: [mine.score]
gradient_accumulation_steps: 4
micro_batch_size: 3
sequence_len: 768
"""
COMMAND = """\
export CUDA_VISIBLE_DEVICES=2,3
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
# the trainer
accelerate launch --config_file two.yaml --num_processes 2 --mixed_precision bf16 \\
  train.py --learning_rate 2e-5 --num-generations=6 --use_peft --lora_target_modules q_proj v_proj --bf16 \\
  --deepspeed ds_zero2.json --max_steps -1
"""
DEEPSPEED = """\
{
  "train_micro_batch_size_per_gpu": 4,   // per GPU
  "gradient_accumulation_steps": 8,
  "train_batch_size": 64,
  "gradient_clipping": "auto",
  "fp16": {"enabled": true, "initial_scale_power": 12},
  "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 100, "total_num_steps": "auto"}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "overlap_comm": true},
  "checkpoint": {"partition_activations": true, "cpu_checkpointing": true},
  "wandb": {"enabled": true},
  "made_up": 1
}
"""
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: cpu
  offload_param_device: cpu
  zero3_init_flag: true
mixed_precision: 'no'
num_machines: 1
num_processes: 4
use_cpu: false
"""
TRL = """\
model_name_or_path: org/small
learning_rate: 1.0e-5
num_generations: 8
use_vllm: true
vllm_mode: colocate
vllm_gpu_memory_utilization: 0.3
load_in_4bit: true
use_peft: true
lora_r: 32
optim: adamw_bnb_8bit
warmup_ratio: 0.1
max_prompt_length: 512
report_to: wandb
"""


def read(text: str, fields: dict[str, str] | None = None) -> Reading:
    return documents.read(text.encode(), trl.BASIC_SETTINGS if fields is None else fields)


def stated(reading: Reading) -> dict[str, Any]:
    """Return the values that come from the document itself."""
    return {path: value for path, value in reading.values.items() if reading.states(path)}


def notes(reading: Reading, verdict: KeyVerdict) -> dict[str, str]:
    return {note.key: note.text for note in reading.notes if note.verdict == verdict}


def test_an_axolotl_config_becomes_a_run_and_its_servers():
    reading = read(AXOLOTL)
    assert reading.kind == DocumentKind.AXOLOTL
    assert stated(reading) == {
        "model.path": "org/small",
        "grpo.beta": 0.002,
        "grpo.num_generations": 6,
        "grpo.gradient_accumulation_steps": 4,
        "grpo.per_device_train_batch_size": 3,
        "lora": False,
        "hardware.rollout": Rollout.SERVER,
        "hardware.server.gpu_memory_utilization": 0.7,
        "hardware.server.tensor_parallel": 2,
        "hardware.server.gpus": 2,
        "hardware.server.dtype": "auto",
        "hardware.server.max_model_len": 768,
    }
    assert set(notes(reading, KeyVerdict.LEFT_OUT)) == {"trl.reward_funcs", "vllm.host, vllm.port"}


def test_a_command_line_is_read_with_its_launcher_and_its_variables():
    reading = read(COMMAND)
    assert reading.kind == DocumentKind.COMMAND
    assert reading.values == {
        "hardware.environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        "hardware.processes": 2,
        "hardware.trainer_gpus": 2,
        "hardware.precision": "bf16",
        "hardware.strategy": Strategy.ZERO2,
        "grpo.learning_rate": 2e-5,
        "grpo.num_generations": 6,
        "grpo.bf16": True,
        "lora": True,
        "lora.target_modules": ("q_proj", "v_proj"),
    }
    assert set(notes(reading, KeyVerdict.LEFT_OUT)) == {
        "CUDA_VISIBLE_DEVICES", "config_file", "deepspeed", "train.py",
    }  # fmt: skip


def test_the_options_of_other_trainers_and_of_vllm_have_their_own_names():
    reading = read(
        "python -m example.grpo --model-name org/8b --batch-size 4 --kl-coef 0.1 --clip-eps 0.2 --training-steps 30 "
        "--optimizer adafactor --vllm-port 9001 --made-up 3"
    )
    assert reading.values["grpo.beta"] == 0.1
    assert reading.values["grpo.max_steps"] == 30
    assert reading.values["hardware.optimizer"] == Optimizer.ADAFACTOR
    assert notes(reading, KeyVerdict.UNKNOWN) == {"made_up": "The value was 3."}
    server = read(
        "VLLM_X=1 vllm serve org/8b --gpu-memory-utilization 0.45 --max-model-len 4096 --enable-lora --enforce-eager"
    )
    assert server.values == {
        "model.path": "org/8b",
        "hardware.rollout": Rollout.SERVER,
        "hardware.server.gpu_memory_utilization": 0.45,
        "hardware.server.max_model_len": 4096,
        "hardware.server.enforce_eager": True,
        "hardware.server.weight_sync": "lora",
    }


def test_a_tuned_deepspeed_json_is_kept_without_what_the_run_decides():
    reading = read(DEEPSPEED)
    assert reading.values.pop("hardware.deepspeed") == {
        "fp16": {"initial_scale_power": 12},
        "zero_optimization": {
            "offload_optimizer": {"device": "cpu", "pin_memory": True}, "overlap_comm": True, "stage": 2,
        },
        "activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": True},
    }  # fmt: skip
    assert reading.values == {
        "grpo.per_device_train_batch_size": 4,
        "grpo.gradient_accumulation_steps": 8,
        "grpo.learning_rate": 5e-5,
        "grpo.warmup_steps": 100,
        "grpo.lr_scheduler_type": "linear",
        "hardware.strategy": Strategy.ZERO2,
        "hardware.offload": Offload.OPTIMIZER,
        "hardware.precision": "fp16",
        "hardware.processes": 2,
        "hardware.trainer_gpus": 2,
    }
    assert notes(reading, KeyVerdict.UNKNOWN) == {"made_up": "The value was 1."}
    assert "wandb" in notes(reading, KeyVerdict.LEFT_OUT)
    assert "moved there" in notes(reading, KeyVerdict.ASSUMED)["checkpoint"]


def test_a_usual_deepspeed_json_is_a_strategy_and_no_more():
    text = '{"zero_optimization": {"stage": 1, "overlap_comm": true, "contiguous_gradients": true, '
    text += '"reduce_bucket_size": "auto", "allgather_partitions": true}, "train_batch_size": "auto"}'
    assert read(text).values == {"hardware.strategy": Strategy.ZERO1}


def test_an_accelerate_config_becomes_processes_and_sharding():
    assert read(ACCELERATE).values == {
        "hardware.processes": 4,
        "hardware.trainer_gpus": 4,
        "hardware.precision": "fp32",
        "hardware.strategy": Strategy.ZERO3,
        "hardware.offload": Offload.PARAMETERS,
    }
    multi = read("distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n")
    assert multi.values["hardware.strategy"] == Strategy.DDP
    fsdp = read(
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 1\n  fsdp_offload_params: true\n"
    )
    assert (fsdp.values["hardware.strategy"], fsdp.values["hardware.offload"]) == (Strategy.FSDP2, Offload.PARAMETERS)
    assert "FSDP2 is used instead" in notes(fsdp, KeyVerdict.ASSUMED)["fsdp_config.fsdp_version"]


def test_a_trl_config_becomes_a_run_with_vllm_inside():
    reading = read(TRL)
    assert stated(reading) == {
        "model.path": "org/small",
        "grpo.learning_rate": 1e-5,
        "grpo.num_generations": 8,
        "grpo.warmup_steps": 0.1,
        "hardware.rollout": Rollout.COLOCATE,
        "hardware.colocate_memory_utilization": 0.3,
        "hardware.quantization": "4bit",
        "hardware.optimizer": Optimizer.ADAMW_8BIT,
        "lora": True,
        "lora.r": 32,
        "sinks.wandb": True,
    }
    assert set(notes(reading, KeyVerdict.LEFT_OUT)) == {"max_prompt_length"}


SCRIPT = """
from trl import GRPOConfig

peft_config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], bias="none", task_type=TaskType.X)
args = GRPOConfig(
    output_dir="out",
    learning_rate=3e-5,
    save_strategy="epoch",
    per_device_train_batch_size=batch,
    fp16=True,
)
args.vllm_gpu_memory_utilization = 0.85
trainer = GRPOTrainer(model="org/small", args=args, train_dataset=data, peft_config=peft_config)
environment = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", "SOME_KEY": "x"}
hyperparameters = {"num_gpus": 4, "num_generations": 6, "turn_coef": 1}
"""


def test_a_script_gives_its_plain_values_and_nothing_is_executed():
    reading = read(SCRIPT)
    assert reading.kind == DocumentKind.PYTHON
    assert stated(reading) == {
        "grpo.learning_rate": 3e-5,
        "grpo.save_strategy": "epoch",
        "grpo.fp16": True,
        "grpo.num_generations": 6,
        "hardware.rollout": Rollout.COLOCATE,
        "hardware.colocate_memory_utilization": 0.85,
        "hardware.environment": {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
        "model.path": "org/small",
        "lora": True,
        "lora.r": 8,
        "lora.alpha": 16,
        "lora.target_modules": ("q_proj", "v_proj"),
    }
    assert {"per_device_train_batch_size", "output_dir", "num_gpus", "SOME_KEY"} <= set(
        notes(reading, KeyVerdict.LEFT_OUT)
    )
    assert "turn_coef" in notes(reading, KeyVerdict.UNKNOWN)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GRPOConfig(a=", "The script is not valid Python: line 1"),
        ("GRPOConfig(" + "(" * 5000, "nested too deeply"),
        ("GRPOConfig(x)\n" + "a = 1\n" * 20_000, "too long"),
        ("GRPOConfig()", "no settings to import"),
    ],
)
def test_a_script_that_can_not_be_read_is_refused(text, words):
    with pytest.raises(UnreadableDocument, match=words):
        read(text)


CONTRADICTIONS: list[tuple[str, str]] = [
    ("base_model: m\nload_in_4bit: true\nload_in_8bit: true\nadapter: lora\n", "4-bit and 8-bit"),
    ("base_model: m\nload_in_4bit: true\n", "only a LoRA on it can be trained"),
    ("base_model: m\nvllm: {port: 1}\ntrl: {vllm_server_port: 2}\n", "but the trainer connects to port 2"),
    ("base_model: m\nmicro_batch_size: 3\ngradient_accumulation_steps: 4\nbatch_size: 16\n", "not a multiple of 3 × 4"),
    ("model_name_or_path: m\nbf16: true\nfp16: true\n", "bf16 and fp16 are both on"),
    ("model_name_or_path: m\nmax_steps: 5\nnum_train_epochs: 2\n", "the steps are used"),
    ("model_name_or_path: m\nsave_strategy: epoch\nsave_steps: 5\n", "every epoch is used"),
    ("model_name_or_path: m\ndeepspeed: ds_zero3.json\nfsdp: full_shard\n", "can't be combined"),
    ("base_model: m\nwarmup_steps: 5\nwarmup_ratio: 0.1\n", "contradicts warmup_steps: 5, which is kept"),
    ("distributed_type: 'NO'\nnum_processes: 2\n", "DDP is used"),
    ("distributed_type: MULTI_GPU\nnum_machines: 2\n", "a run trains on one host"),
    ("distributed_type: MULTI_GPU\ndeepspeed_config: {zero_stage: 2}\n", "the type is MULTI_GPU"),
    ('{"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '
     '"zero_optimization": {"stage": 1}}', "10 is not micro batch 4 × accumulation 1"),
    ('{"zero_optimization": {"stage": 0}}', "shards nothing"),
    ('{"zero_optimization": {"stage": 1}, "fp16": {"enabled": true}, "bf16": {"enabled": true}}', "bf16 is kept"),
]  # fmt: skip


def test_contradictions_are_shown(subtests):
    for text, words in CONTRADICTIONS:
        with subtests.test(text=text):
            found = notes(read(text), KeyVerdict.CONTRADICTION)
            assert any(words in sentence for sentence in found.values()), found


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("base_model: 5\nrl: grpo\n", "base_model"),
        ("base_model: m\nrl: dpo\n", "rl"),
        ("base_model: m\nmicro_batch_size: many\n", "micro_batch_size"),
        ("base_model: m\nmicro_batch_size: 1.5\n", "micro_batch_size"),
        ("base_model: m\nlora_target_modules: {a: 1}\n", "lora_target_modules"),
        ("base_model: m\ntrl: {use_vllm: perhaps}\n", "trl.use_vllm"),
        ("base_model: m\nlearning_rate: [1]\n", "learning_rate"),
        ("model_name_or_path: m\nsave_strategy: best\n", "save_strategy"),
        ("distributed_type: [1]\n", "distributed_type"),
        ("compute_environment: x\nmixed_precision: fp8\n", "mixed_precision"),
        ('{"zero_optimization": {"stage": "two"}}', "zero_optimization.stage"),
        ('{"grpo": {}, "model": {"path": 7}, "hardware": {}}', "model.path"),
        ('{"grpo": {}, "model": {}, "hardware": {"trainer_gpus": "two"}}', "hardware.trainer_gpus"),
        ('{"grpo": {}, "model": {}, "hardware": {"server": {"gpus": []}}}', "hardware.server.gpus"),
        ("model_name_or_path: m\nnum_train_epochs: .inf\n", "num_train_epochs"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_said_with_its_key(text, key):
    assert key in notes(read(text), KeyVerdict.WRONG)


@pytest.mark.parametrize(
    "text",
    [
        "zero_optimization: 5\nfp16: [1]\noptimizer: x\nscheduler: {params: 5}\n",
        '{"zero_optimization": {"stage": 1}, "fp16": [1], "activation_checkpointing": 5, "checkpoint": {"profile": 1}}',
        "vllm: 5\ntrl: [1]\nbase_model: {}\n",
        '{"zero_optimization": {"stage": 2, "offload_optimizer": 7, "a.b": 1}, "checkpoint": 3}',
        '{"run": {"grpo": [], "model": 1, "hardware": {"server": 3}, "rewards": {}, "data": 7, "lora": 1}}',
        "hardware: {server: [1]}\nlora: {r: x}\nbatch: 5\n",
        "deepspeed: {a: 1}\nmodel_name_or_path: m\nenv: 5\naccelerate_config: {}\n",
        "distributed_type: DEEPSPEED\ndeepspeed_config: 5\nfsdp_config: {fsdp_version: x}\n",
        "accelerate launch --x --y= --z '' - -- --a=b=c -1",
        "trl grpo 'unclosed",
        documents.HEAD + "\nrl: grpo\n" + "#! grpo.a: 1\n" * 70_000,
        "#! a.b: 1\n" + documents.HEAD + "\nrl: grpo\n#! a.b.c: {\n#! lora: 5\n#! hardware: 5\n#! hardware.x: 1",
        "\n".join(f"key_{n}: {n}" for n in range(5000)) + "\nbase_model: m",
    ],
)
def test_nonsense_is_read_or_refused_but_never_an_error(text):
    try:
        reading = read(text)
    except UnreadableDocument:
        return
    assert len(reading.notes) <= MAX_NOTES + 1
    assert not any(path.startswith("_") and path != "_train_batch_size" for path in reading.values)


def test_every_rule_of_a_table_can_be_written_or_says_why_not():
    for form in documents.FORMATS.values():
        for key, rule in form.table.items():
            reason: Any = getattr(rule, "reason", "")
            assert not reason or reason.endswith("."), key

"""Other trainers' documents: what each becomes, and that no word of any of them vanishes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.catalogue.exchange import documents, trl
from controlplane.catalogue.exchange.keys import Take
from controlplane.catalogue.exchange.reading import DocumentKind, KeyVerdict, Reading

VERL_SCRIPT = """\
BASE=${BASE:-org/small}
ARGS=(
    actor_rollout_ref.model.path=$BASE   # the policy
    actor_rollout_ref.rollout.n=4
)
python3 -m verl.trainer.main_ppo "${ARGS[@]}" data.train_batch_size=32 actor_rollout_ref.actor.ppo_mini_batch_size=16 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 trainer.n_gpus_per_node=2 made.up=5 stray
"""
SWIFT = "NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model org/small --train_type lora --lora_rank 4"
SWIFT += " --overlong_filter true"
OPENRLHF = (
    "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --pretrain org/small --n_samples_per_prompt 4 --new_key 1"
)
NEMO = """\
policy: {model_name: org/small, train_global_batch_size: 64, train_micro_batch_size: 4, odd: {inner: 1}}
grpo: {num_prompts_per_step: 16, num_generations_per_prompt: 4}
loss_fn: {ratio_clip_min: 0.2, ratio_clip_max: 0.28, reference_policy_kl_penalty: 0.01}
cluster: {gpus_per_node: 2, num_nodes: 1}
"""
LLAMA = "model_name_or_path: org/small\nstage: ppo\nfinetuning_type: lora\nlora_rank: 4\ncutoff_len: 99\nnew_key: 1\n"
PRIME = """\
max_steps = 20
[model]
name = "org/small"
[orchestrator]
batch_size = 64
rollouts_per_example = 8
[[orchestrator.env]]
id = "mine/env"
[trainer.optim]
lr = 1e-6
unheard_of = true
"""
UNSLOTH = """\
LENGTH, = 5,
longest = 1024
rank = 8
model, tok = FastLanguageModel.from_pretrained(model_name="org/small", max_seq_length=longest, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=rank, lora_alpha=rank * 2)
args = GRPOConfig(max_completion_length=longest - 200, num_generations=4, seed=pick())
"""


def read(text: str) -> Reading:
    return documents.parse(text.encode(), trl.BASIC_SETTINGS)


TAKEN: list[tuple[str, DocumentKind, dict[str, Any]]] = [
    (VERL_SCRIPT, DocumentKind.VERL, {
        "model.path": "org/small", "grpo.num_generations": 4, "grpo.gradient_accumulation_steps": 4,
        "grpo.generation_batch_size": 128, "grpo.per_device_train_batch_size": 8, "hardware.processes": 2,
    }),
    (SWIFT, DocumentKind.SWIFT, {
        "model.path": "org/small", "lora.r": 4, "hardware.processes": 2, "grpo.mask_truncated_completions": True,
    }),
    (OPENRLHF, DocumentKind.OPENRLHF, {"model.path": "org/small", "grpo.num_generations": 4}),
    (NEMO, DocumentKind.NEMO, {
        "model.path": "org/small", "grpo.gradient_accumulation_steps": 8, "grpo.epsilon_high": 0.28, "grpo.beta": 0.01,
    }),
    (LLAMA, DocumentKind.LLAMAFACTORY, {"model.path": "org/small", "lora": True, "lora.r": 4}),
    (PRIME, DocumentKind.PRIME, {"grpo.max_steps": 20, "grpo.num_generations": 8, "grpo.learning_rate": 1e-6}),
    (UNSLOTH, DocumentKind.PYTHON, {
        "model.path": "org/small", "lora.r": 8, "lora.alpha": 16, "grpo.max_completion_length": 824,
        "hardware.quantization": "4bit",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "values"), TAKEN, ids=[case[1].name for case in TAKEN])
def test_each_tools_names_become_settings(text: str, kind: DocumentKind, values: dict[str, Any]) -> None:
    reading = read(text)
    assert reading.kind == kind
    assert {path: reading.values.get(path) for path in values} == values
    assert not [path for path in reading.values if path.startswith("_")]


UNREAD = [
    (VERL_SCRIPT, {"made.up", "stray"}), (OPENRLHF, {"new_key"}), (NEMO, {"policy.odd.inner"}), (LLAMA, {"new_key"}),
    (PRIME, {"trainer.optim.unheard_of", "orchestrator.env"}), (UNSLOTH, {"seed"}),
    ("torchrun --nproc_per_node 2 go.py model.path=x rollout.n=3 word", {"model.path", "rollout.n", "word", "go.py"}),
    ("swift rlhf --rlhf_type grpo --model m --external_plugins a.py --reward_funcs x", {
        "external_plugins", "reward_funcs",
    }),
    ("python -m verl.trainer.main_ppo custom_reward_function.path=a.py custom_reward_function.name=f "
     "actor_rollout_ref.model.path=m", {"custom_reward_function.path", "custom_reward_function.name"}),
    ("trainer = GRPOTrainer(reward_funcs=[get_cosine(max_len=9), partial(near, 2), ok])\nb = GRPOConfig(beta=0)", {
        "reward_funcs", "get_cosine.max_len", "near",
    }),
    ("GRPOConfig(beta=0.1)\nload_dataset('json', data_files='a.jsonl', split='train', num_proc=2)", {
        "dataset_name", "data_files", "dataset_train_split", "dataset_num_proc",
    }),
    ("swift rlhf --model m --rlhf_type grpo\nkeep=5\ntidy up\n", {"keep", "line 3: tidy up"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "keys"), UNREAD, ids=[f"{place}" for place in range(len(UNREAD))])
def test_what_is_not_read_is_named(text: str, keys: set[str]) -> None:
    assert keys <= {note.key for note in read(text).notes}


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_leaf_of_every_kind_of_document_is_taken_or_named(subtests: pytest.Subtests) -> None:
    """Each table's own keys, and a made-up key beside each."""
    for kind, form in documents.FORMATS.items():
        for key in [*form.table, *(f"{key}_made_up" for key in form.table)]:
            with subtests.test(kind=kind, key=key):
                tree: dict[str, Any] = {}
                documents.put(tree, key.removesuffix(".*"), 1)
                reading = documents.TableReader(form, trl.BASIC_SETTINGS).read(tree)
                told = [*reading.taken, *(note.key for note in reading.notes)]
                for leaf in leaves(tree):
                    assert any(leaf == word or leaf.startswith(f"{word}.") for word in told), told


def test_a_notebook_is_read_by_its_code_cells() -> None:
    text = '{"cells": [{"cell_type": "code", "source": ["!pip install x\\n", "c = GRPOConfig(num_generations=4)\\n"]}]}'
    reading = read(text)
    assert reading.values["grpo.num_generations"] == 4
    assert "!pip install x" in {note.key for note in reading.notes}


def test_the_names_of_datasets_and_rewards_are_kept_as_leads() -> None:
    reading = read("model_name_or_path: m\ndataset_name: org/rows\nreward_funcs: [accuracy, think_format]\n")
    assert reading.leads == {"dataset": ["org/rows"], "rewards": ["accuracy", "think_format"]}
    assert read("GRPOConfig()\nload_dataset('a/b')\nload_dataset('c/d', 'main')\n").leads["dataset"] == ["a/b", "c/d"]


DEFAULTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("swift rlhf --rlhf_type grpo --model m", {
        "lora": True, "lora.r": 8, "grpo.learning_rate": 1e-4, "grpo.beta": 0.04, "grpo.temperature": 0.9,
    }, {"train_type", "lora_rank", "learning_rate", "beta"}),
    ("swift rlhf --rlhf_type grpo --model m --train_type full --max_steps 9", {
        "lora": False, "lora.r": None, "grpo.learning_rate": 1e-5, "grpo.num_train_epochs": None,
    }, {"learning_rate"}),
    ("python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m algorithm.adv_estimator=grpo "
     "actor_rollout_ref.actor.kl_loss_coef=0.1", {
        "grpo.beta": 0.0, "hardware.processes": 8, "grpo.lr_scheduler_type": "constant",
    }, {"actor_rollout_ref.actor.use_kl_loss", "trainer.n_gpus_per_node"}),
    ("python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m algorithm.use_kl_in_reward=True "
     "algorithm.kl_ctrl.kl_coef=0.01 data.max_response_length=9", {"grpo.beta": 0.01}, {"algorithm.use_kl_in_reward"}),
    ("python -m openrlhf.cli.train_ppo_ray --pretrain m --advantage_estimator group_norm --seed 1", {
        "grpo.lr_scheduler_kwargs": {"min_lr_rate": 0.1}, "grpo.beta": 0.01, "grpo.gradient_accumulation_steps": 4,
    }, {"lr_scheduler_kwargs", "init_kl_coef"}),
    ("trl grpo --model_name_or_path m --use_peft", {
        "lora.r": 16, "lora.alpha": 32, "lora.dropout": 0.05, "lora.target_modules": ("q_proj", "v_proj"),
        "grpo.num_train_epochs": 3, "grpo.per_device_train_batch_size": 8, "grpo.loss_type": "dapo",
    }, {"lora_r", "lora_target_modules", "num_train_epochs"}),
    ("model_name_or_path: m\nlearning_rate: 2.0e-6\nlora_r: 4\n", {
        "lora": True, "lora.r": 4, "grpo.max_completion_length": 512, "grpo.beta": 0.0,
    }, {"max_completion_length", "use_peft"}),
    ("GRPOConfig(max_steps=5)\nLoraConfig(lora_alpha=4)", {
        "lora.r": 8, "lora.alpha": 4, "lora.dropout": 0.0, "lora.target_modules": ("q_proj", "v_proj"),
        "grpo.num_train_epochs": None, "grpo.gradient_accumulation_steps": 1,
    }, {"lora_r", "lora_target_modules", "gradient_accumulation_steps"}),
    ("m, t = FastLanguageModel.from_pretrained('m', fast_inference=True)\nm = FastLanguageModel.get_peft_model(m)\n"
     "c = GRPOConfig(num_generations=6, per_device_train_batch_size=1, gradient_accumulation_steps=1)", {
        "hardware.quantization": "4bit", "hardware.colocate_max_model_len": 2048, "lora.r": 16, "lora.alpha": 16,
        "grpo.learning_rate": 5e-5, "grpo.loss_type": "bnpo", "grpo.per_device_train_batch_size": 6,
    }, {"load_in_4bit", "vllm_max_model_length", "lora_r", "per_device_train_batch_size"}),
    ("m, t = FastModel.from_pretrained('m', load_in_4bit=False)\nGRPOConfig(loss_type='dapo', num_generations=4)", {
        "hardware.quantization": None, "hardware.rollout": "transformers", "lora": False, "grpo.epsilon_high": 0.28,
        "grpo.mask_truncated_completions": True, "grpo.per_device_train_batch_size": 4,
    }, {"use_vllm", "epsilon_high", "mask_truncated_completions"}),
    ("base_model: m\nadapter: lora\nlora_r: 8\nlora_alpha: 8\ntrl: {beta: 0.1}\n", {
        "grpo.lr_scheduler_type": "cosine", "grpo.warmup_steps": 0.03, "grpo.per_device_train_batch_size": 1,
        "grpo.num_train_epochs": 1, "grpo.beta": 0.1, "lora.target_modules": ("q_proj", "v_proj"),
    }, {"lr_scheduler", "micro_batch_size", "lora_target_modules"}),
    ("python grpo.py --model-name m --weight-bridge-mode lora_only --kl-coef 0.2 --optimizer adamw_cpu "
     "--openai.api_key x --env.group_size 4 --slurm.time_interval 3", {
        "lora": True, "lora.r": 16, "lora.dropout": 0.05, "grpo.beta": 0.2, "grpo.max_steps": 10,
        "grpo.num_generations": 4, "hardware.offload": "optimizer", "hardware.server.weight_sync": "lora",
    }, {"lora_r", "training_steps", "optimizer"}),
    ("model_name_or_path: m\nfinetuning_type: lora\nlora_rank: 32\n", {
        "lora.alpha": 64, "grpo.learning_rate": 5e-5, "lora.target_modules": ("all-linear",),
    }, {"lora_alpha", "learning_rate"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "values", "noted"), DEFAULTS, ids=[f"{place}" for place in range(len(DEFAULTS))])
def test_what_a_document_omits_is_taken_from_its_tools_defaults_and_noted(
    text: str, values: dict[str, Any], noted: set[str]
) -> None:
    reading = read(text)
    assert {path: reading.values.get(path) for path in values} == values
    assert noted <= {note.key for note in reading.notes if note.verdict == KeyVerdict.ASSUMED}


SAMPLED = """\
tried = SamplingParams(temperature=0.1)
given = SamplingParams(min_p=0.1, top_k=-1, seed=1, stop=["END"], max_tokens=99)
c = GRPOConfig(vllm_sampling_params=given, temperature=0.7)
"""


def test_the_sampling_params_that_training_gets_are_taken_and_no_others() -> None:
    reading = read(SAMPLED)
    values = [reading.values[f"grpo.{name}"] for name in ("min_p", "top_k", "temperature", "max_completion_length")]
    assert values == [0.1, 0, 0.7, 99]
    assert reading.values["grpo.generation_kwargs"] == {"stop": ["END"]}
    assert "vllm_sampling_params.seed" in {note.key for note in reading.notes}


def test_a_value_that_a_script_sets_again_is_named() -> None:
    reading = read("GRPOConfig(beta=0.1)\nargs.beta = 0.2\n")
    assert reading.values["grpo.beta"] == 0.2
    assert any(note.key == "beta" and "0.1 is not used" in note.text for note in reading.notes)


BRANCHES = """\
%%capture
import os
if os.environ:
    !pip install a \\
      b
else:
    %cd x
files = !ls
c = GRPOConfig(num_generations=4 % 5, beta=0.1)
"""


def test_a_notebooks_commands_are_named_wherever_they_stand() -> None:
    for text in (BRANCHES, json.dumps({"cells": [{"cell_type": "code", "source": BRANCHES}]})):
        keys = {note.key for note in read(text).notes}
        assert {"%%capture", "!pip install a \\", "b", "%cd x", "files = !ls", "num_generations"} <= keys
    shell = {"cells": [{"cell_type": "code", "source": f"%%bash\nls {' ' * 50_000}"},
                       {"cell_type": "code", "source": "GRPOConfig(beta=0.1)"}]}  # fmt: skip
    assert "%%bash" in {note.key for note in read(json.dumps(shell)).notes}


def test_every_default_of_a_tool_is_a_setting_that_its_table_takes(subtests: pytest.Subtests) -> None:
    for kind, form in documents.FORMATS.items():
        for key in form.defaults:
            with subtests.test(kind=kind, key=key):
                assert isinstance(form.table.get(key) or form.otherwise(key, trl.BASIC_SETTINGS), Take)


def test_a_document_that_leaves_its_algorithm_to_a_tool_with_ppo_is_told_so() -> None:
    reading = read("python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m data.max_response_length=8")
    wrong = [note for note in reading.notes if note.verdict == KeyVerdict.WRONG]
    assert [(note.key, "Runs train with GRPO" in note.text) for note in wrong] == [("algorithm.adv_estimator", True)]


def test_accumulation_for_an_unknown_number_of_gpus_says_so() -> None:
    text = "policy: {train_global_batch_size: 64, train_micro_batch_size: 4}\ngrpo: {num_prompts_per_step: 64}\n"
    reading = read(text)
    assert reading.values["grpo.gradient_accumulation_steps"] == 16
    assert reading.values["_train_batch_size"] == 64
    assert any("for one GPU, because the document doesn't give" in note.text for note in reading.notes)


def test_stop_strings_join_other_sampling_arguments() -> None:
    reading = read("swift rlhf --rlhf_type grpo --model m --stop_words END --generation_kwargs '{\"min_tokens\": 2}'")
    assert reading.values["grpo.generation_kwargs"] == {"stop": ["END"], "min_tokens": 2}


def test_a_servers_settings_are_named_where_vllm_runs_inside_the_trainer() -> None:
    reading = read(
        "python -m openrlhf.cli.train_ppo_ray --pretrain m --colocate_all_models --vllm_num_engines 4 --enforce_eager"
    )
    assert not [path for path in reading.values if path.startswith("hardware.server")]
    assert {"vllm_num_engines", "enforce_eager"} <= {note.key for note in reading.notes}


def test_a_trainers_name_alone_is_no_sign_of_another_tool() -> None:
    assert read("trainer: mt_grpo\nturn_advantage_coef: 1\nlearning_rate: 1.0e-6\n").kind == DocumentKind.TRL


def test_saves_per_epoch_become_steps_where_the_number_of_steps_is_known() -> None:
    text = "base_model: m\nmax_steps: 200\nnum_epochs: 2\nsaves_per_epoch: 4\n"
    assert read(text).values["grpo.save_steps"] == 25


SHELL: list[tuple[str, dict[str, Any], set[str]]] = [
    ("N=4\nB=$((N * 2))\ntrl grpo --num_generations $((B / 4)) --per_device_train_batch_size=$(( (B + 8) % 10 ))", {
        "grpo.num_generations": 2, "grpo.per_device_train_batch_size": 6,
    }, set()),
    ("cd work && trl grpo --beta 0.1 2>&1 | tee out.log", {"grpo.beta": 0.1}, {"2>&1", "line 1: tee out.log"}),
    ("A=0.1; B=3\ntrl grpo --beta $A --seed $B > log.txt", {"grpo.beta": 0.1, "grpo.seed": 3}, {"> log.txt"}),
    ("trl grpo \\\n  --beta 0.1 \\\n  # --seed 1 \\\n  --seed 2\n", {"grpo.beta": 0.1, "grpo.seed": 2}, set()),
    ("M=${1:-org/small}\nSEED=${SEED:-${2:-7}}\ntrl grpo --model_name_or_path $M --seed $SEED --beta '0.1'", {
        "model.path": "org/small", "grpo.seed": 7, "grpo.beta": 0.1,
    }, set()),
    ("trl grpo --beta 0.1 --max_steps $((UNKNOWN * 2))", {"grpo.beta": 0.1, "grpo.max_steps": None}, {"max_steps"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "values", "noted"), SHELL, ids=[f"{place}" for place in range(len(SHELL))])
def test_a_scripts_arithmetic_chains_and_comments_mean_what_they_do_in_a_shell(
    text: str, values: dict[str, Any], noted: set[str]
) -> None:
    reading = read(text)
    assert {path: reading.values.get(path) for path in values} == values
    assert noted <= {note.key for note in reading.notes}


def test_variables_that_double_each_other_are_refused() -> None:
    lines = ["a0=xxxxxxxxxx", *(f"a{n}=$a{n - 1}$a{n - 1}" for n in range(1, 40)), "trl grpo --beta $a39"]
    with pytest.raises(documents.UnreadableDocument, match="too long"):
        read("\n".join(lines))

"""What a host says of a model: from the files alone, inside its folders, with a sentence when it can't be used."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from workers.models.facts import opened_tag
from workers.models.inspection import inspect

CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 512}
TENSORS = {
    "model.embed_tokens.weight": ("BF16", [100, 8]),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", [8, 8]),
    "model.layers.0.input_layernorm.weight": ("F32", [8]),
}
BYTES = {"BF16": 2, "F32": 4}


def safetensors(path: Path, tensors: dict[str, tuple[str, list[int]]] = TENSORS, *, cut: int = 0) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        count = 1
        for n in shape:
            count *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + count * BYTES[dtype]]}
        at += count * BYTES[dtype]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * (at - cut))


def a_model(folder: Path, **config: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<e>", "chat_template": "{{ messages }}"}))
    safetensors(folder / "model.safetensors")
    return folder


def error_of(model: Path | str, root: Path) -> str:
    answer = inspect(str(model), (root,))
    assert answer["ok"] is False
    return str(answer["error"])


def test_the_facts_come_from_config_tokenizer_and_headers(tmp_path: Path) -> None:
    answer = inspect(str(a_model(tmp_path / "m")), (tmp_path,))
    assert answer["ok"] is True
    assert answer["architecture"] == "Qwen2ForCausalLM"
    assert answer["parameters"] == 800 + 64 + 8
    assert answer["bytes"] == 1600 + 128 + 32
    assert answer["dtype"] == "BF16"
    assert answer["linear_modules"] == ["q_proj"]
    assert answer["context_length"] == 512
    assert answer["chat_template"] is True
    assert answer["eos_token"] == "<e>"


def test_shards_are_added_up(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    safetensors(folder / "a.safetensors", {"x.q_proj.weight": ("F32", [2, 3])})
    safetensors(folder / "b.safetensors", {"x.v_proj.weight": ("F32", [2, 5])})
    index = {"weight_map": {"x.q_proj.weight": "a.safetensors", "x.v_proj.weight": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert inspect(str(folder), (tmp_path,))["parameters"] == 16
    (folder / "b.safetensors").unlink()
    assert error_of(folder, tmp_path) == "1 of 2 weight files are missing; the first is b.safetensors."


def test_a_path_outside_the_roots_is_refused_whether_it_exists_or_not(tmp_path: Path) -> None:
    root = tmp_path / "models"
    root.mkdir()
    a_model(tmp_path / "elsewhere")
    assert "not inside the host's model folders" in error_of(tmp_path / "elsewhere", root)
    assert "not inside the host's model folders" in error_of(tmp_path / "nothing", root)
    assert "not inside the host's model folders" in error_of(root / ".." / "elsewhere", root)


def test_links_are_followed_before_they_are_judged(tmp_path: Path) -> None:
    root = tmp_path / "models"
    outside = a_model(tmp_path / "outside")
    a_model(root / "good")
    (root / "link").symlink_to(outside)
    (root / "inner").symlink_to(root / "good")
    assert "not inside" in error_of(root / "link", root)
    assert inspect(str(root / "inner"), (root,))["ok"] is True
    (root / "good" / "model.safetensors").unlink()
    (root / "good" / "model.safetensors").symlink_to(outside / "model.safetensors")
    assert "link to a path outside" in error_of(root / "good", root)


def test_a_hub_id_is_looked_up_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert inspect("Org/Name", ())["hub"] is True
    made = a_model(tmp_path / "models--Org--Name" / "snapshots" / "abc")
    (tmp_path / "models--Org--Name" / "refs").mkdir()
    (tmp_path / "models--Org--Name" / "refs" / "main").write_text("abc")
    answer = inspect("Org/Name", ())
    assert (answer["hub"], answer["source"], answer["path"]) == (False, "cache", str(made))


@pytest.mark.parametrize("name", ["../x", "a/b/c", "", "org/../x", "x y", "~root", "org/-", "./m"])
def test_a_name_that_is_neither_path_nor_hub_id_is_refused(name: str, tmp_path: Path) -> None:
    assert error_of(name, tmp_path)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is not valid JSON"),
        (lambda f: (f / "config.json").write_text("[1]"), "doesn't contain a JSON object"),
        (lambda f: (f / "config.json").rename(f / "adapter_config.json"), "LoRA adapter"),
        (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer"),
        (lambda f: (f / "model.safetensors").unlink(), "no weights"),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pickles"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 16), "incomplete"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), "incomplete"),
        (lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]"), "invalid safetensors header"),
        (lambda f: safetensors(f / "model.safetensors", cut=5), "it has 2102 of"),
    ],
)
def test_what_is_wrong_is_said_in_words(tmp_path: Path, break_it: Any, says: str) -> None:
    folder = a_model(tmp_path / "m")
    break_it(folder)
    assert says in error_of(folder, tmp_path)


def test_a_model_without_a_chat_template_says_so(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m")
    (folder / "tokenizer_config.json").unlink()
    assert inspect(str(folder), (tmp_path,))["chat_template"] is False
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert inspect(str(folder), (tmp_path,))["chat_template"] is True


PLAIN = {"vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_the_sizes_that_placements_are_reckoned_by_are_told(tmp_path: Path) -> None:
    answer = inspect(str(a_model(tmp_path / "m", **PLAIN)), (tmp_path,))
    told = {name: answer[name] for name in ("heads", "kv_heads", "layers", "hidden")}
    assert told == {"heads": 2, "kv_heads": 2, "layers": 1, "hidden": 8}
    unknown = inspect(str(a_model(tmp_path / "n")), (tmp_path,))
    assert unknown["heads"] is unknown["layers"] is None


def test_sizes_have_other_names_in_other_families(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 4, "multi_query": True, "vocab_size": 100}
    answer = inspect(str(a_model(tmp_path / "m", **config)), (tmp_path,))
    assert (answer["hidden"], answer["layers"], answer["heads"], answer["kv_heads"]) == (8, 1, 4, 1)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"vocab_size": 200}, "it says 200 tokens of 8 numbers, but the embedding is 100 × 8"),
        ({"hidden_size": 16}, "it says 100 tokens of 16 numbers"),
        ({"num_hidden_layers": 40}, "it says 40 layers, but there are 1"),
        ({"head_dim": 64}, "it says 2 attention heads of 64 in a hidden size of 8, but q_proj is 8 × 8"),
        ({"num_attention_heads": 0}, "num_attention_heads to '0', which is not a valid size"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers to 'many', which is not a valid size"),
        ({"hidden_size": 10**30}, "which is not a valid size"),
        ({"hidden_size": 8.0}, "which is not a valid size"),
        ({"num_key_value_heads": 3}, "2 attention heads, which is not a multiple of 3 key-value heads"),
    ],
)
def test_a_config_that_lies_about_its_sizes_is_refused(tmp_path: Path, lie: dict[str, Any], says: str) -> None:
    assert says in error_of(a_model(tmp_path / "m", **PLAIN | lie), tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "deepseek_v3", "kv_lora_rank": 4, "head_dim": 64},
        {"quantization_config": {"quant_method": "gptq"}, "hidden_size": 16},
        {"embedding_size": 8, "hidden_size": 16, "model_type": "albert"},
        {"num_attention_heads": [2, 2]},
        {"model_type": "qwen3", "num_attention_heads": 4},
        {"num_hidden_layers": 1, "text_config": PLAIN | {"model_type": "qwen2"}, "hidden_size": 99},
        {"num_experts": 8, "num_experts_per_tok": 2, "model_type": "qwen2_moe"},
    ],
)
def test_families_that_count_in_another_way_are_left_in_peace(tmp_path: Path, config: dict[str, Any]) -> None:
    assert inspect(str(a_model(tmp_path / "m", **PLAIN | config)), (tmp_path,))["ok"] is True


def test_layers_for_speculation_lie_behind_the_counted_ones(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m", **PLAIN, num_nextn_predict_layers=1)
    tensors = TENSORS | {f"model.layers.1.{name}": ("BF16", [8, 8]) for name in ("eh_proj.weight",)}
    safetensors(folder / "model.safetensors", tensors)
    assert inspect(str(folder), (tmp_path,))["ok"] is True


def test_one_tower_that_agrees_is_enough(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m", **PLAIN)
    seeing = {f"vision.encoder.layers.{n}.self_attn.q_proj.weight": ("BF16", [4, 4]) for n in range(3)}
    safetensors(folder / "model.safetensors", seeing | TENSORS)
    assert inspect(str(folder), (tmp_path,))["ok"] is True


def test_code_that_comes_with_a_model_is_named(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "m", auto_map={"AutoModel": "evil.Model"})
    assert inspect(str(folder), (tmp_path,))["custom_code"] is True


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        ("{% if add_generation_prompt %}{{ '<|a|><think>\\n' }}{% endif %}", "think"),
        ("{%- if add_generation_prompt %}\n<|a|>\n<reason>\n{%- endif %}", "reason"),
        ("{% if add_generation_prompt %}{{ '<|a|>' + ('<think>\n' if thinks else '') }}{% endif %}", "think"),
        ("{% if add_generation_prompt %}{{ '<|a|>' }}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}", ""),
        ("{{ '<think>' }}{% if add_generation_prompt %}{{ '<|a|>' }}{% endif %}", ""),
        ("{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}", ""),
        ("{{ '<think>' }}", ""),
    ],
)
def test_the_tag_that_a_template_opens_for_the_model_is_known(template: str, tag: str) -> None:
    assert opened_tag(template) == tag

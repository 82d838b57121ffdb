"""Chat templates of TRL 1.16 whose tool calls it can read, by the SHA-256 of their text.

TRL finds its parser by the exact text of a template, so one changed by a single space has none. The digests let a
launch be checked where TRL isn't installed; tests/trainer compares them with the installed TRL.
"""

READABLE_TEMPLATES = {
    "deepseek_r1_distill": "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
    "gemma4": "33204f1acb5bd0002713e16a593847f24ceeafe711ed88bda2a352dc996a3373",
    "gemma4_v2": "55572b8d3c8342044e25874c73fe5234b661fa0a57a57f6ef75b58e03d7d959a",
    "gemma4_v3": "781d10940fbc44be40064b5d43a056fc486c84ceaa55538226368b57314132bf",
    "gemma4_v4": "2f1b4d75d067bae3fe44e676721c7f077d243bc007156cb9c2f8b5836613d082",
    "gemma4_v5": "0a2c8073c878ab1da004bee933a998606537bbb62016310352c7285c3f01c5b5",
    "glm4moe": "44f815868bf02fa458dd2f741a338046f4bf45f398eb6d067766726b9d96cce3",
    "gptoss": "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146",
    "lfm2_2_5": "6d65c8804847ad74eea912dd7eca3dc1cf7a457b53a77f47d841a14121910963",
    "lfm2_2_5_v2": "c5b67247c9f736f6c40eaa91ae1ef27dc67f5b041eedaadb97a1bea5030fb0ff",
    "lfm2_2_5_vl": "86f4770449a4797c9b4212d110b0cc70fb993c1ce960095bcfb12eea22f61cca",
    "lfm2_v2": "5504d163d879bfb6fd4135b7fa3d56768b2e69dd718338f7b146750289f46ab0",
    "llama3_1": "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",
    "llama3_2": "5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4",
    "nemotron_3_5_lightning": "58933db77d3099b4f78c55a38347a72e1ea05b97d6bd8f38775303dc0194e0a9",
    "nemotron_3_nano": "ab7813c3abdd9cb655905a410728b26c7884eca45ddfab8d9f931553485a7862",
    "nemotron_3_super": "575fb74f54ed264df9047d0ecce3c98938aae953fb4f50356675706264cbb68a",
    "nemotron_3_ultra": "82753bef5cedc4932c1ed509b5c9a12be680fd86d1adb65bc3f7398d11c8eebc",
    "qwen2_5": "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
    "qwen3": "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8",
    "qwen3_5_nothink": "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",
    "qwen3_5_think": "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
    "qwen3_6": "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
    "qwen3_8": "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041",
    "qwen3_instruct_2507": "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326",
    "qwen3_vl": "3636d0f0bd6bef02654cdffdc447b79cb2cef8ab02cc75267345946291a489e4",
}
"""SHA-256 of the text of each readable template, by TRL's name for it."""

_BY_MARK = {
    "<|start_header_id|>": "llama3_2",
    "<｜User｜>": "deepseek_r1_distill",
    "<|tool_list_start|>": "lfm2_v2",
    "<|im_start|>": "qwen2_5",
}
"""TRL's templates by a special token that they share with a model's own template."""
MARKS = tuple(_BY_MARK)


def name_of(sha256: str) -> str:
    """Find TRL's name for the template with this digest; return "" if TRL has no such template."""
    return next((name for name, digest in READABLE_TEMPLATES.items() if digest == sha256), "")


def alternative(marks: tuple[str, ...], model_type: str = "") -> str:
    """Choose TRL's template for a model whose own has these special tokens; return "" if TRL has none with them."""
    template = next((name for mark, name in _BY_MARK.items() if mark in marks), "")
    return "qwen3" if template == "qwen2_5" and model_type.startswith("qwen3") else template

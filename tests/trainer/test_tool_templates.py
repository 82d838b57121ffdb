"""The chat templates that a launch is checked against are those whose calls the installed TRL reads."""

from __future__ import annotations

import json

import pytest

from tests.trainer.preloaded import Preloaded
from workers.contract.stack.tool_templates import READABLE_TEMPLATES

pytestmark = pytest.mark.trainer

DIGESTS = """
import hashlib, inspect, json, re
from trl import chat_template_utils as templates
known = sorted(set(re.findall(r"\\b(\\w+)_chat_template\\b", inspect.getsource(templates.add_response_schema))))
texts = {name: getattr(templates, f"{name}_chat_template") for name in known}
print(json.dumps({name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}))
"""


def test_the_digests_are_those_of_the_templates_that_trl_reads(preloaded: Preloaded) -> None:
    assert json.loads(preloaded.run("-c", DIGESTS).stdout) == READABLE_TEMPLATES

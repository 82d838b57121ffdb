"""Names of columns, and words in them, that indicate what a column contains."""

import re

PROMPT_WORDS = (
    *("prompt", "question", "problem", "instruction", "input", "query", "text", "task", "exercise", "puzzle"),
    *("content", "goal", "ctx", "sentence"),
)
ANSWER_WORDS = (
    *("answer", "solution", "response", "completion", "output", "target", "expected", "truth", "gold", "correct"),
    *("label", "result", "reply"),
)
"""Words in a column's name that suggest what it contains, most reliable first."""
DESCRIPTIVE_WORDS = frozenset(
    (
        *("id", "ids", "uuid", "guid", "index", "idx", "key", "hash", "no", "nr", "num", "number", "count", "length"),
        *("len", "tokens", "type", "kind", "format", "category", "level", "difficulty", "score", "rating", "source"),
        *("url", "link", "date", "time", "timestamp", "language", "lang", "model", "split", "version", "author"),
    )
)
"""Words in names of columns that describe a text instead of containing it."""
SYSTEM = ("system", "system_prompt", "system_message", "sys_prompt")
NUMBERS = ("nums", "numbers")
TRUTHS = ("ground_truth", "verification_info", "gold")
"""Names in the path of the value that a reward compares with."""
NOT_TRUTH = re.compile(r"\.(?:style|type|kind|numbers|nums|id|index|unit|language)$")
MESSAGE_ANSWERS = ("answer", "final_answer", "ground_truth", "solution")
BESIDE_QUESTIONS = (
    *("answers", "golden_answers", "label", "target", "expected", "reference", "gold", "response", "output"),
)
"""Names of further answers if the messages end with a question."""
NOT_ROLES = re.compile(
    r"(?:^|_)(?:tests?|cases?|examples?|solutions?|tools?|choices|options|input_output|io)(?:_|\.|$)"
)
"""Columns whose inner values are never a prompt or an answer."""
MESSAGES = ("messages", "conversations", "conversation", "chat", "dialogue", "turns", "prompt")
TESTS = (
    *("test_cases", "tests", "test_list", "unit_tests", "test", "input_output", "private_test_cases"),
    *("public_test_cases", "official_tests", "private_tests", "public_tests", "test_code"),
)
DIFFICULTY = ("difficulty", "level", "difficulty_level", "hardness")
TAGS = ("tags", "topics", "categories", "labels", "concepts")
FOLLOW_UPS = (("follow_up", "follow_up_response"), ("followup", "followup_response"))
INSTRUCTION_COLUMN = "instruction"
CONTEXTS = ("context", "passage", "article", "paragraph", "background", "story", "document", "body")
"""Names of texts to read, which a question is about."""
CHOICE_ANSWERS = (
    *("answer_key", "correct", "correct_option", "correct_answer", "correct_choice", "correct_index", "answer_index"),
    *("answer_idx", "gold", "gold_index", "label", "target", "cop"),
)
"""Names of columns that say which of several choices is right."""
CHOICES = ("choices", "options", "endings", "answer_choices")
CHOICE_COLUMN_PATTERNS = (
    ("{}", "a"),
    ("option_{}", "a"),
    ("choice_{}", "a"),
    ("op{}", "a"),
    ("option_{}", "1"),
    ("option_{}", "0"),
    ("choice_{}", "1"),
    ("choice_{}", "0"),
    ("sol_{}", "1"),
    ("ending_{}", "0"),
)
"""Names of columns with one choice each, as (pattern with a placeholder for the letter or number, its first value)."""

"""The mapping form: the roles of columns, the prompt's format, the tokenizer and the split."""

from typing import Any, cast

from django import forms

from controlplane.catalogue.datasets.actions import DEFAULT_SEED, DEFAULT_SHARE
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.columns import row_function
from controlplane.catalogue.datasets.reader.columns.choices import NUMBERINGS
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, problems, resolved
from controlplane.catalogue.datasets.reader.columns.transforms import COLUMNS, CUSTOM, TRANSFORMS
from controlplane.catalogue.datasets.tokenizers import choices
from controlplane.platform.accounts.models import User
from controlplane.platform.http.form_pages import wrong_fields

NO_COLUMN_LABEL = "none"
EMPTY_CHOICE = ("", "Choose…")
NO_ANSWER = "(none)"
"""Choice for rows without answers, or with answers in their messages. No column may have this name."""


def _column(label: str, help_text: str) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, help_text=help_text, required=False)


def _text(label: str, rows: int, help_text: str, max_length: int = 8000, initial: str = "") -> forms.CharField:
    return forms.CharField(
        label=label,
        help_text=help_text,
        max_length=max_length,
        initial=initial,
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": rows, "class": "code", "spellcheck": "false"}),
    )


TURNS = ("follow_up", "follow_up_response")
PARTS = {
    "transform": ("transform", "holds"),
    "columns": ("prompt", "input", "choices", "answer", "answer_after", "numbering", "test_cases"),
    "marks": ("difficulty", "tags", "metadata"),
    "turns": TURNS,
    "prompt": ("chat", "system", "system_prompt", "template"),
    "tokens": ("tokenizer", "token_limit"),
    "split": ("share", "seed"),
}
"""Form fields by section of the form."""


class MappingForm(forms.Form):
    """Form of a ColumnMapping, its token limit and its split."""

    transform = forms.ChoiceField(
        label="Transform",
        choices=[(name, transform.title) for name, transform in TRANSFORMS.items()],
        help_text="How the answer is extracted from its column.",
    )
    code = _text(
        "Function",
        10,
        "Receives each row of the file as a dict and returns the row to train on as a dict with prompt, answer, "
        "test_cases and any metadata, or None to leave the row out. Only admins can change it.",
        row_function.MAX_CHARACTERS,
        row_function.EXAMPLE,
    )
    prompt = _column("Prompt column", "The question for the model.")
    holds = forms.ChoiceField(
        label="Prompt given as",
        choices=[("text", "Text"), ("messages", "Chat messages")],
        help_text="Chat messages: a list of objects with role and content; their turns are kept.",
    )
    input = _column("Second column of the prompt", "Appended to the prompt if it isn't empty, such as Alpaca's input.")
    choices = _column("Choices column", "Choices of a question, which are put below it as A) …, B) ….")
    numbering = forms.ChoiceField(
        label="Right choice given as",
        choices=list(NUMBERINGS.items()),
        required=False,
        help_text="With choices, the answer becomes a letter. Numbers also do without a choices column.",
    )
    answer = _column(
        "Answer column", "The reference for rewards. Without it, you can't use rewards that need an answer."
    )
    answer_after = forms.CharField(
        label="Answer after",
        max_length=40,
        required=False,
        strip=False,
        help_text="Only the text after the last such marker is the answer. Leave empty for the whole text.",
        widget=forms.TextInput(attrs={"class": "code", "autocomplete": "off", "spellcheck": "false"}),
    )
    test_cases = _column("Test cases column", "Assertions or tests to run code against: a list of strings.")
    difficulty = _column("Difficulty column", "Shown in statistics and filters, and balanced between the splits.")
    tags = _column("Tags column", "Topics of a row: a string, or a list of strings.")
    metadata = forms.CharField(
        label="Values to keep by themselves",
        max_length=2000,
        required=False,
        help_text="Paths of values inside columns, such as extra_info.index, separated by commas.",
    )
    follow_up = _column("Follow-up column", "A second question, asked after the first answer.")
    follow_up_response = _column("Answer to the follow-up", "The reference for the answer to the follow-up.")
    one_per_turn = forms.BooleanField(
        label="One prompt per turn",
        required=False,
        help_text="A row with a follow-up becomes two rows in the same split: the first question alone, and the "
        "conversation with the follow-up, which gets the tests. If off, it becomes only the conversation.",
    )

    chat = forms.ChoiceField(
        label="Prompt becomes",
        choices=[("chat", "Chat messages"), ("plain", "Plain text")],
        help_text="Messages use the model's chat template. Choose plain text for a base model without one.",
    )
    system = _column(
        "System prompt column",
        "Each row's own system prompt, which comes after that of its messages and before the one below.",
    )
    system_prompt = _text(
        "System prompt", 4, "Precedes every prompt, for example to request <think> and <answer> tags."
    )
    template = _text(
        "Prompt template",
        3,
        "{prompt} stands for the prompt, and {name} for the column of that name. Leave empty for the prompt alone.",
    )

    tokenizer = forms.ChoiceField(
        label="Count tokens with",
        required=False,
        help_text="The tokenizer and chat template of a model that a host has inspected.",
    )
    token_limit = forms.IntegerField(
        label="Token limit",
        required=False,
        min_value=1,
        max_value=10_000_000,
        help_text="Longer prompts are reported but kept. Leave empty for no limit.",
    )

    share = forms.FloatField(
        label="Validation share",
        min_value=0,
        max_value=0.9,
        initial=DEFAULT_SHARE,
        widget=forms.NumberInput(attrs={"step": "0.01", "inputmode": "decimal"}),
        help_text="Share of the rows to hold out from training; 0 for none. No prompt is in both splits.",
    )
    seed = forms.IntegerField(
        label="Seed of the split",
        min_value=0,
        max_value=2**31 - 1,
        initial=DEFAULT_SEED,
        help_text="The same seed draws the same rows.",
    )
    drop_duplicates = forms.BooleanField(
        label="Drop rows with a repeated prompt",
        required=False,
        help_text="The first row of each prompt is kept.",
    )

    @property
    def wrong_fields(self) -> list[tuple[str, str, str]]:
        return wrong_fields(self)

    def __init__(
        self, version: DatasetVersion, *args: Any, user: User | None = None, preview: bool = False, **kwargs: Any
    ) -> None:
        """Prepare the choices. The role of `user` decides whether they may change code. A `preview` needs no answer
        column."""
        super().__init__(*args, **kwargs)
        self._user, self._preview = user, preview
        self._columns = version.report_columns
        self._columns += [path for path in version.report_paths if path not in self._columns]
        names = [(name, name) for name in self._columns]
        no_column = [("", NO_COLUMN_LABEL)]
        for field in ("input", "choices", "system", "test_cases", "difficulty", "tags", *TURNS):
            self._set_choices(field, no_column + names)
        self._set_choices("prompt", [("", "Choose, or write a template…"), *names])
        self._set_choices("answer", [EMPTY_CHOICE, (NO_ANSWER, "no answers"), *names])
        self._set_choices("tokenizer", [("", "no tokenizer: don't count"), *tokenizers()])

    def _set_choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        cast(forms.ChoiceField, self.fields[name]).choices = choices

    @property
    def parts(self) -> dict[str, list[forms.BoundField]]:
        return {part: [self[name] for name in names] for part, names in PARTS.items()}

    @property
    def used(self) -> dict[str, bool]:
        """{part: whether one of its fields is set or has errors}. Other optional parts are collapsed."""
        return {part: any(field.value() or field.errors for field in fields) for part, fields in self.parts.items()}

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if fields.get("token_limit") and not fields.get("tokenizer"):
            self.add_error("token_limit", "Choose a tokenizer to count tokens with, or leave the limit empty.")
        if fields.get("transform") == CUSTOM and (problem := self._code_problem(fields.get("code", ""))):
            self.add_error("code", problem)
        mapping, invalid_fields = self.mapping(leave_out=False), set(self.errors)
        for name, sentence in problems(mapping, self._columns):
            field = "holds" if name == "messages" else name
            if field not in invalid_fields:  # an invalid field's value is unknown, and empty here
                self.add_error(field, sentence)
        if not self._preview and "answer" not in self.errors and not (fields["answer"] or resolved(mapping).answer):
            self.add_error("answer", "Choose the answer column, or “no answers”.")
        return fields

    def _code_problem(self, code: str) -> str:
        may_change_code = self._user is not None and self._user.may_administer
        if not may_change_code and not DatasetVersion.objects.filter(mapping__code=_lines(code)).exists():
            return "Only admins can write or change a function. You can use a saved function unchanged."
        return row_function.problem(code)

    def mapping(self, *, leave_out: bool) -> ColumnMapping:
        """Return the chosen mapping; fields with errors are empty or have their default."""
        defaults = {**dict.fromkeys(self.fields, ""), "transform": COLUMNS, "holds": "text", "chat": "chat"}
        fields = defaults | self.cleaned_data
        columns = ("transform", "prompt", "input", "choices", "numbering", "system", "test_cases", "difficulty", "tags")
        return ColumnMapping.from_dict(
            {name: fields[name] for name in (*columns, *TURNS, "one_per_turn")}
            | {
                "messages": fields["holds"] == "messages",
                "answer": "" if fields["answer"] == NO_ANSWER else fields["answer"],
                "metadata": fields["metadata"].strip(),
                "answer_after": fields["answer_after"].strip(),
                "system_prompt": _lines(fields["system_prompt"]).strip(),
                "template": _lines(fields["template"]) if fields["template"].strip() else "",
                "code": _lines(fields["code"]) if fields["transform"] == CUSTOM else "",
                "chat": fields["chat"] == "chat",
                "leave_out": leave_out,
                "drop_duplicates": fields["drop_duplicates"],
            }
        )

    @staticmethod
    def initial_of(version: DatasetVersion) -> dict[str, Any]:
        """Return the form's values for the mapping that was last requested, or otherwise for the recognised one."""
        recognised = version.report.get("recognised") or {}
        mapping = {"prompt": "", "transform": COLUMNS} | (recognised.get("mapping") or {}) | (version.mapping or {})
        split = version.split or {}
        has_no_answers = bool(version.mapping) or (
            mapping.get("messages") and recognised.get("schema") != "messages_alone"
        )
        return mapping | {
            "answer": mapping.get("answer") or (NO_ANSWER if has_no_answers else ""),
            "code": mapping.get("code") or row_function.EXAMPLE,
            "holds": "messages" if mapping.get("messages") else "text",
            "chat": "chat" if mapping.get("chat", True) else "plain",
            "tokenizer": version.tokenizer,
            "token_limit": version.token_limit,
            "share": split.get("share", DEFAULT_SHARE),
            "seed": split.get("seed", DEFAULT_SEED),
        }


def _lines(value: str) -> str:
    """Turn the CR LF that browsers send back into line feeds."""
    return value.replace("\r\n", "\n")


def tokenizers() -> list[tuple[str, str]]:
    """List (sha256, model) of the newest available tokenizer of each model."""
    sha256_by_model: dict[str, str] = {}
    for tokenizer in choices():
        sha256_by_model.setdefault(tokenizer.model, tokenizer.sha256)
    return [(sha256, model) for model, sha256 in sha256_by_model.items()]

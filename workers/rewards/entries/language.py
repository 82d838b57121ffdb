"""A reward for the language that a completion is written in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.extract import last_tag
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Example, Reward

LANGUAGES = {
    "Arabic": "ar", "Bengali": "bn", "Bulgarian": "bg", "Catalan": "ca", "Chinese (simplified)": "zh",
    "Chinese (traditional)": "zh-Hant", "Croatian": "hr", "Czech": "cs", "Danish": "da", "Dutch": "nl",
    "English": "en", "Estonian": "et", "Finnish": "fi", "French": "fr", "German": "de", "Greek": "el",
    "Hebrew": "iw", "Hindi": "hi", "Hungarian": "hu", "Indonesian": "id", "Italian": "it", "Japanese": "ja",
    "Korean": "ko", "Latvian": "lv", "Lithuanian": "lt", "Malay": "ms", "Norwegian": "no", "Persian": "fa",
    "Polish": "pl", "Portuguese": "pt", "Romanian": "ro", "Russian": "ru", "Serbian": "sr", "Slovak": "sk",
    "Slovenian": "sl", "Spanish": "es", "Swahili": "sw", "Swedish": "sv", "Tamil": "ta", "Telugu": "te",
    "Thai": "th", "Turkish": "tr", "Ukrainian": "uk", "Urdu": "ur", "Vietnamese": "vi",
}  # fmt: skip
MAX_BYTES = 200_000
_CONTROLS = bytes(code for code in (*range(32), 127) if chr(code) not in "\t\n\r")


@dataclass(frozen=True)
class LanguageParams(Params):
    language: str = param("English", "The required language.", choices=tuple(LANGUAGES))
    inside: str = param("", "Name of a tag whose content is checked, such as think. If empty, everything is checked.")
    at_least: float = param(
        0.0, "If above 0, the score is 1 from this share on and 0 below it, instead of the share.", min=0.0, max=1.0
    )
    unclear_score: float = param(
        0.0, "Score if the text is too short or has too many formulas to detect its language.", min=0.0, max=1.0
    )


def language(completion: str, row: Mapping[str, Any], params: LanguageParams) -> float:
    """Return 0 to 1, the share (in bytes) of the text that is in the chosen language, among the parts whose language
    CLD2 detects. Use this against mixing languages, which reasoning models tend to do; DeepSeek-R1's language
    consistency reward (arXiv:2501.12948, 2.3.2) is the share of words in the target language."""
    text = (last_tag(completion, params.inside) or "") if params.inside else completion
    shares = _shares(text)
    if not shares:
        return params.unclear_score
    share = shares.get(LANGUAGES[params.language], 0) / sum(shares.values())
    return float(share >= params.at_least) if params.at_least else share


def _shares(text: str) -> dict[str, int]:
    """Return the percentage of the text by language code; empty if CLD2 can't detect any language."""
    import pycld2  # a compiled library that most processes don't need

    data = text.encode("utf-8", "ignore")[:MAX_BYTES].translate(None, _CONTROLS)
    try:
        reliable, _, detected = pycld2.detect(data.decode("utf-8", "ignore"), isPlainText=True)
    except pycld2.error:  # a noncharacter of Unicode
        printable = "".join(char if char.isprintable() else " " for char in data.decode("utf-8", "ignore"))
        reliable, _, detected = pycld2.detect(printable, isPlainText=True)
    return {code: percent for _, code, percent, _ in detected if code != "un" and percent} if reliable else {}


REWARDS = (
    Reward(
        key="language",
        title="Language match",
        help="Share of the text that is in the chosen language.",
        function=language,
        params=LanguageParams,
        low="None of the text is in the chosen language, or its language is unclear.",
        high="All of the text is in the chosen language.",
        use="If a model begins to mix languages in its reasoning. A small weight is enough.",
        examples=(
            Example("First we count the apples, and then we add the pears to them.", 1.0, why="All of it is English."),
            Example("Zuerst zählen wir die Äpfel und dann die Birnen, die übrig sind.", 0.0, why="It is German."),
            Example("3 + 4 = 7", 0.0, why="There are no words to detect a language from, so it is unclear."),
        ),
    ),
)

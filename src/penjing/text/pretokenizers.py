"""How byte-level BPE families cut text before merging, under the tags that GGUF files use for them.

A GGUF file names the rule (`tokenizer.ggml.pre`) but doesn't carry it. Each entry follows the
`tokenizer.json` that the family published, normaliser included. A tag that isn't here is refused: a near
miss would give slightly wrong ids without a sign.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from penjing.errors import UnsupportedError
from penjing.text.pretokenizer_patterns import (
    CJK,
    DEEPSEEK3_CJK,
    DEEPSEEK3_WORDS,
    DEEPSEEK_LLM_LETTERS,
    DEEPSEEK_LLM_PUNCTUATION,
    GPT_4O,
    LLAMA_3,
    QWEN_2,
    QWEN_35,
    TEKKEN,
)

PreTokenizer = pre_tokenizers.PreTokenizer


@dataclass(frozen=True)
class Rule:
    """One family's rule. `add_bos` is for files that don't say; `ignore_merges` takes whole words first."""

    pre_tokenizer: Callable[[], PreTokenizer]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    @property
    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.nfc else None


def rule_for(tag: str) -> Rule:
    """The rule for a tag; UnsupportedError names an unknown one."""
    try:
        return _RULES[tag]
    except KeyError:
        raise UnsupportedError(
            f"This GGUF file's tokenizer splits text by the rule {tag!r}, which penjing doesn't know; "
            "use the model's Hugging Face folder, whose tokenizer.json carries the rule."
        ) from None


def _gpt_2() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_apart() -> PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt_2()])


def _falcon() -> PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation(behavior="contiguous"),
            _gpt_2(),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), behavior="isolated"),
        ]
    )


def _split(*patterns: str, digits_apart: bool = False) -> Callable[[], PreTokenizer]:
    """Cut at every match of each pattern in turn, then spell in bytes."""

    def build() -> PreTokenizer:
        steps: list[PreTokenizer] = [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns
        ]
        if digits_apart:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)

    return build


_LLAMA_3_RULE = Rule(_split(LLAMA_3), ignore_merges=True, add_bos=True)
_QWEN_2_RULE = Rule(_split(QWEN_2), nfc=True)
_GPT_4O_RULE = Rule(_split(GPT_4O))

_RULES = {
    "default": Rule(_gpt_2),
    "gpt-2": Rule(_gpt_2),
    "phi-2": Rule(_gpt_2),
    "mpt": Rule(_gpt_2, nfc=True),
    "olmo": Rule(_gpt_2, nfc=True),
    "smollm": Rule(_digits_apart),
    "starcoder": Rule(_digits_apart),
    "refact": Rule(_digits_apart),
    "codeshell": Rule(_digits_apart),
    "command-r": Rule(_digits_apart, nfc=True),
    "falcon": Rule(_falcon),
    "llama3": _LLAMA_3_RULE,
    "llama-v3": _LLAMA_3_RULE,
    "llama-bpe": _LLAMA_3_RULE,
    "falcon3": _LLAMA_3_RULE,
    "lfm2": _LLAMA_3_RULE,
    "dbrx": Rule(_split(LLAMA_3)),
    "smaug-bpe": Rule(_split(LLAMA_3)),
    "tekken": Rule(_split(TEKKEN), ignore_merges=True, add_bos=True),
    "qwen2": _QWEN_2_RULE,
    "deepseek-r1-qwen": _QWEN_2_RULE,
    "qwen35": Rule(_split(QWEN_35), nfc=True),
    "gpt-4o": _GPT_4O_RULE,
    "llama4": _GPT_4O_RULE,
    "deepseek-llm": Rule(
        _split(r"[\r\n]", DEEPSEEK_LLM_LETTERS, DEEPSEEK_LLM_PUNCTUATION, r"\s+$", CJK, digits_apart=True)
    ),
    "deepseek-coder": Rule(_split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, digits_apart=True)),
    "deepseek-v3": Rule(_split(r"\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3_WORDS)),
}


def tags_like(backend: Tokenizer) -> list[str]:
    """The tags whose rule is the backend's own: the same pre-tokenizer, normaliser and use of whole words."""
    wanted = _form(backend)
    found = []
    for tag, rule in _RULES.items():
        other = Tokenizer(models.BPE(ignore_merges=rule.ignore_merges))
        other.pre_tokenizer = rule.pre_tokenizer()
        if rule.normalizer is not None:
            other.normalizer = rule.normalizer
        if _form(other) == wanted:
            found.append(tag)
    return found


def _form(backend: Tokenizer) -> tuple[Any, Any, bool]:
    fields = json.loads(backend.to_str())
    return fields["normalizer"], _pre_form(fields["pre_tokenizer"]), bool(fields["model"]["ignore_merges"])


def _pre_form(step: Any) -> Any:
    """A pre-tokenizer's description without what makes no difference: a sequence of one, and how a byte-level
    step trims offsets."""
    if isinstance(step, dict) and step["type"] == "Sequence":
        steps = [_pre_form(each) for each in step["pretokenizers"]]
        return steps[0] if len(steps) == 1 else steps
    if isinstance(step, dict):
        return {key: value for key, value in step.items() if key != "trim_offsets"}
    return step

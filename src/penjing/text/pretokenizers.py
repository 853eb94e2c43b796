"""How byte-level BPE families cut text before merging, under the tags that GGUF files use for them.

A GGUF file names the rule (`tokenizer.ggml.pre`) but doesn't carry it. An entry follows the `tokenizer.json`
that the family published where llama.cpp, which defines the tags (src/llama-vocab.cpp), quotes or shortens
it, else the expressions that llama.cpp itself uses. A tag that isn't here is refused: a near miss would give
slightly wrong ids without a sign.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from penjing.errors import UnsupportedError
from penjing.text import pretokenizer_patterns as patterns

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


def _split(*expressions: str, then: Callable[[], PreTokenizer] | None = None) -> Callable[[], PreTokenizer]:
    """Cut at every match of each expression in turn, then spell in bytes (or cut by another rule `then`)."""

    def build() -> PreTokenizer:
        steps: list[PreTokenizer] = [
            pre_tokenizers.Split(Regex(expression), behavior="isolated") for expression in expressions
        ]
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False) if then is None else then()
        return pre_tokenizers.Sequence([*steps, last])

    return build


def _digits_apart_in_bytes() -> PreTokenizer:
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), spelled])


_LLAMA_3 = Rule(_split(patterns.LLAMA_3), ignore_merges=True, add_bos=True)
_QWEN_2 = Rule(_split(patterns.QWEN_2), nfc=True)
_GPT_4O = Rule(_split(patterns.GPT_4O))
_DEEPSEEK_3 = Rule(_split(r"\p{N}{1,3}", patterns.DEEPSEEK3_CJK, patterns.DEEPSEEK3_WORDS))
_TINY_AYA = Rule(_split(patterns.THREES_IN_WORDS, patterns.GPT_4O))
_DEEPSEEK_LLM = Rule(
    _split(
        r"[\r\n]",
        patterns.DEEPSEEK_LLM_LETTERS,
        patterns.DEEPSEEK_LLM_PUNCTUATION,
        r"\s+$",
        patterns.CJK,
        then=_digits_apart_in_bytes,
    )
)
_DEEPSEEK_CODER = Rule(
    _split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", patterns.CJK, then=_digits_apart_in_bytes)
)
_SPARK = Rule(_split(r"\p{N}{1,3}", patterns.DEEPSEEK3_CJK, patterns.SPARK_WORDS, r"\p{N}"))
_AFMOE = Rule(_split(patterns.THREES, patterns.AFMOE_SCRIPTS, patterns.DEEPSEEK3_WORDS))

_TAGS: dict[Rule, tuple[str, ...]] = {
    Rule(_gpt_2): (
        *("default", "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat"),
        *("a.x-4.0", "mellum", "modern-bert", "exaone4", "jais", "trillion", "granite-docling"),
    ),
    Rule(_gpt_2, nfc=True): ("mpt", "olmo"),
    Rule(_digits_apart): (
        *("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"),
    ),
    Rule(_digits_apart, nfc=True): ("command-r",),
    Rule(_falcon): ("falcon",),
    _LLAMA_3: (
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        "jina-v5-nano",
    ),
    Rule(_split(patterns.LLAMA_3), ignore_merges=True): ("glm4", "glm5"),
    Rule(_split(patterns.LLAMA_3)): ("dbrx", "smaug-bpe", "chatglm-bpe"),
    Rule(_split(patterns.JAIS_2)): ("jais-2",),
    Rule(_split(patterns.TEKKEN), ignore_merges=True, add_bos=True): ("tekken",),
    _QWEN_2: ("qwen2", "deepseek-r1-qwen", "f2llmv2"),
    Rule(_split(patterns.QWEN_2)): ("stablelm2", "hunyuan", "solar-open", "grok-2", "kormo", "megrez"),
    Rule(_split(r"[^\n]+|\n+", patterns.QWEN_2)): ("laguna",),
    Rule(_split(patterns.QWEN_35), nfc=True): ("qwen35",),
    Rule(_split(patterns.UFAKZEKA)): ("ufakzeka",),
    Rule(_split(r"\p{N}{1,3}", patterns.MINICPM_5), ignore_merges=True): ("minicpm5",),
    Rule(_split(patterns.BAILING)): ("bailingmoe", "bailingmoe2", "llada-moe"),
    Rule(_split(patterns.SEED_CODER)): ("seed-coder",),
    Rule(_split(patterns.EXAONE_MOE)): ("exaone-moe",),
    _GPT_4O: ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
    Rule(_split(patterns.GPT_4O), ignore_merges=True): ("granite-embed-multi-97m",),
    _TINY_AYA: ("tiny_aya", "cohere2moe"),
    Rule(_split(patterns.YOUTU_SCRIPTS, patterns.YOUTU), ignore_merges=True): ("youtu",),
    Rule(_split(patterns.KIMI_K2)): ("kimi-k2",),
    _DEEPSEEK_LLM: ("deepseek-llm",),
    _DEEPSEEK_CODER: ("deepseek-coder",),
    _DEEPSEEK_3: ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
    _SPARK: ("spark2_5",),
    _AFMOE: ("afmoe",),
    Rule(_split(patterns.BLOOM)): ("bloom", "gpt3-finnish", "poro-chat"),
    Rule(_split(patterns.BLOOM, then=_digits_apart_in_bytes)): ("viking",),
    Rule(_split(r"\p{N}+", patterns.THREES_BY_PLACE)): ("superbpe",),
    Rule(_split(*patterns.CHAMELEON, then=_gpt_2), add_bos=True): ("chameleon",),
}
_RULES = {tag: rule for rule, tags in _TAGS.items() for tag in tags}
TAGS = frozenset(_RULES)


def tags_like(backend: Tokenizer) -> list[str]:
    """The tags whose rule is the backend's own: the same pre-tokenizer, normaliser and use of whole words."""
    wanted = _form(backend)
    found = []
    for rule, tags in _TAGS.items():
        other = Tokenizer(models.BPE(ignore_merges=rule.ignore_merges))
        other.pre_tokenizer = rule.pre_tokenizer()
        if rule.normalizer is not None:
            other.normalizer = rule.normalizer
        if _form(other) == wanted:
            found += tags
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

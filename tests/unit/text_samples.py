"""Mixed strings, and small tokenizers made on the spot."""

# ruff: noqa: RUF001 (characters that look like others are the point)

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_TEXT = """
the quick brown Fox JUMPED don't I'LL we've it's naïve café Zürich Ærø straße İstanbul ǅ ﬁn
привет мир Ёлка Ελλάδα ὀδός שלום مرحبا عليكم नमस्ते हिन्दी বাংলা தமிழ் ไทย ภาษา ខ្មែរ 中文 漢字 日本語 カタカナ
한국어 조선말 አማርኛ ქართული Հայ ｆｕｌｌ Ⅷ ½ ² ③ ١٢٣ १२ 123 4567 3.14159 1e-9 0xFF 007 1,000,000
def return self.x[i] += 1; #include <stdio.h> {"a": [1, null]} <div class="x"> &amp; https://x.org/?q=1#f
a_b camelCase HTTPServer -- --- ... !? ¿¡ «quoted» “smart” ‘it’ — – … § € £ ∑ ∫ → ≠ □
😀 👩‍👩‍👧 🇩🇪 👍🏽 ✌️ <0x41> <unk> ▁ ▁▁x Ġ Ċ
"""
_MARKS = ["e\u0301", "a\u0308\u0323", "\ufffd", "\u200b", "\u200d", "\ufeff", "\u2028", "\u00ad", "\ue000"]
_WORDS = [*_TEXT.split(), *_MARKS]
_BLANKS = [
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    " \n",
    "\r\n",
    "\u00a0",
    "\u3000",
    "    \n  ",
    "\t\t ",
    "",
    "",
]
_CONTROLS = ["\x00", "\x01", "\x07", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\x85", "\x9f"]


def mixed_strings(count: int = 1000, special: tuple[str, ...] = ()) -> list[str]:
    """Strings of many scripts, code, numbers, blanks, emoji, control characters and special tokens."""
    rng = random.Random(20)
    kinds = [_WORDS, _WORDS, _WORDS, _WORDS, _CONTROLS, list(special) or _WORDS]
    strings = ["", " ", "\n", "a", *special]
    while len(strings) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            parts += [rng.choice(rng.choice(kinds)), rng.choice(_BLANKS)]
        if rng.random() < 0.2:
            parts.insert(0, rng.choice(_BLANKS))
        if rng.random() < 0.1:
            parts.append("".join(chr(rng.choice([rng.randint(1, 0xD7FF), rng.randint(0xE000, 0x1FFFF)]))))
        strings.append("".join(parts))
    return strings


def training_lines() -> list[str]:
    rng = random.Random(7)
    return [" ".join(rng.choice(_WORDS) for _ in range(rng.randint(3, 15))) for _ in range(2_000)]


def byte_level_backend(vocab_size: int = 600) -> Tokenizer:
    """A trained byte-level BPE with <s>, </s>, <|end|> and the role markers as special tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>", "<|end|>", "<|user|>", "<|assistant|>"],
        show_progress=False,
    )
    backend.train_from_iterator(training_lines(), trainer)
    return backend


def write_folder(
    folder: Path,
    backend: Tokenizer,
    tokenizer_config: dict[str, Any] | None = None,
    **files: Any,
) -> Path:
    """Save a tokenizer as people find it; `files` are further JSON files by name without ".json"."""
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    standard = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": False,
    }
    for name, value in {"tokenizer_config": {**standard, **(tokenizer_config or {})}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def gguf_metadata(backend: Tokenizer, **extra: Any) -> dict[str, Any]:
    """The metadata that a GGUF conversion of a byte-level tokenizer holds."""
    model = json.loads(backend.to_str())["model"]
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    vocab = backend.get_vocab(with_added_tokens=True)
    tokens = sorted(vocab, key=vocab.__getitem__)
    values = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [3 if token in special else 1 for token in tokens],
        "merges": [" ".join(pair) for pair in model["merges"]],
        "bos_token_id": vocab["<s>"],
        "eos_token_id": vocab["</s>"],
    }
    metadata = {f"tokenizer.ggml.{key}": value for key, value in {**values, **extra}.items()}
    return {key: value for key, value in metadata.items() if value is not None}

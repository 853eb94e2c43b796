"""Folders with older tokenizer files: ids equal sentencepiece's, transformers' and plain pair merging's."""

import base64
import io
import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
import sentencepiece
from tests.unit.text_samples import byte_level_backend, mixed_strings, training_lines
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode
from transformers.integrations.mistral.tokenizer import MistralConverter

from penjing.engine.detokenize import Detokenizer
from penjing.text.folder_tokenizer import tokenizer_from_folder
from penjing.text.tokenizer import Tokenizer

USER_DEFINED = ["<think>", "▁▁", "▁▁▁▁", "\n\n", "</h1>"]
SPECIAL = ("<s>", "</s>", "<unk>")


def differing(
    ours: Callable[[str], list[int]], theirs: Callable[[str], list[int]], texts: Iterable[str]
) -> list[str]:
    return [text for text in texts if ours(text) != theirs(text)]


def plain_ids(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


# tokenizer.model, SentencePiece

OPTIONS = {
    "bpe": {"model_type": "bpe"},
    "bpe, no prefix": {"model_type": "bpe", "add_dummy_prefix": False},
    "bpe, no bytes": {"model_type": "bpe", "byte_fallback": False},
    "bpe, blanks removed": {"model_type": "bpe", "remove_extra_whitespaces": True},
    "bpe, own pieces": {"model_type": "bpe", "user_defined_symbols": USER_DEFINED},
    "bpe, own pieces, no prefix": {
        "model_type": "bpe",
        "user_defined_symbols": USER_DEFINED,
        "add_dummy_prefix": False,
    },
    "unigram": {"model_type": "unigram"},
    "unigram, no bytes": {"model_type": "unigram", "byte_fallback": False},
    "unigram, blanks removed": {"model_type": "unigram", "remove_extra_whitespaces": True},
    "unigram, own pieces": {"model_type": "unigram", "user_defined_symbols": USER_DEFINED},
    "unigram, characters replaced": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
}


def trained(**options: Any) -> bytes:
    model = io.BytesIO()
    standard = {
        "vocab_size": 650,
        "hard_vocab_limit": False,
        "character_coverage": 0.98,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "minloglevel": 2,
        "num_threads": 1,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()), model_writer=model, **{**standard, **options}
    )
    return model.getvalue()


def model_folder(folder: Path, data: bytes, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=OPTIONS)
def model(request: pytest.FixtureRequest) -> bytes:
    return trained(**OPTIONS[request.param])


def test_a_sentencepiece_models_ids_and_texts_equal_the_librarys(model: bytes, tmp_path: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = tokenizer_from_folder(model_folder(tmp_path, model))
    normalizer = ours.backend.normalizer
    assert normalizer is not None
    texts = [text for text in [*mixed_strings(), "<0x41>"] if not any(name in text for name in SPECIAL)]
    if ours.notices:  # the tokenizers library replaces characters by the grapheme, unlike sentencepiece
        texts = [text for text in texts if normalizer.normalize_str(text) == reference.normalize(text)]
    assert len(texts) > (500 if ours.notices else 900)
    assert differing(plain_ids(ours), reference.encode, texts) == []
    for text in texts:
        ids = reference.encode(text)
        if reference.unk_id() not in ids and "▁" not in text:  # that sign is the same as a blank
            assert ours.decode(ids) == reference.decode(ids)


def test_a_sentencepiece_models_texts_stream_as_they_decode(model: bytes, tmp_path: Path) -> None:
    ours = tokenizer_from_folder(model_folder(tmp_path, model))
    for text in ["  two blanks", " a", "a", "", "▁", "\n\n x", "<think> hm", "😀 😀", *mixed_strings(200)]:
        ids = ours.encode(text)
        stream = Detokenizer(ours)
        assert "".join(map(stream.feed, ids)) == ours.decode(ids)


def test_a_sentencepiece_models_ids_survive_saving(model: bytes, tmp_path: Path) -> None:
    ours = tokenizer_from_folder(model_folder(tmp_path / "a", model, tokenizer_class="LlamaTokenizer"))
    ours.save(tmp_path / "b")
    texts = mixed_strings(special=SPECIAL)
    again = AutoTokenizer.from_pretrained(tmp_path / "b")
    assert differing(ours.encode, again.encode, texts) == []
    assert differing(ours.encode, tokenizer_from_folder(tmp_path / "b").encode, texts) == []


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize(
    "name", ["bpe", "bpe, no prefix", "bpe, own pieces", "unigram", "unigram, characters replaced"]
)
def test_a_sentencepiece_folders_ids_equal_transformers_conversion(
    name: str, legacy: bool, tmp_path: Path
) -> None:
    data = trained(**OPTIONS[name])
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "legacy": legacy}
    folder = model_folder(tmp_path, data, **config, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    ours, theirs = tokenizer_from_folder(folder), AutoTokenizer.from_pretrained(folder)
    # transformers looks bytes' pieces up in the text, too, where a model has own pieces or is a unigram one.
    texts = [text for text in mixed_strings(special=SPECIAL) if "<0x" not in text]
    assert len(texts) > 700
    assert differing(ours.encode, theirs.encode, texts) == []


def test_placeholders_take_the_names_that_the_config_gives_them(tmp_path: Path) -> None:
    data = trained(model_type="bpe", control_symbols=["<unused0>", "<unused1>"])
    listed = {
        "3": {"content": "<|im_start|>", "special": True, "normalized": False},
        "650": {"content": "<new>", "special": False, "normalized": False},
    }
    tokenizer = tokenizer_from_folder(model_folder(tmp_path, data, added_tokens_decoder=listed))
    assert tokenizer.encode("<|im_start|><new>", add_special_tokens=False) == [3, 650]
    assert tokenizer.special_ids >= {3, 4} and 650 not in tokenizer.special_ids


# vocab.json and merges.txt


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer", "Qwen2TokenizerFast", None])
def test_a_vocabulary_with_merges_gives_transformers_ids(name: str | None, tmp_path: Path) -> None:
    backend = byte_level_backend()
    model = json.loads(backend.to_str())["model"]
    vocabulary = {**backend.get_vocab(), "<|endoftext|>": backend.get_vocab_size()}
    merges = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in model["merges"])
    config = {"tokenizer_class": name} if name else {}
    for file, text in {
        "vocab.json": json.dumps(vocabulary),
        "merges.txt": merges,
        "tokenizer_config.json": json.dumps({**config, "additional_special_tokens": ["<|end|>"]}),
        "added_tokens.json": json.dumps({"<|tool|>": len(vocabulary)}),
        "config.json": json.dumps({"model_type": "gpt2"}),
    }.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    ours, theirs = tokenizer_from_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    texts = mixed_strings(special=("<|endoftext|>", "<|end|>", "<|tool|>"))
    assert differing(ours.encode, theirs.encode, texts) == []
    assert ours.end_ids == {theirs.eos_token_id}
    assert ours.bos_id == theirs.bos_token_id


# Byte-pair ranks in tiktoken's form

BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]--\p{Han}]*[[\p{Ll}\p{Lm}\p{Lo}\p{M}]--\p{Han}]+END|"
    r"[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]--\p{Han}]+[[\p{Ll}\p{Lm}\p{Lo}\p{M}]--\p{Han}]*END|"
).replace("END", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
PATTERNS = {
    "QWenTokenizer": rf"{WORDS}\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}",
    "TikTokenTokenizer": rf"(?V1)\p{{Han}}+|{CASED}\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}",
    "PreTrainedTokenizerFast": rf"{WORDS}\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}",
}


def ranks() -> dict[bytes, int]:
    """Every byte, then what a trained byte-level BPE merged, in the order of its merges."""
    backend = byte_level_backend(800)
    bytes_of = {character: byte for byte, character in bytes_to_unicode().items()}
    merged = [left + right for left, right in json.loads(backend.to_str())["model"]["merges"]]
    tokens = [bytes([byte]) for byte in range(256)] + [
        bytes(bytes_of[character] for character in piece) for piece in merged
    ]
    return {token: rank for rank, token in enumerate(dict.fromkeys(tokens))}


def merged_pairs(word: bytes, ranks: dict[bytes, int]) -> list[int]:
    """The definition: a whole word if it is a token, else join the lowest-ranked pair, leftmost first."""
    if word in ranks:
        return [ranks[word]]
    parts = [bytes([byte]) for byte in word]
    while True:
        pairs = [(ranks.get(a + b, 1 << 60), n) for n, (a, b) in enumerate(pairwise(parts))]
        rank, n = min(pairs, default=(1 << 60, 0))
        if rank == 1 << 60:
            return [ranks[part] for part in parts]
        parts[n : n + 2] = [parts[n] + parts[n + 1]]


def rank_folder(folder: Path, ranks: dict[bytes, int], **config: Any) -> Path:
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    name = "qwen.tiktoken" if config.get("tokenizer_class") == "QWenTokenizer" else "tokenizer.model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", PATTERNS)
def test_ranks_give_the_ids_of_plain_pair_merging(name: str, tmp_path: Path) -> None:
    table = ranks()
    ours = tokenizer_from_folder(rank_folder(tmp_path, table, tokenizer_class=name))
    pattern = regex.compile(PATTERNS[name])
    normalize = ours.backend.normalizer.normalize_str if ours.backend.normalizer else str

    def reference(text: str) -> list[int]:
        words = pattern.findall(normalize(text))
        return [id for word in words for id in merged_pairs(word.encode(), table)]

    texts = mixed_strings()
    assert differing(plain_ids(ours), reference, texts) == []
    ours.save(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert differing(ours.encode, again.encode, texts) == []


def test_ranks_and_special_tokens_give_transformers_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ranks()
    listed = {
        str(len(table) + n): {"content": text, "special": True, "normalized": False}
        for n, text in ((0, "<|begin_of_text|>"), (3, "<|eot_id|>"))
    }
    folder = rank_folder(
        tmp_path,
        table,
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        add_bos_token=True,
        added_tokens_decoder=listed,
    )
    monkeypatch.setattr(TikTokenConverter, "load_tiktoken_bpe", staticmethod(lambda _: table))
    ours, theirs = tokenizer_from_folder(folder), AutoTokenizer.from_pretrained(folder)
    texts = mixed_strings(special=("<|begin_of_text|>", "<|eot_id|>", f"<|reserved_token_{len(table) + 1}|>"))
    assert differing(ours.encode, theirs.encode, texts) == []
    assert ours.end_ids == {theirs.eos_token_id} == {len(table) + 3}


# tekken.json

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"
)


def tekken_folder(folder: Path, ranks: dict[bytes, int], special: list[str] | None, **config: Any) -> Path:
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in ranks.items()
    ]
    standard = {
        "pattern": TEKKEN_PATTERN,
        "num_vocab_tokens": len(ranks),
        "default_vocab_size": len(ranks) + 50,
        "default_num_special_tokens": 50,
        "version": "v7",
    }
    fields: dict[str, Any] = {"config": standard | config, "vocab": vocab}
    if special is not None:
        fields["special_tokens"] = [
            {"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(special)
        ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tekken.json").write_text(json.dumps(fields), encoding="utf-8")
    return folder


TEKKEN_SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]


@pytest.mark.parametrize("unused", [0, 40])
def test_tekkens_ids_are_those_of_plain_pair_merging_and_of_transformers(unused: int, tmp_path: Path) -> None:
    table = ranks()
    size = len(table) - unused
    folder = tekken_folder(tmp_path / "a", table, TEKKEN_SPECIAL, default_vocab_size=size + 50)
    ours = tokenizer_from_folder(folder)
    used = {token: rank for token, rank in table.items() if rank < size}
    pattern = regex.compile(TEKKEN_PATTERN)

    def reference(text: str) -> list[int]:
        return [50 + id for word in pattern.findall(text) for id in merged_pairs(word.encode(), used)]

    plain = [text for text in mixed_strings() if not any(token in text for token in TEKKEN_SPECIAL)]
    assert len(plain) > 900 and differing(plain_ids(ours), reference, plain) == []
    theirs = MistralConverter(str(folder / "tekken.json")).converted()
    texts = mixed_strings(special=(*TEKKEN_SPECIAL, "<SPECIAL_5>", "<SPECIAL_49>", "<SPECIAL_50>"))
    assert differing(plain_ids(ours), lambda text: theirs.encode(text).ids, texts) == []
    assert ours.vocab_size == theirs.get_vocab_size() == size + 50
    ours.save(tmp_path / "b")
    again = AutoTokenizer.from_pretrained(tmp_path / "b")
    assert differing(ours.encode, again.encode, texts) == []


def test_tekken_puts_its_begin_before_a_text_ends_at_its_end_and_says_what_chat_lacks(tmp_path: Path) -> None:
    table = ranks()
    tokenizer = tokenizer_from_folder(tekken_folder(tmp_path, table, TEKKEN_SPECIAL))
    assert tokenizer.encode("a") == [1, 50 + ord("a")] and tokenizer.end_ids == {2}
    assert tokenizer.decode(tokenizer.encode("a</s>é")) == "aé"
    assert "no chat template" in tokenizer.notices[0]
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    assert not tokenizer_from_folder(tmp_path).notices


def test_an_early_tekken_file_leaves_out_the_special_tokens_and_has_mistrals_usual_ones(
    tmp_path: Path,
) -> None:
    tokenizer = tokenizer_from_folder(tekken_folder(tmp_path, ranks(), None, version="v3"))
    text = (
        "<unk><s></s>[INST][/INST][AVAILABLE_TOOLS][TOOL_CALLS]<pad>[SYSTEM_PROMPT][TOOL_CONTENT]<SPECIAL_20>"
    )
    assert tokenizer.encode(text, add_special_tokens=False) == [0, 1, 2, 3, 4, 5, 9, 11, 17, 19, 20]


def test_the_special_tokens_of_qwen_and_kimi_follow_their_ranks(tmp_path: Path) -> None:
    table = ranks()
    first = len(table)
    qwen = tokenizer_from_folder(rank_folder(tmp_path / "q", table, tokenizer_class="QWenTokenizer"))
    assert qwen.encode("<|endoftext|><|im_start|><|im_end|><|extra_204|>") == [
        *range(first, first + 3),
        first + 207,
    ]
    listed = {str(first + 2): {"content": "<|im_end|>", "special": True}}
    config = {
        "tokenizer_class": "TikTokenTokenizer",
        "added_tokens_decoder": listed,
        "eos_token": "<|im_end|>",
    }
    kimi = tokenizer_from_folder(rank_folder(tmp_path / "k", table, **config))
    assert kimi.vocab_size == first + 256
    assert kimi.end_ids == {first + 2}
    assert kimi.encode(f"<|im_end|><|reserved_token_{first + 255}|>") == [first + 2, first + 255]

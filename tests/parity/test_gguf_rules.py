"""GGUF tokenizers of published families: real vocabularies, and every rule that llama.cpp names."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
from tests.parity.llama_cpp_sources import llama_cpp_sources
from tests.unit.text_samples import mixed_strings

from penjing.errors import UnsupportedError
from penjing.formats.gguf_header import read_header
from penjing.formats.mapped import MappedFile
from penjing.text.gguf_tokenizer import UNSPLIT_TAGS, tokenizer_from_gguf
from penjing.text.pretokenizers import TAGS, Rule, rule_for

# Real vocabularies, with ids of 47 texts that the families' own tokenizers gave

VOCABULARIES = (
    *("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm"),
    *("mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
)
BETWEEN = "\n__ggml_vocab_test__\n"


def metadata(file: Path) -> dict[str, Any]:
    return dict(read_header(MappedFile(file)).metadata)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_published_vocabulary_gives_the_familys_own_ids(name: str) -> None:
    file = llama_cpp_sources() / "models" / f"ggml-vocab-{name}.gguf"
    tokenizer = tokenizer_from_gguf(metadata(file))
    texts = Path(f"{file}.inp").read_text(encoding="utf-8").split(BETWEEN)
    lines = Path(f"{file}.out").read_text(encoding="utf-8").split("\n")
    expected = {text: [int(id) for id in line.split()] for text, line in zip(texts, lines, strict=False)}
    if name == "qwen35":  # letters with marks apart: llama.cpp leaves them so, the family's own joins them
        expected = {text: ids for text, ids in expected.items() if not regex.search(r"\p{Latin}\p{M}", text)}
    assert len(expected) > 40
    ids = {text: tokenizer.encode(text, add_special_tokens=False) for text in expected}
    assert ids == expected


@pytest.mark.parametrize(("name", "kind"), [("bert-bge", "bert"), ("nomic-bert-moe", "t5")])
def test_a_vocabulary_of_another_kind_is_refused_by_name(name: str, kind: str) -> None:
    file = llama_cpp_sources() / "models" / f"ggml-vocab-{name}.gguf"
    with pytest.raises(UnsupportedError, match=f"'{kind}'"):
        tokenizer_from_gguf(metadata(file))


# Rules, against the expressions in llama.cpp's source as the regex module runs them

# Families whose own tokenizer.json, which penjing follows, cuts otherwise than llama.cpp's expressions say.
OWN_RULES = frozenset({"default", "falcon", "deepseek-llm"})
# Encoders, and one kind that spells no bytes.
REFUSED = frozenset({"jina-v1-en", "jina-v2-code", "roberta-bpe", "whitespace"})
# llama.cpp runs these two as programs of its own; its comments give what they stand for.
PROGRAMS = {
    r"\p{Han}+": (
        r"[\p{Han}]+"
        r"|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    r"\p{AFMoE_digits}": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
}
# llama.cpp can't tell upper from lower case beyond ASCII; beside each shortened expression it quotes the
# original, which has these classes.
SHORTENED = {
    rf"((?=[\p{{L}}{marks}])([^{lower}]))": rf"[\p{{{case}}}\p{{Lm}}\p{{Lo}}\p{{M}}]"
    for marks in ("", r"\p{M}")
    for lower, case in (("a-z", r"Lu}\p{Lt"), ("A-Z", "Ll"))
}


@cache
def expressions() -> dict[str, tuple[str, ...]]:
    """Each tag's expressions."""
    source = (llama_cpp_sources() / "src" / "llama-vocab.cpp").read_text(encoding="utf-8")
    by_type = expressions_by_type(source[source.index("switch (vocab.get_pre_type())") :])
    chosen = source[source.index('tokenizer_pre == "default"') : source.index("unknown pre-tokenizer type")]
    tags: dict[str, tuple[str, ...]] = {}
    for branch in re.split(r"\}\s*else if", chosen):
        type_name = re.search(r"LLAMA_VOCAB_PRE_TYPE_(\w+)", branch)
        if type_name is not None:
            tags |= dict.fromkeys(re.findall(r'tokenizer_pre == "([^"]+)"', branch), by_type[type_name[1]])
    return tags


def expressions_by_type(switch: str) -> dict[str, tuple[str, ...]]:
    result = {}
    pattern = r"((?:\s*case LLAMA_VOCAB_PRE_TYPE_\w+:|\s*default:)+)(.*?)break;"
    for names, body in re.findall(pattern, switch, re.DOTALL):
        code = [line.strip() for line in body.splitlines() if not line.strip().startswith("//")]
        texts = [match[1] for line in code if (match := re.match(r'"(.*)",', line))]
        found = tuple(unescaped(text) for text in texts)
        for name in re.findall(r"PRE_TYPE_(\w+):|(default):", names):
            result["DEFAULT" if name[1] else name[0]] = found
    return result


def unescaped(text: str) -> str:
    """What a C++ string literal holds."""
    controls = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(r"\\(.)", lambda match: controls.get(match[1], match[1]), text)


def cut(text: str, patterns: list[Any]) -> list[str]:
    parts = [text]
    for pattern in patterns:
        parts = [piece for part in parts for piece in cut_once(part, pattern)]
    return parts


def cut_once(part: str, pattern: Any) -> list[str]:
    edges = sorted({0, len(part), *(edge for match in pattern.finditer(part) for edge in match.span())})
    return [part[start:end] for start, end in pairwise(edges)]


def compiled(expression: str) -> Any:
    expression = PROGRAMS.get(expression, expression)
    for shortened, original in SHORTENED.items():
        expression = expression.replace(shortened, original)
    return regex.compile(expression, regex.V1 if "&&" in expression else regex.V0)


# Where the engines know different editions of Unicode, or differ on what ends a word.
DISPUTED = regex.compile(r"[²³½¼\U00010000-\U0001f000]")


@cache
def texts() -> list[str]:
    undisputed = [text for text in mixed_strings() if not DISPUTED.search(text)]
    blanks = "a" + " " * 700 + "b"
    return [*undisputed, blanks, "12345678901 1234 12 1", "Don'T I'LL", "naïve ÉaÀB cÉd", "\n\n \n a"]


@cache
def cut_by_expressions(expressions: tuple[str, ...]) -> list[list[str]]:
    patterns = [compiled(expression) for expression in expressions]
    return [cut(text, patterns) for text in texts()]


@cache
def cut_by_rule(rule: Rule) -> list[list[str]]:
    build = rule.pre_tokenizer()
    return [[text[start:end] for _, (start, end) in build.pre_tokenize_str(text)] for text in texts()]


@pytest.mark.parametrize("tag", sorted(TAGS - OWN_RULES))
def test_a_rule_cuts_text_as_the_published_expressions_do(tag: str) -> None:
    assert len(texts()) > 700
    pairs = zip(cut_by_rule(rule_for(tag)), cut_by_expressions(expressions()[tag]), strict=True)
    assert [ours for ours, theirs in pairs if ours != theirs] == []


def test_every_rule_that_llama_cpp_names_is_known_or_refused() -> None:
    assert set(expressions()) == TAGS | UNSPLIT_TAGS | REFUSED


@pytest.mark.parametrize("tag", sorted(REFUSED))
def test_a_rule_that_isnt_known_is_refused_by_name(tag: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{tag}'"):
        rule_for(tag)

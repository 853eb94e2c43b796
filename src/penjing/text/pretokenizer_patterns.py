"""The regular expressions of published byte-level BPE tokenizers (Oniguruma syntax), by family."""

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(
    letters: str, marks: str, digits: str, contraction: str = f"{_CONTRACTION}|", blanks: str = _BLANKS
) -> str:
    """Contractions, words with a sign before them, numbers, other signs, blanks (OpenAI's cl100k form)."""
    return (
        rf"{contraction}[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}"
        rf"| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{blanks}"
    )


def _cased_words(suffix: str, digits: str, but: str = "", after_signs: str = r"[\r\n/]*") -> str:
    """Words also cut where case changes (OpenAI's o200k form); `but` takes letters out of them."""
    upper, lower = (
        rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]",
        rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]",
    )
    before = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{before}{upper}*{lower}+{suffix}|{before}{upper}+{lower}*{suffix}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+{after_signs}|{_BLANKS}"
    )


def _characters(ranges: str) -> str:
    """The inside of a character class, from code points and ranges of them in hexadecimal."""
    spans = [span.partition("-") for span in ranges.split()]
    return "".join(
        chr(int(low, 16)) + dash + (chr(int(high, 16)) if dash else "") for low, dash, high in spans
    )


LLAMA_3 = _words(r"\p{L}", "", r"\p{N}{1,3}")
QWEN_2 = _words(r"\p{L}", "", r"\p{N}")
QWEN_35 = _words(r"[\p{L}\p{M}]", r"\p{M}", r"\p{N}")
TEKKEN = _cased_words("", r"\p{N}")
GPT_4O = _cased_words(rf"{_CONTRACTION}?", r"\p{N}{1,3}")
KIMI_K2 = r"\p{Han}+|" + _cased_words(rf"{_CONTRACTION}?", r"\p{N}{1,3}", r"&&[^\p{Han}]", r"[\r\n]*")
YOUTU = _cased_words(rf"{_CONTRACTION}?", r"\p{N}")
MINICPM_5 = _words(r"\p{L}", "", r"\p{N}+")
UFAKZEKA = _words(r"\p{L}", "", r"\p{N}", contraction="")
_FEWER_BLANKS = r"\s*[\r\n]|\s+(?!\S)|\s+"
BAILING = _words(r"\p{L}", "", r"\p{N}", contraction=r"'(?i:[sdmt]|ll|ve|re)|", blanks=_FEWER_BLANKS)
_HALVED = "|".join(rf"\s{{{2**n}}}(?!\S)" for n in range(9, 1, -1))
JAIS_2 = _words(r"\p{L}", "", r"\p{N}{1,3}", blanks=rf"\s*[\r\n]+|{_HALVED}|\s{{1,2}}(?!\S)|\s{{1}}")
SEED_CODER = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}"
EXAONE_MOE = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|{_FEWER_BLANKS}"
)
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"  # noqa: RUF001

# Digits in threes from the right end.
THREES = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
THREES_IN_WORDS = r"\d{1,3}(?=(?:\d{3})*\b)"
THREES_BY_PLACE = r"(?=(\d{3})+(?!\d))"

CJK = f"[{_characters('4e00-9fa5 0800-4e00 ac00-d7ff')}]+"

# The cased letters of the Unicode version that DeepSeek's first tokenizers were made with.
_CASED_LETTERS = """
    41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386
    388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba
    1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59
    1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec
    1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139
    213c-213f 2145-2149 214e 2183 2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b
    a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f
    104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
"""
DEEPSEEK_LLM_LETTERS = rf"\s?[{_characters(_CASED_LETTERS)}]+"
DEEPSEEK_LLM_PUNCTUATION = rf"\s?[!-/:-~{_characters('ff01-ff0f ff1a-ff5e 2018-201f 3000-3002')}]+"

DEEPSEEK3_CJK = f"[{_characters('4e00-9fa5 3040-309f 30a0-30ff')}]+"
_DEEPSEEK3_LETTERS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
DEEPSEEK3_WORDS = rf"{_DEEPSEEK3_LETTERS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}"
SPARK_WORDS = rf"{_DEEPSEEK3_LETTERS}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+"

_AFMOE_SCRIPTS = """
    4e00-9fff 3400-4dbf 8c48-faff 3040-309f 30a0-30ff ff65-ff9f 2f00-2fdf 0e40-0e7f 0e80-0eff 1780-17ff
    1000-109f aa60-aa7f a9e0-a9ff ac00-d7af 1100-11ff
"""
AFMOE_SCRIPTS = f"[{_characters(_AFMOE_SCRIPTS)}]+"
YOUTU_SCRIPTS = "|".join(
    f"[{_characters(ranges)}]+"
    for ranges in (
        "ac00-d7a3 3131-318e",
        "ff01 2026 201c 201d 2018 2019 2014 ff1a ff1b ff0c 3001-303f fe30-fe4f",
        "3105-312f",
        "4e00-9fa5 3040-309f 30a0-30ff",
    )
)
CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
)

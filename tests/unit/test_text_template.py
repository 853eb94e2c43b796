"""Chat templates: equal to transformers' rendering, and errors in one sentence."""

from typing import Any

import pytest
from tests.unit.text_samples import CHAT_TEMPLATE, byte_level_backend
from transformers import PreTrainedTokenizerFast

from penjing.errors import InputError
from penjing.text.template import choose_template, render

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Wetter für <b>heute</b> & morgen",
        "parameters": {"type": "object", "properties": {"ort": {"type": "string"}}},
    },
}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Kurz.\n"},
    {"role": "user", "content": "  Größe? <b>'x' & \"y\"</b>\n\n"},
    {
        "role": "assistant",
        "content": None,
        "reasoning": "hm",
        "tool_calls": [
            {"function": {"name": "weather", "arguments": {"ort": "Köln", "n": [1, 2.5, True, None]}}}
        ],
    },
    {"role": "tool", "content": "12 °C"},
]
TEMPLATES = {
    "roles": CHAT_TEMPLATE,
    "blocks and blanks": """
{%- for m in messages %}
    {% if m.role == 'system' %}
    [{{ m.content | trim }}]
    {% endif %}
  {{- m['content'] if m.content }}
{% endfor %}
{# a comment #}
""",
    "tojson": (
        "{{ tools | tojson }}|{{ tools | tojson(indent=2) }}|{{ messages[2].tool_calls | tojson }}"
        "|{{ tools | tojson(ensure_ascii=True, separators=(',', ':'), sort_keys=True) }}"
    ),
    "loop controls": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}"
        "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}"
    ),
    "generation tag": (
        "{% for m in messages %}{% generation %}{{ m.content }}\n{% endgeneration %}{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}"
    ),
    "namespaces, dicts and macros": (
        "{% set ns = namespace(n=0, last='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% set ns.last = m.role %}{% endfor %}{{ ns.n }}{{ ns.last }}{{ dict(a=1)['a'] }}"
        "{% macro tag(x) %}<{{ x }}>{% endmacro %}{{ tag(eos_token) }}"
    ),
    "missing and empty names": (
        "{{ nothing }}{{ unk_token }}{% if tools is defined %}T{% endif %}{% if not documents %}D{% endif %}"
        "{% if messages[2].content is defined %}C{% endif %}{{ messages[2].reasoning_content }}"
        "{{ messages[2].thinking }}{{ enable_thinking }}"
    ),
    "dates": "{{ strftime_now('%Y') }}",
}


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level_backend(), bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, [WEATHER]], ids=["no tools", "tools"])
@pytest.mark.parametrize("prompt", [True, False])
def test_rendering_equals_transformers(
    name: str, tools: list[Any] | None, prompt: bool, reference: PreTrainedTokenizerFast
) -> None:
    expected = reference.apply_chat_template(
        CHAT,
        tools=tools,
        chat_template=TEMPLATES[name],
        tokenize=False,
        add_generation_prompt=prompt,
        enable_thinking=False,
    )
    variables = {"bos_token": "<s>", "eos_token": "</s>", "enable_thinking": False}
    assert render(TEMPLATES[name], CHAT, tools, prompt, variables) == expected


def test_rendering_changes_no_message() -> None:
    chat = [{"role": "user", "content": "x", "extra": None, "thinking": "y"}]
    render(CHAT_TEMPLATE, chat)
    assert chat == [{"role": "user", "content": "x", "extra": None, "thinking": "y"}]


@pytest.mark.parametrize(
    "attempt",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ namespace(__class__=1) }}",
        "{{ ('a' | attr('__class__')).x }}",
        "{{ strftime_now.__globals__['json'] }}",
    ],
)
def test_a_template_that_reaches_for_pythons_insides_is_stopped(attempt: str) -> None:
    with pytest.raises(InputError, match=r"chat template"):
        render(attempt, [{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{% for m in messages %}\n{{ m.content }", "broken at line 2"),
        ("{{ raise_exception('roles must alternate') }}", "refuses this chat: roles must alternate"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{% include 'x' %}", "chat template"),
        ("{{ range(10 ** 9) | list }}", "chat template"),
    ],
)
def test_a_template_that_fails_gives_one_sentence(template: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        render(template, [{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "chat is empty"),
        ("hello", "A chat is a list"),
        ({"role": "user", "content": "x"}, "A chat is a list"),
        (["hello"], "Message 1 is str"),
        ([{"role": "user", "content": "x"}, {"content": "x"}], "Message 2 has no role"),
        ([{"role": 1, "content": "x"}], "Message 1 has no role"),
        ([{"role": "user"}], "Message 1 has no content"),
        ([{"role": "user", "content": 5}], "type int"),
        ([{"role": "user", "content": ["x"]}], 'with a "type"'),
        ([{"role": "user", "content": object()}], "no JSON value"),
    ],
)
def test_a_malformed_message_is_named(messages: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        render(CHAT_TEMPLATE, messages)


def test_of_several_templates_default_is_used_and_tool_use_for_tools() -> None:
    assert choose_template({"default": "d", "rag": "r"}) == "d"
    assert choose_template({"default": "d", "rag": "r"}, with_tools=True) == "d"
    assert choose_template({"default": "d", "tool_use": "t"}, with_tools=True) == "t"
    with pytest.raises(InputError, match=r"\(a, b\) is named default"):
        choose_template({"b": "", "a": ""})

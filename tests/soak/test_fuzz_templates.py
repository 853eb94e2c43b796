"""Whatever a chat template says, a chat is rendered or clearly refused, and nothing outside is touched."""

from hypothesis import given
from hypothesis import strategies as st
from tests.soak.fuzzing import anything, keep_trying, nothing_but_clear_refusals, soak

from penjing.text.template import render

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "{{ 7 * 7 }} {% raw %} <|im_end|>"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
    },
    {"role": "tool", "content": "2"},
]
NAMES = (
    *("messages", "message", "message.content", "message['role']", "loop.index0", "tools", "bos_token"),
    *("namespace(x=1)", "messages[0]", "messages[-1:]", "[1, 2]", "'text'", "3", "none", "undefined_name"),
    *(
        "''.__class__",
        "messages.append",
        "cycler.__init__",
        "self",
        "range(9)",
        "raise_exception('no')",
        "ns.x",
    ),
)
names = st.sampled_from(NAMES)
filters = st.sampled_from(["trim", "tojson", "length", "upper", "join", "items", "first", "int", "attr('x')"])
expressions = st.recursive(
    names,
    lambda inner: st.one_of(
        st.tuples(inner, filters).map(lambda pair: f"{pair[0]} | {pair[1]}"),
        st.tuples(inner, st.sampled_from(["+", "==", "in", "and", "~", "%"]), inner).map(" ".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]})[{pair[1]}]"),
        inner.map(lambda text: f"({text} is defined)"),
    ),
    max_leaves=4,
)
pieces = st.recursive(
    st.one_of(st.text(max_size=8), expressions.map(lambda text: "{{ " + text + " }}")),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(expressions, inner).map(lambda p: "{% if " + p[0] + " %}" + p[1] + "{% endif %}"),
        inner.map(lambda text: "{% for message in messages %}" + text + "{% endfor %}"),
        inner.map(lambda text: "{% set ns = namespace(x=0) %}" + text),
        inner.map(lambda text: "{% generation %}" + text + "{% endgeneration %}"),
        inner.map(lambda text: "{% macro m(a) %}" + text + "{% endmacro %}{{ m(1) }}"),
    ),
    max_leaves=6,
)


@keep_trying(2 / 3)
@soak
@given(pieces, st.booleans())
def test_a_template_of_any_parts(source: str, add_generation_prompt: bool):
    with nothing_but_clear_refusals():
        text = render(source, CHAT, add_generation_prompt=add_generation_prompt)
        assert isinstance(text, str) and "<class" not in text


@keep_trying(1 / 3)
@soak
@given(st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name"]), anything)))
def test_messages_of_any_form(messages: list[dict]):
    with nothing_but_clear_refusals():
        render("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m | tojson }}{% endfor %}", messages)

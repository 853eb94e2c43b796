"""Chat templates: untrusted jinja programs that come with a model, run in a sandbox as transformers does."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import Undefined, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from penjing.errors import InputError

# Newer templates read a message's reasoning from the first name, older ones and other APIs use the rest.
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


def choose_template(templates: Mapping[str, str], with_tools: bool = False) -> str:
    """Which of a model's named templates to use: "tool_use" for tools if there is one, else "default"."""
    if with_tools and "tool_use" in templates:
        return templates["tool_use"]
    if "default" in templates:
        return templates["default"]
    if templates:
        names = ", ".join(sorted(templates))
        raise InputError(
            f"None of this model's chat templates ({names}) is named default, so none can be chosen."
        )
    raise InputError(
        "This is a base model: it has no chat template and so no chat format. Give it raw text to continue "
        "(penjing chat --raw, or Tokenizer.prompt_ids)."
    )


def render(
    source: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """The text of a chat, byte for byte what transformers' `apply_chat_template(tokenize=False)` returns.

    `variables` are further names for the template (`bos_token`, `documents`, `enable_thinking`, ...). Raises
    InputError for malformed messages and for whatever goes wrong inside the template.
    """
    names = {"documents": None, **(variables or {})}
    chat = [_message(message, n) for n, message in enumerate(_checked_messages(messages))]
    template = _compiled(source)
    try:
        return template.render(
            messages=chat,
            tools=_plain(tools, "tools"),
            add_generation_prompt=add_generation_prompt,
            **{name: _plain(value, name) for name, value in names.items()},
        )
    except InputError:
        raise
    except jinja2.exceptions.SecurityError as error:
        raise InputError(
            f"The model's chat template tries something unsafe and was stopped: {error}."
        ) from error
    except jinja2.exceptions.TemplateError as error:
        raise InputError(f"The model's chat template refuses this chat: {error}.") from error
    except Exception as error:  # a template is a program of someone else's: it may fail in any way
        raise InputError(
            f"The model's chat template can't render this chat ({type(error).__name__}: {error}); "
            "look at roles, contents and tools."
        ) from error


@lru_cache(maxsize=32)
def _compiled(source: str) -> jinja2.Template:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    environment.globals["dict"] = _DictMaker()
    environment.globals["namespace"] = _SafeNamespace
    try:
        return environment.from_string(source)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise InputError(
            f"The model's chat template is broken at line {error.lineno}: {error.message}."
        ) from error
    except (SyntaxError, RecursionError) as error:
        raise InputError(f"The model's chat template can't be compiled: {error}.") from error


class _Sandbox(ImmutableSandboxedEnvironment):
    """jinja's sandbox, except that unsafe access is an error rather than an empty value."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise jinja2.exceptions.SecurityError(f"{attribute!r} of a {type(obj).__name__} is out of bounds")


class _GenerationTag(Extension):
    """`{% generation %}` marks what the model itself says, for training masks; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> str:
        return caller()


class _DictMaker:
    """`dict(...)` for templates without handing them the class itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _SafeNamespace(Namespace):
    """`namespace(...)` that takes no underscore names, which lead to Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            _refuse_underscore(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        Namespace.__setitem__(self, name, value)


def _refuse_underscore(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace can't hold {name!r}")


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja's own filter escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _checked_messages(messages: Any) -> Sequence[Any]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InputError("A chat is a list of messages, each with a role and a content.")
    if not messages:
        raise InputError("The chat is empty; give at least one message.")
    return messages


def _message(message: Any, index: int) -> dict[str, Any]:
    """One message as the template sees it: plain data, no keys without a value, reasoning under each name."""
    what = f"Message {index + 1}"
    if not isinstance(message, Mapping):
        raise InputError(
            f"{what} is {type(message).__name__}; it should be an object with a role and a content."
        )
    plain = {key: _plain(value, f"{what}'s {key}") for key, value in message.items() if value is not None}
    if not isinstance(plain.get("role"), str) or not plain["role"]:
        raise InputError(f"{what} has no role; give one, such as system, user or assistant.")
    content = plain.get("content")
    if content is None and len(plain) == 1:
        raise InputError(f"{what} has no content; give its text.")
    if isinstance(content, list):
        _require_parts(content, what)
    elif content is not None and not isinstance(content, str):
        raise InputError(f"{what} has a content of type {type(content).__name__}; it should be text.")
    reasoning = next((plain[key] for key in _REASONING_KEYS if key in plain), None)
    if reasoning is None:
        return plain
    return {"thinking": reasoning, **plain, "reasoning_content": reasoning}


def _require_parts(parts: list[Any], what: str) -> None:
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
        raise InputError(f'{what} has a list as content; each part of it should be an object with a "type".')


def _plain(value: Any, what: str) -> Any:
    """A copy made of JSON's types alone: no object with methods ever meets the template."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key, what): _plain(item, what) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, what) for item in value]
    raise InputError(f"{what} holds a {type(value).__name__}, which is no JSON value.")

"""Named chat templates of a Hugging Face folder, from every place that may hold them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penjing.errors import InputError
from penjing.formats.json_file import read_json
from penjing.formats.quote import quote
from penjing.text.folder_files import TOKENIZER_CONFIG, read_text

_FILE = "chat_template.jinja"
_JSON_FILE = "chat_template.json"
_MORE = "additional_chat_templates"


def folder_templates(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Jinja sources by name ("default" is the one for chats), and what to tell about them.

    `chat_template.jinja` and `additional_chat_templates/NAME.jinja` outrank `chat_template.json`, which
    outranks the `chat_template` of `tokenizer_config.json`.
    """
    found = [_inline(config.get("chat_template"), TOKENIZER_CONFIG), _json(path), _files(path)]
    templates: dict[str, str] = {}
    origins: dict[str, str] = {}
    notices = []
    for origin, more in zip((TOKENIZER_CONFIG, _JSON_FILE, ""), found, strict=True):
        for name, source in more.items():
            place = origin or (_FILE if name == "default" else f"{name}.jinja")
            if templates.get(name, source) != source:
                notices.append(f"The chat template is taken from {place}; {origins[name]} has another one.")
            templates[name], origins[name] = source, place
    others = sorted(templates.keys() - {"default"})
    if others:
        notices.append(f"Chat templates besides the default one: {', '.join(others)}.")
    return templates, notices


def _files(path: Path) -> dict[str, str]:
    files = {"default": path / _FILE} if (path / _FILE).is_file() else {}
    files |= {file.stem: file for file in sorted((path / _MORE).glob("*.jinja"))}
    return {name: read_text(file) for name, file in files.items()}


def _json(path: Path) -> dict[str, str]:
    if not (path / _JSON_FILE).is_file():
        return {}
    return _inline(read_json(path / _JSON_FILE).get("chat_template"), _JSON_FILE)


def _inline(value: Any, place: str) -> dict[str, str]:
    if value is None:
        return {}
    entries = value if isinstance(value, list) else [{"name": "default", "template": value}]
    templates = {}
    for entry in entries:
        name, template = (
            (entry.get("name"), entry.get("template")) if isinstance(entry, Mapping) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(template, str):
            raise InputError(
                f"chat_template in {place} should be text, or a list of objects with a name and a template; "
                f"it holds {quote(entry)}."
            )
        templates[name] = template
    return templates

"""`penjing show`: what a model is, from its headers alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penjing.cli.options import DebugOption, JsonOption, ModelArgument, ThreadsOption
from penjing.cli.session import session
from penjing.cli.wording import listing, megabytes, millions
from penjing.formats.locate import find

if TYPE_CHECKING:
    from penjing.model.bridge.plan import BridgedConfig
    from penjing.model.config import ModelConfig
    from penjing.model.opening import OpenedModel


def show(
    model: ModelArgument, json: JsonOption = False, debug: DebugOption = False, threads: ThreadsOption = None
) -> None:
    """Say what a model is. Its shape, size, storage, tokenizer and oddities; no weights are loaded."""
    with session(json, debug, threads) as this:
        this.doing = f"reading {model}"
        located = find(model)
        from penjing.model.opening import open_located

        opened = open_located(located)
        facts = _facts(opened)
        this.result(facts, _as_text(facts))


def _facts(opened: OpenedModel) -> dict[str, Any]:
    """Everything that is shown, under the keys of `--json`. Sizes are in bytes, each window in tokens."""
    from penjing.memory import available_memory
    from penjing.model.language_model import NO_LIMIT
    from penjing.model.ledger import base_bytes, load_bytes, plan_ledger

    plan, tokenizer = opened.plan, opened.tokenizer
    ledger, config = plan_ledger(plan), plan.config
    return {
        "model": opened.name,
        "format": plan.checkpoint.kind,
        "architecture": plan.architecture,
        "parameters": ledger.parameters,
        "parameters_by_group": ledger.parameters_by_group(),
        "bytes": ledger.nbytes,
        "bytes_by_storage": ledger.bytes_by_kind(),
        "bits_per_weight": ledger.bits_per_weight,
        "base_bytes": base_bytes(ledger),
        "memory_needed": load_bytes(plan),
        "memory_free": available_memory(),
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        **_inside(config),
        "context": None if config.max_position_embeddings == NO_LIMIT else config.max_position_embeddings,
        "vocab_size": config.vocab_size,
        "tied_head": config.tie_word_embeddings,
        "tokenizer": {
            "kind": type(tokenizer.backend.model).__name__,
            "tokens": tokenizer.vocab_size,
            "begin": tokenizer.special_tokens.get("bos_token"),
            "adds_begin": tokenizer.add_bos,
            "ends": [tokenizer.backend.id_to_token(token) for token in sorted(tokenizer.end_ids)],
        },
        "chat_template": tokenizer.chat_template is not None,
        "notices": list(opened.notices),
    }


def _inside(config: ModelConfig | BridgedConfig) -> dict[str, Any]:
    """What the layers are made of; null for a model that transformers computes."""
    from penjing.model.bridge.plan import BridgedConfig

    made = None if isinstance(config, BridgedConfig) else config
    return {
        "intermediate_size": made and made.intermediate_size,
        "attention_heads": made and made.num_attention_heads,
        "key_value_heads": made and made.num_key_value_heads,
        "head_dim": made and made.head_dim,
        "windows": made and list(made.windows),
        "attention": made and _attention(made),
        "positions": made and made.positions,
        "rope": made and _rope(made),
        "experts": asdict(made.experts) if made and made.experts else None,
        "latent": asdict(made.latent) if made and made.latent else None,
    }


def _rope(config: ModelConfig) -> dict[str, Any] | None:
    """The rotation, with what it turns and where it is absent."""
    from penjing.model.rope_config import rope_to_hf

    if config.positions != "rotary":
        return None
    rope = rope_to_hf(config.rope) | {"rotary_dim": config.rotated}
    if config.local_rope is not None:
        rope["in_windowed_layers"] = rope_to_hf(config.local_rope)
    if config.rotary_layers is not None:
        rope["layers_without"] = [i for i, turned in enumerate(config.rotary_layers) if not turned]
    return rope


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


def _attention(config: ModelConfig) -> str:
    """The layers' kinds in words: "full in 6 layers, a window of 4096 tokens in 24"."""
    kinds = Counter(config.windows)
    return ", ".join(
        f"{'full' if window is None else f'a window of {window} tokens'} in {_layers(count)}"
        for window, count in kinds.items()
    )


def _as_text(facts: dict[str, Any]) -> str:
    groups = ", ".join(f"{name} {millions(n)}" for name, n in facts["parameters_by_group"].items())
    kinds = ", ".join(f"{name} {megabytes(n)}" for name, n in facts["bytes_by_storage"].items())
    head = "tied to the embedding" if facts["tied_head"] else "a matrix of its own"
    lines = [
        ("model", facts["model"]),
        ("architecture", f"{facts['architecture']}, from {_FORMATS[facts['format']]}"),
        ("parameters", f"{millions(facts['parameters'])}: {groups}"),
        ("size", f"{megabytes(facts['bytes'])}, {facts['bits_per_weight']:.2f} bits per weight: {kinds}"),
        ("base", f"{megabytes(facts['base_bytes'])}, which a shrunk version is held against"),
        (
            "to load",
            f"{megabytes(facts['memory_needed'])} of memory, {megabytes(facts['memory_free'])} are free",
        ),
        *_layers_text(facts),
        ("context", "without a limit" if facts["context"] is None else f"{facts['context']} tokens"),
        ("head", f"{facts['vocab_size']} rows, {head}"),
        ("tokenizer", _tokenizer_text(facts["tokenizer"])),
        ("chat template", "yes" if facts["chat_template"] else "none: a base model, it completes raw text"),
    ]
    return "\n".join([listing(lines), *(f"note: {notice}" for notice in facts["notices"])])


_FORMATS = {"hf": "a Hugging Face folder", "gguf": "a GGUF file"}


def _layers_text(facts: dict[str, Any]) -> list[tuple[str, str]]:
    layers = f"{facts['layers']}, {facts['hidden_size']} wide"
    if facts["attention"] is None:
        return [("layers", f"{layers}; made and computed by transformers")]
    heads = f"{facts['attention_heads']} for queries, {facts['key_value_heads']} for keys and values"
    return [
        ("layers", f"{layers}, feed-forward {facts['intermediate_size']}"),
        ("heads", f"{heads}, each {facts['head_dim']} wide{_latent_text(facts['latent'])}"),
        ("attention", facts["attention"]),
        ("positions", _positions_text(facts)),
        *_experts_text(facts["experts"]),
    ]


def _latent_text(latent: dict[str, Any] | None) -> str:
    if latent is None:
        return ""
    return f"; values {latent['value_dim']}, all from {latent['kv_rank']} numbers a token (latent attention)"


_POSITIONS = {"learned": "a learned vector each", "alibi": "none; scores fall with the distance (ALiBi)"}


def _positions_text(facts: dict[str, Any]) -> str:
    rope = facts["rope"]
    if rope is None:
        return _POSITIONS[facts["positions"]]
    aside = ("rope_type", "rotary_dim", "in_windowed_layers", "layers_without")
    shown = [_setting(name, value) for name, value in rope.items() if name not in aside]
    if rope["rotary_dim"] != facts["head_dim"]:
        shown.append(f"{rope['rotary_dim']} of {facts['head_dim']} values a head")
    if "in_windowed_layers" in rope:
        shown.append(f"rope_theta {rope['in_windowed_layers']['rope_theta']:g} in windowed layers")
    if "layers_without" in rope:
        shown.append(f"none in {_layers(len(rope['layers_without']))}")
    return f"rotary, {rope['rope_type']}: {', '.join(shown)}"


def _setting(name: str, value: Any) -> str:
    return f"{name} {f'{len(value)} values' if isinstance(value, list) else f'{value:g}'}"


def _experts_text(experts: dict[str, Any] | None) -> list[tuple[str, str]]:
    if experts is None:
        return []
    text = f"{experts['count']}, {experts['intermediate_size']} wide, of which {experts['per_token']} a token"
    text += f", in {_layers(sum(experts['layers']))}"
    if experts["shared_size"]:
        text += f"; and one {experts['shared_size']} wide for every token"
    return [("experts", text)]


def _tokenizer_text(tokenizer: dict[str, Any]) -> str:
    begin = tokenizer["begin"]
    begins = "nothing" if begin is None or not tokenizer["adds_begin"] else begin
    ends = " ".join(tokenizer["ends"]) or "no token"
    kind = f"{tokenizer['kind']}, {tokenizer['tokens']} tokens"
    return f"{kind}; puts {begins} before a text; an answer ends at {ends}"

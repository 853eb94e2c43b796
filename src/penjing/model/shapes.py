"""Name and shape of every tensor that a decoder has, from its config alone: plain integers, so that a file
can be checked, and its bytes counted, without torch.

The order is that of the module's own state dict, which a test holds it to.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from penjing.model.config import ExpertsConfig, LatentConfig, ModelConfig

Shape = tuple[int, ...]
Named = Iterator[tuple[str, Shape]]


@lru_cache(maxsize=4)
def tensor_shapes(config: ModelConfig) -> Mapping[str, Shape]:
    """Every tensor of the float model; matrices are (outputs, inputs)."""
    return dict(_decoder(config))


def matrix_shapes(config: ModelConfig) -> dict[str, Shape]:
    """The matrices that can be packed, under their modules' names: linears and embeddings. Routers and
    learned positions stay floats: they are small, and an error in them does great harm."""
    return {
        name.removesuffix(".weight"): shape
        for name, shape in tensor_shapes(config).items()
        if len(shape) == 2
        and 0 not in shape
        and not name.endswith(("mlp.gate.weight", "embed_positions.weight"))
    }


def _decoder(config: ModelConfig) -> Named:
    width = config.hidden_size
    yield "model.embed_tokens.weight", (config.vocab_size, width)
    if config.positions == "learned":
        rows = config.max_position_embeddings + config.position_offset
        yield "model.embed_positions.weight", (rows, width)
    if config.embedding_norm:
        yield from _norm("model.embed_norm", width, config)
    for i in range(config.num_hidden_layers):
        yield from _block(f"model.layers.{i}", i, config)
    yield from _norm("model.norm", width, config)
    if not config.tie_word_embeddings:
        yield from _linear("lm_head", config.vocab_size, width, config.head_bias)


def _block(name: str, layer: int, config: ModelConfig) -> Named:
    width = config.hidden_size
    if config.pre_norm:
        yield from _norm(f"{name}.input_layernorm", width, config)
    yield from _attention(f"{name}.self_attn", config)
    if config.post_norm:
        yield from _norm(f"{name}.post_self_attn_layernorm", width, config)
    if config.pre_norm and config.parallel != "one norm":
        yield from _norm(f"{name}.post_attention_layernorm", width, config)
    if config.has_experts(layer):
        assert config.experts
        yield from _experts(f"{name}.mlp", config.experts, config)
    else:
        yield from _mlp(f"{name}.mlp", config.intermediate_size, config.mlp_bias, config)
    if config.post_norm:
        yield from _norm(f"{name}.post_mlp_layernorm", width, config)


def _attention(name: str, config: ModelConfig) -> Named:
    if config.attention_sinks:
        yield f"{name}.sinks", (config.num_attention_heads,)
    if config.latent:
        yield from _latent_projections(name, config.latent, config)
    else:
        yield from _projections(name, config)
    mixed = config.num_attention_heads * config.value_head_dim
    yield from _linear(f"{name}.o_proj", config.hidden_size, mixed, config.o_bias)


def _projections(name: str, config: ModelConfig) -> Named:
    queries, keys = (
        heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads)
    )
    for leaf, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        yield from _linear(f"{name}.{leaf}", rows, config.hidden_size, config.qkv_bias)
    if config.qk_norm:
        yield from _qk_norm(f"{name}.q_norm", queries, config)
        yield from _qk_norm(f"{name}.k_norm", keys, config)


def _qk_norm(name: str, width: int, config: ModelConfig) -> Named:
    if config.qk_norm == "each head":
        for head in range(width // config.head_dim):
            yield f"{name}.{head}.weight", (config.head_dim,)
    else:
        yield from _norm(name, config.head_dim if config.qk_norm == "head" else width, config)


def _latent_projections(name: str, latent: LatentConfig, config: ModelConfig) -> Named:
    heads, width = config.num_attention_heads, config.hidden_size
    queries = heads * (latent.nope_dim + latent.rope_dim)
    if latent.q_rank is None:
        yield f"{name}.q_proj.weight", (queries, width)
    else:
        yield from _linear(f"{name}.q_a_proj", latent.q_rank, width, config.qkv_bias)
        yield from _norm(f"{name}.q_a_layernorm", latent.q_rank, config)
        yield f"{name}.q_b_proj.weight", (queries, latent.q_rank)
    shared = latent.kv_rank + latent.rope_dim
    yield from _linear(f"{name}.kv_a_proj_with_mqa", shared, width, config.qkv_bias)
    yield from _norm(f"{name}.kv_a_layernorm", latent.kv_rank, config)
    yield f"{name}.kv_b_proj.weight", (heads * (latent.nope_dim + latent.value_dim), latent.kv_rank)


def _mlp(name: str, inner: int, bias: bool, config: ModelConfig) -> Named:
    for leaf in ("gate_proj", "up_proj") if config.gated else ("up_proj",):
        yield from _linear(f"{name}.{leaf}", inner, config.hidden_size, bias)
    yield from _linear(f"{name}.down_proj", config.hidden_size, inner, bias)


def _experts(name: str, experts: ExpertsConfig, config: ModelConfig) -> Named:
    yield f"{name}.gate.weight", (experts.count, config.hidden_size)
    if experts.router_bias:
        yield f"{name}.gate.bias", (experts.count,)
    if experts.correction_bias:
        yield f"{name}.gate.e_score_correction_bias", (experts.count,)
    for e in range(experts.count):
        yield from _mlp(f"{name}.experts.{e}", experts.intermediate_size, experts.expert_bias, config)
    if experts.shared_size:
        yield from _mlp(f"{name}.shared_experts", experts.shared_size, config.mlp_bias, config)
    if experts.shared_gate:
        yield f"{name}.shared_expert_gate.weight", (1, config.hidden_size)


def _linear(name: str, rows: int, columns: int, bias: bool) -> Named:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)


def _norm(name: str, size: int, config: ModelConfig) -> Named:
    yield f"{name}.weight", (size,)
    if config.norm_bias:
        yield f"{name}.bias", (size,)

"""DeepSeek-V3, R1 and Kimi-K2: DeepSeek-V2's attention, and experts chosen by sigmoids with a correction that
balances them."""

from penjing.model.config import ExpertsConfig, ModelConfig
from penjing.model.families.common import read_experts
from penjing.model.families.deepseek_v2 import read_expert_layers, read_latent_shape, read_shared_size
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_latent_shape(config)
    return ModelConfig(**shape, experts=read_routed_experts(config, shape["num_hidden_layers"]))


def read_routed_experts(config: ForeignConfig, layers: int) -> ExpertsConfig:
    """Routing without an auxiliary loss, arXiv 2408.15664."""
    config.expect("topk_method", "noaux_tc")
    config.expect("scoring_func", "sigmoid")
    config.ignore("aux_loss_alpha", "seq_aux", "ep_size")  # of training and deployment
    config.ignore("num_nextn_predict_layers")  # such layers are passed over
    return read_experts(
        config,
        "n_routed_experts",
        read_expert_layers(config, layers),
        scoring="sigmoid",
        normalize=config.flag("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 1.0),
        groups=config.integer("n_group", 1),
        groups_per_token=config.integer("topk_group", 1),
        group_top=2,
        correction_bias=True,
        shared_size=read_shared_size(config),
    )


FAMILY = Family(("deepseek_v3", "kimi_k2"), "DeepseekV3ForCausalLM", read)

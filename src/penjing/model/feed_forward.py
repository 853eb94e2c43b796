"""The feed-forward half of a block: one net, or a mixture of experts.

Shapes: B rows, L tokens, T = B·L tokens, D hidden_size, E experts, K experts a token, G groups of experts.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from penjing.model.config import ExpertsConfig, ModelConfig

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
}


class MLP(nn.Module):
    """A feed-forward net; gated as in arXiv 2002.05202, or plain."""

    def __init__(self, config: ModelConfig, inner: int, bias: bool) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.gate_proj = nn.Linear(hidden, inner, bias=bias) if config.gated else None
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)
        self.activation = _ACTIVATIONS[config.hidden_act]
        self.limit = config.swiglu_limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(x)))
        gate, up = self.gate_proj(x), self.up_proj(x)
        if self.limit is not None:  # gpt-oss: both are clamped, and the linear half is moved by one
            gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit) + 1
        return self.down_proj(self.activation(gate) * up)


class Router(nn.Module):
    """Which experts a token goes to, and how much each counts."""

    def __init__(self, config: ModelConfig, experts: ExpertsConfig) -> None:
        super().__init__()
        self.config = experts
        self.weight = nn.Parameter(torch.empty(experts.count, config.hidden_size))
        self.bias = nn.Parameter(torch.empty(experts.count)) if experts.router_bias else None
        self.e_score_correction_bias = (
            nn.Parameter(torch.empty(experts.count)) if experts.correction_bias else None
        )

    def forward(self, x_TD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Experts (T, K) int64 and their weights (T, K) float32."""
        config = self.config
        logits_TE = F.linear(x_TD.float(), self.weight.float(), self.bias)
        scores_TE = logits_TE.sigmoid() if config.scoring == "sigmoid" else logits_TE.softmax(-1)
        experts_TK = self._preference(scores_TE).topk(config.per_token, dim=-1).indices
        weights_TK = scores_TE.gather(1, experts_TK)
        if config.normalize:
            weights_TK = weights_TK / (weights_TK.sum(-1, keepdim=True) + 1e-20)
        return experts_TK, weights_TK * config.scale

    def _preference(self, scores_TE: torch.Tensor) -> torch.Tensor:
        """What experts are chosen by: -inf outside a token's best groups."""
        config = self.config
        if self.e_score_correction_bias is not None:
            scores_TE = scores_TE + self.e_score_correction_bias
        if config.groups == 1:
            return scores_TE
        grouped_TGe = scores_TE.unflatten(-1, (config.groups, -1))
        group_scores_TG = grouped_TGe.topk(config.group_top, dim=-1).values.sum(-1)
        best_TG = group_scores_TG.topk(config.groups_per_token, dim=-1).indices
        chosen_TG = torch.zeros_like(group_scores_TG, dtype=torch.bool).scatter(1, best_TG, True)
        return grouped_TGe.masked_fill(~chosen_TG.unsqueeze(-1), float("-inf")).flatten(1)


class SparseMLP(nn.Module):
    """A mixture of experts, arXiv 1701.06538; shared experts as in arXiv 2401.06066."""

    def __init__(self, config: ModelConfig, experts: ExpertsConfig) -> None:
        super().__init__()
        self.gate = Router(config, experts)
        self.experts = nn.ModuleList(
            MLP(config, experts.intermediate_size, experts.expert_bias) for _ in range(experts.count)
        )
        self.shared_experts = (
            MLP(config, experts.shared_size, config.mlp_bias) if experts.shared_size else None
        )
        self.shared_expert_gate = (
            nn.Linear(config.hidden_size, 1, bias=False) if experts.shared_gate else None
        )

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        x_TD = x_BLD.flatten(0, -2)
        experts_TK, weights_TK = self.gate(x_TD)
        out_TD = torch.zeros_like(x_TD)
        for e in experts_TK.unique().tolist():
            tokens, slots = (experts_TK == e).nonzero(as_tuple=True)
            weights_t1 = weights_TK[tokens, slots].unsqueeze(-1).to(x_TD.dtype)
            out_TD.index_add_(0, tokens, self.experts[e](x_TD[tokens]) * weights_t1)
        if self.shared_experts is not None:
            shared_TD = self.shared_experts(x_TD)
            if self.shared_expert_gate is not None:
                shared_TD = shared_TD * self.shared_expert_gate(x_TD).sigmoid()
            out_TD = out_TD + shared_TD
        return out_TD.view_as(x_BLD)


def make_feed_forward(config: ModelConfig, layer: int) -> MLP | SparseMLP:
    """A layer's net."""
    if config.experts is not None and config.has_experts(layer):
        return SparseMLP(config, config.experts)
    return MLP(config, config.intermediate_size, config.mlp_bias)

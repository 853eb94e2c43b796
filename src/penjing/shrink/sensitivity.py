"""How much the model's answer suffers when a weight is off: one forward and one backward pass.

The labels are sampled from the model itself, so that squared gradients estimate the Fisher information, the
curvature of KL(original || shrunk) (the argument of YAQA, arXiv 2505.22988). For an error E of a matrix with
inputs x and output gradients g, the divergence per token is then about

    ½ · Σ_rc output[r] · input[c] · E[r, c]²      input[c] = E[x_c²], output[r] = E[g_r²]

which needs two vectors a matrix. Beside them, the mean squared gradient of each token is kept: an error on a
token by which nothing depends is no loss (GuidedQuant, arXiv 2505.07004).
Shapes: N passages of L tokens, T = N·L tokens, D hidden size, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from penjing.errors import PenjingError
from penjing.memory import give_back_memory
from penjing.model.decoder import Decoder
from penjing.shrink.targets import EMBEDDING, HEAD, Matrix, packable_matrices

Progress = Callable[[int, int], None]
_HEAD_SLICE = 128  # positions whose logits exist at once


@dataclass(frozen=True)
class Curvature:
    """The two vectors of one use of a matrix: `output` (rows) and `input` (columns), float32."""

    output: torch.Tensor
    input: torch.Tensor


@dataclass(frozen=True)
class Sensitivity:
    """Per matrix its uses (a tied embedding has two), E[h hᵀ] (D, D) of the final hidden states, and
    `tokens`: for each linear that every token reaches the mean squared gradient of its outputs, float32
    (T)."""

    uses: dict[str, tuple[Curvature, ...]]
    final_hidden: torch.Tensor
    tokens: dict[str, torch.Tensor]


def measure_sensitivity(
    module: Decoder, ids_NL: torch.Tensor, generator: torch.Generator, progress: Progress | None = None
) -> Sensitivity:
    """Run the model over `ids_NL` (int64), one passage at a time, and gather the curvature of every matrix.

    `generator` draws the labels. Raises `PenjingError` if a value isn't finite.
    """
    matrices = {matrix.name: matrix for matrix in packable_matrices(module)}
    sums = _Sums(module, matrices)
    with sums.listening():
        for i, ids_L in enumerate(ids_NL):
            sums.add_passage(module, ids_L.unsqueeze(0), generator)
            give_back_memory()
            if progress:
                progress(i + 1, len(ids_NL))
    return sums.result(module)


class _Sums:
    """Running sums over tokens: squared inputs and squared output gradients of each linear, and the
    head's."""

    def __init__(self, module: Decoder, matrices: dict[str, Matrix]) -> None:
        self.linears = [m for m in matrices.values() if m.role == "linear"]
        self.squared_inputs = {m.name: torch.zeros(m.columns) for m in self.linears}
        self.squared_gradients = {m.name: torch.zeros(m.rows) for m in self.linears}
        self.token_gradients: dict[str, list[torch.Tensor]] = {m.name: [] for m in self.linears}
        vocabulary, hidden = module.config.vocab_size, module.config.hidden_size
        self.embedding_gradients = torch.zeros(hidden)
        self.token_probability = torch.zeros(vocabulary)
        self.logit_curvature = torch.zeros(vocabulary)
        self.final_hidden = torch.zeros(hidden, hidden)
        self.tokens = 0
        self._module = module

    def listening(self) -> "_Hooks":
        return _Hooks(
            [self._module.get_submodule(m.name).register_forward_hook(self._hook(m)) for m in self.linears]
        )

    def _hook(self, matrix: Matrix):
        def after_forward(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            self.squared_inputs[matrix.name] += inputs[0].detach().flatten(0, -2).square().sum(dim=0)
            output.register_hook(after_backward)

        def after_backward(gradient: torch.Tensor) -> None:
            squared_tR = gradient.flatten(0, -2).square()
            self.squared_gradients[matrix.name].add_(squared_tR.sum(dim=0))
            self.token_gradients[matrix.name].append(squared_tR.mean(dim=1))

        return after_forward

    @staticmethod
    def _gradient_sum(total: torch.Tensor):
        def after_backward(gradient: torch.Tensor) -> None:
            total.add_(gradient.flatten(0, -2).square().sum(dim=0))

        return after_backward

    def add_passage(self, module: Decoder, ids_1L: torch.Tensor, generator: torch.Generator) -> None:
        positions_1L = torch.arange(ids_1L.shape[1]).unsqueeze(0)
        with torch.enable_grad():
            handle = module.model.embed_tokens.register_forward_hook(self._start_graph)
            try:
                hidden_1LD = module.hidden(ids_1L, positions_1L)
            finally:
                handle.remove()
            gradient_1LD = self._head_backward(module, hidden_1LD.detach(), generator)
            hidden_1LD.backward(gradient_1LD)
        self.tokens += ids_1L.numel()

    def _start_graph(self, _: nn.Module, __: object, output: torch.Tensor) -> torch.Tensor:
        leaf = output.detach().requires_grad_(True)
        leaf.register_hook(self._gradient_sum(self.embedding_gradients))
        return leaf

    def _head_backward(
        self, module: Decoder, hidden_1LD: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Gradient of the sampled labels' loss with respect to the hidden states, a slice of positions at a
        time."""
        hidden_TD = hidden_1LD.flatten(0, 1)
        self.final_hidden.addmm_(hidden_TD.T, hidden_TD)
        pieces = []
        for hidden_tD in hidden_TD.split(_HEAD_SLICE):
            leaf_tD = hidden_tD.detach().requires_grad_(True)
            logits_tV = module.head(leaf_tD)
            probability_tV = logits_tV.detach().softmax(dim=-1)
            labels_t1 = torch.multinomial(probability_tV, 1, generator=generator)
            self.token_probability += probability_tV.sum(dim=0)
            self.logit_curvature += (probability_tV * (1 - probability_tV)).sum(dim=0)
            residual_tV = probability_tV.scatter_add_(1, labels_t1, torch.full(labels_t1.shape, -1.0))
            pieces += torch.autograd.grad(logits_tV, leaf_tD, residual_tV)
        return torch.cat(pieces).view_as(hidden_1LD)

    def result(self, module: Decoder) -> Sensitivity:
        count = self.tokens
        uses: dict[str, tuple[Curvature, ...]] = {
            name: (Curvature(self.squared_gradients[name] / count, self.squared_inputs[name] / count),)
            for name in self.squared_inputs
        }
        final_hidden = self.final_hidden / count
        look_up = Curvature(self.token_probability / count, self.embedding_gradients / count)
        head = Curvature(self.logit_curvature / count, torch.diagonal(final_hidden).clone())
        if module.config.tie_word_embeddings:
            uses[EMBEDDING] = (look_up, head)
        else:
            uses |= {EMBEDDING: (look_up,), HEAD: (head,)}
        for name, curvatures in uses.items():
            if not all(torch.isfinite(c.output).all() and torch.isfinite(c.input).all() for c in curvatures):
                raise PenjingError(f"{name} sees values that are not finite on the calibration text")
        gradients = {name: torch.cat(parts) for name, parts in self.token_gradients.items() if parts}
        tokens = {name: squared_T for name, squared_T in gradients.items() if len(squared_T) == count}
        return Sensitivity(_with_unseen(uses), final_hidden, tokens)


def _with_unseen(uses: dict[str, tuple[Curvature, ...]]) -> dict[str, tuple[Curvature, ...]]:
    """An expert that no calibration token went to isn't worthless: it gets the mean of its layer's others."""
    filled = dict(uses)
    for name, (first, *_) in uses.items():
        if "experts." in name and not first.input.any():
            before, _, after = name.partition("experts.")
            leaf = after.partition(".")[2]
            others = [u[0] for n, u in uses.items() if n.startswith(f"{before}experts.") and n.endswith(leaf)]
            output = torch.stack([other.output for other in others]).mean(dim=0)
            filled[name] = (Curvature(output, torch.stack([o.input for o in others]).mean(dim=0)),)
    return filled


class _Hooks:
    """Hooks that are removed when the block ends."""

    def __init__(self, handles: list) -> None:
        self._handles = handles

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

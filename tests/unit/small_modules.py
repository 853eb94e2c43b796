"""Small modules of many kinds, with sharp outputs, and calibration data for them."""

import torch
from torch import nn

VOCABULARY, WIDTH = 200, 64


class RecurrentLanguageModel(nn.Module):
    """An LSTM; its head is the embedding where it is tied."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True, dropout=0.5)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return 8 * self.head(self.lstm(self.embed(ids))[0])


class StateModel(nn.Module):
    """A state that decays, as in RWKV; bare parameters, multiplied in three ways."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.decay = nn.Parameter(torch.rand(WIDTH))
        self.key = nn.Parameter(0.2 * torch.randn(WIDTH, WIDTH))
        self.value = nn.Parameter(0.2 * torch.randn(WIDTH, WIDTH))
        self.head = nn.Parameter(torch.randn(VOCABULARY, WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x_BLD = self.embed(ids)
        state_BD, states = torch.zeros(len(ids), WIDTH), []
        for x_BD in x_BLD.unbind(1):
            state_BD = state_BD * self.decay.sigmoid() + torch.tanh(x_BD @ self.key) * (x_BD @ self.value.T)
            states.append(state_BD)
        return torch.einsum("bld,vd->blv", torch.stack(states, dim=1), self.head)


class ImageClassifier(nn.Module):
    """A ViT: patches by a convolution, torch's own transformer layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=8, stride=8)
        self.positions = nn.Parameter(0.1 * torch.randn(1, 16, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x_BLD = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return 5 * self.head(self.layers(x_BLD).mean(dim=1))


class ImageToImage(nn.Module):
    """A U-Net: down, up, a skip connection, a second input, and an output that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.down = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular")
        self.time = nn.Linear(32, 64)
        self.up = nn.ConvTranspose2d(64, 32, 2, stride=2)
        self.last = nn.Conv2d(64, 3, 3, padding="same", dilation=2)

    def forward(self, images: torch.Tensor, time: torch.Tensor) -> dict[str, torch.Tensor]:
        first = self.first(images).relu()
        middle = self.middle(self.down(first).relu()) + self.time(time)[:, :, None, None]
        joined = torch.cat([self.up(middle.relu()).relu(), first], dim=1)
        return {"sample": self.last(joined)}


class Waves(nn.Module):
    """Convolutions over one dimension, one of them by groups."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv1d(8, 64, 5, padding=2, stride=2)
        self.groups = nn.Conv1d(64, 64, 3, groups=64)
        self.head = nn.Linear(64, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 5 * self.head(self.groups(self.wide(x).relu()).mean(dim=2))


class Experts(nn.Module):
    """Three-dimensional parameters: one expert after another, or all at once. The router never chooses the
    last."""

    def __init__(self, at_once: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.router = nn.Linear(WIDTH, 4)
        self.up = nn.Parameter(0.2 * torch.randn(4, WIDTH, 96))
        self.down = nn.Parameter(0.2 * torch.randn(4, WIDTH, 96))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.at_once = at_once
        with torch.no_grad():
            self.router.bias[3] = -100

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x_tD = self.embed(ids).flatten(0, 1)
        weight_tE = self.router(x_tD).softmax(dim=-1)
        y_tD = self._all(x_tD, weight_tE) if self.at_once else self._chosen(x_tD, weight_tE)
        return 5 * self.head(x_tD + y_tD).view(*ids.shape, -1)

    def _all(self, x_tD: torch.Tensor, weight_tE: torch.Tensor) -> torch.Tensor:
        up_EtF = torch.bmm(x_tD.expand(4, -1, -1), self.up).relu()
        return torch.einsum("etd,te->td", torch.bmm(up_EtF, self.down.transpose(1, 2)), weight_tE)

    def _chosen(self, x_tD: torch.Tensor, weight_tE: torch.Tensor) -> torch.Tensor:
        y_tD = torch.zeros_like(x_tD)
        for e, (up_DF, down_DF) in enumerate(zip(self.up, self.down, strict=True)):
            (t,) = (weight_tE.argmax(dim=-1) == e).nonzero(as_tuple=True)
            y_tD = y_tD.index_add(0, t, (x_tD[t] @ up_DF).relu() @ down_DF.T)
        return y_tD


def _ids() -> torch.Tensor:
    return torch.randint(VOCABULARY, (4, 24))


# By name: how the module is made, one batch for it, and how it is judged.
MODULES = {
    "an LSTM": (RecurrentLanguageModel, _ids, {}),
    "a tied LSTM": (lambda: RecurrentLanguageModel(tied=True), _ids, {}),
    "an LSTM in bfloat16": (lambda: RecurrentLanguageModel().bfloat16(), _ids, {}),
    "a state model": (StateModel, _ids, {}),
    "a ViT": (ImageClassifier, lambda: torch.randn(4, 3, 32, 32), {}),
    "a U-Net": (
        ImageToImage,
        lambda: {"images": torch.randn(4, 3, 16, 16), "time": torch.randn(4, 32)},
        {"metric": "mse", "outputs": lambda output: output["sample"]},
    ),
    "a Conv1d network": (Waves, lambda: (torch.randn(4, 8, 32),), {}),
    "experts one by one": (lambda: Experts(at_once=False), _ids, {}),
    "experts at once": (lambda: Experts(at_once=True), _ids, {}),
}


def make_module(name: str) -> nn.Module:
    """The module of that name, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return MODULES[name][0]()


def make_batches(name: str, count: int = 12) -> list:
    """Calibration data for it, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return [MODULES[name][1]() for _ in range(count)]

"""Models of many kinds, small enough to train a step of each on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Case(NamedTuple):
    """A program: what builds the model, the batch, the optimizer (None: inference) and the loss."""

    model: Callable[[], nn.Module]
    batch: Callable[[], Any]
    optimizer: Callable[..., Any] | None = torch.optim.Adam
    loss: Callable[..., Any] | None = None

    @property
    def is_recurrent(self) -> bool:
        return isinstance(self.model, partial) and self.model.func is Recurrent


class Residual(nn.Module):
    def __init__(self, channels: int, groups: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class Dense(nn.Module):
    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(channels + index * growth, growth, 3, padding=1) for index in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return x


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.Linear(channels, channels // 4)
        self.up = nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.conv(x))
        scale = torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))
        return x * scale[:, :, None, None]


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.GELU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Conv2d(2 * width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.relu(self.enter(x))
        x = self.middle(F.relu(self.down(skip)))
        return self.leave(torch.cat([self.up(x), skip], 1))


class VariationalAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(784, 256)
        self.mean, self.variance = nn.Linear(256, 32), nn.Linear(256, 32)
        self.decode = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 784))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.encode(x))
        mean, variance = self.mean(hidden), self.variance(hidden)
        code = mean + torch.randn_like(mean) * (0.5 * variance).exp()
        kl = -0.5 * (1 + variance - mean.pow(2) - variance.exp()).sum()
        return F.mse_loss(torch.sigmoid(self.decode(code)), x, reduction="sum") + kl


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], words: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 64) if words else None
        self.cell = kind(64, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, words or 10)

    def forward(self, x: Tensor) -> Tensor:
        if self.embed is not None:
            x = self.embed(x)
        return self.head(self.cell(x)[0])


class Unrolled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(32, 128), nn.Linear(128, 32)

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = x.new_zeros(x.shape[0], 128), []
        for time in range(x.shape[1]):
            state = self.cell(x[:, time], state)
            outputs.append(self.head(state))
        return torch.stack(outputs, 1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = self.attend(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(attended)
        return x + self.mlp(self.norm2(x))


class ExplicitBlock(Block):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return weights @ v


class Language(nn.Module):
    """A decoder; its loss is that of the next token, as a field of its output."""

    def __init__(
        self, block: Callable[..., nn.Module] = Block, tied: bool = True, checkpointed: bool = False
    ) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(500, 64), nn.Embedding(64, 64)
        self.blocks = nn.ModuleList(block(64, 4, causal=True) for _ in range(3))
        self.head = nn.Linear(64, 500, bias=False)
        self.checkpointed = checkpointed
        if tied:
            self.head.weight = self.embed.weight

    def through(self, block: nn.Module, x: Tensor) -> Tensor:
        if self.checkpointed:
            return checkpoint(block, x, use_reentrant=False)
        return block(x)

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Any:
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = self.through(block, x)
        logits = self.head(x)
        if labels is None:
            return logits
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, 64))
        self.blocks = nn.Sequential(*(Block(64, 4) for _ in range(3)))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.blocks(x)[:, 0])


class Experts(nn.Module):
    """Soft mixture: all experts see all inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        return sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(2000, 64), nn.Embedding(3000, 64)
        self.tower = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.tower(torch.cat([self.users(user), self.items(item)], -1))


class Frozen(nn.Module):
    """A head on features that are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
        self.features.requires_grad_(False)
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Adapter(nn.Module):
    """A low-rank update of a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(512, 512).requires_grad_(False)
        self.down, self.up = nn.Linear(512, 8, bias=False), nn.Linear(8, 512, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def mlp(*widths: int, layer: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), layer()]
    return nn.Sequential(*layers[:-1])


def convolutional(*, norm: Callable[[int], nn.Module], groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        norm(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=groups),
        nn.Conv2d(32, 64, 1),
        norm(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def encoder(dropout: float = 0.0, norm_first: bool = False) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        64, 4, 128, dropout=dropout, batch_first=True, norm_first=norm_first
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def images(count: int = 8, size: int = 32) -> Tensor:
    return torch.randn(count, 3, size, size)


def classified() -> tuple[Tensor, Tensor]:
    return images(), torch.randint(10, (8,))


def tokens(count: int = 8, length: int = 32) -> Tensor:
    return torch.randint(500, (count, length))


def sequences(width: int = 64, count: int = 48, length: int = 8) -> Tensor:
    return torch.randn(count, length, width)


def labelled_tokens() -> dict[str, Tensor]:
    return {"tokens": tokens(), "labels": tokens()}


SGD = partial(torch.optim.SGD, lr=0.1)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
FOREACH = partial(torch.optim.AdamW, foreach=True)
LANGUAGE = partial(Language, tied=False)

CASES: dict[str, Case] = {
    "mlp": Case(partial(mlp, 784, 512, 256, 10), lambda: torch.randn(256, 784), SGD),
    "mlp momentum": Case(partial(mlp, 784, 512, 256, 10), lambda: torch.randn(256, 784), MOMENTUM),
    "wide mlp": Case(partial(mlp, 512, 2048, 512), lambda: torch.randn(32, 512), torch.optim.AdamW),
    "wide mlp foreach": Case(
        partial(mlp, 512, 1024, 1024, 512), lambda: torch.randn(32, 512), FOREACH
    ),
    "mlp adagrad": Case(
        partial(mlp, 512, 1024, 512), lambda: torch.randn(64, 512), torch.optim.Adagrad
    ),
    "mlp rmsprop": Case(
        partial(mlp, 512, 1024, 512),
        lambda: torch.randn(64, 512),
        partial(torch.optim.RMSprop, momentum=0.9, centered=True),
    ),
    "mlp adafactor": Case(
        partial(mlp, 512, 1024, 512), lambda: torch.randn(64, 512), torch.optim.Adafactor
    ),
    "mlp amsgrad": Case(
        partial(mlp, 512, 1024, 512),
        lambda: torch.randn(64, 512),
        partial(torch.optim.Adam, amsgrad=True),
    ),
    "mlp nadam foreach": Case(
        partial(mlp, 512, 1024, 512),
        lambda: torch.randn(64, 512),
        partial(torch.optim.NAdam, foreach=True),
    ),
    "mlp gelu": Case(
        partial(mlp, 256, 512, 512, 256, layer=nn.GELU), lambda: torch.randn(512, 256), SGD
    ),
    "mlp dropout": Case(
        partial(mlp, 256, 512, 512, 256, layer=nn.Dropout), lambda: torch.randn(512, 256)
    ),
    "conv batch norm": Case(
        partial(convolutional, norm=nn.BatchNorm2d), classified, SGD, nn.CrossEntropyLoss()
    ),
    "conv group norm": Case(
        partial(convolutional, norm=lambda width: nn.GroupNorm(8, width)), images, MOMENTUM
    ),
    "conv depthwise": Case(
        partial(convolutional, norm=nn.BatchNorm2d, groups=32),
        classified,
        loss=F.cross_entropy,
    ),
    "residual": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Residual(32) for _ in range(6))),
        images,
        MOMENTUM,
    ),
    "residual depthwise": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 32, 3), *(Residual(32, 32) for _ in range(6))), images
    ),
    "dense": Case(partial(Dense, 3, 16, 5), images, SGD),
    "squeeze excite": Case(partial(SqueezeExcite, 64), images),
    "unet": Case(partial(UNet, 32), lambda: (images(8), images(8)), torch.optim.AdamW, F.mse_loss),
    "conv 1d": Case(
        lambda: nn.Sequential(nn.Conv1d(16, 64, 5), nn.ReLU(), nn.Conv1d(64, 64, 5), nn.Tanh()),
        lambda: torch.randn(16, 16, 512),
    ),
    "conv 3d": Case(
        lambda: nn.Sequential(nn.Conv3d(1, 16, 3), nn.ReLU(), nn.AvgPool3d(2), nn.Flatten()),
        lambda: torch.randn(4, 1, 16, 32, 32),
    ),
    "generator": Case(
        lambda: nn.Sequential(
            nn.ConvTranspose2d(64, 64, 4, 2, 1),
            nn.BatchNorm2d(64),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(64, 3, 4, 2, 1),
            nn.Tanh(),
        ),
        lambda: torch.randn(16, 64, 8, 8),
    ),
    "variational": Case(VariationalAutoencoder, lambda: torch.randn(512, 784)),
    "lstm": Case(partial(Recurrent, nn.LSTM), sequences),
    "lstm language": Case(partial(Recurrent, nn.LSTM, 500), partial(tokens, 32, 8)),
    "gru": Case(partial(Recurrent, nn.GRU), sequences, SGD),
    "rnn": Case(partial(Recurrent, nn.RNN), sequences, MOMENTUM),
    "unrolled": Case(Unrolled, partial(sequences, 32)),
    "encoder": Case(encoder, sequences, torch.optim.AdamW),
    "encoder dropout": Case(partial(encoder, 0.1), sequences, FOREACH),
    "encoder norm first": Case(partial(encoder, 0.0, True), sequences, SGD),
    "transformer": Case(
        lambda: nn.Transformer(64, 4, 1, 1, 128, dropout=0.0, batch_first=True),
        lambda: (sequences(), sequences()),
    ),
    "language tied": Case(Language, tokens, torch.optim.AdamW),
    "language": Case(LANGUAGE, labelled_tokens, FOREACH),
    "language explicit": Case(partial(Language, ExplicitBlock), labelled_tokens),
    "language checkpointed": Case(
        partial(Language, checkpointed=True), labelled_tokens, torch.optim.AdamW
    ),
    "vision transformer": Case(Vision, classified, torch.optim.AdamW, nn.CrossEntropyLoss()),
    "experts": Case(Experts, sequences),
    "recommender": Case(
        Recommender,
        lambda: (torch.randint(2000, (1024,)), torch.randint(3000, (1024,))),
        torch.optim.Adam,
    ),
    "frozen": Case(Frozen, lambda: torch.randn(256, 256)),
    "adapter": Case(Adapter, lambda: torch.randn(256, 512)),
    "mlp inference": Case(partial(mlp, 784, 512, 256, 10), lambda: torch.randn(512, 784), None),
    "conv inference": Case(partial(convolutional, norm=nn.BatchNorm2d), images, None),
    "language inference": Case(Language, tokens, None),
}

"""Models: three networks of about a million parameters with seeds of real structure, into which faults are planted.

The idea: a network is cut at a site into what comes before and after it. Before it the values of the seeds are brought
into the range on which a fault does not show, as a trained layer would have them; after it, right layers carry what
went wrong to the outputs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper
from torch import Tensor, nn

from fuzzparity import Size, Target
from planted import graphs
from planted.faults import Fault, f32, with_size

TEXT = Path(__file__).resolve().parents[2] / "LICENSE"
TOKENS, TIME, FRAMES, FEATURES, SIDE, WIDTH = 1000, 128, 99, 40, 64, 16
_SEEDS = 8
_MARGIN = 0.1  # of the safe range, kept free at either end


@dataclass(frozen=True)
class Net:
    """Hold one network: its input, seeds, parts between the sites, and the free dims of the input."""

    input: str
    dims: tuple[Any, ...]  # a symbol or a size each
    sizes: Mapping[str, Size]
    parts: Sequence[nn.Module]  # the sites lie between them, in the order of `sites`, and at both ends
    sites: Sequence[str]
    seeds: Callable[[], list[np.ndarray]]

    def before(self, site: str) -> nn.Module:
        """Return the layers up to a site."""
        return nn.Sequential(*self.parts[: self.sites.index(site)])

    def after(self, site: str) -> nn.Module:
        """Return the layers from a site on."""
        return nn.Sequential(*self.parts[self.sites.index(site) :])


class Means(nn.Module):
    """Average over some axes."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """Return the means."""
        return x.mean(self.axes)


class Attention(nn.Module):
    """One encoder layer without normalization: attention and two linear layers, both on a residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream [n, t, width] after this layer."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(x)))


class Recurrent(nn.Module):
    """Run an LSTM and a GRU over [n, t, WIDTH], and give each step's scores."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 256, batch_first=True)
        self.gru = nn.GRU(256, 256, batch_first=True)
        self.head = nn.Linear(256, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [n, t, 1000]."""
        return self.head(self.gru(self.lstm(x)[0])[0])


class OverTime(nn.Module):
    """Convolve [n, t, in] over time, and give [n, t, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.neck = nn.Conv1d(FEATURES, 256, 5, padding=2), nn.Linear(256, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return features of each step."""
        return self.neck(torch.relu(self.wide(x.transpose(1, 2))).transpose(1, 2))


class Embedding(nn.Module):
    """Embed tokens, rare ones with larger norms as trained tables have them, and add positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, width)
        self.table.weight.data[300:] *= 3.0
        self.place = nn.Parameter(torch.randn(512, width) * 0.1)

    def forward(self, ids: Tensor) -> Tensor:
        """Return [n, t, width] of tokens [n, t]."""
        return self.table(ids) + self.place[: ids.shape[1]]


def _conv(*sizes: int, stride: int = 2) -> list[nn.Module]:
    return [
        layer
        for before, after in itertools.pairwise(sizes)
        for layer in (nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.ReLU())
    ]


@functools.cache
def net(name: str) -> Net:
    """Return one of the networks, "conv", "transformer" or "recurrent", always with the same weights."""
    torch.manual_seed(11)
    if name == "conv":
        stem = nn.Sequential(*_conv(3, 32, 64), nn.Conv2d(64, 4, 1))
        body = nn.Sequential(*_conv(4, 128, 256), *_conv(256, 256, stride=1), Means(2, 3), nn.Linear(256, WIDTH))
        head = nn.Sequential(nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, 10))
        parts = (stem, body, head)
        sizes = {"h": Size(48, 160), "w": Size(48, 160), "n": Size(1, 16)}
        found = Net("image", ("n", 3, "h", "w"), sizes, parts, ("front", "map", "neck", "tail"), _images)
        _see(nn.Sequential(*parts), _images())
    elif name == "transformer":
        stem = nn.Sequential(Embedding(128), Attention(128, 4), Attention(128, 4), nn.Linear(128, WIDTH))
        body = nn.Sequential(nn.Linear(WIDTH, 128), Attention(128, 4), Attention(128, 4), Means(1), nn.Linear(128, 10))
        sizes = {"t": Size(2, 256), "n": Size(1, 16)}
        found = Net("ids", ("n", "t"), sizes, (stem, body), ("ids", "seq", "tail"), _texts)
    else:
        sizes = {"t": Size(2, 256), "n": Size(1, 16)}
        found = Net("frames", ("n", "t", FEATURES), sizes, (OverTime(), Recurrent()), ("front", "seq", "tail"), _speech)
    for part in found.parts:
        part.eval().requires_grad_(False)
    return found


def _see(layers: nn.Module, seeds: Sequence[np.ndarray]) -> None:
    """Give convolutions the spread of trained ones, and batch norms the statistics of the seeds."""
    for layer in layers.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # plain averages
    layers.train()
    with torch.no_grad():
        for seed in seeds:
            layers(torch.from_numpy(seed))


# Seeds


def _images() -> list[np.ndarray]:
    """Return handwritten digits as colour images [2, 3, SIDE, SIDE] with black borders."""
    from sklearn.datasets import load_digits

    digits = f32(load_digits().images[: 2 * _SEEDS]) / 16 * f32(0.9)
    inner = SIDE // 8 - 1
    large = np.kron(digits, np.ones((inner, inner), np.float32))
    room = (SIDE - large.shape[1]) // 2
    framed = np.pad(large, ((0, 0), (room, room), (room, room)))
    tints = f32([[1.0, 0.9, 0.7]]) * np.ones((2 * _SEEDS, 1), np.float32)
    images = framed[:, None] * tints[:, :, None, None]
    return list(images.reshape(_SEEDS, 2, 3, SIDE, SIDE))


def _texts() -> list[np.ndarray]:
    """Return the words of a text as tokens [2, TIME], numbered by how often they occur."""
    words = TEXT.read_text(encoding="utf-8").split()
    order = sorted(set(words), key=lambda word: (-words.count(word), word))
    ids = np.array([order.index(word) % 300 for word in words], np.int64)
    return list(np.resize(ids, (_SEEDS, 2, TIME)))


def _speech() -> list[np.ndarray]:
    """Return frames [2, FRAMES, FEATURES] that glide from one sound to the next, one sound for each letter."""
    rng = np.random.default_rng(5)
    sounds = rng.uniform(0.3, 0.8, (256, FEATURES))
    letters = np.frombuffer(TEXT.read_bytes(), np.uint8)[: 2 * _SEEDS * 25].reshape(2 * _SEEDS, 25)
    held = np.repeat(sounds[letters], 4, axis=1)[:, :FRAMES]
    smooth = np.stack([np.roll(held, shift, axis=1) for shift in range(-2, 3)]).mean(0)
    noisy = smooth + rng.uniform(-0.01, 0.01, smooth.shape)
    return list(f32(np.minimum(noisy, 0.89)).reshape(_SEEDS, 2, FRAMES, FEATURES))


# Twins


class Planted(nn.Module):
    """Run a network with the right version of each fault in its place."""

    def __init__(self, network: Net, places: Sequence[Place]) -> None:
        super().__init__()
        self.places = places
        self.network = nn.ModuleList(network.parts)
        self.sites = network.sites

    def forward(self, x: Tensor, *extras: Tensor) -> Any:
        """Return the network's scores, and what faults beside it give."""
        rest, beside = list(extras), []
        for position, site in enumerate((*self.sites, "aux")):
            for place in self.places:
                if place.site != site:
                    continue
                given, rest = rest[: place.extras], rest[place.extras :]
                if site == "aux":
                    beside.append(place.right(*given))
                else:
                    x = place.right(x * place.scale + place.offset if place.is_scaled else x, *given)
            if position < len(self.network):
                x = self.network[position](x)
        return (x, *beside) if beside else x


@dataclass(frozen=True)
class Place:
    """Say where a fault stands, how values are scaled before it, and how many further inputs it takes."""

    fault: str
    site: str
    right: Callable[..., Any]
    scale: float = 1.0
    offset: float = 0.0
    extras: int = 0
    is_scaled: bool = True


@functools.cache
def _spread(name: str, site: str) -> tuple[float, float]:
    """Return the least and largest value that the seeds have at a site."""
    network = net(name)
    layers = network.before(site)
    with torch.no_grad():
        values = [layers(torch.from_numpy(seed)) for seed in network.seeds()]
    return min(float(v.min()) for v in values), max(float(v.max()) for v in values)


def _scaling(name: str, site: str, safe: tuple[float, float]) -> tuple[float, float]:
    """Return scale and offset that bring the seeds' values at a site into the safe range of a fault."""
    low, high = _spread(name, site)
    margin = _MARGIN * (safe[1] - safe[0])
    scale = float(np.float32((safe[1] - safe[0] - 2 * margin) / (high - low)))
    return scale, float(np.float32(safe[0] + margin - low * scale))


def deep(name: str, arch: str, faults: Sequence[Fault]) -> Target:
    """Return a network with faults in it, all of which stand in this one; without any it is a right twin."""
    network = net(arch)
    most = min([2, *(fault.seed_rows for fault in faults)])
    seeds = [seed[:most] for seed in network.seeds()]
    rows, time = seeds[0].shape[0], seeds[0].shape[1]
    parts: list[graphs.Graph] = []
    places: list[Place] = []
    given: dict[str, np.ndarray] = {network.input: seeds[0]}
    infos = [_info(network.input, seeds[0].dtype, network.dims)]
    free: dict[str, dict[int, Any]] = {network.input: _free(network.dims, network.sizes)}
    outputs = ["scores"]
    here, done = network.input, 0
    order = {site: index for index, site in enumerate((*network.sites, "aux"))}
    for fault in sorted(faults, key=lambda fault: order[fault.deep.partition(":")[2]]):
        site = fault.deep.partition(":")[2]
        model = graphs.parsed(with_size(fault.wrong, time))
        names, extras = {}, fault.extras(rows, time) if fault.extras else {}
        for value in model.graph.input:
            if value.name in extras:
                own = f"{value.name}_{fault.name}"
                names[value.name] = own
                given[own] = extras[value.name]
                dims = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
                if site == "aux":
                    dims = [f"{d}_{fault.name}" if isinstance(d, str) else d for d in dims]
                infos.append(_info(own, extras[value.name].dtype, dims))
                free[own] = _free(dims, network.sizes)
        if site == "aux":
            places.append(Place(fault.name, site, fault.right, extras=len(extras)))
            outputs.append(f"out_{fault.name}")
            names["y"] = outputs[-1]
            parts.append(graphs.fragment(fault.name, fault.wrong, names))
            continue
        parts, here, done = _advanced(arch, parts, here, done, order[site])
        is_scaled = site not in ("front", "ids")
        scale, offset = _scaling(arch, site, fault.safe) if is_scaled else (1.0, 0.0)
        places.append(Place(fault.name, site, fault.right, scale, offset, len(extras), is_scaled))
        if is_scaled:
            parts.append(graphs.affine(f"scale_{fault.name}", here, f"scaled_{fault.name}", scale, offset))
            here = f"scaled_{fault.name}"
        result = f"from_{fault.name}"
        parts.append(graphs.fragment(fault.name, with_size(fault.wrong, time), {**names, "x": here, "y": result}))
        here = result
    parts, here, done = _advanced(arch, parts, here, done, len(network.parts))
    renaming = {here: "scores"}
    parts = [part.renamed_values(renaming) for part in parts]
    module = Planted(network, places).eval()
    with torch.no_grad():
        tensors = [torch.from_numpy(np.array(value)) for value in given.values()]
        answers = module(*tensors)
    answers = answers if isinstance(answers, tuple) else (answers,)
    shapes = [
        _info(name, answer.numpy().dtype, [f"{name}_{i}" for i in range(answer.ndim)])
        for name, answer in zip(outputs, answers, strict=True)
    ]
    more = {key: value for key, value in given.items() if key != network.input}
    return Target(
        name=name,
        module=module,
        inputs=given,
        outputs=outputs,
        onnx=graphs.joined(parts, infos, shapes),
        dynamic_shapes=free,
        allow_nonfinite=arch != "recurrent",  # ORT's recurrent operators answer NaN otherwise than torch: not planted
        ranges={"ids": (0, TOKENS - 1)} if network.input == "ids" else {},
        seeds=lambda: ({network.input: seed, **more} for seed in seeds[1:]),
    )


def _advanced(
    arch: str, parts: list[graphs.Graph], here: str, done: int, until: int
) -> tuple[list[graphs.Graph], str, int]:
    """Return the parts with the layers up to a site appended, and the name of the value that they end in."""
    found = list(parts)
    for index in range(done, until):
        layers = _layers(arch, index)
        result = f"after_part_{index}"
        found.append(layers.renamed(f"part_{index}", {layers.inputs[0]: here, layers.outputs[0]: result}))
        here = result
    return found, here, max(done, until)


@functools.cache
def _layers(arch: str, index: int) -> graphs.Graph:
    """Return one part of a network as the exporter gives it."""
    network = net(arch)
    with torch.no_grad():
        x = nn.Sequential(*network.parts[:index])(torch.from_numpy(network.seeds()[0]))
        y = network.parts[index](x)
    dims = {0: "n"} | {i: f"d{i}" for i in range(1, x.ndim) if _is_free(arch, index, i)}
    after = {i: f"e{i}" for i in range(y.ndim)}
    return graphs.exported(network.parts[index], {"x": x}, "y", {"x": dims, "y": after})


def _is_free(arch: str, index: int, axis: int) -> bool:
    """Tell whether an axis of what a part of a network reads may change."""
    return {"conv": axis in (2, 3) and index < 2, "transformer": axis == 1, "recurrent": axis == 1}[arch]


def _info(name: str, dtype: Any, dims: Sequence[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(dims))


def _free(dims: Sequence[Any], sizes: Mapping[str, Size]) -> dict[int, Any]:
    return {i: replace(sizes[d], name=d) if d in sizes else d for i, d in enumerate(dims) if isinstance(d, str)}

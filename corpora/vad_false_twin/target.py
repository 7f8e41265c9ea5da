"""A false twin: a voice activity detector with the weights of one training, its ONNX file with those of another.

The wheel of Silero VAD holds both: a safetensors file for those who build the network by themselves, and ONNX files.
The network is the same and so are the names of the inputs, so everything loads, and nothing is wrong but the answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from fuzzparity import Size, Target

FOLDER = Path(__file__).resolve().parent
RATE, CONTEXT, CHUNK = 16000, 64, 512  # samples in a second, of the end of the last chunk, of a chunk
BINS = 129


class Detector(nn.Module):
    """Tell whether a chunk holds a voice: input [n, 576], state [2, n, 128] -> output [n, 1], stateN [2, n, 128]."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 2 * BINS, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(BINS, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, audio: Tensor, state: Tensor, sr: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probability of a voice and the next state; there is one rate, so `sr` is not looked at."""
        waves = self.stft_conv(F.pad(audio, (0, CONTEXT), mode="reflect").unsqueeze(1))
        seen = (waves[:, :BINS] ** 2 + waves[:, BINS:] ** 2).sqrt()
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            seen = conv(seen).relu()
        hidden, cell = self.lstm_cell(seen.squeeze(-1), (state[0], state[1]))
        probability = self.final_conv(hidden.unsqueeze(-1).relu()).sigmoid()
        return probability.squeeze(1).mean(1, keepdim=True), torch.stack([hidden, cell])


def published(name: str) -> Path:
    """Return the path of a fetched file; raise FileNotFoundError with how to fetch it."""
    path = FOLDER / "files" / name
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not there; fetch it with: scripts/fetch {FOLDER.name}")
    return path


def hum(seconds: float) -> Tensor:
    """Return a hum of many overtones whose pitch and loudness wander, [samples] in -1..1."""
    time = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(3 * time)) / RATE
    overtones = sum(np.sin(number * phase) / number for number in range(1, 20))
    return torch.from_numpy((0.08 * overtones * (1 + np.sin(9 * time))).astype(np.float32))


def seeds() -> Iterator[dict[str, Tensor]]:
    """Yield chunks of the hum with the state that torch has there."""
    module, sr = load(), torch.tensor(RATE)
    audio, state = torch.cat([torch.zeros(CONTEXT), hum(1.0)])[None], torch.zeros(2, 1, 128)
    for start in range(0, audio.shape[1] - CONTEXT - CHUNK + 1, CHUNK):
        chunk = audio[:, start : start + CONTEXT + CHUNK].clone()
        yield {"input": chunk, "state": state, "sr": sr}
        with torch.no_grad():
            _, state = module(chunk, state, sr)


def load() -> Detector:
    """Return the network with the weights of the safetensors file."""
    module = Detector()
    module.load_state_dict(load_file(published("silero_vad_16k.safetensors")))
    return module.eval()


def target() -> Target:
    """Return the pair that is none."""
    return Target(
        module=load(),
        inputs={
            "input": hum(1.0)[None, 2048 : 2048 + CONTEXT + CHUNK],
            "state": torch.zeros(2, 1, 128),
            "sr": torch.tensor(RATE),
        },
        outputs=["output", "stateN"],
        onnx=published("silero_vad_16k_op15.onnx"),
        dynamic_shapes={"input": {0: Size(1, None, name="batch")}, "state": {1: Size(1, None, name="batch")}, "sr": {}},
        seeds=seeds,
        carry={"stateN": "state"},
        opaque_inputs=["sr"],
    )

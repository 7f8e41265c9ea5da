"""Silero VAD as its makers publish it: the TorchScript file and the ONNX file of one release, at both sample rates.

The idea: the published TorchScript module keeps state and context in itself, the ONNX file takes them as inputs. The
two networks inside the module, one for each rate, take them as inputs too, so they are what is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fuzzparity import Size, Target

FOLDER = Path(__file__).resolve().parent
WIDTH = {16000: 64 + 512, 8000: 32 + 256}  # samples of a chunk by sample rate: the end of the last chunk, then new ones
SECONDS = 3.0
EVERY = 3  # of a stream's chunks, this one is a seed


class TwoRates(nn.Module):
    """Hold both networks: input [n, samples], state [2, n, 128], sr [] -> output [n, 1], next state [2, n, 128]."""

    def __init__(self, published: torch.jit.ScriptModule) -> None:
        super().__init__()
        self.wide, self.narrow = published._model, published._model_8k

    def forward(self, audio: Tensor, state: Tensor, sr: Tensor) -> tuple[Tensor, Tensor]:
        """Run the network of the sample rate, as the ONNX file does."""
        network = self.wide if bool(sr == 16000) else self.narrow
        return network(audio, state)


def published(name: str) -> Path:
    """Return the path of a fetched file; raise FileNotFoundError with how to fetch it."""
    path = FOLDER / "files" / name
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not there; fetch it with: scripts/fetch {FOLDER.name}")
    return path


def speech(rate: int, seconds: float = SECONDS, rng_seed: int = 0) -> Tensor:
    """Synthesize audio that is like speech, [samples] in -1..1: voiced vowels, hisses and pauses.

    A pulse train with a wandering pitch through resonators at the formants of a vowel (G. Fant, Acoustic Theory of
    Speech Production, 1960; formants after Peterson and Barney, 1952), a hiss now and then, room noise throughout.
    """
    rng = np.random.default_rng(rng_seed)
    vowels = np.array([[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]])
    sounds: list[np.ndarray] = []
    while sum(map(len, sounds)) < seconds * rate:
        length = int(rate * rng.uniform(0.08, 0.3))
        ramp = np.minimum(1, np.minimum(np.arange(length), np.arange(length)[::-1]) / (0.02 * rate))
        kind = rng.choice(["vowel", "vowel", "vowel", "hiss", "pause"])
        if kind == "pause":
            sounds.append(np.zeros(length))
        elif kind == "hiss":
            sounds.append(0.03 * ramp * np.diff(rng.standard_normal(length + 1)))
        else:
            pitch = rng.uniform(90, 220) * (1 + 0.15 * np.sin(np.linspace(0, rng.uniform(2, 5), length)))
            pulses = np.diff(np.floor(np.cumsum(pitch) / rate), prepend=0.0)
            sound = resonate(pulses, vowels[rng.integers(len(vowels))] * rng.uniform(0.9, 1.15), rate)
            sounds.append(0.25 * ramp * sound / np.abs(sound).max())
    whole = np.concatenate(sounds)[: int(seconds * rate)]
    return torch.from_numpy((whole + 0.001 * rng.standard_normal(len(whole))).astype(np.float32))


def resonate(pulses: np.ndarray, formants: np.ndarray, rate: int) -> np.ndarray:
    """Return pulses through a resonator of 90 Hz bandwidth at each formant (Hz), as a convolution."""
    time = np.arange(int(0.03 * rate)) / rate
    sound = pulses
    for formant in formants[formants < 0.45 * rate]:
        sound = np.convolve(sound, np.exp(-np.pi * 90 * time) * np.sin(2 * np.pi * formant * time))[: len(pulses)]
    return sound


def seeds() -> Iterator[dict[str, Tensor]]:
    """Yield chunks of streams with the state that torch has there: one stream, then three at once, at each rate."""
    module = load()
    for rate, width in WIDTH.items():
        context, sr = width // 9, torch.tensor(rate)
        for rows in (1, 3):
            audio = torch.stack([speech(rate, rng_seed=row) for row in range(rows)])
            audio = torch.cat([torch.zeros(rows, context), audio], 1)
            state = torch.zeros(2, rows, 128)
            for number, start in enumerate(range(0, audio.shape[1] - width + 1, width - context)):
                chunk = audio[:, start : start + width].clone()
                if number % EVERY == 0:
                    yield {"input": chunk, "state": state, "sr": sr}
                with torch.no_grad():
                    _, state = module(chunk, state, sr)


def load() -> TwoRates:
    """Return both published networks."""
    return TwoRates(torch.jit.load(published("silero_vad.jit"), map_location="cpu")).eval()


def target() -> Target:
    """Return the published pair; `sr` stays one of the two rates, and a stream feeds its state back."""
    return Target(
        module=load(),
        inputs={
            "input": speech(16000)[None, : WIDTH[16000]],
            "state": torch.zeros(2, 1, 128),
            "sr": torch.tensor(16000),
        },
        outputs=["output", "stateN"],
        onnx=published("silero_vad.onnx"),
        dynamic_shapes={
            "input": {0: Size(1, None, name="batch"), 1: "samples"},
            "state": {1: Size(1, None, name="batch")},
            "sr": {},
        },
        seeds=seeds,
        carry={"stateN": "state"},
        opaque_inputs=["sr"],
    )

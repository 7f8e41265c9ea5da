"""A small BERT encoder of the transformers library, with seeded weights, on the text of this project's licence.

The idea: the code is the library's own, with all its masks and output classes; only the size and the weights are ours.
Weights are drawn with a larger spread than the library's, so that attention attends and positions matter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fuzzparity import Size, Target

TEXT = Path(__file__).resolve().parent.parent.parent / "LICENSE"
WORDS, LONGEST = 384, 96  # entries of the vocabulary; tokens of a sequence
PAD, UNKNOWN, START, END = range(4)
ROWS = (1, 1, 4, 2, 8)  # sequences of a batch, in turn


def encoder() -> nn.Module:
    """Return the encoder: ids, mask, types [n, tokens] -> last_hidden_state [n, tokens, 64], pooler_output [n, 64]."""
    try:
        from transformers import BertConfig, BertModel
    except ImportError as reason:
        raise ImportError("transformers is not installed; scripts/fetch encoder installs it") from reason
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LONGEST,
        initializer_range=0.15,
    )
    torch.manual_seed(0)
    return BertModel(config).eval()


def sentences() -> list[list[int]]:
    """Return the sentences of the licence as ids: frequent words have their own, other words are spelt."""
    words = [re.findall(r"\w+|[^\w\s]", part.lower()) for part in re.split(r"(?<=[.;:])\s+", TEXT.read_text())]
    letters = sorted({letter for sentence in words for word in sentence for letter in word})
    common = [word for word, _ in Counter(w for sentence in words for w in sentence if len(w) > 1).most_common()]
    ids = {piece: number for number, piece in enumerate((letters + common)[: WORDS - 4], start=4)}
    spelt = [[piece for word in sentence for piece in ([word] if word in ids else word)] for sentence in words]
    return [[ids.get(piece, UNKNOWN) for piece in sentence] for sentence in spelt if sentence]


def batch(pairs: list[tuple[list[int], list[int]]]) -> dict[str, Tensor]:
    """Return pairs of sentences as one padded batch: input_ids, attention_mask and token_type_ids [n, tokens]."""
    rows = []
    for first, second in pairs:
        first, second = first[: LONGEST // 2 - 2], second[: LONGEST // 2 - 1]
        tail = [*second, END] if second else []
        rows.append(([START, *first, END, *tail], [0] * (len(first) + 2) + [1] * len(tail)))
    ids, mask, types = torch.zeros(3, len(rows), max(len(row) for row, _ in rows), dtype=torch.long)
    for number, (row, of_second) in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
        types[number, : len(row)] = torch.tensor(of_second)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def seeds() -> Iterator[dict[str, Tensor]]:
    """Yield the whole licence in batches of sentences and of pairs of sentences."""
    lines, start, turn = sentences(), 0, 0
    while start < len(lines):
        rows = ROWS[turn % len(ROWS)]
        taken = lines[start : start + rows]
        yield batch([(one, lines[(number + 1) % len(lines)] if turn % 2 else []) for number, one in enumerate(taken)])
        start, turn = start + rows, turn + 1


def is_text(inputs: dict[str, Any]) -> bool:
    """Tell whether every sequence has a token to attend to; over nothing, attention has no defined answer."""
    return bool((inputs["attention_mask"] == 1).any(axis=1).all())


def attended(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return where answers count: not at padded positions, and pooled only where the first position is a token."""
    mask = np.asarray(inputs["attention_mask"] == 1)
    return {"last_hidden_state": mask[:, :, None], "pooler_output": mask[:, :1]}


def target() -> Target:
    """Return the encoder, exported with a free batch and sequence."""
    dims = {0: Size(1, None, name="batch"), 1: Size(1, LONGEST, name="tokens")}
    first = batch([(line, []) for line in sentences()[2:5]])
    return Target(
        module=encoder(),
        kwargs=first,
        dynamic_shapes=dict.fromkeys(first, dims),
        ranges={"input_ids": (0, WORDS - 1), "attention_mask": (0, 1), "token_type_ids": (0, 1)},
        valid=is_text,
        seeds=seeds,
        compare_where=attended,
    )

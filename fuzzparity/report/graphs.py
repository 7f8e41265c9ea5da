"""Graphs: the part of an ONNX graph around the guilty node, drawn in layers.

The idea: a reader wants to see the node, what feeds it and what it feeds, at most two dozen boxes; a node stands below
all that it depends on, and the order within a layer follows the parents (the layered drawing of Sugiyama, Tagawa and
Toda, IEEE Trans. SMC 11(2), 1981, with one sweep of barycentres each way).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from markupsafe import Markup

from fuzzparity.report.drawing import element, svg, words

MOST_NODES = 25  # more cannot be read at one look
MOST_BYTES = 64 << 20  # of a model that is parsed to draw a part of it
_LAYERS = (6, 3)  # layers shown above and below the guilty node
_BOX, _PASSAGE, _GAP, _ROW = (156.0, 34.0), 8.0, 18.0, 62.0  # px: a box, an edge that passes, between, a layer


@dataclass(frozen=True, slots=True)
class Node:
    """Hold what is drawn of one node; `weights` are the initializers and constants it reads."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Hold the drawing of a part of a graph, and what it shows in words."""

    drawing: Markup
    caption: str
    is_placed: bool = False  # the node at fault is among those shown


def drawn(model: bytes, node: str = "", output: str = "", place: int | None = None) -> Drawn | None:
    """Return the drawing of what surrounds a node, or of what leads to an output when the node is not known.

    The output is found by its name, else by its place among the graph's outputs.

    None when the bytes are no model, are too large to be looked at, or have no such part. Bodies of If and Loop are
    searched for the node.
    """
    if len(model) > MOST_BYTES:
        return None
    for nodes, outputs in _graphs(model):
        if not any(output in item.outputs for item in nodes) and place is not None and place < len(outputs):
            output = outputs[place]
        found = _seed(nodes, node, output)
        if found is not None:
            is_known = bool(node)
            chosen = list(range(len(nodes)))
            if len(nodes) > MOST_NODES:
                chosen = _around(nodes, found, *(_LAYERS if is_known else (sum(_LAYERS), 0)))
            return _draw(nodes, chosen, found if is_known else None, output)
    return None


@lru_cache(maxsize=2)  # one build has many findings
def _graphs(model: bytes) -> list[tuple[list[Node], list[str]]]:
    """Return nodes and outputs of the main graph and of every body, constants folded into their readers."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto = onnx.load_model_from_string(model)
    except (DecodeError, ValueError, RuntimeError):
        return []
    found, waiting = list[tuple[list[Node], list[str]]](), [proto.graph]
    while waiting and len(found) < 64:  # bodies within bodies of a stranger's model have no end
        graph = waiting.pop(0)
        constants = {item.name for item in graph.initializer}
        constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
        nodes = [
            Node(
                node.name or (node.output[0] if node.output else node.op_type),
                node.op_type,
                tuple(name for name in node.input if name and name not in constants),
                tuple(node.output),
                tuple(name for name in node.input if name in constants),
            )
            for node in graph.node
            if node.op_type != "Constant"
        ]
        found.append((nodes, [item.name for item in graph.output]))
        waiting += [item.g for node in graph.node for item in node.attribute if item.HasField("g")]
    return found


def _seed(nodes: Sequence[Node], name: str, output: str) -> int | None:
    for place, node in enumerate(nodes):
        if name and (node.name == name or name in node.outputs):
            return place
    if not name:
        return next((place for place, node in enumerate(nodes) if output in node.outputs), None)
    return None


def _around(nodes: Sequence[Node], seed: int, above: int, below: int) -> list[int]:
    """Return the nodes at most so many steps before and after one, nearest first, MOST_NODES of them."""
    makers = {name: place for place, node in enumerate(nodes) for name in node.outputs}
    readers: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        for name in node.inputs:
            readers.setdefault(name, []).append(place)
    before = [[makers[name] for name in node.inputs if name in makers] for node in nodes]
    after = [[other for name in node.outputs for other in readers.get(name, [])] for node in nodes]
    steps = {seed: 0}
    for limit, neighbours in ((above, before), (below, after)):
        edge = [seed]
        for step in range(1, limit + 1):
            edge = [other for place in edge for other in neighbours[place] if other not in steps]
            edge = list(dict.fromkeys(edge))[:MOST_NODES]
            steps |= dict.fromkeys(edge, step)
    return sorted(sorted(steps, key=lambda place: (steps[place], place))[:MOST_NODES])


def _draw(nodes: Sequence[Node], chosen: Sequence[int], guilty: int | None, output: str) -> Drawn:
    makers = {name: place for place in chosen for name in nodes[place].outputs}
    edges = [(makers[name], place) for place in chosen for name in nodes[place].inputs if name in makers]
    edges = [(a, b) for a, b in dict.fromkeys(edges) if a < b]  # a graph is sorted; a circle is not drawn
    rows, chains = _routed(_layers(chosen, edges), edges)
    rows = _ordered(rows, [pair for chain in chains for pair in pairwise(chain)])
    spans = [sum(_width(place) + _GAP for place in row) - _GAP for row in rows]
    width = max(spans) + 2 * _GAP
    places: dict[int, tuple[float, float]] = {}
    for depth, (row, span) in enumerate(zip(rows, spans, strict=True)):
        at = (width - span) / 2
        for place in row:
            places[place] = (at, 22 + depth * _ROW)
            at += _width(place) + _GAP
    parts = [_edge([places[place] for place in chain], chain) for chain in chains]
    for place in chosen:
        missing = [name for name in nodes[place].inputs if name not in makers]
        taken = {name for other in chosen for name in nodes[other].inputs}
        leaves = [name for name in nodes[place].outputs if name and name not in taken]
        parts += _box(nodes[place], places[place], place == guilty, missing, leaves)
    height = 22 + (len(rows) - 1) * _ROW + _BOX[1] + 24
    shown = "the whole of it" if len(chosen) == len(nodes) else f"{len(chosen)} of {len(nodes)} nodes"
    what = " around the node at fault, which is framed" if guilty is not None else f" that lead to {output}"
    if len(chosen) == len(nodes):
        what = "; the node at fault is framed" if guilty is not None else ""
    return Drawn(
        svg(width, height, *parts, label=f"{shown}{what}"), f"{shown}{what}. Weights and constants are hidden."
    )


def _layers(chosen: Iterable[int], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return nodes by depth: each one below all that it depends on; what depends on nothing, just above its reader."""
    depth = dict.fromkeys(chosen, 0)
    for a, b in sorted(edges, key=lambda edge: edge[1]):  # ascending: a graph's nodes are sorted
        depth[b] = max(depth[b], depth[a] + 1)
    fed = {b for _, b in edges}
    for place in depth:
        readers = [depth[b] for a, b in edges if a == place]
        if place not in fed and readers:
            depth[place] = min(readers) - 1
    rows: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for place in sorted(depth):
        rows[depth[place]].append(place)
    return rows


def _routed(rows: list[list[int]], edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Return rows with a place for every layer that an edge passes (below 0), and the edges as chains of places."""
    depth = {place: level for level, row in enumerate(rows) for place in row}
    chains, passing = [], -1
    for a, b in edges:
        chain = [a]
        for level in range(depth[a] + 1, depth[b]):
            rows[level].append(passing)
            chain.append(passing)
            passing -= 1
        chains.append([*chain, b])
    return rows, chains


def _ordered(rows: list[list[int]], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the rows with fewer crossings: each node near the mean place of those it is tied to."""
    for order, side in ((range(1, len(rows)), 0), (range(len(rows) - 2, -1, -1), 1)):
        for depth in order:
            at = {place: column / max(1, len(row) - 1) for row in rows for column, place in enumerate(row)}
            ties = {
                place: [at[edge[side]] for edge in edges if edge[1 - side] == place] or [at[place]]
                for place in rows[depth]
            }
            rows[depth].sort(key=lambda place, ties=ties: sum(ties[place]) / len(ties[place]))  # type: ignore[misc]
    return rows


def _width(place: int) -> float:
    return _BOX[0] if place >= 0 else _PASSAGE


def _edge(points: Sequence[tuple[float, float]], chain: Sequence[int]) -> Markup:
    """Return a line from box to box, straight down where it passes a layer."""
    path = ""
    for ((x, y), place), ((to_x, to_y), to) in pairwise(zip(points, chain, strict=True)):
        x, to_x = x + _width(place) / 2, to_x + _width(to) / 2
        start = y + _BOX[1]
        path += f"M{x:.1f} {y if place < 0 else start:.1f}L{x:.1f} {start:.1f}" if path else f"M{x:.1f} {start:.1f}"
        bend = (to_y - start) / 2
        path += f"C{x:.1f} {start + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}"
    return element("path", d=path, class_="edge", fill="none")


def _box(node: Node, at: tuple[float, float], is_guilty: bool, missing: list[str], leaves: list[str]) -> list[Markup]:
    x, y = at
    told = f"{node.op} {node.name}: {', '.join(node.inputs)} -> {', '.join(node.outputs)}"
    told += f"; weights {', '.join(node.weights)}" if node.weights else ""
    parts = [
        element("title", told[:600]),
        element("rect", x=x, y=y, width=_BOX[0], height=_BOX[1], rx=6, class_="box guilty" if is_guilty else "box"),
        words(x + _BOX[0] / 2, y + 15, _short(node.op), "middle", "op"),
        words(x + _BOX[0] / 2, y + 28, _short(node.name), "middle", "node"),
    ]
    if missing:
        parts.append(words(x + _BOX[0] / 2, y - 5, _short(", ".join(missing)), "middle", "value"))
    if leaves:
        parts.append(words(x + _BOX[0] / 2, y + _BOX[1] + 13, _short(", ".join(leaves)), "middle", "value"))
    return [element("g", *parts)]


def _short(text: str) -> str:
    """Return at most 24 characters, the end kept, which tells one node from the next: 24 fit into a box."""
    return text if len(text) <= 24 else f"{text[:5]}…{text[-18:]}"

"""Drawing: the few marks that charts are made of, as SVG text, and pixels as a PNG.

The idea: everything goes through `element`, which escapes every attribute and text, so that a name from a stranger's
model is a name in the picture and never markup. Colours stand in the page's style sheet, by class, for light and dark.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from fuzzparity.report.clean import printable


def element(name: str, *content: Markup | str, **attributes: object) -> Markup:
    """Return one SVG element: `class_` is `class`, `stroke_width` is `stroke-width`; None leaves one out."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_figure(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(item if isinstance(item, Markup) else escape(printable(item)) for item in content)
    return Markup(f"<{name}{named}>{inner}</{name}>" if inner else f"<{name}{named}/>")


def svg(width: float, height: float, *content: Markup | str, label: str) -> Markup:
    """Return a picture of this size, in pixels, that shrinks with its column; `label` is what it shows, in words."""
    return element(
        "svg",
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_figure(width)} {_figure(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=printable(label, 300),
    )


def words(x: float, y: float, text: str, anchor: str = "start", class_: str = "label") -> Markup:
    """Return a line of text."""
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def number(value: float) -> str:
    """Return a number in four digits, NaN and infinities by name."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.4g}"


def polyline(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """Return a line through points; where a coordinate is no number the line has a gap."""
    path, is_down = [], False
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            path.append(f"{'L' if is_down else 'M'}{_figure(x)} {_figure(y)}")
            is_down = True
        else:
            is_down = False
    return element("path", d="".join(path), class_=class_, fill="none")


def png_uri(pixels: npt.NDArray[np.uint8]) -> str:
    """Return pixels [rows, columns, 3] as a data URI of a PNG (https://www.w3.org/TR/png-3/)."""
    rows, columns, _ = pixels.shape
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1)  # filter type 0 each
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits, truecolour
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _figure(value: object) -> str:
    return (
        f"{value:.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )

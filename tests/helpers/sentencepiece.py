"""Files of SentencePiece, written by hand: a model as protobuf, and a table of characters."""

import struct
from collections.abc import Mapping, Sequence

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def charsmap(replacements: Mapping[str, str]) -> bytes:
    """Return the table that replaces characters, as a double array with a block of 256 units for each node."""
    nodes: list[dict[int, int]] = [{}]
    values: dict[int, int] = {}
    texts = b""
    for character, text in replacements.items():
        node = 0
        for byte in character.encode():
            if byte not in nodes[node]:
                nodes.append({})
                nodes[node][byte] = len(nodes) - 1
            node = nodes[node][byte]
        values[node] = len(texts)
        texts += text.encode() + b"\0"
    units = [0] * (256 * (len(nodes) + 1))

    def offset(place: int, child: int) -> int:
        relative = place ^ (256 * (child + 1))
        return (relative << 10) if relative < 1 << 21 else 0

    units[0] = offset(0, 0)
    for number, children in enumerate(nodes):
        for byte, child in children.items():
            place = 256 * (number + 1) ^ byte
            units[place] = byte | (256 if child in values else 0) | offset(place, child)
    for node, value in values.items():
        units[256 * (node + 1)] = value | 1 << 31
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + texts


def varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def field(number: int, value: bytes | str | int | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def model(
    pieces: Sequence[tuple[str, float, int]],
    table: bytes = b"",
    trainer: Mapping[int, int] | None = None,
    normalizer: Mapping[int, int] | None = None,
) -> bytes:
    """Return a file `.spm` of pieces, each a text, its score and its type."""
    data = b"".join(field(1, field(1, text) + field(2, score) + field(3, kind)) for text, score, kind in pieces)
    data += field(2, b"".join(field(n, value) for n, value in ({3: 1} | dict(trainer or {})).items()))
    rules = field(1, "nmt_nfkc") + field(2, table) + b"".join(field(n, v) for n, v in (normalizer or {}).items())
    return data + field(3, rules)

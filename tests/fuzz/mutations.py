"""Small changes to texts, bytes and protobuf messages, drawn from a generator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 17, 255, 256, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63))
PIECES = (
    *("(", ")", "{", "}", "[", "]", "<", ">", "%", "@", "^", '"', ",", "=", ":", "x", "_", "\n"),
    *("-1", "9" * 22, "1e999", "nan", "-0.0", "tensor<f32>", "S", "S*", "%x", "%0", "\\", "//"),
    *("\u00e9", "\x00", "i4", "floordiv(", "dense<", "after(", "on(", "loc(", "do {", "Ab16a"),
)
DTYPES = ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")


# ---- text


def mutate_text(text: str, random: Random, words: Sequence[str] = ()) -> str:
    """One to three changes; `words` may stand for one another, such as the names of ops."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        text = random.choice(TEXT_CHANGES)(text, random, words)
    return text


def _number(text: str, random: Random, words: Sequence[str]) -> str:
    found = list(re.finditer(r"-?\b\d+(?:\.\d+)?", text))
    if not found:
        return text
    match = random.choice(found)
    old = match[0]
    if "." in old:
        new = str(float(old) * random.choice((0.0, -1.0, 0.5, 3.0, 1e20, 1e39)))
    elif random.random() < 0.7:
        new = str(int(old) + random.choice((-2, -1, 1, 1, 2, 3)))
    else:
        new = str(random.choice(NUMBERS))
    return text[: match.start()] + new + text[match.end() :]


def _word(text: str, random: Random, words: Sequence[str]) -> str:
    """One known word for another of the same text, or for any."""
    pattern = r"\b(" + "|".join(map(re.escape, words)) + r")\b"
    found = list(re.finditer(pattern, text)) if words else []
    if not found:
        return text
    match = random.choice(found)
    new = random.choice((random.choice(words), random.choice(found)[0]))
    return text[: match.start()] + new + text[match.end() :]


def _dtype(text: str, random: Random, words: Sequence[str]) -> str:
    """Another element type, at one place or at all."""
    found = list(re.finditer(r"(?<![A-Za-z])(" + "|".join(DTYPES) + r")(?=[>,})\s])", text))
    if not found:
        return text
    match, new = random.choice(found), random.choice(DTYPES)
    if random.random() < 0.5:
        return re.sub(rf"(?<![A-Za-z]){match[1]}(?=[>,}})\s])", new, text)
    return text[: match.start()] + new + text[match.end() :]


def _size(text: str, random: Random, words: Sequence[str]) -> str:
    """Another size, wherever the text has it: what stays consistent compiles more often."""
    sizes = sorted(set(re.findall(r"(?<![\w.-])\d{1,4}(?=x)", text)))
    if not sizes:
        return text
    old = random.choice(sizes)
    new = str(random.choice((0, 1, 2, 3, 5, 17, int(old) + 1, max(int(old) - 1, 0))))
    return re.sub(rf"(?<![\w.-]){old}(?=[x,\])}}])", new, text)


def _value(text: str, random: Random, words: Sequence[str]) -> str:
    """One value for another."""
    found = list(re.finditer(r"%[\w.]+", text))
    if not found:
        return text
    match, other = random.choice(found), random.choice(found)
    return text[: match.start()] + other[0] + text[match.end() :]


def _lines(text: str, random: Random, words: Sequence[str]) -> str:
    lines = text.split("\n")
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(3):
        case 0:
            lines[a], lines[b] = lines[b], lines[a]
        case 1:
            lines.insert(a, lines[b])
        case _:
            del lines[a]
    return "\n".join(lines)


def _piece(text: str, random: Random, words: Sequence[str]) -> str:
    a = random.randrange(len(text) + 1)
    b = min(len(text), a + random.choice((0, 0, 1, 5)))
    return text[:a] + random.choice(PIECES) + text[b:]


def _range(text: str, random: Random, words: Sequence[str]) -> str:
    """A range that goes, comes twice, or moves."""
    a = random.randrange(len(text) + 1)
    b = min(len(text), a + 1 + int(random.expovariate(0.1)))
    match random.randrange(3):
        case 0:
            return text[:a] + text[b:]
        case 1:
            return text[:b] + text[a:]
        case _:
            place = random.randrange(len(text) + 1)
            return text[:place] + text[a:b] + text[place:]


def _cut(text: str, random: Random, words: Sequence[str]) -> str:
    return text[: random.randrange(len(text) + 1)]


TEXT_CHANGES = (
    *(_number, _number, _word, _word, _word, _dtype, _dtype, _size, _size, _size, _value, _value),
    *(_lines, _piece, _range, _cut),
)


# ---- bytes


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """One to three changes."""
    for _ in range(random.choice((1, 1, 2, 3))):
        if not data:
            return data
        data = random.choice(BYTE_CHANGES)(data, random)
    return data


def _flip(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, random: Random) -> bytes:
    width = random.choice((1, 2, 4, 8))
    number = random.choice(NUMBERS) % (1 << 8 * width)
    place = random.randrange(len(data))
    return (data[:place] + number.to_bytes(width, "little") + data[place + width :])[: len(data)]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    a = random.randrange(len(data))
    return a, min(len(data), a + 1 + int(random.expovariate(1 / random.choice((2, 16, 500)))))


def _remove(data: bytes, random: Random) -> bytes:
    a, b = _span(data, random)
    return data[:a] + data[b:]


def _insert(data: bytes, random: Random) -> bytes:
    a, b = _span(data, random)
    return data[:a] + random.randbytes(min(b - a, 64)) + data[a:]


def _repeat(data: bytes, random: Random) -> bytes:
    a, b = _span(data, random)
    return data[:b] + data[a:b] + data[b:]


def _swap(data: bytes, random: Random) -> bytes:
    """Two ranges of one length change places."""
    a, b = _span(data, random)
    c = random.randrange(len(data))
    a, c = min(a, c), max(a, c)
    size = min(b - a, c - a, len(data) - c) if b > a else 0
    if size <= 0:
        return data
    first, second = data[a : a + size], data[c : c + size]
    return data[:a] + second + data[a + size : c] + first + data[c + size :]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def _zero(data: bytes, random: Random) -> bytes:
    a, b = _span(data, random)
    return data[:a] + bytes(b - a) + data[b:]


BYTE_CHANGES = (_flip, _flip, _flip, _overwrite, _remove, _insert, _repeat, _swap, _truncate, _zero)


# ---- messages


def mutate_message(message: Any, random: Random, texts: Sequence[str]) -> None:
    """Changes one field of a protobuf message, at any depth; `texts` are words to choose from."""
    places = list(_fields(message))
    if not places:
        return
    owner, field = random.choice(places)
    value = getattr(owner, field.name)
    if _is_repeated(field):
        _mutate_list(owner, field, value, random, texts)
    elif field.type == field.TYPE_MESSAGE or random.random() < 0.1:
        owner.ClearField(field.name)
    else:
        setattr(owner, field.name, _scalar(field, value, random, texts))


def _fields(message: Any) -> Any:
    """Every field that is set, with the message that holds it."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for inner in value if _is_repeated(field) else [value]:
                yield from _fields(inner)


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if known is None else bool(known)


def _mutate_list(owner: Any, field: Any, items: Any, random: Random, texts: Sequence[str]) -> None:
    """One of a list goes, comes twice, changes, or two change places."""
    kept = [type(i).FromString(i.SerializeToString()) if _is_message(field) else i for i in items]
    a, b = random.randrange(len(kept)), random.randrange(len(kept))
    match random.randrange(3 if _is_message(field) else 5):
        case 0:
            del kept[a]
        case 1:
            kept.insert(b, kept[a])
        case 2:
            kept[a], kept[b] = kept[b], kept[a]
        case _:
            kept[a] = _scalar(field, kept[a], random, texts)
    owner.ClearField(field.name)
    getattr(owner, field.name).extend(kept)


def _is_message(field: Any) -> bool:
    return field.type == field.TYPE_MESSAGE


def _scalar(field: Any, value: Any, random: Random, texts: Sequence[str]) -> Any:
    if field.type == field.TYPE_BYTES:
        return mutate_bytes(value, random) if value else b"\x01"
    if field.type == field.TYPE_STRING:
        return random.choice((random.choice(list(texts) or [""]), "", value + "_"))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return random.choice((0.0, -1.0, 1e30, float("nan"), value * 2))
    if field.type == field.TYPE_ENUM:
        return random.choice([value.number for value in field.enum_type.values])
    low, high = (
        (-(2**31), 2**31 - 1) if field.cpp_type == field.CPPTYPE_INT32 else (-(2**63), 2**63 - 1)
    )
    near = (value - 1, value + 1, value + 2, -value)
    return max(low, min(random.choice((*near, *near, *near, *NUMBERS)), high))

"""Damaged and forged bundles: a BundleError that says what is wrong, never a crash."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime import forge, stand_in
from tfc.runtime import BundleError, LoaderError, load
from tfc.runtime.container import TRAILER_SIZE, Extent
from tfc.runtime.index import MAXIMUM_RANK, Index, MemberInfo, TensorInfo, decode, encode

DATA = stand_in.bundle_bytes()
HEADER_BYTES = 48


def refused(data: bytes, match: str, **options: object) -> None:
    with pytest.raises(BundleError, match=match):
        load(data, **options)  # type: ignore[arg-type]


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


def test_the_forge_makes_good_bundles() -> None:
    assert forge.with_index(DATA, forge.index_bytes(DATA)) == DATA
    load(forge.with_index(DATA, encode(forge.read_index(DATA))), check="all")


# ---- no bundle, or part of one ----


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"#!/usr/bin/env python3\n" * 99])
def test_other_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"no tfc bundle|empty"):
        load(path)
    refused(content, "no tfc bundle")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, "/dev/zero", tmp_path / "pipe"):
        with pytest.raises(BundleError, match="is not a file"):
            load(path)


@pytest.mark.parametrize("cut", [1, TRAILER_SIZE, 5000, len(DATA) // 2, len(DATA) - 1])
def test_cut_at_the_end(cut: int) -> None:
    refused(DATA[:-cut], "no tfc bundle, or its end is missing")


def test_bytes_lost_or_added_before_the_end() -> None:
    middle = len(DATA) // 2
    refused(DATA[:middle] + DATA[middle + 1 :], "damaged")
    refused(DATA[:middle] + b"x" + DATA[middle:], "damaged")
    refused(b"x" + DATA, "damaged")


# ---- flipped bits ----


def regions() -> list[tuple[str, int]]:
    """First, middle and last byte of each member and of each gap between them."""
    members = forge.read_index(DATA).members
    places: list[tuple[str, int]] = []
    position = 0
    for member in members:
        gap = (f"header of {member.name}", position, member.offset)
        position = member.offset + member.size
        for name, start, end in (gap, (member.name, member.offset, position)):
            places += [(name, p) for p in sorted({start, (start + end) // 2, end - 1})]
    return places


@pytest.mark.parametrize(("name", "position"), regions())
def test_check_all_finds_any_flipped_bit(name: str, position: int) -> None:
    said = name.removeprefix("header of ").replace("+", r"\+")
    refused(flipped(DATA, position, position % 8), f"{said}|first line", check="all")


def test_the_default_check_finds_flips_in_what_it_uses() -> None:
    members = {m.name: m for m in forge.read_index(DATA).members}
    code = members["code/baseline.so"]
    refused(flipped(DATA, code.offset + 5), "code/baseline.so is damaged: its SHA-256 differs")
    index, manifest = forge.extents(DATA)
    refused(flipped(DATA, index.offset + 5), "index.bin is damaged: its SHA-256 differs")
    refused(flipped(DATA, manifest.offset + 5), "manifest.json is damaged: its SHA-256 differs")
    load(flipped(DATA, members["weights"].offset))
    load(flipped(DATA, members["tfc_runtime/main.py"].offset))


def test_any_byte_of_the_trailer() -> None:
    for position in range(len(DATA) - TRAILER_SIZE, len(DATA)):
        for bit in range(8):
            refused(flipped(DATA, position, bit), "trailer|damaged")


def test_any_byte_of_directory_and_index() -> None:
    index, manifest = forge.extents(DATA)
    end = manifest.offset + manifest.size
    for position in [*range(index.offset, index.offset + index.size, 7), *range(end, len(DATA), 3)]:
        refused(flipped(DATA, position, position % 8), "damaged|trailer")


def test_random_damage_is_found_or_harmless() -> None:
    """With the default check weights may differ, so only the calls' success is asked for."""
    chance = random.Random(7)
    for _ in range(300):
        damaged = bytearray(DATA)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if bytes(damaged) != DATA:
            refused(bytes(damaged), "damaged|trailer", check="all")
        with suppress(LoaderError):
            load(bytes(damaged), threads=1).run(stand_in.inputs())


# ---- forged trailer ----


def test_the_trailer_points_elsewhere() -> None:
    index, manifest = forge.extents(DATA)
    for wrong in (
        forge.moved(index, offset=2**63),
        forge.moved(index, size=2**63),
        forge.moved(index, offset=2**64 - 1, size=2),
        forge.moved(index, offset=len(DATA)),
    ):
        refused(forge.with_trailer(DATA, wrong, manifest), "index.bin would lie outside the file")
        refused(forge.with_trailer(DATA, index, wrong), "manifest.json would lie outside the file")
    refused(forge.with_trailer(DATA, manifest, index), "damaged")
    empty = Extent(0, 0, index.sha256)
    refused(forge.with_trailer(DATA, empty, manifest), "index.bin is damaged")


# ---- forged index ----


def forged_header(field: int, value: int) -> bytes:
    index = bytearray(forge.index_bytes(DATA))
    struct.pack_into("<I", index, 4 * field, value)
    return forge.with_index(DATA, bytes(index))


@pytest.mark.parametrize("field", range(3, 12))
@pytest.mark.parametrize("value", [0, 1, 999, 2**31, 2**32 - 1])
def test_forged_counts(field: int, value: int) -> None:
    if struct.unpack_from("<I", forge.index_bytes(DATA), 4 * field) == (value,):
        value += 1
    refused(forged_header(field, value), "index.bin is damaged: |no function")


def test_forged_versions() -> None:
    refused(forged_header(0, 0), "does not start like an index")
    refused(forged_header(1, 1), "does not start like an index of version 2")
    refused(forged_header(2, 9), "is for ABI 9; this loader knows ABI 2")


def edited(change: Callable[[Index], Index]) -> bytes:
    return forge.with_index(DATA, encode(change(forge.read_index(DATA))))


def with_member(name: str, **changes: object) -> bytes:
    def change(index: Index) -> Index:
        def changed(member: MemberInfo) -> MemberInfo:
            return replace(member, **changes) if member.name == name else member  # type: ignore[arg-type]

        return replace(index, members=tuple(map(changed, index.members)))

    return edited(change)


@pytest.mark.parametrize("name", ["weights", "code/baseline.so", "__main__.py"])
def test_forged_extents(name: str) -> None:
    weights = next(m for m in forge.read_index(DATA).members if m.name == "weights")
    for offset in (0, 23, weights.offset + 1, weights.offset + 4096, 2**63, 2**64 - 1):
        refused(with_member(name, offset=offset), "damaged")
    for size in (0, 1, weights.size + 1, 2**63, 2**64 - 1):
        refused(with_member(name, size=size), "damaged")
    refused(with_member(name, crc=1), "damaged")


def test_members_over_each_other() -> None:
    """Hashes and sizes are right: only that two members share their bytes is wrong."""
    index = forge.read_index(DATA)
    code = next(m for m in index.members if m.name.startswith("code/"))
    refused(
        edited(lambda i: replace(i, members=(*i.members, replace(code, name="code/2.so")))),
        "damaged",
    )


def test_names_that_occur_twice() -> None:
    refused(edited(lambda i: replace(i, functions=i.functions * 2)), "a name occurs twice")
    refused(edited(lambda i: replace(i, targets=i.targets * 2)), "a name occurs twice")

    def twice(index: Index) -> Index:
        main = index.functions[0]
        inputs = (main.inputs[0], main.inputs[0], main.inputs[2])
        return replace(index, functions=(replace(main, inputs=inputs), index.functions[1]))

    refused(edited(twice), "a name occurs twice")


def test_no_functions_and_no_targets() -> None:
    refused(edited(lambda i: replace(i, functions=())), "no function")
    refused(edited(lambda i: replace(i, targets=())), "no code of the bundle runs")


def test_a_target_without_its_member() -> None:
    def change(index: Index) -> Index:
        return replace(index, targets=(replace(index.targets[0], member=99),))

    refused(edited(change), "refers to a member that is not there")


def test_code_that_is_something_else() -> None:
    """Target and hash agree, but the member is no shared object: dlopen must refuse it."""
    places = [m.name for m in forge.read_index(DATA).members]

    def change(index: Index) -> Index:
        return replace(
            index, targets=(replace(index.targets[0], member=places.index("include/tfc.h")),)
        )

    refused(edited(change), "cannot be loaded")


def test_code_and_index_that_differ() -> None:
    refused(edited(lambda i: replace(i, functions=i.functions[:1])), "describe different functions")

    def renamed(index: Index) -> Index:
        main, turn = index.functions
        return replace(index, functions=(replace(main, name="other"), turn))

    refused(edited(renamed), "describe different functions")

    def fewer(index: Index) -> Index:
        main, turn = index.functions
        return replace(index, functions=(replace(main, inputs=main.inputs[:2]), turn))

    refused(edited(fewer), "describe different functions")


def test_impossible_variables() -> None:
    for dims, message in (
        (("B",), "variable 'memory' has no possible size"),
        ((2**20, 2**21), "variable 'memory' has no possible size"),
        ((2**62, 2**62, 4), "variable 'memory' has no possible size"),
        ((2, 4), "describe different functions"),
        ((3, 2, 0), "describe different functions"),
    ):
        wrong = replace(stand_in.MEMORY, dims=dims)
        refused(edited(lambda i, wrong=wrong: replace(i, variables=(wrong,))), message)
    refused(edited(lambda i: replace(i, variables=())), "describe different functions")
    refused(edited(lambda i: replace(i, variables=i.variables * 2)), "a name occurs twice")
    other = replace(stand_in.MEMORY, name="other")
    refused(edited(lambda i: replace(i, variables=(other,))), "describe different functions")


def test_impossible_effects() -> None:
    def with_main(**changes: int) -> Callable[[Index], Index]:
        return lambda i: replace(i, functions=(replace(i.functions[0], **changes), i.functions[1]))

    refused(edited(with_main(host_ops=2**17)), "has 131072 host ops")
    refused(edited(with_main(host_ops=1)), "describe different functions")
    refused(edited(with_main(stateful=1)), "describe different functions")


def with_first_input(tensor: TensorInfo) -> Callable[[Index], Index]:
    def change(index: Index) -> Index:
        main, turn = index.functions
        inputs = (tensor, *main.inputs[1:])
        return replace(index, functions=(replace(main, inputs=inputs), turn))

    return change


def test_impossible_tensors() -> None:
    deep = TensorInfo("x", "f32", (1,) * (MAXIMUM_RANK + 1))
    refused(edited(with_first_input(deep)), "no possible type")
    refused(edited(with_first_input(TensorInfo("x", "f32", (-2, 4)))), "neither a size nor")
    long = TensorInfo("x" * 5000, "f32", (1, 4))
    refused(edited(with_first_input(long)), "string that is not there or too long")


def test_a_signature_of_another_rank() -> None:
    """Else bind would read sizes that the loader does not pass."""
    data = edited(with_first_input(TensorInfo("x", "f32", (4,))))
    refused(data, "describe different functions")


def test_random_index_bytes_never_decode_to_nonsense() -> None:
    """What decodes encodes again; everything else is refused with a ValueError."""
    chance, original = random.Random(3), forge.index_bytes(DATA)
    refusals = 0
    for _ in range(2000):
        damaged = bytearray(original)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            index = decode(bytes(damaged))
        except (ValueError, UnicodeDecodeError):
            refusals += 1
            continue
        assert decode(encode(index)) == index
    assert refusals > 500


def test_huge_counts_are_refused_before_memory_is_asked_for() -> None:
    header = struct.pack("<4s11I", b"tfcI", 2, 2, 1000, 64, 4096, 65536, 65536, 1 << 20, 9, 0, 0)
    with pytest.raises(ValueError, match="do not add up"):
        decode(header)


# ---- forged manifest ----


def test_manifests_that_are_no_json_objects() -> None:
    for text, message in (
        (b"[" * 100000, "nested too deeply"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested too deeply"),
        (b"[1, 2]", "not an object"),
        (b"{", "damaged"),
        (b"\xff", "damaged"),
        (b"", "damaged"),
    ):
        bundle = load(forge.with_manifest(DATA, text))
        with pytest.raises(BundleError, match=message):
            _ = bundle.manifest
        refused(forge.with_manifest(DATA, text), message, check="all")


def test_a_manifest_that_describes_another_bundle() -> None:
    _, extent = forge.extents(DATA)
    text = DATA[extent.offset : extent.offset + extent.size]
    other = text.replace(b'"size": 69632', b'"size": 69633')
    assert other != text
    refused(forge.with_manifest(DATA, other), "does not describe its members", check="all")


def test_the_pin_covers_the_index() -> None:
    """A pinned manifest with another index, as an attacker would try it."""
    pin = load(DATA).sha256
    forged = edited(with_first_input(TensorInfo("other", "f32", ("B", 4))))
    assert load(forged).sha256 == pin
    refused(forged, "index.bin is not the one that its manifest describes", sha256=pin)

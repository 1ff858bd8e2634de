"""Reads from the head of a shared object what it was made for, and strips debugging information.

ELF as in the System V gABI, chapters 4 and 5; Mach-O as in mach-o/loader.h and mach-o/fat.h. Little
endian only, which is what all our platforms are. binutils are not used: they would have to be
there for both architectures, and their version would change the bytes of a release.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_ELF_MACHINES: Final = {62: "amd64", 183: "arm64"}
_MACH_CPUS: Final = {0x01000007: "amd64", 0x0100000C: "arm64"}
_FAT_MAGIC: Final = 0xCAFEBABE
_MACH_MAGIC: Final = 0xFEEDFACF
_VERSION_MIN_MACOSX: Final = 0x24
_BUILD_VERSION: Final = 0x32


class Binary(NamedTuple):
    """The target of a shared object: system and architectures by Go's names.

    `minimum_system`: the oldest macOS, as (major, minor); (0, 0) on Linux.
    """

    system: str
    archs: frozenset[str]
    minimum_system: tuple[int, int] = (0, 0)


def inspect(content: bytes) -> Binary | None:
    """The target of the shared object; None: it is none."""
    if content[:4] == b"\x7fELF" and content[4:6] == b"\x02\x01":
        machine = struct.unpack_from("<H", content, 18)[0]
        return Binary("linux", frozenset({_ELF_MACHINES.get(machine, str(machine))}))
    if len(content) >= 8 and struct.unpack_from(">I", content)[0] == _FAT_MAGIC:
        return _fat(content)
    if len(content) >= 32 and struct.unpack_from("<I", content)[0] == _MACH_MAGIC:
        return _mach(content, 0)
    return None


def stripped(content: bytes) -> bytes:
    """An ELF file without what the dynamic loader does not read; anything else as it is.

    Loading needs the segments of the program header alone (gABI, chapter 5); debugging information
    and the section table come behind the last segment in what linkers write.
    """
    if content[:6] != b"\x7fELF\x02\x01":
        return content
    table = struct.unpack_from("<Q", content, 32)[0]
    size, count = struct.unpack_from("<HH", content, 54)
    ends = [table + size * count]
    for number in range(count):
        offset, in_file = struct.unpack_from("<8xQ16xQ", content, table + size * number)
        ends.append(offset + in_file)
    head = bytearray(content[: max(ends)])
    struct.pack_into("<Q", head, 40, 0)  # e_shoff
    struct.pack_into("<HHH", head, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    return bytes(head)


def _fat(content: bytes) -> Binary:
    """A universal file: several Mach-O files in one."""
    count = struct.unpack_from(">I", content, 4)[0]
    offsets = [struct.unpack_from(">5I", content, 8 + 20 * i)[2] for i in range(count)]
    parts = [_mach(content, offset) for offset in offsets]
    archs = frozenset().union(*(part.archs for part in parts))
    return Binary("darwin", archs, max(part.minimum_system for part in parts))


def _mach(content: bytes, start: int) -> Binary:
    cpu, commands = struct.unpack_from("<I8xI", content, start + 4)
    oldest = (0, 0)
    at = start + 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", content, at)
        if command in (_VERSION_MIN_MACOSX, _BUILD_VERSION):
            skipped = 8 if command == _VERSION_MIN_MACOSX else 12
            packed = struct.unpack_from("<I", content, at + skipped)[0]
            oldest = (packed >> 16, packed >> 8 & 0xFF)
        at += size
    return Binary("darwin", frozenset({_MACH_CPUS.get(cpu, str(cpu))}), oldest)

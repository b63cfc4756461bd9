"""Reads segment files as another program would: the frame format and the keyed envelope, written from their
description and sharing nothing with the engine."""

import ctypes
import os
import struct

MAGIC = b"\xca\xfe"
HEADER = struct.Struct(">2sBIQIII")  # magic, flags, records, base offset, size before and after the codec, crc32c
CODEC_NONE, CODEC_ZSTD = 0, 1


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def unzstd(data, size):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(size)
    written = library.ZSTD_decompress(out, size, data, len(data))
    if written != size:
        raise ValueError(f"zstd gave {written} for {size} bytes")
    return out.raw[:size]


class Frame:
    def __init__(self, pos, data):
        self.pos = pos
        if len(data) < pos + HEADER.size:
            raise ValueError(f"header cut at {pos}")
        magic, self.flags, self.n_records, self.base, self.raw_size, self.size, self.crc = HEADER.unpack_from(data, pos)
        if magic != MAGIC:
            raise ValueError(f"no magic at {pos}")
        self.end = pos + HEADER.size + self.size
        if len(data) < self.end:
            raise ValueError(f"payload cut at {pos}")
        self.stored = bytes(data[pos + HEADER.size:self.end])
        # the crc covers the header after its magic and before the crc itself, then the stored bytes
        if crc32c(bytes(data[pos + 2:pos + 23]) + self.stored) != self.crc:
            raise ValueError(f"crc at {pos}")

    @property
    def codec(self):
        return self.flags & 7

    def records(self):
        """(offset, commit time in ms, key, payload) of each record."""
        raw = self.stored if self.codec == CODEC_NONE else unzstd(self.stored, self.raw_size)
        if len(raw) != self.raw_size:
            raise ValueError(f"size of frame at {self.pos}")
        pos = 0
        for number in range(self.n_records):
            (size,) = struct.unpack_from(">I", raw, pos)
            envelope = raw[pos + 4:pos + 4 + size]
            if len(envelope) != size:
                raise ValueError(f"record cut in frame at {self.pos}")
            pos += 4 + size
            yield (self.base + number, *parse_envelope(envelope))
        if pos != len(raw):
            raise ValueError(f"bytes after the records of frame at {self.pos}")


def parse_envelope(envelope):
    """(commit time in ms, key, payload)"""
    if envelope[0] != 2:
        raise ValueError("record version")
    key_size = shift = 0
    pos = 1
    while True:
        byte = envelope[pos]
        key_size |= (byte & 127) << shift
        shift += 7
        pos += 1
        if byte < 128:
            break
    key = envelope[pos:pos + key_size]
    (time_ms,) = struct.unpack_from(">Q", envelope, pos + key_size)
    return time_ms, key, envelope[pos + key_size + 8:]


def frames(data):
    """Frames of a segment up to its end or a zero tail."""
    pos = 0
    while pos < len(data) and data[pos:].strip(b"\0"):
        frame = Frame(pos, data)
        yield frame
        pos = frame.end


def segment_names(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".log"))


def read_partition(folder):
    """Every record of a partition folder, after checking that offsets and names fit together."""
    found = []
    next_offset = None
    for name in segment_names(folder):
        base = int(name[:-4])
        assert len(name) == 24, name
        assert next_offset in (None, base), f"{name} does not follow {next_offset}"
        next_offset = base
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        for frame in frames(data):
            assert frame.base == next_offset, f"frame at {frame.pos} of {name}: {frame.base}, not {next_offset}"
            assert frame.flags & ~7 == 0, frame.flags
            found += frame.records()
            next_offset = frame.base + frame.n_records
    times = [time_ms for _, time_ms, _, _ in found]
    assert times == sorted(times), "commit times go backwards"
    return found

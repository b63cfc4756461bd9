"""A producer that can be asked afterwards what it was promised.

usage: writer.py PRODUCE-FILE ACKED-FILE WRITER FIRST [reopen]

Writes batches of lines `<writer> <sequence> <crc of the text> <text>` from sequence FIRST on and, after each fsync (or
close, with `reopen`) that returned 0, the sequence reached to ACKED-FILE, which lies outside the mount. Ends when the
mount does.
"""

import os
import sys
import zlib


def line(writer, sequence):
    text = f"{writer}/{sequence}/" + "abcdefghij" * (sequence * 7 % 40)
    return f"{writer} {sequence} {zlib.crc32(text.encode()):08x} {text}\n".encode()


def check(record):
    """(writer, sequence) of a line, or None when it is not a whole one."""
    parts = record.decode("ascii", "replace").split(" ")
    if len(parts) != 4 or not parts[1].isdigit():
        return None
    if line(parts[0], int(parts[1])) != record + b"\n":
        return None
    return parts[0], int(parts[1])


def main(path, acked_path, writer, first, reopen):
    acked = os.open(acked_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sequence = first
    fd = -1
    while True:
        try:
            if fd < 0:
                fd = os.open(path, os.O_WRONLY)
            batch = b"".join(line(writer, sequence + i) for i in range(1 + sequence % 9))
            cut = len(batch) * (sequence % 5) // 5  # lines are cut in the middle, as buffers cut them
            for piece in (batch[:cut], batch[cut:]):
                if piece and os.write(fd, piece) != len(piece):
                    return 2
            if reopen:
                closing, fd = fd, -1
                os.close(closing)
            else:
                os.fsync(fd)
        except OSError:
            return 0
        sequence += 1 + sequence % 9
        os.write(acked, b"%d\n" % sequence)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), "reopen" in sys.argv[5:]))

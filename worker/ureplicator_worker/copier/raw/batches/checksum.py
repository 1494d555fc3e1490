"""The CRC-32C of a batch after its header has changed, derived from the one before. Hot path.

To compute it anew costs 9 us for 131 KB. And it would hide what happened to the bytes since they were
checked: a derived one is right for these bytes only, so the target's broker refuses any others.

Why it can be derived: without its first and last inversion a CRC is linear. For A and B of the same length

    crc(A) ^ crc(B) = plain(A ^ B)              plain: without both inversions

Bytes that did not change are zeros in A ^ B. Those in front add nothing. Each one behind maps the plain CRC
to another, by a linear map of 32 bits. The map for n of them is composed of those for the hexadecimal digits
of n (`_MAPS`), each stored as four tables: what each byte of a number adds to the result.
"""

from __future__ import annotations

from array import array

from crc32c import crc32c

_ALL = 0xFFFFFFFF
_DIGITS = 5
DERIVED_BELOW_BYTES = 16**_DIGITS
"""Of bytes behind a change. Brokers accept batches of 1 MiB unless configured otherwise."""

_Tables = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


def derived(crc: int, *, before: bytes, after: bytes, behind_bytes: int) -> int:
    """The CRC-32C of bytes of which `before` became `after`, and `behind_bytes` behind them did not change.

    `crc`: the former one. Both have the same length. `behind_bytes` is below `DERIVED_BELOW_BYTES`.
    """
    changes = int.from_bytes(before) ^ int.from_bytes(after)
    plain = _plain(changes.to_bytes(len(after)), 0)
    for maps in _MAPS:
        digit = behind_bytes & 15
        if digit:
            first, second, third, fourth = maps[digit - 1]
            plain = (
                first[plain & 255]
                ^ second[plain >> 8 & 255]
                ^ third[plain >> 16 & 255]
                ^ fourth[plain >> 24]
            )
        behind_bytes >>= 4
    return crc ^ plain


def _plain(data: bytes, begin: int) -> int:
    """CRC-32C of bytes behind others of which it is `begin`, without the inversions."""
    return crc32c(data, begin ^ _ALL) ^ _ALL


def _maps(zeros: bytes) -> list[_Tables]:
    """Maps of a plain CRC to that with these zeros behind its bytes, 1 to 15 times."""
    bits = [1 << bit for bit in range(32)]
    maps: list[_Tables] = []
    for _ in range(15):
        bits = [_plain(zeros, each) for each in bits]
        maps.append((_table(bits[:8]), _table(bits[8:16]), _table(bits[16:24]), _table(bits[24:])))
    return maps


def _table(bits: list[int]) -> array[int]:
    """Results for each value of a byte, by those for each of its bits."""
    table = array("I", [0])
    for result in bits:
        table.extend([each ^ result for each in table])
    return table


_MAPS = [_maps(bytes(16**place)) for place in range(_DIGITS)]
"""For each place of a hexadecimal number, those of its digits 1 to 15."""

"""TFRecords: the checksum that TensorFlow's files have after each length and each record."""

import google_crc32c

_MASK = 0xA282EAD8


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as the format of TensorFlow's records asks for."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF

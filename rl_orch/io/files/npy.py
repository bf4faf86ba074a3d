"""Arrays as NumPy writes them, out of bytes that are in memory already: none is allocated."""

import io
import math
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format
from numpy.typing import NDArray

HEADERS = {
    (1, 0): numpy_format.read_array_header_1_0,
    (2, 0): numpy_format.read_array_header_2_0,
}


def array(data: bytes) -> NDArray[Any]:
    """The array in the bytes of an .npy file, as a view of them; a ValueError if it is none, would
    have to be unpickled, or claims more than there is."""
    file = io.BytesIO(data)
    version = numpy_format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"its format is {version}; must be one of {', '.join(map(str, HEADERS))}")
    shape, is_fortran, dtype = HEADERS[version](file)
    left = len(data) - file.tell()
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("it holds objects, which would have to be unpickled")
    if min(shape, default=0) < 0 or size > left:
        raise ValueError(f"its shape is {list(shape)[:10]}, {size:,} bytes; there are {left:,}")
    return np.ndarray(shape, dtype, data, file.tell(), order="F" if is_fortran else "C")

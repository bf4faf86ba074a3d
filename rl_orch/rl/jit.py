"""`kernel`: how the functions of this package are compiled; and the one matrix product they use."""

import ctypes
import fcntl
import gc
import hashlib
import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import binding
from numba import types
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target
from numba.extending import get_cython_function_address
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from rl_orch.rl.compile_time import COMPILING

Floats = NDArray[Any]
"""Contiguous numbers, all float32 or all float64 in one call."""

F = TypeVar("F", bound=Callable[..., Any])

_HERE = Path(__file__).parent
SOURCES = (
    Path(__file__),
    _HERE / "learn" / "optimizer_arrays.py",
    *(_HERE / "kernels").glob("*.py"),
    *(_HERE / "envs" / "native").glob("*.py"),
)
"""Where kernels are, and what they take."""

COMPILED_WITHIN_S = 60.0
LOOK_EVERY_S = 0.02

UNUSED_S = 30 * 24 * 3600.0
"""Age of the last use, the time of the folder, from which on code is swept."""

OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


class KernelCache(FunctionCache):
    """Numba's cache of a function, which one process at a time compiles; others wait for its code.

    By itself, all would compile who come at once, and two that write may give one name to the code
    of two signatures: whoever came later would run one for the other.
    """

    _lock: int | None = None
    _collects = False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature; None where this process is the one to compile it."""
        code = self._kept_code(sig, target_context)
        if code is None and self._begin():
            code = self._kept_code(sig, target_context)
            if code is not None:
                self._end()
        return code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for a signature; if there is room for it and nobody else compiles."""
        if self._lock is not None:
            with suppress(OSError):
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
            self._end()

    def _kept_code(self, sig: Any, target_context: Any) -> Any:
        """The code that is kept for a signature. What cannot be read, as after a power cut, is
        forgotten, whatever that is an error of: it is compiled anew."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def _begin(self) -> bool:
        """Whether this process may compile and keep what it has compiled.

        One that has been stopped in the middle is not waited for without end.
        """
        with suppress(OSError):
            Path(self.cache_path).mkdir(parents=True, exist_ok=True)
            name = Path(self.cache_path, f"{self._impl.filename_base}.lock")
            deadline = time.monotonic() + COMPILED_WITHIN_S
            if self._lock is None:
                self._lock = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
                # Numba makes many objects, and looking for garbage takes a sixth of all its time.
                self._collects = gc.isenabled()
                gc.disable()
            while not _locked(self._lock):
                COMPILING.tell()
                if time.monotonic() > deadline:
                    self._end()
                    return False
                time.sleep(LOOK_EVERY_S)
        return self._lock is not None

    def _end(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            if self._collects:
                gc.enable()


class CompileListener(event.Listener):
    """Numba's word on its work, for the timer: `compiler_lock` is all of it, `compile` a part."""

    def on_start(self, event: Any) -> None:
        """Numba begins."""
        COMPILING.start()
        if event.kind == "numba:compile":
            COMPILING.tell()

    def on_end(self, _event: Any) -> None:
        """Numba is done."""
        COMPILING.stop()


for _kind in ("numba:compiler_lock", "numba:compile"):
    event.register(_kind, CompileListener())  # type: ignore[no-untyped-call]


def _locked(file: int) -> bool:
    """Whether the file is locked by now, through this very descriptor."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def load() -> None:
    """Load what Numba loads before its first kernel, whether that is kept or compiled."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def kernel(function: F) -> F:
    """The function, compiled for the types it is first called with, and kept on disk.

    Kernels release the interpreter's lock. Arithmetic is done as written: no reassociation, and a
    division by zero gives what IEEE 754 says.
    """
    made: Any = numba.njit(**OPTIONS)(function)
    if (kept := _kept(function)) is not None:
        made._cache = kept
    compiled: F = made
    return compiled


def part(function: F) -> F:
    """A function that only kernels call, compiled with them."""
    made: Any = numba.njit(inline="always", **OPTIONS)(function)
    compiled: F = made
    return compiled


def _kept(function: Callable[..., Any]) -> Any:
    """The cache of a function's code; None where our folder cannot be written to.

    Then each process compiles for itself: Numba's own cache may be older than parts of the code.
    """
    folder, config = _folder(), cast(Any, numba.config)
    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        kept: Any = KernelCache(function)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    finally:
        config.CACHE_DIR = before
    return kept if folder and Path(kept.cache_path).is_relative_to(folder) else None


@cache
def _folder() -> str | None:
    """The folder of compiled code in the user's cache, named after all kernels.

    Numba looks only at the file of a kernel, and would not notice a change of one that it calls.
    None where the user has no home, or others can write there.
    """
    digest = hashlib.sha256()
    for source in sorted(SOURCES):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    if not _is_ours_alone(home / "rl_orch"):
        return None
    folder = home / "rl_orch" / f"kernels-{digest.hexdigest()[:16]}"
    with suppress(OSError):
        os.utime(folder)
    _sweep(folder, time.time())
    return str(folder)


def _sweep(used: Path, now: float) -> None:
    """Remove the code of other releases' kernels that was not used for a month."""
    for folder in used.parent.glob("kernels-*"):
        with suppress(OSError):
            if folder != used and now - folder.lstat().st_mtime > UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)


def _is_ours_alone(folder: Path) -> bool:
    """Whether a folder can be written to by this user alone; made if there is none. Whoever else
    could write there would have their code run: what is kept is loaded as it is."""
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(0o700, exist_ok=True)
    try:
        facts = folder.stat()
    except OSError:
        return False
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


def note_of(what: str) -> str | None:
    """A file beside the compiled code: to be made once all that something needs is there; None
    where none is kept. Code is for one interpreter, one Numba and one kind of processor."""
    folder, made = _folder(), cast(Any, product)
    if folder is None or not isinstance(made._cache, KernelCache):
        return None
    by = (what, sys.version, numba.__version__, binding.get_host_cpu_name())
    digest = hashlib.sha256("\0".join(by).encode()).hexdigest()[:16]
    return os.path.join(folder, f"{digest}.complete")


def _blas(name: str) -> Any:
    """A function of BLAS, by a name that compiled code can be kept with."""
    symbol = f"rl_orch_{name}"
    binding.add_symbol(symbol, _address(name))
    return types.ExternalFunction(symbol, types.void(*[types.uintp] * 13))


def _address(name: str) -> int:
    """The address of a function of torch's BLAS, or SciPy's where torch shows none."""
    package = find_spec("torch")
    if package is None or package.origin is None:
        raise ImportError("torch is not installed")
    for library in Path(package.origin).parent.glob("lib/*torch_cpu.*"):
        function: Any = getattr(_opened(library), f"{name}_", None)
        if address := ctypes.cast(function, ctypes.c_void_p).value:
            return address
    address = get_cython_function_address("scipy.linalg.cython_blas", name)
    # Products are too small to share; and by itself, it would take all cores, in every process.
    threadpool_limits(limits=1, user_api="blas")
    return int(address)


def _opened(library: Path) -> ctypes.CDLL:
    """A library of torch: by itself, since who compiles needs nothing else of torch; or after torch
    has found what that depends on."""
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        importlib.import_module("torch")
        return ctypes.CDLL(str(library))


_sgemm, _dgemm = _blas("sgemm"), _blas("dgemm")
A_TRANSPOSED, B_TRANSPOSED, ADDED = 1, 2, 4
"""Parts of the form of a product."""

_NORMAL, _TRANSPOSED = np.int8(ord("N")), np.int8(ord("T"))


@kernel
def product(
    form: int,
    a: Floats,
    a_at: int,
    b: Floats,
    b_at: int,
    c: Floats,
    c_at: int,
    m: int,
    n: int,
    k: int,
) -> None:
    """C = A B, or C + A B: matrices (m, k), (k, n) and (m, n), which begin at places of flat
    arrays. The form says which of them lies there with its axes exchanged, and whether to add."""
    a_transposed, b_transposed = form & A_TRANSPOSED > 0, form & B_TRANSPOSED > 0
    # BLAS counts by columns: it is asked for Cᵀ = Bᵀ Aᵀ.
    sizes, forms, scales = np.empty(6, np.int32), np.empty(2, np.int8), np.empty(2, c.dtype)
    sizes[0], sizes[1], sizes[2] = n, m, k
    sizes[3] = k if b_transposed else n
    sizes[4] = m if a_transposed else k
    sizes[5] = n
    forms[0] = _TRANSPOSED if b_transposed else _NORMAL
    forms[1] = _TRANSPOSED if a_transposed else _NORMAL
    scales[0], scales[1] = 1, 1 if form & ADDED else 0
    i, f, s, width = sizes.ctypes.data, forms.ctypes.data, scales.ctypes.data, c.itemsize
    of_a, of_b = a.ctypes.data + a_at * width, b.ctypes.data + b_at * width
    of_c = c.ctypes.data + c_at * width
    if width == 4:
        _sgemm(f, f + 1, i, i + 4, i + 8, s, of_b, i + 12, of_a, i + 16, s + width, of_c, i + 20)
    else:
        _dgemm(f, f + 1, i, i + 4, i + 8, s, of_b, i + 12, of_a, i + 16, s + width, of_c, i + 20)
    # Numba frees an array after the last line that names it, and BLAS was given mere addresses.
    sizes[0], forms[0], scales[0] = 0, 0, 0

"""The time that compiling kernels takes. It says nothing of how fast a policy is trained.

Numba is not loaded here: where nothing is a kernel, that would be a waste.
"""

import threading
import time
from collections.abc import Callable


class CompileTimer:
    """A stopwatch of a compiler's work, which may be nested and in several threads.

    `on_compile` is called once, when a kernel has to be compiled that is not kept on disk.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.on_compile: Callable[[], None] | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._depth, self._began, self._seconds = 0, 0.0, 0.0

    def start(self) -> None:
        """Note that something is compiled, or read from disk, from here on."""
        with self._lock:
            if self._depth == 0:
                self._began = self._clock()
            self._depth += 1

    def stop(self) -> None:
        """Note that this is done."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._seconds += self._clock() - self._began

    def tell(self) -> None:
        """Call `on_compile`, if that was not done yet."""
        call, self.on_compile = self.on_compile, None
        if call is not None:
            call()

    @property
    def seconds(self) -> float:
        """Seconds so far, those of work under way among them."""
        with self._lock:
            return self._seconds + (self._clock() - self._began if self._depth else 0.0)

    def training_clock(self) -> float:
        """A clock that stands still while the compiler works."""
        return self._clock() - self.seconds


COMPILING = CompileTimer()
"""The timer of this process."""

"""Signals as tests and the processes that they start have them, whoever has started the tests.

What is ignored stays so in every process that one starts. A shell lets what it runs in the
background ignore Ctrl-C, and `nohup` a hangup; the programs that are tested must hear both.
"""

import os
import signal

VARIABLE = "TESTS_UNHEEDED_SIGNALS"
SPARED = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""What whoever starts tests in the background wants them to outlive."""

OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""What Python itself ignores, and gives back to the processes that it starts."""


def hear_signals() -> None:
    """Let no signal be ignored or blocked in processes that this one starts.

    One that was to spare this process is caught and left at that, here and in the processes among
    which tests are shared out: what is caught is not passed on.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ignored = {
        number
        for number in signal.valid_signals()
        if signal.getsignal(number) is signal.SIG_IGN and number not in OF_PYTHON
    }
    unheeded = (ignored & SPARED) | unheeded_signals()
    for number in ignored | unheeded:
        signal.signal(number, _leave if number in unheeded else signal.SIG_DFL)
    os.environ[VARIABLE] = " ".join(signal.Signals(number).name for number in unheeded)


def unheeded_signals() -> set[signal.Signals]:
    """The signals that these tests are to outlive."""
    return {signal.Signals[name] for name in os.environ.get(VARIABLE, "").split()}


def _leave(_number: int, _frame: object) -> None:
    """Take a signal, and do nothing."""

"""Signals as a process of ours has them, whatever its starter ignores or blocks.

Both are inherited: a shell lets what it runs in the background ignore Ctrl-C, `nohup` a hangup, and
some supervisors more. What a command does when a signal comes is its own business.
"""

import signal

OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""What Python itself ignores, and gives back to the processes that it starts."""


def hear_signals() -> None:
    """Ignore and block no signal, here and in processes that this one starts.

    For processes in a session of their own, which no terminal hangs up on: they are asked to end
    by signals, and pass them on.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - OF_PYTHON:
        _hear(number)


def hear_of_children() -> None:
    """Have the kernel keep how children ended until they are waited for; where that signal is
    ignored, all of them seem to have ended well."""
    _hear(signal.SIGCHLD)


def _hear(number: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        heard = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, heard)

"""An environment that starts processes of its own and ends none of them."""

from pathlib import Path

from rl_orch.io.processes import pids

ENV = "leaking:Leaking-v0"
CLEARED = "cleared"
"""What is noted before a process that has cleared its environment."""

LEAKING = '''
"""Every environment starts a child, one in a session of its own, a daemon that has every file open
that the process has, and one that has cleared its environment. `how` says what happens then."""

import multiprocessing, os, signal, subprocess, time
from pathlib import Path
import gymnasium, numpy
from rl_orch.io.processes import pids as processes

NOTES = Path(__file__).with_name("started")


def daemon(program):
    """The pid of a process whose parent has ended; it becomes a program, or just waits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(writing, str(os.getpid()).encode())
        os.close(writing)
        if program is not None:
            os.execve(program, [program, "600"], {})
        time.sleep(600)
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return int(pipe.read())


def leak():
    plain = subprocess.Popen(["sleep", "600"])
    apart = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pids = [os.getpid(), plain.pid, apart.pid, daemon(None)]
    words = [processes.identity(pid) for pid in pids]
    words += ["cleared", processes.identity(daemon("/bin/sleep"))]
    with NOTES.open("a") as notes:
        notes.write(" ".join(words) + chr(10))


def hop(lives_s):
    """Be another process a few dozen times a second."""
    while True:
        time.sleep(lives_s)
        if os.fork():
            os._exit(0)


class Leaking(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, how="goes on", render_mode=None):
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gymnasium.spaces.Discrete(2)
        leak()
        print("an environment was made")
        os.write(1, b"and says so" + bytes([10]))
        if how == "exits":
            os._exit(7)
        elif how == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif how == "hangs":
            time.sleep(600)
        elif how == "kills its group":
            os.killpg(0, signal.SIGKILL)
        elif how == "halts its parent":
            os.kill(os.getppid(), signal.SIGSTOP)
        elif how == "disturbs its parent":
            os.kill(os.getppid(), signal.SIGUSR2)
            os.kill(os.getppid(), signal.SIGALRM)
        elif how == "kills its parent":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)
        elif how == "waits at the end":
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
        elif how == "hops" and os.fork() == 0:
            hop(0.02)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 5
        return self._seen(), {}

    def step(self, action):
        self._left -= 1
        return self._seen(), float(action), False, self._left == 0, {}

    def render(self):
        return numpy.zeros((64, 64, 3), numpy.uint8)

    def _seen(self):
        return self.np_random.random(2, numpy.float32)


gymnasium.register("Leaking-v0", Leaking)
'''


def written(folder: Path) -> Path:
    """The folder, with the module of the environment in it."""
    (folder / "leaking.py").write_text(LEAKING)
    return folder


def started(folder: Path, *, cleared: bool = True) -> list[str]:
    """The identities of all processes that environments of that module were made in, or started;
    those that have cleared their environment among them, or not."""
    notes = folder / "started"
    whole = notes.read_text().rpartition("\n")[0] if notes.exists() else ""
    words = [line.partition(CLEARED) for line in whole.splitlines()]
    return " ".join(known + (other if cleared else "") for known, _, other in words).split()


def alive(folder: Path, *, since: int = 0) -> list[str]:
    """Those of them that live, from a number on."""
    return [known for known in started(folder)[since:] if pids.alive(known)]

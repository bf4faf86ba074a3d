"""What is made of the facts about a machine, and what is looked at before every launch."""

import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.preflight import facts, findings
from rl_orch.core.preflight.facts import quick, reach, refuse, resolve_auto, resolve_devices
from rl_orch.core.preflight.findings import Devices, Finding
from rl_orch.core.preflight.footprint import ROW_BYTES, footprint
from rl_orch.core.store.runs import Store
from rl_orch.errors import BadInput
from rl_orch.io.machine.filesystem import Abilities
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing import FakeRunner, trains_to
from tests.counting import calls

NOW = 1_800_000_000.0
CPU = Devices("2.13.0+cpu")
CUDA = Devices("2.13.0+cu128", cuda=("NVIDIA A40", "NVIDIA A40"))
MPS = Devices("2.13.0", mps=True)


def spec(**values: Any) -> Spec:
    """A small spec; `__` stands for the dots in paths."""
    given = {path.replace("__", "."): value for path, value in values.items()}
    return resolve({"env.id": "CartPole-v1"} | given)


def levels(*found: Finding) -> list[str]:
    return [finding.level for finding in found]


def test_every_finding_that_is_not_well_says_what_to_do() -> None:
    bad = [
        findings.python((3, 10, 1), None),
        findings.torch(Devices("none", problem="torch cannot be loaded"), []),
        findings.torch(CPU, ["NVIDIA A40"]),
        findings.device(spec(resources__device="cuda"), CPU),
        findings.fallback(2),
        findings.rendering(False, None, "Linux"),
        findings.cores(2, spec(resources__threads=4)),
        findings.memory(4096, 4096, spec(resources__memory_mb=8192)),
        findings.memory(16384, 100, spec()),
        findings.disk(10, 20, "/home"),
        findings.disk(30, 20, "/home"),
        findings.home("/home", "is mounted read-only"),
        findings.file_system(Abilities(unwritable="'/x': Permission denied")),
        findings.file_system(Abilities(lacking=("locks (flock): No locks available",))),
        findings.clock(NOW, NOW + 1, 0, 0),
        findings.clock(NOW, 0, 60, 0),
        findings.clock(NOW, 0, 0, -5),
        findings.sqlite((3, 31, 1)),
        findings.open_files(256),
        findings.kernels("/a file/rl_orch", False),
        findings.port(7311, ours=None, free=False),
        findings.extras(spec(env__id="Ant-v5"), lambda _module: False),
    ]
    assert [finding.name for finding in bad if finding.level == "ok"] == []
    assert [finding.name for finding in bad if not finding.fix] == []
    assert [finding.name for finding in bad if not finding.detail] == []


def test_a_machine_in_order_is_told_so() -> None:
    good = [
        findings.python((3, 11, 7), "/venv"),
        findings.torch(CUDA, ["NVIDIA A40", "NVIDIA A40"]),
        findings.device(spec(resources__device="cuda:1"), CUDA),
        findings.device(spec(resources__device="mps"), MPS),
        findings.rendering(True, None, "Linux"),
        findings.rendering(False, "osmesa", "Linux"),
        findings.rendering(False, None, "Darwin"),
        findings.cores(2, spec(resources__threads=2)),
        findings.memory(4096, 4000, spec()),
        findings.disk(4096, 20, "/home"),
        findings.home("/home", None),
        findings.file_system(Abilities()),
        findings.clock(NOW, 0, 0.5, 0.1),
        findings.sqlite((3, 40, 1)),
        findings.open_files(4096),
        findings.kernels("/cache/rl_orch", True),
        findings.port(7311, ours=None, free=True),
        findings.port(7311, ours="http://127.0.0.1:7311", free=False),
        findings.extras(spec(), lambda _module: True),
    ]
    assert set(levels(*good)) == {"ok"}


def test_a_device_that_is_not_there_blocks_a_run_and_says_what_is() -> None:
    found = findings.device(spec(resources__device="cuda:2"), CUDA)
    assert found.level == "fail"
    assert found.detail == (
        "resources.device is 'cuda:2', but torch 2.13.0+cu128 sees 2 cuda devices here"
    )
    with pytest.raises(BadInput, match="sees no cuda devices") as caught:
        refuse([findings.device(spec(resources__device="cuda"), CPU)])
    assert caught.value.path == "resources.device"
    assert "auto or cpu" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("devices", "device", "gpus", "level"),
    [(CUDA, "cuda", 1, "ok"), (MPS, "mps", 0, "ok"), (CPU, "cpu", 0, "warn")],
)
def test_auto_becomes_cuda_then_mps_then_the_cpu(
    devices: Devices, device: str, gpus: int, level: str
) -> None:
    chosen, told = resolve_devices(spec(resources__device="auto"), devices, 4)
    assert (chosen.resources.device, chosen.gpus, levels(*told)) == (device, gpus, [level])
    assert chosen.config_hash == spec().config_hash


def test_on_the_cpu_no_gpu_is_set_aside_and_no_more_threads_than_cores() -> None:
    wanted = spec(resources__device="auto", resources__gpus=2, resources__threads=16)
    chosen, told = resolve_devices(wanted, CPU, 4)
    assert (chosen.gpus, chosen.resources.threads, chosen.cpus) == (0, 4, 4)
    assert "no GPU was found; training on the CPU with 4 threads" in told[0].detail


def test_what_is_asked_for_by_name_stays_as_it_is() -> None:
    for device in ("cuda", "cuda:1", "mps"):
        wanted = spec(resources__device=device)
        assert resolve_devices(wanted, CPU, 4)[0] == wanted
        assert resolve_devices(wanted, CUDA, 4)[0] == wanted


def test_for_the_cpu_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", pytest.fail)
    assert resolve_auto(spec()) == (spec(), [])


def test_a_program_of_its_own_has_a_torch_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    wanted = spec(runner="external", runner__command="train", resources__device="cuda")
    _, told = resolve_auto(wanted)
    assert [finding.detail for finding in told] == [
        "resources.device is 'cuda', but there are no cuda devices here"
    ]


def test_more_cores_or_memory_than_there_are_is_refused() -> None:
    found = findings.cores(2, spec(resources__cpus=3))
    assert found.detail == "resources.cpus is 3, but this machine has 2 cores for it"
    found = findings.cores(2, spec(resources__threads=4, resources__cpus=2))
    assert found.level == "ok"
    found = findings.memory(1024, 1024, spec(resources__memory_mb=2048))
    assert found.detail == "resources.memory_mb is 2048, but this machine has 1,024 MiB for it"


def test_a_disk_must_have_room_for_what_will_be_written() -> None:
    assert levels(
        findings.disk(99, 100, "h"),
        findings.disk(150, 100, "h"),
        findings.disk(10_000, 6_000, "h"),
        findings.disk(20_000, 100, "h"),
        findings.disk(500, 0, "h"),
        findings.disk(5_000, 0, "h"),
    ) == ["fail", "warn", "warn", "ok", "warn", "ok"]


def test_where_there_is_no_room_at_all_nobody_is_told_to_free_some() -> None:
    found = findings.disk(0, 100, "/proc/x")
    assert found.level == "fail"
    assert "nothing can be written" in found.detail
    assert "Free" not in str(found.fix)


@pytest.mark.parametrize(
    ("env_id", "extra"),
    [
        ("CartPole-v1", None),
        ("LunarLander-v3", "box2d"),
        ("BipedalWalkerHardcore-v3", "box2d"),
        ("HalfCheetah-v5", "mujoco"),
        ("InvertedDoublePendulum-v5", "mujoco"),
        ("HumanoidStandup-v5", "mujoco"),
        ("ALE/Pong-v5", "atari"),
        ("ale_py:ALE/Pong-v5", "atari"),
        ("AntMaze-v1", None),
        ("mine:Ant-v5", None),
        ("Pendulum-v1", None),
    ],
)
def test_an_environment_tells_by_its_id_which_extra_it_needs(
    env_id: str, extra: str | None
) -> None:
    needed = findings.needed_extras(spec(env__id=env_id))
    assert needed == ([] if extra is None else [extra])


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    found = findings.extras(spec(env__id="Ant-v5"), lambda m: m != "mujoco", "postgresql://x/y")
    assert (found.level, found.fix) == ("fail", "pip install 'rl-orch[mujoco]'")
    both = findings.extras(spec(env__id="Ant-v5"), lambda _module: False, "postgresql://x/y")
    assert both.fix == "pip install 'rl-orch[postgres,mujoco]'"
    assert findings.extras(None, lambda _module: False).level == "ok"
    exported = spec(gates__max_bundle_mb=1.0)
    assert findings.extras(exported, lambda m: m != "onnx").fix == "pip install 'rl-orch[export]'"
    program = spec(env__id="Ant-v5", runner="external", runner__command="train")
    assert findings.extras(program, lambda _module: False).level == "ok"


def test_a_refusal_says_everything_that_stands_in_the_way_and_returns_warnings_otherwise() -> None:
    warning = Finding("disk", "warn", "little room", "Free some.")
    fails = [Finding("cores", "fail", "too few", "Fewer."), Finding("memory", "fail", "too little")]
    assert refuse([warning, Finding("home", "ok", "there")]) == [warning]
    with pytest.raises(BadInput) as caught:
        refuse([warning, *fails])
    assert (caught.value.message, caught.value.hint) == ("too few; too little", "Fewer.")


def test_the_check_before_every_launch_is_little_work(tmp_path: Path) -> None:
    wanted, found = spec(), list[Finding]()
    quick(tmp_path / "home", wanted)
    assert calls(lambda: found.extend(quick(tmp_path / "home", wanted))) < 50_000
    assert [finding for finding in found if finding.level == "fail"] == []
    assert not (tmp_path / "home").exists()


def test_a_run_that_cannot_be_carried_out_here_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"resources\.cpus is 1024, but this machine has"):
        facts.ready(tmp_path, spec(resources__cpus=1024))
    with pytest.raises(BadInput, match=r"resources\.memory_mb is 100000000, but"):
        facts.ready(tmp_path, spec(resources__memory_mb=10**8))
    with pytest.raises(BadInput, match=r"MiB free for .* will be written"):
        facts.ready(tmp_path, spec(agent__network__hidden_sizes=[16384] * 32, seeds=1000))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written to"):
        facts.ready(tmp_path / "file" / "home", spec())


def test_what_will_be_written_grows_with_what_is_asked_for() -> None:
    base = footprint(spec())
    wider = footprint(spec(agent__network__hidden_sizes=[256, 256]))
    longer = footprint(spec(train__total_timesteps=10_000_000))
    many = footprint(spec(checkpoint__keep_last=1000, checkpoint__every=4096))
    assert base.checkpoint < wider.checkpoint
    assert base.rest < longer.rest
    assert base.checkpoints < many.checkpoints < 1000
    assert footprint(spec(agent__network__shared=True)).checkpoint < base.checkpoint
    assert facts.needed_mb(spec(seeds=10)) > facts.needed_mb(spec())
    assert facts.needed_mb(None) == 0


def test_a_replay_buffer_is_written_once_and_again_for_a_best_checkpoint_of_long_ago() -> None:
    assert footprint(spec()).replay == 0
    short, long, longer = (
        footprint(spec(agent__algorithm="dqn", buffer__size=10_000, train__total_timesteps=steps))
        for steps in (5_000, 15_000, 10_000_000)
    )
    assert (short.replay, long.replay, longer.replay) == (
        5_000 * ROW_BYTES,
        15_000 * ROW_BYTES,
        20_000 * ROW_BYTES,
    )
    assert long.total > long.replay + long.checkpoint * long.checkpoints
    prioritised = footprint(
        spec(agent__algorithm="dqn", buffer__size=10_000, buffer__prioritized=True)
    )
    assert prioritised.checkpoint - long.checkpoint == 4 * 10_000


def test_a_database_that_is_not_there_yet_is_well_and_is_not_made(tmp_path: Path) -> None:
    found = reach(str(tmp_path / "home" / "rlctl.db"))
    assert found.level == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_there_is_read(tmp_path: Path) -> None:
    Store(tmp_path / "rlctl.db")
    assert reach(str(tmp_path / "rlctl.db")) == Finding(
        "database", "ok", str(tmp_path / "rlctl.db")
    )


def test_a_damaged_database_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rlctl.db"
    Store(path)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    assert (reach(str(path)).level, reach(str(path)).name) == ("fail", "database")
    path.write_text("this is no database" * 100)
    assert "not a database" in reach(str(path)).detail


def test_a_database_of_a_newer_release_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "rlctl.db"
    Store(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    found = reach(str(path))
    assert (found.level, found.fix) == ("fail", "Use the newer rlctl.")


def test_a_database_with_two_schemas_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "rlctl.db"
    Store(path)
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO alembic_version VALUES ('0001')")
    assert reach(str(path)).level == "fail"
    assert "several schemas" in reach(str(path)).detail


def test_a_database_server_that_does_not_answer_is_told_without_its_password() -> None:
    found = reach("postgresql://user:secret@127.0.0.1:1/none?connect_timeout=2")
    assert found.level == "fail"
    assert "secret" not in f"{found}"
    assert found.fix == "Check that PostgreSQL runs there and can be reached from here."


def test_the_machine_is_looked_at_once_for_a_launch_and_once_for_a_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Spec] = []

    def counted(home: Path, asked: Spec) -> list[Finding]:
        looked.append(asked)
        return quick(home, asked)

    monkeypatch.setattr(facts, "quick", counted)
    made = Orchestrator(tmp_path, FakeRunner(trains_to([1.0])))
    made.launch(spec())
    assert len(looked) == 1
    made.submit(spec())
    assert len(looked) == 2

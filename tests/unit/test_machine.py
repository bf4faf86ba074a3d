"""What a machine has: read from control groups, from what `nvidia-smi` prints, from this system."""

import os
from pathlib import Path

import psutil
import pytest

from rl_orch.io.machine import hardware
from rl_orch.io.machine.cgroups import Cgroups, here
from rl_orch.io.machine.filesystem import abilities, writable
from rl_orch.io.machine.hardware import Gpu, listed, visible

PRINTED = """\
0, GPU-5a1c4d0e-2f1b-8c3d-77aa-0d1f2e3a4b5c, 24564, NVIDIA GeForce RTX 4090
1, GPU-9b7e0c11-aaaa-bbbb-cccc-0123456789ab, 81559, NVIDIA H100 80GB HBM3
2, GPU-9b7e0fff-aaaa-bbbb-cccc-0123456789ab, [N/A], NVIDIA GB10, Grace
"""
FIRST, SECOND, THIRD = listed(PRINTED).values()
UNLIMITED = "9223372036854771712\n"


def put(root: Path, **files: str) -> None:
    """Files in a folder; `__` stands for the dots in their names."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)


def test_what_nvidia_smi_prints_is_understood() -> None:
    assert FIRST.memory_mb == 24564
    assert (FIRST.index[:12], FIRST.name) == ("GPU-5a1c4d0e", "NVIDIA GeForce RTX 4090")
    assert (THIRD.memory_mb, THIRD.name) == (0, "NVIDIA GB10, Grace")


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n",
        "0, [Unknown Error], [N/A], [N/A]\n",
    ],
)
def test_what_is_no_gpu_is_passed_over(printed: str) -> None:
    assert listed(printed) == {}
    assert listed(printed + PRINTED) == {0: FIRST, 1: SECOND, 2: THIRD}


def test_without_the_variable_gpus_are_called_by_their_uuids() -> None:
    found = visible({0: FIRST, 1: SECOND}, None)
    assert found[0] == Gpu(FIRST.index, "NVIDIA GeForce RTX 4090", 24564)
    assert [gpu.index for gpu in found] == [FIRST.index, SECOND.index]


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("", []),
        ("0", [FIRST]),
        ("2,0", [THIRD, FIRST]),
        (" 1 , 0 ", [SECOND, FIRST]),
        ("-1", []),
        ("0,2,-1,1", [FIRST, THIRD]),
        ("0,7,1", [FIRST]),
        ("0,0", []),
        ("NoDevFiles", []),
        (FIRST.index, [FIRST]),
        ("GPU-5a1c", [FIRST]),
        ("GPU-9b7e0", []),
        ("GPU-9b7e0f,GPU-9b7e0c", [THIRD, SECOND]),
        ("5a1c", []),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(variable: str, seen: list[Gpu]) -> None:
    found = visible(listed(PRINTED), variable)
    assert [gpu.name for gpu in found] == [gpu.name for gpu in seen]
    assert [gpu.index for gpu in found] == [part.strip() for part in variable.split(",")][
        : len(found)
    ]


def test_slices_of_a_gpu_count_as_gpus() -> None:
    found = visible({0: FIRST}, "MIG-1b2c,MIG-3d4e")
    assert [gpu.index for gpu in found] == ["MIG-1b2c", "MIG-3d4e"]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, the only one on the path but for a shell's."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin{os.pathsep}/usr/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "nvidia-smi"


def write_program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)


def test_gpus_are_asked_of_the_driver(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(smi, f"cat <<END\n{PRINTED}END")
    assert [gpu.index for gpu in hardware.gpus()] == [FIRST.index, SECOND.index, THIRD.index]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.name for gpu in hardware.gpus()] == ["NVIDIA H100 80GB HBM3"]


def test_a_driver_that_fails_or_hangs_has_no_gpus(
    smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(smi, "echo NVIDIA-SMI has failed >&2", "exit 9")
    assert hardware.gpus() == []
    monkeypatch.setattr(hardware, "SMI_TIMEOUT_S", 0.2)
    write_program(smi, "exec sleep 3600")  # Nobody waits that long.
    assert hardware.gpus() == []


def test_a_machine_without_the_program_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware.gpus() == []


def test_the_quota_of_version_2_counts_in_every_group_above(tmp_path: Path) -> None:
    put(tmp_path / "lab" / "user", cpu__max="max 100000\n", memory__max="max\n")
    put(tmp_path / "lab", cpu__max="250000 100000\n", memory__max="1073741824\n")
    put(
        tmp_path / "lab", memory__current="536870912\n", memory__stat="anon 1\ninactive_file 1024\n"
    )
    found = Cgroups("0::/lab/user\n", tmp_path)
    assert found.cpus() == 2.5
    assert found.memory_bytes() == 1 << 30
    assert found.memory_left_bytes() == (1 << 29) + 1024


def test_the_quota_of_version_1_is_in_a_folder_for_each_controller(tmp_path: Path) -> None:
    put(tmp_path / "cpu,cpuacct" / "job", cpu__cfs_quota_us="150000\n")
    put(tmp_path / "cpu,cpuacct" / "job", cpu__cfs_period_us="100000\n")
    put(tmp_path / "memory" / "job", memory__limit_in_bytes="2147483648\n")
    put(tmp_path / "memory" / "job", memory__usage_in_bytes="1048576\n")
    put(tmp_path / "memory", memory__limit_in_bytes=UNLIMITED)
    found = Cgroups("4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n", tmp_path)
    assert found.cpus() == 1.5
    assert found.memory_bytes() == 2 << 30
    assert found.memory_left_bytes() == (2 << 30) - (1 << 20)


def test_in_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    put(tmp_path / "cpu", cpu__cfs_quota_us="400000\n", cpu__cfs_period_us="100000\n")
    put(tmp_path / "memory", memory__limit_in_bytes="1024\n")
    found = Cgroups("2:cpu:/docker/0123abc\n1:memory:/docker/0123abc\n", tmp_path)
    assert (found.cpus(), found.memory_bytes()) == (4.0, 1024)


@pytest.mark.parametrize("quota", ["-1\n", "max 100000\n", "", "nonsense\n"])
def test_no_quota_is_no_limit(tmp_path: Path, quota: str) -> None:
    put(tmp_path, cpu__max=quota)
    put(tmp_path / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000\n")
    found = Cgroups("1:cpu:/\n0::/\n", tmp_path)
    assert (found.cpus(), found.memory_bytes(), found.memory_left_bytes()) == (None, None, None)
    assert Cgroups("", tmp_path).cpus() is None


def test_this_machine_has_what_the_system_says_at_most() -> None:
    cores, quota = hardware.cores(), here().cpus()
    assert 1 <= cores <= len(os.sched_getaffinity(0))
    assert quota is None or cores <= max(1, quota)
    assert 0 < hardware.memory_free_mb() <= hardware.memory_mb()
    assert hardware.memory_mb() <= psutil.virtual_memory().total >> 20
    assert hardware.open_files() > 0


def test_fewer_cores_may_be_allowed_than_there_are() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert hardware.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_room_of_a_folder_that_is_not_there_yet_is_that_of_its_disk(tmp_path: Path) -> None:
    there = hardware.disk_free_mb(tmp_path)
    assert there > 0
    assert abs(hardware.disk_free_mb(tmp_path / "not" / "yet") - there) < 1024
    assert hardware.nearest(tmp_path / "not" / "yet") == tmp_path


def test_a_local_disk_can_do_all_that_runs_rely_on(tmp_path: Path) -> None:
    long = tmp_path / ("ä b" * 30) / "home"
    found = abilities(long)
    assert (found.unwritable, found.lacking) == (None, ())
    assert abs(found.skew_s) < 1
    long.mkdir(parents=True)
    assert abilities(long).lacking == ()
    assert list(long.iterdir()) == []


def test_what_is_no_folder_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in str(abilities(tmp_path / "file" / "home").unwritable)
    assert not writable(tmp_path / "file" / "home")
    assert writable(tmp_path / "home")
    assert not (tmp_path / "home").exists()

"""Which files count as the source of a run, and by which names."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_orch.io.run import manifest, sources
from rl_orch.io.run.events import read
from rl_orch.worker.train import run_attempt
from tests.unit.test_live_changes import a_run, a_spec, crash_after

FILES = {
    "pkg/__init__.py": "from gymnasium import register\n"
    "register(id='ItsOwn-v0', entry_point='pkg.envs.own:Own')\n",
    "pkg/envs/__init__.py": "",
    "pkg/envs/own.py": "import installed_thing\nfrom .. import shared\nfrom ..parts import one\n"
    "from gymnasium.envs.classic_control.cartpole import CartPoleEnv as Own\n",
    "pkg/shared.py": "def late():\n    import helper\n",
    "pkg/parts/__init__.py": "from .two import *\n",
    "pkg/parts/one.py": "from importlib import import_module\nimport_module('dynamic')\n",
    "pkg/parts/two.py": "",
    "helper.py": "import pkg\n",
    "dynamic.py": "this is no Python\n",
    "wrap.py": "from gymnasium import Wrapper as Same\n",
    "unrelated.py": "",
    ".venv/lib/python3.11/site-packages/installed_thing.py": "import installed_other\n",
    ".venv/lib/python3.11/site-packages/installed_other.py": "",
}
READ = {
    *("pkg/__init__.py", "pkg/envs/__init__.py", "pkg/envs/own.py", "pkg/shared.py"),
    *("pkg/parts/__init__.py", "pkg/parts/one.py", "pkg/parts/two.py", "helper.py", "dynamic.py"),
}
OWN = ("env.id=pkg:ItsOwn-v0", "env.max_episode_steps=40")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a virtual environment inside, both of which are searched."""
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder / ".venv/lib/python3.11/site-packages"))
    monkeypatch.syspath_prepend(str(folder))
    before = {*sys.modules}
    yield folder
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def paths(digests: dict[str, str]) -> set[str]:
    return {key.removeprefix("source ") for key in digests if key.startswith("source ")}


def test_the_sources_are_what_named_modules_import_and_nothing_installed(project: Path) -> None:
    assert paths(sources.of(a_spec("ppo", *OWN))) == READ


def test_what_a_process_has_loaded_makes_no_difference(project: Path) -> None:
    spec = a_spec("ppo", *OWN)
    cold = sources.of(spec)
    __import__("unrelated")
    __import__("pkg.parts.two")
    __import__("installed_thing")
    assert sources.of(spec) == cold
    script = project / "started.py"
    script.write_text(
        "import json, sys, helper, unrelated, installed_thing\n"
        "from rl_orch.io.run import sources\nfrom rl_orch.spec.model import Spec\n"
        "print(json.dumps(sources.of(Spec.model_validate_json(sys.argv[1]))))\n"
    )
    searched = [str(project), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, str(script), spec.model_dump_json()],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(searched)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == cold


def test_a_wrapper_is_source_by_either_spelling(project: Path) -> None:
    for name in ("wrap:Same", "wrap.Same", "{name: wrap.Same, size: 2}"):
        spec = a_spec("ppo", f"env.wrappers=[{name!s}]")
        assert paths(sources.of(spec)) == {"wrap.py"}
    assert sources.of(a_spec("ppo", "env.wrappers=[FlattenObservation]")) == {}


def test_a_namespace_package_and_a_gone_module_are_no_files(project: Path) -> None:
    (project / "space").mkdir()
    (project / "space/inner.py").write_text("import nowhere\nfrom . import gone\n")
    spec = a_spec("ppo", "env.wrappers=[space.inner.Same]")
    assert paths(sources.of(spec)) == {"space/inner.py"}
    assert paths(sources.of(a_spec("ppo", "env.wrappers=[nowhere.at.all.Same]"))) == set()


@pytest.mark.parametrize("changed", [*sorted(READ - {"dynamic.py"}), "unrelated.py", None])
def test_every_file_is_told_apart_by_its_path(project: Path, changed: str | None) -> None:
    spec = a_spec("ppo", *OWN)
    before = sources.of(spec)
    if changed is not None:
        (project / changed).write_text((project / changed).read_text() + "\n# changed\n")
    told = manifest.differences(before, sources.of(spec))
    assert [line.split()[1] for line in told] == [each for each in [changed] if each in READ]


def test_a_checkpoint_of_before_is_compared_by_the_names_of_files(project: Path) -> None:
    now = sources.of(a_spec("ppo", *OWN))
    old = {f"source {Path(path).name}": now[f"source {path}"] for path in sorted(READ)}
    old |= {"torch": "2", "source torch_thing.py": "0123456789ab", "source __init__.py": "other"}
    now |= {"torch": "2"}
    assert manifest.differences(sources.rekeyed(old, now), now) == []
    changed = old | {"source own.py": "0123456789ab"}
    (told,) = manifest.differences(sources.rekeyed(changed, now), now)
    assert told.startswith("source pkg/envs/own.py 0123456789ab →")
    assert manifest.differences(sources.rekeyed({"torch": "2"}, now), now) == []
    assert sources.rekeyed(now, {"torch": "2"}) == now


@pytest.mark.parametrize("edited", [True, False])
def test_a_run_whose_wrapper_has_changed_goes_on_approximately(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: bool
) -> None:
    (project / "wrap.py").write_text(
        "from gymnasium import Wrapper\n\n\nclass Same(Wrapper):\n    pass\n"
    )
    run = a_run(tmp_path / "run", a_spec("ppo", "env.wrappers=[wrap.Same]"))
    with monkeypatch.context() as patch:
        crash_after(patch, 3)
        assert run_attempt(run, 1) == 1
    if edited:
        (project / "wrap.py").write_text((project / "wrap.py").read_text() + "# changed\n")
    __import__("installed_thing")
    assert run_attempt(run, 2) == 0
    told = [event for event in read(run.events) if event.key == "resume" and event.attempt == 2]
    assert told[0].value == ("approximate" if edited else "bitwise")

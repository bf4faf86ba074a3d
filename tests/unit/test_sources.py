"""Which files count as the source of a run, and by which names."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from rl_orch.io.processes import import_path
from rl_orch.io.run import manifest, sources
from rl_orch.io.run.events import read
from rl_orch.spec.model import Spec
from rl_orch.worker.train import run_attempt
from tests.unit.test_live_changes import a_run, a_spec, crash_after

FILES = {
    "pkg/__init__.py": "",
    "pkg/envs/__init__.py": "",
    "pkg/envs/own.py": "import installed_thing\nfrom gymnasium import register\n"
    "from .. import shared\nfrom ..parts import one\n"
    "from gymnasium.envs.classic_control.cartpole import CartPoleEnv as Own\n"
    "register(id='ItsOwn-v0', entry_point='pkg.envs.own:Own')\n",
    "pkg/shared.py": "def late():\n    import helper\n",
    "pkg/parts/__init__.py": "from .two import *\n",
    "pkg/parts/one.py": "from importlib import import_module as im\n"
    "def load():\n    im('dynamic')\n    im('space.deep.inner')\n",
    "pkg/parts/two.py": "",
    "helper.py": "import pkg\n",
    "dynamic.py": "def late():\n    import later\n",
    "later.py": "",
    "space/deep/inner.py": "",
    "wrap.py": "from gymnasium import Wrapper as Same\n",
    "unrelated.py": "",
    ".venv/lib/python3.11/site-packages/installed_thing.py": "import installed_other\n",
    ".venv/lib/python3.11/site-packages/installed_other.py": "",
}
READ = {
    *("pkg/__init__.py", "pkg/envs/__init__.py", "pkg/envs/own.py", "pkg/shared.py"),
    *("pkg/parts/__init__.py", "pkg/parts/one.py", "pkg/parts/two.py", "helper.py"),
}
LOADED = {"dynamic.py", "later.py", "space/deep/inner.py"}
OWN = ("env.id=pkg.envs.own:ItsOwn-v0", "env.max_episode_steps=40")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a virtual environment inside, both of which are searched."""
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder / ".venv/lib/python3.11/site-packages"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv(import_path.VARIABLE, json.dumps([str(folder)]))
    before = {*sys.modules}
    yield folder
    forget(folder, before)


def forget(folder: Path, before: set[str]) -> None:
    """Unload the project, as in a process that begins."""
    for name in {*sys.modules} - before:
        where = getattr(sys.modules[name], "__file__", None) or ""
        if where.startswith(str(folder)) or name.partition(".")[0] == "space":
            del sys.modules[name]


def paths(digests: dict[str, str]) -> set[str]:
    return {key.removeprefix("source ") for key in digests if key.startswith("source ")}


def seen(spec: Spec, *, known: Iterable[str] = (), loaded: bool = False) -> dict[str, str]:
    made = sources.Sources(spec, import_path.searched(), known)
    if loaded:
        made.take_in_loaded()
    return made.digests()


def test_the_sources_are_what_named_modules_import_and_nothing_installed(project: Path) -> None:
    assert paths(seen(a_spec("ppo", *OWN))) == READ


def test_what_a_process_has_loaded_before_makes_no_difference_to_what_is_imported(
    project: Path,
) -> None:
    spec = a_spec("ppo", *OWN)
    cold = seen(spec)
    __import__("unrelated")
    __import__("pkg.parts.two")
    __import__("installed_thing")
    assert seen(spec) == cold
    script = project / "started.py"
    script.write_text(
        "import json, sys, helper, unrelated, installed_thing\n"
        "from rl_orch.io.run.sources import Sources\nfrom rl_orch.spec.model import Spec\n"
        "print(json.dumps(Sources(Spec.model_validate_json(sys.argv[1])).digests()))\n"
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


def test_what_no_statement_imports_is_a_source_once_it_is_loaded(project: Path) -> None:
    spec, before = a_spec("ppo", *OWN), {*sys.modules}
    made = sources.Sources(spec, import_path.searched())
    made.take_in_loaded()
    import_module("pkg.parts.one").load()
    import_module("installed_thing")
    assert paths(made.digests()) == READ
    made.take_in_loaded()
    assert paths(made.digests()) == READ | LOADED
    forget(project, before)
    # Another process, which has loaded nothing of it yet, finds the same; nothing but that.
    assert seen(spec, known=made.digests()) == made.digests()
    (project / "dynamic.py").write_text("def late():\n    import later, unrelated\n")
    told = manifest.differences(made.digests(), seen(spec, known=made.digests()))
    assert [line.split()[1] for line in told] == ["dynamic.py", "unrelated.py"]
    (project / "space/deep/inner.py").unlink()
    lost = seen(spec, known=made.digests())
    assert paths(made.digests()) - paths(lost) == {"space/deep/inner.py"}


def test_a_source_is_what_was_loaded_whatever_its_file_says_later(project: Path) -> None:
    import_module("pkg.parts.one").load()
    made = sources.Sources(a_spec("ppo", *OWN), import_path.searched())
    made.take_in_loaded()
    digests = made.digests()
    (project / "dynamic.py").write_text("# changed\n")
    made.take_in_loaded()
    assert made.digests() == digests


def test_a_run_that_names_no_module_has_no_sources(project: Path) -> None:
    __import__("unrelated")
    assert seen(a_spec("ppo"), known=["source unrelated.py"], loaded=True) == {}


def test_folders_that_a_module_has_searched_are_no_difference_after_a_resume(project: Path) -> None:
    (project / "more").mkdir()
    (project / "more/part.py").write_text("import part_of_part\n")
    (project / "more/part_of_part.py").write_text("")
    spec = a_spec("ppo", *OWN)
    made = sources.Sources(spec, import_path.searched())
    sys.path.append(str(project / "more"))
    try:
        __import__("part")
        made.take_in_loaded()
    finally:
        sys.path.remove(str(project / "more"))
    assert paths(made.digests()) == READ | {"more/part.py", "more/part_of_part.py"}
    assert seen(spec, known=made.digests()) == made.digests()


def test_a_wrapper_is_source_by_either_spelling(project: Path) -> None:
    for name in ("wrap:Same", "wrap.Same", "{name: wrap.Same, size: 2}"):
        spec = a_spec("ppo", f"env.wrappers=[{name!s}]")
        assert paths(seen(spec)) == {"wrap.py"}
    assert seen(a_spec("ppo", "env.wrappers=[FlattenObservation]")) == {}


def test_a_namespace_package_and_a_gone_module_are_no_files(project: Path) -> None:
    (project / "space/deep/inner.py").write_text("import nowhere\nfrom . import gone\n")
    spec = a_spec("ppo", "env.wrappers=[space.deep.inner.Same]")
    assert paths(seen(spec)) == {"space/deep/inner.py"}
    assert paths(seen(a_spec("ppo", "env.wrappers=[nowhere.at.all.Same]"))) == set()


@pytest.mark.parametrize("changed", [*sorted(READ), "unrelated.py", None])
def test_every_file_is_told_apart_by_its_path(project: Path, changed: str | None) -> None:
    spec = a_spec("ppo", *OWN)
    before = seen(spec)
    if changed is not None:
        (project / changed).write_text((project / changed).read_text() + "\n# changed\n")
    told = manifest.differences(before, seen(spec))
    assert [line.split()[1] for line in told] == [each for each in [changed] if each in READ]


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


@pytest.mark.parametrize("edited", [True, False])
def test_a_run_resumes_exactly_as_long_as_what_it_has_loaded_is_the_same(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: bool
) -> None:
    (project / "wrap.py").write_text(
        "from importlib import import_module as im\nfrom gymnasium import Wrapper\n\n\n"
        "class Same(Wrapper):\n    def reset(self, **options):\n"
        "        im('dynamic')\n        return self.env.reset(**options)\n"
    )
    run, before = a_run(tmp_path / "run", a_spec("ppo", "env.wrappers=[wrap.Same]")), {*sys.modules}
    for attempt in (1, 2):
        with monkeypatch.context() as patch:
            crash_after(patch, 1)
            assert run_attempt(run, attempt) == 1
        forget(project, before)
    if edited:
        (project / "dynamic.py").write_text("# changed\n")
    assert run_attempt(run, 3) == 0
    told = [event for event in read(run.events) if event.key == "resume" and event.attempt > 1]
    assert [each.value for each in told] == ["bitwise", "approximate" if edited else "bitwise"]
    assert ("dynamic.py" in str(told[1].tags["reason"])) == edited

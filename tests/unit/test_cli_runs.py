"""Runs as users name, find and change them on the command line, without a service."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_orch import orchestrator
from rl_orch.cli.rlctl import COMMANDS, MEANT, SYNONYMS
from rl_orch.cli.views.text import short
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.records import Run, State
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.conftest import Ran

Rlctl = Callable[..., Ran]


@pytest.fixture
def home(rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch) -> Orchestrator:
    """The home that the command has, with runs that end at once."""
    made = Orchestrator(Path("rlruns"), FakeRunner(trains_to([4.0, 5.0] * 6)))
    monkeypatch.setattr(orchestrator, "connect", lambda *_args, **_kw: made)
    return made


def queued(home: Orchestrator, *overrides: str) -> Run:
    return home.submit(a_spec(*overrides)).runs[0]


@pytest.mark.parametrize("words", [["rm", "--yes"], ["rm"], ["stop"], ["tag"], ["set"]])
def test_a_name_that_several_runs_have_changes_none_of_them(
    rlctl: Rlctl, home: Orchestrator, words: list[str]
) -> None:
    """Whoever cannot be asked gets the list."""
    runs = [queued(home, "name=twin") for _ in range(2)]
    group = home.submit(a_spec("name=twin", "seeds=2")).group
    assert group is not None
    more = {"tag": ["a=b"], "set": ["train.lr=1"]}.get(words[0], [])
    before = home.ls().runs
    ran = rlctl(*words, "twin", *more)
    assert (ran.code, ran.out) == (2, "")
    assert all(name in ran.err for name in (runs[0].id, runs[1].id, group.id))
    error = json.loads(rlctl(*words, "twin", *more, "--json").out)["error"]
    assert error["code"] == "ambiguous"
    assert home.ls().runs == before


def test_of_several_runs_of_a_name_a_person_chooses(
    rlctl: Rlctl, home: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [home.launch(a_spec("name=twin")).run for _ in range(3)]
    asked: list[str] = []
    answers = iter([0, 7, 2])

    def prompt(text: str, **_: object) -> int:
        asked.append(text)
        return next(answers)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("rl_orch.cli.views.subjects.typer.prompt", prompt)
    monkeypatch.setattr("rl_orch.cli.commands.rm.typer.confirm", lambda *_, **__: True)
    ran = rlctl("rm", "twin")
    assert (ran.code, len(asked)) == (0, 3)
    assert all(run.id in ran.err for run in runs)
    assert [run.id for run in home.ls().runs] == [runs[2].id, runs[0].id]
    assert rlctl("rm", "twin", "--yes").code == 2


def test_only_a_run_that_has_yet_to_end_is_meant_to_be_stopped(
    rlctl: Rlctl, home: Orchestrator
) -> None:
    waiting = queued(home, "name=twin")
    done = home.launch(a_spec("name=twin")).run
    assert json.loads(rlctl("stop", "twin", "--json").out)["id"] == waiting.id
    assert rlctl("rm", waiting.id, "--yes").code == 0
    assert rlctl("rm", done.id, "--yes").code == 0
    assert home.ls().runs == ()


def test_who_is_not_asked_names_what_is_deleted_by_its_id(
    rlctl: Rlctl, home: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, run = (home.launch(a_spec(f"name={name}")).run for name in ("other", "one"))
    for word in ("one", "last", run.id[:-2]):
        ran = rlctl("rm", other.id, word, "--yes")
        assert (ran.code, ran.out) == (2, "")
        assert f"rlctl rm {run.id} --yes" in ran.err
        error = json.loads(rlctl("rm", word, "-y", "--json").out)["error"]
        assert (error["code"], run.id in error["message"]) == ("bad_input", True)
    assert len(home.ls().runs) == 2
    monkeypatch.setattr("rl_orch.cli.commands.rm.typer.confirm", lambda *_, **__: True)
    assert rlctl("rm", "one").code == 0
    assert rlctl("rm", other.id, "--yes").code == 0
    assert home.ls().runs == ()


def test_only_a_run_that_can_go_on_is_meant_to_be_resumed(
    rlctl: Rlctl, home: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (queued(home, "name=twin") for _ in range(2))
    for run in (first, second):
        home.stop(run.id)
    home.launch(a_spec("name=twin"))
    before = home.ls().runs
    for more in ((), ("--detach",)):
        error = json.loads(rlctl("resume", "twin", "--json", *more).out)["error"]
        assert error["code"] == "ambiguous"
        assert all(run.id in error["message"] for run in (first, second))
    assert home.ls().runs == before
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdin.isatty", lambda: True)
        patch.setattr("rl_orch.cli.views.subjects.typer.prompt", lambda *_, **__: 2)
        assert rlctl("resume", "twin").code == 0
    assert (home.get(first.id).attempt, home.get(second.id).attempt) == (1, 0)
    assert rlctl("resume", "twin", "--json").code == 0
    assert home.get(second.id).attempt == 1


def test_a_path_of_another_machine_is_shown_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    assert short(str(tmp_path / "runs" / "r-1")) == str(tmp_path / "runs" / "r-1")
    (tmp_path / "runs" / "r-1").mkdir(parents=True)
    assert short(str(tmp_path / "runs" / "r-1")) == "../runs/r-1"


def test_words_of_other_tools_are_understood_or_answered_with_ours(rlctl: Rlctl) -> None:
    meant = {ours.split()[0] for ours in MEANT.values()}
    assert {*SYNONYMS.values(), *meant} <= set(COMMANDS)
    assert not {*SYNONYMS, *MEANT} & set(COMMANDS)
    for word, ours in SYNONYMS.items():
        assert f"Usage: rlctl {ours}" in rlctl(word, "--help").out
    for word, ours in MEANT.items():
        assert f"Did you mean `rlctl {ours}`?" in rlctl(word).err
    assert json.loads(rlctl("registry", "ls", "--json").out) == {"models": []}
    assert json.loads(rlctl("token", "list", "--json").out) == {"tokens": []}


def test_a_mistyped_name_is_answered_with_the_nearest(rlctl: Rlctl, home: Orchestrator) -> None:
    queued(home, "name=first")
    for words in (["show", "frist"], ["wait", "frist"], ["eval", "frist"]):
        assert "Did you mean 'first'?" in rlctl(*words).err


FLAGS = {
    "--n-envs 4": ("env", "num_envs", 4),
    "--learning-rate 1e-3": ("train", "lr", 1e-3),
    "--n-steps 64": ("rollout", "steps", 64),
    "-n 5000": ("train", "total_timesteps", 5000),
    "--n-timesteps 5000": ("train", "total_timesteps", 5000),
    "--eval-freq 1000": ("eval", "every", 1000),
    "--save-freq 1000": ("checkpoint", "every", 1000),
    "--ent-coef 0.01": ("train", "ent_coef", 0.01),
    "--vf-coef 0.3": ("train", "vf_coef", 0.3),
    "--n-epochs 3": ("train", "update_epochs", 3),
    "--gae-lambda 0.9": ("train", "gae_lambda", 0.9),
    "--net-arch [8]": ("agent", "network", None),
    "--min-return 3": ("gates", "min_return", 3.0),
    "-params learning_rate:0.5 n_envs:2": ("env", "num_envs", 2),
}


def test_words_of_stable_baselines_and_its_zoo_are_flags(rlctl: Rlctl, home: Orchestrator) -> None:
    command = ("launch", "--env", "CartPole-v1", "--detach", "tuned=false", "--json")
    for typed, (group, name, value) in FLAGS.items():
        run_id = json.loads(rlctl(*command, *typed.split()).out)["id"]
        spec = home.show(run_id).spec.model_dump(mode="json")
        assert value is None or spec[group][name] == value
    assert spec["train"]["lr"] == 0.5


def test_a_resumed_run_takes_options_as_a_launched_one(rlctl: Rlctl, home: Orchestrator) -> None:
    run = queued(home, "name=one")
    home.stop(run.id)
    words = ("resume", "one", "--detach", "--json")
    refused = rlctl(*words, "--learning-rate", "0.5")
    assert refused.code == 2
    assert json.loads(refused.out)["error"]["path"] == "train.lr"
    more = ("train.total_timesteps=200000", "--eval-freq", "500", "--name", "an 'other' one")
    assert rlctl(*words, *more).code == 0
    spec = home.show(run.id).spec
    assert (spec.train.total_timesteps, spec.eval.every) == (200_000, 500)
    assert (spec.name, home.get(run.id).state) == ("an 'other' one", State.QUEUED)


def test_to_extend_a_run_is_to_give_it_more(rlctl: Rlctl, home: Orchestrator) -> None:
    run = queued(home, "name=one", "train.total_timesteps=1000")
    home.stop(run.id)
    for steps in ("1000", "1k", "500"):
        refused = json.loads(rlctl("resume", "one", "--extend", steps, "--json").out)["error"]
        assert refused["path"] == "train.total_timesteps"
    assert "--extend 1500" in refused["hint"]
    one_more = json.loads(rlctl("resume", "one", "--extend", "1", "--json").out)["error"]["hint"]
    assert one_more.startswith("For 1 step more: ")
    assert rlctl("resume", "one", "--extend", "2k", "--detach").code == 0
    assert home.show(run.id).spec.train.total_timesteps == 2000


@pytest.mark.parametrize("name", ["last", "best", "Best", "best@CartPole-v1", "12"])
def test_a_name_that_means_something_else_is_refused(rlctl: Rlctl, name: str) -> None:
    ran = rlctl("launch", "--env", "CartPole-v1", "--detach", "--name", name, "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["error"]["path"] == "name"


@pytest.mark.parametrize(
    "words", [["ls"], ["show", "x"], ["registry", "list"], ["token", "create", "x"], ["rm", "x"]]
)
def test_a_home_that_is_a_file_is_said_to_be_one(
    rlctl: Rlctl, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    for home in ("file", "file/inside"):
        ran = rlctl(*words, "--home", str(tmp_path / home), "--json")
        assert ran.code == 2
        assert f"{str(tmp_path / 'file')!r} is a file" in json.loads(ran.out)["error"]["message"]


def test_runs_are_listed_by_what_they_are_with_the_columns_that_are_chosen(
    rlctl: Rlctl, home: Orchestrator
) -> None:
    one = queued(home, "name=a name")
    other = home.submit(a_spec("tags={team: a}", "agent.algorithm=a2c", env_id="Acrobot-v1")).runs[
        0
    ]
    home.submit(a_spec("name=many", "seeds=2"))
    assert all(word in rlctl("ls").out for word in (one.id, "a name", other.id, "many"))
    for words, ids in (
        (["--env", "Acrobot-v1"], [other.id]),
        (["--env", "Acrobot"], [other.id]),
        (["--env", "Acro"], []),
        (["--state", "running,queued", "--env", "Acrobot"], [other.id]),
        (["--sort", "name", "--name", "a name"], [one.id]),
        (["--algo", "a2c", "--state", "queued"], [other.id]),
        (["--name", "a name"], [one.id]),
        (["--tag", "team=a", "--since", "1h"], [other.id]),
        (["--until", "1h"], []),
        (["--since", "2199-01-01"], []),
    ):
        found = json.loads(rlctl("ls", *words, "--json").out)["runs"]
        assert [run["id"] for run in found] == ids
        shown = rlctl("ls", *words, "--columns", "run").out
        assert shown.split() == ["run", *ids] if ids else f"no run matches {words[-1]}" in shown
    names = [
        run["name"] for run in json.loads(rlctl("ls", "--sort", "-name", "--json").out)["runs"]
    ]
    assert names == sorted(names, reverse=True)
    first = rlctl("ls", "--sort", "name", "--columns", "name", "-n", "1")
    assert first.out.splitlines()[1].strip() == names[-1]
    assert "rlctl ls --sort name " in first.out
    assert rlctl("note", "a name", "a note").code == 0
    lines = rlctl("ls", "--columns", "name,note,tags").out.splitlines()
    assert [" ".join(line.split()) for line in lines if "a name" in line] == [
        "a name a note no tags"
    ]
    assert "a note" in rlctl("show", one.id).out
    assert json.loads(rlctl("show", one.id, "--json").out)["note"] == "a note"
    for words in (["--columns", "run,luck"], ["--since", "yesterday"], ["--sort", "luck"]):
        assert rlctl("ls", *words).code == 2

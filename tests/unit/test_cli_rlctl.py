"""How the command speaks: help, version, errors and exit codes, in words and in JSON."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rl_orch import __version__, errors
from rl_orch.cli.arguments import expanded
from rl_orch.cli.commands import check
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import print_json, report_error, safe
from rl_orch.cli.rlctl import COMMANDS, SUB_MEANT, load
from rl_orch.cli.views.subjects import run_at
from rl_orch.cli.views.text import counted
from rl_orch.errors import BadInput, Problem, RlctlError, SpecInvalid
from rl_orch.printable import clean
from tests.conftest import Ran

Rlctl = Callable[..., Ran]


def error_of(ran: Ran) -> dict[str, Any]:
    """The one document of an error, checked against its contract."""
    document = json.loads(ran.out)
    assert set(document) == {"error"}
    assert set(document["error"]) <= {"code", "message", "path", "hint", "problems"}
    assert {"code", "message"} <= set(document["error"])
    error: dict[str, Any] = document["error"]
    return error


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_lists_every_command_with_its_line(rlctl: Rlctl, words: list[str]) -> None:
    ran = rlctl(*words)
    assert ran.code == 0
    for name, (_, about) in COMMANDS.items():
        assert name in ran.out
        assert about.split()[0] in ran.out


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_that_begins_with_its_line(
    rlctl: Rlctl, name: str, flag: str
) -> None:
    ran = rlctl(name, flag)
    assert (ran.code, ran.err) == (0, "")
    assert f"Usage: rlctl {name}" in ran.out
    assert COMMANDS[name][1].rstrip(".") in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_speaks_json(rlctl: Rlctl, name: str) -> None:
    found = load(COMMANDS[name][0])
    for words in [[]] if callable(found) else [[word] for word in found]:
        ran = rlctl(name, *words, "--help")
        assert f"Usage: rlctl {' '.join([name, *words])}" in ran.out
        assert "--json" in ran.out


def test_a_command_with_others_under_it_names_them(rlctl: Rlctl) -> None:
    assert all(word in rlctl("token", "--help").out for word in ("create", "ls", "revoke"))
    ran = rlctl("token", "steal")
    assert ran.code == 2
    assert "`rlctl token --help` lists what it takes." in ran.err


def test_the_version_is_told(rlctl: Rlctl) -> None:
    assert rlctl("--version") == Ran(0, f"rlctl {__version__}\n", "")


def test_an_unknown_command_names_the_known_ones_and_the_nearest(rlctl: Rlctl) -> None:
    ran = rlctl("lauch")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        f"error: no command 'lauch'; there are: {', '.join(COMMANDS)}",
        "  Did you mean `rlctl launch`?",
    ]
    assert "`rlctl --help` explains them" in rlctl("qqq").err


def test_a_check_that_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = threading.Event()
    monkeypatch.setattr(check, "SILENCE_S", 0.0)
    monkeypatch.setattr(check, "note", lambda _sentence: said.set())
    with check.patience():
        assert said.wait(60)


def test_the_directory_of_a_run_stands_for_it(tmp_path: Path) -> None:
    there = tmp_path / "runs" / "mine-k3m9xq"
    there.mkdir(parents=True)
    assert run_at(f"{there}/") == f"{there}/"
    for name in ("spec.yaml", "manifest.json"):
        (there / name).touch()
    assert run_at(f"{there}/") == run_at(str(there)) == there.name
    assert run_at("runs/none") == "runs/none"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["import-policy", "x"], "rlctl registry import"),
        (["check", "--log-interval", "4"], "rlctl watch"),
        (["check", "-tb", "x"], "TensorBoard"),
        (["check", "--tensorboard-log", "x"], "TensorBoard"),
        (["check", "--optimize", "--n-trials", "10"], "no search"),
        (["check", "--track"], "store.trackers"),
        (["check", "-P"], "-q"),
        (["check", "--verbose", "1"], "rlctl logs -f"),
        (["check", "--alpha", "0.2"], "--ent-coef"),
        (["check", "--num-minibatches", "4"], "--batch-size"),
        (["check", "--anneal-lr"], "--lr-schedule linear"),
        (["check", "--cuda"], "--device cuda"),
        (["check", "--capture-video"], "--eval-video"),
        (["check", "--env", "CartPole-v1", "--env-wrapper",
          "stable_baselines3.common.atari_wrappers.AtariWrapper"], "AtariPreprocessing"),
        (["check", "--env", "x", "store.trackers=[wandb]"], "docs/extending.md"),
        (["set", "last"], "lr=1e-4"),
    ],
)  # fmt: skip
def test_words_of_other_tools_are_answered_with_what_is_here(
    rlctl: Rlctl, words: list[str], said: str
) -> None:
    ran = rlctl(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lauch"], "no command 'lauch'"),
        (["ls", "--limt", "5"], "--limt"),
        (["ls", "--limit", "many"], "--limit"),
        (["ls", "--limit", "0"], "--limit"),
        (["ls", "--state", "sleeping"], "--state"),
        (["show"], "RUN"),
        (["logs", "a", "b"], "b"),
        (["options", "--format", "xml"], "--format"),
        (["check", "--lr"], "--lr"),
        (["check", "--lr", "1", "--train-learning-rate", "2"], "--lr is given twice"),
        (["check", "--lerning-rate", "1"], "--lerning-rate"),
        (["check", "--registry=maybe"], "--registry"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_command_line_is_a_sentence_and_a_document(
    rlctl: Rlctl, words: list[str], said: str
) -> None:
    in_words = rlctl(*words)
    assert (in_words.code, in_words.out) == (2, "")
    assert said in in_words.err
    assert len(in_words.err.splitlines()) <= 2
    as_json = rlctl(words[0], "--json", *words[1:])
    assert (as_json.code, as_json.err) == (2, "")
    assert error_of(as_json)["code"] == "bad_input"
    assert said in error_of(as_json)["message"]


def test_an_unknown_flag_is_answered_with_the_nearest(rlctl: Rlctl) -> None:
    assert "Did you mean --learning-rate or " in rlctl("check", "--lerning-rate", "1").err
    assert "`rlctl ls --help` lists what it takes." in rlctl("ls", "--qqq").err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("--her-strategy", "--buffer-her-strategy"), ("--wrappers", "--env-wrappers")],
)
def test_a_flag_without_its_group_is_answered_with_the_whole_one_alone(
    rlctl: Rlctl, typed: str, meant: str
) -> None:
    assert f"Did you mean {meant}? " in rlctl("check", typed, "x").err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("ls", "--state", "succeded"), "'succeeded'"),
        (("token", "create", "x", "--scope", "reed"), "read"),
    ],
)
def test_a_wrong_choice_is_answered_with_the_nearest(
    rlctl: Rlctl, words: tuple[str, ...], meant: str
) -> None:
    said = rlctl(*words).err
    assert f"Did you mean {meant}?" in said
    assert "Value error" not in said


def test_a_group_of_commands_shows_its_help_and_knows_words_of_other_tools(rlctl: Rlctl) -> None:
    for group in ("jobs", "token", "registry"):
        bare = rlctl(group)
        assert (bare.code, bare.out.strip()) == (0, rlctl(group, "--help").out.strip())
    assert "Did you mean `rlctl token create`?" in rlctl("token", "new").err
    for group, words in SUB_MEANT.items():
        functions = load(COMMANDS[group][0])
        assert isinstance(functions, Mapping)
        assert set(words.values()) <= set(functions)
        assert not set(words) & set(functions)


def test_a_flag_may_be_written_with_underscores(rlctl: Rlctl) -> None:
    words = ("check", "--json", "--env=CartPole-v1", "--tuned=false")
    dashed = rlctl(*words, "--learning-rate=1e-3", "--no-train-double-q")
    scored = rlctl(*words, "--learning_rate=1e-3", "--no_train_double_q")
    assert (scored.code, scored.out) == (dashed.code, dashed.out)
    named = rlctl("check", "--json", "--env_id", "no_such_module:my_env-v0")
    assert "no_such_module" in named.out


def test_a_least_success_rate_is_a_flag_beside_a_least_return(rlctl: Rlctl) -> None:
    wrong = rlctl("check", "--env", "CartPole-v1", "--min-success-rate", "2")
    assert "gates.min_success_rate is 2" in wrong.err


def test_a_flag_and_its_alias_may_agree(rlctl: Rlctl) -> None:
    ran = rlctl("check", "--lr", "7", "--train-lr", "7", "--gamma", "7")
    assert "train.gamma is 7 (from --gamma)" in ran.err
    assert "twice" not in ran.err


def test_the_run_that_is_asked_for_may_not_exist(rlctl: Rlctl) -> None:
    for words in (["show", "x"], ["logs", "x"], ["stop", "x"], ["wait", "x"], ["rm", "x"]):
        ran = rlctl(*words, "--json")
        assert ran.code == 2
        assert error_of(ran)["code"] == "not_found"


def test_ls_of_an_empty_home_is_an_empty_page(rlctl: Rlctl) -> None:
    assert json.loads(rlctl("ls", "--json").out) == {"runs": [], "next": None, "groups": []}
    assert "no runs in rlruns yet" in rlctl("ls").out


def test_check_answers_with_its_document_also_where_the_spec_is_wrong(rlctl: Rlctl) -> None:
    ran = rlctl("check", "--env", "x", "--lr", "-1", "trian.lr=1", "--json")
    assert (ran.code, ran.err) == (2, "")
    document = json.loads(ran.out)
    assert (document["ok"], document["config_hash"], document["pending"]) == (False, None, [])
    assert [(e["path"], e["value"]) for e in document["errors"]] == [
        ("trian.lr", 1),
        ("train.lr", "-1"),
    ]
    assert all(e["message"] for e in document["errors"])
    missing = json.loads(rlctl("check", "-f", "no.yaml", "--json").out)
    assert "does not exist" in missing["errors"][0]["message"]


def test_launch_answers_a_wrong_spec_with_an_error(rlctl: Rlctl) -> None:
    ran = rlctl("launch", "--env", "x", "--lr", "-1", "--gamma", "2", "--json")
    assert ran.code == 2
    error = error_of(ran)
    assert (error["code"], error["path"]) == ("spec_invalid", "train.lr")
    assert error["message"].endswith("(and 1 more)")


def test_a_variable_with_a_typo_is_a_warning_on_standard_error(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RL_TRAIN_LRR", "1")
    ran = rlctl("check", "--env", "x", "--lr", "-1", "--json")
    assert ran.err.splitlines() == [
        "warning: RL_TRAIN_LRR is set, but no option reads it; did you mean RL_TRAIN_LR?"
    ]
    assert [e["path"] for e in json.loads(ran.out)["errors"]] == ["train.lr"]
    assert [e["path"] for e in json.loads(ran.out)["warnings"]] == ["RL_TRAIN_LRR"]


def test_many_problems_take_five_lines_and_name_every_path(rlctl: Rlctl) -> None:
    words = [f"train.x{n}=1" for n in range(9)]
    lines = rlctl("check", "--env", "x", *words).err.splitlines()
    assert len(lines) <= 5
    assert lines[-1].endswith(", ".join(f"train.x{n}" for n in range(2, 9)))


def test_every_error_has_a_code_of_its_own_and_an_exit_code() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, RlctlError)]
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 124}


def test_what_others_wrote_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "\x1b[31mred\x1b]0;title\x07 [bold]x[/bold] \x9b2J\r\nline"
    assert clean(nasty) == "red [bold]x[/bold] 2J\nline"
    report_error(BadInput(nasty, hint=nasty), as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        "error: red [bold]x[/bold] 2J line",
        "  red [bold]x[/bold] 2J line",
    ]
    assert "\\[bold]" in safe(nasty)


def test_a_problem_in_a_spec_keeps_to_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    report_error(SpecInvalid([Problem("a", 1, "one\ntwo", "three\nfour")]), as_json=False)
    assert capsys.readouterr().err.splitlines() == ["error: one two", "  three four"]


def test_json_is_json_whatever_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    endless = {"nan": float("nan"), "inf": [float("-inf")], 1: object, "é": "é"}
    print_json(endless)
    printed = capsys.readouterr().out
    assert json.loads(printed, parse_constant=pytest.fail)["nan"] == "nan"
    assert json.loads(printed)["inf"] == ["-inf"]
    assert '"é": "é"' in printed


def test_one_is_not_many() -> None:
    assert [counted(n, "episode") for n in (0, 1, 2)] == ["0 episodes", "1 episode", "2 episodes"]
    assert counted(1, "training runs") == "1 training run"
    assert counted(1000, "step") == "1,000 steps"


def test_ctrl_c_while_a_command_is_loaded_is_no_traceback(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_module: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rl_orch.cli.rlctl.load", interrupted)
    ran = rlctl("ls")
    assert (ran.code, ran.err) == (130, "interrupted\n")


def test_a_group_of_arguments_has_no_default_and_no_name_twice() -> None:
    def with_default(target: ConnectionOptions = ConnectionOptions()) -> None:  # noqa: B008
        """A default that would never be used."""

    def with_name_twice(home: str, target: ConnectionOptions) -> None:
        """A parameter that is in the group, too."""

    with pytest.raises(TypeError, match="a group takes no default"):
        expanded(with_default)
    with pytest.raises(ValueError, match="duplicate parameter name: 'home'"):
        expanded(with_name_twice)

"""Artifacts: the run's own files, whole or in part, and nothing else whatever the path says."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from rl_orch.api.routes import artifacts
from rl_orch.api.routes.artifacts import parts_of, span_of
from rl_orch.errors import BadInput, NotFound
from rl_orch.http.problems import HttpProblem
from rl_orch.records import Run
from rl_orch.testing import a_spec
from tests.api.conftest import OWNER, OWNER_LINE, Api, Server
from tests.odd_files import KINDS, in_place
from tests.waiting import PATIENCE_S

SECRET = "nobody may read this"


@pytest.fixture
def run(api: Api) -> Run:
    """A queued run, with a secret beside its directory."""
    (run,) = api.orchestrator.submit(a_spec()).runs
    (Path(run.path).parent / "secret.txt").write_text(SECRET)
    return run


def raw(server: Server, path: str) -> bytes:
    """The answer to a path exactly as it is written, which clients would tidy up."""
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost:{server.address[1]}\r\n{OWNER_LINE}"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode("latin-1"))
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_files_of_a_run_are_listed_and_can_be_had(api: Api, run: Run) -> None:
    client = api.client()
    (Path(run.path) / "videos").mkdir()
    (Path(run.path) / "videos" / "ein bär.mp4").write_bytes(b"\0\1\2")
    listed = client.get(f"/runs/{run.id}/artifacts").json()
    assert listed["truncated"] is False
    files = {artifact["path"]: artifact for artifact in listed["artifacts"]}
    assert {"spec.yaml", "manifest.json", "events.jsonl", "videos/ein bär.mp4"} <= files.keys()
    for path, artifact in files.items():
        answer = client.get(f"/runs/{run.id}/artifacts/{quote(path)}")
        assert answer.content == (Path(run.path) / path).read_bytes()
        assert len(answer.content) == artifact["bytes"]


def test_a_file_is_offered_for_download_and_never_for_display(api: Api, run: Run) -> None:
    for name, kind in (
        ("page.html", "application/octet-stream"),
        ("picture.svg", "application/octet-stream"),
        ("noext", "application/octet-stream"),
        ("log.txt", "text/plain; charset=utf-8"),
        ("spec.yaml", "text/plain; charset=utf-8"),
    ):
        (Path(run.path) / name).write_text("<script>alert(1)</script>")
        answer = api.client().get(f"/runs/{run.id}/artifacts/{name}")
        assert answer.headers["content-type"] == kind
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]


def test_a_name_cannot_add_a_header(api: Api, run: Run) -> None:
    odd = 'a"b; filename=x.html; \u202e.txt'
    (Path(run.path) / odd).write_text("hello")
    answer = api.client().get(f"/runs/{run.id}/artifacts/{quote(odd, safe='')}")
    assert answer.text == "hello"
    assert answer.headers["content-disposition"] == (
        f"attachment; filename*=UTF-8''{quote(odd, safe='')}"
    )
    lines = quote("a\r\nSet-Cookie: x=y", safe="")
    answer = api.client().get(f"/runs/{run.id}/artifacts/{lines}")
    assert answer.status_code in (400, 404)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("header", "status", "body"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=0-0", 206, b"0"),
        ("bytes=5-4", 200, b"0123456789"),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("lines=0-1", 200, b"0123456789"),
        ("bytes=-", 200, b"0123456789"),
        ("bytes=a-b", 200, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=99-100", 416, None),
        ("bytes=-0", 416, None),
    ],
)
def test_single_ranges_are_served(
    api: Api, run: Run, header: str, status: int, body: bytes | None
) -> None:
    (Path(run.path) / "digits").write_bytes(b"0123456789")
    url = f"/runs/{run.id}/artifacts/digits"
    answer = api.client().get(url, headers={"Range": header})
    assert answer.status_code == status
    assert body is None or answer.content == body
    if status == 206:
        first = 10 - len(answer.content) if header.startswith("bytes=-") else int(header[6])
        last = first + len(answer.content) - 1
        assert answer.headers["content-range"] == f"bytes {first}-{last}/10"
    if status == 416:
        assert answer.headers["content-range"] == "bytes */10"


def test_a_range_of_what_has_changed_since_is_the_whole(api: Api, run: Run) -> None:
    file = Path(run.path) / "digits"
    file.write_bytes(b"0123456789")
    client, url = api.client(), f"/runs/{run.id}/artifacts/digits"
    tag = client.get(url).headers["etag"]
    asked = {"Range": "bytes=0-1", "If-Range": tag}
    assert client.get(url, headers=asked).content == b"01"
    file.write_bytes(b"abc")
    assert client.get(url, headers=asked).content == b"abc"


@pytest.mark.parametrize(
    ("header", "is_held"),
    [
        ("{tag}", True),
        ("W/{tag}", True),
        ('"a", {tag}', True),
        ('"a,b" ,W/"c",\t{tag} , "d"', True),
        (", ,{tag},,", True),
        ("*", True),
        (" * ", True),
        ('"other"', False),
        ('W/"other", "more"', False),
        ("", False),
        ("{bare}", False),
        ("w/{tag}", False),
        ("{tag} junk", False),
        ("junk, {tag}", False),
        ('{tag}"a"', False),
        ('"{bare}', False),
        ("*, {tag}", False),
        ('"' * 5000, False),
        (" " * 50_000 + ";", False),
    ],
)
def test_a_file_that_the_caller_has_is_not_sent_again(
    api: Api, run: Run, header: str, is_held: bool
) -> None:
    (Path(run.path) / "digits").write_bytes(b"0123456789")
    client, url = api.client(), f"/runs/{run.id}/artifacts/digits"
    tag = client.get(url).headers["etag"]
    asked = header.replace("{tag}", tag).replace("{bare}", tag.strip('"'))
    answer = client.get(url, headers={"If-None-Match": asked})
    assert (answer.status_code, answer.content) == ((304, b"") if is_held else (200, b"0123456789"))
    assert answer.headers["etag"] == tag
    assert "cache-control" in answer.headers
    if is_held:
        assert not {"content-length", "content-type", "content-range"} & set(answer.headers)


def test_a_tag_may_be_in_any_of_several_headers(api: Api, run: Run) -> None:
    client, url = api.client(), f"/runs/{run.id}/artifacts/spec.yaml"
    tag = client.get(url).headers["etag"]
    several = [("If-None-Match", '"a"'), ("If-None-Match", f'"b", {tag}')]
    assert client.get(url, headers=several).status_code == 304


def test_a_file_that_has_changed_is_sent_again(api: Api, run: Run) -> None:
    file = Path(run.path) / "digits"
    file.write_bytes(b"0123456789")
    client, url = api.client(), f"/runs/{run.id}/artifacts/digits"
    held = {"If-None-Match": client.get(url).headers["etag"]}
    assert client.get(url, headers=held).status_code == 304
    file.write_bytes(b"012345678")
    answer = client.get(url, headers=held)
    assert (answer.status_code, answer.content) == (200, b"012345678")
    assert client.get(url, headers=held | {"Range": "bytes=0-1"}).content == b"01"


@pytest.mark.parametrize("asked", ["bytes=0-1", "bytes=99-", "bytes=0-1,3-4"])
def test_what_the_caller_has_is_looked_at_before_ranges(api: Api, run: Run, asked: str) -> None:
    (Path(run.path) / "digits").write_bytes(b"0123456789")
    client, url = api.client(), f"/runs/{run.id}/artifacts/digits"
    tag = client.get(url).headers["etag"]
    for if_range in (tag, '"other"'):
        headers = {"If-None-Match": tag, "Range": asked, "If-Range": if_range}
        assert client.get(url, headers=headers).status_code == 304


def test_a_file_that_is_not_there_is_not_found_whatever_the_caller_has(api: Api, run: Run) -> None:
    url = f"/runs/{run.id}/artifacts/nothing"
    assert api.client().get(url, headers={"If-None-Match": "*"}).status_code == 404


@pytest.mark.parametrize("header", ["If-None-Match", "If-Range", "Range"])
def test_a_page_of_an_allowed_origin_may_ask_for_parts_and_changes(
    api: Api, run: Run, header: str
) -> None:
    asked = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": header,
    }
    client = api.client(allowed_origins=("http://localhost:3000",))
    assert client.options(f"/runs/{run.id}/artifacts/spec.yaml", headers=asked).status_code == 200


def test_a_connection_goes_on_after_a_file_that_is_not_sent_again(api: Api, run: Run) -> None:
    with (
        api.served() as server,
        httpx.Client(base_url=server.url, headers=OWNER, timeout=PATIENCE_S) as client,
    ):
        url = f"/runs/{run.id}/artifacts/spec.yaml"
        whole = client.get(url)
        for _ in range(3):
            answer = client.get(url, headers={"If-None-Match": whole.headers["etag"]})
            assert (answer.status_code, answer.content) == (304, b"")
        assert client.get(url).content == whole.content


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "%2e%2e%2fsecret.txt",
     "videos/../../secret.txt", "./spec.yaml", "..\\secret.txt", "..%5csecret.txt",
     "%2fetc/passwd", "/etc/passwd", "spec.yaml%00.png", "%00", "videos//x", "..",
     "%2e%2e", "%252e%252e/secret.txt", "a" * 300, "..%c0%afsecret.txt"],
)  # fmt: skip
def test_paths_that_lead_outside_are_refused(api: Api, run: Run, path: str) -> None:
    with api.served() as server:
        answer = raw(server, f"/runs/{run.id}/artifacts/{path}")
    status = int(answer.split(b" ", 2)[1])
    assert status == 400 or (status == 404 and ("%25" in path or "%c0" in path))
    assert SECRET.encode() not in answer
    assert b"root:" not in answer


def test_links_are_refused_and_not_listed(api: Api, run: Run) -> None:
    home, root = Path(run.path).parent, Path(run.path)
    (root / "soft.txt").symlink_to(home / "secret.txt")
    (root / "dangling.txt").symlink_to(home / "nothing")
    (root / "inside.txt").symlink_to(root / "spec.yaml")
    (root / "folder").symlink_to(home)
    os.link(home / "secret.txt", root / "hard.txt")
    os.mkfifo(root / "pipe")
    client = api.client()
    for path in ("soft.txt", "dangling.txt", "inside.txt", "folder/secret.txt", "hard.txt",
                 "pipe", "checkpoints", "evals"):  # fmt: skip
        answer = client.get(f"/runs/{run.id}/artifacts/{path}")
        assert answer.status_code == 400, path
        assert SECRET not in answer.text
    listed = {a["path"] for a in client.get(f"/runs/{run.id}/artifacts").json()["artifacts"]}
    assert not listed & {"soft.txt", "dangling.txt", "inside.txt", "hard.txt", "pipe"}
    assert not [path for path in listed if path.startswith("folder")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["x", "spec.yaml", "log.txt", "events.jsonl"])
def test_what_is_no_file_is_refused_and_not_listed(
    api: Api, run: Run, kind: str, name: str
) -> None:
    in_place(Path(run.path) / name, kind)
    client = api.client()
    assert client.get(f"/runs/{run.id}/artifacts/{name}").status_code == 400
    listed = {a["path"] for a in client.get(f"/runs/{run.id}/artifacts").json()["artifacts"]}
    assert name not in listed
    for asked, file in (
        ("log", "log.txt"),
        ("events", "events.jsonl"),
        ("metrics", "events.jsonl"),
    ):
        answer = client.get(f"/runs/{run.id}/{asked}")
        assert answer.status_code == (500 if name == file else 200), asked
    for asked, file in (("log", "log.txt"), ("events", "events.jsonl")):
        if name == file:
            assert client.get(f"/runs/{run.id}/{asked}/stream").status_code == 500


@pytest.mark.parametrize("name", ["lock", "control.sock", ".reserve", ".spec.yaml.12", "x/.y/z"])
def test_what_processes_keep_for_themselves_is_hidden(api: Api, run: Run, name: str) -> None:
    file = Path(run.path) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("private")
    client = api.client()
    assert client.get(f"/runs/{run.id}/artifacts/{name}").status_code == 404
    listed = [a["path"] for a in client.get(f"/runs/{run.id}/artifacts").json()["artifacts"]]
    assert name not in listed


def test_a_name_that_is_no_text_is_not_listed(api: Api, run: Run) -> None:
    Path(os.fsdecode(os.fsencode(run.path) + b"/odd-\xff")).write_text("x")
    answer = api.client().get(f"/runs/{run.id}/artifacts")
    assert answer.status_code == 200
    assert not [a for a in answer.json()["artifacts"] if a["path"].startswith("odd")]
    assert api.client().get(f"/runs/{run.id}/artifacts/odd-%ff").status_code == 404


def test_more_files_than_are_listed_are_told_of(
    api: Api, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MOST_LISTED", 3)
    listed = api.client().get(f"/runs/{run.id}/artifacts").json()
    assert (len(listed["artifacts"]), listed["truncated"]) == (3, True)


@pytest.fixture
def deep(run: Run) -> Iterator[Run]:
    """A run with folders inside each other, more than functions can call themselves."""
    folder = os.open(run.path, os.O_RDONLY)
    for depth in range(1500):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        if depth in (2, 200):
            os.close(os.open(f"file{depth}", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(folder)
        folder = inner
    os.close(folder)
    yield run
    subprocess.run(["rm", "-rf", f"{run.path}/d"], check=True)


def test_folders_inside_each_other_without_end_are_listed_as_far_as_it_makes_sense(
    api: Api, deep: Run
) -> None:
    answer = api.client().get(f"/runs/{deep.id}/artifacts")
    assert answer.status_code == 200
    paths = [artifact["path"] for artifact in answer.json()["artifacts"]]
    assert "d/d/d/file2" in paths
    assert not [path for path in paths if path.endswith("file200")]
    assert answer.json()["truncated"] is True
    path = "d/" * 201 + "file200"
    assert api.client().get(f"/runs/{deep.id}/artifacts/{path}").status_code == 200


def test_a_directory_that_goes_away_meanwhile_is_not_found_and_neither_is_a_link_to_one(
    run: Run,
) -> None:
    moved = Path(run.path).rename(Path(run.path).with_name("moved"))
    for _ in range(2):
        with pytest.raises(NotFound, match="is gone, or is a link"):
            artifacts.listing(Path(run.path))
        with pytest.raises(NotFound, match="is gone, or is a link"):
            artifacts.opened(Path(run.path), ["spec.yaml"])
        if not Path(run.path).is_symlink():
            Path(run.path).symlink_to(moved)


def test_a_file_that_is_not_there_is_not_found(api: Api, run: Run) -> None:
    client = api.client()
    for path in ("nothing", "videos/nothing", "spec.yaml/inside"):
        assert client.get(f"/runs/{run.id}/artifacts/{path}").status_code == 404


def test_a_large_file_is_sent_whole_over_a_socket(api: Api, run: Run) -> None:
    data = os.urandom(3_000_000)
    (Path(run.path) / "large").write_bytes(data)
    with api.served() as server:
        url = f"{server.url}/runs/{run.id}/artifacts/large"
        assert httpx.get(url, headers=OWNER, timeout=PATIENCE_S).content == data
        assert (
            httpx.get(url, headers=OWNER | {"Range": "bytes=2999990-"}, timeout=PATIENCE_S).content
            == data[-10:]
        )


def test_the_parts_of_a_path_are_checked_before_anything_is_opened() -> None:
    assert parts_of("a/b c/d") == ["a", "b c", "d"]
    for path in ("", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a\\b", "a\0"):
        with pytest.raises(BadInput):
            parts_of(path)
    with pytest.raises(NotFound):
        parts_of("checkpoints/.tmp")


def test_ranges_are_within_the_file() -> None:
    assert span_of(None, 10) is None
    assert span_of("bytes=2-4", 10) == range(2, 5)
    assert span_of("bytes = 2-4", 10) == range(2, 5)
    with pytest.raises(HttpProblem):
        span_of("bytes=0-", 0)

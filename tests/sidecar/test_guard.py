"""Who may ask what, and how much: tokens, scopes, foreign pages, long bodies, long answers, slow queries, TLS."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from tests.sidecar.process import running
from vernier.service.cli.main import run
from vernier.service.client.client import ServerError, connect
from vernier.service.config.settings import load
from vernier.service.sidecar.auth import Access, BadTokens, OpenToOthers
from vernier.service.sidecar.guard import needed
from vernier.service.sidecar.health_probe import BadCertificate, alive, check_certificate
from vernier.service.views.deadline import Deadline, TooSlow

READ, OTHER, ADMIN = "read-token-of-sixteen", "another-token-to-read", "admin-token-of-sixteen"
ENVIRONMENT = {"VERNIER_HTTP__READ_TOKENS": f"{READ}, {OTHER}", "VERNIER_HTTP__ADMIN_TOKENS": ADMIN}


def access(environment: dict[str, str], **flags: Any) -> Access:
    return Access.of(load(None, {f"http.{name}": value for name, value in flags.items()}, environment).settings.http)


@pytest.fixture
def guarded(builder: StateBuilder, serve: Callable[..., Served]) -> Served:
    builder.commit(10, {"reach": [((node,), node % 5, 1) for node in range(25)]})
    return serve(builder.path, access=access(ENVIRONMENT))


def ask(url: str, token: str | None = None, method: str = "GET", **about: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    return httpx.request(method, url, headers=headers | about.pop("headers", {}), trust_env=False, timeout=60, **about)


def test_what_needs_which_scope() -> None:
    for path in ("/", "/healthz", "/readyz", "/static/console.js"):
        assert needed("GET", path, open_metrics=False) == "none"
    assert [needed("GET", "/metrics", open_metrics=yes) for yes in (True, False)] == ["none", "read"]
    for method, path in (("GET", "/v1/views/a"), ("POST", "/v1/views/a/rows"), ("GET", "/openapi.json")):
        assert needed(method, path, open_metrics=False) == "read"
    for method, path in (("GET", "/v1/config"), ("POST", "/v1/sources/a"), ("DELETE", "/v1/views/a"), ("PUT", "/new")):
        assert needed(method, path, open_metrics=False) == "admin"


def test_tokens_and_scopes(guarded: Served) -> None:
    url = guarded.url
    for path in ("/healthz", "/readyz", "/", "/static/api.js"):
        assert ask(url + path).status_code == 200
    for path in ("/v1/views", "/v1/views/reach/rows/1", "/metrics", "/v1/views/reach/changes", "/nowhere"):
        answer = ask(url + path)
        assert (path, answer.status_code, answer.json()["code"]) == (path, 401, "token_missing")
        assert answer.headers["www-authenticate"] == 'Bearer realm="vernier"'
        assert answer.headers["content-type"] == "application/problem+json"
    for wrong in ("no-token-of-anybody", READ[:-1], "ü"):
        answer = httpx.get(f"{url}/v1/views", headers={b"authorization": f"Bearer {wrong}".encode()}, trust_env=False)
        assert (wrong, answer.status_code, answer.json()["code"]) == (wrong, 401, "token_unknown")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    for token in (READ, OTHER, ADMIN):
        assert ask(f"{url}/v1/views/reach/rows/1", token).json()["rows"] == [{"node": 1}]
        assert ask(f"{url}/v1/views/reach/rows", token, "POST", json={"keys": [1]}).status_code == 200
        assert ask(f"{url}/metrics", token).status_code == 200
    answer = ask(f"{url}/v1/config", READ)
    assert (answer.status_code, answer.json()["code"], answer.json()["scope"]) == (403, "scope_missing", "admin")
    assert 'error="insufficient_scope", scope="admin"' in answer.headers["www-authenticate"]
    assert ask(f"{url}/v1/config", ADMIN).status_code == 200
    assert 'code="401",method="GET",route="refused"' in ask(f"{url}/metrics", READ).text


def test_commands_say_who_asks(
    guarded: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["query", "reach", "--limit", "1", "--format", "csv", "--url", guarded.url]
    assert run(words) == 1
    assert "needs a token of scope read" in capsys.readouterr().err
    kept = tmp_path / "token"
    kept.write_text(f"{READ}\n", "utf-8")
    for more in (["--token", READ], ["--token-file", str(kept)]):
        assert run([*words, *more]) == 0
        assert capsys.readouterr().out == "node\n0\n"
    monkeypatch.setenv("VERNIER_TOKEN", ADMIN)
    assert run(words) == 0
    assert run(["query", "reach", "--url", "https://127.0.0.1:9", "--cafile", str(tmp_path / "none")]) == 1
    assert "cafile" in capsys.readouterr().err


def test_strangers_are_not_told_why_it_is_not_ready(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10, committed_ns=1)
    url = serve(builder.path, access=access(ENVIRONMENT)).url
    stranger, reader = ask(f"{url}/readyz").json(), ask(f"{url}/readyz", READ).json()
    assert [one["laggard"] for one in stranger["laggards"]] == [one["laggard"] for one in reader["laggards"]]
    assert "committed" in reader["detail"]
    assert "committed" not in str(stranger)


def test_what_settings_say_of_tokens(tmp_path: Path) -> None:
    kept = tmp_path / "tokens"
    kept.write_text(f"# of the console\n{READ}\n\n{OTHER}\n", "utf-8")
    both = access({"VERNIER_HTTP__READ_TOKENS": ADMIN}, read_tokens_file=str(kept))
    assert [both.scope(token) for token in (READ, OTHER, ADMIN, "x", None)] == ["read", "read", "read", None, "none"]
    assert access({}).scope(None) == "admin"
    assert access(ENVIRONMENT, anonymous="read").scope(None) == "read"
    with pytest.raises(OpenToOthers, match="VERNIER_HTTP__READ_TOKENS"):
        access({}, host="0.0.0.0")
    assert not access({}, host="0.0.0.0", anonymous="read").wide_open
    assert access({}, host="::", anonymous="admin").wide_open
    assert not access(ENVIRONMENT, host="10.0.0.1").wide_open
    for given, said in (("short", "needs 16"), (",", "it contains no token"), ("sixteen letters and more", "ASCII")):
        with pytest.raises(BadTokens, match=said):
            access({"VERNIER_HTTP__ADMIN_TOKENS": given})


def test_foreign_pages_get_nothing_without_a_token(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10)
    url = serve(builder.path).url
    answer = ask(f"{url}/v1/views", headers={"host": "elsewhere.example"})
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_host")
    for name in ("localhost:1", "[::1]:80", "127.0.0.2"):
        assert ask(f"{url}/v1/views", headers={"host": name}).status_code == 200
    rows = f"{url}/v1/views/reach/rows"
    answer = ask(rows, None, "POST", json={"keys": []}, headers={"origin": "http://elsewhere.example"})
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")
    assert ask(rows, None, "POST", json={"keys": []}, headers={"origin": url}).status_code == 200


def test_long_bodies_are_refused(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10)
    rows = f"{serve(builder.path, max_body_bytes=2_000).url}/v1/views/reach/rows"

    def parts() -> Iterator[bytes]:
        yield b'{"keys": [1'
        for _ in range(500):
            yield b",2222"
        yield b"]}"

    for about in ({"json": {"keys": list(range(1_000))}}, {"content": parts()}):
        answer = ask(rows, None, "POST", **about)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert ask(rows, None, "POST", json={"keys": list(range(100))}).status_code == 200


def test_long_answers_end_earlier_and_go_on(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10, {"reach": [((node,), 1, 1 + node % 2) for node in range(3_000)]})
    served = serve(builder.path, max_response_bytes=5_000)
    client = connect(served.url)
    first = ask(f"{served.url}/v1/views/reach")
    assert len(first.content) < 5_500
    assert first.json()["next_cursor"] == first.headers["vernier-next-cursor"]
    assert [row["node"] for row in client.rows("reach")] == list(range(3_000))
    assert [row["node"] for row in client.rows("reach", limit=2_500, order="-node")] == list(range(2_999, 499, -1))
    assert client.arrow("reach").column("node").to_pylist() == list(range(3_000))
    assert len(client.read(["reach", "pairs"])["reach"]) == 3_000
    csv, cursor = [], {}
    while True:
        page = ask(f"{served.url}/v1/views/reach", params=cursor, headers={"accept": "text/csv"})
        assert len(page.content) < 5_100
        csv += page.text.splitlines()[1:]
        if "vernier-next-cursor" not in page.headers:
            break
        cursor = {"cursor": page.headers["vernier-next-cursor"]}
    assert csv == [f"{node},{1 + node % 2}" for node in range(3_000)]
    with pytest.raises(ServerError) as error:
        client.keys("reach", list(range(1_000)))
    assert (error.value.status, error.value.problem) == (413, "response_too_large")


def test_a_slow_query_is_given_up_and_others_go_on(
    builder: StateBuilder, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.commit(10, {"reach": [((node,), 1, 1) for node in range(2_000)]})
    served = serve(builder.path, query_ms=200, query_threads=1)
    go_on, seen = threading.Event(), []
    answers = served.context.answers
    page = answers.page

    def stuck(*arguments: Any) -> Any:
        assert go_on.wait(60)
        try:
            return page(*arguments)
        except TooSlow as error:
            seen.append(error)
            raise

    monkeypatch.setattr(answers, "page", stuck)
    for _ in range(2):  # the second one waits in vain for the only thread
        answer = ask(f"{served.url}/v1/views/reach?limit=2000")
        assert (answer.status_code, answer.json()["code"]) == (503, "query_timeout")
        assert ask(f"{served.url}/v1/views/reach/rows/7").json()["rows"] == [{"node": 7}]
    go_on.set()
    monkeypatch.undo()
    while ask(f"{served.url}/v1/views/reach?limit=2000").status_code != 200:
        pass
    assert len(seen) == 1  # what was given up stopped at its next step
    deadline = Deadline(60_000)
    deadline.check()
    deadline.give_up()
    with pytest.raises(TooSlow, match="after 60000 ms"):
        deadline.check()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vernier.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_file.write_bytes(key.private_bytes(*plain))
    return cert_file, key_file


def test_tls(builder: StateBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.commit(10, {"reach": [((1,), 1, 1)]})
    cert, key = certificate(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    flags = {"http.tls_cert": str(cert), "http.tls_key": str(key)}
    pairs = [word for name, value in flags.items() for word in ("--set", f"{name}={value}")]
    with running(builder.path, *pairs) as sidecar:
        assert sidecar.url == f"https://127.0.0.1:{sidecar.port}"
        with connect(sidecar.url, token=ADMIN, cafile=str(cert)) as client:
            assert client.rows("reach") == [{"node": 1}]
            assert ADMIN not in str(client._json("/v1/config"))
        assert httpx.get(f"{sidecar.url}/healthz", verify=ssl.create_default_context(cafile=str(cert)),
                         trust_env=False).status_code == 200  # fmt: skip
        http = load(None, flags | {"http.port": sidecar.port}, {}).settings.http
        assert alive(http)
        assert not alive(load(None, {"http.port": sidecar.port}, {}).settings.http)
    assert not alive(http)
    with pytest.raises(BadCertificate, match="do not match, or are not in pem format"):
        check_certificate(load(None, flags | {"http.tls_key": str(cert)}, {}).settings.http)

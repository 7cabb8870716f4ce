"""The server as a browser meets it, and as what is no browser does: over sockets."""

import contextlib
import gzip
import http.client
import itertools
import json
import random
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
import pytest

import tokenspace as ts
from tokenspace import geometry
from tokenspace.errors import OutputError
from tokenspace.web import app as app_module
from tokenspace.web import server as server_module
from tokenspace.web.answers import unpacked
from tokenspace.web.explorer import Explorer
from tokenspace.web.headers import SECURITY
from tokenspace.web.server import listening, serving

from . import hostile


@pytest.fixture(scope="module")
def odd():
    return hostile.table()


@pytest.fixture(scope="module")
def port(odd):
    with serving(Explorer(odd)) as url:
        yield urlsplit(url).port


@pytest.fixture(scope="module")
def walking_port():
    with serving(Explorer(hostile.walking_table())) as url:
        yield urlsplit(url).port


class Answer:
    def __init__(self, response: http.client.HTTPResponse):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


def get(port, path, method="GET", headers=None, body=None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def raw(port, request: bytes) -> tuple[int, bytes, dict]:
    """What comes back for bytes that no client library would send."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        answer = Answer(response)
    return answer.status, answer.body, answer.headers


def call(port, name, **parameters) -> Answer:
    return get(port, f"/api/{name}?{urlencode(parameters, doseq=True)}")


def test_the_page_and_its_files(port):
    page = get(port, "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:src|href)="(static/[^"]+)"', page.body.decode())
    assert named
    for name in named:
        answer = get(port, f"/{name}")
        assert answer.status == 200
        kind = "text/javascript" if name.endswith(".js") else "text/css"
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert get(port, "/?view=map&q=%FF&anything=goes").status == 200


def test_plotly_comes_from_the_installed_package(port, monkeypatch):
    answer = get(port, "/plotly.js")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert b"plotly.js v" in answer.body[:200]


def test_without_plotly_the_address_says_so(odd, monkeypatch):
    monkeypatch.setattr("tokenspace.web.plotly_script._place", lambda: None)
    with serving(Explorer(odd)) as url:
        answer = get(urlsplit(url).port, "/plotly.js")
        assert answer.status == 404
        assert "pip install 'plotly>=6.0' 'scikit-learn>=1.5'" in answer.json["error"]
        assert call(urlsplit(url).port, "table").json["plotly"] is False


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/static/none.js",
        "/api/table",
        "/api/none",
        "/api/neighbors?q=nothing",
        "/plotly.js",
        "/../etc/passwd",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_every_answer_carries_the_security_headers(port, path, method):
    answer = get(port, path, method)
    for name, value in SECURITY.items():
        assert answer.headers[name] == value
    assert "server" not in answer.headers
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'unsafe-eval';")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    for part in ("connect-src 'self'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"):
        assert part in policy


def test_head_has_the_headers_and_no_body(port):
    whole, head = get(port, "/api/table"), get(port, "/api/table", "HEAD")
    assert head.status == 200
    assert head.body == b""
    assert head.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_nothing_can_be_written(port, method):
    answer = get(port, "/api/table", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.json == {"error": "only GET and HEAD are answered here"}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "192.168.1.5", "127.0.0.1.evil.example", "", "a\tb"]
)
@pytest.mark.parametrize("path", ["/", "/api/table", "/static/main.js", "/none"])
def test_foreign_hosts_are_refused(port, host, path):
    answer = get(port, path, headers={"Host": host})
    assert answer.status in (400, 403)
    assert set(answer.json) == {"error"}


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "[::1]:8000"])
def test_this_machines_hosts_are_not(port, host):
    assert get(port, "/api/table", headers={"Host": host}).status == 200


def test_no_host_or_two_are_refused(port):
    assert raw(port, b"GET / HTTP/1.0\r\n\r\n")[0] == 403
    two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert raw(port, two)[0] in (400, 403)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/%2e%2e%2fapp.py",
        "/static/..\\app.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/main.js%00",
        "/static/",
        "/static",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/api/",
        "/api/table/",
        "/api/../api/table",
        "/api/__init__",
        "/etc/passwd",
        "/%00",
        "/%FF",
    ],
)
def test_what_is_not_on_the_list_is_not_found(port, path):
    answer = get(port, path)
    assert answer.status == 404
    assert set(answer.json) == {"error"}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET",
        b"\x00\x01\x02\x03",
        b"GET /a b HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET http://evil.example/ HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    ],
)
def test_what_is_no_http_gets_json_too(port, request_line):
    status, body, headers = raw(port, request_line + b"\r\nHost: localhost\r\n\r\n")
    assert 400 <= status < 500
    assert set(json.loads(body)) == {"error"}
    assert headers["content-security-policy"] == SECURITY["content-security-policy"]


def test_half_a_request_is_not_waited_for(odd, monkeypatch):
    monkeypatch.setattr(server_module, "PATIENCE", 0.3)
    whole = b"GET /api/table HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(Explorer(odd)) as url:
        place = ("127.0.0.1", urlsplit(url).port)
        for sent in (b"", b"GET / HT", whole + b"GET / HT"):
            with socket.create_connection(place, timeout=20) as connection:
                connection.sendall(sent)
                answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))  # ends: the server closes
                assert answer.startswith(b"HTTP/1.1 200") == (sent[: len(whole)] == whole)
        with contextlib.closing(http.client.HTTPConnection(*place, timeout=20)) as connection:
            connection.connect()
            first = connection.sock
            for _ in range(3):  # whose requests come whole may stay
                connection.request("GET", "/api/table")
                with connection.getresponse() as response:
                    assert response.status == 200
                    response.read()
                time.sleep(0.5)
            assert connection.sock is first


def test_long_addresses_and_headers_are_refused(port):
    assert get(port, "/api/complete?prefix=" + "x" * 33_000).status == 414
    assert get(port, "/" + "x" * 33_000).status == 414
    status, body, _ = raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n")
    assert status == 400
    assert "error" in json.loads(body)


def test_bodies_are_refused(port):
    assert get(port, "/api/table", body=b"x" * 10).status == 400
    chunked = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    assert raw(port, chunked)[0] == 400


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("neighbors", "give one of q (a word) and id (a row's number)"),
        ("neighbors?q=king&id=3", "give one of q"),
        ("neighbors?q=", "q is empty"),
        ("neighbors?q=quene", "'quene' is not one of"),
        ("neighbors?id=99999", "id must be from 0 to 16, found 99,999"),
        ("neighbors?q=king&k=0", "how many (k) must be from 1 to 1,000, found 0"),
        ("neighbors?q=king&k=x", "how many (k) must be a whole number from 0 on, found 'x'"),
        ("neighbors?q=king&metric=l1", "allowed: cosine, dot, l2"),
        ("neighbors?q=king&center=2", "center must be 0 or 1"),
        ("neighbors?q=king&remove=99", "top directions removed (remove) must be from 0 to 7, found 99"),
        ("neighbors?q=king&Q=king", "there is no parameter 'Q' here"),
        ("neighbors?q=%FF", "not UTF-8"),
        ("neighbors?q=" + "x" * 2_001, "2,000 characters"),
        ("similarity?a=king", "give one of b"),
        ("analogy?a=king&b=King", "give one of c"),
        ("heatmap", "1 to 64 rows"),
        ("heatmap?" + "q=king&" * 65, "1 to 64 rows"),
        ("heatmap?" + "q=king&" * 999 + "q=king", "1 to 64 rows, found 1,000"),
        ("heatmap?" + "q=king&" * 1_001, "more than 1,000"),
        ("complete", "prefix is missing"),
        ("walk", "text is missing"),
        ("walk?text=zebra", "no word of a text is in the vocabulary: zebra"),
        ("map?method=mds", "projection (method) 'mds' is not known; allowed: pca, tsne, umap"),
        ("map?dims=7", "dimensions (dims) must be 2 or 3, found 7"),
        ("map?seed=4294967296", "seed must be from 0 to 4,294,967,295, found 4,294,967,296"),
        ("clusters?k=0", "clusters (k) must be from 1 to 17, found 0"),
        ("kept?k=0", "how many (k) must be from 1 to 100, found 0"),
        ("tokens?x=1", "there is no parameter 'x' here; there are: none"),
        ("table?x=1", "there is no parameter"),
    ],
)
def test_a_bad_question_is_400_and_says_why(port, path, message):
    answer = get(port, f"/api/{path}")
    assert answer.status == 400
    assert message in answer.json["error"]


def test_rows_whose_products_leave_float32_are_a_bad_question_too(odd):
    with serving(Explorer(ts.Table(odd.weight * np.float32(1e30), odd.vocab))) as url:
        for name, parameters in {
            "similarity": {"a": "king", "b": "kings"},
            "neighbors": {"q": "king"},
            "analogy": {"a": "king", "b": "King", "c": "kings"},
        }.items():
            answer = call(urlsplit(url).port, name, **parameters)
            assert answer.status == 400
            assert "leave" in answer.json["error"]


def test_numbers_are_the_librarys(port, odd):
    hits = call(port, "neighbors", q="king", k=5, center=1).json["hits"]
    expected = geometry.neighbors(odd, "king", 5, center=True)
    assert [(hit["id"], np.float32(hit["score"])) for hit in hits] == [
        (hit.id, np.float32(hit.score)) for hit in expected
    ]


@pytest.mark.parametrize("i", range(len(hostile.TOKENS)))
def test_hostile_tokens_go_in_and_out_as_json(port, odd, i):
    token = odd.vocab[i]
    shown = token.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    assert call(port, "tokens").json["tokens"][i] == shown
    by_id = call(port, "neighbors", id=i)
    assert by_id.json["query"]["tokens"] == [shown]
    if shown == token:
        assert call(port, "neighbors", q=token).json["query"]["tokens"] == [token]
        assert call(port, "similarity", a=token, b_id=i).status == 200
        assert call(port, "heatmap", q=[token, "king"]).json["rows"][0]["label"] == token
        assert token in [each["token"] for each in call(port, "complete", prefix=token, n=100).json["tokens"]]
    for answer in (by_id, call(port, "tokens")):
        assert answer.headers["content-type"] == "application/json"


def test_the_walk_of_a_text_and_of_what_is_no_word(walking_port):
    document = call(walking_port, "walk", text="the cat", predict=1, gradient=1).json
    assert list(document["steps"]) == ["lookup", "scaled", "position", "dropout", "output"]
    assert len(document["predictions"]) == 2
    assert np.shape(document["gradient"]["by_position"]) == (2, 6)
    for token in hostile.TOKENS:
        if token.strip() and token.isascii():
            answer = call(walking_port, "walk", text=token)
            assert answer.json["text"] == token


def test_an_answer_that_the_browser_has_is_not_sent_again(port):
    for path in ("/", "/static/main.js", "/api/tokens", "/api/table", "/plotly.js"):
        first = get(port, path)
        again = get(port, path, headers={"If-None-Match": f'"other", {first.headers["etag"]}'})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["content-security-policy"]
        assert get(port, path, headers={"If-None-Match": '"other"'}).status == 200


def test_what_stays_the_same_is_packed_for_who_asks(port):
    plain = get(port, "/plotly.js")
    packed = get(port, "/plotly.js", headers={"Accept-Encoding": "br, gzip;q=0.9"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 2
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["etag"] == plain.headers["etag"]


def test_an_unforeseen_error_is_json_without_a_traceback(odd, monkeypatch, capfd):
    def broken(self):
        raise ZeroDivisionError("secret\nplace")

    monkeypatch.setattr(Explorer, "tokens", broken)
    with serving(Explorer(odd)) as url:
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", "/api/tokens")
            answer = Answer(connection.getresponse())
            assert connection.sock is not None
            connection.request("GET", "/api/table")  # the connection lives on
            assert connection.getresponse().read()
    assert answer.status == 500
    assert "ZeroDivisionError" in answer.json["error"]
    assert "secret" not in answer.json["error"]
    told = capfd.readouterr().err
    assert "Traceback" not in told


def test_a_slow_answer_is_202_until_it_is_there(port, odd):
    answer = call(port, "map", dims=3)
    while answer.status == 202:
        assert answer.json["running"] is True
        answer = call(port, "map", dims=3)
    assert answer.status == 200
    assert [unpacked(axis).size for axis in answer.json["points"]] == [len(odd)] * 3


def test_500_mixed_requests_of_16_clients_lose_none(port):
    wanted = {
        "/": 200,
        "/static/main.js": 200,
        "/static/../x": 404,
        "/api/table": 200,
        "/api/tokens": 200,
        "/api/neighbors?q=king": 200,
        "/api/neighbors?id=3&center=1&metric=l2": 200,
        "/api/neighbors?q=nobody": 400,
        "/api/similarity?a=king&b=kings": 200,
        "/api/heatmap?q=king&q=" + quote("👩‍👩‍👧"): 200,
        "/api/complete?prefix=k": 200,
        "/api/walk?text=king": 200,
        "/api/walk?text=unwalkable": 400,
        "/plotly.js": 200,
        "/" + "x" * 40_000: 414,
    }
    paths = [path for path in wanted for _ in range(36)][:500]
    random.Random(0).shuffle(paths)

    def client(mine):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            answers = []
            for path in mine:
                connection.request("GET", path)
                answers.append((path, Answer(connection.getresponse())))
            return answers

    with ThreadPoolExecutor(16) as clients:
        answers = list(itertools.chain(*clients.map(client, [paths[n::16] for n in range(16)])))
    assert len(answers) == 500
    bodies: dict[str, set] = {}
    for path, answer in answers:
        assert answer.status == wanted[path]
        bodies.setdefault(path, set()).add(answer.body)
    assert all(len(different) == 1 for different in bodies.values())


def test_a_taken_port_and_an_unknown_host_are_said(port):
    with pytest.raises(OutputError, match=f"port {port}: Address already in use; leave --port out"):
        listening("127.0.0.1", port)
    with pytest.raises(OutputError, match="can't listen at 'no such host'"):
        listening("no such host")


def test_only_what_a_page_needs_is_served():
    kinds = {name.rpartition(".")[2] for name in app_module.page_files()}
    assert kinds <= {"html", "js", "css", "svg"}

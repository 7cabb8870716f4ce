"""Who may read the table: this page's own requests, with the token; nobody else, by any way in."""

import http.client
from urllib.parse import urlsplit

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.web.explorer import Explorer
from tokenspace.web.headers import SECURITY
from tokenspace.web.server import serving

TOKEN = "a-token_of-32-characters-as-ours"


def explorer():
    rows = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    return Explorer(ts.Table(rows, ts.Vocab([f"word{n}" for n in range(40)], encoding="word")))


@pytest.fixture(scope="module")
def port():
    with serving(explorer(), token=TOKEN) as url:
        yield urlsplit(url).port


@pytest.fixture(scope="module")
def open_port():
    with serving(explorer()) as url:
        yield urlsplit(url).port


def get(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", path, headers=names)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response, body


PATHS = [
    "/",
    "/?view=map",
    "/static/main.js",
    "/plotly.js",
    "/api/table",
    "/api/map?method=tsne",
    "/api/none",
]


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(port, path):
    for headers in ({}, {"cookie": f"tokenspace-{port}=wrong"}, {"authorization": "Bearer wrong"}):
        response, body = get(port, path, **headers)
        assert response.status == 403
        assert "token" in body
        assert TOKEN not in body
        assert response.getheader("set-cookie") is None
    sign = "&" if "?" in path else "?"
    for wrong in ("", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "%ff", "é".encode().hex()):
        assert get(port, f"{path}{sign}token={wrong}")[0].status == 403


def test_a_cookie_of_another_port_is_not_ours(port):
    assert get(port, "/api/table", cookie=f"tokenspace-{port + 1}={TOKEN}")[0].status == 403


def test_each_way_to_give_the_token_is_taken(port):
    ways = [
        {"cookie": f"tokenspace-{port}={TOKEN}"},
        {"cookie": f"other=1; tokenspace-{port}={TOKEN}; more=2"},
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer {TOKEN}"},
    ]
    for headers in ways:
        for path in ("/", "/static/main.js", "/api/table", "/api/neighbors?q=word3"):
            assert get(port, path, **headers)[0].status == 200
    for path in (f"/api/table?token={TOKEN}", f"/api/neighbors?token={TOKEN}&q=word3&k=2"):
        assert get(port, path)[0].status == 200
    assert get(port, f"/api/neighbors?q=word3&bad=1&token={TOKEN}")[0].status == 400  # the rest is judged


@pytest.mark.parametrize(
    ("query", "place"),
    [("", "/"), ("view=map&", "/?view=map"), ("text=a+%26+b&", "/?text=a+%26+b"), ('x="><b>&', '/?x="><b>')],
)
def test_the_address_loses_its_token_and_the_browser_keeps_it(port, query, place):
    path = f"/?{query}token={TOKEN}".replace(" ", "+")
    response, _ = get(port, path)
    assert (response.status, response.getheader("location")) == (303, place)
    cookie = response.getheader("set-cookie")
    assert cookie == f"tokenspace-{port}={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert response.getheader("referrer-policy") == "no-referrer"
    assert get(port, place, cookie=cookie.split(";")[0])[0].status == 200
    # from a link elsewhere a redirect would go without the cookie
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    response, body = get(port, path, **link)
    assert (response.status, response.getheader("set-cookie")) == (200, cookie)
    assert 'http-equiv="refresh"' in body
    assert "<b>" not in body
    assert TOKEN not in body


FOREIGN = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},  # another port of this machine
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://localhost"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("path", ["/", "/static/main.js", "/plotly.js", "/api/map?method=tsne", "/api/table"])
def test_another_sites_page_is_refused_with_and_without_a_token(port, open_port, path, headers):
    for one, credentials in ((open_port, {}), (port, {"cookie": f"tokenspace-{port}={TOKEN}"})):
        response, body = get(one, path, **headers, **credentials)
        assert response.status == 403
        assert "another site" in body
        assert all(response.getheader(name) == value for name, value in SECURITY.items())


def test_a_link_leads_to_the_page_and_to_nothing_else(open_port):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert get(open_port, "/?view=map", **link)[0].status == 200
    assert get(open_port, "/api/map?method=tsne", **link)[0].status == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_pages_own_requests_are_answered(open_port, site):
    own = {"sec-fetch-site": site, "origin": f"http://127.0.0.1:{open_port}"}
    assert get(open_port, "/api/table", **own)[0].status == 200


# ── in a browser ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_browser_with_the_url_sees_the_table_and_another_does_not(browser, port):
    address = f"http://127.0.0.1:{port}/"
    mine, other = browser.new_context(), browser.new_context()
    try:
        page, seen = mine.new_page(), []
        page.on("request", lambda request: seen.append(request))
        page.goto(f"{address}?view=query&token={TOKEN}")
        page.wait_for_selector("#opening", state="hidden")
        assert "token" not in page.url
        assert page.evaluate("document.cookie") == ""  # no script reads it
        assert not any(TOKEN in request.headers.get("referer", "") for request in seen)
        assert sum(TOKEN in request.url for request in seen) == 1
        page.reload()
        page.wait_for_selector("#opening", state="hidden")
        page.click("#views [data-view=walk]")
        page.go_back()
        page.go_forward()
        assert "token" not in page.url
        assert page.goto(f"{address}?view=query").status == 200

        stranger = other.new_page()
        assert stranger.goto(address).status == 403
        assert "tokenspace explore" in stranger.inner_text("body")
        assert stranger.goto(f"{address}api/table").status == 403
    finally:
        mine.close()
        other.close()


def test_a_foreign_page_can_link_here_but_not_fetch_or_start_work(browser, port, open_port):
    """The foreign page is another port of this machine, which a browser counts as the same site."""
    with serving(explorer()) as elsewhere:
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(elsewhere)
            page.wait_for_selector("#opening", state="hidden")
            answers = []
            page.on("response", lambda response: answers.append((response.url, response.status)))
            target = f"http://127.0.0.1:{open_port}/api/map?method=tsne"
            page.evaluate("(url) => { location.href = url; }", target)
            page.wait_for_url(target)
            assert (target, 403) in answers
            page.goto(elsewhere)
            page.evaluate(
                "(url) => { location.href = url; }", f"http://127.0.0.1:{port}/?token={TOKEN}&view=query"
            )
            page.wait_for_url(f"http://127.0.0.1:{port}/?view=query**")
            page.wait_for_selector("#opening", state="hidden")
        finally:
            context.close()

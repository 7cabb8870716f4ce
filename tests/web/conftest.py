"""One browser, and one server for each table, a session; each page is watched while it is used."""

import contextlib
import json
import os
import shutil
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.geometry.transform import View
from tokenspace.tokenizer import Tokenizer
from tokenspace.walk import Pipeline
from tokenspace.web.explorer import Explorer
from tokenspace.web.server import serving

from . import hostile

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOW = "the browser tests need Chromium and playwright: `apt-get install chromium`, `pip install playwright`"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
# What `hostile_site`'s tokenizer splits at "|"; an address holds no lone surrogate.
WORST_TEXT = "|".join([*hostile.TOKENS[:11], "king"]).encode("utf-8", "replace").decode()


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail(HOW)
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail(HOW)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=120_000)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def builtin_site():
    explorer = Explorer.open("wordnet")
    with serving(explorer) as url:
        yield Site(url, explorer.table, Pipeline.open("wordnet"))


@pytest.fixture(scope="session")
def minilm_site(minilm_folder):
    explorer = Explorer.open(minilm_folder)
    with serving(explorer) as url:
        yield Site(url, explorer.table, Pipeline.open(minilm_folder))


@pytest.fixture(scope="session")
def small_site(builtin_site):
    """2,000 rows of the built-in table: drawn in no time, for what doesn't hang on how many there are."""
    whole = builtin_site.table
    table = ts.Table(whole.lookup(range(2_000)), whole.vocab.take(np.arange(2_000)))
    with serving(Explorer(table)) as url:
        yield Site(url, table)


@pytest.fixture
def odd_site():
    """``odd_site(rows)`` serves a table of those rows, whose tokens are t0, t1, ... unless they are given."""
    with contextlib.ExitStack() as stack:

        def serve(rows, tokens=None, encoding="word"):
            vocab = ts.Vocab(tokens or [f"t{i}" for i in range(len(rows))], encoding=encoding)
            table = ts.Table(rows.astype(np.float32), vocab)
            return Site(stack.enter_context(serving(Explorer(table))), table)

        yield serve


@pytest.fixture(scope="session")
def hostile_site():
    """The hostile tokens, with a tokenizer that splits a text at "|" and has a token for each piece."""
    table = hostile.table()
    vocab = {}
    for i, token in enumerate(table.vocab):
        vocab.setdefault(token.encode("utf-8", "replace").decode("utf-8"), i)
    description = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": "|"},
            "behavior": "Removed",
            "invert": False,
        },
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "king"},
    }
    walking = ts.Table(table.weight, table.vocab, Tokenizer.from_json(json.dumps(description)))
    with serving(Explorer(walking)) as url:
        yield Site(url, walking)


@pytest.fixture(params=["wordnet", "MiniLM"])
def site(request):
    """The built-in table's page, and a real checkpoint's."""
    return request.getfixturevalue({"wordnet": "builtin_site", "MiniLM": "minilm_site"}[request.param])


@pytest.fixture(scope="session")
def pages(browser):
    """A page for each size of window, with its watch; opening one takes longer than going elsewhere in it."""
    opened = {}

    def page_of(viewport):
        key = viewport["width"]
        if key not in opened:
            opened[key] = watched_page(browser, viewport)
        return opened[key]

    return page_of


@pytest.fixture
def visit(browser, pages):
    """``visit(site, view="map", …)`` goes to that page and watches it to the end of the test.

    What a test routes is undone after it. ``fresh`` takes a page of its own, for what can't be undone.
    """
    with contextlib.ExitStack() as stack:
        watches = {}

        def visit(site, viewport=DESKTOP, fresh=False, **state):
            page, watch = watched_page(browser, viewport) if fresh else pages(viewport)
            if fresh:
                stack.callback(page.context.close)
            watch.begin(site.url)
            watches[id(watch)] = watch
            page.goto(site.address(**state))
            page.wait_for_selector("#opening", state="hidden")
            return page

        yield visit
        for watch in watches.values():
            watch.page.unroute_all(behavior="ignoreErrors")
            watch.check()


def watched_page(browser, viewport):
    page = browser.new_context(viewport=viewport, reduced_motion="reduce").new_page()
    page.set_default_timeout(30_000)
    return page, Watch(page)


class Site:
    """A served table, and what to compare it with: the library's own walk, and its rows under each switch."""

    def __init__(self, url, table, pipeline=None):
        self.url = url
        self.table = table
        self.pipeline = pipeline
        self.views = [View(table, *switch) for switch in ((False, 0), (True, 0), (True, 2))]

    def address(self, **state):
        return f"{self.url}?{urlencode(state)}"


class Watch:
    """What must not happen on a page: an error, a refused style or script, a dialog, a request elsewhere.

    All since the last check is seen, wherever the page went in between.
    """

    def __init__(self, page):
        self.page = page
        self.wrong = []
        self.hosts = set()
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("console", self._console)
        page.on("request", self._request)
        page.expose_function("refused", lambda what: self.wrong.append(f"refused: {what}"))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => refused(event.violatedDirective))"
        )

    def begin(self, url):
        """From now on the page is one of ``url``'s."""
        # The page before may still be asking.
        self.hosts = {urlsplit(url).netloc, urlsplit(self.page.url).netloc}

    def _request(self, request):
        if urlsplit(request.url).netloc not in self.hosts and not request.url.startswith(("data:", "blob:")):
            self.wrong.append(f"request to {request.url}")

    def _dialog(self, dialog):
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message):
        if "/api/" in message.location["url"] and "status of 400" in message.text:
            return  # Chromium says so of every refusal, which the page then shows in words
        if message.type == "error" or "Content Security Policy" in message.text or "CSP" in message.text:
            self.wrong.append(f"console: {message.text}")

    def check(self):
        self.page.evaluate("new Promise((resolve) => setTimeout(resolve))")  # what was told before has come
        wrong, self.wrong = self.wrong, []
        assert not wrong, "\n".join(wrong)

import http.client
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import tokenspace as ts
from tokenspace.cli import main
from tokenspace.web import server


@pytest.fixture
def table(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    path = tmp_path / "small.safetensors"
    ts.save(ts.Table(rows, ts.Vocab([f"word{n}" for n in range(40)], encoding="word")), path)
    return path


@pytest.fixture
def served(monkeypatch):
    """What would have been served and opened."""
    found = {"opened": []}

    class Served:
        def __init__(self, explorer, host, token):
            found.update(explorer=explorer, host=host, token=token)

        def run(self, sockets):
            found["address"] = sockets[0].getsockname()
            raise KeyboardInterrupt

    monkeypatch.setattr(server, "server", Served)
    monkeypatch.setattr("webbrowser.open", found["opened"].append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    return found


def run(*arguments):
    return CliRunner().invoke(main, ["explore", *map(str, arguments)], catch_exceptions=False)


def test_the_page_is_served_until_ctrl_c():
    command = [sys.executable, "-m", "tokenspace", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            printed = r"http://([\d.]+):(\d+)/\?token=([\w-]{32})  \(Ctrl-C ends it\)\n"
            host, port, token = re.fullmatch(printed, line).groups()
            assert host == "127.0.0.1"
            for path in ("/", "/api/table"):
                connection = http.client.HTTPConnection(host, int(port), timeout=30)
                connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                response = connection.getresponse()
                assert response.status == 200
                assert response.read()
                connection.close()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")


def test_a_free_port_is_taken_and_a_browser_opened(table, served):
    result = run(table)
    assert (result.exit_code, result.stderr) == (0, "")
    assert served["host"] == served["address"][0] == "127.0.0.1"
    assert served["opened"] == [f"http://127.0.0.1:{served['address'][1]}/?token={served['token']}"]
    assert result.stdout == f"{served['opened'][0]}  (Ctrl-C ends it)\n"
    assert served["explorer"].facts()["name"] == "small.safetensors"


def test_no_browser_opens_where_none_is_wanted_or_there_is_no_display(table, served, monkeypatch):
    assert run(table, "--no-browser").exit_code == 0
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run(table).exit_code == 0
    assert served["opened"] == []


def test_each_start_has_a_token_of_its_own_unless_none_is_wanted(table, served):
    tokens = set()
    for _ in range(2):
        run(table, "--no-browser")
        tokens.add(served["token"])
    assert len(tokens) == 2
    assert run(table, "--no-browser", "--no-token").stdout.split("  ")[0].endswith("/")
    assert served["token"] is None


def test_the_recipe_is_the_walks_first(served):
    run("wordnet", "--recipe", "gpt2", "--no-browser")
    assert served["explorer"].facts()["recipe"] == "gpt2"


def test_an_address_that_others_reach_is_warned_of(table, served):
    result = run(table, "--host", "0.0.0.0")
    assert result.stderr == (
        "0.0.0.0 is more than this machine: anyone on the network who has its address can read this table, "
        "and it is sent unencrypted\n"
    )
    assert result.stdout.startswith("http://127.0.0.1:")


def test_a_taken_port_is_one_line(table, served):
    with server.listening() as taken:
        port = taken.getsockname()[1]
        result = run(table, "--port", port)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: can't listen at 127.0.0.1, port {port}: Address already in use; "
        "leave --port out to take a free one\n"
    )


def test_what_is_no_table_is_one_line():
    result = run("nothing.safetensors")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: there is no table 'nothing.safetensors'")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--text", "a"],
        ["--neighbors", "3"],
        ["--html", "page.txt"],
        ["--port", "70000"],
        ["--recipe", "elmo"],
    ],
)
def test_usage(arguments):
    assert run("wordnet", *arguments).exit_code == 2


def test_html_writes_one_file_and_says_its_size(table, tmp_path):
    page = tmp_path / "page.html"
    result = run(table, "--html", page)
    assert result.exit_code == 0
    size = page.stat().st_size / 1e6
    assert result.stdout == f"{page}: 40 tokens, their rows as float32; {size:.1f} MB\n"
    assert result.stderr == ""
    result = run(table, "--html", page, "--neighbors", "2")
    assert "the 2 nearest of each" in result.stdout


def test_html_tells_what_it_leaves_out(table, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenspace.web.export.LIMIT", 400)
    result = run(table, "--html", tmp_path / "page.html")
    assert result.stderr.startswith("The rows (0.00096 MB) pass this file's limit of 0.0004 MB: analogies")
    assert ": 40 tokens, the 5 nearest of each; " in result.stdout


def test_neither_the_library_nor_another_verb_imports_the_server():
    code = (
        "import sys, tokenspace, tokenspace.cli, tokenspace.geometry, tokenspace.walk;"
        "print([name for name in ('starlette', 'uvicorn', 'asyncio') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"

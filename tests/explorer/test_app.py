import http.client
import json
import logging
import math
import os
import shutil
import socket
from urllib.parse import urlsplit

import pytest

import gloam
from gloam.explorer.library import Library
from gloam.formats import RunFolder
from gloam.formats.ownership import locked
from gloam.formats.tables import MetricsFile
from tests.explorer.conftest import HOSTILE, serving
from tests.explorer.unpacking import unpacked
from tests.fuzz.requests import ask
from tests.run_folders import write_grid_run

pytest.importorskip("starlette", reason="the explorer needs gloam[explorer]")
from gloam.explorer.app import explorer_app


@pytest.fixture(scope="module")
def address(made_runs):
    with serving(made_runs) as found:
        yield found


@pytest.fixture(scope="module")
def ids(address):
    return {run["name"]: run["id"] for run in answer(address, "api/folder")["runs"]}


def asked(address, path, headers=None, method="GET"):
    """Status, headers and content of an answer; the path is sent as it is."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.putrequest(method, f"/{path}", skip_host="Host" in (headers or {}))
    for name, value in (headers or {}).items():
        connection.putheader(name, value)
    connection.endheaders()
    found = connection.getresponse()
    content = found.read()
    connection.close()
    return found.status, dict(found.getheaders()), content


def answer(address, path):
    status, _, content = asked(address, path)
    assert status == 200, content
    return json.loads(content)


def test_the_page_allows_no_foreign_scripts_and_names_no_foreign_host(address):
    status, headers, content = asked(address, "")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    text = content.decode()
    assert "http://" not in text
    assert "https://" not in text
    for name in ("main.js", "style.css", "vendor/uPlot.esm.js"):
        assert asked(address, f"static/{name}")[0] == 200


def test_runs_are_listed_and_answer_for_themselves(address, ids, made_runs):
    assert set(ids) == {"grid", "others/map-elites", "pictures"}
    run = answer(address, f"api/runs/{ids['grid']}")
    assert (run["name"], run["state"]) == ("grid", "finished")
    parts = answer(address, f"api/runs/{ids['grid']}/parts")
    assert [one["name"] for one in parts["archive"]["projections"]] == ["grid"]
    assert parts["archive"]["shape"] == [8, 6]
    assert (parts["moments"], parts["model"]) == ([2, 6], True)
    table = RunFolder(made_runs / "grid").read_metrics()
    metrics, about = unpacked(asked(address, f"api/runs/{ids['grid']}/metrics")[2])
    assert about["rows"] == len(table)
    assert metrics["qd_score"].tolist() == table["qd_score"].tolist()
    images = answer(address, f"api/runs/{ids['pictures']}/parts")
    assert images["pictures"] == {"solution": True, "item": True}
    assert images["archive"]["labels"] == ["a", "b", "c"]


def test_the_comparison_is_that_of_gloam_compare(runs):
    write_grid_run(runs / "again", seeds=[5, 6, 7])
    folders = [runs / "grid", runs / "again"]
    with serving(runs) as address:
        ids = {run["name"]: run["id"] for run in answer(address, "api/folder")["runs"]}
        found = answer(address, f"api/compare?groups={ids['grid']};{ids['again']}")
        both = answer(address, f"api/compare?groups={ids['grid']},{ids['again']}")
        one_seed = f"{ids['grid']};{ids['others/map-elites']}"
        without_tests = answer(address, f"api/compare?groups={one_seed}")
        sizes = asked(address, f"api/compare?groups={ids['grid']};{ids['pictures']}")
    expected = gloam.compare({"0": folders[0], "1": folders[1]})
    assert found["f_min"] == expected.f_min
    table = expected.table()
    assert [row["group"] for row in found["table"]] == [int(name) for name in table["algorithm"]]
    for name in ("seeds", "qd_score", "qd_score_error", "coverage", "best_objective_error"):
        assert [row[name] for row in found["table"]] == table[name].tolist()
    assert found["tests"]["qd_score"][0]["difference"] != 0
    for metric, tests in found["tests"].items():
        (row,), (ours,) = tests, expected.tests(metric).to_dict("records")
        assert (row["group"], row["other"], row["sign"]) == (0, 1, ours["sign"])
        for name in ("difference", "p", "hedges_g"):
            assert row[name] == (ours[name] if math.isfinite(ours[name]) else None)
    assert list(found["tests"]) == ["qd_score", "coverage", "best_objective"]
    # The runs of one group count as one algorithm.
    assert [row["seeds"] for row in both["table"]] == [5]
    assert both["tests"] == without_tests["tests"] == {}
    assert sizes[0] == 422
    assert "The archives differ in size" in json.loads(sizes[2])["error"]


def test_an_answer_that_has_not_changed_is_not_sent_again(address, ids):
    path = f"api/runs/{ids['grid']}/elites?seed=3"
    _, headers, _ = asked(address, path)
    status, _, content = asked(address, path, {"If-None-Match": headers["etag"]})
    assert (status, content) == (304, b"")


REFUSED = [
    ("static/../../../../../../etc/passwd", {}, 400),
    ("static/..%2f..%2fapp.py", {}, 400),
    ("static/%2e%2e/app.py", {}, 400),
    ("static/vendor/../main.js", {}, 400),
    ("static//etc/passwd", {}, 404),
    ("api/runs/..", {}, 400),
    ("api/runs/grid", {}, 404),
    ("api/runs/" + 12 * "0", {}, 404),
    ("x" * 500, {}, 400),
    ("", {"Host": "attacker.example"}, 403),
    ("api/folder", {"Host": "localhost.attacker.example:80"}, 403),
    ("api/folder", {"Host": "[::1"}, 403),
    ("api/folder", {"Origin": "http://attacker.example"}, 403),
    ("api/folder", {"Host": "localhost?x"}, 403),
    ("api/folder", {"Host": "x@localhost"}, 403),
    ("api/folder", {"Host": "192.0.2.7"}, 403),
    ("api/folder", {"Host": ""}, 403),
    ("api/folder", {"Origin": "null"}, 403),
    ("api/folder", {"Origin": "http://["}, 403),
    ("api/folder", {"Origin": "http://\xff"}, 403),
    ("api/folder", {"Origin": ""}, 403),
    ("api/folder", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("api/folder", {"Sec-Fetch-Site": "same-site"}, 403),
    ("static/main.js", {"Range": "bytes=0-99999999999999"}, 416),
    ("api/folder?x=1", {}, 400),
    ("api/compare", {}, 404),
    ("api/compare?groups=..;grid", {}, 404),
    ("api/compare?groups=1,1", {}, 400),
    ("api/compare?groups=1;1", {}, 400),
    ("api/folder?" + 3000 * "x", {}, 414),
]
OF_A_RUN = [
    "elites?seed=99",
    "elites?seed=3&seed=4",
    "elites?seed=3.5",
    "elites?seed=-1",
    "elites?seed=" + 30 * "9",
    "elites?at=" + 19 * "9",
    "elites?seed=%EF%BC%93",
    "map?by=../secret",
    "map?by=axes&x=-1",
    "column?number=-1",
    "column?number=1&number=2",
    "sheet?cells=" + ",".join(["1"] * 49),
    "sheet?cells=",
    "sheet?cells=1,48",
    "sheet?cells=1;2",
    "cells/48",
    "cells/-1",
    "cells/1e3",
    "cells/3/picture?side=both",
]


@pytest.mark.parametrize(("path", "headers", "status"), REFUSED)
def test_what_is_refused_is_logged_and_the_rest_goes_on(address, path, headers, status, caplog):
    with caplog.at_level(logging.WARNING, "gloam.explorer"):
        found, sent, content = asked(address, path, headers)
    assert found == status
    assert b"root:" not in content
    assert "content-security-policy" in sent
    assert any("refused" in record.getMessage() for record in caplog.records) or status == 404
    assert asked(address, "api/folder")[0] == 200


@pytest.mark.parametrize("value", ["[", "*", 'W/"x"', "\xff\xfe", '"' * 5000])
@pytest.mark.parametrize("name", ["If-None-Match", "If-Modified-Since", "Accept", "Cookie"])
def test_other_headers_are_ignored_whatever_they_contain(address, name, value):
    assert asked(address, "api/folder", {name: value})[0] == 200


@pytest.mark.parametrize("length", ["-1", "x", "9" * 30, ""])
def test_a_malformed_length_is_no_failure_of_the_server(address, length):
    assert asked(address, "api/folder", {"Content-Length": length})[0] in (200, 400)
    assert asked(address, "api/folder")[0] == 200


def test_requests_of_the_page_itself_are_answered(address):
    host = urlsplit(address).netloc
    headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert asked(address, "api/folder", headers)[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("192.0.2.7:8400", 200), ("[2001:db8::1]:8400", 200), ("box", 200), ("attacker.example", 403)],
)
def test_a_server_for_other_machines_answers_to_addresses_and_its_own_name(made_runs, host, status):
    with serving(made_runs, "0.0.0.0", "Box", by_address=True) as address:
        assert asked(address, "api/folder", {"Host": host})[0] == status


@pytest.mark.parametrize("path", OF_A_RUN)
def test_malformed_queries_about_a_run_are_refused(address, ids, path, caplog):
    with caplog.at_level(logging.WARNING, "gloam.explorer"):
        status, _, content = asked(address, f"api/runs/{ids['grid']}/{path}")
    assert status == 400
    assert "error" in json.loads(content)
    assert any("refused" in record.getMessage() for record in caplog.records)
    assert asked(address, "api/folder")[0] == 200


def test_bytes_in_a_query_are_refused(made_runs):
    """Also where Starlette would redirect to the path without the last slash."""
    app = explorer_app(Library(made_runs))
    for path in ("api/folder?\udcff", "api/folder/?x=\udcff"):
        assert ask(app, path).check().status == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_reading_is_answered(address, method):
    assert asked(address, "api/folder", method=method)[0] == 405


def test_bytes_that_are_no_request_do_not_end_the_server(address):
    parts = urlsplit(address)
    for rubbish in (b"\0" * 100, b"GET / HTTP/9.9\r\n\r\n", b"GET " + 10**5 * b"x"):
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
            connection.sendall(rubbish)
            connection.shutdown(socket.SHUT_WR)
    assert asked(address, "api/folder")[0] == 200


def test_hostile_names_are_data(runs):
    shutil.move(runs / "grid", runs / HOSTILE)
    odd = os.fsdecode(b"bad\xff\nname")
    shutil.copytree(runs / "pictures", runs / odd)
    with serving(runs) as address:
        status, headers, content = asked(address, "api/folder")
    assert status == 200
    assert headers["content-type"] == "application/json"
    names = {run["name"] for run in json.loads(content)["runs"]}
    assert names == {HOSTILE, odd, "pictures", "others/map-elites"}


def test_damaged_files_are_told_and_the_others_are_served(runs):
    archive = runs / "grid" / "archive-3.npz"
    content = bytearray(archive.read_bytes())
    content[len(content) // 3] ^= 1
    archive.write_bytes(content)
    (runs / "pictures" / "config.json").write_text('{"kind": "gloam run"')
    with serving(runs) as address:
        ids = {run["name"]: run["id"] for run in answer(address, "api/folder")["runs"]}
        status, _, content = asked(address, f"api/runs/{ids['grid']}/elites?seed=3")
        assert status == 422
        assert "archive-3.npz" in json.loads(content)["error"]
        assert asked(address, f"api/runs/{ids['grid']}/elites?seed=4")[0] == 200
        assert answer(address, f"api/runs/{ids['pictures']}")["state"] == "damaged"
        assert asked(address, f"api/runs/{ids['pictures']}/metrics")[0] == 422


def test_rows_of_a_run_reach_the_page_while_it_is_written(runs):
    folder = RunFolder(runs / "grid")
    table = folder.read_metrics()
    rows = table.to_dict("records")
    MetricsFile(folder.path).write(table.iloc[:0])
    with serving(runs) as address, locked(runs / "grid"):
        run = next(one for one in answer(address, "api/folder")["runs"] if one["name"] == "grid")
        assert (run["state"], run["rows"]) == ("running", 0)
        for count in (2, 4):
            folder.append_metrics(rows[count - 2 : count])
            assert answer(address, f"api/runs/{run['id']}")["rows"] == count


def test_what_was_not_foreseen_is_logged_and_answered(runs, monkeypatch, caplog):
    def fail(self):
        raise RuntimeError("a secret")

    monkeypatch.setattr(Library, "look", fail)
    with serving(runs) as address:
        status, _, content = asked(address, "api/folder")
    assert status == 500
    assert b"secret" not in content
    assert "a secret" in caplog.text

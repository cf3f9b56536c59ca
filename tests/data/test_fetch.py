"""Files are downloaded whole or not at all, however badly an address serves them."""

import dataclasses
import errno
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mlrforecast._core.errors import ChecksumError, DatasetNotFoundError
from mlrforecast.data import FileCard, _fetch, _transfer, fetching
from mlrforecast.data._checks import user_cache
from mlrforecast.data._files import fetched, read_file
from tests.data.http_server import Trouble, serving

CONTENT = np.random.default_rng(0).bytes(300_000)
OTHER = np.random.default_rng(1).bytes(300_000)
HALF = Trouble(after=150_000)
SETTINGS = ("MLRFORECAST_DATA", "MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """A cache of its own, no switch and no proxy, and an impatient client."""
    for name in (*SETTINGS, *PROXIES, *map(str.upper, PROXIES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_transfer, "PAUSE_S", 0.001)
    monkeypatch.setattr(_transfer, "STALL_S", 0.3)


@pytest.fixture
def site():
    with serving() as running:
        yield running


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def verified(*urls, content=CONTENT, **settings):
    return FileCard(name="a.bin", urls=urls, sha256=sha256(content), size=len(content), **settings)


def unverified(*urls, **settings):
    return FileCard(name="a.bin", urls=urls, **settings)


def fetch(card, **settings):
    return fetched(card, dataset="toy", progress=False, **settings)


def cached():
    """Names in the cache."""
    return sorted(path.name for path in user_cache().iterdir()) if user_cache().exists() else []


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


# One good address.


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("make", [verified, unverified])
def test_a_file_is_kept_in_the_cache_and_not_asked_for_again(site, make, sized, capfd):
    card = make(site.put("a.bin", CONTENT, sized=sized))

    assert read_file(card, dataset="toy", root=None, download=True) == CONTENT
    assert read_file(card, dataset="toy", root=None, download=False) == CONTENT
    assert fetch(card).read_bytes() == CONTENT

    assert site.starts == [0]
    assert "mlrforecast/" in site.log[0].agent
    assert cached() == ["a.bin"] + ["a.bin.recorded.json"] * (make is unverified)
    assert capfd.readouterr() == ("", ""), "the bar shows on terminals only"


def test_force_downloads_again(site):
    card = verified(site.put("a.bin", CONTENT))
    fetch(card)
    fetch(card, force=True)
    assert site.starts == [0, 0]


def test_a_bar_is_shown_where_a_terminal_watches(site, monkeypatch):
    shown = io.StringIO()
    shown.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", shown)
    card = verified(site.put("a.bin", CONTENT))
    fetched(card, dataset="toy", progress=True)
    assert "a.bin" in shown.getvalue()
    assert "/300k" in shown.getvalue()
    shown.truncate(0)
    fetched(card, dataset="toy", progress=False, force=True)
    assert "a.bin" not in shown.getvalue()


# Lines that break.


@pytest.mark.parametrize("validator", ["etag", "weak", "date", ""])
@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_broken_download_goes_on_where_it_stopped(site, how, validator):
    breaks = [Trouble(after=80_000, how=how) for _ in range(3)]
    card = verified(site.put("a.bin", CONTENT, troubles=breaks, validator=validator))

    assert fetch(card).read_bytes() == CONTENT

    assert len(site.log) == 4
    assert site.starts == sorted(set(site.starts)), "each one asks for what is left"
    assert [asked.status for asked in site.log] == [200, 206, 206, 206]
    assert site.sent < len(CONTENT) + 3 * 2**16
    assert cached() == ["a.bin"]


@pytest.mark.parametrize("validator", ["etag", "date"])
def test_without_a_hash_it_goes_on_if_the_version_is_known(site, validator):
    card = unverified(site.put("a.bin", CONTENT, troubles=[HALF], validator=validator))
    assert fetch(card).read_bytes() == CONTENT
    assert 0 < site.starts[1] <= 150_000


@pytest.mark.parametrize("validator", ["weak", ""])
def test_with_neither_hash_nor_version_it_begins_again(site, validator):
    """Two halves may be of two versions, and nothing would tell."""
    card = unverified(site.put("a.bin", CONTENT, troubles=[HALF], validator=validator))
    assert fetch(card).read_bytes() == CONTENT
    assert site.starts == [0, 0]


def test_another_part_than_the_one_that_was_asked_for_is_not_joined(site):
    card = unverified(site.put("a.bin", CONTENT, troubles=[HALF], skewed=True))
    assert fetch(card).read_bytes() == CONTENT
    assert [asked.status for asked in site.log] == [200, 206, 200]


def test_halves_of_two_addresses_are_not_joined(site):
    first = site.put("1", CONTENT, ranges=False, troubles=[HALF], for_ever=True)
    second = site.put("2", OTHER, validator="", check_version=False)
    assert fetch(unverified(first, second)).read_bytes() == OTHER
    assert site.starts[-1] == 0


def test_more_than_there_is_is_thrown_away(site):
    """What is left of a longer version lies in the cache."""
    card = verified(site.put("a.bin", CONTENT, validator=""))
    user_cache().mkdir(parents=True)
    (user_cache() / "a.bin.part").write_bytes(OTHER + b"more")
    (user_cache() / "a.bin.part.json").write_text(json.dumps({"url": card.urls[0]}))
    assert fetch(card).read_bytes() == CONTENT
    assert [asked.status for asked in site.log] == [416, 200]


@pytest.mark.parametrize("make", [verified, unverified])
@pytest.mark.parametrize("troubles", [[], [HALF]])
def test_what_is_sent_packed_is_counted_unpacked(site, make, troubles):
    card = make(site.put("a.bin", CONTENT, packed=True, troubles=troubles))
    assert fetch(card).read_bytes() == CONTENT
    assert [asked.status for asked in site.log] == [200, 206, 200][: 1 + 2 * len(troubles)]


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense"])
def test_a_note_that_says_nothing_is_no_hindrance(site, text):
    """Whoever wrote it was killed meanwhile."""
    user_cache().mkdir(parents=True)
    (user_cache() / "a.bin.part").write_bytes(CONTENT[:1000])
    (user_cache() / "a.bin.part.json").write_text(text)
    assert fetch(verified(site.put("a.bin", CONTENT))).read_bytes() == CONTENT
    assert site.starts == [0]


@pytest.mark.parametrize("make", [verified, unverified])
def test_a_server_without_ranges_serves_all_again(site, make):
    card = make(site.put("a.bin", CONTENT, ranges=False, troubles=[HALF]))
    assert fetch(card).read_bytes() == CONTENT
    assert [asked.status for asked in site.log] == [200, 200]


def test_a_stall_ends_and_the_download_goes_on(site):
    card = verified(site.put("a.bin", CONTENT, troubles=[Trouble(after=150_000, how="stall")]))
    begun = time.monotonic()
    assert fetch(card).read_bytes() == CONTENT
    assert 0.3 < time.monotonic() - begun < 5
    assert site.starts[1] > 100_000


def test_many_breaks_are_borne_while_there_is_progress(site, monkeypatch):
    monkeypatch.setattr(_transfer, "_PROGRESS", 10_000)
    breaks = [Trouble(after=20_000, how="close") for _ in range(9)]
    assert fetch(verified(site.put("a.bin", CONTENT, troubles=breaks))).read_bytes() == CONTENT
    assert len(site.log) == 10


@pytest.mark.parametrize("ranges", [True, False])
def test_a_line_that_always_breaks_ends_in_an_error(site, monkeypatch, ranges):
    """Without ranges each try brings as much as the one before: that is no progress."""
    monkeypatch.setattr(_transfer, "_PROGRESS", 10_000)
    after = 9000 if ranges else 100_000
    card = verified(
        site.put(
            "a.bin",
            CONTENT,
            ranges=ranges,
            troubles=[Trouble(after=after, how="close")],
            for_ever=True,
        )
    )
    with pytest.raises(DatasetNotFoundError, match=r"a\.bin \(.*IncompleteRead.*; 5 tries\)"):
        fetch(card)
    assert len(site.log) in (5, 6)
    assert cached() == ["a.bin.part", "a.bin.part.json"], "the beginning is kept"
    site.pages["a.bin"].troubles.clear()
    assert fetch(card).read_bytes() == CONTENT


def test_lengths_are_compared_by_ourselves_too(site, monkeypatch):
    """Older versions of urllib3 take the end of a connection for the end of the file."""
    get = _transfer.requests.Session.get

    def trusting(session, *args, **kwargs):
        response = get(session, *args, **kwargs)
        response.raw.enforce_content_length = False
        return response

    monkeypatch.setattr(_transfer.requests.Session, "get", trusting)
    troubles = [Trouble(after=150_000, how="close")]
    card = unverified(site.put("a.bin", CONTENT, troubles=troubles))
    assert fetch(card).read_bytes() == CONTENT
    assert site.starts == [0, 150_000]


def test_a_truncated_file_is_never_taken(site):
    """Its length is not told, and it just ends: only the hash tells."""
    card = verified(
        site.put("a.bin", CONTENT, sized=False, troubles=[Trouble(after=150_000, how="close")])
    )
    with pytest.raises(ChecksumError) as caught:
        fetch(card)
    text = str(caught.value)
    for part in (sha256(CONTENT), sha256(CONTENT[:150_000]), "300000 bytes", "150000 bytes"):
        assert part in text
    assert cached() == []


# Answers that are none.


def test_a_page_that_is_not_there_is_asked_for_once(site):
    with pytest.raises(DatasetNotFoundError, match=r"/a\.bin \(HTTPError: 404") as caught:
        fetch(verified(f"{site.url}a.bin"))
    assert "MLRFORECAST_DATA" in str(caught.value)
    assert len(site.log) == 1
    assert cached() == []


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_error_of_the_server_is_borne(site, status):
    troubles = [Trouble(status=status)] * 3
    assert fetch(verified(site.put("a.bin", CONTENT, troubles=troubles))).read_bytes() == CONTENT
    assert len(site.log) == 4


def test_a_lasting_error_of_the_server_is_told(site):
    card = verified(site.put("a.bin", CONTENT, troubles=[Trouble(status=503)], for_ever=True))
    with pytest.raises(DatasetNotFoundError, match=r"503 Server Error.*; 5 tries"):
        fetch(card)
    assert len(site.log) == 5


def test_pauses_grow(site, monkeypatch):
    pauses = []
    monkeypatch.setattr(_transfer, "PAUSE_S", 0.5)
    monkeypatch.setattr(_transfer.time, "sleep", pauses.append)
    fetch(verified(site.put("a.bin", CONTENT, troubles=[Trouble(status=503)] * 4)))
    assert pauses == [0.5, 1, 2, 4]


def test_nobody_listens_there(site):
    """There is nothing to wait for: the next address is asked at once."""
    good = site.put("a.bin", CONTENT)
    assert fetch(verified("http://127.0.0.1:9/a.bin", good)).read_bytes() == CONTENT
    with pytest.raises(DatasetNotFoundError, match=r"127\.0\.0\.1:9/b \(ConnectionError: .*\)\n"):
        fetch(FileCard(name="b", urls=("http://127.0.0.1:9/b",)))


def test_redirects_are_followed_also_by_what_goes_on(site):
    site.put("there", CONTENT, troubles=[HALF])
    here = [Trouble(location="/there")]
    card = verified(site.put("here", b"", troubles=here, for_ever=True))
    assert fetch(card).read_bytes() == CONTENT
    assert [asked.path for asked in site.log] == ["here", "there"] * 2
    assert site.starts[3] > 0


def test_a_loop_of_redirects_ends(site):
    loop = site.put("a", b"", troubles=[Trouble(location="/a")], for_ever=True)
    good = site.put("a.bin", CONTENT)
    assert fetch(verified(loop, good)).read_bytes() == CONTENT
    with pytest.raises(DatasetNotFoundError, match="TooManyRedirects"):
        fetch(verified(loop), force=True)


def test_a_web_page_is_no_data(site):
    """A hotel asks for a login, with the code 200 and without a hash to compare."""
    login = site.put("a.bin", b"<html>log in</html>", kind="text/html; charset=utf-8")
    with pytest.raises(DatasetNotFoundError, match="answered with a web page"):
        fetch(unverified(login))
    with pytest.raises(ChecksumError, match=r"is not the a\.bin of the catalogue"):
        fetch(verified(login))
    assert cached() == []


@pytest.mark.parametrize("make", [verified, unverified])
def test_an_empty_answer_is_refused(site, make):
    with pytest.raises(ChecksumError, match=r"empty a\.bin"):
        fetch(make(site.put("a.bin", b"")))
    assert cached() == []


# Files that are other ones.


@pytest.mark.parametrize("content", [OTHER, CONTENT[:-1], CONTENT + b"x", CONTENT * 2])
def test_an_altered_file_is_refused_with_both_hashes(site, content):
    url = site.put("a.bin", content)
    with pytest.raises(ChecksumError) as caught:
        fetch(verified(url))
    text = str(caught.value)
    for part in (url, sha256(CONTENT), sha256(content), "300000 bytes", f"{len(content)} bytes"):
        assert part in text
    assert "Nothing of it was kept" in text
    assert cached() == []
    assert len(site.log) == 1


def test_no_more_of_an_endless_file_is_taken(site):
    content = bytes(20 * 2**20)
    url = site.put("a.bin", content)
    with pytest.raises(ChecksumError, match=r"at least \d+ bytes .*not computed.*300000 bytes"):
        fetch(verified(url))
    assert site.sent < len(content) // 2
    assert cached() == []


def test_the_next_address_serves_what_the_first_does_not(site):
    urls = [site.put("1", OTHER), f"{site.url}2", site.put("3", CONTENT), site.put("4", OTHER)]
    assert fetch(verified(*urls)).read_bytes() == CONTENT
    assert [asked.path for asked in site.log] == ["1", "2", "3"]


@pytest.mark.parametrize("check_version", [True, False])
@pytest.mark.parametrize("validator", ["etag", "date", ""])
@pytest.mark.parametrize("make", [verified, unverified])
def test_a_file_that_changed_in_between_begins_anew(site, make, validator, check_version):
    """The first half was of the older version; a server may not care what If-Range says."""
    page = {"validator": validator, "check_version": check_version}
    url = site.put("a.bin", OTHER, troubles=[Trouble(after=150_000, how="stall")], **page)
    card = make(url)
    old = site.pages["a.bin"]
    changed = []

    def change(seconds):
        changed.append(seconds)
        site.pages["a.bin"] = dataclasses.replace(old, content=CONTENT, troubles=[])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_transfer.time, "sleep", change)
        assert fetch(card).read_bytes() == CONTENT
    assert changed
    if validator and check_version:
        assert [asked.status for asked in site.log] == [200, 200], "the server was told the version"
    assert cached()[0] == "a.bin"
    assert not [name for name in cached() if "part" in name]


def test_an_altered_file_in_the_cache_is_refused_when_read_and_replaced_by_fetch(site):
    card = verified(site.put("a.bin", CONTENT))
    fetch(card).write_bytes(OTHER)
    with pytest.raises(ChecksumError) as caught:
        read_file(card, dataset="toy", root=None, download=True)
    assert sha256(OTHER) in str(caught.value)
    assert sha256(CONTENT) in str(caught.value)
    assert fetch(card).read_bytes() == CONTENT


# Files whose hash the catalogue does not know.


def test_the_first_download_is_recorded_and_later_ones_must_match(site):
    card = unverified(site.put("a.bin", CONTENT))
    path = fetch(card)
    record = json.loads(path.with_name("a.bin.recorded.json").read_bytes())
    assert record == {"sha256": sha256(CONTENT), "size": len(CONTENT), "url": card.urls[0]}

    path.unlink()
    site.put("a.bin", OTHER)
    with pytest.raises(ChecksumError) as caught:
        fetch(card)
    text = str(caught.value)
    for part in (sha256(OTHER), sha256(CONTENT), "that was first downloaded"):
        assert part in text
    assert "mlrforecast datasets fetch toy --force" in text
    assert cached() == ["a.bin.recorded.json"]
    site.put("a.bin", CONTENT)
    assert fetch(card).read_bytes() == CONTENT


def test_a_recorded_hash_holds_in_every_folder(site, tmp_path):
    card = unverified(site.put("a.bin", CONTENT))
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.bin").write_bytes(OTHER)

    def read():
        return read_file(card, dataset="toy", root=tmp_path / "root", download=False)

    assert read() == OTHER, "nothing is known of it yet"
    assert cached() == [], "and nothing was downloaded that could be recorded"
    fetch(card)
    with pytest.raises(ChecksumError, match=f"{sha256(OTHER)}.*{sha256(CONTENT)}.*--force"):
        read()


def test_force_accepts_a_new_version(site):
    card = unverified(site.put("a.bin", CONTENT))
    fetch(card)
    site.put("a.bin", OTHER)
    assert fetch(card).read_bytes() == CONTENT
    assert fetch(card, force=True).read_bytes() == OTHER
    assert read_file(card, dataset="toy", root=None, download=False) == OTHER


def test_force_keeps_what_is_there_if_nothing_new_is_served(site):
    card = unverified(site.put("a.bin", CONTENT))
    before = {path.name: path.read_bytes() for path in fetch(card).parent.iterdir()}
    site.pages.clear()
    with pytest.raises(DatasetNotFoundError):
        fetch(card, force=True)
    assert {path.name: path.read_bytes() for path in user_cache().iterdir()} == before


def test_force_does_not_accept_another_file_than_the_catalogue_knows(site):
    with pytest.raises(ChecksumError, match="of the catalogue"):
        fetch(verified(site.put("a.bin", OTHER)), force=True)


def test_a_size_without_a_hash_is_compared(site):
    with pytest.raises(ChecksumError, match="expected 7 bytes and sha256 unknown"):
        fetch(unverified(site.put("a.bin", CONTENT), size=7))


def test_a_damaged_record_is_named(site):
    card = unverified(site.put("a.bin", CONTENT))
    record = fetch(card).with_name("a.bin.recorded.json")
    for text in ("", "[]", "{}", "nonsense"):
        record.write_text(text)
        with pytest.raises(ChecksumError, match=r"recorded\.json, .*damaged\. Delete it"):
            read_file(card, dataset="toy", root=None, download=True)


# Archives.


def archive(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("make", [verified, unverified])
@pytest.mark.parametrize("troubles", [[], [HALF]])
def test_a_member_is_taken_out_of_an_archive(site, make, troubles):
    packed = archive(readme="no data", data=CONTENT)
    url = site.put("a.zip", packed, troubles=troubles)
    card = make(f"{url}?download=1", member="data")

    assert fetch(card).read_bytes() == CONTENT

    assert cached()[0] == "a.bin"
    assert len(cached()) == 1 + (make is unverified), "the archive is not kept"
    assert len(site.log) == 1 + len(troubles)
    assert (site.starts[-1] > 0) == bool(troubles)


def test_an_archive_and_a_plain_file_may_serve_the_same(site):
    urls = [site.put("bad.zip", b"no archive"), site.put("a.bin", CONTENT)]
    assert fetch(verified(*urls, member="data")).read_bytes() == CONTENT


@pytest.mark.parametrize("make", [verified, unverified])
@pytest.mark.parametrize(
    ("packed", "rule"),
    [
        (archive(other=b"1", more=b"2"), r"without 'data'; it holds 'other', 'more'"),
        (archive(data=CONTENT)[:-100], "no readable archive"),
        (archive(data=CONTENT).replace(CONTENT[1000:1010], bytes(10)), "no readable archive"),
        (b"nothing of the kind", "no readable archive"),
        (archive(data=bytes(64 * 2**20)), "more than|at least"),
    ],
    ids=["other members", "truncated", "altered", "no archive", "bomb"],
)
def test_a_bad_archive_is_refused_and_leaves_nothing(site, make, packed, rule):
    card = dataclasses.replace(make(site.put("a.zip", packed)), member="data")
    with pytest.raises(ChecksumError, match=rule):
        fetch(card)
    assert cached() == []


def test_names_in_an_archive_are_no_paths(site, tmp_path):
    card = unverified(site.put("a.zip", archive(**{"../../out": CONTENT})), member="../../out")
    assert fetch(card) == user_cache() / "a.bin"
    assert cached() == ["a.bin", "a.bin.recorded.json"]
    assert not list(tmp_path.rglob("out"))


# No internet.


@pytest.mark.parametrize("name", ["MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE"])
@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_a_switch_forbids_downloads_and_is_named(site, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    card = verified(site.put("a.bin", CONTENT))
    for run in (fetch, lambda card: read_file(card, dataset="toy", root=None, download=True)):
        with pytest.raises(DatasetNotFoundError, match=f"switched off by {name}={value}"):
            run(card)
    assert site.log == []
    assert cached() == []
    assert not user_cache().exists()


@pytest.mark.parametrize("value", ["", "0", "false", "no"])
def test_a_switch_that_is_off_changes_nothing(site, monkeypatch, value):
    monkeypatch.setenv("MLRFORECAST_OFFLINE", value)
    assert fetch(verified(site.put("a.bin", CONTENT))).read_bytes() == CONTENT


def test_what_is_in_the_cache_needs_no_internet(site, monkeypatch):
    card = verified(site.put("a.bin", CONTENT))
    fetch(card)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch(card).read_bytes() == CONTENT
    with pytest.raises(DatasetNotFoundError, match="HF_HUB_OFFLINE"):
        fetch(card, force=True)
    fetch_path = user_cache() / "a.bin"
    fetch_path.write_bytes(OTHER)
    with pytest.raises(DatasetNotFoundError, match="HF_HUB_OFFLINE"):
        fetch(card)


def test_a_proxy_is_asked(site, monkeypatch):
    """The name of the host is known to nobody but the proxy."""
    monkeypatch.setenv("http_proxy", site.url)
    site.put("a.bin", CONTENT)
    card = verified("http://data.invalid/a.bin")
    assert fetch(card).read_bytes() == CONTENT
    assert [asked.host for asked in site.log] == ["data.invalid"]
    monkeypatch.setenv("no_proxy", "data.invalid")
    with pytest.raises(DatasetNotFoundError, match=r"data\.invalid"):
        fetch(card, force=True)
    assert len(site.log) == 1


# Processes that are killed, and several at once.

PROGRAM = """
import sys
from mlrforecast.data import FileCard
from mlrforecast.data._files import fetched
name, url, sha256, size = sys.argv[1:]
card = FileCard(name=name, urls=(url,), sha256=sha256, size=int(size))
print("ready", flush=True)
print(fetched(card, dataset="toy", progress=False))
"""


def start(card, program=PROGRAM):
    words = (card.name, *card.urls, card.sha256, str(card.size))
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


def part_size():
    part = user_cache() / "a.bin.part"
    return part.stat().st_size if part.exists() else 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("make", [verified, unverified])
def test_a_process_that_is_stopped_leaves_a_beginning_that_the_next_goes_on_with(site, make, end):
    card = make(site.put("a.bin", CONTENT, troubles=[Trouble(after=150_000, how="stall")]))
    with start(card) as process:
        wait_for(lambda: part_size() > 100_000)
        process.send_signal(end)
        process.communicate()
    assert process.returncode == -end
    assert cached() == ["a.bin.part", "a.bin.part.json"]

    assert fetch(card).read_bytes() == CONTENT

    assert 100_000 < site.starts[1] <= 150_000
    assert cached()[0] == "a.bin"
    assert not [name for name in cached() if "part" in name]


def test_two_processes_at_once_download_once(site):
    card = verified(site.put("a.bin", CONTENT, troubles=[Trouble(after=150_000, how="stall")]))
    slow = PROGRAM.replace(
        "import sys", "import sys\nfrom mlrforecast.data import _transfer\n_transfer.STALL_S = 30"
    )
    first, second = start(card, slow), start(card, slow)
    wait_for(lambda: part_size() > 100_000)
    time.sleep(0.5)
    assert first.poll() is None
    assert second.poll() is None
    site.go_on.set()
    for process in (first, second):
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert Path(out.strip()).read_bytes() == CONTENT
    assert site.starts == [0]
    assert cached() == ["a.bin"]


def test_a_killed_process_blocks_no_other(site):
    card = verified(site.put("a.bin", CONTENT, troubles=[Trouble(how="stall")]))
    with start(card) as process:
        wait_for(lambda: site.log)
        process.kill()
    assert fetch(card).read_bytes() == CONTENT


def test_whoever_is_killed_between_record_and_file_leaves_no_contradiction(site, monkeypatch):
    card = unverified(site.put("a.bin", CONTENT))
    fetch(card)
    site.put("a.bin", OTHER)
    record = _fetch.record

    def record_and_die(*args):
        record(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_fetch, "record", record_and_die)
        with pytest.raises(KeyboardInterrupt):
            fetch(card, force=True)
    with pytest.raises(DatasetNotFoundError):
        read_file(card, dataset="toy", root=None, download=False)
    assert fetch(card).read_bytes() == OTHER
    assert [asked.status for asked in site.log] == [200, 200, 416], "all of it was there"
    assert read_file(card, dataset="toy", root=None, download=False) == OTHER


# Disks.


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_told_and_holds_nothing_wrong(site, monkeypatch):
    card = verified(site.put("a.bin", CONTENT))
    user_cache().mkdir(parents=True)
    begin = _transfer.Part.begin

    def on_full_disk(part, url, validator):
        begin(part, url, validator)
        part.path.unlink()
        part.path.symlink_to("/dev/full")

    monkeypatch.setattr(_transfer.Part, "begin", on_full_disk)
    with pytest.raises(OSError, match=r"a\.bin cannot be kept in the cache .*No space left"):
        fetch(card)
    assert cached() == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_what_cannot_be_finished_does_not_fill_the_disk(site, monkeypatch, number):
    class Bar(_transfer.tqdm):
        written = 0

        def update(self, n=1):
            self.written += n
            if self.written > 100_000:
                raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_transfer, "tqdm", Bar)
    with pytest.raises(OSError, match="cannot be kept in the cache"):
        fetch(verified(site.put("a.bin", CONTENT)))
    assert cached() == []


def test_too_little_space_is_told_before_anything_is_written(site, monkeypatch):
    usage = _transfer.shutil.disk_usage
    monkeypatch.setattr(
        _transfer.shutil, "disk_usage", lambda path: usage(path)._replace(free=299_999)
    )
    with pytest.raises(OSError, match="300000 bytes are to come and there is no space"):
        fetch(verified(site.put("a.bin", CONTENT)))
    assert cached() == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_without_the_right_to_write_is_named(site, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(OSError, match=r"cannot be kept in the cache .*Permission denied.*root="):
        fetch(verified(site.put("a.bin", CONTENT)))


def test_a_cache_that_is_a_file_is_named(site, tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(OSError, match="cannot be kept in the cache"):
        fetch(verified(site.put("a.bin", CONTENT)))


# The public functions.


@pytest.fixture
def toy(site, monkeypatch):
    """A data set of two files, the second without a hash."""
    card = dataclasses.replace(
        fetching.load_card("ETTh1"),
        name="toy",
        files=(
            dataclasses.replace(verified(site.put("a", CONTENT)), name="a.bin"),
            FileCard(name="b.bin", urls=(site.put("b", OTHER),)),
        ),
    )
    monkeypatch.setattr(fetching, "load_card", lambda name: {"toy": card}[name])
    return card


def test_fetch_dataset_brings_every_file(site, toy):
    paths = fetching.fetch_dataset("toy")
    assert [path.read_bytes() for path in paths] == [CONTENT, OTHER]
    assert fetching.fetch_dataset("toy") == paths
    assert len(site.log) == 2
    fetching.fetch_dataset("toy", force=True)
    assert len(site.log) == 4


def test_verify_dataset_tells_the_state_of_each_file(site, toy, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    assert fetching.verify_dataset("toy")["state"].tolist() == ["absent", "absent"]
    (root / "a.bin").write_bytes(CONTENT[1:])
    (root / "b.bin").write_bytes(b"mine")
    table = fetching.verify_dataset("toy", root=root)
    assert table.columns.tolist() == ["file", "where", "size", "sha256", "expected", "state"]
    assert table.iloc[0].tolist() == [
        *("a.bin", str(root / "a.bin"), len(CONTENT) - 1),
        *(sha256(CONTENT[1:]), sha256(CONTENT), "altered"),
    ]
    assert table.iloc[1].tolist() == [
        *("b.bin", str(root / "b.bin"), 4, sha256(b"mine"), "", "unverified"),
    ]
    (root / "b").mkdir()
    (root / "b" / "a.bin").write_bytes(CONTENT)
    assert fetching.verify_dataset("toy", root=root)["state"].tolist() == ["ok", "unverified"]
    fetching.fetch_dataset("toy")
    assert fetching.verify_dataset("toy", root=root)["state"].tolist() == ["ok", "altered"]
    assert fetching.verify_dataset("toy")["state"].tolist() == ["ok", "ok"]
    (root / "a.bin.xz").write_bytes(b"no xz")
    (root / "a.bin").unlink()
    (root / "b" / "a.bin").unlink()
    assert fetching.verify_dataset("toy", root=root)["state"].tolist()[0] == "altered"
    assert len(site.log) == 2, "nothing but fetch downloads"


def test_gluonts_keeps_its_own_files():
    for run in (fetching.fetch_dataset, fetching.verify_dataset):
        with pytest.raises(ValueError, match="kept by GluonTS"):
            run("gluonts:m4_hourly")
    with pytest.raises(ValueError, match="Unknown data set 'nothing'"):
        fetching.fetch_dataset("nothing")

"""Files of the Monash archive."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import parse_tsf, read_tsf

HEAD = """# A comment
@relation shops
@attribute series_name string
@attribute start_timestamp date
@frequency daily
@horizon 3
@missing true
@equallength false
@data
"""
BODY = "T1:2024-01-01 00-00-00:3,?,2.5\nT2:2024-02-01 12-00-00:5\n"


def parse(text: str, encoding: str = "cp1252"):
    return parse_tsf(text.encode(encoding), where="mine.tsf")


def test_a_file_is_read_whole():
    data = parse(HEAD + BODY)
    assert (data.freq, data.season_frequency, data.prediction_length) == ("D", "D", 3)
    assert data.comments == "A comment"
    assert data.attributes == ()
    expected = pd.DataFrame(
        {
            "item_id": ["T1", "T1", "T1", "T2"],
            "timestamp": pd.to_datetime(
                ["2024-01-01", "2024-01-02", "2024-01-03", "2024-02-01 12:00"], format="ISO8601"
            ),
            "target": [3.0, np.nan, 2.5, 5.0],
        }
    )
    pd.testing.assert_frame_equal(data.frame, expected, check_dtype=False, check_column_type=False)
    assert data.frame["target"].dtype == np.float64


@pytest.mark.parametrize(
    ("frequency", "start", "freq", "second"),
    [
        ("yearly", "1979-12-31", "YS", "1980-01-01"),
        ("quarterly", "1978-11-15", "QS", "1979-01-01"),
        ("monthly", "1979-01-31", "MS", "1979-02-01"),
        ("weekly", "2012-01-01", "W-SUN", "2012-01-08"),
        ("daily", "2024-02-28", "D", "2024-02-29"),
        ("hourly", "2024-02-28", "h", "2024-02-28 01:00"),
        ("half_hourly", "2024-02-28", "30min", "2024-02-28 00:30"),
        ("10_minutes", "2024-02-28", "10min", "2024-02-28 00:10"),
        ("minutely", "2024-02-28", "min", "2024-02-28 00:01"),
        ("4_seconds", "2024-02-28", "4s", "2024-02-28 00:00:04"),
    ],
)
def test_every_frequency_of_the_archive_is_known(frequency, start, freq, second):
    text = HEAD.replace("@frequency daily", f"@frequency {frequency}")
    data = parse(f"{text}T1:{start} 00-00-00:1,2\n")
    assert data.freq == freq
    assert data.frame["timestamp"][1] == pd.Timestamp(second)


def test_weeks_that_begin_on_different_days_have_no_anchor():
    text = HEAD.replace("daily", "weekly")
    data = parse(text + "T1:2012-01-01 00-00-00:1,2\nT2:2012-01-03 00-00-00:1,2\n")
    assert data.freq == "7D"
    assert data.frame["timestamp"][3] == pd.Timestamp("2012-01-10")


@pytest.mark.parametrize("dropped", ["@attribute start_timestamp date\n", "@frequency daily\n"])
def test_without_dates_or_frequency_rows_are_counted(dropped):
    body = "T1:2024-01-01 00-00-00:3,4\nT2:2024-01-01 00-00-00:7\n"
    body = body.replace(":2024-01-01 00-00-00", "") if "start" in dropped else body
    data = parse(HEAD.replace(dropped, "") + body)
    assert data.freq == 1
    assert data.season_frequency == ("D" if "start" in dropped else "")
    assert data.frame["timestamp"].tolist() == [0, 1, 0]


def test_attributes_become_columns_of_their_kind():
    text = HEAD.replace(
        "@frequency",
        "@attribute city string\n@attribute size numeric\n@attribute opened date\n@frequency",
    )
    data = parse(
        text
        + "T1:2024-01-01 00-00-00:Köln:3.5:2001-05-06 00-00-00:1,2\n"
        + "T2:2024-01-01 00-00-00:Ulm:4:1999-01-01 00-00-00:3\n"
    )
    assert data.attributes == ("city", "size", "opened")
    assert data.frame["city"].tolist() == ["Köln", "Köln", "Ulm"]
    assert data.frame["size"].tolist() == [3.5, 3.5, 4.0]
    assert data.frame["opened"][0] == pd.Timestamp("2001-05-06")


def test_windows_characters_are_read_and_other_encodings_can_be_named(tmp_path):
    path = tmp_path / "mine.tsf"
    path.write_bytes((HEAD + "Café €:2024-01-01 00-00-00:1\n").encode("cp1252"))
    assert read_tsf(path).frame["item_id"][0] == "Café €"
    path.write_bytes((HEAD + "Łódź:2024-01-01 00-00-00:1\n").encode())
    assert read_tsf(str(path)).frame["item_id"][0] == "Łódź"
    path.write_bytes((HEAD + "Łódź:2024-01-01 00-00-00:1\n").encode("cp1250"))
    assert read_tsf(str(path), encoding="cp1250").frame["item_id"][0] == "Łódź"
    # A byte that the encoding does not have stands in a comment of a real file.
    path.write_bytes(b"# \x81\n" + (HEAD + BODY).encode())
    assert len(read_tsf(path).frame) == 4


def test_lines_may_end_as_on_windows_be_empty_or_comments():
    data = parse((HEAD + "# more\n" + BODY).replace("\n", "\r\n") + "\r\n\r\n")
    assert data.frame["target"].tolist()[-1] == 5.0


def test_nameless_series_are_numbered():
    text = HEAD.replace("@attribute series_name string\n", "")
    data = parse(text + "2024-01-01 00-00-00:1\n2024-01-01 00-00-00:2\n")
    assert data.frame["item_id"].tolist() == ["T1", "T2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine.tsf has no line @data: it was cut short"),
        (HEAD.replace("@data\n", ""), "mine.tsf has no line @data"),
        (HEAD, "mine.tsf holds no series"),
        ("date,load\n1,2\n", "mine.tsf, line 1: expected a comment or a line that begins with '@'"),
        (
            HEAD.replace("daily", "fortnightly") + BODY,
            "line 5: the frequency must be one of yearly",
        ),
        (HEAD.replace("@horizon 3", "@horizon many") + BODY, "line 6: the horizon must be a count"),
        (HEAD.replace("@horizon 3", "@horizon 0") + BODY, "line 6: the horizon must be a count"),
        (
            HEAD.replace("_name string", "_name text") + BODY,
            "line 3: an attribute needs a name and",
        ),
        (
            HEAD + "T1:3,4\n",
            "line 10: expected 2 attributes .series_name, start_timestamp. and val",
        ),
        (HEAD + "T1:2024-01-01 00-00-00:3,four\n", "line 10: values must be numbers or '\\?'"),
        (HEAD + "T1:2024-01-01 00-00-00:\n", "line 10: values must be numbers"),
        (HEAD + "T1:01.02.2024:3\n", "the start of series 'T1' must be a date such as '2024-01-31"),
        (HEAD + BODY + BODY, "the series 'T1' occurs twice"),
        (HEAD.replace("@frequency", "@attribute target numeric\n@frequency"), "a name of its own"),
        (HEAD.replace("@frequency", "@attribute series_name string\n@frequency"), "of its own"),
        (
            HEAD + "T1:2261-06-01 00-00-00:" + ",".join("1" * 600) + "\n",
            "series 'T1' must end before the year 2262, but from 2261-06-01 .* 600 steps of 'D'",
        ),
        (
            HEAD.replace("daily", "yearly") + "T1:2200-01-01 00-00-00:" + ",".join("1" * 99) + "\n",
            "series 'T1' must end before the year 2262",
        ),
    ],
)
def test_a_wrong_file_is_refused_and_the_line_named(text, message):
    with pytest.raises(DataError, match=message):
        parse(text)


def test_a_file_that_is_absent_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.tsf"):
        read_tsf(tmp_path / "absent.tsf")

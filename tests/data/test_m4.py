"""The csv files of the M4 competition."""

import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data.m4 import parse_m4

TRAIN = b'"V1","V2","V3","V4"\n"H1",1,2,\n"H2",3,4,5\n'
TEST = b'"V1","V2","V3"\n"H1",6,7\n"H2",8,9\n'


def test_both_files_are_joined():
    frame = parse_m4(TRAIN, TEST)
    assert frame["item_id"].tolist() == ["H1"] * 4 + ["H2"] * 5
    assert frame["timestamp"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert frame["target"].tolist() == [1, 2, 6, 7, 3, 4, 5, 8, 9]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (TRAIN, TEST.replace(b"H2", b"H3"), "same series .* got 2 and 2 series, 'H2' and 'H3'"),
        (TRAIN, TEST[:-9], "same series .* got 2 and 1 series"),
        (TRAIN.replace(b",4,5", b",,5"), TEST, "Series 'H2' of M4 lacks a value inside"),
        (TRAIN, TEST.replace(b"6,7", b",7"), "Series 'H1' of M4 lacks a value inside"),
        (TRAIN.replace(b"4", b"four"), TEST, "The training file of M4 is no csv of numbers"),
        (TRAIN, b"", "The test file of M4 is no csv of numbers"),
    ],
)
def test_files_that_contradict_each_other_are_refused(train, test, message):
    with pytest.raises(DataError, match=message):
        parse_m4(train, test)

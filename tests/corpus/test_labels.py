import ml_dtypes
import numpy as np
import pytest

from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.labels import MOST_TEXT, label_of, label_text
from fuzzparity.corpus.plain import loads
from fuzzparity.corpus.records import KeptCase
from fuzzparity.errors import CorpusError


def back(label):
    return label_of(loads(label_text(label)))


def test_labels_come_back_as_they_were():
    for label in (3, 2.5, "cat", True, [1, "a", None], {"boxes": [[1, 2]], "name": "x"}):
        assert back(label) == label
    for array in (np.array([1, 2]), np.array([[0.5, np.nan, np.inf]], np.float32), np.array(True), np.zeros((0, 4))):
        again = back(array)
        assert (again.dtype, again.shape) == (array.dtype, array.shape) or array.size == 0
        assert np.array_equal(again.ravel(), array.ravel(), equal_nan=array.dtype.kind == "f")
    assert np.array_equal(back({"masks": [np.eye(2, dtype=bool)]})["masks"][0], np.eye(2))
    assert back(np.array([1.5], ml_dtypes.bfloat16)).tolist() == [1.5]


def test_what_is_too_large_is_left_out_and_what_is_no_label_is_an_error():
    assert label_text(None) is None
    assert label_text(np.zeros(MOST_TEXT + 1)) is None
    assert label_text("x" * MOST_TEXT) is None
    for broken in ({"array": [1], "dtype": "object"}, {"array": ["a"], "dtype": "int64"}, {"array": 1, "dtype": "no"}):
        with pytest.raises(CorpusError, match="label"):
            label_of(broken)


def test_a_stored_case_has_its_label_again_and_a_changed_one_has_none(facts, tmp_path):
    case = Case({"x": np.ones(3, np.float32)}, np.array([4]))
    with Corpus.open(tmp_path / "c.sqlite", create=True) as corpus:
        campaign = corpus.begin_campaign(facts, "fuzz", 0)
        corpus.keep_cases(campaign, [KeptCase(case, Lineage(origin="seed"))])
        stored = corpus.case(case.digest)
    assert stored == case
    assert stored.label.tolist() == [4]
    assert stored.replace(x=np.zeros(3, np.float32)).label is None

"""Outputs are the same when a reader of the format cannot tell them apart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.vet.compare import Output, Sameness, canonical, canonical_html, consensus, only_here, sameness


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("a.json", b'{"b": 1, "a": [1.0]}', b'{"a":[1.00],\n"b":1}\n'),
        ("result", b'[{"x": "\\u00e9"}]', '[{"x": "é"}]'.encode()),
        ("a.txt", b"one\r\ntwo  \r\n", b"one\ntwo"),
        ("a.html", b"<p>a\n  b</p>\n\n<hr />", b"<p>a b</p><hr>"),
        ("a.html", b"<p>it&#39;s &quot;x&quot;</p>", b'<p>it\'s "x"</p>'),
        ("a.html", b'<a href="x" title="y">z</a>', b"<a title='y' href=x>z</a>"),
        ("a.html", b"<ul>\n<li>x</li>\n</ul>", b"<ul><li>x</li></ul>"),
    ],
)
def test_layout_makes_no_difference(name, one, other):
    assert sameness(Output({name: one}), Output({name: other})) is Sameness.EQUIVALENT


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("a.json", b'{"a": 1}', b'{"a": 2}'),
        ("a.json", b"[1, 2]", b"[2, 1]"),
        ("a.txt", b"a  b", b"a b"),
        ("a.txt", b" a", b"a"),
        ("a.html", b"<p>ab</p>", b"<p>a b</p>"),
        ("a.html", b"<p>a <b>b</b></p>", b"<p>a<b> b</b></p><p></p>"),
        ("a.html", b"<pre>a\n  b</pre>", b"<pre>a b</pre>"),
        ("a.html", b"<p>x</p><!--a-->", b"<p>x</p>"),
        ("a.html", b"<p>x</p><script>a()</script>", b"<p>x</p><script>b()</script>"),
        ("a.bin", b"\xff\xfe1", b"\xff\xfe2"),
    ],
)
def test_content_makes_a_difference(name, one, other):
    assert sameness(Output({name: one}), Output({name: other})) is Sameness.DIFFERENT


def test_other_files_or_none_are_not_the_same():
    some = Output({"a": b"1"})
    assert sameness(some, Output({"b": b"1"})) is Sameness.DIFFERENT
    assert sameness(Output({}), some) is Sameness.MISSING
    assert sameness(some, Output({"a": b"1"})) is Sameness.IDENTICAL


def test_the_majority_is_the_yardstick_wherever_the_deviant_stands():
    odd, one, other = (Output({"a.json": text}) for text in (b"[0]", b"[1]", b"[ 1 ]"))
    for order in ([odd, one, other], [one, odd, other], [one, other, odd]):
        reference = consensus(order)
        assert [sameness(output, reference) is Sameness.DIFFERENT for output in order] == [o is odd for o in order]


def test_there_is_no_yardstick_without_output():
    assert consensus([Output({}), Output({})]) is None


def test_effects_of_one_target_only_are_picked_out():
    rows = {"a": ["x", "y", "y"], "b": ["x"], "c": []}
    assert only_here(rows) == {"a": ["y"], "b": [], "c": []}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_equal_to_itself_written_otherwise(value):
    compact = json.dumps(value).encode()
    spaced = json.dumps(value, indent=3, ensure_ascii=False)
    try:
        encoded = spaced.encode()
    except UnicodeEncodeError:
        return
    assert canonical("a.json", compact) == canonical("a.json", encoded)


@given(st.binary(max_size=300), st.sampled_from(["a.json", "a.html", "a", "stdout"]))
def test_any_bytes_have_a_canonical_form_that_is_stable(data, name):
    once = canonical(name, data)
    if not name.endswith(".html"):
        assert canonical(name, once) == once


@given(st.text(max_size=300))
def test_any_text_is_taken_as_html(text):
    assert canonical_html(text).endswith("\n")


def test_deep_json_is_compared_as_text_instead_of_overflowing():
    deep = b"[" * 100_000 + b"]" * 100_000
    assert canonical("a.json", deep).strip() == deep

"""What is shown is what was found, and nothing that a candidate wrote can act on the terminal or the browser."""

from __future__ import annotations

import io
import json

import pytest

from aboveboard.evidence import Assurance, ClassAssurance, Effect, Evidence, Reason, Verdict
from aboveboard.report import print_trace, print_verdict, print_vet
from aboveboard.report.html import render_vet, write_html
from aboveboard.report.summary import MAX_PROCESSES, summarise
from aboveboard.vet.compare import Output
from aboveboard.vet.payloads import Payload
from aboveboard.vet.prepare import Prepared
from aboveboard.vet.results import Observed, Ran, Trial, VetReport, compare, observe, payload_of, weakest, worst
from aboveboard.vet.targets import Kind, Target

EVIL = "\x1b]0;owned\x07\x1b[2J\u202etxt.exe\r\n[bold]<script>alert(1)</script>\udcff"
COMPLETE = Assurance("U", {"read": ClassAssurance("complete", ("notify",), ())})


def effect(disposition="forbidden", subject="stats.test:80", phase="call", kind=1, **more):
    return Effect(
        kind, "http-post", disposition, "effect", subject, "no pattern names it", phase, 1, 7, "/usr/bin/x", **more
    )


def verdict(name, effects=(), reasons=()):
    return Verdict(name, tuple(reasons), tuple(effects), COMPLETE, (), "c" * 64, "h", 12)


def trial(verdict_, observed=(), output=b"same", environment="dev", **more):
    ran = (Ran("import", "import", 0, False, 0.1, ""),)
    return Trial(environment, (("main", verdict_),), tuple(observed), Output({"result": output}), ran, **more)


def prepared(label):
    return Prepared(Target(Kind.SCRIPT, label, label), inside="x", sha256="0" * 64)


def report(*pairs):
    made = compare([prepared(label) for label, _ in pairs], [trials for _, trials in pairs])
    return VetReport(made, "c" * 64, (("in", "1" * 64),), 1.5)


def text_of(show, *arguments, **options):
    out = io.StringIO()
    show(*arguments, file=out, **options)
    return out.getvalue()


@pytest.fixture
def two():
    payload = Payload("tcp", "stats.test:80", 321, "ab", "POST /v1", "the minutes", ("env:GITHUB_TOKEN/raw",), "1.bin")
    bad = effect(canaries=("env:GITHUB_TOKEN/raw",))
    return report(
        ("good", [trial(verdict("clean"))]),
        ("bad", [trial(verdict("forbidden", [bad]), [Observed(bad, "call", ("dev",), (payload,))])]),
    )


def test_the_table_shows_output_verdict_phase_effect_and_payload(two):
    shown = text_of(print_vet, two)
    for words in (
        "good",
        "✓ clean",
        "bad",
        "✗ forbidden",
        "call",
        "stats.test:80",
        "the minutes",
        "GITHUB_TOKEN",
        "POST /v1",
    ):
        assert words in shown
    assert "2 targets, the same output, 1 forbidden" in shown


def test_without_a_terminal_there_are_no_colours(two):
    assert "\x1b" not in text_of(print_vet, two)


def test_json_is_one_ascii_object_with_the_documented_keys(two):
    shown = text_of(print_vet, two, json=True)
    assert shown.isascii()
    value = json.loads(shown)
    assert {"verdict", "reasons", "effects", "assurance", "targets"} <= set(value)
    assert value["verdict"] == "forbidden"
    assert [target["verdict"] for target in value["targets"]] == ["clean", "forbidden"]
    assert value["targets"][1]["effects"][0]["only_here"] is True
    assert value["targets"][1]["effects"][0]["payloads"][0]["excerpt"] == "the minutes"


def test_exit_codes_follow_the_worst_verdict():
    def code(*names):
        return report(*((str(i), [trial(verdict(name))]) for i, name in enumerate(names))).exit_code

    assert (code("clean"), code("clean", "forbidden", "indeterminate"), code("clean", "indeterminate")) == (0, 1, 3)
    assert worst([]) == "indeterminate"


def test_hostile_texts_are_shown_escaped_everywhere(tmp_path):
    payload = Payload(EVIL, EVIL, 1, "", EVIL, EVIL, (EVIL,), EVIL)
    bad = effect(subject=EVIL, canaries=(EVIL,))
    made = report(
        (
            EVIL,
            [
                trial(
                    verdict("forbidden", [bad], [Reason("x", "", EVIL)]),
                    [Observed(bad, EVIL, ("dev",), (payload,))],
                    notes=(EVIL,),
                )
            ],
        ),
        ("b", [trial(verdict("clean"), output=b"other")]),
    )
    evidence = Evidence.from_events(
        [{"e": "command", "c": 1, "argv": [EVIL]}, {"e": "proc", "p": 5, "c": 1, "x": EVIL}]
    )
    shown = [
        text_of(print_vet, made),
        text_of(print_verdict, verdict("forbidden", [bad], [Reason("x", "", EVIL)])),
        text_of(print_trace, evidence),
    ]
    for text in shown:
        assert set(text).isdisjoint("\x1b\x07\r\u202e\udcff")
        assert "\\x1b[2J" in text
    page = render_vet(made)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    write_html(made, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page


def test_an_effect_seen_in_some_environments_only_says_where():
    bad = effect()
    made = report(
        (
            "a",
            [
                trial(verdict("clean")),
                trial(verdict("forbidden", [bad]), [Observed(bad, "call", ("ci",))], environment="ci"),
            ],
        )
    )
    assert made.verdict == "forbidden"
    assert [entry.environments for entry in made.targets[0].conditional] == [("ci",)]
    assert "only in ci" in text_of(print_vet, made)


def test_the_same_effect_in_two_environments_is_one_row():
    rows = [
        trial(verdict("forbidden", [bad]), [Observed(bad, "call", (name,))], environment=name)
        for name, bad in (("dev", effect(events=(3,))), ("ci", effect(events=(9,))))
    ]
    (entry,) = report(("a", rows)).targets[0].effects
    assert entry.environments == ("dev", "ci")


def test_effects_common_to_all_targets_are_nobodys_own():
    shared, own = effect(subject="a.test:1"), effect(subject="b.test:2")
    made = report(
        ("x", [trial(verdict("forbidden", [shared]), [Observed(shared, "call", ("dev",))])]),
        ("y", [trial(verdict("forbidden", [shared, own]), [Observed(e, "call", ("dev",)) for e in (shared, own)])]),
    )
    assert [len(target.only_here) for target in made.targets] == [0, 1]


def test_a_doubt_of_the_vetting_itself_makes_a_clean_run_indeterminate():
    made = report(("a", [trial(verdict("clean"), reasons=(Reason("target-failed", "", "the import failed"),))]))
    assert made.exit_code == 3
    assert "the import failed" in text_of(print_vet, made)


def test_the_assurance_of_several_worlds_is_that_of_the_weakest():
    low = Assurance(
        "N", {"read": ClassAssurance("partial", (), ("notify",)), "change": ClassAssurance("complete", (), ())}
    )
    joined = weakest([COMPLETE, low])
    assert joined.tier == "N"
    assert {name: entry.status for name, entry in joined.classes.items()} == {"read": "partial", "change": "absent"}


def test_an_effect_after_its_command_had_ended_belongs_to_post():
    evidence = Evidence.from_events(
        [
            {"e": "world", "v": 1},
            {"e": "command", "c": 1, "argv": ["x"]},
            {"e": "flow", "p": 7, "c": 1, "proto": "tcp", "dst": "192.0.2.1", "port": 80, "len": 3, "head": "abc"},
            {"e": "status", "c": 1, "code": 0},
            {"e": "flow", "p": 7, "c": 1, "proto": "tcp", "dst": "192.0.2.1", "port": 81, "len": 3, "head": "late"},
        ]
    )
    rows = observe(evidence, verdict("forbidden", [effect(events=(2,)), effect(events=(4,))]), "dev")
    assert [row.phase for row in rows] == ["call", "post"]
    assert [row.payloads[0].excerpt for row in rows] == ["abc", "late"]


def test_a_payload_shows_the_body_of_a_request_and_a_host_header_that_lies():
    event = next(
        iter(
            Evidence.from_events(
                [
                    {
                        "e": "flow",
                        "proto": "tcp",
                        "dst": "2001:db8::1",
                        "port": 80,
                        "len": 9,
                        "head": "POST / HTTP/1.1\r\nHost: good.test\r\n\r\nbody",
                        "http": {"method": "POST", "path": "/", "host": "good.test"},
                        "canaries": [{"id": "x", "enc": "hex"}],
                    }
                ]
            ).events()
        )
    )
    payload = payload_of(event)
    assert payload.destination == "[2001:db8::1]:80"
    assert payload.summary == "POST / (Host: good.test)"
    assert (payload.excerpt, payload.canaries) == ("body", ("x/hex",))


def test_a_summary_shows_tree_files_changes_and_network():
    evidence = Evidence.from_events(
        [
            {"e": "world", "tier": "U", "roots": {"runtime": ["/usr"]}, "decoys": [{"path": "/home/dev/.netrc"}]},
            {"e": "command", "c": 1, "argv": ["sh"]},
            {"e": "proc", "p": 5, "pp": 1, "c": 1, "x": "/bin/sh"},
            {"e": "exec", "p": 5, "c": 1, "n": "/bin/sh", "argv": ["sh", "-c", "x"], "r": "passed"},
            {"e": "proc", "p": 6, "pp": 5, "c": 1, "x": "/bin/sh"},
            {"e": "exec", "p": 6, "c": 1, "n": "/usr/bin/curl", "argv": ["curl"], "r": "passed"},
            {"e": "open", "p": 6, "c": 1, "n": "/usr/lib/a", "a": "r", "v": [1, 2]},
            {"e": "open", "p": 6, "c": 1, "n": "/home/dev/.netrc", "a": "r", "v": [1, 3]},
            {"e": "open", "p": 6, "c": 1, "n": "/nowhere", "a": "r", "r": "ENOENT"},
            {"e": "escape", "p": 6, "c": 1, "s": "ptrace"},
            {"e": "change", "x": "/home/dev/task/output/r", "w": "created", "k": "file", "size": 4},
            {"e": "status", "c": 1, "code": 0},
        ]
    )
    found = summarise(evidence)
    assert found.roots == (5,)
    assert found.processes[5].children == [6]
    assert found.decoys == ("/home/dev/.netrc",)
    assert list(found.files["runtime"].read) == ["/usr/lib/a"]
    assert found.refusals == {"ptrace": 1}
    shown = text_of(print_trace, evidence)
    for words in ("sh -c x", "curl", "/home/dev/.netrc", "ptrace", "created", "exit 0"):
        assert words in shown


def test_a_record_with_cycles_and_a_flood_of_processes_is_summarised_in_bounds():
    events = [{"e": "proc", "p": 2 + i, "pp": 2 + (i + 1) % 5000, "c": 1} for i in range(5000)]
    found = summarise(Evidence.from_events(events))
    assert len(found.processes) == MAX_PROCESSES
    assert found.cut
    text_of(print_trace, Evidence.from_events([{"e": "proc", "p": 2, "pp": 3, "c": 1}, {"e": "proc", "p": 3, "pp": 2}]))

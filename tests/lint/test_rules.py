"""Every rule: a config that breaks it, one that does not, what its patch leaves. The documents show these examples."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from blendex.lint.context import Context
from blendex.lint.engine import RULES
from blendex.lint.model import Report, Severity
from blendex.lint.patching import patch
from blendex.lint.rule import Example, Rule
from blendex.lint.rule import rule as enter
from tests.lint.ground import pack_of, rules, run

PATCHED = [rule for rule in RULES.values() if rule.patch]


def files_of(example: Example) -> dict[str, str | bytes]:
    return {**example.nested, **{path: pack_of(held) for path, held in example.packs.items()}}


def bad(example: Example) -> tuple[Context, Report]:
    return run(
        example.bad, files=files_of(example), launcher=example.launcher, script=example.file, facts=example.facts,
        upstream=example.profile, findings=example.findings,
    )  # fmt: skip


def good(example: Example) -> tuple[Context, Report]:
    return run(
        example.good, files=files_of(example), launcher=example.good_launcher, script=example.file,
        facts=example.good_facts, upstream=example.profile, findings=example.findings,
    )  # fmt: skip


def test_the_table_is_whole() -> None:
    table = {f"IDX{number:03}" for number in range(1, 59)}
    assert {name for name in RULES if name < "IDX100"} == table
    assert {"IDX101", "IDX102", "IDX103", "IDX104"} <= set(RULES)  # triggers, pruning, max_steps, hidden staging


def test_there_is_no_rule_without_an_example() -> None:
    words = {"title": "t", "where": "w", "why": "y", "otherwise": "o", "source": "s"}
    with pytest.raises(TypeError, match="example"):
        enter("IDX999", Severity.NOTE, **words)  # type: ignore[call-arg]
    for item in RULES.values():
        assert item.example.bad
        assert item.example.good
        assert bool(item.patch) is bool(item.example.fixed), item.id


def test_the_page_shows_every_rule_with_its_example() -> None:
    page = (Path(__file__).parent.parent.parent / "docs/reference/lint.md").read_text()
    for item in RULES.values():
        assert f"### {item.id}\n" in page
        assert f"[{item.id}](#{item.id.lower()})" in page
        part = page.partition(f"### {item.id}\n")[2].partition("\n### ")[0]
        assert item.title in part
        assert item.example.bad.rstrip() in part
        assert item.example.fixed.rstrip() in part
        assert item.source in part


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_config_that_breaks_it(rule: Rule) -> None:
    _, report = bad(rule.example)
    found = [finding for finding in report.findings if finding.rule == rule.id]
    assert found, rules(report)
    for finding in found:
        assert finding.message
        assert finding.line >= 1
        assert finding.column >= 1
        assert finding.field
        assert finding.fix, "every finding says what to do"


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_config_that_does_not(rule: Rule) -> None:
    _, report = good(rule.example)
    assert rule.id not in rules(report)


@pytest.mark.parametrize("rule", PATCHED, ids=[rule.id for rule in PATCHED])
def test_what_its_patch_leaves(rule: Rule) -> None:
    context, report = bad(rule.example)
    own = [dataclasses.replace(finding) for finding in report.findings if finding.rule == rule.id]
    patched = patch(context, own)
    assert patched.refused == {}
    assert list(patched.texts.values()) == [rule.example.fixed]
    _, again = run(rule.example.fixed, files=rule.example.nested, upstream=rule.example.profile)
    assert rule.id not in rules(again)


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if not rule.patch], ids=lambda rule: rule.id)
def test_a_rule_without_a_patch_has_no_edits(rule: Rule) -> None:
    _, report = bad(rule.example)
    assert not [finding for finding in report.findings if finding.rule == rule.id and finding.edits]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_its_words(rule: Rule) -> None:
    for text in (rule.title, rule.where, rule.why, rule.otherwise, rule.source):
        assert text
        assert "/work" not in text
    assert rule.severity in Severity
    assert rule.profiles


class TestProfiles:
    """What an older text of upstream wants otherwise."""

    CONFIG = "train_ds:\n  force_map_dataset: {}\n  input_cfg: [{{type: lhotse, cuts_path: /d/c.jsonl.gz}}]\n"

    def test_today(self) -> None:
        _, report = run(self.CONFIG.format("true"), files={"/d/c.jsonl.gz.gzidx": ""})
        assert "IDX003" in rules(report)
        assert "IDX015" not in rules(report)
        assert "IDX003" not in rules(run(self.CONFIG.format("false"))[1])

    def test_older(self) -> None:
        _, report = run(self.CONFIG.format("false"), upstream="2.0.0a7")
        found = {finding.rule: finding for finding in report.findings}
        assert found["IDX003"].wanted == "true"
        assert found["IDX015"].severity is Severity.FATAL
        assert "IDX003" not in rules(run(self.CONFIG.format("true"), upstream="2.0.0a7")[1])

    def test_gzip_by_the_installed_version(self) -> None:
        facts = {"versions": {"lhotse": "2.0.0a7", "indexed-gzip": "1.9"}}
        _, report = run(self.CONFIG.format("false"), facts=facts)
        assert next(finding for finding in report.findings if finding.rule == "IDX015").severity is Severity.FATAL
        newer = {"versions": {"lhotse": "2.0.0a8", "nemo-toolkit": "3.1"}}
        _, report = run(self.CONFIG.format("false"), facts=newer)
        found = next(finding for finding in report.findings if finding.rule == "IDX015")
        assert found.severity is Severity.ERROR
        assert "indexed_gzip" in found.message


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "is not true."),
        ({"USE_AIS_GET_BATCH": "1"}, "No other word counts."),
        ({"USE_AIS_INDIVIDUAL_GETS": "true"}, "USE_AIS_INDIVIDUAL_GETS=true means nothing without it."),
        ({"USE_AIS_GET_BATCH": "True"}, None),
    ],
)
def test_what_training_takes_for_true(environment: dict[str, str], words: str | None) -> None:
    example = RULES["IDX046"].example
    _, report = run(example.bad, facts={"environment": environment})
    found = [item.message for item in report.findings if item.rule == "IDX046"]
    assert len(found) == (words is not None)
    assert words is None or words in found[0]

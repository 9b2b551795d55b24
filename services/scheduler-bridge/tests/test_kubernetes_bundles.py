"""Whole situations: the objects of a cluster at one moment, and the right answer for each job in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from forebay.scheduler_bridge.domain.cluster.objects import COLLECTIONS, trim
from forebay.scheduler_bridge.domain.kubernetes.classify import RULES, classify
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import Diagnosis, diagnose_all
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects
from forebay.scheduler_bridge.domain.kubernetes.templates import Template
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Message

Json = dict[str, Any]

BUNDLES = tuple(
    json.loads(line)
    for line in Path(__file__).with_name("kubernetes_bundles.jsonl").read_text(encoding="utf-8").splitlines()
)
"""`title`, `at`, `objects`, and `expect`: for each subject its causes, what must be said (one of each list) and what must not."""
LINES = tuple(
    json.loads(line)
    for line in Path(__file__).with_name("kubernetes_lines.jsonl").read_text(encoding="utf-8").splitlines()
)

BLANK = re.compile(
    r"\{\w*\}|\(\s*\)|\(,|,\s*\)|\[\]|(?<!stopPolicy to )\bNone\b|: *$|: ;|; ;|;;|: :|, ,|  |\b(?:on|in|of|by|from|named) *(?:[,;.)]|$)|what was asked asked|what there is in all"
)
"""Traces of something that should have been filled in."""


def judged(objects: list[Json], at: str) -> dict[str, Diagnosis]:
    found = diagnose_all(facts_from_objects(objects), datetime.fromisoformat(at))
    return {one.subject: one for one in found}


def shown(found: Diagnosis) -> str:
    """All that a person reads of a verdict."""
    return "\n".join(filter(None, (found.sentence, found.next_action, found.need, found.have, found.where)))


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle["title"])
def test_each_situation_has_its_cause_its_facts_and_nothing_false(bundle: Json) -> None:
    """The cause is right, names and numbers that stand in the objects are said, and what would mislead is not."""
    found = judged(bundle["objects"], bundle["at"])
    for right in bundle["expect"]:
        verdict = next(one for subject, one in found.items() if subject.endswith(right["subject"]))
        text = shown(verdict)
        assert verdict.cause in right["cause"], verdict
        missing = [words for words in right["says"] if not any(re.search(word, text) for word in words)]
        assert (missing, [word for word in right["never_says"] if re.search(word, text, re.MULTILINE)]) == ([], []), (
            text
        )


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle["title"])
def test_a_situation_of_which_a_part_is_not_known_has_no_blanks(bundle: Json) -> None:
    """Whatever object is missing, or lacks its status, sentences are whole; nothing is read that is not there."""
    for objects in _parts(bundle["objects"]):
        for verdict in judged(objects, bundle["at"]).values():
            for text in (verdict.sentence, verdict.next_action):
                assert not BLANK.search(_own(text, objects)), text


WATCHED = frozenset(one.kind for one in COLLECTIONS)


def _of_a_job(item: Json) -> bool:
    """The bridge keeps it on record for a job: not the pods behind mounts, nor what is said about nodes."""
    about_node = item.get("involvedObject", {}).get("kind") == "Node"
    return item["kind"] in WATCHED and item["metadata"].get("namespace") != "kube-system" and not about_node


@pytest.mark.parametrize(
    "bundle",
    [one for one in BUNDLES if all(map(_of_a_job, one["objects"]))],
    ids=lambda bundle: bundle["title"],
)
def test_what_the_bridge_keeps_of_objects_gives_the_same_verdict(bundle: Json) -> None:
    """Trimmed for the record, and read back, they say what the whole objects say; only counts of events are gone."""
    whole = judged(bundle["objects"], bundle["at"])
    kept = judged([trim(item) for item in bundle["objects"]], bundle["at"])
    assert {name: (one.cause, one.reason) for name, one in kept.items()} == {
        name: (one.cause, one.reason) for name, one in whole.items()
    }
    for name, one in kept.items():
        assert _COUNT.sub("", one.sentence) == _COUNT.sub("", whole[name].sentence)


_COUNT = re.compile(r" \d+ times|; its pods were not ready in time")


def _parts(objects: list[Json]) -> Iterator[list[Json]]:
    for place, one in enumerate(objects):
        rest = objects[:place] + objects[place + 1 :]
        yield rest
        yield [*rest, {name: value for name, value in one.items() if name != "status"}]
        yield [*rest, {name: value for name, value in one.items() if name != "spec"}]


def _own(text: str, objects: list[Json]) -> str:
    """Without what the cluster itself said: its words are quoted as they are."""
    for one in objects:
        for quoted in (one.get("message"), *_texts(one.get("status"))):
            text = text.replace(str(quoted), "…") if quoted else text
    return text


def _texts(found: object) -> Iterator[str]:
    if isinstance(found, dict):
        for value in found.values():
            yield from _texts(value)
    elif isinstance(found, list):
        for value in found:
            yield from _texts(value)
    elif isinstance(found, str) and " " in found:
        yield found


TEMPLATES = tuple((rule.name, template) for rule in RULES for template in rule.templates)


@pytest.mark.parametrize(("rule", "template"), TEMPLATES, ids=lambda value: value if isinstance(value, str) else "says")
def test_every_rule_says_a_whole_sentence_whatever_is_known(rule: str, template: Template) -> None:
    """Each set of fields that may be known gives a sentence without blanks or doubled words."""
    fields = sorted(template.fields)
    for count in range(len(fields) + 1):
        for known in combinations(fields, count):
            text = template.fill({name: f"<{name}>" for name in known})
            assert text, rule
            assert not BLANK.search(text), (rule, known, text)
            assert not re.search(r"\b(\w+) \1\b", text), (rule, known, text)


def test_a_field_that_may_be_unknown_has_a_fallback_or_is_left_out() -> None:
    """A template that could show a blank is refused when it is made."""
    with pytest.raises(ValueError, match="may be unknown"):
        Template("the queue {queue} is stopped")
    template = Template("{queue|the queue} is stopped[ since {since}][ by {who}]")
    assert template.fill({}) == "the queue is stopped"
    assert template.fill({"queue": "{x} [y]", "who": "ann"}) == "{x} [y] is stopped by ann"


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['true_cause']}-{line.get('reason')}")
def test_a_message_that_is_cut_off_has_no_blanks(line: Json) -> None:
    """Events are cut at any place, and some carry only their reason."""
    text = line.get("message") or ""
    for end in {0, 10, len(text) // 2, *(match.end() for match in re.finditer(r"[,;:] ", text))}:
        found = classify(
            Message(
                where=line.get("where") or "",
                reason=line.get("reason") or "",
                text=text[:end].strip(),
                object=line.get("object") or "",
            )
        )
        assert not BLANK.search(_quoted(found.sentence, text)), found
        assert not BLANK.search(_quoted(found.next_action, text)), found


def _quoted(said: str, text: str) -> str:
    """Without the longest stretch of the message itself."""
    flat = " ".join(text.split())
    for length in range(min(len(flat), len(said)), 7, -1):
        for start in range(len(said) - length + 1):
            if said[start : start + length] in flat:
                return said[:start] + "…" + said[start + length :]
    return said

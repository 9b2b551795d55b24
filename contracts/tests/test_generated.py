"""Everything that is made from the table of events agrees with it."""

from __future__ import annotations

from pathlib import Path

from forebay.contracts.asyncapi import asyncapi
from forebay.contracts.catalogue import EVENTS
from forebay.contracts.generate import differences, files, write
from forebay.contracts.parts import SERVICES, Part, Source
from forebay.contracts.permissions import inbox_prefix, permission_of, permissions
from forebay.contracts.reasons import SENTENCES, Reason
from forebay.contracts.streams import consumers, streams
from forebay.contracts.subjects import STREAM


def test_checked_in_files_are_up_to_date() -> None:
    """`make generate` would change nothing."""
    assert differences() == {}


def test_generating_twice_writes_once(tmp_path: Path) -> None:
    """The same table gives the same bytes."""
    assert set(write(tmp_path)) == set(files())
    assert write(tmp_path) == []
    (tmp_path / "EVENTS.md").write_text("edited by hand\n")
    assert list(differences(tmp_path)) == ["EVENTS.md"]


def test_every_event_has_exactly_one_kind_of_publisher() -> None:
    """An event is one part's to say; only an alarm clock belongs to every service, under its own name."""
    shared = [spec.name for spec in EVENTS if len(spec.owners) > 1]
    assert shared == ["DeadlinePassed"]
    for part in SERVICES:
        assert f"fb.*.deadline.{part}.passed" in permission_of(Source(part)).publish


def test_no_two_identities_may_publish_the_same_subject() -> None:
    """The lists of two parts never overlap in the log, and never reach past their own project."""
    seen: dict[str, str] = {}
    for item in permissions(("arm-lab", "dog-lab")):
        for subject in item.publish:
            if subject.startswith(("fb.", "dead.", "progress.", "$JS.ACK.", "$JS.API.CONSUMER.MSG.NEXT.")):
                assert seen.setdefault(subject, item.identity) == item.identity
                if item.source.project:
                    assert subject.split(".")[1] == item.source.project


def test_nobody_but_admin_may_change_streams_or_consumers() -> None:
    """CREATE, UPDATE, DELETE and PURGE appear in no list."""
    for item in permissions(("arm-lab",)):
        if item.source.part is not Part.ADMIN:
            assert not [
                s for s in item.publish if any(w in s for w in ("CREATE", "UPDATE", "DELETE", "PURGE", "SNAPSHOT"))
            ]
            assert not [s for s in item.publish if s in {">", "$JS.>", "$JS.API.>", "fb.>"}]


def test_every_identity_has_an_inbox_of_its_own() -> None:
    """Nobody may listen where another's answers arrive."""
    identities = permissions(("arm-lab", "dog-lab"))
    assert len({item.inbox for item in identities}) == len(identities)
    for item in identities:
        inboxes = [subject for subject in item.subscribe if subject.startswith("_INBOX")]
        assert inboxes == [f"{inbox_prefix(item.source)}.>"]


def test_every_service_is_woken_by_the_whole_log() -> None:
    """A durable per service, explicit acknowledgement, a finite number of deliveries, no filter."""
    assert [item.name for item in consumers()] == [str(part) for part in SERVICES]
    for item in consumers():
        assert item.config["ack_policy"] == "explicit"
        assert 0 < item.config["max_deliver"] < 100
        assert "filter_subject" not in item.config


def test_streams_refuse_rather_than_forget() -> None:
    """A full log means "no" to the publisher, of references the oldest go; nothing expires, is rolled up, scheduled or purged."""
    for item in streams():
        assert item.config["discard"] == ("new" if item.name == STREAM else "old")
        assert item.config["max_age"] == 0
        assert item.config["deny_delete"]
        assert item.config["deny_purge"]
        assert not any(item.config[name] for name in ("allow_rollup_hdrs", "allow_msg_ttl", "allow_msg_schedules"))


def test_asyncapi_names_every_event_its_owners_and_its_headers() -> None:
    """The document covers the whole table and says what the headers carry."""
    document = asyncapi()
    assert set(document["channels"]) == {spec.name for spec in EVENTS}
    for spec in EVENTS:
        assert document["operations"][f"publish{spec.name}"]["x-owners"] == [str(owner) for owner in spec.owners]
    required = document["components"]["messageTraits"]["envelope"]["headers"]["required"]
    assert {"ce-id", "ce-source", "ce-type", "ce-time", "ce-specversion"} <= set(required)


def test_every_reason_has_a_sentence() -> None:
    """A code alone is no explanation."""
    assert set(SENTENCES) == set(Reason)

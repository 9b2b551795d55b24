"""The mounts text: what it means, and that whatever is wrong is named with its place."""

from __future__ import annotations

import string

import pytest
from forebay.scheduler_bridge.domain.mount_rules import place_mounts, user_folder
from forebay.scheduler_bridge.domain.mounts import (
    MountProblem,
    MountType,
    Span,
    is_below,
    normal_path,
    parse_mounts,
    point_at,
)
from forebay.scheduler_bridge.domain.project import ProjectFile
from hypothesis import given
from hypothesis import strategies as st

from .cluster_jobs import project_file

EVERYTHING = (
    "team(pvc):/work, models(pvc-share):/models:ro, scratch(storage):/scratch, 10.0.0.5/exports/lab(nfs):/lab,"
    " /mnt/lab(hostpath):/raw:ro, train-config(configmap):/config, wandb(secret):/secrets/wandb, 4G(memory):/dev/shm"
)


def one_problem(text: str, project: ProjectFile | None = None) -> MountProblem:
    found = place_mounts(text, user="alice", project=project).problems
    assert len(found) == 1, found
    return found[0]


def test_every_type_is_read_as_robot_labs_write_it() -> None:
    """A claim is mounted at the user's own folder; the others where they are written."""
    found = place_mounts(EVERYTHING, user="alice", project=None)
    assert found.problems == ()
    assert [(item.mount.type.value, item.mount.source, item.target, item.sub_path) for item in found.mounts] == [
        ("pvc", "team", "/work/alice", "alice"),
        ("pvc-share", "models", "/models", None),
        ("storage", "scratch", "/scratch", None),
        ("nfs", "10.0.0.5/exports/lab", "/lab", None),
        ("hostpath", "/mnt/lab", "/raw", None),
        ("configmap", "train-config", "/config", None),
        ("secret", "wandb", "/secrets/wandb", None),
        ("memory", "4G", "/dev/shm", None),
    ]
    assert [item.read_only for item in found.mounts] == [False, True, False, False, True, True, True, False]


def test_one_claim_may_be_mounted_twice() -> None:
    """Two targets of one source are two mounts; nothing is dropped."""
    found = place_mounts("team(pvc-share):/a, team(pvc-share):/b:ro", user="alice", project=None)
    assert [(item.target, item.read_only) for item in found.mounts] == [("/a", False), ("/b", True)]


def test_paths_are_normalised_before_they_are_compared() -> None:
    """`/work/` and `//work/.` are one target."""
    problem = one_problem("a(storage):/work/, b(storage):/work/./")
    assert problem.message == "/work is taken: the job mounts a(storage) there; choose another target"


@pytest.mark.parametrize("text", ["", "  ", "\n", "team(pvc):/work,", "team(pvc):/work ,\n models(storage):/models"])
def test_blanks_line_ends_and_a_last_comma_do_no_harm(text: str) -> None:
    """A folded YAML text reads like a line."""
    assert parse_mounts(text).problems == ()


WRONG = [
    ("old(ftp):/x", "ftp", "unknown type 'ftp'"),
    ("old(PVC):/x", "PVC", "unknown type 'PVC'"),
    ("old():/x", ")", "the type is empty"),
    ("team:/work", "team:/work", "the type is missing; write source(type):dir, for example team(pvc):/work"),
    ("team(pvc:/work", "(pvc:/work", "never closed"),
    ("team)pvc(:/work", "(:/work", "never closed"),
    ("(pvc):/work", "(", "nothing stands before the type"),
    ("team(pvc)", "", "':dir' is missing"),
    ("team(pvc) /work", " /work", "':dir' is missing"),
    ("team(pvc):", "", "is empty"),
    ("team(pvc):work", "work", "is not absolute"),
    ("team(pvc):/", "/", "hides the image"),
    ("team(pvc):/a/../b", "..", "climbs with '..'"),
    ("team(pvc):/work:rx", "rx", "unknown option 'rx'"),
    ("team(pvc):/work:", "", "nothing stands after ':'"),
    ("team(pvc):/work:ro:ro", "ro:ro", "unknown option"),
    ("team(pvc):/proc/x", "/proc/x", "a folder of the system"),
    ("team(pvc):/forebay/data", "/forebay/data", "Forebay's own folder"),
    ("team(pvc):/dev/shm", "/dev/shm", "only memory belongs"),
    ("Team(pvc):/work", "T", "no name of a pvc"),
    ("my team(pvc):/work", " ", "no name of a pvc"),
    ("a/b(configmap):/c", "/", "no name of a configmap"),
    ("/mnt/../etc(hostpath):/h", "..", "climbs with '..'"),
    ("mnt(hostpath):/h", "mnt", "is not absolute"),
    ("10.0.0.5(nfs):/lab", "", "the exported path is missing"),
    ("/exports(nfs):/lab", "/exports", "is no host"),
    ("10.0.0.5/a/../b(nfs):/lab", "..", "climbs with '..'"),
    ("4(memory):/s", "4", "of what? Write the unit: 4Gi(memory)"),
    ("4X(memory):/s", "4X", "the unit 'X' is unknown"),
    ("4G(memory):/s:ro", "ro", "of no use"),
    ("c(configmap):/c:rw", "rw", "always read-only"),
    ("a(pvc):/a,,b(pvc):/b", ",", "nothing stands between two commas"),
    ("a(pvc):/w\x00x", "w\x00x", "no control character"),
]


@pytest.mark.parametrize(("text", "marked", "said"), WRONG, ids=[item[0] for item in WRONG])
def test_what_is_wrong_is_named_with_its_place(text: str, marked: str, said: str) -> None:
    """The caret stands below the part that is wrong, not below the whole text."""
    text = "ok(storage):/ok, " + text
    problem = one_problem(text)
    assert said in problem.message
    assert problem.span is not None
    assert text[problem.span.start : problem.span.stop].startswith(marked[:1])
    if marked:
        assert text[problem.span.start :].startswith(marked) or marked == "/exports"


def test_names_that_are_too_long_are_refused_where_they_grow_too_long() -> None:
    """They are never cut: two long names would become one."""
    problem = one_problem("x" * 254 + "(pvc):/work")
    assert "254 characters; Kubernetes allows 253" in problem.message
    assert problem.span == Span(start=253, stop=254)


def test_every_entry_is_judged_whatever_the_others_are() -> None:
    """All problems at once, in the order of the text."""
    found = place_mounts("a(ftp):/a, b(pvc):b, c(storage):/c", user="alice", project=None)
    assert [item.span.start for item in found.problems if item.span] == [2, 18]
    assert [item.target for item in found.mounts] == ["/c"]


def test_the_caret_is_drawn_below_the_place() -> None:
    """Also in the middle of a long text, and where the text holds line ends."""
    text = "a(storage):/a,\n" * 20 + "b(ftp):/b"
    drawn = point_at(text, one_problem(text.replace("a(storage):/a,\n" * 20, "a(storage):/a" + "," + " " * 285)))
    above, below = drawn.splitlines()
    assert above.startswith("…")
    assert len(below) <= len(above)
    text = "a(storage):/a,\nb(ftp):/b"
    above, below = point_at(text, one_problem(text)).splitlines()
    assert above[below.index("^") : below.rindex("^") + 1] == "ftp"


class TestWhatAProjectAllows:
    """The project file decides; the user comes from the request."""

    PROJECT = project_file(
        mounts={
            "pvcs": ["team", "models:ro"],
            "host_paths": ["/mnt/lab", "/data:ro"],
            "nfs": ["10.0.0.5/exports"],
            "configmaps": ["*"],
            "max_memory": "8Gi",
            "default": "shared(pvc-share):/shared:ro",
        }
    )

    def test_what_is_listed_is_allowed_and_defaults_come_first(self) -> None:
        """The project's own mounts need no permission."""
        text = "team(pvc):/work, models(pvc-share):/m:ro, /mnt/lab/x(hostpath):/x, 10.0.0.5/exports/a(nfs):/n"
        found = place_mounts(text, user="bob", project=self.PROJECT)
        assert found.problems == ()
        assert [(item.target, item.by_default) for item in found.mounts] == [
            ("/shared", True), ("/work/bob", False), ("/m", False), ("/x", False), ("/n", False),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("other(pvc):/o", "other (pvc) is not allowed for project arm-lab; allowed: team, models"),
            ("models(storage):/m", "may only be read"),
            ("/mnt/labels(hostpath):/l", "not allowed"),
            ("/etc(hostpath):/l", "not allowed"),
            ("/(hostpath):/l", "not allowed"),
            ("/mnt/lab/./../lab(hostpath):/l", "climbs"),
            ("/data/x(hostpath):/l", "may only be read"),
            ("10.0.0.5/exported(nfs):/l", "not allowed"),
            ("10.0.0.50/exports(nfs):/l", "not allowed"),
            ("wandb(secret):/s", "allowed: none (mounts.secrets of the project file)"),
            ("9Gi(memory):/m", "allows 8Gi"),
            ("team(storage):/shared", "/shared is taken: the project mounts shared(pvc-share) there"),
            ("pool(pvc-share):/p", "holds the datasets, which are read-only; add ':ro'"),
        ],
    )
    def test_what_is_not_listed_is_refused(self, text: str, said: str) -> None:
        """With what is allowed, and where that is written."""
        assert said in one_problem(text, self.PROJECT).message

    @pytest.mark.parametrize("user", ["alice", "alice@example.org", "../root", "a/b", ".", "Älice", "", "x" * 300])
    def test_a_user_is_one_folder_whatever_the_name(self, user: str) -> None:
        """A name that would climb or split becomes a slug; two names never share one."""
        folder = user_folder(user)
        assert folder
        assert "/" not in folder
        assert folder not in {".", ".."}
        assert len(folder) <= 63
        assert place_mounts("team(pvc):/work", user=user, project=self.PROJECT).mounts[1].target == f"/work/{folder}"


TEXTS = st.text(alphabet=string.ascii_lowercase + string.digits + "/(),:.-_ []\n4GiPé\x00", max_size=80)


@given(TEXTS)
def test_any_text_is_read_or_refused_with_a_place_in_it(text: str) -> None:
    """Every entry becomes a mount or a problem; nothing is dropped, nothing else is raised."""
    found = parse_mounts(text)
    for problem in found.problems:
        assert problem.span is not None
        assert 0 <= problem.span.start < problem.span.stop <= len(text) + 1
        assert "^" in point_at(text, problem)
    entries = text.split(",") if text.strip() else []
    if len(entries) > 1 and not entries[-1].strip():
        entries.pop()
    assert len(found.mounts) + len(found.problems) == len(entries)
    for mount in found.mounts:
        assert normal_path(mount.directory) == mount.directory
        assert not is_below(mount.directory, "/forebay")


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
FOLDERS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/srv/" + "/".join(parts))


@given(st.lists(st.tuples(NAMES, st.sampled_from(["pvc-share", "storage"]), FOLDERS, st.booleans()), max_size=8))
def test_what_was_written_is_what_is_read(entries: list[tuple[str, str, str, bool]]) -> None:
    """Writing mounts and reading them again loses nothing; only equal targets clash."""
    text = ", ".join(f"{name}({kind}):{path}{':ro' if ro else ''}" for name, kind, path, ro in entries)
    found = place_mounts(text, user="alice", project=None)
    read = [(m.mount.source, m.mount.type.value, m.target, m.read_only) for m in found.mounts]
    assert read == entries
    assert len(found.problems) == len(entries) - len({path for _, _, path, _ in entries})
    assert all(item.mount.type in MountType for item in found.mounts)

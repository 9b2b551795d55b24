"""Text from outside in every format: nothing acts, nothing is forged, what was there can be recognised."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from forebay.cli.graph_svg import svg
from forebay.cli.graphs import Box, Graph, mermaid, table_of
from forebay.cli.lineage import _tree
from forebay.runtime.escaping import json_text, mermaid_text, shell_word, shortened, visible, xml_text
from forebay.runtime.log_lines import LogLines
from forebay.runtime.terminal import Terminal, plain_table
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.markup import escape
from rich.progress import Progress, TextColumn

from tests.security.hostile_text import SOME, STYLE, raw, texts

MANY = settings(max_examples=50, deadline=None)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


def printed(*values: Any, colour: bool = False) -> str:
    out = io.StringIO()
    console = Terminal(file=out, width=5000, soft_wrap=True, emoji=False, force_terminal=colour)
    for value in values:
        console.print(value)
    return out.getvalue()


def decoded(entities: str) -> str:
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), entities)


class TestPlainText:
    @given(texts)
    @MANY
    def test_nothing_acts(self, text: str) -> None:
        """No control character, no direction, nothing invisible; once is enough."""
        shown = visible(text)
        assert raw(shown, allowed="") == set()
        assert visible(shown) == shown

    @given(st.text(st.characters(categories=["L", "M", "N", "P", "S"], exclude_characters="\u034f\u3164\uffa0")))
    @MANY
    def test_ordinary_text_is_as_it_was(self, text: str) -> None:
        """Letters of every script, digits, marks and spaces stay."""
        kept = "".join(letter for letter in text if visible(letter) == letter)
        assert visible(kept) == kept
        assert visible("Grüße, 漢字, Привет, x² → y") == "Grüße, 漢字, Привет, x² → y"

    def test_what_was_there_can_be_recognised(self) -> None:
        """As programmers write it."""
        assert visible("a\x1b[31mb\nc\u202ed\U000e0041\ud800") == r"a\x1b[31mb\nc\u202ed\U000e0041\ud800"

    @given(texts, st.integers(60, 90))
    @MANY
    def test_a_cut_says_how_much(self, text: str, limit: int) -> None:
        """Never longer than the limit; what is missing is counted."""
        long = text + "x" * 100
        cut = shortened(long, limit)
        assert len(cut) <= limit
        kept, _, note = cut.rpartition("… (")
        assert long.startswith(kept)
        assert note == f"{len(long) - len(kept):,} more characters)"


class TestTerminal:
    @given(texts)
    @MANY
    def test_one_line_stays_one_line(self, text: str) -> None:
        """Whether or not a command has escaped markup; only our own styles reach a terminal."""
        for given_ in (escape(text), text):
            plain, coloured = (printed(f"[bold]{given_}[/] end", colour=colour) for colour in (False, True))
            assert (raw(plain), raw(STYLE.sub("", coloured))) == (set(), set())
            assert (plain.count("\n"), coloured.count("\n")) == (1, 1)

    @given(texts)
    @MANY
    def test_escaped_text_is_shown_whole(self, text: str) -> None:
        """Nothing that looks like markup or an emoji is lost."""
        assert printed(f"[bold]{escape(text)}[/]|") == f"{visible(text)}|\n"

    @given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
    @MANY
    def test_a_table_has_a_line_for_each_row(self, rows: list[tuple[str, str]]) -> None:
        """And one for its headers."""
        table = plain_table("a", "b")
        for first, second in rows:
            table.add_row(escape(first), second)
        shown = printed(table)
        assert raw(shown) == set()
        assert shown.count("\n") == len(rows) + 1

    @given(texts)
    @settings(max_examples=10, deadline=None)
    def test_progress(self, text: str) -> None:
        """What a service says while it works, beside a bar."""
        out = io.StringIO()
        console = Terminal(file=out, width=500, force_terminal=False, emoji=False)
        with Progress(TextColumn("{task.description}", markup=False), console=console) as bars:
            bars.add_task(text, total=1)
        assert raw(out.getvalue()) == set()

    def test_a_cell_and_a_line_have_a_limit(self) -> None:
        """One endless name does not push everything else off the screen."""
        table = plain_table("a")
        table.add_row("x" * 9000)
        assert "(8,500 more characters)" in printed(table)
        assert "(7,000 more characters)" in printed("y" * 9000)

    @given(texts)
    @MANY
    def test_lineage_as_a_tree_and_as_a_table(self, text: str) -> None:
        """Every field of every node may be hostile; the shape is the same as with harmless text."""
        shapes = []
        for word in (text, "word"):
            node: dict[str, Any] = {"id": word, "kind": word, "title": word, "state": word, "contested": [word]}
            node |= {"via": {"relation": word, "event": word}}
            tree = node | {"parents": [node, node | {"parents": [node]}]}
            shown = [printed(_tree(tree, "parents")), printed(table_of(tree, "parents"))]
            assert [raw(one) for one in shown] == [set(), set()]
            shapes.append([one.count("\n") for one in shown])
        assert shapes[0] == shapes[1]


class TestJson:
    @given(VALUES)
    @MANY
    def test_it_reads_back_equal(self, value: Any) -> None:
        """Lone surrogates included; and it can be printed."""
        for indent in (None, 2):
            text = json_text(value, indent=indent)
            assert json.loads(text) == value
            assert raw(text) == set()
            assert indent or "\n" not in text

    def test_numbers_that_json_does_not_know(self) -> None:
        """They become text, since no strict parser would read the whole otherwise."""
        text = json_text({"a": float("nan"), "b": [float("-inf"), 1.5]})
        assert json.loads(text, parse_constant=pytest.fail) == {"a": "nan", "b": ["-inf", 1.5]}


class TestPictures:
    @given(texts)
    @MANY
    def test_xml(self, text: str) -> None:
        """A strict parser reads the visible text back, from an element and from an attribute."""
        root = ET.fromstring(f'<a b="{xml_text(text)}">{xml_text(text)}</a>')  # noqa: S314 our own text
        assert (root.text or "", root.attrib["b"]) == (visible(text), visible(text))
        assert list(root) == []

    @given(st.lists(st.tuples(texts, texts, texts, texts), min_size=1, max_size=4), texts)
    @settings(max_examples=30, deadline=None)
    def test_svg_and_mermaid(self, boxes: list[tuple[str, str, str, str]], relation: str) -> None:
        """As many boxes and arrows as the graph has, each line of the form that we write."""
        graph = Graph({id_: Box(id_, kind, title, warn) for id_, kind, title, warn in boxes})
        ids = list(graph.boxes)
        graph.arrows = {(ids[0], one): relation for one in ids[1:]}
        root = ET.fromstring(svg(graph, relation))  # noqa: S314 our own text
        tags = [element.tag.rpartition("}")[2] for element in root.iter()]
        assert set(tags) <= {"svg", "title", "defs", "marker", "path", "rect", "g", "text"}
        assert (tags.count("g"), tags.count("path")) == (len(graph.boxes), len(graph.arrows) + 1)
        text = mermaid(graph)
        assert raw(text) == set()
        lines = text.splitlines()
        label = r'"[\w @\-.,:/+=#;<>…]*"|"(?:[^\x00-\x7f]|[\w @\-.,:/+=#;<>])*"'
        forms = {
            "head": re.compile("flowchart TB"),
            "node": re.compile(rf"  n\d+\[(?:{label})\]"),
            "edge": re.compile(rf"  n\d+ -->(?:\|(?:{label})\|)? n\d+"),
            "style": re.compile(r"  classDef \w+ fill:#\w+,stroke:#\w+,color:#212121|  class n\d+(?:,n\d+)* \w+"),
        }
        found = [next((name for name, form in forms.items() if form.fullmatch(line)), line) for line in lines]
        assert [found.count(name) for name in ("head", "node", "edge")] == [1, len(graph.boxes), len(graph.arrows)]
        assert set(found) <= set(forms)
        assert set(re.findall(r"<[^>]*>", text)) <= {"<b>", "</b>", "<br/>"}

    @given(texts)
    def test_a_mermaid_label_reads_back(self, text: str) -> None:
        """Entities stand for exactly what the label shows."""
        assert decoded(mermaid_text(text)) == visible(text)


class TestLogs:
    @given(texts, texts)
    @MANY
    def test_a_record_is_one_line(self, message: str, error: str) -> None:
        """What follows it, a traceback, is indented; so no line can pass for a record."""
        out = io.StringIO()
        handler = logging.StreamHandler(out)
        handler.setFormatter(LogLines("%(levelname)s %(name)s %(message)s"))
        logger = logging.getLogger("part")
        logger.propagate = False
        logger.handlers = [handler]
        try:
            int(error + "x")
        except ValueError:
            logger.exception("refused %s", message)
        first, *rest = out.getvalue().removesuffix("\n").split("\n")
        assert raw(out.getvalue()) == set()
        assert first == f"ERROR part refused {visible(message)}"
        assert all(line.startswith("    ") for line in rest)


def test_a_command_to_copy_means_the_name_and_nothing_else() -> None:
    """A real shell reads each word back; nothing in it is run."""
    names = [
        *SOME,
        "$(touch /tmp/x)",
        "`id`",
        "a b",
        "~root",
        "-rf",
        "a\nb",
        "it's",
        "\\",
        "!x",
        "\x9b",
        "r\udce9sum",
        "é",
    ]
    names = [name for name in names if "\ud800" not in name]  # half a pair is no name of anything
    line = "printf '%s\\0' " + " ".join(shell_word(name) for name in names)
    assert raw(line) == set()
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == names


def test_a_service_that_cannot_start_says_so_on_one_line() -> None:
    """Its settings come from outside, too."""
    code = (
        "from forebay.runtime.app import main; from forebay.runtime.errors import SettingsError\n"
        "async def run(): raise SettingsError('no \\x1b[2J\\nready')\n"
        "main(run)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "SettingsError: no \\x1b[2J\\nready\n")

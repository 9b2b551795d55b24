"""The registry of validation rules: one row per rule, with the sentence a person reads.

A rule's id never changes its meaning. The checks themselves are pure functions in
the neighbouring modules; they name the rule they found broken. To add a rule: add a
row here, a check that returns a `Breach` of it, and a test that breaks it.
"""

from __future__ import annotations

from forebay.ingest.domain.rule import Rule, Severity
from forebay.ingest.domain.rules_content import (
    CAMERA_RATE,
    CLAIM,
    DEAD_STATE,
    EPISODE_NUMBERS,
    FOLLOWED_STATE,
    FROZEN,
    MEASURED_RATE,
    PICTURE_SIZE,
    REQUEST,
    SAME_PICTURES,
    SAME_RECORDING,
    SIGNAL_NAMES,
    SPLIT_LEAK,
    STATISTICS,
    STILL,
    STOLEN_FRAME,
    STRAY_FILE,
    TASK_TABLE,
    VIDEO_RATE,
)

__all__ = (
    "CAMERA_RATE",
    "CLAIM",
    "DEAD_STATE",
    "EPISODE_NUMBERS",
    "FOLLOWED_STATE",
    "FROZEN",
    "MEASURED_RATE",
    "PICTURE_SIZE",
    "REQUEST",
    "RULES",
    "RULES_VERSION",
    "SAME_PICTURES",
    "SAME_RECORDING",
    "SIGNAL_NAMES",
    "SPLIT_LEAK",
    "STATISTICS",
    "STILL",
    "STOLEN_FRAME",
    "STRAY_FILE",
    "TASK_TABLE",
    "VIDEO_RATE",
    "Rule",
    "Severity",
)

RULES_VERSION = "12"
"""Goes onto every verdict; raised whenever a rule is added or judges differently."""


NOT_A_DATASET = Rule(
    id="LR-FORMAT-001",
    severity="error",
    title="readable info.json",
    question="Is this folder a LeRobot dataset with a meta/info.json that says what it holds?",
    why="Nothing else can be judged without it.",
    fix="Point at the folder that contains meta/, or write meta/info.json again from the recorder.",
)
VERSION = Rule(
    id="LR-FORMAT-002",
    severity="error",
    title="supported format version",
    question="Is the codebase_version v3.0, v2.1 or v2.0, and does the layout on disk agree?",
    why="Each format version keeps its files in other places; guessing reads the wrong ones.",
    fix="Convert the dataset with LeRobot's own converters, or correct codebase_version when only the label is wrong.",
)
TEMPLATE = Rule(
    id="LR-FORMAT-003",
    severity="error",
    title="valid path template",
    question="Do data_path and video_path use only their version's placeholders, stay inside the folder, and match what is on disk?",
    why="A template that points elsewhere finds no files, or files that are not ours.",
    fix="Write the template of the dataset's LeRobot version into info.json, or move the folder to where the template points.",
)
IMAGE_FEATURES = Rule(
    id="LR-FORMAT-004",
    severity="info",
    title="cameras as video",
    question="Is every camera stored as video?",
    why="Single images are checked and taken over as they are, but lerobot-lancedb's reader cannot open versions with them.",
    fix="Nothing, when your reader knows images; else encode them as video with LeRobot's own tools.",
)
IMAGE_UNREADABLE = Rule(
    id="LR-IMAGE-001",
    severity="error",
    title="readable images",
    question="Can every picture of a camera that is stored as single images be decoded?",
    why="An empty or cut picture stops the loader in the middle of training.",
    fix="Upload the file again; if the recorder wrote it so, drop the episode.",
)
UNSAFE_PATH = Rule(
    id="LR-STRUCT-001",
    severity="error",
    title="paths stay inside",
    question="Does every path and link stay inside the dataset's folder?",
    why="A path that leaves the folder would read files that were never uploaded.",
    fix="Copy the file into the folder instead of linking to it.",
)
MISSING_FILE = Rule(
    id="LR-STRUCT-002",
    severity="error",
    title="files present",
    question="Is every file that an episode names there?",
    why="The episode cannot be read in our copy; the source may still have it.",
    fix="Upload the missing file.",
)
LFS_POINTER = Rule(
    id="LR-STRUCT-003",
    severity="error",
    title="content, not Git LFS pointers",
    question="Is every file its content rather than a Git LFS pointer to it?",
    why="The dataset was copied out of a git clone whose large files were never fetched.",
    fix="Run `git lfs pull` in the clone, then upload again.",
)
PARQUET_UNREADABLE = Rule(
    id="LR-STRUCT-004",
    severity="error",
    title="readable parquet",
    question="Can every parquet file be read to its end?",
    why="A recorder that was stopped before it closed its file leaves it without a footer.",
    fix="Call finalize() in the recorder, or upload the file again.",
)
COLUMNS = Rule(
    id="LR-STRUCT-005",
    severity="error",
    title="columns as described",
    question="Is each column there once, with a usable type?",
    why="Readers choose one of two equal names at random, or stop at a missing one.",
    fix="Write the table again with each column once.",
)
WRONG_FILE = Rule(
    id="LR-STRUCT-006",
    severity="error",
    title="rows in the named file",
    question="Do an episode's rows and videos lie in the files that the episode table names, and in no other?",
    why="A reader that trusts the table reads other rows, or none; one that takes whole folders reads copies twice.",
    fix="Correct the chunk and file numbers of the episode; delete copies.",
)
ORPHAN_ROWS = Rule(
    id="LR-STRUCT-007",
    severity="warning",
    title="rows belong to an episode",
    question="Does every stored row belong to a listed episode?",
    why="Rows of no episode are left out; readers that take whole folders would train on them.",
    fix="Add the episode to meta/episodes, or remove its rows.",
)
EMPTY_DATASET = Rule(
    id="LR-STRUCT-008",
    severity="info",
    title="something recorded",
    question="Has at least one episode been recorded?",
    why="A dataset that was only created has nothing to check yet.",
    fix="Record an episode, then upload again.",
)
MANIFEST = Rule(
    id="LR-STRUCT-009",
    severity="error",
    title="files as announced",
    question="Are the files that arrived the ones the collector announced, byte for byte?",
    why="A changed or cut file would be judged, and trained on, under a false name.",
    fix="Upload again; if it repeats, check the disk and the network at the collector.",
)
EMPTY_EPISODE = Rule(
    id="LR-EPISODE-001",
    severity="error",
    title="episode not empty",
    question="Does the episode have at least one frame?",
    why="An episode of length zero was started and stopped at once.",
    fix="Remove the episode; the others keep their numbers.",
)
LENGTH = Rule(
    id="LR-EPISODE-002",
    severity="error",
    title="length equals rows",
    question="Does the declared length equal the number of stored rows?",
    why="Boundaries made from wrong lengths put frames into the neighbouring episode.",
    fix="Write the episode table again from the stored rows.",
)
EPISODE_ROW = Rule(
    id="LR-EPISODE-003",
    severity="error",
    title="usable episode entry",
    question="Are the entries of the episode table whole numbers and times that make sense, each episode once?",
    why="An episode that cannot be located cannot be checked.",
    fix="Write the episode table again.",
)
NON_FINITE = Rule(
    id="LR-SIGNAL-001",
    severity="error",
    title="finite signals",
    question="Is every value of state and action a finite number?",
    why="One NaN or infinity turns the loss and the statistics into NaN.",
    fix="Drop the episode, or repair the value and record how.",
)
DIMENSIONS = Rule(
    id="LR-SIGNAL-002",
    severity="error",
    title="dimensions as declared",
    question="Has every row as many values as info.json declares?",
    why="Rows of other lengths shift all later values without an error.",
    fix="Correct the shape in info.json, or write the rows again.",
)
TIMESTAMPS = Rule(
    id="LR-SIGNAL-003",
    severity="error",
    title="steady timestamps",
    question="Does time start at 0 in each episode and grow by exactly 1/fps?",
    why="Frames are looked up in the video by time; a jump pairs pixels with the wrong action. Jitter below half a frame, or a start one frame late, is a warning.",
    fix="Write the timestamps as frame_index / fps; split recordings where the time restarts.",
)
FRAME_ORDER = Rule(
    id="LR-SIGNAL-004",
    severity="error",
    title="frames in order",
    question="Do frame_index and index count up by one without a hole?",
    why="Rows out of order are paired with the wrong video frames.",
    fix="Sort the rows and number them again.",
)
DEAD_ACTION = Rule(
    id="LR-SIGNAL-005",
    severity="hold",
    title="living action",
    question="Is the action anything but zero in the whole episode?",
    why="A recorder that missed the action keys writes zeros; a policy learns to do nothing.",
    fix="Exclude the episode, or have a person confirm that the robot was meant to stand still.",
)
CONSTANT = Rule(
    id="LR-SIGNAL-006",
    severity="warning",
    title="every dimension moves",
    question="Does every dimension of state and action change somewhere in the dataset?",
    why="Normalising by a standard deviation of 0 gives NaN; a parked gripper is legitimate.",
    fix="Make sure that training guards against a standard deviation of 0.",
)
VIDEO_UNREADABLE = Rule(
    id="LR-VIDEO-001",
    severity="error",
    title="playable video",
    question="Can the video be opened and every frame of the episode be decoded?",
    why="An empty or cut file fails in the middle of training.",
    fix="Upload the file again; if the recorder crashed, drop the episode.",
)
VIDEO_FRAMES = Rule(
    id="LR-VIDEO-002",
    severity="error",
    title="a video frame for every row",
    question="Are there as many video frames as rows?",
    why="With frames missing, pixels and actions no longer belong together. One frame off is a warning, "
    "unless a row would then show the frame of another episode.",
    fix="Drop the episode, or encode its video again.",
)
VIDEO_WINDOW = Rule(
    id="LR-VIDEO-003",
    severity="error",
    title="window inside the file",
    question="Does the episode's time window lie inside its video file, beside those of its neighbours?",
    why="Merging tools forget to start at 0 in a new file; readers then fail hours into training.",
    fix="Correct from_timestamp and to_timestamp of the episode.",
)
VIDEO_CODEC = Rule(
    id="LR-VIDEO-004",
    severity="warning",
    title="codec as declared",
    question="Is the stream's codec the one in info.json?",
    why="Decoders are chosen by the label.",
    fix="Correct video.codec in info.json.",
)
VIDEO_SPARE = Rule(
    id="LR-VIDEO-005",
    severity="warning",
    title="no stray video frames",
    question="Does every video frame belong to an episode?",
    why="Frames of no episode hint at a wrong window or a lost episode.",
    fix="Check the windows; frames of removed episodes are harmless.",
)
VIDEO_TIMES = Rule(
    id="LR-VIDEO-006",
    severity="error",
    title="frame times match rows",
    question="Is there a video frame at the time of every row?",
    why="Offsets that were added up drift; readers then refuse the frame, or show the neighbour. Below half a frame it is a warning.",
    fix="Compute from_timestamp from whole frames divided by fps.",
)
TOTALS = Rule(
    id="LR-META-001",
    severity="error",
    title="totals as stored",
    question="Do the totals and splits in info.json equal what is stored?",
    why="Stale totals hide that a part is missing.",
    fix="Write info.json again from the stored episodes.",
)
STRICT_JSON = Rule(
    id="LR-META-002",
    severity="warning",
    title="strict JSON",
    question="Are the metadata files strict JSON, without NaN or Infinity?",
    why="Most readers outside Python refuse them.",
    fix="Compute the statistics again from finite data.",
)
CAMERA_NAMES = Rule(
    id="LR-META-003",
    severity="warning",
    title="camera described",
    question="Does info.json name the camera's axes, and stats.json hold its statistics?",
    why="Training set-ups that read them stop with an error.",
    fix="Add names ['height', 'width', 'channels'] and image statistics.",
)
EPISODE_STATS = Rule(
    id="LR-META-004",
    severity="warning",
    title="statistics there",
    question="Are the statistics there that readers normalise with: of the whole in v3.0, of every episode in v2.x?",
    why="v2.0 had none per episode, and newer readers stop without them. Rows are the same, and versions get new statistics.",
    fix="Nothing has to be done for Forebay; LeRobot's own tools compute them for the source.",
)
METADATA_UNREADABLE = Rule(
    id="LR-META-005",
    severity="error",
    title="readable metadata lines",
    question="Is every line of episodes.jsonl and tasks.jsonl a JSON object that says what it should?",
    why="A line that cannot be read may be an episode that nobody would miss.",
    fix="Write the file again from the recorder, or upload it again when it was cut.",
)
TASK_UNKNOWN = Rule(
    id="LR-TASK-001",
    severity="error",
    title="task known",
    question="Is every task_index in the task table, with one text? And what other columns call a task, where the dataset has other numbers?",
    why="Without its text the episode trains on a wrong instruction, or stops the loader.",
    fix="Add the task to the task table, take a second text of its number out, or correct task_index.",
)
TASK_TEXT = Rule(
    id="LR-TASK-002",
    severity="warning",
    title="task text agrees",
    question="Do the texts in the episode table belong to the stored task_index?",
    why="One of the two is wrong, and readers differ in which they use.",
    fix="Write the episode's tasks again from task_index.",
)
OTHER_FEATURES = Rule(
    id="LR-DATASET-001",
    severity="error",
    title="same features as the dataset",
    question="Has the upload the features and frame rate of the dataset it goes into?",
    why="Rows of another shape cannot stand in one table.",
    fix="Upload it as another dataset.",
)
ALREADY_THERE = Rule(
    id="LR-DATASET-002",
    severity="hold",
    title="not recorded before",
    question="Is this recording new to the dataset?",
    why="The same rows twice weigh twice in training.",
    fix="Leave it out, or confirm that it is meant to count twice.",
)

_ALL = [rule for rule in tuple(globals().values()) if isinstance(rule, Rule)]
RULES: dict[str, Rule] = {rule.id: rule for rule in sorted(_ALL, key=lambda rule: rule.id)}

"""Rules about what the data shows: pictures, statistics, splits, repeated recordings and the collection's order.

`rules.py` holds the registry; it takes these in. They stand apart because one module
of all rules would be too long to read.
"""

from __future__ import annotations

from forebay.ingest.domain.rule import Rule

STRAY_FILE = Rule(
    id="LR-STRUCT-010",
    severity="warning",
    title="every file used",
    question="Does an episode lie in every data and video file?",
    why="A file that nobody names hints at episodes that point to the wrong file; tools that take every file would read it.",
    fix="Check the file numbers in the episode table; files of removed episodes are harmless.",
)
VIDEO_RATE = Rule(
    id="LR-VIDEO-007",
    severity="error",
    title="video rate as declared",
    question="Do the video's frames follow each other at the fps of info.json?",
    why="Frames are looked up by time; at another rate each row gets the picture of another moment.",
    fix="Encode the video again at the dataset's fps, or correct fps when the rows are at the video's rate.",
)
FROZEN = Rule(
    id="LR-VIDEO-008",
    severity="hold",
    title="living camera",
    question="Does the camera's picture change in the episode, beyond the noise of the codec?",
    why="A camera that stopped delivering leaves counts, durations and codecs right, and shows the policy nothing.",
    fix="Exclude the episodes, or have a person confirm that nothing moved before this camera.",
)
STILL = Rule(
    id="LR-VIDEO-009",
    severity="warning",
    title="no long standstill",
    question="Does the picture change while the robot moves?",
    why="A camera that hangs for seconds pairs one old picture with many actions.",
    fix="Look at the stretch; cut the episode when the camera hung.",
)
SAME_PICTURES = Rule(
    id="LR-VIDEO-010",
    severity="hold",
    title="own pictures",
    question="Has every episode pictures of its own?",
    why="Equal videos under different actions mean that one video was written for several episodes.",
    fix="Find the right videos, or exclude the episodes.",
)
STOLEN_FRAME = Rule(
    id="LR-VIDEO-011",
    severity="warning",
    title="own first frame",
    question="Is the first picture the episode's own, rather than one left over from the episode before?",
    why="A buffer that is not emptied between episodes, or a window that starts one frame early, pairs a foreign picture with an action.",
    fix="Empty the recorder's buffer between episodes; move from_timestamp when all windows are one frame early.",
)
CAMERA_RATE = Rule(
    id="LR-VIDEO-013",
    severity="warning",
    title="camera as fast as its rows",
    question="Does the camera give a new picture for every row while the robot moves?",
    why="A camera slower than its rows, or one that hangs now and then, pairs old pictures with new states and actions.",
    fix="Record at the rate that the camera really has, or set the camera to the rate of the rows; look at USB bandwidth and exposure time.",
)
FOLLOWED_STATE = Rule(
    id="LR-SIGNAL-008",
    severity="info",
    title="an action of its own",
    question="Is the action more than the state, of the same row or of the next one?",
    why="Some converters have no commands and write positions that were reached; a policy then learns to copy, or to follow.",
    fix="Nothing when it is meant so; else convert again with the recorded commands.",
)
PICTURE_SIZE = Rule(
    id="LR-VIDEO-012",
    severity="warning",
    title="picture size as declared",
    question="Have the pictures the height and width of info.json?",
    why="Models are built for the declared size.",
    fix="Correct the shape in info.json, or encode the video again.",
)
SIGNAL_NAMES = Rule(
    id="LR-META-006",
    severity="warning",
    title="a name for every value",
    question="Are there as many names as values, each once, and in one order in state and action?",
    why="Tools map joints by name; a missing or doubled name maps the wrong joint.",
    fix="Write one name per value into info.json.",
)
STATISTICS = Rule(
    id="LR-META-007",
    severity="warning",
    title="statistics as stored rows",
    question="Do the stored statistics, quantiles included, follow from the stored rows and pictures?",
    why="Training normalises with them; stale ones scale every state and action wrongly, and averaged quantiles clip them. LeRobot's own approximations are no finding.",
    fix="Compute the statistics again. Versions that Forebay writes compute their own.",
)
DEAD_STATE = Rule(
    id="LR-SIGNAL-007",
    severity="warning",
    title="live state",
    question="Does the state change in an episode whose action changes?",
    why="A recorder that lost the joint sensors goes on writing the last value beside commands that were carried out.",
    fix="Exclude the episode, or make sure that the robot really stood still.",
)
TASK_TABLE = Rule(
    id="LR-TASK-003",
    severity="warning",
    title="usable task texts",
    question="Has every task a text of its own, at the place in the table that its number says?",
    why="An empty or doubled instruction tells the policy nothing, or splits one task in two. LeRobot v3.0 takes the text by its place.",
    fix="Write the task table again with one text per task, in the order of task_index. Versions that Forebay writes are in order.",
)
SPLIT_LEAK = Rule(
    id="LR-SPLIT-001",
    severity="hold",
    title="splits apart",
    question="Is every recording in one split only?",
    why="A recording in training and test makes the test look better than the policy is.",
    fix="Take the episode out of one split.",
)
SAME_RECORDING = Rule(
    id="LR-EPISODE-004",
    severity="hold",
    title="recorded once",
    question="Is every recording there once?",
    why="The same rows and pictures twice weigh twice in training.",
    fix="Leave one of them out, or confirm that it is meant to count twice.",
)
EPISODE_NUMBERS = Rule(
    id="LR-EPISODE-005",
    severity="warning",
    title="episodes numbered from 0",
    question="Are the episodes numbered 0, 1, 2, … without a hole, and listed in that order?",
    why="LeRobot looks episodes up by their place in the table, so each behind a hole gets the rows and videos of another.",
    fix="Number the episodes anew in the table and in the rows. Versions that Forebay writes are numbered densely.",
)
CLAIM = Rule(
    id="LR-CLAIM-001",
    severity="warning",
    title="as the collector said",
    question="Do the files hold the frames, tasks, robot, rows and videos that the collector announced?",
    why="A collector that announces something else than it uploads is broken, or lies. The files count.",
    fix="Update the collector, or find out who has its key. Versions and lineage show what the files hold.",
)
MEASURED_RATE = Rule(
    id="LR-REQUEST-002",
    severity="warning",
    title="rate as measured",
    question="Do the rows of each episode, at the declared rate, take as long as the collector measured?",
    why="Timestamps are computed from the frame number; a recorder that was too slow declares a rate that it never reached, and a policy learns another speed.",
    fix="Declare the measured rate and write the timestamps again, or record on a machine that keeps up.",
)
REQUEST = Rule(
    id="LR-REQUEST-001",
    severity="error",
    title="as ordered",
    question="Does the result hold what the collection request asked for?",
    why="A recorder that reports success may have written one episode for many, or lost some.",
    fix="Compare the recorder's log with the request; upload the missing episodes, or correct the request.",
)

"""The POSIX-sh shim around a training command in a pod, written into an emptyDir by the init container.

The owner's image needs neither Python nor us: only /bin/sh. The shim reads the resume
decision, passes signals on, waits for nothing else, and records how the command ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

START = r"""#!/bin/sh
# Forebay: runs the training command, passes signals on, records how it ended.
run=${FOREBAY_RUN_DIR:-/forebay/run}
if [ -r "$run/resume.env" ]; then . "$run/resume.env"; fi

# lerobot-train resumes with these two options. Its saved configuration names the output folder and the data of the run
# that saved it, so those two are said again: they may be elsewhere now.
if [ -n "${FOREBAY_LEROBOT_WORDS:-}" ] && [ -n "${FOREBAY_RESUME_FROM:-}" ]; then
  total=$#
  count=0
  value=
  for word do
    count=$((count + 1))
    if [ "$count" -le "$FOREBAY_LEROBOT_WORDS" ] || [ -n "$value" ]; then
      value=
      set -- "$@" "$word"
      continue
    fi
    case $word in
      --output_dir=* | --dataset.root=*) set -- "$@" "$word" ;;
      --output_dir | --dataset.root)
        value=1
        set -- "$@" "$word"
        ;;
    esac
  done
  shift "$total"
  set -- "$@" "--config_path=$FOREBAY_RESUME_FROM/pretrained_model/train_config.json" --resume=true
fi

child=
told=
tell() {
  told=1
  if [ -z "$child" ]; then exit 143; fi
  kill -s "$1" "$child" 2>/dev/null
}
for name in TERM INT HUP QUIT USR1 USR2; do
  trap "tell $name" "$name"
done

"$@" &
child=$!
printf '%s\n' "$child" > "$run/started" 2>/dev/null

# A signal ends `wait` before the command has ended: then wait again.
again=
code=0
while :; do
  told=
  wait "$child"
  now=$?
  if [ "$now" -eq 127 ] && [ -n "$again" ]; then break; fi
  code=$now
  if [ -z "$told" ]; then break; fi
  again=1
done

printf '{"exit_code": %d}\n' "$code" > "$run/exit.json" 2>/dev/null
exit "$code"
"""


def exports(variables: Mapping[str, str]) -> str:
    """The file that the shim reads: each variable, quoted for any shell."""
    return "".join(f"{name}={shlex.quote(value)}\nexport {name}\n" for name, value in sorted(variables.items()))

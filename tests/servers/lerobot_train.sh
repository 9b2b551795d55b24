#!/bin/sh
# Stands in for lerobot-train where its behaviour matters to Forebay: it refuses an output folder that
# exists, saves into checkpoints/NNNNNN and moves `last` when a save is finished, and resumes with
# --config_path and --resume=true; a policy beside them shadows the checkpoint, and what else is said there
# overrides the saved configuration. DIE_AT=N: the first run is killed at step N, in the middle of a save whose
# files are all there.
set -eu
output='' steps=100 freq=20 resume=false config='' root='' policy=''
for word do
  case $word in
    --output_dir=*) output=${word#*=} ;;
    --steps=*) steps=${word#*=} ;;
    --save_freq=*) freq=${word#*=} ;;
    --resume=*) resume=${word#*=} ;;
    --config_path=*) config=${word#*=} ;;
    --dataset.root=*) root=${word#*=} ;;
    --policy.*=*) policy=$word ;;
    *) echo "lerobot-train: error: unrecognized arguments: $word" >&2; exit 2 ;;
  esac
done

setting() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2"; }

step=0
if [ "$resume" = true ]; then
  if [ -n "$policy" ]; then echo "ValueError: $policy beside --config_path shadows the checkpoint" >&2; exit 1; fi
  if [ ! -r "$config" ]; then echo "FileNotFoundError: $config" >&2; exit 1; fi
  save=$(dirname "$(dirname "$config")")
  step=$(setting step "$save/training_state/training_step.json")
  output=${output:-$(setting output_dir "$config")} steps=$(setting steps "$config") freq=$(setting save_freq "$config")
  root=${root:-$(setting root "$config")}
  DIE_AT=0
elif [ -e "$output" ]; then
  echo "FileExistsError: Output directory $output already exists and resume is False." >&2
  exit 1
fi
if [ -n "$root" ] && [ ! -r "$root/meta/info.json" ]; then echo "FileNotFoundError: $root/meta/info.json" >&2; exit 1; fi
echo "training from step $step to $steps"

write_save() {
  name=$(printf '%06d' "$1")
  folder=$output/checkpoints/$name
  mkdir -p "$folder/pretrained_model" "$folder/training_state"
  printf '{"output_dir": "%s", "steps": %d, "save_freq": %d, "root": "%s"}\n' "$output" "$steps" "$freq" "$root" \
    > "$folder/pretrained_model/train_config.json"
  echo '{"type": "act"}' > "$folder/pretrained_model/config.json"
  printf '\002\000\000\000\000\000\000\000{}' > "$folder/pretrained_model/model.safetensors"
  printf '\002\000\000\000\000\000\000\000{}' > "$folder/training_state/optimizer_state.safetensors"
  printf '\002\000\000\000\000\000\000\000{}' > "$folder/training_state/rng_state.safetensors"
  echo '[]' > "$folder/training_state/optimizer_param_groups.json"
  echo '{"lr": 0.1}' > "$folder/training_state/scheduler_state.json"
  printf '{"step": %d}\n' "$1" > "$folder/training_state/training_step.json"
}

while [ "$step" -lt "$steps" ]; do
  step=$((step + 1))
  if [ "$step" -eq "${DIE_AT:-0}" ]; then write_save "$step"; kill -KILL $$; fi
  if [ $((step % freq)) -eq 0 ]; then write_save "$step"; ln -sfn "$name" "$output/checkpoints/last"; fi
done
echo "ended at step $step"

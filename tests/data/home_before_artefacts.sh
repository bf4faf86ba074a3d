#!/bin/sh
# Makes tests/data/home_before_artefacts.tar.gz, with the rlctl of a release whose models were checkpoints:
#   home_before_artefacts.sh RLCTL PYTHON FOREIGN_POLICIES OUT
# A group, runs that pass and fail their gates, an external run, an imported policy, verdicts, aliases, and what
# each alias answers to 1,000 observations (`actions.json`) or in 20 numbered episodes (`evaluations.json`).
set -eu
rlctl=$1 python=$2 foreign=$3 out=$4
work=$(mktemp -d)
home=$work/home
small="env.id=CartPole-v1 agent.network.hidden_sizes=[8] rollout.steps=64 env.num_envs=2 eval.episodes=5
  eval.final_episodes=10 gates.stability=false train.total_timesteps=512 eval.every=512 env.seed=1"
ppo="$small train.batch_size=32"

$rlctl launch --home "$home" --name group $ppo seeds=2 gates.min_return=5
$rlctl launch --home "$home" --name better $ppo train.total_timesteps=2048 eval.every=1024 gates.min_return=5 \
  obs.normalize=running
$rlctl launch --home "$home" --name rejected $ppo gates.min_return=475 || test $? = 3
$rlctl launch --home "$home" --name replay $small agent.algorithm=dqn train.learning_starts=100 gates.min_return=5 \
  buffer.size=1000
cat > "$work/external.yaml" <<'YAML'
name: theirs
env: {id: CartPole-v1, seed: 1}
train: {total_timesteps: 64}
eval: {final_episodes: 10}
gates: {min_return: 5, stability: false}
runner:
  name: external
  command:
    - python3
    - -c
    - |
      import json, os
      with open(os.path.join(os.environ["RLCTL_CHECKPOINTS"], "weights"), "w") as file:
          json.dump([0.0, 0.0, 1.0, 0.0], file)
      with open(os.environ["RLCTL_EVENTS"], "a", buffering=1) as events:
          events.write(json.dumps({"step": 64, "checkpoint": "weights"}) + "\n")
  policy:
    - python3
    - -c
    - |
      import json, sys
      weights = json.load(open(sys.argv[1]))
      for line in sys.stdin:
          scores = [sum(w * x for w, x in zip(weights, each)) for each in json.loads(line)["obs"]]
          print(json.dumps({"action": [int(score > 0) for score in scores]}), flush=True)
    - "{checkpoint}"
YAML
$rlctl launch --home "$home" -f "$work/external.yaml" --yes
$rlctl registry import --home "$home" "$foreign" --env CartPole-v1 --name imported

id() { $rlctl registry list --home "$home" --json | $python -c "
import json, sys
models = json.load(sys.stdin)['models']
print(next(m['id'] for m in models if m['run_id'].startswith('$1') and ('$1' == 'imported' or m['validated'])))"; }
$rlctl registry validate --home "$home" "$(id imported)" --min-return 5
$rlctl promote --home "$home" "$(id replay)" --to production
$rlctl promote --home "$home" "$(id better)" --to production --allow-equal --margin 1000 --episodes 20
$rlctl promote --home "$home" "$(id replay)" --to staging
$rlctl promote --home "$home" "$(id group)" --to canary --force --reason "a look at it"
$rlctl promote --home "$home" "$(id imported)" --to elsewhere
$rlctl promote --home "$home" "$(id theirs)" --to theirs

$python - "$work/observations.npy" <<'PY'
import sys
import numpy as np
np.save(sys.argv[1], np.random.default_rng(7).normal(0.0, 1.0, (1000, 4)).astype(np.float32))
PY
for alias in production staging canary elsewhere; do
  $rlctl infer --home "$home" $alias --input "$work/observations.npy" --output "$work/$alias.npy" --json
done
for alias in production staging canary elsewhere theirs; do
  $rlctl eval --home "$home" $alias --episodes 20 --seed 3 --json > "$work/$alias.json"
done
$python - "$work" "$home" <<'PY'
import json, sys
from pathlib import Path
import numpy as np
work, home = map(Path, sys.argv[1:])
answers = {path.stem: "".join(map(str, np.load(path).reshape(-1).tolist()))
           for path in sorted(work.glob("*.npy")) if path.stem != "observations"}
(home / "actions.json").write_text(json.dumps(answers))
reports = {path.stem: json.loads(path.read_text())["eval"] for path in sorted(work.glob("*.json"))}
(home / "evaluations.json").write_text(json.dumps(reports))
PY
find "$home" \( -name metrics.db -o -name tensorboard -o -name sinks -o -name "eval-*" -o -name "*.svg" -o -name log.txt \) \
  -prune -exec rm -r {} +
tar -C "$work" --sort=name --owner=0 --group=0 -c home | gzip -9n > "$out"
rm -r "$work"

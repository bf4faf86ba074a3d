"""Serves `act`: a line with observations in, a line with an action for each of them out."""

import json
import sys
from operator import mul


def action(weights, state):
    """1 pushes the cart to the right, 0 to the left."""
    return int(sum(map(mul, weights, state)) > 0)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        _, _, weights = json.load(file)
    for line in sys.stdin:
        actions = [action(weights, state) for state in json.loads(line)["obs"]]
        sys.stdout.write(json.dumps({"action": actions}) + "\n")
        sys.stdout.flush()

"""Packages of environments that people name without the module which registers them. Data alone."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EnvPackage:
    """A package of environments: a pattern of its ids, what pip installs it by, and the module that
    registers them when it is imported."""

    ids: str
    pip: str
    module: str


PACKAGES = (
    EnvPackage(r"(MiniGrid|BabyAI)-", "minigrid", "minigrid"),
    EnvPackage(r"MiniWorld-", "miniworld", "miniworld"),
    EnvPackage(r"ALE/|\w+(NoFrameskip|Deterministic)-v[04]", "'rl-orch[atari]'", "ale_py"),
    EnvPackage(r"dm_control/", "'shimmy[dm-control]'", "shimmy"),
    EnvPackage(
        r"(Fetch(Reach|Push|Slide|PickAndPlace)|Hand(Reach|Manipulate)|(Point|Ant)Maze_"
        r"|AdroitHand|FrankaKitchen)",
        "gymnasium-robotics",
        "gymnasium_robotics",
    ),
    EnvPackage(
        r"(highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|two-way|u-turn)"
        r"(-[A-Za-z-]+)?-v\d",
        "highway-env",
        "highway_env",
    ),
    EnvPackage(r"Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)", "panda-gym", "panda_gym"),
    EnvPackage(r"\w+BulletEnv-v", "pybullet-envs-gymnasium", "pybullet_envs_gymnasium"),
    EnvPackage(r"Meta-World/", "metaworld", "metaworld"),
    EnvPackage(r"myo[A-Z]", "myosuite", "myosuite"),
    EnvPackage(r"NetHack", "nle", "nle"),
    EnvPackage(r"FlappyBird-", "flappy-bird-gymnasium", "flappy_bird_gymnasium"),
    EnvPackage(r"gym_pusht/", "gym-pusht", "gym_pusht"),
    EnvPackage(r"gym_aloha/", "gym-aloha", "gym_aloha"),
    EnvPackage(r"gym_xarm/", "gym-xarm", "gym_xarm"),
    EnvPackage(r"(forex|stocks)-v0", "'rl-orch[trading]'", "gym_anytrading"),
)


def package_of(name: str) -> EnvPackage | None:
    """The package that an id without a module is known to be of."""
    return next((each for each in PACKAGES if re.match(each.ids, name)), None)


def package_with(module: str) -> EnvPackage | None:
    """The package that a module is known to be of."""
    return next((each for each in PACKAGES if each.module == module), None)

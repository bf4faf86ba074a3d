from rl_orch.interactive.policy import load_policy as load_policy
from rl_orch.interactive.runs import runs as runs
from rl_orch.interactive.training import train as train
from rl_orch.rl.observe import Callback as Callback

__version__: str

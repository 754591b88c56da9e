from .guard import ActionGuard as ActionGuard
from .guard import Guard as Guard
from .guard import share_of_bound as share_of_bound
from .registry import make as make
from .registry import names as names
from .registry import register_environments as register_environments
from .spaces import ConstrainedBox as ConstrainedBox
from .task import Task as Task

__all__: list[str]

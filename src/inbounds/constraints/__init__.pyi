from .box import Box as Box
from .box import RateLimit as RateLimit
from .check import check_constraint as check_constraint
from .constraint import Constraint as Constraint
from .ellipsoid import Ball as Ball
from .ellipsoid import Ellipsoid as Ellipsoid
from .expressions import Expression as Expression
from .intersection import Intersection as Intersection
from .intersection import intersect as intersect
from .level_set import PowerBudget as PowerBudget
from .level_set import WeightedL1 as WeightedL1
from .oracle import Oracle as Oracle
from .polytope import Polytope as Polytope
from .polytope import barrier as barrier
from .references import Reference as Reference
from .references import obs as obs
from .references import previous_action as previous_action
from .serialisation import constraint_from_json as constraint_from_json
from .serialisation import constraint_to_json as constraint_to_json
from .shell import Shell as Shell
from .simplices import Simplices as Simplices
from .sum_band import Simplex as Simplex
from .sum_band import SumBand as SumBand
from .union import Union as Union

__all__: list[str]

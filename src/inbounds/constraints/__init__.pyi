from .ball import Ball as Ball
from .box import Box as Box
from .check import check_constraint as check_constraint
from .constraint import Constraint as Constraint
from .ellipsoid import Ellipsoid as Ellipsoid
from .intersection import Intersection as Intersection
from .intersection import intersect as intersect
from .oracle import Oracle as Oracle
from .polytope import Polytope as Polytope
from .rate_limit import RateLimit as RateLimit
from .references import Reference as Reference
from .references import obs as obs
from .references import previous_action as previous_action
from .serialisation import constraint_from_json as constraint_from_json
from .serialisation import constraint_to_json as constraint_to_json
from .sum_band import Simplex as Simplex
from .sum_band import SumBand as SumBand
from .union import Union as Union
from .weighted_sum import PowerBudget as PowerBudget
from .weighted_sum import WeightedL1 as WeightedL1

__all__: list[str]

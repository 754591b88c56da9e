"""What is allowed: sets of actions that are declared once and then answer every question about themselves.

Names are imported on first use, so that a single constraint costs only its own module.
"""

from __future__ import annotations

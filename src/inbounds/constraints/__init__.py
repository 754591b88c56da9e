"""What is allowed: sets of actions that are declared once and then answer every question about themselves.

`__init__.pyi` lists the names. They are imported on first use, so that a constraint costs only its own module.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

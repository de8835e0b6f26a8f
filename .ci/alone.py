"""Refuse an environment in which one of the named modules can be imported, to show that a package stands alone."""

import sys
from importlib.util import find_spec

present = [module for module in sys.argv[1:] if find_spec(module)]
if present:
    sys.exit(f"this environment should hold one package and its dependencies only, it also holds {', '.join(present)}")

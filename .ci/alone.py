"""Refuse an environment that holds more than one package and its dependencies, or this package from the checkout."""

import sys
from importlib.util import find_spec

package, *others = sys.argv[1:]
present = [module for module in others if find_spec(module)]
if present:
    sys.exit(f"this environment should hold {package} and its dependencies only, it also holds {', '.join(present)}")
for module in {"obscodec", package}:
    found = find_spec(module)
    if found is None or "site-packages" not in str(found.origin):
        sys.exit(f"{module} should be installed from its wheel, it is at {found and found.origin}")

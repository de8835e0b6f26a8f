"""Run one part, or several one after the other; the exit code is 1 if something was not as it should be."""

import argparse
import faulthandler
import importlib
import sys
from pathlib import Path

from gpu_parts.record import Record


def main() -> int:
    """Each part is a file with a function ``run(machine, record)``; suite and versions take other arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="parts; or `suite`, then patterns of test files")
    parser.add_argument("--file", type=Path, required=True, help="the result, written anew after each row")
    parser.add_argument("--tiny", action="store_true", help="few small cases")
    parser.add_argument("--no-pool", action="store_true", help="each array has an allocation of its own, for memcheck")
    parser.add_argument("--simulated", action="store_true", help="the simulated GPU of the tests; implies --tiny")
    arguments = parser.parse_args()
    faulthandler.enable()
    record = Record(arguments.file, {"simulated": arguments.simulated})
    if arguments.names == ["versions"]:
        from gpu_parts import versions

        versions.run(record, simulated=arguments.simulated)
        return record.end()
    from gpu_parts.machine import opened  # needs numpy, which `versions` must not need

    machine = opened(simulated=arguments.simulated, tiny=arguments.tiny, pool=not arguments.no_pool)
    if arguments.names[0] == "suite":
        from gpu_parts import suite

        suite.run(machine, record, arguments.names[1:])
    else:
        for name in arguments.names:
            importlib.import_module(f"gpu_parts.{name}").run(machine, record)
    return record.end()


if __name__ == "__main__":
    sys.exit(main())

"""The devices of the tests, see cuda_on_cpu/fixtures.py."""

from cuda_on_cpu.fixtures import cuda, device, devices_end, simulated

__all__ = ["cuda", "device", "devices_end", "simulated"]

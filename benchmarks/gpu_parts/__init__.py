"""The parts of ``gpu_first.py``: ``python -m gpu_parts NAME --file RESULT`` runs one of them in this process."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

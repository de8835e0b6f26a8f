# The verbs of this repository: `uv run just VERB`.

# Tests of obscodec-torchrl that start other processes, each of which imports torch: some minutes.
without_workers := "--ignore packages/obscodec-torchrl/tests/test_ray.py --ignore packages/obscodec-torchrl/tests/test_processes.py"

# All that CI checks, the cheapest first.
check: lint types imports alone example test oldest oldest-torchrl (upstream "-k" "delta-rle")

# Fix what ruff can fix, and format.
fix:
    uv run ruff check --fix
    uv run ruff format

lint:
    uv run ruff check
    uv run ruff format --check

types:
    uv run mypy
    uv run basedpyright

# Who may import whom: the contracts in pyproject.toml.
imports:
    uv run lint-imports

# The tests of each package, in an environment that has only this package and its dependencies.
alone: (_alone "obscodec" "--all-extras" "cupy torch stable_baselines3 torchrl obscodec_cupy obscodec_sb3 obscodec_torchrl") (_alone "obscodec-cupy" "--extra cuda13" "isal rich torch stable_baselines3 torchrl obscodec_sb3 obscodec_torchrl") (_alone "obscodec-sb3" "--all-extras" "isal rich cupy torchrl obscodec_cupy obscodec_torchrl") (_alone "obscodec-torchrl" "--all-extras" "isal rich cupy stable_baselines3 obscodec_cupy obscodec_sb3" without_workers)

_alone package extras absent *options:
    uv run --isolated --package {{ package }} {{ extras }} --no-default-groups --group test python .ci/alone.py {{ absent }}
    uv run --isolated --package {{ package }} {{ extras }} --no-default-groups --group test pytest packages/{{ if package == "obscodec" { "obscodec-core" } else { package } }} {{ options }}

# The examples with few steps.
example:
    uv run examples/dqn_atari.py --steps 600
    uv run examples/torchrl_dqn.py --steps 400
    uv run examples/torchrl_epochs.py

# What `alone` leaves out: tests of several packages together, and those that start other processes.
test:
    uv run pytest tests packages/obscodec-torchrl/tests/test_ray.py packages/obscodec-torchrl/tests/test_processes.py

# The first run on a machine with a GPU: what is exact, what is fast, what the tests and NVIDIA's tools find.
gpu-first *options:
    uv run benchmarks/gpu_first.py {{ options }}

# A folder to carry to a machine without uv and network, where `python FOLDER/gpu_first.py` does the same. Further arguments
# are for `pip download`: what that machine lacks, such as `--python-version 3.12 lz4 zstandard`.
gpu-wheels folder *downloads:
    rm -rf "{{ folder }}/wheels"
    uv build --quiet --all-packages --wheel --out-dir "{{ folder }}/wheels"
    {{ if downloads == "" { "true" } else { "uv run pip download --no-deps --only-binary :all: --dest " + quote(folder + "/wheels") + " " + downloads } }}
    uv run benchmarks/gpu_folder.py "{{ folder }}"

# On a machine with a GPU: the tests that run on a simulated one elsewhere.
gpu:
    uv run pytest -m gpu packages/obscodec-cupy tests

# What goes wrong without each barrier of the GPU kernels.
barriers:
    uv run pytest packages/obscodec-cupy/tests/device/test_barriers.py -rPx

# The GPU kernels compiled for each architecture that the package names; CI compiles for three of the five.
architectures:
    ARCHITECTURES="75 80 90 100 120" uv run pytest packages/obscodec-cupy/tests/device/test_compiled_kernels.py

# Break chosen lines one by one, and see which test notices; all take half an hour, a part of a name chooses some.
mutants *parts:
    uv run tests/mutants.py {{ parts }}

# The tests of obscodec-sb3 with the oldest Stable-Baselines3 that it supports.
oldest:
    uv run --isolated --no-project --with-editable ./packages/obscodec-core \
        --with-editable "./packages/obscodec-sb3[contrib]" \
        --with stable-baselines3==2.7.0 --with sb3-contrib==2.7.0 --with ale-py --with opencv-python-headless \
        --with hypothesis --with pytest pytest packages/obscodec-sb3/tests

# The tests of obscodec-torchrl with the oldest TorchRL that it supports, without those that start processes.
oldest-torchrl:
    uv run --isolated --no-project --with-editable ./packages/obscodec-core --with-editable ./packages/obscodec-torchrl \
        --with torchrl==0.14.0 --with tensordict==0.14.3 --with ale-py --with gymnasium \
        --with opencv-python-headless --with hypothesis --with pytest pytest packages/obscodec-torchrl/tests \
        {{ without_workers }}

# The tests of Stable-Baselines3 and sb3-contrib with compressed buffers; prints how many blocks were encoded and decoded.
upstream *options:
    uv run pytest -m upstream tests -rP {{ options }}

# TorchRL's own tests with CompressedStorage; the checkout is of its repository at the installed version.
torchrl-suite checkout *options:
    uv run --package obscodec-torchrl --group suite python packages/obscodec-torchrl/tests/torchrl_suite.py {{ checkout }} \
        {{ options }}

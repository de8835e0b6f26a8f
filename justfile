# The verbs of this repository: `uv run just VERB`.

# The Pythons that the packages name, the oldest first.
pythons := "3.11 3.12 3.13 3.14"
first_and_last := replace_regex(pythons, " .* ", "|")

# The programs of `examples`.
examples := "shards two_processes dqn_atari cleanrl_dqn envpool_dqn ppo_rollout dreamer_sequences drq_mujoco jax_dqn torchrl_dqn torchrl_epochs lerobot_wire lerobot_buffer dreamer_chunks agilerl_buffer minari_storage stable_worldmodel_format"

# Each file of tests runs in one of several processes, as `uv run pytest` without arguments does by itself.
parallel := "--numprocesses auto --maxprocesses 4 --dist loadfile"

# Of tests that run a second time, with other versions: those that take less than two seconds.
brief := '-m "not slow and not upstream and not gpu"'

# The tests of the core that should notice all mutants: formats, kernels, stores, buffers and files.
essence := "$(python3 tests/mutants.py --ids packages/obscodec-core)"

# The tests that compare with the classes of SB3 and of TorchRL.
with_stock_sb3 := "test_replay_buffer.py test_other_buffers.py test_direct_add.py test_games.py test_every_algorithm.py"
with_stock_torchrl := "test_storage.py test_buffers.py test_persistence.py test_options.py test_properties.py"

# All that CI checks, the cheapest first.
check: lint imports rooms _side_by_side _kernels alone example oldest oldest-torchrl stock-rllib oldest-core newest-core test slow

# Each uses one processor, or waits for the network.
[parallel]
_side_by_side: types site platforms sdists release-check

# What a developer waits for: style, and the tests that should notice all mutants; some minutes.
quick: lint
    uv run pytest {{ parallel }} $(uv run tests/mutants.py --ids)

# Fix what ruff can fix, and format.
fix:
    uv run ruff check --fix
    uv run ruff format

lint:
    uv run ruff check
    uv run ruff format --check

[parallel]
types: _mypy _pyright

_mypy:
    uv run mypy

_pyright:
    uv run basedpyright

# Who may import whom: the contracts in pyproject.toml.
imports:
    uv run lint-imports

# How large each room of the source is, beside the last tag.
rooms:
    uv run .ci/rooms.py

# The site in `build/site`; a broken link or docstring is an error.
site:
    uv run --isolated --only-group docs mkdocs build --strict --site-dir build/site

# The site of a version, as a commit on the branch gh-pages: `latest` is the last release, `dev` is main; `--push` pushes it.
site-version version *options:
    #!/usr/bin/env bash
    set -euo pipefail
    mike() { uv run --isolated --only-group docs mike "$@"; }
    version={{ quote(version) }}
    if [ "$version" = dev ]; then
        mike deploy {{ options }} dev
        mike list latest > /dev/null 2>&1 || mike set-default {{ options }} dev
    else
        number=${version#v}
        mike deploy {{ options }} --update-aliases --title "$number" "${number%.*}" latest
        mike set-default {{ options }} latest
    fi

# Which of the versions that are tested, `constraint-dependencies`, have newer ones.
newer:
    #!/usr/bin/env bash
    set -euo pipefail
    mkdir -p build
    sed -n '/^constraint-dependencies/,/^]/s/^    "\(.*==.*\)",$/\1/p' pyproject.toml | sort > build/tested.txt
    sed 's/==.*//' build/tested.txt | uv pip compile --no-config --quiet --no-header --no-annotate --no-deps \
        --python-version 3.11 - | sort > build/newest.txt
    if diff build/tested.txt build/newest.txt; then echo "All are the newest ones"; fi

# Whether each Python on each platform has a wheel of everything that `uv run pytest` installs, and the first and the last
# Python of what the examples install, whose versions may be others than those of `pyproject.toml`.
platforms:
    #!/usr/bin/env bash
    set -euo pipefail
    export MACOSX_DEPLOYMENT_TARGET=14.0  # the oldest macOS that torch has wheels for
    mkdir -p build
    uv export --quiet --no-hashes --no-emit-workspace --output-file build/dev.txt
    for example in {{ examples }}; do
        uv export --quiet --no-hashes --script examples/$example.py | grep -v "^-e " > build/$example.txt
    done
    for platform in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-pc-windows-msvc; do
        for python in {{ pythons }}; do
            for needed in dev $(case $python in {{ first_and_last }}) echo "{{ examples }}";; esac); do
                uv pip install --no-config --quiet --dry-run --no-deps --only-binary :all: --target build/none \
                    --python-platform $platform --python-version $python --requirements build/$needed.txt
            done
            echo "$platform has wheels for Python $python"
        done
    done

# Source distributions of all packages, and wheels that are built from these, in `dist`.
build:
    uv build --quiet --all-packages --clear --out-dir dist

# The source distributions can be installed, and what is installed imported.
sdists: build
    uv run --isolated --no-project $(printf -- "--with %s " dist/*.tar.gz) python -c \
        "import obscodec, obscodec_cupy, obscodec_rllib, obscodec_sb3, obscodec_torchrl; print(obscodec.RingBuffer.__name__)"

# Before a release: `dist` has what a tag would publish. A tag is vVERSION; without one, CHANGELOG.md may say Unreleased.
release-check tag="": build
    #!/usr/bin/env bash
    set -euo pipefail
    python3 .ci/release.py check {{ tag }}
    uv run --isolated --only-group release twine check --strict dist/*
    uv venv --quiet --clear build/release
    uv pip install --quiet --no-config --no-sources --python build/release dist/*.whl
    uv pip check --quiet --python build/release
    version=$(ls dist/obscodec-*.tar.gz | sed 's/.*obscodec-\(.*\)\.tar\.gz/\1/')
    cd build && release/bin/python ../.ci/smoke.py "$version"
    echo "dist can be released as $version"

# It is one environment that changes, with the kernels that numba has compiled in the checkout: of the same source.
# What an installation of one package can do: in an environment that has only its wheel and its dependencies, the examples
# of its docstrings, and of an adapter the tests that should notice all mutants.
alone: build _kernels _new_alone (_alone "obscodec-core" "obscodec" "[cli,numcodecs,zarr]" "cupy torch stable_baselines3 torchrl obscodec_cupy obscodec_sb3 obscodec_torchrl") (_alone "obscodec-cupy" "obscodec_cupy" "[cuda13]" "rich torch stable_baselines3 torchrl obscodec_sb3 obscodec_torchrl") (_alone "obscodec-sb3" "obscodec_sb3" "[contrib]" "rich cupy torchrl obscodec_cupy obscodec_torchrl") (_alone "obscodec-torchrl" "obscodec_torchrl" "" "rich cupy stable_baselines3 obscodec_cupy obscodec_sb3")

# All kernels of the core, compiled by several processes: tests that run at the same time would compile the same ones.
_kernels:
    uv run python -m obscodec warm

_new_alone:
    uv venv --quiet --clear build/alone

_alone folder module extras absent:
    #!/usr/bin/env bash
    set -euo pipefail
    export VIRTUAL_ENV=$PWD/build/alone
    for wheel in dist/obscodec-*.whl dist/{{ module }}-*.whl; do echo "./$wheel"; done | sort -u \
        | sed 's/\({{ module }}-.*\)/\1{{ extras }}/' > build/alone.in
    uv pip compile --quiet --no-sources --group packages/{{ folder }}/pyproject.toml:test build/alone.in \
        --output-file build/alone.txt
    uv pip sync --quiet build/alone.txt
    installed=$(build/alone/bin/python -c "import obscodec, pathlib; print(pathlib.Path(obscodec.__file__).parents[1])")
    (cd packages/obscodec-core/src && find obscodec -name "*.nb[ic]" -print0 | tar --null -cf - -T -) | tar -C "$installed" -xf -
    build/alone/bin/python .ci/alone.py {{ module }} {{ absent }}
    tests="packages/obscodec-core/tests/test_importing.py --ignore-glob=*/obscodec/torch/*"  # `oldest-core` runs its others
    [ {{ folder }} = obscodec-core ] || tests=$(python3 tests/mutants.py --ids packages/{{ folder }})
    build/alone/bin/python -m pytest {{ parallel }} $tests --pyargs {{ module }}

# The examples with few steps, two at a time: installing and most of training use one processor.
example:
    printf "%s\n" "shards.py --steps 1000" "two_processes.py --steps 500" "dqn_atari.py --steps 600" "cleanrl_dqn.py --steps 600 --n-envs 2 --n-step 3 --prioritized" \
        "envpool_dqn.py --steps 2560" "ppo_rollout.py --steps 1024 --rollout 64" "dreamer_sequences.py --steps 600" \
        "drq_mujoco.py --steps 200" "jax_dqn.py --steps 1000" "torchrl_dqn.py --steps 400" torchrl_epochs.py \
        "lerobot_wire.py --steps 60" "lerobot_buffer.py --steps 600 --rounds 20" "dreamer_chunks.py --steps 600 --rounds 5" \
        "agilerl_buffer.py --steps 600 --rounds 20" "minari_storage.py --steps 300" "stable_worldmodel_format.py --steps 400 --rounds 20" \
        | xargs -P 2 -I {} sh -c "uv run examples/{}"

# The tests that take less than two seconds, as the README says.
test:
    uv run pytest

# The other tests, but those that take minutes, need a GPU, or are of other projects.
slow:
    uv run pytest {{ parallel }} -m "slow and not long and not upstream and not gpu" $(git grep --untracked -l mark.slow -- "*/test_*.py")

# Each barrier of the GPU kernels, what newer cards than the oldest make of these kernels, the first run on a GPU,
# whether `obscodec warm` compiles all kernels that buffers call; failed allocations, full memory and forks with further codecs.
# Tests that take minutes, of what seldom changes.
long:
    uv run pytest -m "slow and long and not gpu"

# The first run on a machine with a GPU: what is exact, what is fast, what the tests and NVIDIA's tools find.
gpu-first *options:
    uv run benchmarks/gpu_first.py {{ options }}

# Further arguments are for `pip download`: what that machine lacks, such as `--python-version 3.12 lz4 zstandard`.
# A folder to carry to a machine without uv and network, where `python FOLDER/gpu_first.py` does the same as `gpu-first`.
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

# The GPU kernels compiled for each architecture that the package names; CI compiles for the oldest of the five.
architectures:
    ARCHITECTURES="75 80 90 100 120" uv run pytest packages/obscodec-cupy/tests/device/test_compiled_kernels.py

# Break chosen lines one by one, and see which test notices; all take half an hour, a part of a name chooses some.
mutants *parts:
    uv run tests/mutants.py {{ parts }}

# The tests that compare with the classes of Stable-Baselines3, with its oldest version that obscodec-sb3 supports.
oldest:
    uv run --isolated --no-project --with-editable ./packages/obscodec-core \
        --with-editable "./packages/obscodec-sb3[contrib]" \
        --with stable-baselines3==2.7.0 --with sb3-contrib==2.7.0 --with ale-py --with opencv-python-headless \
        --with hypothesis --with pytest-xdist pytest {{ parallel }} {{ brief }} \
        {{ prepend("packages/obscodec-sb3/tests/", with_stock_sb3) }}

# The tests that compare with the classes of TorchRL, with its oldest version that obscodec-torchrl supports.
oldest-torchrl:
    uv run --isolated --no-project --with-editable ./packages/obscodec-core --with-editable ./packages/obscodec-torchrl \
        --with torchrl==0.14.0 --with tensordict==0.14.3 --with ale-py --with gymnasium \
        --with opencv-python-headless --with hypothesis --with pytest-xdist pytest {{ parallel }} {{ brief }} \
        {{ prepend("packages/obscodec-torchrl/tests/", with_stock_torchrl) }}

# The tests of obscodec-rllib with the gymnasium that RLlib asks for.
stock-rllib:
    uv run --isolated --no-project --with-editable ./packages/obscodec-core --with-editable ./packages/obscodec-rllib \
        --with ray[rllib]==2.60.0 --with ale-py --with opencv-python-headless --with hypothesis --with pytest-xdist \
        pytest {{ parallel }} {{ brief }} packages/obscodec-rllib/tests

# What is essential in the core, with the oldest version of each package that it needs, on the oldest Python.
oldest-core: build
    #!/usr/bin/env bash
    set -euo pipefail
    uv pip compile --quiet --no-config --no-sources --resolution lowest-direct --python-version 3.11 --all-extras \
        packages/obscodec-core/pyproject.toml --output-file build/oldest.txt
    oldest() {
        uv run --no-config --isolated --no-project --python 3.11 --with-requirements build/oldest.txt \
            --with dist/obscodec-*.whl --with ale-py --with gymnasium --with hypothesis --with opencv-python-headless \
            --with pytest-xdist --with safetensors "$@"
    }
    export NUMBA_CACHE_DIR=$PWD/build/oldest  # for both calls
    oldest obscodec warm
    oldest pytest {{ parallel }} {{ brief }} {{ essence }}

# What is essential in the core, with the newest of `pythons` that is here or that uv can download.
newest-core: build
    #!/usr/bin/env bash
    set -euo pipefail
    for python in $(printf "%s\n" {{ pythons }} | tac); do
        if [ $python = 3.11 ]; then
            echo "SKIPPED: no Python newer than 3.11 is here, and uv can't download one; only the wheels were looked up"
        elif uv python find --quiet $python || UV_HTTP_RETRIES=1 uv python install --quiet $python 2> /dev/null; then
            echo "Python $python"
            uv run --isolated --no-project --python $python --with "$(echo dist/obscodec-*.whl)[cli]" --with ale-py \
                --with gymnasium --with hypothesis --with opencv-python-headless --with pytest-xdist --with safetensors \
                pytest {{ parallel }} {{ brief }} {{ essence }}
            break
        else
            echo "Python $python is not here, and uv can't download it"
        fi
    done

# The tests of Stable-Baselines3 and sb3-contrib with compressed buffers; prints how many blocks were encoded and decoded.
upstream *options:
    uv run pytest -m upstream tests -rP {{ options }}

# TorchRL's own tests with CompressedStorage; the checkout is of its repository at the installed version.
torchrl-suite checkout *options:
    uv run --package obscodec-torchrl --group suite python packages/obscodec-torchrl/tests/torchrl_suite.py {{ checkout }} \
        {{ options }}

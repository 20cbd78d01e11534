#!/bin/sh
# Downloads what the suite needs on a machine without network that has JAX, NumPy, SciPy, pandas,
# matplotlib and scikit-learn (x86_64 Linux). The wheels stay packed, because they are small so.
#
#     benchmarks/foreign/carry.sh carry/foreign           # here; PYTHON_VERSION=3.12 by default
#     benchmarks/foreign/carry.sh --unpack carry/foreign /tmp/foreign      # there
#     PYTHONPATH=src:/tmp/foreign python benchmarks/foreign/run.py
#
# pyribs is left out: it needs Numba, which is larger than all the others.
set -eu
if [ "$1" = --unpack ]; then
    for wheel in "$2"/*.whl; do python3 -m zipfile -e "$wheel" "$3"; done
    exit
fi
mkdir -p "$1"
pinned=$(grep -E '^(qdax|kheperax|brax|gymnasium|coco-experiment)' \
    "$(dirname "$0")/requirements.txt")
# gloam; flax (QDax); gymnasium; Brax.
pip download --quiet --no-deps --dest "$1" --only-binary=:all: \
    --python-version "${PYTHON_VERSION:-3.12}" --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 $pinned \
    equinox optax jaxtyping wadler_lindig typing_extensions absl-py \
    rich lazy-loader pygments markdown-it-py mdurl platformdirs filelock tyro docstring_parser typeguard \
    flax chex toolz msgpack PyYAML etils cloudpickle \
    farama-notifications box2d pygame-ce \
    mujoco mujoco-core mujoco-mjx jaxopt trimesh ml_collections
du -sh "$1"

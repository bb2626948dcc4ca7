"""Installs rlsearch. ``make setup`` does this and more; ``pip install -e .[dev,export]`` is the part this file knows.

Versions have lower bounds and no pins. pip picks the pair that belongs together: jax 0.10 with flax 0.12.8 on Python
3.11 (the last releases for it), jax 0.12 with flax 0.12.12 or newer on Python 3.12 and 3.13.
"""

from setuptools import find_packages, setup

# Lower bounds are releases that the tests have run with; numpy's is what the others ask for between them.
BASE = [
    "absl-py>=2.5",
    "flax>=0.12.8; python_version < '3.12'",  # older than 0.12.12 fails beside jax 0.11.1 and newer
    "flax>=0.12.12; python_version >= '3.12'",
    "gguf>=0.19",
    "grain>=0.2.18",
    "jax>=0.10.2",
    "jaxtyping>=0.3.11",
    "jinja2>=3.1.6",
    "ml-collections>=1.1",
    "numpy>=2",
    "optax>=0.2.8",
    "orbax-checkpoint>=0.12.8",
    "protobuf>=7.36",  # sentencepiece's own model files
    "safetensors>=0.8",
    "scann>=1.4.2; sys_platform == 'linux'",  # has wheels for Linux only, and none for Python 3.14
    "sentencepiece>=0.2.3",
    "tensorstore>=0.1.86",
    "tokenizers>=0.23",
    "tqdm>=4.70",
]

# Exports are written with the base packages; transformers, which needs no torch for it, shows that its AutoTokenizer
# reads them.
EXPORT = ["transformers>=5.24"]
NOTEBOOKS = ["ipykernel>=7.4", "matplotlib>=3.11", "nbclient>=0.11", "nbformat>=5.11"]
DEV = ["beartype>=0.23", "hypothesis>=6.170", "pytest>=9.2", "pytest-xdist>=3.8", "ruff>=0.17"]

setup(
    name="rlsearch",
    version="0.1.0",
    description="Reinforcement learning for language models that search, in JAX",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["rlsearch", "rlsearch.*"]),
    package_data={"rlsearch.report": ["assets/*"]},
    install_requires=BASE,
    extras_require={"tpu": ["jax[tpu]>=0.10.2"], "export": EXPORT, "notebooks": NOTEBOOKS, "dev": DEV},
)

"""What the code imports is what setup.py installs, and what setup.py installs has its licence named."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys

from tests.house.files import ROOT, imports, modules

OURS = {"rlsearch", "configs", "launch", "tests"}
BY_JAX = {"jaxlib", "scipy", "ml_dtypes"}  # jax itself cannot be installed without these


def lists() -> dict[str, list[str]]:
    """Each list of requirements in setup.py, by its name there: BASE, EXPORT, NOTEBOOKS, DEV."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    return {
        node.targets[0].id: [distribution(requirement) for requirement in ast.literal_eval(node.value)]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
    }


def distribution(requirement: str) -> str:
    """``Ml_Collections>=1.1; marker`` to ``ml-collections``."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def required(name: str) -> list[str]:
    """The distributions that a requirements file in third_party/ lists."""
    lines = (ROOT / "third_party" / name).read_text().splitlines()
    return [distribution(line) for line in lines if line and not line.startswith("#")]


def test_every_import_of_the_package_is_installed_with_it():
    providers = importlib.metadata.packages_distributions()
    allowed = set(lists()["BASE"])
    missing = []
    for path, tree in modules("rlsearch", "configs", "launch"):
        for line, name in imports(path, tree):
            top = name.split(".")[0]
            if top in OURS | BY_JAX or top in sys.stdlib_module_names:
                continue
            if not {distribution(provider) for provider in providers.get(top, [top])} & allowed:
                missing.append(f"{path}:{line}: {top} is not among BASE in setup.py")
    assert not missing


def test_every_requirement_has_its_licence_named():
    text = (ROOT / "third_party" / "README.md").read_text()
    named = {distribution(name) for name in re.findall(r"^\| `([\w.-]+)`", text, re.MULTILINE)}
    wanted = {name for group in lists().values() for name in group} | set(
        required("weights.txt") + required("peers.txt")
    )
    assert named == wanted


def test_data_files_are_packaged():
    code = (ROOT / "setup.py").read_text()
    for path in (ROOT / "rlsearch").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            package = ".".join(path.relative_to(ROOT).parts[:2])
            pattern = f'"{package}": ["{path.parent.name}/*"]'
            assert pattern in code, f"{path.relative_to(ROOT)} would be missing from an installed rlsearch"

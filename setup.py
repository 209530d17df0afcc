"""Packaging for blockrr; every fact comes from settings.ini."""

from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
parser = ConfigParser(delimiters=["="])
parser.read(here / "settings.ini", encoding="utf-8")
cfg = parser["DEFAULT"]

tables = cfg["tables_requirements"].split()  # learners for tables, without torch
learn = cfg["learn_requirements"].split()
study = learn + cfg["study_requirements"].split()  # the study's default learner is in the learning room
dev = study + cfg["dev_requirements"].split()
compare = tables + cfg["compare_requirements"].split()  # the study with cleanlab, tools/compare_cleanlab.py
readme = here / "README.md"

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=readme.read_text(encoding="utf-8") if readme.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    keywords=cfg["keywords"].split(),
    packages=find_packages(include=["blockrr", "blockrr.*"]),
    package_data={"blockrr": ["py.typed"]},
    zip_safe=False,
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    extras_require={
        "files": cfg["files_requirements"].split(),
        "tables": tables,
        "learn": learn,
        "study": study,
        "compare": compare,
        "dev": dev,
    },
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_name']}={cfg['lib_name']}._modidx:d"],
    },
)

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
statuses = ["Planning", "Pre-Alpha", "Alpha", "Beta", "Production/Stable", "Mature", "Inactive"]
status = int(cfg["status"])
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
    project_urls={
        "Documentation": cfg["doc_host"] + cfg["doc_baseurl"],
        "Source": cfg["git_url"],
        "Changes": cfg["git_url"] + "/blob/main/CHANGELOG.md",
        "Issues": cfg["git_url"] + "/issues",
    },
    keywords=cfg["keywords"].split(),
    classifiers=[
        f"Development Status :: {status} - {statuses[status - 1]}",
        "Intended Audience :: " + cfg["audience"],
        "Intended Audience :: Developers",
        "Natural Language :: " + cfg["language"],
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12, 13)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Security :: Cryptography",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["blockrr", "blockrr.*"]),
    package_data={"blockrr": ["py.typed"]},
    zip_safe=False,
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    extras_require={
        "files": cfg["files_requirements"].split(),
        "explore": cfg["explore_requirements"].split(),
        "tables": tables,
        "learn": learn,
        "study": study,
        "site": cfg["site_requirements"].split(),
        "compare": compare,
        "dev": dev,
    },
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_name']}={cfg['lib_name']}._modidx:d"],
    },
)

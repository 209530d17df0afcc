"""`python -m blockrr`: the command line from the source tree, nothing installed."""
from blockrr.study.cli import main

if __name__ == "__main__": raise SystemExit(main())

"""`python -m ginkgo` is the command `ginkgo`."""

from ginkgo.cli import main

if __name__ == "__main__":
    main()

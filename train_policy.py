"""Train a move network on kifu: `python train_policy.py records/train --run NAME`."""

from ginkgo.errors import run_main

if __name__ == "__main__":
    from ginkgo.training.cli import main

    run_main(lambda: main(heads=("policy",)))

"""Two examples for each verb, shown below its options by `--help`.

In: a verb. Out: commands with what they do. Each is a command that works after `make train`,
apart from the names of files.
"""

from __future__ import annotations

#: Verb: its examples, as (command, what it does).
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "analyze": (
        ("ginkgo analyze game.kif", "write analysis/game.kif with evaluations, and a graph"),
        ("ginkgo analyze ~/kifu --model runs/sample --time 1", "a second a position, own network"),
    ),
    "contribute": (
        ("ginkgo contribute", "play for the server that contribute.toml names"),
        ("ginkgo contribute --config second.toml", "another worker on the same machine"),
    ),
    "convert": (
        ("ginkgo convert ~/kifu -o records/mine", "records/mine/train, val and test"),
        ("ginkgo convert data/sample -o kifu --to csa", "the same games as CSA"),
    ),
    "coverage": (
        ("ginkgo coverage runs/sample", "games seen and epochs by source, and a picture"),
        ("ginkgo coverage runs/sample --json", "the same figures for a program"),
    ),
    "doctor": (
        ("ginkgo doctor", "what this machine can do, in about half a minute"),
        ("ginkgo doctor --data records/mine --network b10c192 --json", "own data and network"),
    ),
    "evaluate": (
        ("ginkgo evaluate runs/sample ~/other-kifu", "games that it was not trained on"),
        ("ginkgo evaluate pretrained data/sample --min-ply 30 --json", "the bundled network"),
    ),
    "export": (
        ("ginkgo export runs/sample --quantize int8", "runs/sample/model-int8.onnx, for play"),
        ("ginkgo export runs/sample --out sample.onnx", "an ONNX file for dlshogi"),
    ),
    "inspect": (
        ("ginkgo inspect ~/kifu", "a paragraph a game: plies, winner, ending, doubts"),
        ("ginkgo inspect game.kif --board --moves", "the final position and the moves too"),
    ),
    "match": (
        (
            "ginkgo match runs/sample pretrained --games 200",
            "Elo of the first over the second, with its interval",
        ),
        (
            "ginkgo match runs/sample pretrained --nodes 200 --sprt 0 20",
            "until it is decided: no better, or 20 Elo better",
        ),
    ),
    "play": (
        ("ginkgo play", "a board in the browser, against the bundled network"),
        ("ginkgo play runs/sample --seconds 3", "against a network of yours"),
    ),
    "rate": (
        ("ginkgo rate matches", "a list of all engines in the folder matches"),
        ("ginkgo rate matches --anchor pretrained --png ratings.png", "drawn over training"),
    ),
    "reinforce": (
        (
            "ginkgo reinforce --run small --minutes 90",
            "from random weights: games, training, match, and again",
        ),
        (
            "ginkgo reinforce --run on --from pretrained --gate sprt",
            "from a model; a new one plays on only if it is stronger",
        ),
    ),
    "selfplay": (
        ("ginkgo selfplay --model runs/sample --games 100 -o selfplay", "100 games, stored"),
        ("ginkgo selfplay --games 20 --gumbel 8 --playouts 32 -o selfplay", "a small search"),
    ),
    "serve": (
        ("ginkgo serve --add-user ann", "make an account and print its token"),
        ("ginkgo serve --port 8080", "collect games, hand out models, show a page"),
    ),
    "stats": (
        ("ginkgo stats records/mine", "games, positions, results and lengths"),
        ("ginkgo stats ~/kifu --plot kifu.png", "a picture of them as well"),
    ),
    "train": (
        (
            "ginkgo train records/mine/train --run first --heads policy value --epochs 4",
            "moves and win prediction, into runs/first",
        ),
        (
            "ginkgo train records/mine/train --run on --init pretrained --steps 2000",
            "from the weights of the bundled network",
        ),
    ),
    "usi": (
        ("ginkgo usi", "the bundled network, for a GUI"),
        ("ginkgo usi --model runs/sample --options USI_Hash=2048 BatchSize=16", "your network"),
    ),
}


def shown(verb: str) -> str:
    """The examples of a verb as `--help` prints them.

    >>> print(shown("play").splitlines()[1])
      ginkgo play                          a board in the browser, against the bundled network
    """
    examples = EXAMPLES.get(verb, ())
    width = max((len(command) for command, _ in examples), default=0)
    if width + 2 + max((len(text) for _, text in examples), default=0) > 96:
        lines = [f"  {command}\n      {text}" for command, text in examples]
    else:
        lines = [f"  {command:<{width}}  {text}" for command, text in examples]
    return "\n".join(["examples:", *lines])

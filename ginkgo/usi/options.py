"""The engine's options: what a GUI may set, within which bounds.

In: `setoption` lines. Out: checked values, and the `option` lines of the answer to `usi`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ginkgo.errors import GinkgoError


@dataclass(frozen=True)
class Option:
    """One option as the protocol describes it."""

    name: str
    kind: str
    """`check`, `spin`, `combo`, `string` or `filename`."""
    default: Any
    help: str
    """For docs/ENGINE.md, which is compared with it."""
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    reload: bool = False
    """Whether a change takes a new `isready` to have effect."""

    def line(self) -> str:
        """As the answer to `usi` names it."""
        default = self.default
        if self.kind == "check":
            default = "true" if default else "false"
        text = f"option name {self.name} type {self.kind} default {default or '<empty>'}"
        if self.kind == "spin":
            text = f"option name {self.name} type spin default {default}"
            text += f" min {self.low} max {self.high}"
        for choice in self.choices:
            text += f" var {choice}"
        return text

    def parse(self, text: str) -> Any:
        """The value that a `setoption` means.

        Raises:
            GinkgoError: not one of this option.
        """
        if self.kind == "check":
            if text.lower() not in ("true", "false"):
                raise GinkgoError(f"option {self.name}: {text!r}; expected true or false")
            return text.lower() == "true"
        if self.kind == "spin":
            try:
                value = int(text)
            except ValueError:
                raise GinkgoError(f"option {self.name}: {text!r}; expected a number") from None
            if not self.low <= value <= self.high:
                raise GinkgoError(
                    f"option {self.name}: {value}; expected {self.low} to {self.high}"
                )
            return value
        if self.kind == "combo":
            for choice in self.choices:
                if choice.lower() == text.lower():
                    return choice
            raise GinkgoError(
                f"option {self.name}: {text!r}; expected one of {', '.join(self.choices)}"
            )
        if text == "<empty>" or not text:
            return "" if self.kind == "filename" else self.default
        return text


BACKENDS = ("auto", "onnx", "int8", "keras")
RULES = ("CSARule27", "NoEnteringKing")

OPTIONS = (
    Option("Model", "string", "pretrained", "Network to play with: a model directory, an ONNX "
           "file in dlshogi's format, `VALUE+POLICY` for two single-head models, or `pretrained`, "
           "the one that comes with ginkgo.", reload=True),
    Option("Evaluator", "combo", "auto", "What runs a model directory: its ONNX file, its int8 "
           "ONNX file, or Keras; `auto` takes the fastest that is there.", choices=BACKENDS,
           reload=True),
    Option("Threads", "spin", 1, "Threads of the network.", 1, 256, reload=True),
    Option("BatchSize", "spin", 16, "Positions that the network gets at once. Large batches suit "
           "GPUs; on a processor 8 to 32. A search of N nodes takes N / 16 at most.", 1, 1024,
           reload=True),
    Option("USI_Hash", "spin", 1024, "Memory in MiB, for tree and evaluated positions.", 16,
           1 << 20, reload=True),
    Option("USI_Ponder", "check", False, "Whether the GUI may let the engine think in the "
           "opponent's time."),
    Option("NodesLimit", "spin", 0, "Simulations for a move at most; 0: no limit.", 0, 10**9),
    Option("MultiPV", "spin", 1, "Moves that are reported with their lines.", 1, 593),
    Option("PVInterval", "spin", 500, "Milliseconds between two reports.", 10, 60000),
    Option("ResignValue", "spin", 10, "Resign below this win rate, in thousandths; 0: never.", 0,
           1000),
    Option("DrawValueBlack", "spin", 500, "Worth of a draw to the engine when it plays Black, in "
           "thousandths of a win.", 0, 1000),
    Option("DrawValueWhite", "spin", 500, "The same when it plays White.", 0, 1000),
    Option("MaxMovesToDraw", "spin", 0, "Moves after which the game is drawn; 0: no limit.", 0,
           32000),
    Option("MaxPly", "spin", 512, "The same under another name, since GUIs differ: of the two "
           "the smaller one above 0 holds.", 0, 32000),
    Option("EnteringKingRule", "combo", "CSARule27", "Whether a win may be declared by the "
           "27-point rule.", choices=RULES),
    Option("NetworkDelay", "spin", 50, "Milliseconds that a move takes to reach the clock.", 0,
           10000),
    Option("TimeMargin", "spin", 50, "Milliseconds that are kept back besides.", 0, 10000),
    Option("BookFile", "filename", "", "Opening book in YaneuraOu's format (DB2016).",
           reload=True),
    Option("BookMoves", "spin", 30, "Plies from the start in which the book is asked.", 0, 1000),
    Option("BookRandom", "check", False, "Draw among the book's moves by how often they were "
           "played, instead of taking the one it values most."),
    Option("RootMateSearch", "spin", 200000, "Positions that a search for a forced mate looks at "
           "beside each search, in a process of its own; 0: none.", 0, 10**9),
    Option("PolicyTemperature", "spin", 140, "Hundredths; above 100 the network's favourites get "
           "less, other moves more of the search.", 10, 1000),
)  # fmt: skip

BY_NAME = {option.name.lower(): option for option in OPTIONS}


def parse_setoption(words: list[str]) -> tuple[Option, Any]:
    """The option and value of a `setoption` without its first word.

    Raises:
        GinkgoError: no such option, or no such value.
    """
    if not words or words[0] != "name":
        raise GinkgoError("setoption: expected name NAME value VALUE")
    end = words.index("value") if "value" in words else len(words)
    name = " ".join(words[1:end])
    option = BY_NAME.get(name.lower())
    if option is None:
        raise GinkgoError(f"no option {name!r}")
    return option, option.parse(" ".join(words[end + 1 :]))

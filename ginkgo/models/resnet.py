"""Residual networks by name, with a value head, a policy head, or both.

In: planes (n, 9, 9, channels), [file, rank]. Out: a dictionary of float32 logits: `value` (n, 2)
for [side to move wins, loses], `policy` (n, 2187) over labels.

The trunk is that of He et al., "Deep residual learning for image recognition" (2016), as AlphaGo
Zero used it (Silver et al. 2017, Methods: neural network architecture); squeeze-and-excitation
is that of Hu et al. (2018), section 3. Heads as DESIGN describes them: the policy is a 1×1
convolution to 27 planes plus a bias per label, the value a 1×1 convolution to 27 planes, dense
256, dense 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import keras
from keras import layers

from ginkgo.errors import GinkgoError
from ginkgo.features.labels import CLASSES

HEADS = ("policy", "value")


@dataclass(frozen=True)
class Network:
    """Shape of a network."""

    blocks: int
    filters: int
    activation: str = "silu"
    squeeze: int = 0
    """Reduction of squeeze-and-excitation, 0 for none."""

    @property
    def name(self) -> str:
        """As file names have it: `b10c192`, `b10c192se`."""
        return f"b{self.blocks}c{self.filters}{'se' if self.squeeze else ''}"


def parse_network(name: str, activation: str = "silu") -> Network:
    """A network by name.

    Raises:
        GinkgoError: the name is not of the form b<blocks>c<filters>[se].

    >>> parse_network("b10c192").filters
    192
    """
    match = re.fullmatch(r"b(\d+)c(\d+)(se)?", name)
    if match is None or int(match[1]) < 1 or int(match[2]) < 8:
        raise GinkgoError(f"network {name!r}: expected b<blocks>c<filters>[se], such as b5c64")
    return Network(int(match[1]), int(match[2]), activation, 8 if match[3] else 0)


@keras.saving.register_keras_serializable("ginkgo")
class LabelBias(layers.Layer):
    """Adds one learned number to each logit."""

    def build(self, input_shape) -> None:
        """Make the numbers, all zero."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, logits):
        """Add them to (n, labels) logits."""
        return logits + self.bias


def build_network(
    network: Network, channels: int, heads: Sequence[str], precision: str = "float32"
) -> keras.Model:
    """A Keras model with fresh weights.

    Args:
        channels: number of input planes.
        heads: some of `policy`, `value`.
        precision: `float32`, or `bfloat16` for what the trunk computes in; weights and outputs
            are float32 either way.

    Raises:
        GinkgoError: an unknown head.
    """
    unknown = set(heads) - set(HEADS)
    if unknown or not heads:
        raise GinkgoError(f"heads {' '.join(heads) or '(none)'}: expected some of policy value")
    with _computing_in(precision):
        return _network(network, channels, heads)


@contextmanager
def _computing_in(precision: str) -> Iterator[None]:
    """What layers made in here compute in; those made afterwards are none of its business."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else "float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _network(network: Network, channels: int, heads: Sequence[str]) -> keras.Model:
    inputs = keras.Input((9, 9, channels), name="planes")
    x = _conv_norm(inputs, network.filters, 3, "stem")
    x = layers.Activation(network.activation)(x)
    for block in range(1, network.blocks + 1):
        x = _residual_block(x, network, f"block{block}")
    outputs = {}
    if "policy" in heads:
        p = layers.Conv2D(CLASSES, 1, use_bias=False, name="policy_conv")(x)
        # (file, rank, class) -> label = 81 × class + square
        p = layers.Permute((3, 1, 2))(p)
        p = layers.Activation("linear", dtype="float32")(layers.Flatten()(p))
        outputs["policy"] = LabelBias(dtype="float32", name="policy")(p)
    if "value" in heads:
        v = _conv_norm(x, CLASSES, 1, "value_conv")
        v = layers.Flatten()(layers.Activation(network.activation)(v))
        v = layers.Dense(256, activation=network.activation, name="value_dense")(v)
        outputs["value"] = layers.Dense(2, dtype="float32", name="value")(v)
    return keras.Model(inputs, outputs, name=network.name)


def _conv_norm(x, filters: int, size: int, name: str):
    x = layers.Conv2D(
        filters, size, padding="same", use_bias=False, kernel_initializer="he_normal",
        name=name,
    )(x)  # fmt: skip
    return layers.BatchNormalization(momentum=0.99, epsilon=1e-3, name=f"{name}_norm")(x)


def _residual_block(x, network: Network, name: str):
    y = _conv_norm(x, network.filters, 3, f"{name}_conv1")
    y = layers.Activation(network.activation)(y)
    y = _conv_norm(y, network.filters, 3, f"{name}_conv2")
    if network.squeeze:
        s = layers.GlobalAveragePooling2D(keepdims=True)(y)
        reduced = network.filters // network.squeeze
        s = layers.Dense(reduced, network.activation, name=f"{name}_squeeze")(s)
        s = layers.Dense(network.filters, "sigmoid", name=f"{name}_excite")(s)
        y = layers.Multiply()([y, s])
    return layers.Activation(network.activation)(layers.Add()([x, y]))

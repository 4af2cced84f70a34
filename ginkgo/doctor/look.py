"""What is there: versions, processor, memory, GPU, places to write to.

In: nothing but the machine. Out: plain dictionaries. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import ginkgo

#: Packages that decide what ginkgo does.
PACKAGES = (
    *("tensorflow", "keras", "numpy", "numba", "cshogi", "rsshogi", "onnxruntime"),
    *("tyro", "tensorboard"),
)


def versions() -> dict[str, Any]:
    """Versions of ginkgo, Python and packages, and where they are not the pinned ones.

    Returns:
        `ginkgo`, `python`, `packages` (name to version, None where missing), `differences` (a
        sentence each).
    """
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        packages[name] = None
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    pins = _pins()
    differences = [
        f"{name} {version or 'missing'}: figures and tests are of {pins[name]}"
        for name, version in packages.items()
        if name in pins and version != pins[name]
    ]
    return {
        "ginkgo": ginkgo.__version__,
        "python": platform.python_version(),
        "packages": packages,
        "differences": differences,
    }


def _pins() -> dict[str, str]:
    """Versions that ginkgo was installed for; empty where it runs without an installation."""
    try:
        required = metadata.requires("ginkgo") or []
    except metadata.PackageNotFoundError:
        return {}
    pairs = (re.match(r"([\w.-]+)(?:\[.*\])?==([\w.+-]+)$", text) for text in required)
    return {pair[1]: pair[2] for pair in pairs if pair}


def machine() -> dict[str, Any]:
    """Processor, cores, memory, load."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": cores(),
        "cores_of_machine": os.cpu_count() or 1,
        "load": psutil.getloadavg()[0],
        "memory_gib": memory.total / 2**30,
        "memory_free_gib": memory.available / 2**30,
    }


def cores() -> int:
    """Cores that this process may use, a container's limit included."""
    usable = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        usable = min(usable, max(1, int(quota) // int(period)))  # «max» is no number
    return usable


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# --- GPU --------------------------------------------------------------------------------------


def gpu(device: dict[str, Any]) -> dict[str, Any]:
    """Which GPUs TensorFlow uses, or why none.

    Args:
        device: what `device.ask` found.

    Returns:
        `names`; `driver`, what the driver says is there; `why`, empty where there are names.
    """
    names, driver = device["gpus"], _driver()
    why = "" if names else _why_none(driver, device)
    return {"names": names, "driver": driver, "why": why}


def _driver() -> list[str]:
    """The GPUs that NVIDIA's driver knows, with its version."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        if done.returncode == 0:
            return [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return []


def _why_none(driver: list[str], device: dict[str, Any]) -> str:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if device["tensorflow"]["error"]:
        return "TensorFlow does not load"
    if not driver:
        if shutil.which("nvidia-smi") is None:
            return "no NVIDIA driver here (nvidia-smi is not found)"
        return "nvidia-smi sees none: is the driver loaded, was the container given the GPU?"
    if hidden is not None and not re.match(r"\d|GPU-|MIG-", hidden):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides all"
    if not device["tensorflow"]["cuda"]:
        return "this TensorFlow is built without CUDA (on Windows: use WSL 2)"
    said = next((line for line in device["log"] if re.search("dlopen|libcud|cuInit", line)), "")
    missing = f" ({said})" if said else ""
    return (
        f"TensorFlow finds no CUDA libraries{missing}: `make train GPU=1` installs them, or "
        f"pip install 'tensorflow[and-cuda]=={device['tensorflow']['version']}'"
    )


# --- places -----------------------------------------------------------------------------------


def places(runs: Path) -> list[dict[str, Any]]:
    """Where ginkgo writes.

    Returns:
        of each place `what`, `path`, `writable`, `error` (why not) and `free_gib` (None: unknown).
    """
    asked = [("runs", runs), ("temporary files", Path(tempfile.gettempdir()))]
    if platform.system() == "Linux":
        # Readers hand positions over through it; containers have 64 MiB unless told otherwise.
        asked.append(("shared memory", Path("/dev/shm")))
    return [_place(what, path) for what, path in asked]


def _place(what: str, path: Path) -> dict[str, Any]:
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    error, free = "", None
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".ginkgo-"):
            pass
    except OSError as caught:
        error = caught.strerror or str(caught)
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(there).free / 2**30
    return {
        "what": what,
        "path": str(path),
        "writable": not error,
        "error": error,
        "free_gib": free,
    }

"""Reads and writes files of echoes with numpy and the package sigmf alone.

    python echo_files.py check DIRECTORY    validates node-0.sigmf-meta, and compares its samples with those of node-0.npz
    python echo_files.py rewrite DIRECTORY  writes the frames of node-N.npz as py-N.npz (Fortran order), cz-N.npz (compressed),
                                            time-N.npz (samples in time) and with sigmf as py-N.sigmf-meta and archive-N.sigmf
"""

import json
import pathlib
import sys

import numpy as np
import sigmf
from sigmf import SigMFFile


def check(folder):
    metadata = sigmf.fromfile(str(folder / "sigmf" / "node-0.sigmf-meta"))
    metadata.validate()
    archive = np.load(folder / "npz" / "node-0.npz")
    frames, sensors, subcarriers = archive["echoes"].shape
    samples = metadata.read_samples()
    if samples.ndim == 1:
        samples = samples.reshape(-1, sensors)
    samples = samples.reshape(frames, subcarriers, sensors).transpose(0, 2, 1)
    # The package reads single precision; the file has double.
    equal = (samples == archive["echoes"].astype(samples.dtype)).all()
    exact = np.fromfile(folder / "sigmf" / "node-0.sigmf-data", "<c16").reshape(frames, subcarriers, sensors)
    print(json.dumps({
        "frames": frames, "sensors": sensors, "subcarriers": subcarriers,
        "channels": metadata.get_global_field("core:num_channels"),
        "equal": bool(equal and (exact.transpose(0, 2, 1) == archive["echoes"]).all()),
        "numbers": archive["frame"].tolist(), "domain": str(archive["domain"]), "node": int(archive["node"]),
        "step_ns": int(archive["time_ns"][1] - archive["time_ns"][0])}))


def rewrite(folder):
    for path in sorted((folder / "npz").glob("node-*.npz")):
        node = int(path.stem.split("-")[1])
        arrays = dict(np.load(path))
        echoes = arrays["echoes"]
        _, sensors, subcarriers = echoes.shape
        np.savez(folder / f"py-{node}.npz", **{**arrays, "echoes": np.asfortranarray(echoes)})
        np.savez_compressed(folder / f"cz-{node}.npz", **arrays)
        # Subcarrier i is at (i - L/2) W / L, sample n at n / W: an inverse DFT with alternating signs.
        in_time = np.fft.ifft(echoes, norm="ortho") * (-1.0) ** np.arange(subcarriers)
        np.savez(folder / f"time-{node}.npz", **{**arrays, "echoes": in_time, "domain": "time"})
        data = folder / f"py-{node}.sigmf-data"
        echoes.transpose(0, 2, 1).tofile(data)
        metadata = SigMFFile(data_file=str(data), global_info={
            "core:datatype": "cf64_le", "core:num_channels": sensors, "core:sample_rate": float(arrays["sample_rate_hz"]),
            "core:extensions": [{"name": "hyloc", "version": "1.0.0", "optional": False}],
            "hyloc:node": node, "hyloc:run": int(arrays["run"]), "hyloc:subcarriers": subcarriers})
        metadata.add_capture(0, metadata={"hyloc:frame": int(arrays["frame"][0])})
        metadata.validate()
        metadata.tofile(str(folder / f"py-{node}.sigmf-meta"))
        metadata.archive(str(folder / f"archive-{node}.sigmf"))


{"check": check, "rewrite": rewrite}[sys.argv[1]](pathlib.Path(sys.argv[2]))

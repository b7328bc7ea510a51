"""Pushes echoes of its own into the nodes of a pipeline and prints the fixes, without any code of hyloc.

Needs grpcio, grpcio-tools and numpy, the two .proto files, and the site as `hyloc scenario export` writes it:

    python push_echoes.py PROTO_DIRECTORY SITE_NPZ FUSION_ADDRESS NODE_ADDRESS...

The echoes are those of a target that moves through the coverage area. Each fix is printed as one line of JSON beside the position
that its echoes were made for.
"""

import json
import pathlib
import queue
import secrets
import sys
import tempfile
import threading
import time

import grpc
import numpy as np
from grpc_tools import protoc

FRAMES = 12
SPEED_OF_LIGHT_M_S = 299_792_458.0


def generate(folder):
    """Makes the modules of the two .proto files and imports them."""
    out = tempfile.mkdtemp()
    names = ["hyloc/v1/fusion.proto", "hyloc/v1/echoes.proto"]
    if protoc.main(["", f"-I{folder}", f"--python_out={out}", f"--grpc_python_out={out}", *names]):
        sys.exit("the .proto files cannot be compiled")
    # As packages they come before an installed one of the same name.
    for package in ["hyloc", "hyloc/v1"]:
        pathlib.Path(out, package, "__init__.py").touch()
    sys.path.insert(0, out)


def response(offsets_m, centre_m, target_m, wavelength_m):
    """What elements at these offsets add to the phase of a plane wave between the centre and the target."""
    direction = (target_m - centre_m) / np.linalg.norm(target_m - centre_m)
    return np.exp(2j * np.pi * offsets_m @ direction / wavelength_m)


def echo(site, l, count, target_m, rng):
    """What the sensors of IRS l receive of a target of one square metre: M x L, with noise."""
    wavelength_m, frequencies_hz = site["wavelength_m"], site["frequencies_hz"]
    sensors = response(site[f"sensor_offsets_m_{l}"], site[f"position_m_{l}"], target_m, wavelength_m)
    shape = (len(sensors), len(frequencies_hz))
    noise = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    received = np.sqrt(site["noise_power_w"] / 2) * noise
    distance_l_m = np.linalg.norm(target_m - site[f"position_m_{l}"])
    for k in range(count):
        distance_k_m = np.linalg.norm(target_m - site[f"position_m_{k}"])
        gain = np.sqrt(wavelength_m**2 / (64 * np.pi**3)) / (distance_l_m * distance_k_m)
        phase = np.exp(2j * np.pi * rng.random())
        elements = response(site[f"element_offsets_m_{k}"], site[f"position_m_{k}"], target_m, wavelength_m)
        own = site[f"subcarriers_{k}"].astype(int)
        symbols = elements @ site[f"reflected_signal_{k}"] @ site[f"codes_{k}"]
        delay_s = (distance_l_m + distance_k_m) / SPEED_OF_LIGHT_M_S
        turned = symbols * np.exp(-2j * np.pi * frequencies_hz[own] * delay_s)
        received[:, own] += gain * phase * np.outer(sensors, turned)
    return received


def push(stub, pb, run, make):
    """Pushes all frames into one node; returns how many it has processed."""
    layout = stub.Describe(pb.DescribeEchoesRequest())
    acknowledged = queue.Queue()

    def requests():
        yield pb.PushEchoesRequest(hello=pb.PushHello(
            version=1, name="push_echoes.py", run=run, node=layout.node, site_sha256=layout.site_sha256,
            sensors=layout.sensors, subcarriers=layout.subcarriers))
        # The welcome says where to continue.
        received = acknowledged.get()
        for n in range(received, FRAMES):
            samples = make(layout.node, n)
            yield pb.PushEchoesRequest(frame=pb.EchoFrame(
                sequence=n + 1, frame=n, intended_ns=time.time_ns(), format=pb.ECHO_SAMPLES_F64,
                samples=samples.astype("<c16").tobytes(order="F")))

    processed = 0
    for reply in stub.Push(requests()):
        kind = reply.WhichOneof("content")
        if kind == "welcome":
            acknowledged.put(reply.welcome.received)
        elif kind == "acknowledgement":
            processed = reply.acknowledgement.processed
        else:
            sys.exit(f"node {layout.node}: {reply}")
    return processed


def main(folder, site_file, fusion, *nodes):
    generate(folder)
    import hyloc.v1.echoes_pb2 as pb
    import hyloc.v1.echoes_pb2_grpc as echoes_grpc
    import hyloc.v1.fusion_pb2 as fusion_pb
    import hyloc.v1.fusion_pb2_grpc as fusion_grpc

    site = dict(np.load(site_file))
    share = np.linspace(0.2, 0.8, FRAMES)[:, None]
    targets_m = site["coverage_min_m"] + share * (site["coverage_max_m"] - site["coverage_min_m"])
    watch = fusion_grpc.FusionStub(grpc.insecure_channel(fusion)).Watch(fusion_pb.WatchRequest())
    watch.initial_metadata()

    def make(node, n):
        return echo(site, node, len(nodes), targets_m[n], np.random.default_rng([node, n]))

    stubs = [echoes_grpc.EchoesStub(grpc.insecure_channel(address)) for address in nodes]
    run = secrets.randbits(63)
    counts = [0] * len(nodes)

    def work(index):
        counts[index] = push(stubs[index], pb, run, make)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(nodes))]
    for thread in threads:
        thread.start()
    for _, fix in zip(range(FRAMES), watch):
        at = [fix.position.x_m, fix.position.y_m]
        print(json.dumps({
            "run": fix.run == run, "frame": fix.frame, "status": fix.status, "position_m": at,
            "target_m": targets_m[fix.frame][:2].tolist(), "covariance_m2": list(fix.covariance_m2)}), flush=True)
    for thread in threads:
        thread.join()
    print(json.dumps({"processed": counts}))


main(pathlib.Path(sys.argv[1]), *sys.argv[2:])

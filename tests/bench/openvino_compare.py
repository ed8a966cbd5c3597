"""Compares embag with OpenVINO's EmbeddingBagOffsets: one table of f32, sums, one thread each.

    openvino_compare.py EMBAG_BENCH [--rows N] [--dim N] [--bags N] [--indices-per-bag N]

EMBAG_BENCH is the path of embag-bench, whose figure for the same shape comes from its JSON output.
The script prints ns per row of both and their ratio. OpenVINO's figure is CPU time, which other
programs on the machine do not lengthen; embag-bench leaves out readings in which it was
interrupted. If OpenVINO's Python package is not installed, the script prints that and exits with
status 77.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

try:
    import numpy as np
    import openvino
    from openvino import opset15
except ImportError:
    print("openvino is not installed")
    sys.exit(77)

BATCHES = 64     # batches with different indices
READINGS = 15


def parse_arguments():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embag_bench")
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--bags", type=int, default=64)
    parser.add_argument("--indices-per-bag", type=int, default=20)
    return parser.parse_args()


def compile_model(table, shape):
    """Returns the compiled operation on a constant table, for one thread."""
    indices = opset15.parameter([shape.bags * shape.indices_per_bag], np.int64)
    offsets = opset15.constant(np.arange(shape.bags, dtype=np.int64) * shape.indices_per_bag)
    bags = opset15.embedding_bag_offsets(opset15.constant(table, shared_memory=True), indices,
                                         offsets)
    return openvino.Core().compile_model(openvino.Model([bags], [indices]), "CPU", {
        "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})


def measure_openvino(shape):
    """Returns OpenVINO's ns per row, the median over passes through the batches.

    Checks the results of the first batch.
    """
    rng = np.random.default_rng(1)
    table = rng.random((shape.rows, shape.dim), dtype=np.float32)
    rows = shape.bags * shape.indices_per_bag
    batches = rng.integers(0, shape.rows, (BATCHES, rows))
    request = compile_model(table, shape).create_infer_request()
    got = request.infer([batches[0]])[0]
    wanted = table[batches[0]].reshape(shape.bags, -1, shape.dim).sum(axis=1, dtype=np.float64)
    np.testing.assert_allclose(got, wanted, rtol=1e-4)
    times = []
    for _ in range(READINGS):
        start = time.process_time_ns()
        for batch in batches:
            request.infer([batch], share_inputs=True, share_outputs=True)
        times.append((time.process_time_ns() - start) / (BATCHES * rows))
    return statistics.median(times)


def measure_embag(shape):
    """Returns embag's ns per row, including the check pass, because OpenVINO checks indices too."""
    out = subprocess.run(
        [shape.embag_bench, "--json", "--no-peer", "--no-roofline", "--rows", str(shape.rows),
         "--dim", str(shape.dim), "--bags", str(shape.bags),
         "--indices-per-bag", str(shape.indices_per_bag)],
        check=True, capture_output=True, text=True).stdout
    cell = json.loads(out)
    return cell["ns_per_row"] + cell["check_ns_per_row"]


def main():
    """Prints both figures."""
    shape = parse_arguments()
    ours = measure_embag(shape)
    theirs = measure_openvino(shape)
    print(f"f32 dim {shape.dim}, {shape.rows} rows, {shape.bags} bags of {shape.indices_per_bag}, "
          f"one thread: embag {ours:.2f} ns/row, OpenVINO {openvino.__version__} {theirs:.2f}, "
          f"ratio {theirs / ours:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

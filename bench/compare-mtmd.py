#!/usr/bin/env python3
"""Time of a picture's rows through a tower on the CPU beside llama.cpp's mtmd, on the same files, in turns: on the clock, and of processors, which
a busy machine changes less (of one thread: `taskset -c 0`; several wait for each other by spinning). Of a row, for mtmd may cut a picture otherwise.
usage: compare-mtmd.py TOWER FOLDER SIDE [THREADS [TURNS]]
TOWER: build/bench/tower; FOLDER: model.gguf and mmproj-model.gguf (tower_shapes.py makes such); SIDE: pixels of a square picture.
needs: pip install llama-cpp-python (compiled for this machine, as bench/compare-peers does; a libmtmd from elsewhere: LLAMA_CPP_LIB_PATH and MTMD_CPP_LIB name its folder)"""
import ctypes, re, resource, subprocess, sys, time

import llama_cpp
from llama_cpp import mtmd_cpp as mtmd


TIMES = 10  # of bench/tower, the first one beside the nine that it tells of


class Peer:
    def __init__(self, folder, threads):
        llama_cpp.llama_backend_init()
        self.quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        mtmd.mtmd_log_set(self.quiet, ctypes.c_void_p(0)) if hasattr(mtmd, "mtmd_log_set") else None
        self.model = llama_cpp.llama_model_load_from_file(f"{folder}/model.gguf".encode(), llama_cpp.llama_model_default_params())
        p = mtmd.mtmd_context_params_default()
        p.use_gpu, p.n_threads, p.warmup, p.print_timings = False, threads, False, False
        self.context = mtmd.mtmd_init_from_file(f"{folder}/mmproj-model.gguf".encode(), self.model, p)
        if not self.context: sys.exit("mtmd does not open it")

    def encode(self, side):
        """rows of a picture, and milliseconds of the tower for each: on the clock, of processors"""
        rgb = bytes((i * 2654435761 >> 13) & 255 for i in range(side * side * 3))
        bitmap = mtmd.mtmd_bitmap_init(side, side, (ctypes.c_uint8 * len(rgb)).from_buffer_copy(rgb))
        chunks = mtmd.mtmd_input_chunks_init()
        marker = mtmd.mtmd_default_marker()
        words = mtmd.mtmd_input_text(marker, len(marker), True, True)
        bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
        if mtmd.mtmd_tokenize(self.context, chunks, ctypes.byref(words), bitmaps, 1): sys.exit("mtmd does not take the picture")
        rows, took, spent = 0, 0.0, 0.0
        for i in range(mtmd.mtmd_input_chunks_size(chunks)):
            chunk = mtmd.mtmd_input_chunks_get(chunks, i)
            if mtmd.mtmd_input_chunk_get_type(chunk) != mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE: continue
            begin, cpu = time.perf_counter(), time.process_time()
            if mtmd.mtmd_encode_chunk(self.context, chunk): sys.exit("mtmd fails")
            took += time.perf_counter() - begin
            spent += time.process_time() - cpu
            rows += mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        mtmd.mtmd_input_chunks_free(chunks)
        mtmd.mtmd_bitmap_free(bitmap)
        return rows, 1e3 * took / rows, 1e3 * spent / rows


def own(program, folder, tokens):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    said = subprocess.run([program, f"{folder}/mmproj-model.gguf", "-", "cpu", str(tokens)], capture_output=True, text=True).stdout
    found = re.search(r"(\d+) tokens, (\d+) patches: ([\d.]+) ms", said)
    if not found: sys.exit(said)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return int(found[1]), float(found[3]) / int(found[1]), 1e3 * spent / TIMES / int(found[1])


def main():
    program, folder, side = sys.argv[1], sys.argv[2], int(sys.argv[3])
    threads, turns = int((sys.argv[4:] or ["2"])[0]), int((sys.argv[5:] or ["3"])[0])
    peer, theirs, ours = Peer(folder, threads), [], []
    for _ in range(turns):
        rows, *took = peer.encode(side)
        theirs.append(took)
        n, *took = own(program, folder, rows)
        ours.append(took)
        print(f"  mtmd {rows} rows, {theirs[-1][0]:.1f} ms each, {theirs[-1][1]:.1f} of processors; infer {n} rows, {ours[-1][0]:.1f} and {ours[-1][1]:.1f}", flush=True)
    for i, what in enumerate(("on the clock", "of processors")):
        a, b = (min(x[i] for x in all_) for all_ in (theirs, ours))
        print(f"{folder}, {what}: mtmd {a:.1f}, infer {b:.1f} ms a row: {a / b:.2f} times as fast")


main()

"""A PyTorch program that can be recorded: ``python torch_worker.py``. It prints its port; words on
stdin are obeyed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

import torch

import nbprof

PAUSE_S = 0.02
"""In each step."""
EXTRA = sys.argv[1:]

torch.set_num_threads(1)
model = torch.nn.Linear(32, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randint(0, 4, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
word, obeyed = ["train"], threading.Event()


def pause():
    time.sleep(PAUSE_S)


def train(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    pause()
    optimizer.step()


def infer(batch):
    with torch.no_grad():
        model(batch[0])
    pause()


def listen():
    for line in sys.stdin:
        obeyed.clear()
        word[0] = line.strip()
        obeyed.wait()
        print("is", word[0], flush=True)
    # Whoever started it has gone.
    os._exit(0)


def main():
    if "one-thread" in EXTRA:
        # As PyTorch before 2.7, which records only the thread that starts its profiler.
        from nbprof.capture.remote import torch_server

        torch_server.records_all_threads = lambda: False
    train(next(iter(loader)))
    port = nbprof.serve(0, token=os.environ.get("WORKER_TOKEN", ""))
    assert nbprof.serve(port) == nbprof.serve(0) == port
    print("port", port, flush=True)
    threading.Thread(target=listen, daemon=True).start()
    own = contextlib.ExitStack()
    while word[0] != "end":
        if word[0] == "profile" and not obeyed.is_set():
            own.enter_context(torch.profiler.profile())
        elif word[0] != "profile":
            own.close()
        obeyed.set()
        if word[0] in ("idle", "profile"):
            time.sleep(0.01)
            continue
        for batch in loader:
            (infer if word[0] == "infer" else train)(batch)
            if not obeyed.is_set():
                break
    obeyed.set()


main()

"""Trainings in PyTorch that tests record, and what recordings of them hold."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter


class Training:
    """A small training; knows between which times each of its steps ended, by the wall clock.

    Parameters
    ----------
    torch : module
    wait_s : float
        How long the next batch takes to come.
    """

    def __init__(self, torch, wait_s=0.02):
        self.torch = torch
        self.wait_s = wait_s
        self.model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.ends = []

    def backward(self):
        loss = self.model(self.torch.ones(8, 16)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        return loss

    def step(self):
        time.sleep(self.wait_s)
        self.backward()
        self.update()

    def update(self):
        began = time.perf_counter()
        self.optimizer.step()
        self.ends.append((began, time.perf_counter()))

    def run(self, steps):
        for _ in range(steps):
            self.step()

    def bounds_ms(self, first=0, last=-1):
        """At least and at most so many milliseconds lie between the ends of two steps, however busy
        the machine is.
        """
        slack_s = 1e-4
        least = self.ends[last][0] - self.ends[first][1] - slack_s
        most = self.ends[last][1] - self.ends[first][0] + slack_s
        return 1e3 * least, 1e3 * most


def document(recording):
    """What a recording's file says."""
    with gzip.open(recording.host_file) as file:
        return json.load(file)


def events(recording):
    """The events of a recording's file, as PyTorch and nbprof wrote them."""
    return document(recording)["traceEvents"]


def counts(recording):
    return Counter(event.get("name") for event in events(recording))


def steps(recording):
    """The steps in the file, in time order: (number, start µs, end µs, thread)."""
    found = [
        event
        for event in events(recording)
        if str(event.get("name", "")).startswith("ProfilerStep#")
    ]
    found.sort(key=lambda event: event["ts"])
    return [
        (int(event["name"].split("#")[1]), event["ts"], event["ts"] + event["dur"], event["tid"])
        for event in found
    ]

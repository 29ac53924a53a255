"""Many at once: clients that page through tiles of one profile on a Jupyter Server with the
extension, while others open theirs.

    python benchmarks/server.py [big.xplane.pb] [--clients 20] [--requests 40] [--think 0.1]

A real server runs in a process of its own. One client alone pages first, as somebody does who zooms
at eight places of the profile and pans: each request asks for all tiles of `--rows` rows in a
window of `--width` pixels, and the next one comes `--think` seconds (more or less) after the
answer. Then all clients do so at once, each along a way of its own, while copies of the same
profile are opened one after the other, each for the first time: the cache is off. Beside it all,
another process asks the server for `/api/status` every 50 ms: how long that takes is how long its
event loop lets others wait, and how busy the processors are.

Told are the latency of tiles (median, 95th percentile, longest), the ratio to one client alone, the
slowest client against the fastest, how long an opening takes alone and beside the others, and the
memory of the server and of its processes at its peak. Every answer is unpacked and has to be one.
Clients run in this process, on the same processors.

Without a file, a replica of a real recording with `--events` is made by `replicate.py` and kept in
`--folder`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from trace import percentile, quiet

import psutil
from decode import make, number, warm
from timeline import request, windows
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from nbprof.display import codec

TOKEN = "benchmark"
LOOK_S = 0.05
PING = """
import http.client, sys, time
line = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
while True:
    began = time.perf_counter()
    line.request("GET", "/api/status", headers={"Authorization": f"token {sys.argv[2]}"})
    line.getresponse().read()
    print(1000 * (time.perf_counter() - began), flush=True)
    time.sleep(0.05)
"""


@dataclass
class Server:
    """A Jupyter Server in a process of its own."""

    folder: Path
    process: subprocess.Popen[bytes]
    base: str

    @classmethod
    async def start(cls, folder: Path, log: Path) -> Server:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "jupyter_server",
            "--no-browser",
            "--allow-root",
            f"--port={port}",
        ]
        command += [
            f"--ServerApp.root_dir={folder}",
            f"--IdentityProvider.token={TOKEN}",
            "--ServerApp.jpserver_extensions=nbprof=True",
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=quiet(), cwd=folder)
        out_of = cls(folder, process, f"http://127.0.0.1:{port}/")
        for _ in range(600):
            try:
                await out_of.fetch("api/status")
            except (OSError, HTTPClientError):
                await asyncio.sleep(0.1)
            else:
                return out_of
        raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")

    async def fetch(self, path: str, body: object = None) -> bytes:
        """The body of an answer."""
        answer = await AsyncHTTPClient().fetch(
            self.base + path,
            method="GET" if body is None else "POST",
            body=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}"},
            request_timeout=600,
            connect_timeout=60,
        )
        return answer.body

    async def open(self, name: str) -> tuple[dict[str, Any], float]:
        """The head of an answer to `open`, and how many seconds it took."""
        began = time.perf_counter()
        body = await self.fetch("nbprof/api/open", {"path": name})
        while True:
            line, _, body = body.partition(b"\n")
            head = json.loads(line)
            if "message" in head:
                raise SystemExit(head["message"])
            if "bytes" in head:
                return head, time.perf_counter() - began

    async def ask(self, name: str, version: str, question: dict[str, Any]) -> dict[str, Any]:
        """An unpacked answer about a profile that is open."""
        answer = codec.unpack(
            await self.fetch(
                "nbprof/api/ask", {"path": name, "version": version, "request": question}
            )
        )
        if not answer["ok"]:
            raise SystemExit(answer["error"])
        return answer

    def memory(self) -> tuple[int, int]:
        """Bytes of the server, and of all its processes; what they share counts once for each."""
        try:
            own = psutil.Process(self.process.pid)
            return own.memory_info().rss, sum(
                child.memory_info().rss for child in own.children(recursive=True)
            )
        except psutil.Error:
            return 0, 0


@dataclass
class Beside:
    """What is watched while clients are at work."""

    server: Server
    pings: list[float] = field(default_factory=list)
    own: int = 0
    others: int = 0

    async def watch(self) -> None:
        while True:
            own, others = self.server.memory()
            self.own, self.others = max(self.own, own), max(self.others, others)
            await asyncio.sleep(LOOK_S)


async def client(
    server: Server, name: str, version: str, ways: list[dict[str, Any]], think: float, seed: int
) -> list[float]:
    """The latencies, ms, of one who pages."""
    chance = random.Random(seed)
    out = []
    for question in ways:
        await asyncio.sleep(think * chance.uniform(0.5, 1.5))
        began = time.perf_counter()
        await server.ask(name, version, question)
        out.append(1000 * (time.perf_counter() - began))
    return out


def way(
    rows: list[tuple[int, int]], span: float, width: int, count: int, seed: int
) -> list[dict[str, Any]]:
    """So many requests of one who begins somewhere else."""
    every = list(windows(span, width))
    start = random.Random(seed).randrange(len(every))
    return [request(rows, *every[(start + i) % len(every)], width) for i in range(count)]


async def measured(server: Server, work: Any) -> tuple[Any, Beside]:
    beside = Beside(server)
    watch = asyncio.create_task(beside.watch())
    command = [sys.executable, "-c", PING, server.base.rpartition(":")[2].rstrip("/"), TOKEN]
    with tempfile.TemporaryFile() as told, subprocess.Popen(command, stdout=told) as pinger:
        try:
            return await work, beside
        finally:
            watch.cancel()
            pinger.terminate()
            pinger.wait()
            told.seek(0)
            beside.pings += [
                float(text)
                for text in told.read().decode().splitlines(keepends=True)
                if text.endswith("\n")
            ]


def line(told: list[float]) -> str:
    return (
        f"median {statistics.median(told):,.0f}, 95 % within {percentile(told, 95):,.0f}, longest"
        f" {max(told):,.0f} ms"
    )


def sizes(found: list[int]) -> str:
    return ", ".join(f"{count / 1e6:,.0f}" for count in found) + " MB"


async def run(path: Path, given: argparse.Namespace) -> list[str]:
    AsyncHTTPClient.configure(
        "tornado.simple_httpclient.SimpleAsyncHTTPClient", max_clients=1000, max_body_size=1 << 30
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        folder, copies = (
            Path(scratch) / "root",
            [f"copy{i}{''.join(path.suffixes[-2:])}" for i in range(100)],
        )
        folder.mkdir()
        shutil.copyfile(path, folder / path.name)
        for copy in copies:
            os.link(folder / path.name, folder / copy)
        warm(folder / path.name)
        server = await Server.start(folder, Path(scratch) / "log")
        try:
            return await all_of_it(server, path.name, copies, given)
        finally:
            server.process.terminate()
            server.process.wait()


async def all_of_it(
    server: Server, name: str, copies: list[str], given: argparse.Namespace
) -> list[str]:
    _, rest = await measured(server, asyncio.sleep(3))
    head, first_s = await server.open(name)
    version = head["version"]
    told = await server.ask(name, version, {"ask": "open"})
    lanes = [lane for lane in told["lanes"] if lane["kind"] != "counter"]
    rows = [
        (int(lane["id"]), depth)
        for lane in lanes
        for depth in range(max(int(lane.get("depths") or 1), 1))
    ][: given.rows]
    span = float(told["end_ns"])
    await server.ask(name, version, way(rows, span, given.width, 1, 0)[0])

    def ways(seed: int) -> list[dict[str, Any]]:
        return way(rows, span, given.width, given.requests, seed)

    alone, beside_one = await measured(
        server, client(server, name, version, ways(0), given.think, 0)
    )
    opened: list[float] = []

    async def openings() -> None:
        for copy in copies:
            opened.append((await server.open(copy))[1])

    async def together() -> list[list[float]]:
        opening = asyncio.create_task(openings())
        try:
            return await asyncio.gather(
                *(
                    client(server, name, version, ways(seed), given.think, seed)
                    for seed in range(1, given.clients + 1)
                )
            )
        finally:
            opening.cancel()

    began = time.perf_counter()
    many, beside_many = await measured(server, together())
    took = time.perf_counter() - began
    each = [percentile(one, 95) for one in many]
    flat = [ms for one in many for ms in one]
    watched = (rest, beside_one, beside_many)
    more = f"{statistics.median(flat) / statistics.median(alone):.1f} times the median"
    worst = f"{percentile(flat, 95) / percentile(alone, 95):.1f} times the 95th percentile"
    beside = (
        f"beside all clients {statistics.median(opened):.1f} s ({len(opened)} of them)"
        if opened
        else "none ended beside all clients"
    )
    return [
        (
            f"{name}: {int(told['total']):,} events, {len(rows)} rows in {given.width} px,"
            f" {given.think:g} s between requests"
        ),
        f"  one client alone, {len(alone)} requests: {line(alone)}",
        f"  {len(many)} clients, {len(flat):,} requests in {took:.1f} s: {line(flat)}",
        (
            f"    {more} and {worst} of one alone; 95th percentiles of single clients from"
            f" {min(each):,.0f} to {max(each):,.0f} ms"
        ),
        f"  an opening: {first_s:.1f} s alone, {beside}",
        f"  /api/status at rest: {line(rest.pings)}",
        f"    with one client: {line(beside_one.pings)}",
        f"    with all and openings: {line(beside_many.pings)}",
        f"  memory of the server at rest, with one, with all: {sizes([b.own for b in watched])}",
        f"    of its processes: {sizes([b.others for b in watched])}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input", nargs="?", type=Path)
    parser.add_argument("--seed", default="tf", help="tf, jax, or a file, where no input is given")
    parser.add_argument("--events", default="1M")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--requests", type=int, default=40, help="of each client")
    parser.add_argument(
        "--think", type=float, default=0.1, help="seconds between an answer and the next request"
    )
    parser.add_argument("--width", type=int, default=1400)
    parser.add_argument("--rows", type=int, default=33)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--out", type=Path, help="also writes the lines here")
    given = parser.parse_args()
    path = given.input
    if path is None:
        path = (
            given.folder / f"xspace-{Path(given.seed).name.split('.')[0]}-{given.events}.xplane.pb"
        )
        make(path, given.seed, number(given.events), sys.executable)
    # The last opening is left in its midst.
    logging.disable(logging.ERROR)
    lines = asyncio.run(run(path, given))
    print("\n".join(lines), flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""The compiled programs of a profile by ident, each read when one of its ops is first needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from nbprof.core.errors import ReadError
from nbprof.core.receipt import Note
from nbprof.core.trace import Module
from nbprof.hlo import category as hlo_category
from nbprof.hlo import notes
from nbprof.hlo.cost import Cost, Costs
from nbprof.hlo.hlo import Instruction, Program

_MOST_NOTES = 3


class Programs:
    """Looks ops up in the compiled programs of a trace.

    A program is identified by its host and its ident, a 64-bit number that some recorders write
    signed and others unsigned.

    Parameters
    ----------
    modules : iterable of Module
    hosts : sequence of str
    """

    def __init__(self, modules: Iterable[Module], hosts: Sequence[str]) -> None:
        self._modules: dict[tuple[int, int], Module] = {}
        self._clashes: list[str] = []
        for module in modules:
            first = self._modules.setdefault((module.host, _signed(module.ident)), module)
            if first.data != module.data:
                self._clashes.append(module.name)
        self._homes = _homes(self._modules)
        self._titles = _titles(self._modules, self._homes, hosts)
        self._read: dict[tuple[int, int], Program | None] = {}
        self._costs: dict[tuple[int, int], Costs] = {}
        self._damaged: dict[str, str] = {}
        self._absent: set[tuple[int, int]] = set()

    def program(self, host: int, ident: int) -> Program | None:
        """A program; None if it is not in the file or damaged."""
        key = (host, _signed(ident))
        module = self._modules.get(key)
        if module is None:
            self._absent.add(key)
            return None
        if not module.read:
            return None
        if key not in self._read:
            try:
                program = Program(module.data)
                # Reads names and idents, so that later look-ups cannot fail.
                program.index_of_name(""), program.index_of_ident(0)
                self._read[key] = program
            except ReadError as error:
                self._damage(module.name, error)
                self._read[key] = None
        return self._read[key]

    def find(self, host: int, ident: int, op: str) -> Instruction | None:
        """An op of a program; None if either is unknown."""
        program = self.program(host, ident)
        if program is None:
            return None
        try:
            return program.find(op)
        except ReadError as error:
            self._damage(program.name, error)
            return None

    def cost(self, host: int, ident: int, op: str) -> Cost | None:
        """The cost of one run of an op; None if the op is unknown."""
        costs = self.costs(host, ident)
        if costs is None:
            return None
        return costs.of_name(op)

    def costs(self, host: int, ident: int) -> Costs | None:
        """The costs of the ops of a program; None if the program is unknown."""
        key = (host, _signed(ident))
        if key not in self._costs:
            program = self.program(host, ident)
            if program is None:
                return None
            self._costs[key] = Costs(program)
        return self._costs[key]

    def name(self, host: int, ident: int) -> str:
        """The name of a program with its ident, `jit_train_step(8)`; '' if it is not known."""
        return self._titles.get(self.home(host, ident), {}).get(_signed(ident), "")

    def home(self, host: int, ident: int) -> int:
        """The first host that has the same program under this ident; -1 if it is not in the file.

        Hosts that run different programs may use the same idents for them.
        """
        return self._homes.get((host, _signed(ident)), -1)

    def digest(self, host: int, ident: int) -> str:
        """A digest of the content of a program; '' if it is not in the file."""
        home = self.home(host, ident)
        if home < 0:
            return ""
        return digest(self._modules[home, _signed(ident)])

    def category(self, host: int, ident: int, op: str) -> str:
        """The category of an op; '' if unknown."""
        program = self.program(host, ident)
        if program is None:
            return ""
        index = program.index_of_name(op)
        if index is None:
            return ""
        return hlo_category.category(program, index)

    def notes(self) -> list[Note]:
        """Receipt notes about programs that could not be read."""
        lines = []
        for name, reason in list(self._damaged.items())[:_MOST_NOTES]:
            lines.append(notes.damaged_program(name, reason))
        more = len(self._damaged) - _MOST_NOTES
        if more > 0:
            lines.append(notes.more_damaged_programs(more))
        if self._clashes:
            lines.append(notes.equal_program_ids(self._clashes))
        if self._absent:
            lines.append(notes.missing_programs(len(self._absent)))
        return lines

    def _damage(self, name: str, error: ReadError) -> None:
        self._damaged.setdefault(name or "without a name", str(error).rstrip("."))


def digest(module: Module) -> str:
    """A digest of the content of a program."""
    return hashlib.blake2b(module.data, digest_size=16).hexdigest()


def _homes(modules: dict[tuple[int, int], Module]) -> dict[tuple[int, int], int]:
    """By host and ident, the first host that has the same program under that ident."""
    first: dict[tuple[int, bytes], int] = {}
    homes = {}
    for (host, ident), module in sorted(modules.items(), key=lambda item: item[0]):
        homes[host, ident] = first.setdefault((ident, module.data), host)
    return homes


def _titles(
    modules: dict[tuple[int, int], Module], homes: dict[tuple[int, int], int], hosts: Sequence[str]
) -> dict[int, dict[int, str]]:
    """Names of programs by home and ident; different ones of equal name have that of their host."""
    taken: set[str] = set()
    titles: dict[int, dict[int, str]] = {}
    for (host, ident), home in homes.items():
        if home == host:
            title = modules[host, ident].title
            if title in taken and host < len(hosts):
                title = f"{title} on {hosts[host]}"
            taken.add(title)
            titles.setdefault(home, {})[ident] = title
    return titles


def _signed(ident: int) -> int:
    ident &= 0xFFFFFFFFFFFFFFFF
    return ident - (1 << 64) if ident & (1 << 63) else ident

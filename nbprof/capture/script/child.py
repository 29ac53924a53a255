"""Run a program that a recorded script started, as ``nbprof run`` does: ``python -m`` this module.

Its arguments are the program and those of the program; the environment says how it is recorded.
"""

from __future__ import annotations

import sys

from nbprof.capture.script import program
from nbprof.capture.script.children import Plan
from nbprof.capture.script.run import FAILED, End, Script, ended_by
from nbprof.core.errors import CaptureError


def main(words: list[str]) -> End:
    """Run and record a program: a script, or ``-m`` and a module.

    Parameters
    ----------
    words : list of str
        The program and its arguments.
    """
    try:
        if words[0] == "-m":
            main_program = program.module(words[1], words[2:])
        else:
            main_program = program.script(words[0], words[1:])
    except CaptureError as error:
        sys.stderr.write(f"{sys.executable}: {error}\n")
        return End(FAILED)
    except Exception as error:
        return ended_by(error)
    try:
        plan = Plan.inherited()
        main_program.label = plan.label
        recorder = Script(
            main_program, plan.recording(), None, quiet=plan.quiet, member=plan.child()
        )
    except Exception:
        # Too many, or no disk: the program runs as it would.
        return _alone(main_program)
    return recorder.run()


def _alone(main_program: program.Program) -> End:
    try:
        main_program.run(main_program.code())
    except BaseException as error:
        return ended_by(error)
    return End(0)


if __name__ == "__main__":
    end = main(sys.argv[1:])
    if end.interrupted:
        # Its traceback is on the screen already.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    sys.exit(end.code)

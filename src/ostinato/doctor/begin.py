"""Begins a process of ours: `python begin.py package.module:function word…`.

Unlike with `python -m`, neither our imports nor torch's find what lies in the current folder, such
as a `json.py`; and unlike with `python -c`, the frame at the bottom of the stack is known for ours.

While we import, ^C ends this process as it ends any other, without a traceback of our lines. What
is begun calls `interrupts_as_python_has_them` before it runs anything of the program's.
"""

import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [place for place in sys.path if place != _here]

if __name__ == "__main__":
    from importlib import import_module

    module, _, function = sys.argv[1].partition(":")
    del sys.argv[1]
    getattr(import_module(module), function)()

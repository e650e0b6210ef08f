"""The breaker: sheds load while the promised latency is missed, lowest priority first.

Nothing here knows a clock, a socket or a queue: who calls says what time it is. A front end asks
`admits` before it lets a request in, and tells `observe` every latency that a client saw.

A promise is such as "95 of 100 first tokens of short prompts within 400 ms", so 5 of 100 may be
late: that is the error budget. The burn rate is the share that was late over the share that may be;
above 1 the promise is broken. It is read in two windows, as site reliability engineers do: the long
one says that the breach matters, the short one that it is still there.

    closed      all are let in. The long window burns for a while, and the short one now: open
    open        sheds, a rung more while the short window burns. Calm for a while: recovering
    recovering  lets back in, rung by rung. It burns again: open, with more patience than before.
                All are in, and it stays calm: closed

Smaller priorities are sooner, as in the engine: the largest number is shed first.
"""

from ostinato.serve.slo.breaker import Breaker, Burn, Change, State
from ostinato.serve.slo.declared import declared
from ostinato.serve.slo.objectives import LENGTH_CLASSES, Objectives, Rule, length_class

__all__ = [
    "LENGTH_CLASSES",
    "Breaker",
    "Burn",
    "Change",
    "Objectives",
    "Rule",
    "State",
    "declared",
    "length_class",
]

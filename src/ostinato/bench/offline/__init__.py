"""The engine under traffic, in process: a trace's arrivals, and prompts that share beginnings.

`arrivals`: five minutes of the Azure chat trace, replayed faster so that the load is near what the
engine can take; goodput and the time per token in the tail are reported. `prefixes`: the Mooncake
trace with every length divided by 32, so that its blocks of 512 tokens are pages of 16; how many
prompt tokens the prefix cache finds is compared with the trace's own ideal.
"""

from ostinato.bench.offline.results import OfflineResult, claims_of
from ostinato.bench.offline.run import OfflineOptions, run_offline
from ostinato.bench.offline.tables import as_text

__all__ = ["OfflineOptions", "OfflineResult", "as_text", "claims_of", "run_offline"]

"""Many machines: a server that collects games, workers that play them, a trainer that publishes.

In: games of workers, over HTTP, none of it believed before it is checked (`ginkgo serve`). Out: a
store of games that `ginkgo reinforce --server URL` trains on; the models that it publishes go to
the workers (`ginkgo contribute`).

The parts: `config` (options), `database` and `storage` (what the server keeps), `accounts` (who
may do what), `upload` and `validate` (from bytes of a stranger to games that are right), `intake`
(storing them once), `work` (what is to be played), `matches` (rating games), `app` (HTTP),
`serve` (the verb); `client` (HTTP from the other side), `spool` and `contribute` (the worker),
`reinforce` (the trainer).
"""

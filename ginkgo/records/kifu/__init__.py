"""Kifu of every format: what people have on their disks, read into `Game`s.

In: files, archives or standard input. Out: `Game`s that were replayed by the rules, and a `Refusal`
with file, line and reason for whatever cannot be used.

`stream.raw_games` cuts a file into games without reading them; `stream.read_raw` reads one. The
formats have a module each (`csa`, `kif`, `ki2`, `jkf`, `usi`, `packed`, `hcpe3`), the rules of who
has won stand in `result`.
"""

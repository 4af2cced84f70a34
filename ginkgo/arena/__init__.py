"""Matches between engines, and ratings out of many matches.

In: two engines, ginkgo's networks or USI programs. Out: how much stronger the first one is, with
an interval, a sequential test, the games as kifu; out of several matches a rating list.
"""

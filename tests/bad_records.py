"""A record as it should be, and one for each kind of damage, with what is said of it."""

GOOD = b"lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1,80,7g7f,b"
BAD_RECORDS = {
    b"lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNX b - 1,80,7g7f,b": "bad SFEN",
    b"lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1 b - 1,80,7g7f,b": "bad SFEN",
    b"lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b 3Q 1,80,7g7f,b": "bad SFEN",
    b"lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL x - 1,80,7g7f,b": "bad SFEN",
    b"lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b,80,7g7f,b": "bad SFEN",
    b"9/9/9/9/9/9/9/9/9 b - 1,80,7g7f,b": "bad SFEN",
    b"4k4/9/9/9/4R4/9/9/9/4K4 b - 1,80,5e5d,b": "bad SFEN",
    b"9/9/9/4k4/4K4/9/9/9/9 b - 1,80,5e4e,b": "bad SFEN",
    b".8/9/9/4k4/9/9/4K4/9/9 b - 1,80,5g4g,b": "bad SFEN",
    GOOD.replace(b"7g7f", b"7g7e"): "illegal move",
    GOOD.replace(b"7g7f", b"7g7f+"): "illegal move",
    GOOD.replace(b"7g7f", b"P*5e"): "illegal move",
    GOOD.replace(b"7g7f", b"resign"): "illegal move",
    GOOD.replace(b"7g7f", b""): "illegal move",
    b"4k4/P8/9/9/9/9/9/9/4K4 b - 1,80,9b9a,b": "illegal move",
    b"4k4/9/9/9/9/9/9/9/4K4 b P 1,80,P*9a,b": "illegal move",
    GOOD.replace(b",b", b""): "missing field",
    b"nonsense": "missing field",
    GOOD.replace(b",b", b",x"): "bad field",
    GOOD.replace(b",80,", b",eighty,"): "bad field",
    GOOD + b",game=\xff\xfe": "not UTF-8",
    b"\x80" + GOOD[1:]: "not UTF-8",
}

"""Programs: the words of a plan's operators, and the types of the kernels that a run calls at their addresses."""

from vernier.storage.kernels.separate import Callee

(KIND, INPUT, OTHER, WIDE, DEPTH, TRACE, STATE, BUCKET, KEYS, VALS) = range(10)
(A, B, C, D, E, F, SIZE, FLAG, READS, ROUTE, CODE_WORDS) = range(10, 21)
"""Words of an operator: its kind, inputs, row words, depth, the trace of its output (or -1), the trace of its numbers,
its bucket, key and val words; then places and sizes of constants, which differ from kind to kind; of a reduction, where
the constants are that say which part of a group it reads (-1: all of it); and those of its exchange with other workers
(kernels/exchanging.py), or -1."""
COVERS, IN_ORDER, TOTAL = 1, 2, 4
"""Flags of a reduction. Of an operator that keys its input, 1: the words of the input are in the order it wants."""

(SOURCE, LINEAR, UNION, ENTER, ARRANGE, VIEW, JOIN, REDUCE, ACCUMULATE, FOLLOW, CONSOLIDATED, VARIABLE, LOOP, LEAVE) = (
    range(14)
)
(TOP, CHOSEN, ALONG, SESSIONS, EXTREMES) = range(14, 19)
"""Kinds of operators. TOP: the first copies of groups; CHOSEN: what ranks choose; ALONG: a column along ordered rows;
SESSIONS, EXTREMES: starts of sessions, running least and greatest values."""

ENDS, SURROUNDINGS, STRETCHES, RANKS = range(4)
"""Kinds of parts of groups. Constants of a part: its kind, its number among the prefix indexes (-1: it needs none), and
what its kernel is asked for."""
PART_WORDS = 8

TAKE, PASS, CALL = 0, 1, 2
"""Kinds of stages. CALL: a function of Python's, by its number."""

MOST_KEYS = 1 << 17
MOST_ROWS = 1 << 19
"""Steps with more keys or rows are Python's."""

_WHOLE = "Tuple((int64[:, ::1], int64))"
OF_KEY_UPDATES = Callee(f"{_WHOLE}(int64[:, ::1], int64[::1], int64[::1], int64)")
OF_CONSOLIDATE = Callee(f"{_WHOLE}(int64[:, ::1], int64[::1])")
OF_SORT_ORDER = Callee("int64[::1](int64[:, ::1], int64[::1])")
OF_RUN_PASS = Callee(f"{_WHOLE}(int64[:, ::1], int64, int64[:, ::1], int64[::1], int64, int64[::1])")
OF_TOUCHED_KEYS = Callee("Tuple((int64[:, ::1], int64[::1]))(int64[:, ::1], int64)")
OF_VISITED_KEYS = Callee("int64[:, ::1](int64[:, ::1], int64[:, ::1], int64)")
OF_SPLIT_ROUNDS = Callee("Tuple((int64[:, ::1], int64[::1], int64[:, ::1]))(int64[:, ::1], int64, int64)")
OF_SPLIT_VISITS = Callee("Tuple((int64[:, ::1], int64[::1], int64[:, ::1]))(int64[:, ::1], int64)")
OF_PAIR_ROWS = Callee(
    "Tuple((int64[:, ::1], int64, int64, int64))(int64[:, ::1], int64[::1], int64, int64, int64, int64[:, ::1], "
    "int64[:, ::1], int64, int64, int64[::1], int64[::1], int64[::1], int64, int64, int64)"
)
_CORRECTIONS = "Tuple((int64[:, ::1], int64[:, ::1], int64, int64))"
OF_COVER_KEYS = Callee(
    "Tuple((int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64))(int64[:, ::1], int64, int64[:, ::1], "
    "int64[:, ::1], int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64, int64[::1], int64, int64[::1], "
    "int64[:, ::1], int64[:, ::1], int64[::1], int64)"
)
OF_REDUCE_KEYS = Callee(
    f"{_CORRECTIONS}(int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[:, ::1], boolean, int64, "
    "int64[:, ::1], int64[:, ::1], int64, int64[::1], int64, int64[:, ::1], boolean)"
)
OF_ACCUMULATE_ROWS = Callee(
    f"{_CORRECTIONS}(int64[:, ::1], int64[:, ::1], int64, int64, int64, int64[:, ::1], int64[::1], int64, int64)"
)
OF_FOLLOW_ROWS = Callee(
    f"{_CORRECTIONS}(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64, int64, int64[:, ::1])"
)
OF_READ_ENDS = Callee(
    "Tuple((int64[:, ::1], int64[:, ::1], int64[:, ::1], int64))(int64[:, ::1], int64[:, ::1], int64, int64, int64, "
    "int64, int64, int64, int64)"
)
OF_READ_SURROUNDINGS = Callee(
    "Tuple((int64[:, ::1], int64[:, ::1], int64[:, ::1], int64))(int64[:, ::1], int64[:, ::1], int64, int64, int64, "
    "int64, int64)"
)
OF_OWING_KEYS = Callee("Tuple((int64[::1], int64))(int64[:, ::1], int64, int64, int64)")
OF_READ_STRETCHES = Callee(
    "Tuple((int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64))(int64[:, ::1], int64[::1], "
    "int64[:, ::1], int64, int64, int64, int64, boolean, int64, int64, int64)"
)
OF_READ_RANKS = Callee(
    "Tuple((int64[:, ::1], int64[:, ::1], int64[:, ::1], int64))(int64[:, ::1], int64[::1], int64[:, ::1], int64, "
    "int64, int64, int64, float64[::1])"
)
_ROWS = "Tuple((int64[:, ::1], int64, int64))"
OF_TOP_KEYS = Callee(
    f"{_ROWS}(int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[::1], int64[::1], int64, "
    "int64[::1], int64)"
)
OF_CHOOSE_KEYS = Callee(
    f"{_ROWS}(int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[:, ::1], boolean, int64, int64[:, ::1], "
    "int64[:, ::1], int64, int64)"
)
OF_FOLLOW_ORDER = Callee(
    f"{_ROWS}(int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[::1], int64[::1], "
    "int64[::1], int64, int64[:, ::1], int64, int64, int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1])"
)
OF_FOLLOW_SESSIONS = Callee(
    f"{_CORRECTIONS}(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64, int64, int64, int64, int64[::1])"
)
OF_FOLLOW_EXTREMES = Callee(
    "Tuple((int64[:, ::1], int64[:, ::1], int64))(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64, int64, "
    "int64, int64, int64, int64, int64[::1])"
)

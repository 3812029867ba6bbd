"""What a kernel tells its caller. A raising kernel would leak what it allocated, so kernels return codes instead."""

OK = 0
OVERFLOW = -1

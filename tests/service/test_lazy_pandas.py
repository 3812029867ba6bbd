"""pyarrow works without pandas until something imports it."""

import subprocess
import sys

import pytest

BEFORE = """
import sys
from vernier.service.codec.lazy_pandas import defer_pandas
defer_pandas()
import numpy as np
import pyarrow as pa
found = pa.array([1, 2, None]), pa.array(np.arange(3)), pa.array(["a"]).to_numpy(zero_copy_only=False)
assert found[0].fill_null(0).to_numpy(zero_copy_only=False).tolist() == [1, 2, 0]
assert "pandas" not in sys.modules
"""
AFTER = {
    "series": "import pandas; assert pa.array(pandas.Series([1.0, float('nan')])).null_count == 1",
    "to_pandas": "assert list(pa.array([1, 2]).to_pandas()) == [1, 2]",
    "a part": "from pandas import Series; assert pa.array(Series([float('nan')])).null_count == 1",
    "twice": "defer_pandas(); import pandas; defer_pandas(); assert pa.array(pandas.Series([1])).to_pylist() == [1]",
}
MAINS = {
    "daemon": "from vernier.service.cluster.daemon import load; load()",
    "replay": "import vernier.service.replay.replay",
    "sidecar": "import vernier.service.sidecar.__main__",
}


def run(program: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER.keys())
def test_pandas_is_known_once_it_is_there(after: str) -> None:
    run(BEFORE + after)


@pytest.mark.parametrize("main", MAINS.values(), ids=MAINS.keys())
def test_processes_start_without_it(main: str) -> None:
    run(f"import sys; {main}; assert 'pandas' not in sys.modules")

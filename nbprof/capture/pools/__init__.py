"""Recording of the tasks of process pools, from inside their workers."""

POOL = "multiprocessing.pool"
EXECUTORS = {
    "concurrent.futures.process": "ProcessPoolExecutor",
    "joblib.externals.loky.process_executor": "joblib",
    "loky.process_executor": "loky",
}
"""What people call an executor, by the module with its class `ProcessPoolExecutor`."""
MODULES = (POOL, *EXECUTORS)
"""Modules with pools, which a cell may import."""

"""Numba's cache with entries that are checked: a damaged one is compiled again, and never unpickled.

Numba keeps machine code in pickles and believes what it finds. Here each entry is a file of its own, sealed by
`refsim.core.cache`; what is sealed says which function, signature and processor it is for.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache

from refsim.core import cache


class CheckedCache(FunctionCache):
    """The cache of one function, in the directory that Numba is configured to use."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Entries(Path(self._cache_path), self._impl.filename_base, stamp, self._cache_file)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever an entry holds, the function can still be compiled
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            cache.unkept(Path(self._cache_path), error.strerror or str(error))


class _Entries:
    """The files of one function: what Numba calls a cache file."""

    def __init__(self, folder: Path, base: str, stamp: Any, numbas: Any) -> None:
        self._folder, self._base, self._stamp, self._numbas = folder, base, stamp, numbas

    def load(self, key: Any) -> Any:
        body = cache.read(self._path(key))
        if body is None:
            return None
        stamp, stored, data = pickle.loads(body)
        return data if (stamp, stored) == (self._stamp, key) else None

    def save(self, key: Any, data: Any) -> None:
        cache.write(self._path(key), self._numbas._dump((self._stamp, key, data)))

    def flush(self) -> None:
        for path in self._folder.glob(f"{self._base}.*.kernel"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        return self._folder / f"{self._base}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.kernel"

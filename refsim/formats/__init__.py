"""Files: delegate blobs, .pte containers, arrays, dumps of runs, golden cases, recordings, numerics profiles."""

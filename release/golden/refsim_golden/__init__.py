"""The golden corpus of the refsim of the same version, in the folder data. `refsim golden verify` finds it here."""

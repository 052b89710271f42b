"""The golden corpus: cases by rule, their files, and the checks that read them."""

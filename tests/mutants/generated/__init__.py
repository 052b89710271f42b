"""Generated bugs: small changes at any place of the kernels, sampled by a seed, that nobody thought of before.

`refsim mutate --random N --seed S` runs them. The seeded bugs beside this package are those that really happened
somewhere; these measure what the nets catch of what nobody remembers. `targets` says which functions are changed and
which cases may show it, `python_sites` and `glsl_sites` find the changes, `sample` draws among them, `trial` runs one,
and `naming` decides whether a report named it.
"""

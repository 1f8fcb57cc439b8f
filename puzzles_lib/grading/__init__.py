"""The classroom: marks for what students hand in, none of whose Python is ever run.

    submissions -> sandbox (inside: handed_in, plain, the checker) -> grade -> results

`submissions` reads files as bytes, and names who handed them in. `sandbox` starts a process for each
submission, in which `inside` finds the kernels and answers by static means and checks them; its verdicts come
back as JSON. `grade` makes marks of them, `results` keeps them, `class_view` shows them. `executors` says who
does the work.
"""

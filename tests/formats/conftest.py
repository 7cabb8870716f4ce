"""The fuzz's modules import each other by name, as a program's do: they are no tests."""

collect_ignore = ["fuzz_seeds.py", "fuzzing.py", "mutations.py"]

"""Tasks written by a language model, in five resumable stages: explore, write, verify, extend, distract."""

"""Prints the lines of messages given as `SEQUENCE PAYLOAD` in hex, one a line, and the recorder's summary."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import fpm_recorder  # noqa: E402

recorder = fpm_recorder.Recorder()
for text in sys.stdin:
    sequence, payload = text.rstrip("\n").split(" ")
    line = recorder.line("tcp://a:1", [b"fpm", bytes.fromhex(sequence), bytes.fromhex(payload)], 1795303303123456789)
    if line is not None:
        print(line)
print(recorder.summary())

"""Records forward-pass metrics of vLLM, SGLang and Dynamo as JSON lines that blis-train reads.

    python fpm_recorder.py -o run/passes.jsonl tcp://localhost:20380 [tcp://localhost:20381 ...]

One endpoint a data-parallel rank: vLLM's --forward-pass-metrics-port plus the rank, SGLang with --enable-forward-pass-metrics.
A message is three frames (topic, sequence number of 8 bytes big-endian, msgpack); what its payload says is written as it is, maps as
objects and lists as lists, and `blis-train extract` tells their versions apart. Stop with Ctrl-C or SIGTERM: the last line says
how many messages came, how many the sequence numbers miss, and how many could not be read. Needs pyzmq.
"""
import argparse
import json
import signal
import struct
import sys
import time

SIZES = {0xC4: "B", 0xC5: "H", 0xC6: "I", 0xCA: "f", 0xCB: "d", 0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q", 0xD0: "b", 0xD1: "h",
         0xD2: "i", 0xD3: "q", 0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I"}


class Unpacker:
    """Reads one msgpack value; ValueError for what is none, is cut, or nests deeper than 16."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise ValueError("the message ends at byte %d, within a value" % len(self.data))
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, depth=0):
        if depth > 16:
            raise ValueError("nested deeper than 16")
        tag = self.take(1)[0]
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 256
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        if tag < 0xC0:
            kind, n = ("map", tag & 15) if tag < 0x90 else ("list", tag & 15) if tag < 0xA0 else ("text", tag & 31)
        elif tag in SIZES:
            form = ">" + SIZES[tag]
            n = struct.unpack(form, self.take(struct.calcsize(form)))[0]
            kind = "text" if tag in (0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB) else "list" if tag in (0xDC, 0xDD) else \
                "map" if tag >= 0xDE else "number"
        else:
            raise ValueError("byte 0x%02x at %d begins no value" % (tag, self.at - 1))
        if kind == "number":
            return n
        if kind == "text":
            return bytes(self.take(n)).decode("utf-8")
        if n > len(self.data) - self.at:
            raise ValueError("%d values in %d bytes" % (n, len(self.data) - self.at))
        if kind == "list":
            return [self.value(depth + 1) for _ in range(n)]
        return {str(self.value(depth + 1)): self.value(depth + 1) for _ in range(n)}


def unpack(data):
    """The value of a whole msgpack message."""
    u = Unpacker(data)
    value = u.value()
    if u.at != len(data):
        raise ValueError("%d bytes behind the value" % (len(data) - u.at))
    return value


class Recorder:
    """Turns messages into lines and counts what is lost."""

    def __init__(self):
        self.received = self.lost = self.unreadable = 0
        self.last = {}  # sequence number by endpoint

    def line(self, endpoint, frames, now_ns):
        """The JSON line of a message, None for one that cannot be read; frames are bytes, now_ns is the wall clock."""
        self.received += 1
        try:
            if len(frames) != 3 or len(frames[1]) != 8:
                raise ValueError("got %d frames of %s bytes, want topic, sequence of 8 and payload" % (
                    len(frames), [len(f) for f in frames]))
            sequence = struct.unpack(">Q", frames[1])[0]
            fpm = unpack(frames[2])
            if not isinstance(fpm, (dict, list)):
                raise ValueError("the payload is neither a map nor a list")
            text = json.dumps({"event": {
                "schema": "dynamo.fpm.trace.v1", "source": {"producer_id": endpoint}, "capture_mode": "full",
                "observed_at_unix_ms": now_ns // 1000000, "sequence": sequence, "fpm": fpm}}, allow_nan=False)
        except (ValueError, RecursionError) as e:
            self.unreadable += 1
            sys.stderr.write("%s: %s\n" % (endpoint, e))
            return None
        last = self.last.get(endpoint)
        if last is not None and sequence > last + 1:
            self.lost += sequence - last - 1
        self.last[endpoint] = sequence
        return text

    def summary(self):
        return "%d messages, %d missing between sequence numbers, %d unreadable" % (self.received, self.lost, self.unreadable)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoints", nargs="+", metavar="ENDPOINT", help="such as tcp://localhost:20380, one a rank")
    parser.add_argument("-o", "--out", required=True, help="file to append to, such as run/passes.jsonl")
    parser.add_argument("--topic", default="", help="topic to subscribe to (default: all)")
    args = parser.parse_args()
    import zmq
    context, poller, names, recorder = zmq.Context(), zmq.Poller(), {}, Recorder()
    for endpoint in args.endpoints:
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.RCVHWM, 0)  # never drop here
        socket.setsockopt(zmq.SUBSCRIBE, args.topic.encode())
        socket.connect(endpoint)
        poller.register(socket, zmq.POLLIN)
        names[socket] = endpoint
    stop = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.append(True))
    with open(args.out, "a", encoding="utf-8") as out:
        while not stop:
            for socket, _ in poller.poll(500):
                frames = socket.recv_multipart()
                line = recorder.line(names[socket], frames, time.time_ns())
                if line is not None:
                    out.write(line + "\n")
            out.flush()
    sys.stderr.write(recorder.summary() + "\n")
    return 1 if recorder.lost or recorder.unreadable else 0


if __name__ == "__main__":
    sys.exit(main())

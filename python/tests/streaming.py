"""The streaming client against a stub server: usage and metrics are kept, failures counted."""
import http.server
import json
import os
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import streaming_client  # noqa: E402


class Stub(http.server.BaseHTTPRequestHandler):
    count = 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Stub.count += 1
        if Stub.count == 3:
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        n = body["max_tokens"]

        def say(event):
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()

        for k in range(n):
            time.sleep(0.001)
            say({"choices": [{"text": "x", "finish_reason": "length" if k == n - 1 else None}]})
        say({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": 0}},
             "metrics": {"queue_time_ms": 0.5, "time_to_first_token_ms": 1.0, "generation_time_ms": 1.0 * (n - 1)}})
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args):
        pass


class StreamingClient(unittest.TestCase):
    def test_against_stub(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "client_requests.jsonl")
            code = streaming_client.main(["--url", f"http://127.0.0.1:{server.server_port}", "--model", "m", "--requests", "8", "--concurrency", "2",
                                          "--output-tokens", "5", "-o", out])
            with open(out, encoding="utf-8") as f:
                lines = [json.loads(x) for x in f]
        server.shutdown()
        self.assertEqual(code, 0)
        self.assertEqual(len(lines), 8)
        bad = [x for x in lines if "error" in x]
        self.assertEqual(len(bad), 1)
        for x in lines:
            if x in bad:
                continue
            n = x["usage"]["completion_tokens"]
            self.assertEqual((x["chunks"], len(x["itl_us"])), (n, n - 1))
            self.assertEqual(x["metrics"]["queue_time_ms"], 0.5)
            self.assertLess(x["send_ns"], x["first_chunk_ns"])
            self.assertEqual(x["finish_reason"], "length")


if __name__ == "__main__":
    unittest.main()

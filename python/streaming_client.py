#!/usr/bin/env python3
"""Sends requests to an OpenAI-compatible server and keeps what blis-train can learn from.

Writes client_requests.jsonl: a line a request with its stamps (CLOCK_MONOTONIC, ns), the gaps between chunks, and
the server's own `usage` and `metrics` (vLLM with --enable-per-request-metrics and --enable-prompt-tokens-details).
Prompts are random words, so nothing is shared; nothing of the answers is kept. Standard library only.
"""
import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse


def send(url, model, prompt, tokens, ident, timeout=600):
    """Streams one completion and returns its line; a failed request has an error."""
    line = {"id": ident, "output_tokens": tokens, "stream": True, "route": "completions", "prefix_tokens": 0}
    body = json.dumps({
        "model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
    })
    parts = urllib.parse.urlsplit(url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    stamps = []
    line["send_wall_ns"] = time.time_ns()
    line["send_ns"] = time.monotonic_ns()
    try:
        connection = connect(parts.netloc, timeout=timeout)
        connection.request("POST", parts.path.rstrip("/") + "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        line["status"] = answer.status
        if answer.status != 200:
            line["error"] = answer.read(500).decode("utf-8", "replace")
        for raw in answer:
            now = time.monotonic_ns()
            if not raw.startswith(b"data:") or raw[5:].strip() == b"[DONE]":
                continue
            event = json.loads(raw[5:])
            if event.get("usage"):
                line["usage"] = event["usage"]
            if event.get("metrics"):
                line["metrics"] = event["metrics"]
            if event.get("error"):
                line["error"] = json.dumps(event["error"])[:500]
            choices = event.get("choices") or [{}]
            if choices[0].get("text"):
                stamps.append(now)
            if choices[0].get("finish_reason"):
                line["finish_reason"] = choices[0]["finish_reason"]
        connection.close()
    except (OSError, http.client.HTTPException, ValueError) as e:
        line["error"] = f"{type(e).__name__}: {e}"
    line["end_ns"] = time.monotonic_ns()
    if stamps:
        line["first_chunk_ns"] = stamps[0]
        line["last_chunk_ns"] = stamps[-1]
        line["chunks"] = len(stamps)
        line["itl_us"] = [(b - a) / 1000 for a, b in zip(stamps, stamps[1:])]
    return line


def run(url, model, requests, rate, concurrency, prompt_words, output_tokens, seed, out):
    """Offers the load: open at a rate in requests/s, or closed with so many in flight. Returns the failures."""
    rng = random.Random(seed)
    lock = threading.Lock()
    failed = [0]
    slots = threading.Semaphore(concurrency or requests)

    def one(ident, prompt, tokens):
        line = send(url, model, prompt, tokens, ident)
        slots.release()
        with lock:
            out.write(json.dumps(line) + "\n")
            failed[0] += "error" in line

    threads = []
    due = time.monotonic()
    for i in range(requests):
        words = max(1, int(prompt_words * rng.uniform(0.3, 1.7)))
        prompt = " ".join(rng.choice("abcdefghijklmnopqrstuvwxyz") + str(rng.randrange(10000)) for _ in range(words))
        tokens = max(2, int(output_tokens * rng.uniform(0.3, 1.7)))
        if rate:
            due += rng.expovariate(rate)
            time.sleep(max(0, due - time.monotonic()))
        slots.acquire()
        thread = threading.Thread(target=one, args=(f"r{seed}-{i}", prompt, tokens), daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return failed[0]


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--url", required=True, help="of the server, without /v1")
    p.add_argument("--model", required=True)
    p.add_argument("--requests", type=int, default=400)
    p.add_argument("--rate", type=float, default=0, help="requests/s, exponential gaps; 0: a closed load")
    p.add_argument("--concurrency", type=int, default=0, help="requests in flight; 0: no limit")
    p.add_argument("--prompt-words", type=int, default=200, help="mean; a word is one to four tokens")
    p.add_argument("--output-tokens", type=int, default=100, help="mean")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("-o", "--out", required=True, help="file to write")
    a = p.parse_args(argv)
    if not a.rate and not a.concurrency:
        p.error("got neither --rate nor --concurrency, want one of them")
    with open(a.out, "w", encoding="utf-8") as out:
        failed = run(a.url, a.model, a.requests, a.rate, a.concurrency, a.prompt_words, a.output_tokens, a.seed, out)
    print(f"wrote {a.requests} requests to {a.out}, {failed} failed", file=sys.stderr)
    return 1 if failed == a.requests else 0


if __name__ == "__main__":
    sys.exit(main())

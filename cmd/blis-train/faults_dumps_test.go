package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.String()
}

func zstded(text string) string {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		panic(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// dump replaces the dump by one of another name.
func (w *world) dump(name, text string) {
	must(w.t, os.Remove(filepath.Join(w.in, "traces.jsonl")))
	w.put(name, text)
	must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, "traces: "+name))
}

// flipped is text with one bit of byte at turned.
func flipped(text string, at int) string {
	b := []byte(text)
	b[at] ^= 1 << (at % 7)
	return string(b)
}

const parts = 12

// damaged are dumps that are cut, overwritten or packed badly.
func damaged() (out []fault) {
	const group = "damaged or truncated dumps"
	add := func(name string, change func(w *world, text string), check func(w *world) error) {
		out = append(out, fault{group, name, func(w *world) error { change(w, w.get("traces.jsonl")); return check(w) }})
	}
	loud := func(w *world) error { return w.loud() }
	same := func(w *world) error { return w.same() }
	for k := range parts {
		at := func(text string) int { // never at the end of a line
			n := len(text) * (2*k + 1) / (2 * parts)
			for text[n-1] == '\n' || text[n] == '\n' {
				n++
			}
			return n
		}
		add(fmt.Sprintf("plain, cut at %d/%d", k, parts), func(w *world, s string) { w.put("traces.jsonl", s[:at(s)]) }, loud)
		add(fmt.Sprintf("gzip, cut at %d/%d", k, parts), func(w *world, s string) { z := gzipped(s); w.dump("t.json.gz", z[:at(z)]) }, loud)
		add(fmt.Sprintf("zstd, cut at %d/%d", k, parts), func(w *world, s string) { z := zstded(s); w.dump("t.json.zst", z[:at(z)]) }, loud)
		add(fmt.Sprintf("gzip, a bit at %d/%d", k, parts), func(w *world, s string) { z := gzipped(s); w.dump("t.json.gz", flipped(z, at(z))) },
			loud)
		add(fmt.Sprintf("zstd, a bit at %d/%d", k, parts), func(w *world, s string) { z := zstded(s); w.dump("t.json.zst", flipped(z, at(z))) },
			loud)
		add(fmt.Sprintf("64 NULs at %d/%d", k, parts), func(w *world, s string) {
			n := at(s)
			w.put("traces.jsonl", s[:n]+strings.Repeat("\x00", 64)+s[n+64:])
		}, loud)
		add(fmt.Sprintf("garbage in a line at %d/%d", k, parts), func(w *world,
			s string) {
			n := at(s)
			w.put("traces.jsonl", s[:n]+"\xff<html>\x01"+s[n:])
		}, loud)
	}
	add("byte order mark", func(w *world, s string) { w.put("traces.jsonl", "\xef\xbb\xbf"+s) }, same)
	add("CRLF", func(w *world, s string) { w.put("traces.jsonl", strings.ReplaceAll(s, "\n", "\r\n")) }, same)
	add("blank lines", func(w *world, s string) { w.put("traces.jsonl", strings.ReplaceAll(s, "\n", "\n\n \n")) }, same)
	add("no last newline", func(w *world, s string) { w.put("traces.jsonl", strings.TrimSuffix(s, "\n")) }, same)
	add("gzip of gzip", func(w *world, s string) { w.dump("t.json.gz", gzipped(gzipped(s))) }, same)
	add("a line of garbage", func(w *world, s string) { w.put("traces.jsonl", "<html>\n"+s) },
		func(w *world) error { return errors.Join(w.loud()) })
	add("UTF-16", func(w *world, s string) { w.put("traces.jsonl", "\xff\xfe{\x00") }, loud)
	add("deeply nested", func(w *world, s string) { w.put("traces.jsonl", strings.Repeat(`{"resourceSpans":[`, 20000)+"\n"+s) }, loud)
	return out
}

// order are dumps in another order, repeated or rotated.
func order() (out []fault) {
	const group = "order, duplicates and rotation"
	add := func(name string, try func(w *world, lines []string) error) {
		out = append(out, fault{group, name, func(w *world) error { return try(w, strings.SplitAfter(w.get("traces.jsonl"), "\n")) }})
	}
	for _, window := range []int{2, 5, 10, 1000} {
		for seed := range uint64(4) {
			add(fmt.Sprintf("shuffled within %d lines, %d", window, seed), func(w *world, lines []string) error {
				rng := rand.New(rand.NewPCG(seed, 7))
				for from := 0; from < len(lines); from += window {
					part := lines[from:min(from+window, len(lines))]
					rng.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
				}
				w.put("traces.jsonl", strings.Join(lines, ""))
				return w.same()
			})
		}
	}
	for k := range 8 {
		add(fmt.Sprintf("line %d/8 twice", k), func(w *world, lines []string) error {
			n := k * len(lines) / 8
			w.put("traces.jsonl", strings.Join(lines[:n+1], "")+strings.Join(lines[n:], ""))
			return w.same()
		})
		for _, scheme := range [][3]string{
			{"traces.jsonl.2", "traces.jsonl.1", "traces.jsonl"}, {"traces.jsonl.2.gz", "traces.jsonl.1.gz", "traces.jsonl"},
			{"traces-2026-01-01T00-00-00.000.jsonl", "traces-2026-01-01T00-00-01.000-size.jsonl", "traces.jsonl"},
			{"traces.jsonl-20260101", "traces.jsonl-20260102", "traces.jsonl"},
		} {
			add(fmt.Sprintf("rotated as %s, cut at %d/8", scheme[0], k), func(w *world, lines []string) error {
				text := strings.Join(lines, "")
				a := (k*len(text) + len(text)/2) / 17
				b := a + (len(text)-a)/2
				must(w.t, w.edit("run.yaml", "files:\n  traces: \"traces.jsonl\"\n  kv_events: \"kv_events.jsonl\"\n", ""))
				for i, part := range []string{text[:a], text[a:b], text[b:]} {
					if strings.HasSuffix(scheme[i], ".gz") {
						part = gzipped(part)
					}
					w.put(scheme[i], part)
				}
				return w.same()
			})
		}
	}
	add("everything twice", func(w *world, lines []string) error {
		w.put("traces.jsonl", strings.Join(lines, "")+strings.Join(lines, ""))
		return w.same()
	})
	add("two files with the same lines", func(w *world, lines []string) error {
		w.put("again.jsonl", strings.Join(lines, ""))
		must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, "traces: [traces.jsonl, again.jsonl]"))
		return w.same()
	})
	return out
}

// foreign are files that are something else than their place says.
func foreign() (out []fault) {
	const group = "foreign and untyped files"
	for name, text := range map[string]string{
		"empty": "", "blank": " \n\n", "HTML": "<html><body>502</body></html>\n", "PNG": "\x89PNG\r\n\x1a\n\x00\x00", "a JSON array": `[{"a": 1}]`,
		"a JSON object": `{"a": {"b": [1, 2]}}`, "JSON lines": "{\"a\": 1}\n{\"a\": 2}\n", "a CSV": "a,b\n1,2\n", "XML": "<?xml version='1.0'?><x/>",
		"metrics": `{"resourceMetrics":[{"scopeMetrics":[]}]}` + "\n", "YAML": "a: 1\nb: [2]\n", "a number": "42\n", "zeros": strings.Repeat("\x00", 4096),
		"MessagePack": "\x92\x01\x02", "a header alone, of no version": "trace_version: 77\n",
	} {
		for _, kind := range []string{"traces", "kv_events", "client_requests"} {
			out = append(out, fault{group, name + " for " + kind, func(w *world) error {
				w.put("foreign.file", text)
				must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, map[string]string{
					"traces": "traces: [traces.jsonl, foreign.file]", "kv_events": `traces: "traces.jsonl"`,
					"client_requests": "traces: traces.jsonl\n  client_requests: foreign.file",
				}[kind]))
				if kind == "kv_events" {
					must(w.t, w.edit("run.yaml", `kv_events: "kv_events.jsonl"`, "kv_events: [kv_events.jsonl, foreign.file]"))
				}
				r, err := w.extract()
				return w.refused(r, err, "foreign.file")
			}})
		}
	}
	sortByName(out)
	return out
}

package workload

// This file reads the traces of Mooncake and of Weka, JSON objects one after another.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// The number of tokens behind one hash id: fixed by Mooncake, and that of Weka's sessions that state
// none.
const (
	mooncakeSpan = 512
	wekaSpan     = 64
)

// readJSON reads JSON objects of two kinds. Those of Mooncake are requests: timestamp (ms),
// input_length, output_length, hash_ids of 512-token blocks. Without timestamps all arrive at 0, as the requests of a
// table without arrivals. Those of Weka are sessions of agents:
// block_size (64 tokens) and requests with t (s since the session began), in, out, api_time (s) and
// hash_ids, which are the session's own unless hash_id_scope is global. The time between an answer
// and the next request is the think time. Requests of sub-agents are skipped.
func readJSON(data []byte, name string) (*Workload, error) {
	w := withRoom(data)
	line := 1
	at := int64(0)
	subagents := 0
	stamped := 0 // Mooncake's requests with a timestamp
	for dec := json.NewDecoder(bytes.NewReader(data)); ; at = dec.InputOffset() {
		rest := bytes.TrimLeft(data[at:], " \t\r\n") // begins with the next object
		line += bytes.Count(data[at:len(data)-len(rest)], []byte("\n"))
		in := struct {
			// Mooncake
			Timestamp *float64 `json:"timestamp"` // ms
			Input     int64    `json:"input_length"`
			Output    int64    `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
			// Weka
			BlockSize int64  `json:"block_size"`
			Scope     string `json:"hash_id_scope"`
			Requests  []wekaRequest
		}{BlockSize: wekaSpan}
		err := dec.Decode(&in)
		ms := 0.0
		if in.Timestamp != nil {
			ms = *in.Timestamp
		}
		switch {
		case err == io.EOF && subagents > 0:
			w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete,
				"%d requests of sub-agents are left out: a session is a chain", subagents))
			fallthrough
		case err == io.EOF:
			if stamped > 0 {
				w.startAtFirst()
			}
			return w.checkNotEmpty(name)
		case err != nil || in.BlockSize < 1:
			return nil, badLine(name, line,
				"got no JSON object of a request (%v), want timestamp, input_length, output_length, hash_ids; or "+
					"block_size and requests with t, in, out, api_time, hash_ids", err)
		case in.Requests != nil:
			err = w.addSession(name, line, in.Requests, in.BlockSize, in.Scope == "global", &subagents)
		case in.Input < 1 || in.Output < 0 || ms < 0:
			return nil, badLine(name, line,
				"mooncake request: got timestamp %g ms, %d input, %d output tokens, want >= 0, >= 1, >= 0",
				ms, in.Input, in.Output)
		default:
			if in.Timestamp != nil {
				stamped++
			}
			if stamped > 0 && stamped <= len(w.Requests) {
				return nil, badLine(name, line, "timestamp: got %d of %d requests with one, want all or none", stamped,
					len(w.Requests)+1)
			}
			if err := checkHashes(in.Hashes, in.Input, mooncakeSpan); err != nil {
				return nil, badLine(name, line, "%v", err)
			}
			err = w.addFromLine(name, line, sim.Request{
				ID:           strconv.Itoa(len(w.Requests)),
				ArrivalUs:    sim.ToUs(math.Floor(ms * 1000)),
				PromptTokens: in.Input,
				OutputTokens: max(1, in.Output),
				Hashes:       in.Hashes,
				HashTokens:   mooncakeSpan,
			})
			w.rounds = append(w.rounds, round{})
		}
		if err != nil {
			return nil, err
		}
		line += bytes.Count(data[len(data)-len(rest):dec.InputOffset()], []byte("\n"))
	}
}

// checkHashes returns an error if a prompt has more hash ids than blocks of that many tokens: they stand for blocks of
// another size, and what prompts share would be counted wrong.
func checkHashes(hashes []uint64, prompt, block int64) error {
	if blocks := (prompt + block - 1) / block; int64(len(hashes)) > blocks {
		return fmt.Errorf("hash_ids: got %d for a prompt of %d tokens, want at most %d, one for each %d tokens", len(hashes),
			prompt, blocks, block)
	}
	return nil
}

// wekaRequest is a request of a Weka session; see readJSON.
type wekaRequest struct {
	Type    string   // "subagent", or one of the session itself
	T       float64  // when it was sent, s since the session began
	In, Out int64    // tokens
	APITime float64  `json:"api_time"` // until its answer, s
	Hashes  []uint64 `json:"hash_ids"`
}

// addSession adds the requests of a session as a chain, in which each request follows the one
// before. Requests of sub-agents run at the same time and are only counted. block is the number of
// tokens behind a hash id; unless global, hash ids are the session's own.
func (w *Workload) addSession(name string, line int, requests []wekaRequest, block int64, global bool,
	subagents *int) error {
	own := uint64(len(w.Requests)+1) << 40 // differs for each session, in bits above those of hash ids
	before := 0                            // position of the session's request before, from 1
	answered := 0.0                        // when that was answered, s since the session began
	for i, q := range requests {
		if q.Type == "subagent" {
			*subagents++
			continue
		}
		if q.T < 0 || q.APITime < 0 || q.In < 1 || q.Out < 0 {
			return badLine(name, line,
				"request %d: got t %g s, api_time %g s, %d input, %d output tokens, want >= 0, >= 0, >= 1, >= 0",
				i+1, q.T, q.APITime, q.In, q.Out)
		}
		if err := checkHashes(q.Hashes, q.In, block); err != nil {
			return badLine(name, line, "request %d: %v", i+1, err)
		}
		for j := range q.Hashes {
			if !global {
				q.Hashes[j] ^= own
			}
		}
		err := w.addFromLine(name, line, sim.Request{
			ID:           strconv.Itoa(len(w.Requests)),
			ArrivalUs:    sim.ToUs(q.T * 1e6),
			PromptTokens: q.In,
			OutputTokens: max(1, q.Out),
			Hashes:       q.Hashes,
			HashTokens:   block,
		})
		if err != nil {
			return err
		}
		w.rounds = append(w.rounds,
			round{before: before, thinkUs: min(sim.ToUs(max(0, q.T-answered)*1e6), sim.LatestUs)})
		before = len(w.Requests)
		answered = q.T + q.APITime
	}
	return nil
}

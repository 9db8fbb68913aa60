package sim

// This file writes the KV events of a dump.

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// kvWriter writes KV events as lines: [time, events, data-parallel rank, scheduler step], the last of
// them null (spec#wire-kv-lines).
type kvWriter struct {
	p    *Dump
	out  *bufio.Writer
	line buffer // the events of the current line, separated by commas
}

// KV implements KVObserver: it writes a KV event if KV events were asked for.
func (p *Dump) KV(e *KVEvent) {
	if p.kv == nil {
		return
	}
	p.kv.addEvent(e)
}

// addEvent adds an event to the current line. An event of kind published ends the line and writes
// it.
func (k *kvWriter) addEvent(e *KVEvent) {
	b := &k.line
	if e.Kind == published {
		if len(*b) == 0 {
			return
		}
		wallSeconds := float64(k.p.opt.WallNs+e.AtUs*1000) / 1e9
		line := strconv.AppendFloat([]byte("["), wallSeconds, 'f', 6, 64)
		line = append(line, ",["...)
		line = append(line, *b...)
		const rankAndStep = "0,null"
		line = append(line, "],"+rankAndStep+"]\n"...)
		k.out.Write(line)
		*b = (*b)[:0]
		return
	}
	copies := int64(1)
	if e.Kind == transferInitiated || e.Kind == transferCompleted {
		copies = max(1, k.p.dep.TP) // every tensor-parallel worker reports a transfer
	}
	for range copies {
		if len(*b) > 0 {
			b.raw(",")
		}
		k.event(b, e)
	}
}

// event appends one event to b as the array of its kind and fields. The fields have no names, so their
// order is that of the producer: vllm/distributed/kv_events.py for stored and removed blocks, the
// tracing fork for the others. A field that a simulation has no value for is null.
func (k *kvWriter) event(b *buffer, e *KVEvent) {
	b.raw(`["` + string(e.Kind) + `"`)
	medium := `"GPU"`
	if e.CPU {
		medium = `"CPU"`
	}
	switch e.Kind {
	case blockStored:
		k.hashes(b, e)
		parent := "null"
		if e.HasParent {
			parent = strconv.FormatUint(e.Parent, 10)
		}
		b.raw("," + parent + ",")
		k.tokens(b, e)
		const lora = ",null" // its id, and behind the medium its name
		b.raw("," + decimal(k.p.dep.Engine.BlockSize) + lora + "," + medium + lora)
	case blockRemoved:
		k.hashes(b, e)
		b.raw("," + medium)
	case cacheLoadCommitted, cacheStored:
		b.raw(",")
		b.quoted(k.p.CoreID(e.Request))
		b.raw("," + medium + "," + decimal(e.Blocks) + "," + decimal(e.Step))
	case cacheEviction:
		const policy, hashes = `,"lru"`, ",null"
		b.raw("," + medium + "," + decimal(e.Blocks) + policy + "," + decimal(e.Step) + hashes)
	case transferInitiated, transferCompleted:
		k.transfer(b, e)
	}
	b.raw("]")
}

// transfer appends the fields of a transfer event.
func (k *kvWriter) transfer(b *buffer, e *KVEvent) {
	route := `"CPU","GPU"`
	if e.ToCPU {
		route = `"GPU","CPU"`
	}
	b.raw("," + decimal(e.Transfer) + ",")
	b.quoted(k.p.CoreID(e.Request))
	b.raw("," + route + "," + decimal(e.Blocks))
	if e.Kind == transferCompleted {
		b.raw(",true") // it succeeded
	}
	b.raw("," + decimal(e.Step))
}

// hashes appends the block hashes of an event: integers for the GPU, base64 text for the CPU tier.
func (k *kvWriter) hashes(b *buffer, e *KVEvent) {
	b.raw(",[")
	for i, h := range e.Hashes {
		if i > 0 {
			b.raw(",")
		}
		if !e.CPU {
			*b = strconv.AppendUint(*b, h, 10)
			continue
		}
		var raw [32]byte // a hash of vLLM is SHA-256; the simulator's has 8 bytes
		for w := range uint64(4) {
			binary.BigEndian.PutUint64(raw[8*w:], mix(h, w))
		}
		b.quoted(base64.StdEncoding.EncodeToString(raw[:]))
	}
	b.raw("]")
}

// tokens appends token ids, which are placeholders because the simulation has only counts of
// tokens.
func (k *kvWriter) tokens(b *buffer, e *KVEvent) {
	b.raw("[")
	if !e.CPU {
		for i := range e.Blocks * k.p.dep.Engine.BlockSize {
			if i > 0 {
				b.raw(",")
			}
			const vocabulary = 30000
			b.num(int64(mix(e.Hashes[i/k.p.dep.Engine.BlockSize], uint64(i)) % vocabulary))
		}
	}
	b.raw("]")
}

package clients

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file reads the chunk file of a TraceV2 (.itl.csv), which has the time of each chunk.

// chunkHeader begins a chunk file.
const chunkHeader = "request_id,chunk_index,timestamp_us"

// sniffChunkFile reports whether a file is one of chunks.
func sniffChunkFile(head []byte) bool { return bytes.HasPrefix(head, []byte(chunkHeader)) }

// chunk is one row of a chunk file.
type chunk struct{ index, ns int64 }

// Memory of a chunk, with the room that its growing list has, and of the list of a request, in bytes.
const (
	chunkBytes     = 2 * 16
	chunkListBytes = 80
)

// chunkSet is the chunks in one file, by request. They are joined to the requests when all files
// were read, because files may come in any order.
type chunkSet struct {
	file   string
	chunks map[string][]chunk // by request id
}

// readChunkFile reads the times of chunks, in any order. Rows that cannot be read are dropped.
func (c *Reader) readChunkFile(file *clientFile) error {
	src := file.src
	file.in.Gave++ // it gives no request, but what others need
	rd := csv.NewReader(&countingReader{c, src.R})
	rd.FieldsPerRecord = -1
	rd.ReuseRecord = true
	set := chunkSet{file: src.Name, chunks: map[string][]chunk{}}
	defer func() { c.chunkSets = append(c.chunkSets, set) }()
	for line := int64(0); ; line++ {
		fields, err := rd.Read()
		c.Acc.Lines++
		if err == io.EOF {
			return nil
		}
		if errors.As(err, new(*csv.ParseError)) {
			c.dropLine(src, line+1, 1, err)
			continue
		}
		if err != nil {
			return src.ReadError(err)
		}
		if line == 0 {
			continue // the header
		}
		index, us, err := parseChunk(fields)
		if err != nil {
			row, _ := rd.FieldPos(0)
			c.dropLine(src, int64(row), 1, err)
			continue
		}
		id := strings.Clone(fields[0]) // the CSV reader reuses the record
		if set.chunks[id] == nil {
			c.countMemory(src, chunkListBytes+int64(len(id)))
		}
		c.countMemory(src, chunkBytes)
		set.chunks[id] = append(set.chunks[id], chunk{index, us * 1000})
	}
}

// parseChunk returns the index of a chunk and its time, us.
func parseChunk(fields []string) (index, us int64, err error) {
	if len(fields) != 3 {
		return 0, 0, fmt.Errorf("chunk: got %d fields, want 3", len(fields))
	}
	index, err = strconv.ParseInt(fields[1], 10, 64)
	if err == nil {
		us, err = strconv.ParseInt(fields[2], 10, 64)
	}
	if err != nil || index < 0 || us < 0 {
		return 0, 0, fmt.Errorf("chunk: got the index %.20q at %.20q us, want integers of at least 0", fields[1],
			fields[2])
	}
	return index, us, nil
}

// joinChunks gives requests the chunks of the chunk files. If several traces are read, ids may repeat
// between them; then a chunk file belongs to the trace of the same stem.
func (c *Reader) joinChunks() {
	for _, set := range c.chunkSets {
		rows := map[string]int{} // index in c.Requests by id, of the trace that the chunk file belongs to
		for i := range c.Requests {
			r := &c.Requests[i]
			if r.Source != sourceTraceV2 {
				continue
			}
			if len(c.traceFiles) < 2 || c.traceStemOf(i) == traceStem(set.file) {
				rows[r.ID] = i
			}
		}
		for _, id := range slices.Sorted(maps.Keys(set.chunks)) {
			list := set.chunks[id]
			c.Acc.Read += int64(len(list))
			i, ok := rows[id]
			if !ok {
				c.Acc.Drop(CodeClientFile, int64(len(list)), source.Place{File: set.file},
					"chunks of request %q, which no TraceV2 file has", id)
				continue
			}
			c.Acc.Keep(int64(len(list)))
			setChunks(&c.Requests[i], list)
		}
	}
}

// traceStem returns the name of the trace that a trace file or chunk file belongs to.
func traceStem(file string) string {
	stem, _ := stemOf(file)
	return strings.TrimSuffix(stem, ".itl")
}

// traceStemOf returns the trace that has the i-th request.
func (c *Reader) traceStemOf(i int) string {
	for _, f := range c.traceFiles {
		if i >= f.from && i < f.to {
			return f.stem
		}
	}
	return ""
}

// setChunks gives a request the times of its chunks.
func setChunks(r *trace.ObservedRequest, list []chunk) {
	stat.SortStable(list, func(a, b chunk) int { return cmp.Compare(a.index, b.index) })
	r.Chunks = trace.Some(int64(len(list)))
	r.FirstChunkNs = trace.Some(list[0].ns)
	r.LastChunkNs = trace.Some(list[len(list)-1].ns)
	r.ChunkGapsUs = nil
	for k := 1; k < len(list); k++ {
		r.ChunkGapsUs = append(r.ChunkGapsUs, float64(list[k].ns-list[k-1].ns)/1000)
	}
	setTimesFromStamps(r)
}

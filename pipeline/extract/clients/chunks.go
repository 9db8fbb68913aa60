package clients

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// chunkHeader begins the chunk file beside a TraceV2 (.itl.csv).
const chunkHeader = "request_id,chunk_index,timestamp_us"

// chunk is one row of a chunk file.
type chunk struct{ index, ns int64 }

// chunkSet are the chunks of one file by request, as far as they wait for the
// requests they belong to.
type chunkSet struct {
	file   string
	chunks map[string][]chunk
}

// chunkFile reads the times of chunks, in any order.
func (c *Reader) chunkFile(src *source.Source) error {
	rd := csv.NewReader(&tally{src.R, &c.Acc.Bytes})
	rd.FieldsPerRecord, rd.ReuseRecord = -1, true
	set := chunkSet{file: src.Name, chunks: map[string][]chunk{}}
	for line := int64(0); ; line++ {
		fields, err := rd.Read()
		c.Acc.Lines++
		switch {
		case err == io.EOF:
			c.chunkSets = append(c.chunkSets, set)
			return nil
		case errors.As(err, new(*csv.ParseError)):
			c.bad(src, line+1, 1, err)
			continue
		case err != nil:
			c.chunkSets = append(c.chunkSets, set)
			return src.ReadError(err)
		case line == 0:
			continue
		}
		index, at, err := chunkFields(fields)
		if err != nil {
			row, _ := rd.FieldPos(0)
			c.bad(src, int64(row), 1, err)
			continue
		}
		id := strings.Clone(fields[0])
		set.chunks[id] = append(set.chunks[id], chunk{index, at * 1000})
	}
}

func chunkFields(fields []string) (index, us int64, err error) {
	if len(fields) != 3 {
		return 0, 0, fmt.Errorf("chunk: got %d fields, want 3", len(fields))
	}
	if index, err = strconv.ParseInt(fields[1], 10, 64); err == nil {
		us, err = strconv.ParseInt(fields[2], 10, 64)
	}
	if err != nil || index < 0 || us < 0 {
		return 0, 0, fmt.Errorf("chunk: got the index %.20q at %.20q us, want integers of at least 0", fields[1], fields[2])
	}
	return index, us, nil
}

// joinChunks gives requests the chunks that stand in a file of their own. Where ids
// are those of several files, the file of the same name has them.
func (c *Reader) joinChunks() {
	for _, set := range c.chunkSets {
		rows := map[string]int{}
		for i := range c.Rows {
			if r := &c.Rows[i]; r.Source == sourceTraceV2 && (len(c.traceFiles) < 2 || c.stemAt(i) == dataStem(set.file)) {
				rows[r.ID] = i
			}
		}
		for _, id := range slices.Sorted(maps.Keys(set.chunks)) {
			list := set.chunks[id]
			c.Acc.Read += int64(len(list))
			i, ok := rows[id]
			if !ok {
				c.Acc.Drop(CodeClientFile, int64(len(list)), source.Place{File: set.file}, "chunks of request %q, which no TraceV2 file has", id)
				continue
			}
			c.Acc.Keep(int64(len(list)))
			setChunks(&c.Rows[i], list)
		}
	}
}

// dataStem is the name of the trace that a chunk file belongs to.
func dataStem(file string) string {
	stem, _ := stemOf(file)
	return strings.TrimSuffix(stem, ".itl")
}

// setChunks gives a request the times of its chunks.
func setChunks(r *trace.ObservedRequest, list []chunk) {
	slices.SortStableFunc(list, func(a, b chunk) int { return cmp.Compare(a.index, b.index) })
	r.Chunks = trace.Some(int64(len(list)))
	r.ChunkGapsUs = nil
	r.FirstChunkNs, r.LastChunkNs = trace.Some(list[0].ns), trace.Some(list[len(list)-1].ns)
	for k := 1; k < len(list); k++ {
		r.ChunkGapsUs = append(r.ChunkGapsUs, float64(list[k].ns-list[k-1].ns)/1000)
	}
	r.TTFTUs, r.E2EUs = gapUs(r.SendNs, r.FirstChunkNs), gapUs(r.SendNs, r.LastChunkNs)
}

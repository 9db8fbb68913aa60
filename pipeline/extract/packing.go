package extract

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file packs requests on disk until the end of the input. Only then is the engine of each request
// known and the table of requests written. So memory hardly grows with the length of a dump: a coreRow
// or apiRow is in a row file, and the journey events in a spool. Only the id of a request and the
// places of its rows are in memory.

// coreRow is an engine request as packed on disk.
type coreRow struct {
	coreHead
	hashes  []uint64 // of its journey events, to find repeated ones
	request trace.Request
}

// coreHead is the first part of a coreRow. Joining requests and dividing them among engines needs
// only this part, so it can be read without the rest.
type coreHead struct {
	Key       spanKey // of its first span
	Parent    [8]byte // span id of the parent, an API span
	HasParent bool
	File      int32 // of its first span: the index in collector.names
	Line      int64
	Order     int64  // position of its first span in the input
	Resource  uint64 // hash of the resource, which identifies the process
	LastNs    int64  // of the latest event, monotonic
	LastStep  int64  // step of the last event
	SchedNs   int64  // of the first SCHEDULED event
	SchedStep int64  // its step; -1 without one
}

// apiRow is an API span or stock span as packed on disk.
type apiRow struct {
	apiHead
	request trace.Request
}

// apiHead is the first part of an apiRow, which can be read without the rest.
type apiHead struct {
	Key      spanKey
	File     int32 // the index in collector.names
	Line     int64
	Order    int64  // position in the input
	Kept     int64  // number of records kept: the span and its events
	Resource uint64 // hash of the resource, which identifies the process
}

// packing has the row files of requests and the codecs of their rows.
type packing struct {
	coreRows *files.Codec[coreRow]
	apiRows  *files.Codec[apiRow]
	events   *files.Codec[trace.JourneyEvent]
	cores    *source.RowFile // of packed coreRows
	apis     *source.RowFile // of packed apiRows
	row      coreRow         // the one that is read or changed at the moment, reused to save memory
	buf      []byte          // a packed row, reused likewise
}

// Codecs of the beginnings of rows, and of sightings.
var (
	coreHeads = files.NewCodec[coreHead]()
	apiHeads  = files.NewCodec[apiHead]()
	sightCode = files.NewCodec[sighting]()
)

// newPacking returns empty files for packed rows.
func newPacking(mem *source.Memory) packing {
	return packing{
		coreRows: files.NewCodec[coreRow](),
		apiRows:  files.NewCodec[apiRow](),
		events:   files.NewCodec[trace.JourneyEvent](),
		cores:    mem.RowFile(),
		apis:     mem.RowFile(),
	}
}

// putCore packs a core row and returns its place for getCore.
func (p *packing) putCore(r *coreRow) (at int64, err error) {
	p.buf = p.coreRows.Append(p.buf[:0], r)
	return p.cores.Put(p.buf)
}

// getCore reads the core row at a place into r. str keeps one copy of equal strings.
func (p *packing) getCore(at int64, r *coreRow, str *files.Interner) error {
	row, err := p.cores.Get(at)
	if err != nil {
		return err
	}
	r.request = trace.Request{} // unknown values are not decoded, so they would keep those of another row
	return p.coreRows.Decode(row, r, str)
}

// putAPI packs an API row and returns its place for getAPI.
func (p *packing) putAPI(r *apiRow) (at int64, err error) {
	p.buf = p.apiRows.Append(p.buf[:0], r)
	return p.apis.Put(p.buf)
}

// getAPI returns the API row at a place.
func (p *packing) getAPI(at int64, str *files.Interner) (r apiRow, err error) {
	row, err := p.apis.Get(at)
	if err == nil {
		err = p.apiRows.Decode(row, &r, str)
	}
	return r, err
}

// coreHead returns the first fields of the core row at a place.
func (p *packing) coreHead(at int64) (coreHead, error) { return headOf(p.cores, coreHeads, at) }

// apiHead returns the first fields of the API row at a place.
func (p *packing) apiHead(at int64) (apiHead, error) { return headOf(p.apis, apiHeads, at) }

// headOf returns the first fields of the row at a place.
func headOf[T any](rows *source.RowFile, codec *files.Codec[T], at int64) (head T, err error) {
	row, err := rows.Get(at)
	if err == nil {
		_, err = codec.Head(row, &head, nil)
	}
	return head, err
}

// digest is a 96-bit hash that replaces an id in maps, where a string would take more memory and its
// pointer be followed by the garbage collector. Its seed differs between processes. Among a billion
// ids, two have the same digest with a probability of 1e-11.
type digest [12]byte

var digestSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// digestID returns a hash of an id.
func digestID[T string | spanKey](id T) (d digest) {
	binary.LittleEndian.PutUint64(d[:], maphash.Comparable(digestSeeds[0], id))
	binary.LittleEndian.PutUint32(d[8:], uint32(maphash.Comparable(digestSeeds[1], id)))
	return d
}

// texts stores many small texts in large blocks. A place in it takes eight bytes, half of a string,
// and has no pointer for the garbage collector to follow.
type texts struct{ blocks [][]byte }

// text is the place of a text: the block, and the offset in it.
type text struct{ block, offset uint32 }

const textBlock = 1 << 18 // bytes

// put stores a text, its length before it, and returns its place. A text does not continue in the next
// block, so one that is longer than a block gets a block of its size.
func (t *texts) put(s string) text {
	needed := len(s) + binary.MaxVarintLen64
	if n := len(t.blocks); n == 0 || cap(t.blocks[n-1])-len(t.blocks[n-1]) < needed {
		t.blocks = append(t.blocks, make([]byte, 0, max(textBlock, needed)))
	}
	block := &t.blocks[len(t.blocks)-1]
	at := text{block: uint32(len(t.blocks) - 1), offset: uint32(len(*block))}
	*block = binary.AppendUvarint(*block, uint64(len(s)))
	*block = append(*block, s...)
	return at
}

// get returns the text at a place. The caller must not change it.
func (t *texts) get(at text) []byte {
	b := t.blocks[at.block][at.offset:]
	length, prefix := binary.Uvarint(b) // prefix: bytes of the length itself
	return b[prefix : prefix+int(length)]
}

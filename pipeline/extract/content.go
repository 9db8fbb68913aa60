package extract

// This file recognises what a file of a run folder contains from its beginning, whatever its name is.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// kind is what a file of a run folder contains, found out from its beginning.
type kind uint8

const (
	kindOther     kind = iota
	kindSpans          // a dump of spans
	kindKVEvents       // events of the KV cache
	kindLog            // lines of a server's log, with iterations
	kindPasses         // dynamo.fpm.trace.v1
	kindClient         // the result of a load client
	kindSilent         // a vLLM log without an iteration in its first 8 MB
	kindCounting       // one that counts tokens every ten seconds
	kindMetrics        // an answer of /metrics
	kindCompanion      // what a load client writes beside its requests
	kindBroken         // cut, or impossible to decompress
	kindEmpty
)

// vllmWords are texts by which a log of vLLM is recognised.
var vllmWords = [][]byte{
	[]byte("vLLM API server version"),
	[]byte("non-default args"),
	[]byte("(EngineCore"),
	[]byte("(APIServer"),
	[]byte("(ApiServer_"),
	[]byte(": Avg prompt throughput: "),
}

// The bytes of a file that are examined beyond source.HeadBytes.
const (
	logBytes   = 8 << 20 // for the first iteration of a log, which may come late
	startBytes = 1 << 20 // for the engine arguments in a log
)

// peekLimits are the limits of files that are only looked at. A beginning of 8 MB cannot fill the
// memory, so a file may expand more than when it is read (Options.MaxExpansion).
var peekLimits = source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14}

// namedAlone is why spans are not read that are beside those of run.yaml, or beside a dump of the usual name.
const namedAlone = "its spans are read where `files.traces` of run.yaml names it"

// contentOf returns the kind of a file. If the file will not be read, it also returns the reason as
// a text. Forms that the beginning shows come first, because an iteration of a log is searched for in
// 8 MB.
func contentOf(in *source.Input) (kind, string) {
	src, err := source.Open(in, nil, peekLimits)
	if src == nil {
		return kindBroken, fmt.Sprint(err)
	}
	defer src.Close()
	// Open looks for a dump of spans. That a file is none is no damage.
	if e := source.AsSyntax(err); err != nil && (e == nil || e.Code != source.CodeNotOTLP) {
		return kindBroken, fmt.Sprint(err)
	}
	head, err := src.R.Peek(source.HeadBytes)
	head = bytes.Clone(head) // kindOfLog will overwrite the buffer
	body := bytes.TrimLeft(head, " \t\r\n\ufeff\x00")
	switch {
	case len(body) == 0 && err != nil && err != io.EOF:
		return kindBroken, fmt.Sprint(err)
	case len(body) == 0 && len(head) < source.HeadBytes:
		return kindEmpty, "it is empty, want a recording"
	case len(body) == 0:
		return kindOther, "it begins with blanks alone, want a form of docs/formats.md"
	case otlp.IsDump(body), otlp.IsDumpMessage(src.FirstMessage(source.HeadBytes)):
		return kindSpans, namedAlone
	case bytes.IndexByte(head, 0) >= 0:
		return kindOther, "it is binary"
	case (body[0] == '{' || body[0] == '[') && enginelog.IsPassTrace(body):
		return kindPasses, ""
	case enginelog.IsKVEvents(body):
		return kindKVEvents, "its KV events are read where `files.kv_events` of run.yaml names it"
	case clients.IsClientFile(body):
		return kindClient, ""
	case enginelog.IsMetrics(body), enginelog.IsScrapes(body):
		return kindMetrics, ""
	case clients.IsCompanion(body):
		return kindCompanion, "it is what a load client writes beside its requests"
	}
	switch k := kindOfLog(src.R); {
	case k != kindOther:
		return k, ""
	case slices.ContainsFunc(vllmWords, func(w []byte) bool { return bytes.Contains(head, w) }):
		return kindSilent, ""
	}
	if err := clients.RefuseForeign(in.Name, head); err != nil {
		return kindOther, strings.TrimPrefix(err.Msg, in.Name+": ") + ": " + err.Hint
	}
	if why := cutJSON(in); why != "" && (body[0] == '{' || body[0] == '[') {
		return kindBroken, why
	}
	return kindOther, "got " + clients.DescribeHead(body) + ", want a form of docs/formats.md"
}

// cutJSON returns a description of the place where the JSON of a file ends in the middle of a
// value; "" if it does not end so within the first logBytes.
func cutJSON(in *source.Input) string {
	src, err := source.Open(in, nil, peekLimits)
	if src == nil {
		return fmt.Sprint(err)
	}
	defer src.Close()
	part := &io.LimitedReader{R: src.R, N: logBytes}
	dec := json.NewDecoder(part)
	for {
		var value json.RawMessage
		switch err := dec.Decode(&value); {
		case err == io.ErrUnexpectedEOF && part.N > 0: // the file ends there, not the part of it
			return fmt.Sprintf("its JSON ends within a value that begins after byte %d, want the whole of it",
				dec.InputOffset())
		case err != nil:
			return ""
		}
	}
}

// kindOfLog returns kindLog if the next logBytes have a line with an iteration, kindCounting if they have one with counts of
// tokens, and else kindOther.
func kindOfLog(r *bufio.Reader) kind {
	k := kindOther
	for read := 0; read < logBytes; {
		line, err := r.ReadSlice('\n')
		if enginelog.HasPass(line) {
			return kindLog
		}
		if enginelog.HasStatistics(line) {
			k = kindCounting
		}
		if err != nil && err != bufio.ErrBufferFull { // a longer line is searched in pieces
			return k
		}
		read += len(line)
	}
	return k
}

// refuseForeign returns an error if an input is an export of another tracing tool.
func refuseForeign(in []source.Input) error {
	for i := range in {
		if in[i].Path == "-" || isPipe(in[i].Path) { // what is read of these cannot be read again
			continue
		}
		if err := clients.RefuseForeign(in[i].Name, beginning(&in[i])); err != nil {
			return err
		}
	}
	return nil
}

// beginning returns the first bytes of a file, decompressed; none for a file that cannot be read.
func beginning(in *source.Input) []byte {
	src, _ := source.Open(in, nil, peekLimits)
	if src == nil {
		return nil
	}
	defer src.Close()
	head, _ := src.R.Peek(source.HeadBytes)
	return bytes.Clone(head)
}

// isPipe reports whether a path is a pipe or a device, which cannot be read twice.
func isPipe(path string) bool {
	st, err := os.Stat(path)
	return err != nil || !st.Mode().IsRegular()
}

// Kinds of recordings, as KindOf returns them.
const (
	KindSpans     = "spans"
	KindKVEvents  = "KV events"
	kindRecording = "another recording"
)

// KindOf returns what a file records: spans, KV events, or another recording that extractions read; "" for any other file.
func KindOf(path string) string {
	switch k, _ := contentOf(&source.Input{Path: path, Name: path}); k {
	case kindSpans:
		return KindSpans
	case kindKVEvents:
		return KindKVEvents
	case kindLog, kindPasses, kindClient, kindSilent, kindCounting, kindMetrics, kindCompanion:
		return kindRecording
	}
	return ""
}

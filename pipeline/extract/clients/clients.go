// Package clients reads the results of load clients and benchmark tools: a record for each
// request (trace.ObservedRequest) where a file has them, else the means of load levels
// (trace.LoadPoint).
//
// Start at the two tables: requestFormats below lists the forms of requests and levelFormats in
// levels.go those of load levels. A form is recognised by the beginning of the file, never by
// its name, and each has a source file of its own. A Reader reads the client files of one run:
// ReadFile for each file, then Finish, which joins the records of the files and checks for known
// errors of the tools, such as timestamps that are missing or not what their name says (traps.go,
// spec#client-traps). ReadLevels reads a single file of load levels.
//
// Stamps are int64 ns on the client's clock; durations are float64 us of requests and ms of
// load levels. Every record that is read is kept, or dropped and counted with a reason and a
// place.
package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Values of trace.ObservedRequest.Source.
const (
	sourceClient        = "client"
	sourceGuideLLM      = "guidellm"
	sourceTraceV2       = "tracev2"
	sourceServing       = "llmservingsim"
	sourceUsage         = "usage" // only until joinUsage
	sourceBench         = "vllm_bench"
	sourceAIPerf        = "aiperf"
	sourceSGLang        = "sglang"
	sourceInferencePerf = "inference_perf"
)

// requestReader adds the requests of a file to the Reader. An error means that the rest of the
// file cannot be read; what was added before stays.
type requestReader func(c *Reader, f *clientFile) error

// requestFormats are the forms of files with single requests. The first whose Sniff accepts a
// file reads it; the guesses at the end are for files that run.yaml names.
var requestFormats = []source.Format[requestReader]{
	{Name: "inference-perf", Sniff: sniffInferencePerf, Read: (*Reader).readInferencePerf},
	{Name: "GuideLLM", Sniff: sniffGuideLLM, Read: (*Reader).readGuideLLM},
	{Name: "GuideLLM", Sniff: sniffOldGuideLLM, IsGuess: true, Read: (*Reader).readGuideLLM},
	{Name: "vllm bench serve", Sniff: sniffBenchResult, Read: (*Reader).readBenchResults},
	{Name: "AIPerf", Sniff: sniffAIPerf, Read: (*Reader).readAIPerf},
	{Name: "load levels", Sniff: sniffLevels, Read: (*Reader).readLevels},
	{Name: "SGLang's requests", Sniff: sniffSGLang, Read: readEachLine(parseClientLine)},
	{Name: "TraceV2", Sniff: sniffChunkFile, Read: (*Reader).readChunkFile},
	{Name: "TraceV2", Sniff: sniffTraceV2, Read: (*Reader).readTraceV2},
	{Name: "TraceV2", Sniff: isNoObject, IsGuess: true, Read: (*Reader).readTraceV2},
	{Name: "usage lines", Sniff: sniffUsage, Read: readEachLine(parseUsageLine)},
	{Name: "client_requests.jsonl", Sniff: sniffOwn, Read: readEachLine(parseClientLine)},
	{Name: "client_requests.jsonl", Sniff: sniffServing, Read: readEachLine(parseClientLine)},
	{Name: "client_requests.jsonl", Sniff: isObject, IsGuess: true, Read: readEachLine(parseClientLine)},
}

// isObject reports whether a file begins with a JSON object.
func isObject(head []byte) bool { return bytes.HasPrefix(head, []byte("{")) }

// sniffOwn reports whether a file has lines of our own form, by the keys of the first one.
func sniffOwn(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return isObject(line) && containsAll(line, `"id"`, `"send_ns"`, `"usage"`)
}

// sniffServing reports whether a file has lines of llmservingsim's requests.jsonl.
func sniffServing(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return isObject(line) && containsAll(line, `"request_id"`, `"input_toks"`, `"output_toks"`)
}

// isNoObject reports whether a file does not begin with a JSON object.
func isNoObject(head []byte) bool { return !isObject(head) }

// isList reports whether a file begins with a JSON list.
func isList(head []byte) bool { return bytes.HasPrefix(head, []byte("[")) }

// containsAll reports whether a text contains each of the words.
func containsAll(text []byte, words ...string) bool {
	for _, w := range words {
		if !bytes.Contains(text, []byte(w)) {
			return false
		}
	}
	return true
}

// trimHead returns the beginning of a file without leading space and byte order mark.
func trimHead(head []byte) []byte { return bytes.TrimLeft(head, " \t\r\n\ufeff") }

// IsClientFile reports whether a file is the result of a client, by its beginning alone.
func IsClientFile(head []byte) bool { return source.IsProven(requestFormats, trimHead(head)) }

// formatNames returns the names of the forms of requests and load levels, each once.
func formatNames() []string {
	var names []string
	for _, f := range requestFormats {
		names = append(names, f.Name)
	}
	for _, f := range levelFormats {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Reader reads the client files of one run.
type Reader struct {
	Names    []source.Input // all client files of the run
	Acc      *source.Account
	Requests []trace.ObservedRequest
	Loads    []Load            // of files that state how the load was offered
	Points   []trace.LoadPoint // of files that hold load levels only
	Findings []trace.Finding   // what was assumed or corrected
	Memory   int64             // bytes that the records may take; 0 for no limit

	held int64              // bytes that they take
	full *trace.SyntaxError // the error of exceeding Memory; nil before

	// What Finish needs of the files that were read.
	traceFiles   []traceFile   // TraceV2 files, with their headers
	chunkSets    []chunkSet    // chunk times in files of their own
	requestFiles []requestFile // which of Requests each file gave
	stated       []statedLoad  // what files state of their loads and their requests contradict
	drawn        []drawnLoad   // loads of randomly drawn prompts
	beside       []besideFile  // files of requests, to be compared with their tool's summaries
	summaries    []summaryFile // those summaries: files with load levels
}

// clientFile is a file that is being read.
type clientFile struct {
	in  *source.Input
	how source.Options
	src *source.Source
}

// ReadFile adds the requests or load levels of one file to c. If the rest of the file cannot be read
// it is dropped as one record, and what came before stays. Code of its errors: unknown_client_file.
func (c *Reader) ReadFile(in *source.Input, how source.Options) error {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return err
	}
	before := len(c.Requests)
	defer func() {
		c.dropStrayStamps(src, before)
		in.Size, in.Sum = src.Digest()
		in.Gave += int64(len(c.Requests) - before)
		c.requestFiles = append(c.requestFiles, requestFile{name: src.Name, from: before, to: len(c.Requests)})
		src.Close()
	}()
	// Open looks for spans; that a file has none is no fault of a client's result.
	if e := source.AsSyntax(err); e != nil && e.Code != source.CodeNotOTLP {
		return c.dropRest(src, e)
	}
	head, _ := src.R.Peek(source.HeadBytes)
	if err := RefuseForeign(src.Name, head); err != nil {
		return err
	}
	head = trimHead(head)
	if len(head) == 0 {
		return nil
	}
	format := source.FormatOf(requestFormats, head) // the two guesses leave no file without one
	err = format.Read(c, &clientFile{in: in, how: how, src: src})
	if c.full != nil {
		return c.full
	}
	if err == nil { // the checksum of a compressed document follows its last byte
		if _, atEnd := io.Copy(io.Discard, src.R); atEnd != nil {
			err = src.ReadError(atEnd)
		}
	}
	if err == errNoRequest {
		return unknownFile(src.Name, head)
	}
	if err != nil {
		return c.dropRest(src, err)
	}
	return c.Acc.Err
}

// Finish joins the contents of several files and looks for known errors of the tools (traps.go). It
// must be called after all files were read.
func (c *Reader) Finish(dep *deploy.Deployment) {
	c.doubtDrawnAgain(dep) // first: the others may remove requests, and its ranges are of all of them
	c.joinChunks()
	c.dropRepeatedFiles() // before the joins, which expect one record of a request from each file
	c.joinRaw()
	c.joinUsage()
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.Streaming.OK && !r.Streaming.V {
			// The only chunk of an answer that is not streamed comes at its end, so it gives no
			// time of the first token.
			r.FirstChunkNs = trace.Opt[int64]{}
			r.TTFTUs = trace.Opt[float64]{}
			r.ChunkGapsUs = nil
			r.Chunks = trace.Opt[int64]{}
		}
	}
	c.compareSummaries()
	c.dropRepeatedPoints()
	c.findTraps(dep)
}

// errNoRequest is the error of a file of lines that has no request.
var errNoRequest = errors.New("got no request")

// unknownFile returns the error of a file that has none of the forms.
func unknownFile(name string, head []byte) error {
	return trace.Errorf(source.CodeUnknownFile,
		"%s: got a client file of unknown kind (%s), want one of %s; or lines with id and send_ns",
		name, DescribeHead(head), strings.Join(formatNames(), ", ")).
		WithHint("remove it from `files.client_requests` in run.yaml")
}

// DescribeHead returns a description of a file of unknown form: the keys of its first JSON object,
// else its first line.
func DescribeHead(head []byte) string {
	var first map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(head)).Decode(&first) != nil {
		line, _, _ := bytes.Cut(head, []byte("\n"))
		return fmt.Sprintf("the first line %.60q", bytes.TrimRight(line, "\r"))
	}
	const most = 8
	keys := slices.Sorted(maps.Keys(first))
	return "the keys " + strings.Join(keys[:min(len(keys), most)], ", ")
}

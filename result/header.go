// Package result has the documents of the stages as structs: [Extract] is extract.json, [Inspect]
// inspect.json, [Fit] fit.json, [Validation] validation.json (spec#documents). Other programs read these
// files. A key keeps its name, meaning and unit as long as [SchemaVersion] stays; new keys may be added.
//
// Documents hold codes and figures, of which package report makes sentences. Findings, a [Diagnosis] and an
// [Identity] have a sentence of their own, because its words depend on the recording. What is unknown is
// null (a nil pointer or an unknown trace.Opt), never 0 or -1. The unit of a time is in its key; shares and
// fractions are in [0, 1].
//
// Every document starts with a [Header]. [Marshal] encodes it with a digest of its own text, [Read] decodes
// it strictly, and [Intact] reports whether it was changed since.
package result

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
)

// SchemaVersion is the version of the documents this package writes, and ValidationVersion that of
// validation.json.
const (
	SchemaVersion     = "1"
	ValidationVersion = "2" // gates of replays compare other figures than in version 1, and have other names
)

// Header starts every document.
type Header struct {
	SchemaVersion string  `json:"schema_version"`
	ToolVersion   string  `json:"tool_version"`
	Platform      string  `json:"platform"` // of the build that computed it, see Platform; "" or "any" in older documents
	Command       string  `json:"command"`  // stage and the options that can change the result, sorted
	Inputs        []Input `json:"inputs"`
	Config        *Config `json:"config,omitempty"` // the pipeline.yaml that set options; absent without one
	// Digest shows whether the document was changed: SHA-256 of its text with this value empty and no space
	// between tokens. Write fills it in; "" in older documents.
	Digest string `json:"document_digest"`
}

// Config is a pipeline.yaml and the flags it set, as they would be given on the command line.
type Config struct {
	File Input    `json:"file"`
	Set  []string `json:"set"`
}

// NewHeader returns the header of a document written by this build.
func NewHeader(toolVersion, command string) Header {
	return Header{SchemaVersion: SchemaVersion, ToolVersion: toolVersion, Platform: Platform(), Command: command, Inputs: []Input{}}
}

// Platform returns the build's operating system, architecture and level, such as "linux/amd64/v1".
// The last digits of a result depend on it: the compiler fuses multiplications with additions on
// some architectures and not on others.
func Platform() string {
	name := runtime.GOOS + "/" + runtime.GOARCH
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GO"+strings.ToUpper(runtime.GOARCH) {
				name += "/" + s.Value
			}
		}
	}
	return name
}

// OrNull returns a number as documents have it: nil, which is written as null, if it is unknown
// (NaN) or infinite.
func OrNull(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// Share returns part/whole; nil if whole is 0.
func Share(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	share := float64(part) / float64(whole)
	return &share
}

// TextOrNull returns a text as documents have it; nil if it is empty.
func TextOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

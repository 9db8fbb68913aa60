// Package result holds the documents other programs read from us, as structs: extract.json,
// fit.json, validation.json, inspect.json (spec#documents). Keys are a promise: add freely, never
// rename or change a unit without a new schema version. Unknown is null (a nil pointer or an
// unknown trace.Opt), never 0 or -1.
package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
)

// SchemaVersion is the version of every document this package writes.
const SchemaVersion = "1"

// Header starts every document.
type Header struct {
	SchemaVersion string  `json:"schema_version"`
	ToolVersion   string  `json:"tool_version"`
	Platform      string  `json:"platform"` // of the build that computed it, see Platform; "" in older documents
	Command       string  `json:"command"`  // stage and the options that can change the result, sorted
	Inputs        []Input `json:"inputs"`
	Config        *Config `json:"config,omitempty"` // the pipeline.yaml that set options; absent without one
}

// Config is a pipeline.yaml and the flags it set, as they would stand on the
// command line.
type Config struct {
	File Input    `json:"file"`
	Set  []string `json:"set"`
}

// NewHeader starts a document of this build.
func NewHeader(toolVersion, command string) Header {
	return Header{SchemaVersion: SchemaVersion, ToolVersion: toolVersion, Platform: Platform(), Command: command, Inputs: []Input{}}
}

// Platform names what the last digits of a result depend on beside its inputs:
// operating system, architecture and its level, such as "linux/amd64/v1".
// Compilers may fuse a multiplication with an addition on one and not on another.
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

// Write encodes a document: two-space indent, no HTML escaping, final newline.
func Write(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

// Marshal is Write into memory.
func Marshal(doc any) ([]byte, error) {
	var b bytes.Buffer
	err := Write(&b, doc)
	return b.Bytes(), err
}

// Read decodes a document strictly: another schema version and unknown keys are errors.
func Read(r io.Reader, doc any) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var head struct {
		SchemaVersion string `json:"schema_version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	if head.SchemaVersion != SchemaVersion {
		return fmt.Errorf("schema_version: got %q, want %q", head.SchemaVersion, SchemaVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(doc)
}

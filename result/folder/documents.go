package folder

// This file reads and writes the documents in an output folder.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// WriteDocument writes a document of package result.
func WriteDocument(path string, doc any) error {
	b, err := result.Marshal(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return files.Write(path, b)
}

// ReadDocument reads a document of package result. warn, unless nil, is called with a warning if
// the document was changed after it was written; its values are used in any case.
func ReadDocument(path string, doc any, warn func([]trace.Finding)) error {
	text, err := files.Read(path, files.MaxInput, false)
	if err != nil {
		return err
	}
	return ParseDocument(path, text, doc, warn)
}

// ParseDocument does what ReadDocument does for a text that was already read. path names the
// document in errors.
func ParseDocument(path string, text []byte, doc any, warn func([]trace.Finding)) error {
	if err := result.Read(text, doc); err != nil {
		return documentError(path, text, err)
	}
	if warn != nil && !result.Intact(text) {
		warn([]trace.Finding{trace.Findingf(coeff.DocumentChanged, "%s was changed after it was written; its values are used as they stand",
			filepath.Base(path))})
	}
	return nil
}

// documentError returns an error of decoding, completed with line and column of a syntax error, or
// with the stage that wrote the file if it is another stage's document.
func documentError(path string, text []byte, err error) error {
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); !bytes.HasPrefix(trimmed, []byte("{")) {
		line, col := trace.Position(text, int64(len(text)-len(trimmed)+1))
		return &trace.SyntaxError{File: path, Line: line, Col: col, Code: codeBadDocument,
			Msg:  "got text that is no JSON object, want a document such as fit.json",
			Hint: "name the document itself: fit.json lies in the output folder of fit and run"}
	}
	if placed, ok := errors.AsType[*trace.SyntaxError](err); ok {
		placed.File = path
		placed.Code = codeBadDocument
		return placed
	}
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		if stage := StageOf(path); stage != "" {
			return trace.Hinted(fmt.Errorf("%s: got a file that %s wrote: %w", path, stage, err),
				cmp.Or(trace.HintOf(err), "the command's --help names the document it reads"))
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	line, col := trace.Position(text, syntax.Offset)
	return &trace.SyntaxError{File: path, Line: line, Col: col, Code: codeBadDocument, Msg: syntax.Error()}
}

// StageOf returns the stage that wrote the JSON document at path, by the command recorded in it; empty
// for other files.
func StageOf(path string) string {
	data, err := files.Read(path, files.MaxInput, false)
	if err != nil {
		return ""
	}
	var head result.Header
	if json.Unmarshal(data, &head) != nil {
		return ""
	}
	stage, _, _ := strings.Cut(head.Command, " ")
	return stage
}

// ReadInput returns the content of a file, and its description as an input under its base name.
// special allows a pipe or a device.
func ReadInput(path string, special bool) ([]byte, result.Input, error) {
	return readAtMost(path, files.MaxInput, special)
}

// ReadYAML does what ReadInput does for a file that is YAML, which is smaller.
func ReadYAML(path string, special bool) ([]byte, result.Input, error) {
	return readAtMost(path, files.MaxYAML, special)
}

// readAtMost does what ReadInput does for a file of at most so many bytes.
func readAtMost(path string, most int64, special bool) ([]byte, result.Input, error) {
	data, err := files.Read(path, most, special)
	if err != nil {
		return nil, result.Input{}, err
	}
	return data, InputOf(filepath.Base(path), data), nil
}

// InputOf returns the description of a file: name, size in bytes and SHA-256.
func InputOf(name string, data []byte) result.Input {
	sum := sha256.Sum256(data)
	return result.Input{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// SetBytes returns the content of the coefficient file of a set.
func SetBytes(set *coeff.Set) ([]byte, error) {
	var b bytes.Buffer
	err := set.Save(&b)
	return b.Bytes(), err
}

// LoadCoefficients returns the coefficients of a file, and the file's description as an input.
// special allows a pipe or a device.
func LoadCoefficients(path string, special bool) (*coeff.Set, result.Input, error) {
	data, in, err := ReadInput(path, special)
	if err != nil {
		return nil, in, err
	}
	set, err := coeff.Load(bytes.NewReader(data), path, features.CheckSet)
	if err != nil && StageOf(path) == "fit" { // fit.json was named in place of coefficients.yaml
		err = trace.Hinted(fmt.Errorf("%s: got a file that fit wrote, want a coefficient file", path),
			"blis-train export "+path+" -o "+CoefficientsFile)
	}
	return set, in, err
}

// ToolVersion is written into every document; a release build may set it with
// -ldflags -X.
var ToolVersion = "0.1.0"

// Header returns the header of a document written by this version of the tool. config is the
// pipeline.yaml that set options, or nil.
func Header(command string, config *result.Config) result.Header {
	h := result.NewHeader(ToolVersion, command)
	h.Config = config
	return h
}

// codeBadDocument is the code of a document that is not JSON.
const codeBadDocument trace.Code = "bad_document"

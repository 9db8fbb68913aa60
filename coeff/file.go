package coeff

// This file reads and writes coefficient files.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
	"gopkg.in/yaml.v3"
)

// document is a coefficient file (spec#artifact): provenance, the set, and a digest of both.
type document struct {
	SchemaVersion string  `yaml:"schema_version"`
	ToolVersion   string  `yaml:"tool_version"`
	Platform      string  `yaml:"platform,omitempty"`
	Origin        string  `yaml:"origin,omitempty"` // hand: made or changed by hand, and meant to be
	Command       string  `yaml:"command"`
	Inputs        []Input `yaml:"inputs"`
	Physics       physics `yaml:"physics_coefficients"`
	Digest        string  `yaml:"digest,omitempty"` // the last line
}

// physics is a set with the one key that only spec 1.0's flat form has.
type physics struct {
	Set       `yaml:",inline"`
	FlatAlpha []Coefficient `yaml:"alpha_coefficients,omitempty"` // read only
}

// Load returns the set in a coefficient file, which it reads strictly: unknown keys, wrong lengths,
// names, units and versions and numbers that are not finite are errors with their line
// (spec#artifact-load). file is the name in messages. terms compares the terms with the features of
// the spec version (features.CheckSet); nil skips that. The flat form of spec 1.0,
// alpha_coefficients and beta_coefficients as bare lists, is accepted too; its alpha becomes the
// queue target.
func Load(r io.Reader, file string, terms func(*Set) error) (*Set, error) {
	text, err := files.ReadBounded(r, file, files.MaxYAML)
	if err != nil {
		return nil, err
	}
	var doc document
	if isBlank(text) {
		return nil, &trace.SyntaxError{File: file, Code: BadFile, Msg: "got no line but blank ones and comments, want a coefficient set",
			Hint: "blis-train fit OUT writes one"}
	}
	if err = files.DecodeYAML(text, file, &doc); err != nil {
		return nil, yamlError(file, text, err)
	}
	s := &doc.Physics.Set
	s.Origin = doc.Origin
	switch {
	case doc.Origin != "" && doc.Origin != OriginHand:
		return nil, withPlace(file, text, trace.Errorf(BadFile, "origin: got %q, want %s or no such key", doc.Origin, OriginHand))
	case doc.Origin == "" && doc.Digest == "" && doc.Platform != "": // programs that state their platform write the digest too
		return nil, &trace.SyntaxError{File: file, Code: BadFile, Msg: "got no digest in the last line: the file is cut, or was changed",
			Hint: "restore it; a file that you made or changed on purpose has the key origin: " + OriginHand}
	}
	s.SchemaVersion = doc.SchemaVersion
	s.ToolVersion = doc.ToolVersion
	s.Platform = doc.Platform
	s.Command = doc.Command
	s.Inputs = doc.Inputs
	err = s.addFlat(doc.Physics.FlatAlpha)
	if err == nil && terms != nil {
		err = terms(s)
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, withPlace(file, text, err)
	}
	if doc.Origin == "" && doc.Digest != "" && !isIntact(text) {
		s.Changed = filepath.Base(file)
	}
	for _, found := range s.FileWarnings() {
		if !slices.Contains(s.Warnings, found) {
			s.Warnings = append([]trace.Finding{found}, s.Warnings...)
		}
	}
	return s, nil
}

// Parse is Load of the bytes of a file, without the comparison with the features. The example computes
// the time of a step and the delay before the queue.
func Parse(text []byte) (*Set, error) { return Load(bytes.NewReader(text), "coefficients", nil) }

// addFlat stores the flat alpha of a spec 1.0 file as the queue target.
func (s *Set) addFlat(alpha []Coefficient) error {
	if alpha == nil {
		return nil
	}
	if s.SpecVersion != flatVersion {
		return trace.Errorf(BadFile, "alpha_coefficients: got the flat form with spec_version %s, want alpha.<target>.coefficients",
			s.SpecVersion)
	}
	// Files of spec 1.0 in the flat form predate schema_version.
	s.SchemaVersion = cmp.Or(s.SchemaVersion, SchemaVersion)
	s.Alpha = []AlphaModel{{Target: Queue, Lambda: s.TrainedOn.Lambda, Coefficients: alpha}}
	s.BetaTarget = cmp.Or(s.BetaTarget, Duration)
	return nil
}

// isBlank reports whether a YAML file has nothing but blanks and comments.
func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// Save checks the set and writes it as YAML. Floats are written with the fewest digits that read
// back exactly, maps with sorted keys: the same set gives the same bytes, and reading them back
// gives the same set.
func (s *Set) Save(w io.Writer) error {
	if err := s.Check(); err != nil {
		return err
	}
	written := document{
		SchemaVersion: s.SchemaVersion,
		ToolVersion:   s.ToolVersion,
		Platform:      s.Platform,
		Origin:        s.Origin,
		Command:       s.Command,
		Inputs:        s.Inputs,
		Physics:       physics{Set: *s},
	}
	var doc yaml.Node
	if err := doc.Encode(&written); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	layOutNode(&doc)
	doc.HeadComment = s.heading()
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	if _, err := w.Write(withDigest(files.Readable(text.Bytes()))); err != nil {
		return fmt.Errorf("write coefficients: %w", err)
	}
	return nil
}

// OriginHand is the origin of a file that a person made or changed: it needs no digest, and every answer from it
// says so.
const OriginHand = "hand"

// DigestKey is the key of the last line of a coefficient file.
const DigestKey = "digest"

// digestKey begins the last line of a coefficient file, which has the SHA-256 of the lines before
// it. Files of older versions and files written by hand do not have that line.
const digestKey = DigestKey + ": "

// withDigest returns the text with its digest line appended.
func withDigest(text []byte) []byte {
	return fmt.Appendf(bytes.Clone(text), "%s\"%x\"\n", digestKey, sha256.Sum256(text))
}

// Body returns a coefficient file without its digest line, and whether it has one.
func Body(text []byte) (body []byte, bound bool) {
	if at := bytes.LastIndex(text, []byte("\n"+digestKey)); at >= 0 {
		return text[:at+1], true
	}
	return text, false
}

// isIntact reports whether the digest in the last line matches the lines before it. A change of line
// endings alone is ignored.
func isIntact(text []byte) bool {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	body, bound := Body(text)
	return bound && bytes.Equal(withDigest(body), text)
}

// FileWarnings returns warnings if the file was made by hand, or edited after it was written. Load
// puts these warnings into Warnings too.
func (s *Set) FileWarnings() []trace.Finding {
	if s.Origin == OriginHand {
		return []trace.Finding{trace.Findingf(HandMade, "the coefficients were made or changed by hand (origin: %s)", OriginHand)}
	}
	if s.Changed == "" {
		return nil
	}
	return []trace.Finding{trace.Findingf(DocumentChanged,
		"%s was changed after it was written; its values are used as they stand", s.Changed)}
}

// yamlError adds file, line and code to an error of reading the document.
func yamlError(file string, text []byte, err error) error {
	if _, ok := errors.AsType[*trace.Error](err); ok {
		return withPlace(file, text, err)
	}
	e, ok := errors.AsType[*trace.SyntaxError](err)
	if !ok {
		return err
	}
	if strings.HasPrefix(e.Msg, "unknown key ") {
		e.Msg += ", want one of docs/coefficients.md"
	}
	e.Code = BadFile
	e.File = file
	return e
}

// withPlace adds file and line to a coded error whose message starts with the path of a key.
func withPlace(file string, text []byte, err error) error {
	coded, ok := errors.AsType[*trace.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	line, col := placeOfPath(text, coded.Msg)
	return &trace.SyntaxError{File: file, Line: line, Col: col, Code: coded.Code, Msg: coded.Msg, Hint: coded.Hint}
}

// placeOfPath returns the line and column of the key path with which the message starts, such as
// alpha.queue.covariance[2], below physics_coefficients or at the top level; 0, 0 if there is none. Of a
// path whose end is not in the file it is the place of the longest part that is.
func placeOfPath(text []byte, msg string) (line, col int64) {
	root, err := files.ParseYAML(text, "")
	if root == nil || err != nil {
		return 0, 0
	}
	path, _, _ := strings.Cut(msg, ": ")
	path, _, _ = strings.Cut(path, " ")
	keys := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	for _, start := range []*yaml.Node{childNode(root, "physics_coefficients"), root} {
		n := start
		for _, key := range keys {
			next := childNode(n, key)
			if next == nil {
				break
			}
			n = next
		}
		if n != nil && n != start {
			return int64(n.Line), int64(n.Column)
		}
	}
	return 0, 0
}

// childNode returns the value under a key, or the item at a decimal index.
func childNode(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind == yaml.SequenceNode {
		var i int
		if c, _ := fmt.Sscanf(key, "%d", &i); c == 1 && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
		return nil
	}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

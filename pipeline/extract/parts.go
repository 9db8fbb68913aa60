package extract

// This file lets several processes decode one large input: it cuts the input into pieces, does one
// piece, and gathers the finished pieces as one input.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Kinds of inputs that can be read in parts.
const (
	kindTraces = "traces"
	kindKV     = "kv_events"
)

// Piece is one task on a large input: to decode a part of it, or to compute its SHA-256. Several
// processes can do the pieces of one input.
type Piece struct {
	Kind  string       `json:"kind"` // traces or kv_events
	Name  string       `json:"name"` // relative, as in extract.json
	Path  string       `json:"path"` // absolute
	Bytes int64        `json:"bytes"`
	Part  *source.Part `json:"part,omitempty"` // nil: compute the SHA-256 of the whole input
}

// Files of a finished piece.
const (
	partFile = "part"     // written by source.Store
	SumFile  = "sum.json" // a JSON string
)

// cutPieces returns the pieces of the inputs that can be cut into parts of about pieceBytes: for
// each input the task of its SHA-256, and then its parts in order. The hash is a task of its own,
// because it has to read the input in one go. With 0 nothing is cut.
func (s *inputSet) cutPieces(pieceBytes int64) ([]Piece, error) {
	var out []Piece
	if pieceBytes <= 0 {
		return nil, nil
	}
	for _, k := range s.kinds() {
		if k.name != kindTraces && k.name != kindKV {
			continue
		}
		cuts, err := source.Cut(k.list, pieceBytes)
		if err != nil {
			return nil, err
		}
		for i, parts := range cuts {
			if len(parts) < 2 { // it is small, or of a form that cannot be cut
				continue
			}
			path, err := filepath.Abs(k.list[i].Path)
			if err != nil {
				return nil, err
			}
			p := Piece{Kind: k.name, Name: k.list[i].Name, Path: path, Bytes: parts[len(parts)-1].To}
			out = append(out, p)
			for j := range parts {
				p.Part = &parts[j]
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// Do does the task and writes the result, the decoded part or the SHA-256, into the folder o.Out.
func (p *Piece) Do(ctx context.Context, o Options) error {
	st, err := os.Stat(p.Path)
	if err != nil {
		return err
	}
	if st.Size() != p.Bytes {
		return trace.Errorf(codeInputsChanged, "%s: got %d bytes, want the %d that were planned", p.Path, st.Size(),
			p.Bytes).WithHint(planAgain)
	}
	if p.Part == nil {
		_, sum, err := files.Hash(p.Path)
		if err != nil {
			return err
		}
		text, err := json.Marshal(sum)
		if err != nil {
			return err
		}
		return files.Write(filepath.Join(o.Out, SumFile), text)
	}
	f, err := os.Create(filepath.Join(o.Out, partFile))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<18)
	in := source.Input{Path: p.Path, Name: p.Name, Part: p.Part}
	if p.Kind == kindKV {
		err = source.Store(ctx, in, o.streaming(), enginelog.NewKVDecoder, w)
	} else {
		err = source.Store(ctx, in, o.streaming(), otlp.NewDecoder, w)
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// Stored is an input that was read in parts by other processes.
type Stored struct {
	Kind    string   `json:"kind"` // traces or kv_events
	Name    string   `json:"name"` // relative, as in extract.json
	Bytes   int64    `json:"bytes"`
	Sum     string   `json:"sha256"`
	Folders []string `json:"folders"` // of its parts, in order
}

// Gather returns finished pieces, in the order of cutPieces, combined into inputs. folders[i] is the
// folder of the i-th piece, and path maps it to its place on this machine.
func Gather(pieces []Piece, folders []string, path func(folder string) string) ([]Stored, error) {
	var out []Stored
	for i := range pieces {
		p := &pieces[i]
		if p.Part != nil { // of the input whose SHA-256 came before
			last := &out[len(out)-1]
			last.Folders = append(last.Folders, folders[i])
			continue
		}
		s := Stored{Kind: p.Kind, Name: p.Name, Bytes: p.Bytes}
		text, err := files.ReadAll(filepath.Join(path(folders[i]), SumFile))
		if err == nil {
			err = json.Unmarshal(text, &s.Sum)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// useStored makes inputs whose parts were decoded before be read from these decoded parts.
func (s *inputSet) useStored(list []Stored) {
	for _, k := range s.kinds() {
		for i := range k.list {
			in := &k.list[i]
			found := slices.IndexFunc(list, func(s Stored) bool { return s.Kind == k.name && s.Name == in.Name })
			if found < 0 {
				continue
			}
			stored := &list[found]
			in.Size = stored.Bytes
			in.Sum = stored.Sum
			for _, folder := range stored.Folders {
				in.Stored = append(in.Stored, filepath.Join(folder, partFile))
			}
		}
	}
}

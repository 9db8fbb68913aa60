package main

// This file copies what tasks read of objects in buckets into local files.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/beam/bucket"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/shard"
)

// mirror is a local folder with a sparse file for each object: it has the object's length, but only
// those bytes that were fetched. Every worker has a mirror of its own, under the same name, so that the
// paths in the plan are valid on all of them.
type mirror struct {
	Dir     string          `json:"dir"`   // absolute
	Whole   int64           `json:"whole"` // objects up to this length are fetched whole, bytes
	Objects []bucket.Object `json:"objects"`

	mu     sync.Mutex              // of stores
	stores map[string]bucket.Store // by scheme
	count  func(n int64)           // called with the bytes that were fetched; nil: not counted
}

const (
	mirrorFile = "mirror.json" // in the folder of the plan
	headBytes  = 4 << 20       // of a long object: enough to recognise its form
	tailBytes  = 64 << 10      // after a part, in which the end of its last line is sought; then twice as many, and so on
)

// newMirror lists the objects below the addresses among the inputs, fetches what the planning of a
// run reads, and writes mirrorFile. It returns the inputs with paths in the mirror in place of
// addresses. Without addresses there is no mirror, and the inputs are returned unchanged.
func newMirror(ctx context.Context, inputs []string, dir string, whole int64) (*mirror, []string, error) {
	if !slices.ContainsFunc(inputs, bucket.IsURL) {
		return nil, inputs, nil
	}
	key := sha256.Sum256([]byte(dir)) // of the plan: two plans on one machine have two mirrors
	m := &mirror{Dir: filepath.Join(os.TempDir(), "blis-train-mirror", hex.EncodeToString(key[:8])), Whole: whole}
	local := slices.Clone(inputs)
	for i, url := range inputs {
		if !bucket.IsURL(url) {
			continue
		}
		url = strings.TrimSuffix(url, "/")
		s, err := m.store(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		in, name := bucket.Split(url)
		found, err := s.List(ctx, in, name)
		if err != nil {
			return nil, nil, err
		}
		n := len(m.Objects)
		for _, o := range found {
			isBelow := o.URL == url || strings.HasPrefix(o.URL, url+"/") // and not a longer name that begins so
			isFolder := strings.HasSuffix(o.URL, "/")                    // the empty object that some tools make
			if !isBelow || isFolder {
				continue
			}
			if _, name := bucket.Split(o.URL); !filepath.IsLocal(filepath.FromSlash(name)) {
				return nil, nil, fmt.Errorf("%s: got a name that leaves its bucket, want one that can be a file's", o.URL)
			}
			m.Objects = append(m.Objects, o)
		}
		if len(m.Objects) == n {
			return nil, nil, fmt.Errorf("%s: got no objects below it", url)
		}
		local[i] = m.path(url)
	}
	for i := range m.Objects {
		if err := m.lay(ctx, &m.Objects[i], false); err != nil {
			return nil, nil, err
		}
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, mirrorFile), text, 0o666))
	}
	return m, local, err
}

// readMirror returns the mirror of a plan; nil if its recordings are files.
func readMirror(dir string) (*mirror, error) {
	text, err := os.ReadFile(filepath.Join(dir, mirrorFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := &mirror{}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	return m, err
}

// path returns the path of an object's file in the mirror.
func (m *mirror) path(url string) string {
	return filepath.Join(m.Dir, strings.Replace(url, "://", "/", 1))
}

// store returns the store of an address, one for each service.
func (m *mirror) store(ctx context.Context, url string) (bucket.Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	scheme, _, _ := strings.Cut(url, ":")
	if s := m.stores[scheme]; s != nil {
		return s, nil
	}
	s, err := bucket.StoreOf(ctx, url)
	if err != nil {
		return nil, err
	}
	if m.stores == nil {
		m.stores = map[string]bucket.Store{}
	}
	m.stores[scheme] = s
	return s, nil
}

// reading is the part of a task's spec that names recordings: a piece of one in the pass parse, a run
// folder in the pass tables. Tasks of other passes read what earlier ones wrote.
type reading struct {
	Piece  *extract.Piece   `json:"piece"`
	Run    *extract.Planned `json:"run"`
	Stored []extract.Stored `json:"stored"` // inputs of the run that were read in pieces before
}

// readingOf returns the recordings that a task reads.
func readingOf(t *shard.Task) (r reading, err error) {
	if t.Pass == "parse" || t.Pass == "tables" {
		err = json.Unmarshal(t.Spec, &r)
	}
	return r, err
}

// stores reports whether an input of the run was read in pieces before.
func (r *reading) stores(name string) bool {
	return slices.ContainsFunc(r.Stored, func(s extract.Stored) bool { return s.Name == name })
}

// prepare fetches what a task reads: a whole input or its part, or all inputs of a run folder. Of an
// input that was read in pieces before, only its head is needed.
func (m *mirror) prepare(ctx context.Context, task *shard.Task) error {
	reads, err := readingOf(task)
	for i := range m.Objects {
		if err != nil {
			return err
		}
		o := &m.Objects[i]
		path := m.path(o.URL)
		switch piece, run := reads.Piece, reads.Run; {
		case piece != nil && path == piece.Path && piece.Part == nil:
			err = m.fetch(ctx, o, 0, o.Bytes)
		case piece != nil && path == piece.Path:
			err = m.fetchPart(ctx, o, piece.Part.From, piece.Part.To, piece.Part.OfLines())
		case run != nil:
			if name, _ := filepath.Rel(run.Dir, path); filepath.IsLocal(name) {
				err = m.lay(ctx, o, !reads.stores(filepath.ToSlash(name)))
			}
		}
	}
	return err
}

// lay puts an object into the mirror: whole if all is set, if it is short, or if even planning has to
// read it whole; of other objects the beginning and the last byte, by which a plan recognises the form.
func (m *mirror) lay(ctx context.Context, o *bucket.Object, all bool) error {
	if all || o.Bytes <= max(m.Whole, headBytes) {
		return m.fetch(ctx, o, 0, o.Bytes)
	}
	if err := errors.Join(m.fetch(ctx, o, 0, headBytes), m.fetch(ctx, o, o.Bytes-1, o.Bytes)); err != nil {
		return err
	}
	f, err := os.Open(m.path(o.URL))
	if err != nil {
		return err
	}
	defer f.Close()
	var first [1]byte
	if _, err := f.ReadAt(first[:], 0); err != nil {
		return err
	}
	// JSON begins with a bracket or a blank, gzip with 1f, zstd with 28. Anything else is a file of messages
	// with their lengths before them, which must be read whole to find where a part can begin.
	if !strings.ContainsRune("{[ \n\r\t\x1f\x28", rune(first[0])) {
		return m.fetch(ctx, o, headBytes, o.Bytes)
	}
	return nil
}

// fetchPart fetches the bytes [from, to) of an object. Of a file of lines it also fetches the byte
// before, which shows whether a line begins at from, and the rest of the last line.
func (m *mirror) fetchPart(ctx context.Context, o *bucket.Object, from, to int64, lines bool) error {
	if !lines {
		return m.fetch(ctx, o, from, to)
	}
	if err := m.fetch(ctx, o, max(0, from-1), to); err != nil {
		return err
	}
	f, err := os.Open(m.path(o.URL))
	if err != nil {
		return err
	}
	defer f.Close()
	at, end := to-1, to // the bytes in which the end of the line is sought: at first the last one of the part
	for more := int64(tailBytes); ; more *= 2 {
		text := make([]byte, end-at)
		if _, err := f.ReadAt(text, at); err != nil {
			return err
		}
		if end == o.Bytes || bytes.IndexByte(text, '\n') >= 0 {
			return nil
		}
		at, end = end, min(end+more, o.Bytes)
		if err := m.fetch(ctx, o, at, end); err != nil {
			return err
		}
	}
}

// fetch copies the bytes [from, to) of an object into its file in the mirror. It is an error if the object
// no longer has the length that it had when it was listed.
func (m *mirror) fetch(ctx context.Context, o *bucket.Object, from, to int64) (err error) {
	path := m.path(o.URL)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(o.Bytes); err != nil || from >= to {
		return err
	}
	s, err := m.store(ctx, o.URL)
	if err != nil {
		return err
	}
	in, name := bucket.Split(o.URL)
	r, size, err := s.Open(ctx, in, name, from, to-from)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(io.NewOffsetWriter(f, from), r)
	if m.count != nil {
		m.count(n)
	}
	if err == nil && (size != o.Bytes || n != to-from) {
		err = fmt.Errorf("%s: got %d bytes from %d on of %d, want %d of %d: it changed, plan again into another folder", o.URL, n, from, size,
			to-from, o.Bytes)
	}
	return err
}

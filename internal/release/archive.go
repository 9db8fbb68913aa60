package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// papers travel with every binary.
var papers = []string{"LICENSE", "README.md", "CHANGELOG.md"}

// pack writes the archive of a binary and its bill of materials.
func pack(out, bin string, t target, s stamp) ([]string, error) {
	base := filepath.Join(out, fmt.Sprintf("blis-train_%s_%s_%s", s.version, t.os, t.arch))
	name, write := base+".tar.gz", writeTar
	if t.os == "windows" {
		name, write = base+".zip", writeZip
	}
	bom := base + ".cdx.json"
	if err := writeBOM(bom, bin, s); err != nil {
		return nil, err
	}
	return []string{name, bom}, write(name, append([]string{bin}, papers...), s.date)
}

// writeTar writes files by base name, owned by nobody in particular, all of one date.
func writeTar(name string, files []string, date time.Time) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer closed(f, &err)
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	defer closed(z, &err)
	w := tar.NewWriter(z)
	defer closed(w, &err)
	for _, path := range files {
		text, mode, err := readFile(path)
		if err != nil {
			return err
		}
		if err := tarFile(w, filepath.Base(path), text, mode, date); err != nil {
			return err
		}
	}
	return nil
}

func tarFile(w *tar.Writer, name string, text []byte, mode int64, date time.Time) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: mode, ModTime: date, Format: tar.FormatPAX}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

func writeZip(name string, files []string, date time.Time) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer closed(f, &err)
	w := zip.NewWriter(f)
	defer closed(w, &err)
	for _, path := range files {
		text, _, err := readFile(path)
		if err != nil {
			return err
		}
		part, err := w.CreateHeader(&zip.FileHeader{Name: filepath.Base(path), Method: zip.Deflate, Modified: date})
		if err != nil {
			return err
		}
		if _, err := part.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// readFile is a file and the mode it gets: a binary may be executed.
func readFile(path string) ([]byte, int64, error) {
	text, err := os.ReadFile(path)
	for _, p := range papers {
		if filepath.Base(path) == p {
			return text, 0o644, err
		}
	}
	return text, 0o755, err
}

// closed closes and keeps the first error.
func closed(c io.Closer, err *error) {
	if e := c.Close(); *err == nil {
		*err = e
	}
}

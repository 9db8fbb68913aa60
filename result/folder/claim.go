package folder

// This file locks an output folder and removes what an interrupted command left in it.

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/trace"
)

// Claim creates the output folder and locks it against other processes until release is called.
// Unless force is set, it returns an error for a folder that contains files of other programs, and
// in any case for one that has a link, a pipe or a device under the name of an own file (ownNames).
// It removes half-written files of killed processes. release also removes the folders that Claim
// created if they are still empty.
func Claim(dir string, force bool) (release func(), err error) {
	made := missingFolders(dir)
	if err := prepareFolder(dir, force); err != nil {
		return nil, err
	}
	unlock, taken, err := files.Lock(dir)
	switch {
	case err != nil:
		return nil, err
	case taken:
		return nil, trace.Hinted(fmt.Errorf("%s: another blis-train is writing there", dir), "wait for it, or choose another folder with -o")
	}
	if err := errors.Join(checkOwnFiles(dir), removeHalfWritten(dir)); err != nil {
		unlock()
		return nil, err
	}
	return func() {
		for _, d := range made {
			if os.Remove(d) != nil { // it has files
				break
			}
		}
		unlock()
	}, nil
}

// checkOwnFiles returns an error if the name of an own file is taken by a link, a pipe or a device.
func checkOwnFiles(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(ownNames)) {
		path := filepath.Join(dir, name)
		var err error
		if slices.Contains(ownFolders, name) {
			err = files.CheckTree(path)
		} else {
			err = files.CheckOutput(path, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// halfWritten matches the name of a file that was being written: NAME.tmp and eight hexadecimal digits by
// files.Begin, .TABLE-NUMBER.tmp as a table.
var halfWritten = regexp.MustCompile(`^(?:(.+)\.tmp[0-9a-f]{8}|\.([a-z_]+)-[0-9]+\.tmp)$`)

// removeHalfWritten removes the files that a killed process was writing: the documents, the tables of
// rows and the tables of runs.
func removeHalfWritten(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		depth := strings.Count(rel, string(filepath.Separator))
		if d.IsDir() {
			// Of the folders only tables/ and tables/run=ID/ are entered.
			if rel == "." || rel == "tables" || depth == 1 {
				return nil
			}
			return fs.SkipDir
		}
		name := halfWritten.FindStringSubmatch(d.Name())
		if name == nil || !d.Type().IsRegular() {
			return nil
		}
		if depth == 0 && !ownNames[name[1]] && !ownNames[name[2]+".parquet"] { // below tables/ all are ours
			return nil
		}
		return os.Remove(path)
	})
}

// missingFolders returns the folder and those of its parents that do not exist, the innermost
// first.
func missingFolders(dir string) (all []string) {
	for dir = filepath.Clean(dir); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		all = append(all, dir)
	}
	return all
}

// prepareFolder creates the folder, or checks that an existing one has no foreign files.
func prepareFolder(dir string, force bool) error {
	if dir == "" {
		return option.Misusef("missing -o OUT")
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o777)
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return option.Misusef("%s: got a file, want an output folder", dir)
	}
	if err != nil {
		return err
	}
	var foreign []string
	for _, e := range entries {
		if name := e.Name(); !ownNames[name] && !strings.Contains(name, ".tmp") {
			foreign = append(foreign, name)
		}
	}
	slices.Sort(foreign)
	if len(foreign) > 0 && !force {
		return &option.Misuse{
			Msg:  fmt.Sprintf("%s: the output folder holds files that blis-train did not write (%s)", dir, strings.Join(foreign[:min(3, len(foreign))], ", ")),
			Hint: "choose another folder, or add --force to write there all the same",
		}
	}
	return nil
}
